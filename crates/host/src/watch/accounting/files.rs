//! Files: identity of inode numbers, and file sizes.
//!
//! The kernel identifies a file by device and inode number, and file systems reuse the number of a
//! removed file. A number therefore denotes a new file after its file system reports that it freed
//! the number. Invariant: counts never move to another file.

use super::super::event::Event;
use super::super::event::{FileSystemId, InodeRef, Key};
use super::super::lookup::FileId;
use super::super::owners::Owners;
use super::super::spans::SpanMap;
use super::{Accounting, BLOCK_DEVICES};

/// Maximum number of removed files that are kept separate from later files with the same number;
/// beyond it they share one entry.
pub(crate) const REMOVED_MAX: usize = 1 << 15;

#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    /// The identification by the kernel.
    pub(crate) key: Key,
    pub(super) owners: Owners,
    /// Large folios: ranges of pages that become dirty and leave the cache together.
    pub(super) folios: SpanMap<()>,
    /// Pages that reclaim evicted.
    pub(super) evicted: SpanMap<()>,
    /// True if the file system reports each write.
    pub(super) reports_writes: bool,
    /// True if another file had the inode number before.
    pub(crate) reuses_number: bool,
    pub(crate) is_removed: bool,
    /// Known lower bound of the size in pages.
    pages: u64,
    /// Round in which the size was last queried.
    queried_round: u32,
}

impl File {
    /// Raises the known size to `pages`.
    pub(super) fn raise_size(&mut self, pages: u64) {
        self.pages = self.pages.max(pages);
    }

    pub(super) fn ranges(&self) -> usize {
        self.folios.len() + self.evicted.len()
    }

    pub(super) fn forget_ranges(&mut self) {
        (self.folios, self.evicted) = (SpanMap::default(), SpanMap::default());
    }

    /// Resets the known size after a possible truncation.
    pub(super) fn reset_size(&mut self) {
        (self.pages, self.queried_round) = (0, 0);
    }
}

impl Accounting {
    /// Returns true if more files were removed than are kept separate.
    pub(crate) fn removed_overflow(&self) -> bool {
        self.removed >= REMOVED_MAX
    }

    /// Returns the files that were removed since the last call, with their times.
    pub(crate) fn take_ended(&mut self) -> Vec<(FileId, u64)> {
        std::mem::take(&mut self.removed_files)
    }

    pub(crate) fn file(&self, id: FileId) -> &File {
        &self.files[usize::try_from(id).expect("numbers are places")]
    }

    pub(super) fn file_mut(&mut self, id: FileId) -> &mut File {
        &mut self.files[usize::try_from(id).expect("numbers are places")]
    }

    /// Returns the ID of the file that currently has this key.
    pub(crate) fn file_of(&mut self, key: Key) -> FileId {
        let key = self.canonical(key);
        let known = self.by_key.get(&key).copied();
        if let Some(id) = known.filter(|&id| !self.file(id).is_removed) {
            return id;
        }
        let id = FileId::try_from(self.files.len()).expect("fewer files than 2^32");
        self.files.push(File { key, reuses_number: known.is_some(), ..File::default() });
        self.by_key.insert(key, id);
        id
    }

    /// Maps keys of block devices to [`BLOCK_DEVICES`]: they are files of an internal file system
    /// with an unknown device number, and their inode numbers are the device numbers.
    fn canonical(&mut self, key: Key) -> Key {
        // Only file systems without a block device have a major number of 0.
        if key.dev >> 20 != 0 {
            return key;
        }
        let query = &mut self.machine.is_block_file_system;
        let is_block_device_file =
            *self.block_file_systems.entry(key.dev).or_insert_with(|| query(key));
        if is_block_device_file { Key { dev: BLOCK_DEVICES, ..key } } else { key }
    }

    /// Returns the file of an inode reference; if several devices are possible, the one where the
    /// file is known.
    pub(super) fn file_at(&mut self, inode: InodeRef) -> FileId {
        let devices = match inode.file_system {
            FileSystemId::Device(dev) => return self.file_of(Key { dev, ino: inode.ino }),
            file_system => {
                if !self.known_devices.contains_key(&file_system) {
                    let devices = (self.machine.file_system_devices)(&file_system);
                    self.known_devices.insert(file_system, devices);
                }
                &self.known_devices[&file_system]
            }
        };
        let keys = devices.iter().map(|&dev| Key { dev, ino: inode.ino });
        // The inode of the block device itself, in which file systems keep metadata.
        if devices.iter().any(|&dev| u64::from(dev) == inode.ino) {
            return self.file_of(Key { dev: BLOCK_DEVICES, ino: inode.ino });
        }
        let known = keys.clone().find(|key| self.by_key.contains_key(key));
        let key = known.or_else(|| keys.clone().next());
        self.file_of(key.unwrap_or(Key { dev: 0, ino: inode.ino }))
    }

    /// Returns the file whose inode number an event of a thread frees.
    pub(crate) fn frees(&self, thread: u32, event: Event) -> Option<Key> {
        match event {
            Event::Removed { key } => Some(key),
            Event::Unlinked => self.thread_states.get(&thread)?.inactive,
            _ => None,
        }
    }

    /// Handles a freed inode number: the next file with this number is a new one.
    pub(super) fn removed(&mut self, key: Key) {
        let key = self.canonical(key);
        let known = self.by_key.get(&key).copied();
        let Some(id) = known.filter(|&id| !self.file(id).is_removed) else { return };
        if self.removed_overflow() {
            return;
        }
        self.removed += 1;
        self.last_lookup = None;
        self.lookups.removed(id);
        self.change_ranges(id, File::forget_ranges);
        self.file_mut(id).is_removed = true;
        self.removed_files.push((id, self.now_ns));
    }

    /// Starts a new round, which permits one more query of each file's size.
    pub(crate) fn start_round(&mut self) {
        self.round = self.round.wrapping_add(1).max(1);
    }

    /// Returns the last page of a request from `first` to `last` that the file contains, for
    /// kernels that do not report it: readers request as much as their buffers hold. Queries the
    /// size once per round; if the size is unknown, returns `last`.
    pub(super) fn last_in_file(&mut self, file: FileId, first: u64, last: u64) -> u64 {
        let round = self.round;
        let of = self.file_mut(file);
        if last < of.pages {
            return last;
        }
        if of.queried_round != round {
            of.queried_round = round;
            let key = of.key;
            let bytes = (self.machine.file_size)(key).unwrap_or(0);
            let pages = bytes.div_ceil(self.machine.page_bytes);
            self.file_mut(file).raise_size(pages);
        }
        // If the file lacks even the first page, it was truncated after the request.
        let pages = self.file(file).pages;
        if pages > first { last.min(pages - 1) } else { last }
    }
}
