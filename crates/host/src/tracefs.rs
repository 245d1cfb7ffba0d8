//! Events of the kernel through tracefs, in an instance of our own.
//!
//! * [`Tracefs`]: where it is; if it is mounted nowhere, a mount that only this process sees.
//! * [`Instance`]: buffers and switches of our own, so that nobody else's tracing is touched;
//!   removed when dropped, and after a kill by the next one that starts.
//! * [`Format`]: where the fields of an event lie, as the kernel says itself.
//! * [`Reader`]: the raw pages of the ring buffers, taken apart and put in the order of time.
//!
//! Invariants: offsets are never known beforehand, only read from format files; what the kernel
//! could not keep is counted; nothing that existed before is changed. Times are nanoseconds of the
//! monotonic clock. Only little-endian machines: elsewhere the bits of an event lie otherwise, and
//! [`Tracefs::open`] says so.

mod format;
mod instance;
mod page;
mod reader;

pub use format::{Field, Format};
pub use instance::{Instance, Losses};
pub use page::{PageLayout, Records};
#[cfg(feature = "bpf")]
pub(crate) use reader::UNFINISHED;
pub(crate) use reader::now_ns;
pub use reader::{Raw, Reader};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Where administrators and systemd mount it.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Why events cannot be had. Every message can follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The kernel has no tracefs.
    #[error("trace: this kernel was built without tracefs (CONFIG_FTRACE)")]
    NoTracefs,
    /// It is there, and not for us.
    #[error("trace: tracefs is for root (sudo larder ...); in a container, run it on the host")]
    NotAllowed,
    /// The layout of the pages is known for little-endian machines only.
    #[error("trace: events are read on little-endian machines only")]
    BigEndian,
    /// The kernel said something that is not understood.
    #[error("trace: {} is not what was expected: {reason}", path.display())]
    NotUnderstood {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The system refused.
    #[error("trace: {what} {}: {source}", path.display())]
    Io {
        /// What was being done, as a verb.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

impl TraceError {
    fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TraceError {
        let path = path.to_path_buf();
        move |source| match source.kind() {
            io::ErrorKind::PermissionDenied => TraceError::NotAllowed,
            _ => TraceError::Io { what, path, source },
        }
    }
}

/// tracefs, wherever it is.
#[derive(Debug)]
pub struct Tracefs {
    root: PathBuf,
    /// A mount that is attached nowhere and goes with its descriptor.
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// Finds it; where it is mounted nowhere, it is mounted for this process alone.
    ///
    /// # Errors
    /// The kernel has none, or it is not for us.
    pub fn open() -> Result<Tracefs, TraceError> {
        if cfg!(target_endian = "big") {
            return Err(TraceError::BigEndian);
        }
        for place in PLACES.map(Path::new) {
            match std::fs::read_dir(place.join("instances")) {
                Ok(_) => return Ok(Tracefs { root: place.to_path_buf(), _mount: None }),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(TraceError::NotAllowed);
                }
                Err(_) => {}
            }
        }
        let mount = detached().map_err(mount_error)?;
        let root = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        Ok(Tracefs { root, _mount: Some(mount) })
    }

    /// Its directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether there is an event, as `filemap/mm_filemap_get_pages`.
    #[must_use]
    pub fn has(&self, event: &str) -> bool {
        self.root.join("events").join(event).join("format").exists()
    }

    /// The format of an event.
    ///
    /// # Errors
    /// There is none, or it is not understood.
    pub fn format(&self, event: &str) -> Result<Format, TraceError> {
        let path = self.root.join("events").join(event).join("format");
        let text = std::fs::read_to_string(&path).map_err(TraceError::io("read", &path))?;
        let missing = || TraceError::NotUnderstood {
            path: path.clone(),
            reason: "it has no number and no fields".to_owned(),
        };
        Format::parse(&text).ok_or_else(missing)
    }

    /// Where the parts of a raw page lie.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn page_layout(&self) -> Result<PageLayout, TraceError> {
        let path = self.root.join("events/header_page");
        let text = at_once(&path).map_err(TraceError::io("read", &path))?;
        let missing = || TraceError::NotUnderstood {
            path: path.clone(),
            reason: "it names no commit and no data".to_owned(),
        };
        PageLayout::parse(&text).ok_or_else(missing)
    }
}

/// The text of a file that gives what one read asks for, and nothing to a second one.
fn at_once(path: &Path) -> io::Result<String> {
    let mut bytes = vec![0; 64 << 10];
    let length = std::fs::File::open(path)?.read(&mut bytes)?;
    bytes.truncate(length);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the reason why tracefs cannot be mounted.
fn mount_error(error: io::Error) -> TraceError {
    // The kernel does not know this type of file system.
    match error.raw_os_error() {
        Some(libc::ENODEV | libc::ENOENT) => TraceError::NoTracefs,
        _ => TraceError::io("mount", Path::new("tracefs"))(error),
    }
}

/// A mount of tracefs that is attached nowhere.
fn detached() -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    Ok(rustix::mount::fsmount(&context, flags, MountAttrFlags::empty())?)
}

#[cfg(test)]
mod tests;
