//! Identity of the store of a list, and its comparison with a store.

use rustix::fs::FileType;
use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Type of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// A file.
    File,
    /// A block device.
    Device,
    /// An export of another server.
    Export,
}

impl StoreKind {
    /// All types; each is at the index of its number in files.
    pub(super) const ALL: [StoreKind; 3] = [StoreKind::File, StoreKind::Device, StoreKind::Export];
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StoreKind::File => "a file",
            StoreKind::Device => "a block device",
            StoreKind::Export => "an export",
        })
    }
}

/// Identity of a store, as far as it can be determined without reading data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreIdentity {
    /// Type of the store.
    pub kind: StoreKind,
    /// Absolute path, or address; a list keeps at most 65,535 bytes of it.
    pub place: Vec<u8>,
    /// Length in bytes.
    pub length: u64,
    /// Device number of a file; otherwise 0.
    pub device: u64,
    /// Inode number of a file; otherwise 0.
    pub inode: u64,
    /// Time of the last change of a file, in nanoseconds since 1970, if this process was not
    /// changing it then; 0 if that is unknown.
    pub changed_ns: u64,
}

/// A reason why a store is not the one of a list; follows "the list is stale:".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaleReason {
    /// The type differs.
    #[error("it is about {was}, and {is} is served")]
    Kind {
        /// Type in the list.
        was: StoreKind,
        /// Current type.
        is: StoreKind,
    },
    /// The length differs.
    #[error("the store was {was} bytes long and now is {is}")]
    Length {
        /// Length in the list, in bytes.
        was: u64,
        /// Current length, in bytes.
        is: u64,
    },
    /// It is another store.
    #[error("it is about another store, {was}")]
    Other {
        /// Path or address in the list.
        was: String,
    },
    /// The path leads to another file now.
    #[error("the file was replaced by another one")]
    Replaced,
    /// Another program has changed the file.
    #[error("the file was changed by others since")]
    Changed,
}

/// Returns the time of the last change of a file, in nanoseconds since 1970; 0 before that.
fn changed_ns(metadata: &Metadata) -> u64 {
    let ns = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    u64::try_from(ns).unwrap_or(0)
}

impl StoreIdentity {
    /// Returns the identity of the file or block device at `path`, which is `length` bytes long
    /// now.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn of_path(path: &Path, length: u64) -> io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        let is_device = FileType::from_raw_mode(metadata.mode()) == FileType::BlockDevice;
        let place = std::path::absolute(path)?.as_os_str().as_bytes().to_owned();
        // The number of a device may differ after each boot.
        let device = StoreIdentity { kind: StoreKind::Device, ..Self::of_place(place, length) };
        Ok(if is_device {
            device
        } else {
            StoreIdentity {
                kind: StoreKind::File,
                device: metadata.dev(),
                inode: metadata.ino(),
                changed_ns: changed_ns(&metadata),
                ..device
            }
        })
    }

    /// Returns the identity of the export at this address.
    #[must_use]
    pub fn of_export(address: &str, length: u64) -> Self {
        Self::of_place(address.as_bytes().to_owned(), length)
    }

    fn of_place(place: Vec<u8>, length: u64) -> Self {
        StoreIdentity { kind: StoreKind::Export, place, length, device: 0, inode: 0, changed_ns: 0 }
    }

    /// Returns the identity of the same store while this process changes it.
    #[must_use]
    pub fn in_use(&self) -> Self {
        StoreIdentity { changed_ns: 0, ..self.clone() }
    }

    /// Checks that the store `now` is the one of this identity.
    ///
    /// A file is the same if its inode is, and its path or its device: a renamed file stays the
    /// same, and so does one on a device that has another number after a boot. A block device and
    /// an export are the same if their path or address is. If both times of the last change are
    /// known, they must be equal.
    ///
    /// # Errors
    /// The reason why it is another one.
    pub fn check(&self, now: &StoreIdentity) -> Result<(), StaleReason> {
        if self.kind != now.kind {
            return Err(StaleReason::Kind { was: self.kind, is: now.kind });
        }
        let other =
            || StaleReason::Other { was: String::from_utf8_lossy(&self.place).into_owned() };
        let same_place = self.place == now.place;
        let same_device = self.kind == StoreKind::File && self.device == now.device;
        if !same_place && !same_device {
            return Err(other());
        }
        if self.inode != now.inode {
            return Err(if same_place { StaleReason::Replaced } else { other() });
        }
        if self.length != now.length {
            return Err(StaleReason::Length { was: self.length, is: now.length });
        }
        if self.changed_ns != 0 && now.changed_ns != 0 && self.changed_ns != now.changed_ns {
            return Err(StaleReason::Changed);
        }
        Ok(())
    }
}
