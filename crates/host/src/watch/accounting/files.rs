//! Files: which one a number is, and where it ends.
//!
//! The kernel names a file by device and inode, and file systems give the number of a removed file
//! to the next one. So a number is another file once its file system says that it has freed it.
//! Invariant: counts never change their file.

#[cfg(feature = "bpf")]
use super::super::event::Event;
use super::super::event::{FileSystemId, Key, Place};
use super::super::lookup::FileId;
use super::super::owners::Owners;
use super::super::spans::Spans;
use super::{Accounting, BLOCK_DEVICES};

/// Removed files that are kept apart from whoever gets their number; beyond it they stand under
/// one name.
pub(crate) const REMOVED_MAX: usize = 1 << 15;

/// A file.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    pub(super) key: Key,
    pub(super) owners: Owners,
    /// Large folios: pages that become dirty and go together.
    pub(super) folios: Spans<u8>,
    /// Pages that reclaim took.
    pub(super) evicted: Spans<()>,
    /// The file system tells of single writes.
    pub(super) tells_writes: bool,
    /// Its number was another file's before.
    is_second: bool,
    is_removed: bool,
    /// Pages that it has at least.
    pages: u64,
    /// In which round its end was asked for.
    asked: u32,
}

impl File {
    /// It has so many pages.
    pub(super) fn reaches(&mut self, pages: u64) {
        self.pages = self.pages.max(pages);
    }

    /// It may have become shorter.
    pub(super) fn may_end_before(&mut self) {
        (self.pages, self.asked) = (0, 0);
    }
}

impl Accounting {
    /// How the kernel names a file.
    #[must_use]
    pub(crate) fn key(&self, file: FileId) -> Key {
        self.file(file).key
    }

    /// Whether a file is no more.
    #[must_use]
    pub(crate) fn is_removed(&self, file: FileId) -> bool {
        self.file(file).is_removed
    }

    /// Whether a file has the number of one that was removed.
    #[must_use]
    pub(crate) fn is_second(&self, file: FileId) -> bool {
        self.file(file).is_second
    }

    /// Whether more files were removed than can be kept apart.
    #[must_use]
    pub(crate) fn mixes_removed(&self) -> bool {
        self.removed >= REMOVED_MAX
    }

    /// Files that were removed since this was asked last, with when.
    pub(crate) fn take_ended(&mut self) -> Vec<(FileId, u64)> {
        std::mem::take(&mut self.gone)
    }

    pub(super) fn file(&self, id: FileId) -> &File {
        &self.files[usize::try_from(id).expect("numbers are places")]
    }

    pub(super) fn file_mut(&mut self, id: FileId) -> &mut File {
        &mut self.files[usize::try_from(id).expect("numbers are places")]
    }

    /// The number here of the file that has a name of the kernel's now.
    pub(crate) fn file_of(&mut self, key: Key) -> FileId {
        let key = self.canonical(key);
        let known = self.by_key.get(&key).copied();
        if let Some(id) = known.filter(|&id| !self.file(id).is_removed) {
            return id;
        }
        let id = FileId::try_from(self.files.len()).expect("fewer files than 2^32");
        self.files.push(File { key, is_second: known.is_some(), ..File::default() });
        self.by_key.insert(key, id);
        id
    }

    /// Block devices are files of a file system of their own, which has a number that nobody
    /// knows; their inodes are the numbers of the devices.
    fn canonical(&mut self, key: Key) -> Key {
        // Only a file system without a device has a major number of 0.
        if key.dev >> 20 != 0 {
            return key;
        }
        let ask = &mut self.holds_blocks;
        let holds = *self.block_homes.entry(key.dev).or_insert_with(|| ask(key));
        if holds { Key { dev: BLOCK_DEVICES, ..key } } else { key }
    }

    /// The file at a place; of several devices that it may be on, the one where it is known.
    pub(super) fn file_at(&mut self, place: Place) -> FileId {
        let devices = match place.home {
            FileSystemId::Device(dev) => return self.file_of(Key { dev, ino: place.ino }),
            home => {
                if !self.known_homes.contains_key(&home) {
                    let devices = (self.homes)(&home);
                    self.known_homes.insert(home, devices);
                }
                &self.known_homes[&home]
            }
        };
        let keys = devices.iter().map(|&dev| Key { dev, ino: place.ino });
        // The file of a block device itself, where file systems keep what is no file's.
        if devices.iter().any(|&dev| u64::from(dev) == place.ino) {
            return self.file_of(Key { dev: BLOCK_DEVICES, ino: place.ino });
        }
        let known = keys.clone().find(|key| self.by_key.contains_key(key));
        let key = known.or_else(|| keys.clone().next());
        self.file_of(key.unwrap_or(Key { dev: 0, ino: place.ino }))
    }

    /// The file whose number an event of a thread frees.
    #[cfg(feature = "bpf")]
    pub(crate) fn frees(&self, thread: u32, event: Event) -> Option<Key> {
        match event {
            Event::Removed { key } => Some(key),
            Event::Unlinked => self.doing.get(&thread)?.inactive,
            _ => None,
        }
    }

    /// The file system has freed the number of a file: whoever has it next is another one.
    pub(super) fn removed(&mut self, key: Key) {
        let key = self.canonical(key);
        let known = self.by_key.get(&key).copied();
        let Some(id) = known.filter(|&id| !self.file(id).is_removed) else { return };
        if self.mixes_removed() {
            return;
        }
        self.removed += 1;
        self.same = None;
        self.lookups.removed(id);
        let of = self.file_mut(id);
        of.is_removed = true;
        let forgotten = of.folios.len() + of.evicted.len();
        (of.folios, of.evicted) = (Spans::default(), Spans::default());
        self.remembered = self.remembered.saturating_sub(forgotten);
        self.gone.push((id, self.now_ns));
    }

    /// What was asked of ends may be asked once more.
    pub(crate) fn next_round(&mut self) {
        self.round = self.round.wrapping_add(1).max(1);
    }

    /// The last page of a request from `first` to `last` that the file has, where the kernel does
    /// not say: readers ask for as much as they have room for. The file system is asked once a
    /// round; where it does not know, the request is taken as it came.
    pub(super) fn held(&mut self, file: FileId, first: u64, last: u64) -> u64 {
        let round = self.round;
        let of = self.file_mut(file);
        if last < of.pages {
            return last;
        }
        if of.asked != round {
            of.asked = round;
            let key = of.key;
            let bytes = (self.ends)(key).unwrap_or(0);
            let pages = bytes.div_ceil(self.page_bytes);
            self.file_mut(file).reaches(pages);
        }
        // If it does not even have the first page, it has been cut off since.
        let pages = self.file(file).pages;
        if pages > first { last.min(pages - 1) } else { last }
    }
}
