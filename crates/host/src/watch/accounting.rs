//! Conversion of events into counts of each process's accesses to each file.
//!
//! Invariants: counts only grow, except for pages that were counted as hits and turn out to be
//! misses (see [`super::lookup`]); memory is bounded by the number of files and processes seen, and
//! by the limits in this module. The module reads the machine only through the functions that its
//! creator passes in.

use super::Map;
use super::event::{Event, FileSystemId, Key, Lookup, WritebackReason, until_zero};
use super::kernel_probe::{Counted, UnreportedLookups};
use super::lookup::{FileId, Found, Lookups, ProcessId, ThreadIdentity};
use super::tasks::{DescribeTask, Tasks};
use larder_schema::watch::{Counts, UnattributedIo};
use std::collections::HashMap;

mod files;
mod physical;
mod write;

use files::File;
pub(crate) use files::REMOVED_MAX;

/// Maximum number of remembered ranges, over all files, of evicted pages and large folios; beyond
/// it all ranges are dropped.
const REMEMBERED_MAX: usize = 1 << 20;

/// Device number that represents the file system of block devices, whatever the kernel's number.
pub(crate) const BLOCK_DEVICES: u32 = u32::MAX;

/// Returns the devices that may hold the files of a file system.
pub(crate) type FileSystemDevices = Box<dyn FnMut(&FileSystemId) -> Vec<u32> + Send>;

/// Functions that query the machine.
pub(crate) struct MachineQueries {
    pub(crate) file_system_devices: FileSystemDevices,
    /// Returns true if a key's device number is that of the file system of block devices.
    pub(crate) is_block_file_system: Box<dyn FnMut(Key) -> bool + Send>,
    /// Returns the current size of a file in bytes, if it is known.
    pub(crate) file_size: Box<dyn FnMut(Key) -> Option<u64> + Send>,
    /// Size of a page in bytes.
    pub(crate) page_bytes: u64,
}

/// A request, as recorded in traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The file.
    pub file: FileId,
    /// The process.
    pub process: ProcessId,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// True for a write.
    pub write: bool,
    /// Number of its pages that were not resident.
    pub misses: u64,
    /// Number of its pages that read-ahead had made resident.
    pub ahead: u64,
}

/// Current operations of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadState {
    /// File whose pages the thread reads from disk.
    reads: Option<FileId>,
    /// File that the thread continues to read after metadata, and the bytes of metadata not read
    /// yet.
    reads_next: Option<(FileId, u64)>,
    /// File that the thread writes back.
    writes_out: Option<FileId>,
    /// File and pages of the thread's current write request.
    writes: Option<(FileId, u64, u64)>,
    /// Progress of that request in bytes: current offset and end.
    write_progress: (u64, u64),
    /// Page range around a page that the thread touched through a mapping; the kernel mapped the
    /// range before it reported the fault.
    mapped_range: Option<(FileId, u64, u64)>,
    /// File and page of the last fault through a mapping, and true if the fault was a miss.
    fault: Option<(FileId, u64, bool)>,
    /// File that the thread read and whose inode became dirty as a result.
    touched: Option<FileId>,
    /// File that XFS inactivates after its last reference is gone.
    inactive: Option<Key>,
    reason: WritebackReason,
    reclaims: bool,
    /// File, process and counts index of the thread's last access, to avoid a search.
    pair: Option<(FileId, ProcessId, usize)>,
}

/// Result of the last lookup: most lookups repeat the thread and file of the previous one.
#[derive(Clone, Copy, Debug)]
struct LastLookup {
    thread: u32,
    key: Key,
    identity: ThreadIdentity,
    file: FileId,
    /// Index of the counts of file and process.
    index: usize,
}

pub(crate) struct Accounting {
    machine: MachineQueries,
    pub(super) tasks: Tasks,
    /// The last lookup, until a task starts, ends or changes.
    last_lookup: Option<LastLookup>,
    /// Current round; each round may query the size of a file once.
    round: u32,
    known_devices: HashMap<FileSystemId, Vec<u32>>,
    block_file_systems: Map<u32, bool>,
    pub(super) lookups: Lookups,
    files: Vec<File>,
    by_key: Map<Key, FileId>,
    thread_states: Map<u32, ThreadState>,
    pairs: Map<u64, usize>,
    /// All counts, each with its file and its process.
    pub(super) counts: Vec<(FileId, ProcessId, Counts)>,
    /// Number of removed files that have their own entry.
    removed: usize,
    /// Files removed since the last query, with the time of removal.
    removed_files: Vec<(FileId, u64)>,
    /// Time of the events being processed.
    pub(super) now_ns: u64,
    /// The physical I/O that belongs to no file.
    pub(super) unattributed: UnattributedIo,
    range_count: usize,
    /// Lower devices of stacked ones, whose requests are counted on the upper device.
    lower_devices: Map<u32, bool>,
    /// Number of requests that the kernel split, by device.
    splits: Map<u32, u64>,
}

