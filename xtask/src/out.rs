//! Output of proofs: printed immediately, or buffered if several proofs run at the same time.

use std::cell::RefCell;

thread_local! {
    static BUFFER: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Prints a line like `println!`, to the output of this thread.
macro_rules! outln {
    () => { crate::out::line("") };
    ($($word:tt)*) => { crate::out::line(&format!($($word)*)) };
}
pub(crate) use outln;

/// Prints or buffers a line.
pub(crate) fn line(text: &str) {
    BUFFER.with_borrow_mut(|buffer| match buffer {
        Some(buffer) => buffer.extend([text, "\n"]),
        None => println!("{text}"),
    });
}

/// Buffers the output of this thread from now on.
pub(crate) fn start_buffering() {
    BUFFER.set(Some(String::new()));
}

/// Ends the buffering and returns the output of this thread.
pub(crate) fn take_buffered() -> String {
    BUFFER.take().unwrap_or_default()
}
