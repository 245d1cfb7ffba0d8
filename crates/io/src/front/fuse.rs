//! The FUSE front end: volumes as regular files in a directory, so that on any kernel a loop device
//! or a mount makes a file system of a cached volume; and directories with all that is in them, whose
//! files are cached.
//!
//! A few threads, each with a descriptor of its own, read requests from /dev/fuse, answer hits at
//! once, straight from cache memory, and go on with the others when the cache says so. The kernel
//! keeps no pages of the files but for mappings: their only copy in memory is the cache's. The
//! protocol is spoken here and not by a library, as docs/ARCHITECTURE.md says under "Decisions".

mod abi;
mod data;
mod device;
mod directory;
mod files;
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod link;
mod mount;
mod mounted;
mod nodes;
mod notify;
mod passthrough;
mod ring;
mod volume_session;
mod worker;

pub use crate::mount_table::MountRestrictions;
pub use directory::{
    ChangeEvents, Directory, DirectoryError, DirectoryMount, DirectoryOptions, FailingFile,
    FileFigures, FileGlob, FileOptions, FileRule, KernelPages, OpenedDirectory,
};
pub use files::check_name;
pub use mount::{MountError, UnmountError, detach_ours};
pub use mounted::VolumeMount;
