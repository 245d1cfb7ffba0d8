//! A temporary file system for a measurement: an image in a private directory, attached to a loop
//! device with a given scheduler, and mounted; and its removal.
//!
//! Invariants: existing devices and mounts are never touched; removing or dropping the value undoes
//! everything that was created, and [`remove_left_over`] finds what a killed process left behind.
//! Sizes are bytes.

mod device;
mod directory;
mod kind;
mod tool;

pub(crate) use directory::PREFIX;
pub use directory::{CleanupResult, remove_left_over};
pub use kind::{KINDS, Kind};

use crate::space;
use directory::Directory;
use larder_schema::format;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tool::{run, tool};

/// Maximum time to wait for a busy device or mount: programs that inspect new ones (udev) finish
/// soon.
const BUSY_MAX: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Parameters of a scratch file system.
#[derive(Clone, Debug)]
pub struct ScratchOptions {
    /// Kind of file system.
    pub kind: &'static Kind,
    /// Size of the device in bytes.
    pub bytes: u64,
    /// Name of the device's I/O scheduler in the kernel.
    pub scheduler: String,
    /// Options for the mkfs program, in addition to the default ones.
    pub make_options: Vec<String>,
    /// Options for mount(8), separated by commas; may be empty.
    pub mount_options: String,
}

/// An error creating or removing a scratch file system. Every message can follow "cannot".
#[derive(Debug, thiserror::Error)]
pub enum ScratchError {
    /// A system call failed.
    #[error("{operation}: {source}")]
    Io {
        /// The operation and its object.
        operation: String,
        /// The system error.
        source: io::Error,
    },
    /// The kernel lacks the scheduler.
    #[error("use the scheduler \"{name}\": this kernel has {known}")]
    NoScheduler {
        /// The requested scheduler.
        name: String,
        /// The available schedulers.
        known: String,
    },
    /// Any other failure.
    #[error("{0}")]
    Other(String),
}

impl ScratchError {
    fn io(operation: impl Into<String>) -> impl FnOnce(io::Error) -> ScratchError {
        let operation = operation.into();
        move |source| ScratchError::Io { operation, source }
    }

    fn busy(operation: &str) -> ScratchError {
        ScratchError::io(operation)(Errno::BUSY.into())
    }

    fn is_busy(&self) -> bool {
        matches!(self, ScratchError::Io { source, .. }
            if source.kind() == io::ErrorKind::ResourceBusy)
    }
}

/// A mounted scratch file system, until removed or dropped.
#[derive(Debug)]
pub struct Scratch {
    directory: Option<Directory>,
    mount_point: PathBuf,
}

impl Scratch {
    /// Creates and mounts a scratch file system in a new directory inside `parent`.
    ///
    /// # Errors
    /// The first step that fails; completed steps are undone, or the error says that they are not.
    pub fn make(parent: &Path, options: &ScratchOptions) -> Result<Scratch, ScratchError> {
        let failed = ScratchError::io(format!("find out the free space of {}", parent.display()));
        let free = space::free_bytes(parent).map_err(failed)?;
        if free < options.bytes {
            return Err(ScratchError::Other(format!(
                "make an image in {}: it may grow to {} and {} are free; name a smaller size or \
                 another directory",
                parent.display(),
                format::bytes(options.bytes),
                format::bytes(free)
            )));
        }
        let mut directory = Directory::make(parent)?;
        match build(&mut directory, options) {
            Ok(()) => {
                let mount_point = directory.mount_point();
                Ok(Scratch { directory: Some(directory), mount_point })
            }
            Err(first) => Err(match directory.undo(BUSY_MAX) {
                Ok(()) => first,
                Err(second) => {
                    ScratchError::Other(format!("{first}; and what was made of it stays: {second}"))
                }
            }),
        }
    }

    /// Returns the mount point.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.mount_point
    }

    /// Unmounts the file system and removes its device and directory.
    ///
    /// # Errors
    /// A step fails; [`remove_left_over`] tries again.
    pub fn remove(mut self) -> Result<(), ScratchError> {
        self.directory.take().map_or(Ok(()), |directory| directory.undo(BUSY_MAX))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // After a panic the destructor cannot report a failure; the next start finds the remainder.
        drop(self.directory.take().map(|directory| directory.undo(BUSY_MAX)));
    }
}

/// Performs all creation steps. It sets the scheduler before it creates the file system, so that
/// the scheduler handles every write.
fn build(directory: &mut Directory, options: &ScratchOptions) -> Result<(), ScratchError> {
    let image = directory.image();
    let failed = ScratchError::io(format!("make {}", image.display()));
    File::create_new(&image).and_then(|file| file.set_len(options.bytes)).map_err(failed)?;
    let number = device::add(|number| directory.record_device(number))?;
    let device = device::attach(number, &image)?;
    device::set_scheduler(number, &options.scheduler)?;
    let kind = options.kind;
    let mut maker = tool(kind.maker, kind.package)?;
    run(maker.args(kind.all_options(&options.make_options)).arg(&device))?;
    let mut mount = tool("mount", "mount")?;
    mount.args(["-t", kind.fs_type]);
    if !options.mount_options.is_empty() {
        mount.args(["-o", &options.mount_options]);
    }
    run(mount.arg(&device).arg(directory.mount_point()))
}

/// Retries `attempt` for up to `limit` while it fails because something is busy. Returns the last
/// error.
fn retry_while_busy(
    limit: Duration,
    mut attempt: impl FnMut() -> Result<(), ScratchError>,
) -> Result<(), ScratchError> {
    let started = Instant::now();
    loop {
        let result = attempt();
        match &result {
            Err(error) if error.is_busy() && started.elapsed() < limit => {
                std::thread::sleep(PAUSE);
            }
            _ => return result,
        }
    }
}

#[cfg(test)]
mod tests;
