//! The terminal of a live view: raw mode, alternate screen, key input.
//!
//! Invariant: dropping a [`LiveTerminal`] restores the terminal, and so does a panic before it
//! prints its message. A closed terminal ends the wait for keys.

use crate::output::raw_stdout;
use anyhow::{Context, Result};
use ratatui::backend::{Backend, TermionBackend};
use ratatui::layout::{Rect, Size};
use ratatui::termion::cursor::Show;
use ratatui::termion::raw::{IntoRawMode, RawTerminal};
use ratatui::termion::screen::{ToAlternateScreen, ToMainScreen};
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io::{self, Stdout, Write};
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// Size of a read from the keyboard: more than a person types at once, though a paste may exceed
/// it.
const INPUT_BYTES_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Char(char),
    Enter,
    Tab,
    /// Shift+Tab.
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
    /// Ctrl+C.
    Interrupt,
}

/// The result of waiting for the keyboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// No key was pressed before the timeout.
    Nothing,
    Keys(Vec<Key>),
    Closed,
}

pub(crate) struct LiveTerminal {
    /// Never dropped: its destructor reports a failed write to a closed terminal on standard error.
    view: ManuallyDrop<Terminal<TermionBackend<Stdout>>>,
    raw: Arc<RawTerminal<Stdout>>,
    size: Size,
}

/// Returns the viewport in a terminal of this size: a terminal that reports no size, as under
/// script(1) or `docker exec`, gets 80 columns and 24 rows.
fn viewport(size: Size) -> Viewport {
    if size.width == 0 || size.height == 0 {
        Viewport::Fixed(Rect::new(0, 0, 80, 24))
    } else {
        Viewport::Fullscreen
    }
}

/// Returns the view of a terminal of this size.
fn view(size: Size) -> io::Result<ManuallyDrop<Terminal<TermionBackend<Stdout>>>> {
    let options = TerminalOptions { viewport: viewport(size) };
    let view = Terminal::with_options(TermionBackend::new(raw_stdout()), options)?;
    Ok(ManuallyDrop::new(view))
}

impl LiveTerminal {
    /// Switches the terminal on standard output to raw mode and the alternate screen.
    ///
    /// # Errors
    /// Standard output is not a terminal, or a write to it failed.
    pub(crate) fn enter() -> Result<Self> {
        let raw = Arc::new(raw_stdout().into_raw_mode().context("set the terminal to raw mode")?);
        let in_panic = Arc::clone(&raw);
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore(&in_panic);
            report(panic);
        }));
        let size = TermionBackend::new(raw_stdout()).size().unwrap_or_default();
        let this = LiveTerminal { view: view(size)?, raw, size };
        write!(raw_stdout(), "{ToAlternateScreen}")?;
        Ok(this)
    }

    /// Draws a frame.
    ///
    /// # Errors
    /// A write to the terminal failed.
    pub(crate) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        let size = self.view.size().unwrap_or_default();
        if viewport(size) != viewport(self.size) {
            self.view = view(size)?;
            self.view.backend_mut().clear()?;
        }
        self.size = size;
        self.view.draw(render)?;
        Ok(())
    }

    /// Returns true if the terminal was resized since the last frame.
    pub(crate) fn is_resized(&self) -> bool {
        self.view.size().unwrap_or_default() != self.size
    }
}

impl Drop for LiveTerminal {
    fn drop(&mut self) {
        restore(&self.raw);
    }
}

/// Restores the terminal, and ignores the errors of a closed one.
fn restore(raw: &RawTerminal<Stdout>) {
    let mut output = raw_stdout();
    drop(write!(output, "{Show}{ToMainScreen}").and_then(|()| output.flush()));
    drop(raw.suspend_raw_mode());
}

/// Waits up to `timeout` for keys.
///
/// # Errors
/// poll(2) or read(2) failed.
pub(crate) fn wait_for_keys(input: impl AsFd, timeout: Duration) -> Result<Input> {
    let mut polled = [PollFd::new(&input, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).context("wait for input")?;
    match rustix::event::poll(&mut polled, Some(&timeout)) {
        // The caller checks for signals next.
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

/// Decodes the input of a terminal in raw mode: UTF-8 text, and ECMA-48 control sequences with
/// xterm's key codes. Unknown sequences are ignored.
fn keys(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while !bytes.is_empty() {
        let (key, length) = first_key(bytes);
        keys.extend(key);
        bytes = &bytes[length..];
    }
    keys
}

/// Decodes the first key. Returns it, if a view uses it, and its length in bytes.
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
    fn a_terminal_without_a_size_has_80_columns_and_24_rows() {
        let expected = Viewport::Fixed(Rect::new(0, 0, 80, 24));
        for (width, height) in [(0, 0), (0, 24), (80, 0)] {
            assert_eq!(viewport(Size::new(width, height)), expected);
        }
        assert_eq!(viewport(Size::new(100, 40)), Viewport::Fullscreen);
    }

    #[test]
    fn terminal_input_is_decoded() {
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
            // Unknown, truncated, and invalid input.
            (b"\x1b[99~w", &[Char('w')]),
            (b"\x1b[1;", &[]),
            (b"\xff\x80\x01", &[]),
        ];
        for (bytes, expected) in cases {
            assert_eq!(keys(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn arbitrary_input_is_decoded_to_its_end() {
        for first in 0..=u8::MAX {
            for second in 0..=u8::MAX {
                for last in [b'[', b'~', 0x1b, 0xff] {
                    assert!(keys(&[0x1b, first, second, last]).len() <= 4);
                }
            }
        }
    }

    #[test]
    fn waiting_reports_a_timeout_keys_and_a_closed_terminal() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(wait_for_keys(&ours, Duration::ZERO).unwrap(), Input::Nothing);
        (&theirs).write_all(b"q").unwrap();
        let minute = Duration::from_mins(1);
        let typed = wait_for_keys(&ours, minute).unwrap();
        assert_eq!(typed, Input::Keys(vec![Key::Char('q')]), "it returns immediately");
        drop(theirs);
        assert_eq!(wait_for_keys(&ours, minute).unwrap(), Input::Closed);
    }
}