impl std::fmt::Debug for Accounting {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Accounting").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Accounting {
    pub(crate) fn new(describe_task: DescribeTask, machine: MachineQueries) -> Accounting {
        Accounting {
            machine,
            tasks: Tasks::new(describe_task),
            last_lookup: None,
            round: 1,
            known_devices: HashMap::new(),
            block_file_systems: Map::default(),
            lookups: Lookups::default(),
            files: Vec::new(),
            by_key: HashMap::default(),
            thread_states: Map::default(),
            pairs: Map::default(),
            counts: Vec::new(),
            removed: 0,
            removed_files: Vec::new(),
            now_ns: 0,
            unattributed: UnattributedIo::default(),
            range_count: 0,
            lower_devices: Map::default(),
            splits: Map::default(),
        }
    }

    /// Returns the number of requests of a device that the kernel split.
    pub(crate) fn splits(&self, dev: u32) -> u64 {
        self.splits.get(&dev).copied().unwrap_or(0)
    }

    /// Drops cached device mappings, so that later mounts are found.
    pub(crate) fn forget_devices(&mut self) {
        self.known_devices.clear();
        self.lower_devices.clear();
    }

    fn thread_state(&mut self, thread: u32) -> &mut ThreadState {
        self.thread_states.entry(thread).or_default()
    }

    fn counts_index(&mut self, file: FileId, process: ProcessId) -> usize {
        let pair = u64::from(file) << 32 | u64::from(process);
        *self.pairs.entry(pair).or_insert_with(|| {
            self.counts.push((file, process, Counts::default()));
            self.counts.len() - 1
        })
    }

    fn counts_mut(&mut self, file: FileId, process: ProcessId) -> &mut Counts {
        let index = self.counts_index(file, process);
        &mut self.counts[index].2
    }

    /// Returns the counts of a thread's access to a file, cached for repeated access.
    fn counts_mut_cached(&mut self, identity: ThreadIdentity, file: FileId) -> &mut Counts {
        let index = self.counts_index_cached(identity, file);
        &mut self.counts[index].2
    }

    fn counts_index_cached(&mut self, identity: ThreadIdentity, file: FileId) -> usize {
        let state = self.thread_states.entry(identity.thread).or_default();
        if let Some((same, process, index)) = state.pair
            && same == file
            && process == identity.process
        {
            return index;
        }
        let index = self.counts_index(file, identity.process);
        self.thread_state(identity.thread).pair = Some((file, identity.process, index));
        index
    }

    /// Returns a request of a process for whole pages of a file.
    fn reference(
        &self,
        file: FileId,
        process: ProcessId,
        (first, pages): (u64, u64),
        write: bool,
    ) -> Reference {
        let page_bytes = self.machine.page_bytes;
        let (offset, bytes) = (first.saturating_mul(page_bytes), pages.saturating_mul(page_bytes));
        Reference { file, process, offset, bytes, write, misses: 0, ahead: 0 }
    }

