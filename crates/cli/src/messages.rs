//! What is said on standard output and standard error, whether anybody listens or not.
//!
//! The macros of the standard library panic where a stream is gone: a server whose terminal was
//! closed would end in the middle of what it says, with what it had promised to write. These go
//! before them wherever this crate prints, and nothing that they print controls the terminal.

/// Prints one line to standard error with all names escaped, and ignores a closed one.
macro_rules! eprintln {
    ($($what:tt)*) => {{
        $crate::output::error_line(&format!($($what)*));
    }};
}

/// Prints a text of several lines, or a part of one, to standard error.
macro_rules! eprint {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        // A closed standard error cannot be reported.
        drop(write!($crate::output::stderr(), $($what)*));
    }};
}

/// Prints a line to standard output; returns the error of a failed write.
macro_rules! println {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        writeln!($crate::output::stdout(), $($what)*)
    }};
}

/// Prints a text to standard output; returns the error of a failed write.
macro_rules! print {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        write!($crate::output::stdout(), $($what)*)
    }};
}
