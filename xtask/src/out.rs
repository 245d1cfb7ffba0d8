//! Output of proofs: printed immediately, or buffered if several proofs run at the same time.

use std::cell::RefCell;

thread_local! {
    static KEPT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Prints a line like `println!`, to the output of this thread.
macro_rules! say {
    () => { crate::out::line("") };
    ($($word:tt)*) => { crate::out::line(&format!($($word)*)) };
}
pub(crate) use say;

/// Prints or buffers a line.
pub(crate) fn line(text: &str) {
    KEPT.with_borrow_mut(|kept| match kept {
        Some(kept) => kept.extend([text, "\n"]),
        None => println!("{text}"),
    });
}

/// Buffers the output of this thread from now on.
pub(crate) fn keep() {
    KEPT.set(Some(String::new()));
}

/// Ends the buffering and returns the output of this thread.
pub(crate) fn kept() -> String {
    KEPT.take().unwrap_or_default()
}