    /// Processes an event of a thread; returns the request that the event starts, if any.
    pub(crate) fn take(&mut self, thread: u32, event: Event) -> Option<Reference> {
        match event {
            Event::Lookup { key, first, last, last_in_file } => {
                return self.looked_up(&Lookup { thread, key, first, last, last_in_file });
            }
            Event::MapPages { key, first, last } => self.mapped(thread, key, first, last),
            Event::Fault { key, page } => return self.fault(thread, key, page),
            Event::Add { key, first, order } => self.added(thread, key, first, order),
            Event::Delete { key, first, order } => self.deleted(thread, key, first, order),
            Event::SyncReadahead { key, first, count } => {
                let (identity, file) = (self.tasks.thread_identity(thread), self.file_of(key));
                self.lookups.sync_readahead(identity, file, first, count);
            }
            Event::AsyncReadahead => {
                let identity = self.tasks.thread_identity(thread);
                self.lookups.async_readahead(identity);
            }
            Event::Dirty { inode, page } => return self.dirtied(thread, inode, page),
            Event::Write { key, offset, bytes, whole } => {
                return self.write(thread, key, (offset, bytes), whole);
            }
            Event::InodeDirty { inode } => self.inode_dirtied(thread, inode),
            Event::WriteOut { inode } | Event::InodeStart { inode } => {
                let file = self.file_at(inode);
                self.thread_state(thread).writes_out = Some(file);
            }
            Event::InodeDone { inode, wrote } => self.wrote(thread, inode, wrote),
            Event::WritebackStart { reason } => self.thread_state(thread).reason = reason,
            Event::Throttled { ms } => self.throttled(thread, ms),
            Event::Reclaim { begins } => self.thread_state(thread).reclaims = begins,
            Event::Removed { key } => self.removed(key),
            Event::Inactive { key } => self.thread_state(thread).inactive = Some(key),
            Event::Unlinked => {
                if let Some(key) = self.thread_state(thread).inactive.take() {
                    self.removed(key);
                }
            }
            Event::Direct { key } => {
                let file = self.file_of(key);
                let state = self.thread_state(thread);
                (state.reads, state.reads_next) = (Some(file), None);
                state.writes_out = Some(file);
            }
            Event::Bio { dev, sectors, write, meta } => self.bio(thread, dev, sectors, write, meta),
            Event::Split { dev } => *self.splits.entry(dev).or_default() += 1,
            Event::NewTask { tid, thread: same, grouped } => {
                self.last_lookup = None;
                self.tasks.created(thread, tid, same);
                if grouped {
                    self.tasks.created_in_cgroup(tid);
                }
            }
            Event::Joined { tid } => {
                self.last_lookup = None;
                self.tasks.joined_cgroup(tid);
            }
            Event::Rename { tid, name } => {
                self.last_lookup = None;
                self.tasks.renamed(tid, &until_zero(&name));
            }
            Event::Exit { tid } => {
                self.last_lookup = None;
                self.tasks.ended(tid);
                self.lookups.thread_ended(tid);
                self.thread_states.remove(&tid);
            }
        }
        None
    }

    /// Returns the thread, the file and the counts index of a lookup.
    fn resolve_lookup(&mut self, thread: u32, key: Key) -> LastLookup {
        if let Some(same) = self.last_lookup.filter(|same| same.thread == thread && same.key == key)
        {
            return same;
        }
        let (identity, file) = (self.tasks.thread_identity(thread), self.file_of(key));
        let same = LastLookup {
            thread,
            key,
            identity,
            file,
            index: self.counts_index_cached(identity, file),
        };
        self.last_lookup = Some(same);
        same
    }

    /// Processes a lookup; returns the request that it starts, if any.
    pub(crate) fn looked_up(&mut self, lookup: &Lookup) -> Option<Reference> {
        let Lookup { thread, key, first, last, last_in_file } = *lookup;
        let LastLookup { identity, file, index, .. } = self.resolve_lookup(thread, key);
        let last_in_file = last_in_file.unwrap_or_else(|| self.last_in_file(file, first, last));
        if last.min(last_in_file) < first {
            return None;
        }
        let found = self.lookups.looked_up(identity, file, first, (last, last_in_file));
        let counts = &mut self.counts[index].2;
        let Found { first, hits, ahead, misses, corrected, is_new, in_order } = found;
        counts.hit_pages = (counts.hit_pages + hits).saturating_sub(corrected);
        counts.read_ahead_hit_pages += ahead;
        counts.miss_pages += misses;
        if !is_new {
            return None;
        }
        counts.read_requests += 1;
        let pages = last.min(last_in_file).saturating_add(1) - first;
        counts.read_pages += pages;
        counts.in_order_pages += if in_order { pages } else { 0 };
        let reference = self.reference(file, identity.process, (first, pages), false);
        Some(Reference { misses, ahead, ..reference })
    }

    /// Accounts for lookups of a thread that the kernel counted without reporting each one.
    pub(crate) fn skipped(&mut self, thread: u32, skipped: &UnreportedLookups) {
        if skipped.count > 0 {
            let file = self.file_of(skipped.key);
            let request = (file, skipped.first, skipped.last);
            let habit = (skipped.in_order, skipped.pages);
            self.lookups.skipped(thread, skipped.count, request, habit);
        }
    }

    /// Adds requests that found all of their pages resident, none of them fresh from read-ahead.
    pub(crate) fn counted(&mut self, all: impl IntoIterator<Item = Counted>) {
        for (file, process, of) in all {
            let counts = self.counts_mut(file, process);
            counts.read_requests += of.requests;
            counts.read_pages += of.pages;
            counts.hit_pages += of.pages;
            counts.in_order_pages += of.in_order;
        }
    }

