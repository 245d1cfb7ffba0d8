//! Operations on files as requests to a volume: their data, and the metadata of NTFS.
//!
//! | operation | reads | writes |
//! |---|---|---|
//! | create | directory block, record, bitmap | data, bitmap, record, directory block |
//! | append | directory block, record, last cluster if it is not full, bitmap | the same |
//! | read | directory block, record, data | |
//! | delete | directory block, record, bitmap | bitmap, record, directory block |
//!
//! A cache above the volume makes of these what reaches the device: a read of metadata that is
//! not resident, and later the writes. Each change is logged; [`Ntfs::commit`] writes the records
//! of all operations since the last call, one after the other.
//!
//! Not modeled: the root directory and the records of directories (always resident), files that
//! fit into their record, the order of log and metadata (it changes no time), and the time of the
//! last access, which NTFS writes up to an hour later (Microsoft, "File Times"). Numbers are bytes.

mod layout;

use super::{Allocator, FileMap};
use crate::trace::Op;
use layout::{CLUSTER, DIRECTORY_BLOCK, ENTRIES, JOURNAL, Layout};
use slab::Slab;
use std::collections::BTreeSet;
use std::ops::Range;

/// The part of a volume that a request concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The content of a file.
    Data,
    /// The record of a file in the master file table.
    Record,
    /// A block of a directory.
    Directory,
    /// The bitmap of used clusters.
    Bitmap,
    /// The log file. Its writes do not enter the cache.
    Journal,
}

/// A request to the volume. It covers one extent, and of metadata and data whole clusters, except
/// that a record is written alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRequest {
    /// The part of the volume.
    pub part: Part,
    /// Read or write.
    pub op: Op,
    /// Its bytes on the volume.
    pub bytes: Range<u64>,
}

/// A file, until it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId(usize);

#[derive(Clone, Debug)]
struct File {
    /// Whole clusters.
    map: FileMap,
    len: u64,
    /// The directory block with its entry, bytes of the data.
    block: Range<u64>,
}

#[derive(Clone, Debug, Default)]
struct Directory {
    /// Files that were created in it.
    created: u64,
    /// The block of the last one, bytes of the data.
    block: Range<u64>,
}

/// A volume, and its files.
#[derive(Clone, Debug)]
pub struct Ntfs {
    layout: Layout,
    clusters: Allocator,
    files: Slab<File>,
    directories: Vec<Directory>,
    /// Bytes of the journal that were written, and those that were logged, since its creation.
    written: u64,
    logged: u64,
}

impl Ntfs {
    /// Creates a volume with empty directories. Files take the free units of `clusters`, which
    /// begin after an eighth of the volume.
    ///
    /// # Panics
    /// If a unit is not a cluster of 4 KiB, or the volume too small.
    #[must_use]
    pub fn new(volume_bytes: u64, clusters: Allocator, directories: usize) -> Self {
        assert_eq!(clusters.unit_bytes(), CLUSTER, "clusters");
        let layout = Layout::new(volume_bytes, clusters.bytes());
        let directories = vec![Directory::default(); directories];
        Ntfs { layout, clusters, files: Slab::new(), directories, written: 0, logged: 0 }
    }

    /// Creates a file with this many bytes, and appends the requests; `None` if there is no room
    /// for it.
    ///
    /// # Panics
    /// If there is no such directory.
    pub fn create(
        &mut self,
        directory: usize,
        bytes: u64,
        requests: &mut Vec<FileRequest>,
    ) -> Option<FileId> {
        let is_new_block = self.directories[directory].created.is_multiple_of(ENTRIES);
        let of_directory = if is_new_block { DIRECTORY_BLOCK } else { 0 };
        let taken = bytes.next_multiple_of(CLUSTER) + of_directory;
        if self.clusters.free_bytes() < taken {
            return None;
        }
        let mut bitmap = Vec::new();
        if is_new_block {
            let map = self.clusters.create(DIRECTORY_BLOCK).expect("it is free");
            let block = map.extents().next().expect("one cluster").clone();
            bitmap.push(block.clone());
            self.directories[directory].block = block;
        }
        let map = self.clusters.create(bytes).expect("it is free");
        let Directory { created, block } = &mut self.directories[directory];
        *created += 1;
        let block = block.clone();
        bitmap.extend(map.extents().cloned());
        let file = File { map, len: bytes, block: block.clone() };
        let id = FileId(self.files.insert(file));
        if !is_new_block {
            self.push(requests, Part::Directory, Op::Read, &block);
        }
        self.push_record(requests, Op::Read, id);
        push_bitmap(requests, Op::Read, &bitmap);
        for extent in self.files[id.0].map.extents() {
            self.push(requests, Part::Data, Op::Write, extent);
        }
        push_bitmap(requests, Op::Write, &bitmap);
        self.push_record(requests, Op::Write, id);
        self.push(requests, Part::Directory, Op::Write, &block);
        self.logged += layout::log_of_creation(bitmap.len() as u64);
        Some(id)
    }

