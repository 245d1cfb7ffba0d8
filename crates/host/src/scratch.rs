//! A file system made for a measurement: an image in a directory of its own, a loop device with a
//! scheduler, mounted; and everything undone again.
//!
//! Invariants: a device or a mount that was there before is never touched; what was made is undone
//! when the value is removed or dropped, and what a killed process left is found by
//! [`remove_left_over`]. Sizes are bytes.

mod device;
mod directory;
mod kind;
mod tool;

pub(crate) use directory::PREFIX;
pub use directory::{LeftOver, remove_left_over};
pub use kind::{KINDS, Kind};

use crate::space;
use directory::Directory;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tool::{run, tool};

/// How long something may be busy: programs that look at new devices and mounts are soon done.
const BUSY_MAX: Duration = Duration::from_secs(5);
/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// What is to be made.
#[derive(Clone, Debug)]
pub struct ScratchOptions {
    /// Which kind.
    pub kind: &'static Kind,
    /// Size of the device.
    pub bytes: u64,
    /// The scheduler of the device, as the kernel calls it.
    pub scheduler: String,
    /// Options for the program that makes it, on top of those that keep it quiet.
    pub make_options: Vec<String>,
    /// Options for mount(8), separated by commas; may be empty.
    pub mount_options: String,
}

/// Why there is no such file system. Every message can follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum ScratchError {
    /// The system refused.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, and where.
        what: String,
        /// What it said.
        source: io::Error,
    },
    /// A program is missing.
    #[error("find {program}: it is not installed (on Debian: apt-get install {package})")]
    NoTool {
        /// Which.
        program: String,
        /// What brings it.
        package: &'static str,
    },
    /// A program failed.
    #[error("run {line}: {said}")]
    Tool {
        /// How it was called.
        line: String,
        /// What it said.
        said: String,
    },
    /// The kernel has no such scheduler.
    #[error("use the scheduler \"{name}\": this kernel has {known}")]
    NoScheduler {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The image would be cached twice.
    #[error(
        "attach {}: its file system has no direct I/O, so it would be cached twice; name another \
         directory",
        image.display()
    )]
    NoDirectIo {
        /// Which.
        image: PathBuf,
    },
    /// There is not enough room.
    #[error(
        "make an image in {}: it may grow to {} and {} are free; name a smaller size or another \
         directory",
        directory.display(),
        larder_report::format::bytes(*bytes),
        larder_report::format::bytes(*free)
    )]
    NoSpace {
        /// Where.
        directory: PathBuf,
        /// Size of the image.
        bytes: u64,
        /// What is free.
        free: u64,
    },
    /// It could not be made, and what was made of it stays.
    #[error("{first}; and what was made of it stays: {second}")]
    LeftBehind {
        /// Why it could not be made.
        first: Box<ScratchError>,
        /// Why it stays.
        second: Box<ScratchError>,
    },
}

impl ScratchError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> ScratchError {
        let what = what.into();
        move |source| ScratchError::Io { what, source }
    }

    fn busy(what: &str) -> ScratchError {
        ScratchError::io(what)(Errno::BUSY.into())
    }

    fn is_busy(&self) -> bool {
        matches!(self, ScratchError::Io { source, .. }
            if source.kind() == io::ErrorKind::ResourceBusy)
    }
}

/// A file system that is mounted, until removed or dropped.
#[derive(Debug)]
pub struct Scratch {
    directory: Option<Directory>,
    mount_point: PathBuf,
}

impl Scratch {
    /// Makes one in a new directory inside of `parent`.
    ///
    /// # Errors
    /// Whatever fails first; what was made until then is undone, or the error says that it is not.
    pub fn make(parent: &Path, wanted: &ScratchOptions) -> Result<Scratch, ScratchError> {
        let failed = ScratchError::io(format!("see what is free in {}", parent.display()));
        let free = space::free_bytes(parent).map_err(failed)?;
        if free < wanted.bytes {
            let directory = parent.to_path_buf();
            return Err(ScratchError::NoSpace { directory, bytes: wanted.bytes, free });
        }
        let mut directory = Directory::make(parent)?;
        match build(&mut directory, wanted) {
            Ok(()) => {
                let mount_point = directory.mount_point();
                Ok(Scratch { directory: Some(directory), mount_point })
            }
            Err(first) => Err(match directory.undo() {
                Ok(()) => first,
                Err(second) => {
                    ScratchError::LeftBehind { first: Box::new(first), second: Box::new(second) }
                }
            }),
        }
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.mount_point
    }

    /// Undoes everything.
    ///
    /// # Errors
    /// Something cannot be undone; [`remove_left_over`] tries again.
    pub fn remove(mut self) -> Result<(), ScratchError> {
        self.directory.take().map_or(Ok(()), |directory| directory.undo())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // After a panic nobody is left to be told; the next start finds what stays.
        drop(self.directory.take().map(|directory| directory.undo()));
    }
}

/// All steps. The scheduler comes before the file system, so that it is there from the first write
/// on.
fn build(directory: &mut Directory, wanted: &ScratchOptions) -> Result<(), ScratchError> {
    let image = directory.image();
    let failed = ScratchError::io(format!("make {}", image.display()));
    File::create_new(&image).and_then(|file| file.set_len(wanted.bytes)).map_err(failed)?;
    let number = device::add(|number| directory.note_device(number))?;
    let device = device::attach(number, &image)?;
    device::set_scheduler(number, &wanted.scheduler)?;
    let kind = wanted.kind;
    let mut maker = tool(kind.maker, kind.package)?;
    run(maker.args(kind.all_options(&wanted.make_options)).arg(&device))?;
    let mut mount = tool("mount", "mount")?;
    mount.args(["-t", kind.fs_type]);
    if !wanted.mount_options.is_empty() {
        mount.args(["-o", &wanted.mount_options]);
    }
    run(mount.arg(&device).arg(directory.mount_point()))
}

/// Retries `attempt` for up to `limit` while it fails because something is busy. Returns the last
/// error.
fn eventually(
    limit: Duration,
    mut attempt: impl FnMut() -> Result<(), ScratchError>,
) -> Result<(), ScratchError> {
    let begun = Instant::now();
    loop {
        let result = attempt();
        match &result {
            Err(error) if error.is_busy() && begun.elapsed() < limit => {
                std::thread::sleep(PAUSE);
            }
            _ => return result,
        }
    }
}

#[cfg(test)]
mod tests;
