//! Which store a list is about, and whether a store is still that one.

use rustix::fs::FileType;
use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What a store is.
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
    /// All of them; each is at the place of its number in files.
    pub(super) const ALL: [StoreKind; 3] = [StoreKind::File, StoreKind::Device, StoreKind::Export];

    pub(super) fn number(self) -> u8 {
        match self {
            StoreKind::File => 0,
            StoreKind::Device => 1,
            StoreKind::Export => 2,
        }
    }
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

/// A store, as far as it can be told from others without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreIdentity {
    /// What it is.
    pub kind: StoreKind,
    /// Its absolute path, or its address; at most 65,535 bytes of it are kept.
    pub place: Vec<u8>,
    /// Its length in bytes.
    pub length: u64,
    /// Of a file the device that it lies on; else 0.
    pub device: u64,
    /// Of a file its inode; else 0.
    pub inode: u64,
    /// Of a file when it was last changed, in nanoseconds since 1970, if it was at rest then;
    /// 0 if that is not known.
    pub changed_ns: u64,
}

/// Why a store is not the one that a list is about; follows "the list is stale:".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stale {
    /// It is something else.
    #[error("it is about {was}, and {is} is served")]
    Kind {
        /// What it was.
        was: StoreKind,
        /// What it is.
        is: StoreKind,
    },
    /// It is longer or shorter.
    #[error("the store was {was} bytes long and now is {is}")]
    Length {
        /// Bytes that it was long.
        was: u64,
        /// Bytes that it is long.
        is: u64,
    },
    /// It is another one.
    #[error("it is about another store, {was}")]
    Other {
        /// Where that was.
        was: String,
    },
    /// Another file has taken its place.
    #[error("the file was replaced by another one")]
    Replaced,
    /// It was changed by others.
    #[error("the file was changed by others since")]
    Changed,
}

/// When a file was last changed, in nanoseconds since 1970; 0 before that.
fn changed_ns(metadata: &Metadata) -> u64 {
    let ns = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    u64::try_from(ns).unwrap_or(0)
}

impl StoreIdentity {
    /// The file or block device at `path`, `length` bytes long, as it is now.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn of_path(path: &Path, length: u64) -> io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        let is_device = FileType::from_raw_mode(metadata.mode()) == FileType::BlockDevice;
        let place = std::path::absolute(path)?.as_os_str().as_bytes().to_owned();
        Ok(if is_device {
            // Its number may be another after each boot.
            StoreIdentity {
                kind: StoreKind::Device,
                device: 0,
                inode: 0,
                changed_ns: 0,
                place,
                length,
            }
        } else {
            StoreIdentity {
                kind: StoreKind::File,
                place,
                length,
                device: metadata.dev(),
                inode: metadata.ino(),
                changed_ns: changed_ns(&metadata),
            }
        })
    }

    /// The export at this address.
    #[must_use]
    pub fn of_export(address: &str, length: u64) -> Self {
        let place = address.as_bytes().to_owned();
        StoreIdentity { kind: StoreKind::Export, place, length, device: 0, inode: 0, changed_ns: 0 }
    }

    /// The same store at a moment when it is being changed by us.
    #[must_use]
    pub fn in_use(&self) -> Self {
        StoreIdentity { changed_ns: 0, ..self.clone() }
    }

    /// Whether the store that this is about is the one that is there `now`.
    ///
    /// A file is the same if its inode is, and its path or its device: files that are renamed stay
    /// the same, and so do those on a device that has another number after a boot. A block device
    /// and an export are the same if their path or address is. Where both times of the last change
    /// are known they must be equal.
    ///
    /// # Errors
    /// Why it is another one.
    pub fn check(&self, now: &StoreIdentity) -> Result<(), Stale> {
        if self.kind != now.kind {
            return Err(Stale::Kind { was: self.kind, is: now.kind });
        }
        let other = || Stale::Other { was: String::from_utf8_lossy(&self.place).into_owned() };
        let same_place = self.place == now.place;
        let same_device = self.kind == StoreKind::File && self.device == now.device;
        if !same_place && !same_device {
            return Err(other());
        }
        if self.inode != now.inode {
            return Err(if same_place { Stale::Replaced } else { other() });
        }
        if self.length != now.length {
            return Err(Stale::Length { was: self.length, is: now.length });
        }
        if self.changed_ns != 0 && now.changed_ns != 0 && self.changed_ns != now.changed_ns {
            return Err(Stale::Changed);
        }
        Ok(())
    }
}
