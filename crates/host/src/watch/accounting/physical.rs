//! Attribution of disk requests to the processes that caused them.
//!
//! The thread that reads or writes back pages submits the request, so the request belongs to the
//! file that this thread is working on. Writeback by a kernel worker is charged to the processes
//! that dirtied the pages. Requests to lower devices repeat those to the upper device and are not
//! counted.

use super::super::homes;
use super::super::lookup::FileId;
use super::{Accounting, BLOCK_DEVICES};

const SECTOR_BYTES: u64 = 512;

/// Inode number of the metadata of btrfs (`fs/btrfs/btrfs_inode.h`); files have numbers from 256
/// on.
const BTREE_INODE: u64 = 1;

impl Accounting {
    /// Records that a thread has added pages of a file to the page cache and is about to read them
    /// from the disk. If they are metadata, they locate the data of the file that the thread was
    /// reading, and it continues with that file.
    pub(super) fn reads(&mut self, thread: u32, file: FileId, pages: u64) {
        let bytes = pages.saturating_mul(self.machine.page_bytes);
        let is_metadata = self.is_metadata(file);
        let state = self.thread_state(thread);
        state.reads_next = match (state.reads_next, state.reads) {
            _ if !is_metadata => None,
            (Some((next_file, bytes_left)), _) => {
                Some((next_file, bytes_left.saturating_add(bytes)))
            }
            (None, Some(next_file)) if next_file != file => Some((next_file, bytes)),
            (None, _) => None,
        };
        state.reads = Some(file);
    }

    /// Returns true if a file is a block device, or the metadata of a btrfs.
    fn is_metadata(&self, file: FileId) -> bool {
        let key = self.file(file).key;
        key.dev == BLOCK_DEVICES || (key.dev >> 20 == 0 && key.ino == BTREE_INODE)
    }

    pub(super) fn bio(&mut self, thread: u32, dev: u32, sectors: u64, write: bool, meta: bool) {
        let bytes = sectors * SECTOR_BYTES;
        if bytes == 0 || self.is_lower(dev) {
            return;
        }
        let state = self.thread_state(thread);
        let file = if write { state.writes_out } else { state.reads };
        if !write && let Some((next_file, bytes_left)) = &mut state.reads_next {
            *bytes_left = bytes_left.saturating_sub(bytes);
            if *bytes_left == 0 {
                state.reads = Some(*next_file);
                state.reads_next = None;
            }
        }
        if meta {
            self.unattributed.metadata_bytes += bytes;
            return;
        }
        let file = file.filter(|&file| self.may_be_on(file, dev));
        match (file, write) {
            (Some(file), true) => self.charge(thread, file, bytes),
            (Some(file), false) => {
                let identity = self.tasks.thread_identity(thread);
                let counts = self.counts_mut(file, identity.process);
                counts.disk_read_bytes += bytes;
                counts.disk_read_requests += 1;
            }
            (None, true) => self.unattributed.write_bytes += bytes,
            (None, false) => self.unattributed.read_bytes += bytes,
        }
    }

    /// Returns true if a device may hold the data of a file: a file system with its own device
    /// stores data only there.
    fn may_be_on(&self, file: FileId, dev: u32) -> bool {
        let key = self.file(file).key;
        match key.dev {
            BLOCK_DEVICES => key.ino == u64::from(dev),
            home => home >> 20 == 0 || home == dev,
        }
    }

    fn charge(&mut self, thread: u32, file: FileId, bytes: u64) {
        let page_bytes = self.machine.page_bytes;
        let flusher = self.tasks.task(thread).kernel;
        let process = self.tasks.thread_identity(thread).process;
        let mut charged = Vec::new();
        let owners = &mut self.file_mut(file).owners;
        owners.charge(bytes, page_bytes, |process, bytes| charged.push((process, bytes)));
        if !flusher {
            let counts = self.counts_mut(file, process);
            counts.disk_write_bytes += bytes;
            counts.disk_write_requests += 1;
            return;
        }
        if charged.is_empty() {
            // The pages became dirty before the watch started: the file is known, and the writer is
            // not.
            charged.push((process, bytes));
        }
        if let Some((process, _)) = charged.iter().max_by_key(|(_, bytes)| *bytes).copied() {
            self.counts_mut(file, process).disk_lazy_write_requests += 1;
        }
        for (process, bytes) in charged {
            self.counts_mut(file, process).disk_lazy_write_bytes += bytes;
        }
    }

    /// Returns true if a device is a lower device, whose requests the kernel derives from an upper
    /// one.
    fn is_lower(&mut self, dev: u32) -> bool {
        *self.lower_devices.entry(dev).or_insert_with(|| homes::is_lower_device(dev))
    }
}
