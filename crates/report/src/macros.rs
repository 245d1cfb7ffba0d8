//! Macros that append formatted text to a string.

/// Appends formatted text to a `String`.
macro_rules! put {
    ($to:expr, $($text:tt)*) => {
        $to.push_str(&format!($($text)*))
    };
}

/// Appends formatted text and a line break.
macro_rules! put_line {
    ($to:expr, $($text:tt)*) => {{
        put!($to, $($text)*);
        $to.push('\n');
    }};
}