    /// Returns the number of requests of a process to a file so far.
    pub(crate) fn requests(&self, file: FileId, process: ProcessId) -> u64 {
        let pair = u64::from(file) << 32 | u64::from(process);
        self.pairs.get(&pair).map_or(0, |&index| self.counts[index].2.read_requests)
    }

    /// Processes a mapping of pages; a mapping that follows a fault on one of them is part of the
    /// same touch.
    fn mapped(&mut self, thread: u32, key: Key, first: u64, last: u64) {
        let (identity, file) = (self.tasks.thread_identity(thread), self.file_of(key));
        let fault = self.thread_state(thread).fault.take();
        let same = fault.is_some_and(|(of, page, _)| of == file && (first..=last).contains(&page));
        for page in first..=last.min(first.saturating_add(512)) {
            self.lookups.touched(file, page);
        }
        if !same {
            self.thread_state(thread).mapped_range = Some((file, first, last));
            self.counts_mut_cached(identity, file).map_touches += 1;
        }
    }

    fn fault(&mut self, thread: u32, key: Key, page: u64) -> Option<Reference> {
        let (identity, file) = (self.tasks.thread_identity(thread), self.file_of(key));
        let previous_fault = self.thread_state(thread).fault;
        // After a wait for the page, the thread repeats the fault.
        if previous_fault.is_some_and(|(of, same, missed)| (of, same, missed) == (file, page, true))
        {
            return None;
        }
        self.lookups.touched(file, page);
        let state = self.thread_state(thread);
        state.fault = Some((file, page, false));
        let mapped_range = state.mapped_range.take();
        let same = mapped_range
            .is_some_and(|(of, first, last)| of == file && (first..=last).contains(&page));
        self.counts_mut_cached(identity, file).map_touches += u64::from(!same);
        Some(self.reference(file, identity.process, (page, 1), false))
    }

    fn added(&mut self, thread: u32, key: Key, first: u64, order: u32) {
        let (identity, file) = (self.tasks.thread_identity(thread), self.file_of(key));
        let pages = 1_u64 << order.min(63);
        let end = first.saturating_add(pages);
        self.lookups.added(identity, file, first, pages);
        self.file_mut(file).raise_size(end);
        self.reads(thread, file, pages);
        let state = self.thread_state(thread);
        let missed = match &mut state.fault {
            Some((of, page, missed)) if *of == file && (first..end).contains(page) && !*missed => {
                *missed = true;
                true
            }
            _ => false,
        };
        let new = match state.writes {
            Some((of, from, to)) if of == file => end.min(to).saturating_sub(first.max(from)),
            _ => 0,
        };
        let mut refaults = 0;
        self.change_ranges(file, |of| {
            of.evicted.retain(first, end, |pages, ()| {
                refaults += pages;
                false
            });
            if order > 0 {
                of.folios.set(first, end, ());
            }
        });
        let counts = self.counts_mut_cached(identity, file);
        counts.added_pages += pages;
        counts.refault_pages += refaults;
        counts.map_misses += u64::from(missed);
        counts.write_new_pages += new;
    }

    fn deleted(&mut self, thread: u32, key: Key, first: u64, order: u32) {
        let (identity, file) = (self.tasks.thread_identity(thread), self.file_of(key));
        let pages = 1_u64 << order.min(63);
        let end = first.saturating_add(pages);
        let mut unused = Vec::new();
        self.lookups.dropped(file, first, pages, |process, pages| unused.push((process, pages)));
        for (process, pages) in unused {
            self.counts_mut(file, process).read_ahead_unused_pages += pages;
        }
        let evicts = self.thread_state(thread).reclaims || self.tasks.task(thread).reclaims;
        self.change_ranges(file, |of| {
            if order > 0 {
                of.folios.retain(first, end, |_, ()| false);
            }
            if evicts {
                of.evicted.set(first, end, ());
            } else {
                of.reset_size();
            }
        });
        let counts = self.counts_mut_cached(identity, file);
        if evicts {
            counts.evicted_pages += pages;
        } else {
            counts.dropped_pages += pages;
        }
    }

    /// Changes the remembered ranges of a file, and bounds the memory for those of all files.
    fn change_ranges(&mut self, file: FileId, change: impl FnOnce(&mut File)) {
        let of = self.file_mut(file);
        let before = of.ranges();
        change(of);
        let after = of.ranges();
        self.range_count = (self.range_count + after).saturating_sub(before);
        if self.range_count > REMEMBERED_MAX {
            self.files.iter_mut().for_each(File::forget_ranges);
            self.range_count = 0;
        }
    }
}

#[cfg(test)]
mod tests;
