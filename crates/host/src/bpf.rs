//! Small programs of our own that the kernel runs at its tracepoints.
//!
//! * [`Types`]: where the members of the kernel's structures lie, as it says itself.
//! * [`Code`]: an assembler; a program is some hundred instructions, so no compiler is needed,
//!   neither where this is built nor where it runs.
//! * [`Ring`]: records from programs to us.
//! * maps and loading are in [`crate::syscall::bpf`].
//!
//! Invariants: offsets are never known beforehand; programs and maps go with their descriptors, so
//! that nothing stays when this process ends, however it ends.

mod code;
mod ring;
mod types;

pub(crate) use code::{Access, Alu, Code, JumpCondition, Label, Reg};
pub(crate) use ring::Ring;
pub(crate) use types::{Types, TypesError, map_types};

/// Helpers of the kernel, by number (include/uapi/linux/bpf.h).
pub(crate) mod helper {
    /// Nanoseconds of the monotonic clock.
    pub(crate) const KTIME: i32 = 5;
    /// The value of a key in a map.
    pub(crate) const LOOK_UP: i32 = 1;
    /// Room for a record in a ring.
    pub(crate) const RESERVE: i32 = 131;
    /// The record is done.
    pub(crate) const SUBMIT: i32 = 132;
    /// The value of a thread.
    pub(crate) const OF_THREAD: i32 = 156;
    /// The running thread.
    pub(crate) const THREAD: i32 = 158;
}
