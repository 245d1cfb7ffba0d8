//! Access to the host: page cache residency, activity of disks and processors, settings.
//!
//! * [`residency`]: pages of files in the page cache; dropping and prefetching them.
//! * [`activity`]: activity of processors and disks, and the share of this process.
//! * [`settings`]: the settings that a measurement depends on, and their changes.
//! * [`changes`]: files that other processes change, reported as it happens.
//! * [`mounts`], [`disk`], [`space`]: mount, disk and free space of a path.
//! * [`move_checks`]: obstacles to the move of a file to another file system.
//! * [`holders`]: processes and devices that prevent the unmount of a directory.
//! * [`extents`]: physical location of a file; [`free_runs`]: free space of its file system.
//! * [`file_walk`]: all files of a directory tree, in parallel.
//! * [`memory`]: available memory, and the order of the OOM killer.
//! * [`foreign_file`], [`process_identity`]: identities of files that other processes have open,
//!   and of processes.
//! * [`inspector`]: the process that inspects the processes of others.
//! * [`processes`], [`disk_counters`]: activity of processes and disks, without tracing.
//! * [`priority`]: nice value, scheduling policy and I/O priority of a thread.
//! * [`direct_read`]: reads past the page cache.
//! * [`relocate`]: moves of the data of a file into contiguous blocks.
//! * [`scratch`]: a temporary file system for a measurement, and its removal.
//! * [`stack`]: the block devices between a file system and the disks.
//! * [`state`]: host state that a scratch file system could change, for comparison before and
//!   after.
//! * [`tracefs`]: kernel trace events, in a private trace instance.
//! * [`watch`]: page cache activity by file and process, live.
//! * [`calibration`]: current speed of the machine.
//! * [`machine`]: processor, memory and kernel, for records.
//!
//! Invariants: no other crate of this workspace reads procfs or sysfs for the state of the host,
//! and no other crate changes it. A value that the host does not report is an error with its reason
//! or `None`, never a guess. Sizes are bytes, times are nanoseconds. All `unsafe` code is in
//! `syscall`.

#![deny(unsafe_code)]

pub mod activity;
mod bpf;
pub mod calibration;
pub mod changes;
mod damon;
mod device;
pub mod direct_read;
pub mod disk;
pub mod disk_counters;
pub mod extents;
pub mod file_walk;
pub mod foreign_file;
pub mod free_runs;
pub mod holders;
mod inspect;
pub mod inspector;
mod inspector_client;
pub mod machine;
pub mod memory;
pub mod mounts;
pub mod move_checks;
pub mod priority;
mod proc;
mod process_files;
pub mod process_identity;
mod process_links;
mod process_name;
pub mod processes;
pub mod relocate;
pub mod residency;
mod scan;
pub mod scratch;
pub mod settings;
pub mod space;
pub mod stack;
pub mod state;
mod syscall;
pub mod tracefs;
pub mod watch;
