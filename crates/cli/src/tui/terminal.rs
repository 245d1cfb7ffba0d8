//! The terminal of a live view: raw mode, the alternate screen, and the keys that are pressed.
//!
//! Invariant: dropping a [`LiveTerminal`] puts the terminal back, and so does a panic before it
//! prints its message. A terminal that is gone is never waited for and never written to in vain.

use crate::output::raw_stdout;
use anyhow::{Context, Result};
use ratatui::backend::TermionBackend;
use ratatui::layout::Size;
use ratatui::termion::cursor::Show;
use ratatui::termion::raw::{IntoRawMode, RawTerminal};
use ratatui::termion::screen::{ToAlternateScreen, ToMainScreen};
use ratatui::{Frame, Terminal};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io::{Stdout, Write};
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of one read from the keyboard: more than a person types, less than it takes to paste.
const INPUT_BYTES_MAX: usize = 256;

/// A key of the keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// A letter, digit or sign.
    Char(char),
    Enter,
    Tab,
    /// Shift and Tab.
    BackTab,
    Backspace,
    Esc,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    /// Control and C.
    Interrupt,
}

/// The result of waiting for the keyboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// Nothing was typed in the time.
    Nothing,
    /// Keys that were pressed, in order.
    Keys(Vec<Key>),
    /// The terminal was closed.
    Closed,
}

/// A terminal that shows a live view.
pub(crate) struct LiveTerminal {
    /// Never dropped: it would report on standard error that a closed terminal takes no output.
    view: ManuallyDrop<Terminal<TermionBackend<Stdout>>>,
    raw: Arc<RawTerminal<Stdout>>,
    size: Option<Size>,
}

impl LiveTerminal {
    /// Switches the terminal of standard output to a screen of its own.
    ///
    /// # Errors
    /// Standard output is no terminal, or takes no output.
    pub(crate) fn enter() -> Result<Self> {
        let raw = Arc::new(raw_stdout().into_raw_mode().context("read single keys")?);
        let in_panic = Arc::clone(&raw);
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore(&in_panic);
            report(panic);
        }));
        let view = ManuallyDrop::new(Terminal::new(TermionBackend::new(raw_stdout()))?);
        let this = LiveTerminal { view, raw, size: None };
        write!(raw_stdout(), "{ToAlternateScreen}")?;
        Ok(this)
    }

    /// Draws a frame.
    ///
    /// # Errors
    /// The terminal takes no output.
    pub(crate) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        self.size = self.view.size().ok();
        self.view.draw(render)?;
        Ok(())
    }

    /// Returns whether the terminal has another size than the last frame.
    pub(crate) fn is_resized(&self) -> bool {
        self.view.size().ok() != self.size
    }
}

impl Drop for LiveTerminal {
    fn drop(&mut self) {
        restore(&self.raw);
    }
}

/// Puts the terminal back, as far as it still exists.
fn restore(raw: &RawTerminal<Stdout>) {
    let mut output = raw_stdout();
    drop(write!(output, "{Show}{ToMainScreen}").and_then(|()| output.flush()));
    drop(raw.suspend_raw_mode());
}

/// Waits for keys, at most `timeout`.
///
/// # Errors
/// The kernel refuses to wait or to read.
pub(crate) fn wait_for_keys(input: impl AsFd, timeout: Duration) -> Result<Input> {
    let mut polled = [PollFd::new(&input, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).context("wait for input")?;
    match rustix::event::poll(&mut polled, Some(&timeout)) {
        // The caller looks at its signals next.
        Err(Errno::INTR) => return Ok(Input::Nothing),
        Ok(_) => {}
        Err(error) => return Err(error).context("wait for input"),
    }
    let ready = polled[0].revents();
    if ready.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        return Ok(Input::Closed);
    }
    if !ready.contains(PollFlags::IN) {
        return Ok(Input::Nothing);
    }
    let mut bytes = [0; INPUT_BYTES_MAX];
    match rustix::io::read(input, &mut bytes) {
        Ok(0) => Ok(Input::Closed),
        Ok(count) => Ok(Input::Keys(keys(&bytes[..count]))),
        Err(Errno::INTR | Errno::AGAIN) => Ok(Input::Nothing),
        Err(error) => Err(error).context("read the keyboard"),
    }
}

