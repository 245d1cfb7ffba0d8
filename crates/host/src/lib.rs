//! The machine: what of a file is resident, what disks and processors do, what is set.
//!
//! * [`residency`]: which pages of files the page cache holds, and making it hold none or all.
//! * [`activity`]: what processors and disks have done, and how much of it was ours.
//! * [`settings`]: the settings that a measurement depends on, and what changed of them.
//! * [`changes`]: which files others change, as it happens.
//! * [`mounts`], [`disk`], [`space`]: where a path lies, and how much room is there.
//! * [`holders`]: who keeps a directory from being unmounted.
//! * [`extents`]: where on its disk a file lies.
//! * [`memory`]: how much can be had, and who is ended first.
//! * [`processes`], [`disk_counters`]: what processes and disks have done, without tracing.
//! * [`priority`]: nice value, scheduling policy and I/O priority of a thread.
//! * [`scratch`]: a file system made for a measurement, and undone again.
//! * [`state`]: what making one could leave changed, to be compared before and after.
//! * [`tracefs`]: events of the kernel, in an instance of our own.
//! * [`watch`]: what the file cache does, by file and process, live.
//! * [`yardstick`]: how fast the machine is right now.
//! * [`machine`]: processor, memory, kernel, for records.
//!
//! Invariants: nobody else in this workspace reads procfs or sysfs about the machine, and nobody
//! else changes it. What cannot be told is an error with its reason or `None`, never a guess.
//! Sizes are bytes, times are nanoseconds. All `unsafe` is in `syscall`.

#![deny(unsafe_code)]

pub mod activity;
#[cfg(feature = "bpf")]
mod bpf;
pub mod calibration;
pub mod changes;
mod damon;
pub mod disk;
pub mod disk_counters;
pub mod extents;
pub mod holders;
pub mod machine;
pub mod memory;
pub mod mounts;
pub mod priority;
mod proc;
pub mod processes;
pub mod residency;
pub mod scratch;
pub mod settings;
pub mod space;
pub mod state;
mod syscall;
pub mod tracefs;
pub mod watch;
