//! BPF programs that the kernel runs at its tracepoints.
//!
//! * [`Types`]: offsets of the members of kernel structures, from the kernel's BTF.
//! * [`Code`]: an assembler; a program has some hundred instructions, so Larder needs no compiler,
//!   neither on the build machine nor on the target.
//! * [`Ring`]: records from programs to this process.
//! * [`crate::syscall::bpf`]: maps and program loading.
//!
//! Invariants: every offset comes from the running kernel; programs and maps live as long as their
//! file descriptors, so the kernel removes them when this process ends for whatever reason.

mod code;
mod ring;
mod types;

pub(crate) use code::{Access, Alu, Code, JumpCondition, Label, Reg};
pub(crate) use ring::Ring;
pub(crate) use types::{Types, TypesError, map_types};

/// Kernel helper functions, by number (include/uapi/linux/bpf.h).
pub(crate) mod helper {
    /// Returns the monotonic clock in nanoseconds.
    pub(crate) const KTIME_GET_NS: i32 = 5;
    /// Returns the value of a key in a map.
    pub(crate) const MAP_LOOKUP_ELEM: i32 = 1;
    /// Reserves space for a record in a ring buffer.
    pub(crate) const RINGBUF_RESERVE: i32 = 131;
    /// Submits a reserved record.
    pub(crate) const RINGBUF_SUBMIT: i32 = 132;
    /// Returns the map value that belongs to a task.
    pub(crate) const TASK_STORAGE_GET: i32 = 156;
    /// Returns the running task.
    pub(crate) const GET_CURRENT_TASK_BTF: i32 = 158;
}
