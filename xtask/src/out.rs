//! Output of proofs: shown at once, or kept where several proofs run at a time.

use std::cell::RefCell;

thread_local! {
    static KEPT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Prints a line as `println!` does, to where the output of this thread goes.
macro_rules! say {
    () => { crate::out::line("") };
    ($($word:tt)*) => { crate::out::line(&format!($($word)*)) };
}
pub(crate) use say;

/// Shows or keeps a line.
pub(crate) fn line(text: &str) {
    KEPT.with_borrow_mut(|kept| match kept {
        Some(kept) => kept.extend([text, "\n"]),
        None => println!("{text}"),
    });
}

/// Keeps what this thread prints from now on.
pub(crate) fn keep() {
    KEPT.set(Some(String::new()));
}

/// Takes the output that this thread has kept.
pub(crate) fn kept() -> String {
    KEPT.take().unwrap_or_default()
}