    /// Appends bytes to a file; `None` if there is no room for them.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn append(
        &mut self,
        id: FileId,
        bytes: u64,
        requests: &mut Vec<FileRequest>,
    ) -> Option<()> {
        let File { map, len, block } = &self.files[id.0];
        let (old, block) = (*len, block.clone());
        let more = self.clusters.create((old + bytes).saturating_sub(map.len()))?;
        let bitmap: Vec<Range<u64>> = more.extents().cloned().collect();
        let file = &mut self.files[id.0];
        for extent in &bitmap {
            file.map.append(extent.clone());
        }
        file.len += bytes;
        self.push(requests, Part::Directory, Op::Read, &block);
        self.push_record(requests, Op::Read, id);
        let File { map, len, .. } = &self.files[id.0];
        let first = old / CLUSTER * CLUSTER;
        if first < old {
            for extent in map.on_device(first..first + CLUSTER) {
                self.push(requests, Part::Data, Op::Read, &extent);
            }
        }
        push_bitmap(requests, Op::Read, &bitmap);
        for extent in map.on_device(first..len.next_multiple_of(CLUSTER)) {
            self.push(requests, Part::Data, Op::Write, &extent);
        }
        push_bitmap(requests, Op::Write, &bitmap);
        self.push_record(requests, Op::Write, id);
        self.push(requests, Part::Directory, Op::Write, &block);
        self.logged += layout::log_of_growth(bitmap.len() as u64);
        Some(())
    }

    /// Reads a whole file.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn read(&self, id: FileId, requests: &mut Vec<FileRequest>) {
        let File { map, block, .. } = &self.files[id.0];
        self.push(requests, Part::Directory, Op::Read, block);
        self.push_record(requests, Op::Read, id);
        for extent in map.extents() {
            self.push(requests, Part::Data, Op::Read, extent);
        }
    }

    /// Deletes a file. Its clusters and its record are free for others.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn delete(&mut self, id: FileId, requests: &mut Vec<FileRequest>) {
        let File { map, block, .. } = self.files.remove(id.0);
        self.clusters.remove(&map);
        let bitmap: Vec<Range<u64>> = map.extents().cloned().collect();
        self.push(requests, Part::Directory, Op::Read, &block);
        self.push_record(requests, Op::Read, id);
        push_bitmap(requests, Op::Read, &bitmap);
        push_bitmap(requests, Op::Write, &bitmap);
        self.push_record(requests, Op::Write, id);
        self.push(requests, Part::Directory, Op::Write, &block);
        self.logged += layout::log_of_removal(bitmap.len() as u64);
    }

    /// Writes the log of all operations since the last call. The page of 4 KiB in which the last
    /// call has ended is written again. The system does this once per second (lazy writer:
    /// Microsoft, "File Caching").
    ///
    /// # Panics
    /// If more than the journal was logged since the last call.
    pub fn commit(&mut self, requests: &mut Vec<FileRequest>) {
        if self.logged == self.written {
            return;
        }
        let first = self.written / CLUSTER * CLUSTER;
        let end = self.logged.next_multiple_of(CLUSTER);
        assert!(end - first <= JOURNAL, "a journal that is committed in time");
        let start = self.layout.journal();
        let round = first / JOURNAL * JOURNAL;
        let (first, end) = (first - round, end - round);
        for range in [first..end.min(JOURNAL), 0..end.saturating_sub(JOURNAL)] {
            if !range.is_empty() {
                let bytes = start + range.start..start + range.end;
                requests.push(FileRequest { part: Part::Journal, op: Op::Write, bytes });
            }
        }
        self.written = self.logged;
    }

    /// Appends a request for bytes of the data.
    fn push(&self, requests: &mut Vec<FileRequest>, part: Part, op: Op, range: &Range<u64>) {
        requests.push(FileRequest { part, op, bytes: self.layout.data(range) });
    }

    /// Appends a request for a record: a read of its page, or a write of the record alone.
    fn push_record(&self, requests: &mut Vec<FileRequest>, op: Op, id: FileId) {
        let number = self.directories.len() as u64 + id.0 as u64;
        let mut bytes = self.layout.record(number);
        if op == Op::Read {
            let start = bytes.start / CLUSTER * CLUSTER;
            bytes = start..start + CLUSTER;
        }
        requests.push(FileRequest { part: Part::Record, op, bytes });
    }
}

/// Appends requests for the bitmap of extents, one for each block of it.
fn push_bitmap(requests: &mut Vec<FileRequest>, op: Op, extents: &[Range<u64>]) {
    let blocks = extents.iter().flat_map(|extent| {
        let all = layout::bitmap(extent);
        (all.start / CLUSTER..all.end / CLUSTER).map(|block| block * CLUSTER)
    });
    let blocks: BTreeSet<u64> = blocks.collect();
    let request = |start| FileRequest { part: Part::Bitmap, op, bytes: start..start + CLUSTER };
    requests.extend(blocks.into_iter().map(request));
}

#[cfg(test)]
mod tests;
