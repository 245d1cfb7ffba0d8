//! The error values that replies carry.
//!
//! NBD's proto.md, "Error values": a closed list. A client takes an unknown value as `EINVAL`.

use std::fmt;

/// An error value of the transmission phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Errno {
    /// The export is read-only, or the server lacks permission.
    Perm = 1,
    /// Reading or writing failed.
    Io = 5,
    /// The server has no memory for the request.
    NoMem = 12,
    /// The request is malformed, out of range for a read, or unknown.
    Inval = 22,
    /// No space, or a write beyond the end.
    NoSpace = 28,
    /// Too long for one chunk; only an answer to the command flag `DF`.
    Overflow = 75,
    /// Fast zeroing is not possible; only an answer to the command flag `FAST_ZERO`.
    NotSup = 95,
    /// The server is stopping.
    Shutdown = 108,
}

impl Errno {
    /// Returns the value on the wire.
    #[must_use]
    pub fn code(self) -> u32 {
        self as u32
    }

    /// Returns the error of a value from the wire; an unknown one counts as [`Errno::Inval`].
    #[must_use]
    pub fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Perm,
            5 => Self::Io,
            12 => Self::NoMem,
            28 => Self::NoSpace,
            75 => Self::Overflow,
            95 => Self::NotSup,
            108 => Self::Shutdown,
            _ => Self::Inval,
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Perm => "operation not permitted (EPERM)",
            Self::Io => "input/output error (EIO)",
            Self::NoMem => "out of memory (ENOMEM)",
            Self::Inval => "invalid request (EINVAL)",
            Self::NoSpace => "no space left (ENOSPC)",
            Self::Overflow => "too long for one chunk (EOVERFLOW)",
            Self::NotSup => "not supported (ENOTSUP)",
            Self::Shutdown => "server is stopping (ESHUTDOWN)",
        })
    }
}
