//! Kernel trace events through tracefs, in a private trace instance.
//!
//! * [`Tracefs`]: location of tracefs; if it is not mounted, a mount that only this process sees.
//! * `Instance`: private buffers and switches, so that tracing by other programs is unaffected;
//!   removed when dropped, and after a kill by the next process that starts.
//! * `Format`: offsets of the fields of an event, from the kernel's format files.
//! * `Reader`: raw pages of the ring buffers, decoded and sorted by time.
//!
//! Invariants: all offsets come from format files; events that the kernel drops are counted;
//! nothing that existed before is changed. Times are nanoseconds of the monotonic clock. Only
//! little-endian machines are supported: elsewhere the bit layout of an event differs, and
//! [`Tracefs::open`] returns an error.

mod format;
mod instance;
mod page;
mod reader;

pub(crate) use format::{Field, Format};
pub(crate) use instance::Instance;
pub(crate) use page::PageLayout;
pub(crate) use reader::{COMPLETION_TIME, Reader, now_ns};

use crate::proc;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

const MOUNT_POINTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// An error tracing events. Every message can follow "cannot".
#[derive(Debug, thiserror::Error)]
#[error("trace: {0}")]
pub struct TraceError(String);

impl TraceError {
    pub(crate) fn not_allowed() -> TraceError {
        let message = "tracefs is for root (sudo larder ...); in a container, run it on the host";
        TraceError(message.to_owned())
    }

    fn io(operation: &str, path: &Path) -> impl FnOnce(io::Error) -> TraceError {
        move |error| match error.kind() {
            io::ErrorKind::PermissionDenied => TraceError::not_allowed(),
            _ => TraceError(format!("{operation} {}: {error}", path.display())),
        }
    }
}

/// A mounted tracefs.
#[derive(Debug)]
pub struct Tracefs {
    root: PathBuf,
    /// A detached mount that the kernel removes with its descriptor.
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// Finds tracefs; if it is not mounted, creates a mount that is private to this process.
    ///
    /// # Errors
    /// The kernel lacks tracefs, or this process may not use it.
    pub fn open() -> Result<Tracefs, TraceError> {
        if cfg!(target_endian = "big") {
            // The page layout is implemented for little-endian machines only.
            return Err(TraceError("events are read on little-endian machines only".to_owned()));
        }
        for mount_point in MOUNT_POINTS.map(Path::new) {
            match std::fs::read_dir(mount_point.join("instances")) {
                Ok(_) => return Ok(Tracefs { root: mount_point.to_path_buf(), _mount: None }),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(TraceError::not_allowed());
                }
                Err(_) => {}
            }
        }
        let mount = mount_detached().map_err(mount_error)?;
        let root = proc::descriptor(&mount);
        Ok(Tracefs { root, _mount: Some(mount) })
    }

    /// Returns the root directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns true if the kernel has an event, such as `filemap/mm_filemap_get_pages`.
    pub(crate) fn has(&self, event: &str) -> bool {
        self.format_path(event).exists()
    }

    pub(crate) fn format(&self, event: &str) -> Result<Format, TraceError> {
        let path = self.format_path(event);
        let text = std::fs::read_to_string(&path);
        parsed(&path, text, Format::parse, "it has no number and no fields")
    }

    fn format_path(&self, event: &str) -> PathBuf {
        self.root.join("events").join(event).join("format")
    }

    pub(crate) fn page_layout(&self) -> Result<PageLayout, TraceError> {
        let path = self.root.join("events/header_page");
        parsed(&path, read_once(&path), PageLayout::parse, "it names no commit and no data")
    }
}

fn parsed<T>(
    path: &Path,
    text: io::Result<String>,
    parse: fn(&str) -> Option<T>,
    lack: &str,
) -> Result<T, TraceError> {
    let parsed = parse(&text.map_err(TraceError::io("read", path))?);
    let message = || format!("{} is not what was expected: {lack}", path.display());
    parsed.ok_or_else(|| TraceError(message()))
}

/// Returns the text of a file that returns its contents to the first read only.
fn read_once(path: &Path) -> io::Result<String> {
    let mut bytes = vec![0; 64 << 10];
    let length = std::fs::File::open(path)?.read(&mut bytes)?;
    bytes.truncate(length);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Maps an error of the mount to its reason.
fn mount_error(error: io::Error) -> TraceError {
    // These errors mean that the kernel lacks this type of file system.
    match error.raw_os_error() {
        Some(libc::ENODEV | libc::ENOENT) => {
            TraceError("this kernel was built without tracefs (CONFIG_FTRACE)".to_owned())
        }
        _ => TraceError::io("mount", Path::new("tracefs"))(error),
    }
}

fn mount_detached() -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    Ok(rustix::mount::fsmount(&context, flags, MountAttrFlags::empty())?)
}

#[cfg(test)]
mod tests;
