//! Writing text piece by piece.

/// Adds formatted text to a `String`.
macro_rules! put {
    ($to:expr, $($text:tt)*) => {
        $to.push_str(&format!($($text)*))
    };
}

/// The same with a line break.
macro_rules! put_line {
    ($to:expr, $($text:tt)*) => {{
        put!($to, $($text)*);
        $to.push('\n');
    }};
}
