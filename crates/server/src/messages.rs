//! Messages on standard output and standard error, also when the stream is closed.
//!
//! The macros of the standard library panic if a stream is closed: a server whose terminal was
//! closed would end in the middle of a message, and lose writes that it has acknowledged. These
//! macros replace them in this crate, and escape control sequences.

/// Prints one line to standard error with all names escaped; ignores a closed stream.
#[macro_export]
macro_rules! eprintln {
    ($($arguments:tt)*) => {{
        $crate::output::error_line(&format!($($arguments)*));
    }};
}

/// Prints a text of several lines, or a part of one, to standard error.
#[macro_export]
macro_rules! eprint {
    ($($arguments:tt)*) => {{
        use std::io::Write as _;
        // A closed standard error cannot be reported.
        drop(write!($crate::output::stderr(), $($arguments)*));
    }};
}

/// Prints a line to standard output; returns the error of a failed write.
#[macro_export]
macro_rules! println {
    ($($arguments:tt)*) => {{
        use std::io::Write as _;
        writeln!($crate::output::stdout(), $($arguments)*)
    }};
}

/// Prints a text to standard output; returns the error of a failed write.
#[macro_export]
macro_rules! print {
    ($($arguments:tt)*) => {{
        use std::io::Write as _;
        write!($crate::output::stdout(), $($arguments)*)
    }};
}