/// The keys that bytes of a terminal in raw mode stand for: control sequences of ECMA-48 with the
/// numbers that xterm gives to keys. Unknown sequences are ignored.
fn keys(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while !bytes.is_empty() {
        let (key, length) = first_key(bytes);
        keys.extend(key);
        bytes = &bytes[length..];
    }
    keys
}

/// The first key, if it is one that a view knows, and the number of its bytes.
fn first_key(bytes: &[u8]) -> (Option<Key>, usize) {
    match bytes {
        [0x1b, b'[' | b'O', rest @ ..] if !rest.is_empty() => {
            // Parameters, then one final byte.
            let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte));
            let end = end.unwrap_or(rest.len() - 1);
            (named_key(&rest[..end], rest[end]), end + 3)
        }
        [0x1b] => (Some(Key::Esc), 1),
        // A key pressed together with Alt.
        [0x1b, rest @ ..] => {
            let (key, length) = first_key(rest);
            (key, length + 1)
        }
        [b'\r' | b'\n', ..] => (Some(Key::Enter), 1),
        [b'\t', ..] => (Some(Key::Tab), 1),
        [0x7f | 0x08, ..] => (Some(Key::Backspace), 1),
        [0x03, ..] => (Some(Key::Interrupt), 1),
        _ => {
            let length = bytes.iter().skip(1).take_while(|&&byte| byte & 0xc0 == 0x80).count() + 1;
            let letter = std::str::from_utf8(&bytes[..length]).ok();
            let letter = letter.and_then(|text| text.chars().next());
            (letter.filter(|letter| !letter.is_control()).map(Key::Char), length)
        }
    }
}

/// The key of a control sequence.
fn named_key(parameters: &[u8], end: u8) -> Option<Key> {
    match (end, parameters.split(|&byte| byte == b';').next()) {
        (b'A', _) => Some(Key::Up),
        (b'B', _) => Some(Key::Down),
        (b'C', _) => Some(Key::Right),
        (b'D', _) => Some(Key::Left),
        (b'H', _) | (b'~', Some(b"1" | b"7")) => Some(Key::Home),
        (b'Z', _) => Some(Key::BackTab),
        (b'~', Some(b"5")) => Some(Key::PageUp),
        (b'~', Some(b"6")) => Some(Key::PageDown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_terminal_become_keys() {
        use Key::{BackTab, Backspace, Char, Down, Enter, Esc, Home, Interrupt, PageUp, Tab, Up};
        let cases: [(&[u8], &[Key]); 12] = [
            (b"q", &[Char('q')]),
            (b"ab\r", &[Char('a'), Char('b'), Enter]),
            ("\u{e4}x".as_bytes(), &[Char('\u{e4}'), Char('x')]),
            (b"\x1b", &[Esc]),
            (b"\x1b[A\x1bOB", &[Up, Down]),
            (b"\x1b[1;5A", &[Up]),
            (b"\x1b[5~\x1b[1~\x1b[Z", &[PageUp, Home, BackTab]),
            (b"\t\x7f\x08\x03", &[Tab, Backspace, Backspace, Interrupt]),
            (b"\x1bq", &[Char('q')]),
            // Unknown, cut off, and no text at all.
            (b"\x1b[99~w", &[Char('w')]),
            (b"\x1b[1;", &[]),
            (b"\xff\x80\x01", &[]),
        ];
        for (bytes, expected) in cases {
            assert_eq!(keys(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn any_bytes_are_read_to_their_end() {
        for first in 0..=u8::MAX {
            for second in 0..=u8::MAX {
                for last in [b'[', b'~', 0x1b, 0xff] {
                    assert!(keys(&[0x1b, first, second, last]).len() <= 4);
                }
            }
        }
    }

    #[test]
    fn a_closed_terminal_is_noticed_and_a_quiet_one_is_not() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(wait_for_keys(&ours, Duration::ZERO).unwrap(), Input::Nothing);
        (&theirs).write_all(b"q").unwrap();
        let minute = Duration::from_mins(1);
        let typed = wait_for_keys(&ours, minute).unwrap();
        assert_eq!(typed, Input::Keys(vec![Key::Char('q')]), "it returns at once");
        drop(theirs);
        assert_eq!(wait_for_keys(&ours, minute).unwrap(), Input::Closed);
    }
}
