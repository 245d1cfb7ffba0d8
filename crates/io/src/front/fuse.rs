//! The FUSE front end mounts volumes as regular files in a directory, so that any kernel can attach
//! a loop device or mount the file system of a cached volume; and it mounts directories whose file
//! data is cached.
//!
//! A few threads, each with its own descriptor of /dev/fuse, read requests, answer hits at once
//! from cache memory, and continue the others when their completions arrive. The kernel caches
//! pages of the files only for mappings, so that the cache holds the only copy of their data in
//! memory. This module implements the protocol without a library, for the reasons in
//! docs/ARCHITECTURE.md under "Decisions".

mod abi;
mod data;
mod device;
mod directory;
mod directory_mount;
mod files;
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod link;
mod mount;
mod mount_failure;
mod nodes;
mod notify;
mod passthrough;
mod ring;
mod running_mount;
mod shared;
mod volume_session;
mod worker;

pub use crate::mount_table::MountRestrictions;
pub use directory::{
    ChangeEvents, Directory, DirectoryError, DirectoryOptions, FileGlob, FileOptions, FileRule,
    KernelPages, OpenedDirectory,
};
pub use directory_mount::{DirectoryMount, FailingFile, FileCounters};
pub use files::check_name;
pub use mount::{MountError, UnmountError, detach_ours};
pub use running_mount::{RunningMount, VolumeMount};
