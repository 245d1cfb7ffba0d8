//! What each process did to each file: events become counts.
//!
//! Invariants: counts only grow, but for pages that were told as hits and turn out to be misses
//! (see [`super::lookup`]); memory is bounded by files and processes met, and by the bounds named
//! here. Nothing here reads the machine, but through what it is given.

use super::event::{Event, FileSystemId, Key, Lookup, Reason};
use super::fast::Map;
use super::lookup::{FileId, Found, Lookups, ProcessId, ThreadIdentity};
use super::spans::Spans;
use super::tasks::{Ask, Tasks};
use larder_report::watch::{Counts, Unattributed};
use std::collections::HashMap;

mod files;
mod physical;
mod write;

use files::File;
pub(crate) use files::REMOVED_MAX;

/// Spans of pages that were evicted, and large folios, that are remembered over all files; beyond
/// it all are forgotten.
const REMEMBERED_MAX: usize = 1 << 20;

/// The number that block devices get as files, whatever the kernel calls their file system.
pub(crate) const BLOCK_DEVICES: u32 = u32::MAX;

/// The devices that the files of a home may be on.
pub(crate) type Homes = Box<dyn FnMut(&FileSystemId) -> Vec<u32> + Send>;
/// Whether a number of a device is that of the file system that holds block devices.
pub(crate) type HoldsBlocks = Box<dyn FnMut(Key) -> bool + Send>;

/// How many bytes a file has now, if that can be known.
pub(crate) type Ends = Box<dyn FnMut(Key) -> Option<u64> + Send>;

/// What of the machine the ledger asks.
pub(crate) struct Machine {
    /// Threads.
    pub(crate) ask: Ask,
    /// File systems.
    pub(crate) homes: Homes,
    /// Block devices.
    pub(crate) holds_blocks: HoldsBlocks,
    /// Files.
    pub(crate) ends: Ends,
    /// Bytes of a page.
    pub(crate) page_bytes: u64,
}

/// A request, as traces hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Which file.
    pub file: FileId,
    /// Which process.
    pub process: ProcessId,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Whether it was a write.
    pub write: bool,
    /// How many of its pages were not resident.
    pub misses: u64,
    /// How many were resident by read-ahead.
    pub ahead: u64,
}

/// What a thread is doing.
#[derive(Clone, Copy, Debug, Default)]
struct Doing {
    /// The file that it reads pages of.
    reads: Option<FileId>,
    /// The file that it continues to read after metadata, and the bytes of metadata not read yet.
    then_reads: Option<(FileId, u64)>,
    /// The file that it writes out.
    writes_out: Option<FileId>,
    /// The pages that it was asked to write.
    writes: Option<(FileId, u64, u64)>,
    /// What is left of that request, in bytes: where it has come to, and where it ends.
    left: (u64, u64),
    /// Pages around one that it touched through a mapping, which were mapped before it was asked
    /// for itself.
    around: Option<(FileId, u64, u64)>,
    /// A page that it touched through a mapping, and whether it has become a miss.
    fault: Option<(FileId, u64, bool)>,
    /// The file that it read and whose inode became dirty then.
    touched: Option<FileId>,
    /// The file that XFS has it tidy up after its last user.
    inactive: Option<Key>,
    reason: Reason,
    reclaims: bool,
    /// It may be a look-up, an I/O or a change of the last file: found without a search.
    pair: Option<(FileId, ProcessId, usize)>,
}

/// A look-up: most are of the same thread and file as the one before.
#[derive(Clone, Copy, Debug)]
struct Same {
    thread: u32,
    key: Key,
    who: ThreadIdentity,
    file: FileId,
    /// Place of their counts.
    place: usize,
}

/// All counts.
pub(crate) struct Accounting {
    tasks: Tasks,
    /// The last look-up, until threads come, go or change.
    same: Option<Same>,
    homes: Homes,
    holds_blocks: HoldsBlocks,
    ends: Ends,
    /// How often what a file system says of ends may be asked for.
    round: u32,
    known_homes: HashMap<FileSystemId, Vec<u32>>,
    block_homes: Map<u32, bool>,
    page_bytes: u64,
    lookups: Lookups,
    files: Vec<File>,
    by_key: HashMap<Key, FileId, std::hash::BuildHasherDefault<super::fast::Mixer>>,
    doing: Map<u32, Doing>,
    pairs: Map<u64, usize>,
    counts: Vec<(FileId, ProcessId, Counts)>,
    /// Files that were removed and have their own number here.
    removed: usize,
    /// Files that were removed since somebody asked, with when.
    gone: Vec<(FileId, u64)>,
    /// When what is taken happened.
    now_ns: u64,
    unattributed: Unattributed,
    remembered: usize,
    /// Devices whose requests are counted where they come from, not here.
    lower: Map<u32, bool>,
    splits: Map<u32, u64>,
}

impl std::fmt::Debug for Accounting {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Ledger").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Accounting {
    /// Nothing counted yet.
    #[must_use]
    pub(crate) fn new(machine: Machine) -> Accounting {
        Accounting {
            tasks: Tasks::new(machine.ask),
            same: None,
            homes: machine.homes,
            holds_blocks: machine.holds_blocks,
            ends: machine.ends,
            round: 1,
            known_homes: HashMap::new(),
            block_homes: Map::default(),
            page_bytes: machine.page_bytes,
            lookups: Lookups::default(),
            files: Vec::new(),
            by_key: HashMap::default(),
            doing: Map::default(),
            pairs: Map::default(),
            counts: Vec::new(),
            removed: 0,
            gone: Vec::new(),
            now_ns: 0,
            unattributed: Unattributed::default(),
            remembered: 0,
            lower: Map::default(),
            splits: Map::default(),
        }
    }

    /// All counts, each with its file and its process.
    #[must_use]
    pub(crate) fn counts(&self) -> &[(FileId, ProcessId, Counts)] {
        &self.counts
    }

    /// Physical I/O without a file.
    #[must_use]
    pub(crate) fn unattributed(&self) -> Unattributed {
        self.unattributed
    }

    /// Requests of a device that were cut in two.
    #[must_use]
    pub(crate) fn splits(&self, dev: u32) -> u64 {
        self.splits.get(&dev).copied().unwrap_or(0)
    }

    /// Pages whose read-ahead was forgotten for want of room.
    #[must_use]
    pub(crate) fn forgotten(&self) -> u64 {
        self.lookups.forgotten()
    }

    /// Threads and processes.
    #[must_use]
    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// What was mounted since may be looked up anew.
    pub(crate) fn forget_homes(&mut self) {
        self.known_homes.clear();
        self.lower.clear();
    }

    fn doing(&mut self, thread: u32) -> &mut Doing {
        self.doing.entry(thread).or_default()
    }

    fn place(&mut self, file: FileId, process: ProcessId) -> usize {
        let pair = u64::from(file) << 32 | u64::from(process);
        *self.pairs.entry(pair).or_insert_with(|| {
            self.counts.push((file, process, Counts::default()));
            self.counts.len() - 1
        })
    }

    fn at(&mut self, file: FileId, process: ProcessId) -> &mut Counts {
        let place = self.place(file, process);
        &mut self.counts[place].2
    }

    /// The same for a thread that mostly does the same again.
    fn at_again(&mut self, who: ThreadIdentity, file: FileId) -> &mut Counts {
        let place = self.place_again(who, file);
        &mut self.counts[place].2
    }

    fn place_again(&mut self, who: ThreadIdentity, file: FileId) -> usize {
        let doing = self.doing.entry(who.thread).or_default();
        if let Some((same, process, place)) = doing.pair
            && same == file
            && process == who.process
        {
            return place;
        }
        let place = self.place(file, who.process);
        self.doing(who.thread).pair = Some((file, who.process, place));
        place
    }

    /// What is taken from here on happened then.
    pub(crate) fn at_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Takes an event of a thread; answers with the request that it began, if it is one.
    pub(crate) fn take(&mut self, thread: u32, event: Event) -> Option<Reference> {
        match event {
            Event::Lookup { key, first, last, held } => {
                return self.looked_up(&Lookup { thread, key, first, last, held });
            }
            Event::MapPages { key, first, last } => self.mapped(thread, key, first, last),
            Event::Fault { key, page } => return self.fault(thread, key, page),
            Event::Add { key, first, order } => self.added(thread, key, first, order),
            Event::Delete { key, first, order } => self.deleted(thread, key, first, order),
            Event::Wanted { key, first, count } => {
                let (who, file) = (self.tasks.thread_identity(thread), self.file_of(key));
                self.lookups.wanted(who, file, first, count);
            }
            Event::Ahead => {
                let who = self.tasks.thread_identity(thread);
                self.lookups.ahead(who);
            }
            Event::Dirty { place, page } => return self.dirtied(thread, place, page),
            Event::Write { key, offset, bytes, whole } => {
                return self.write(thread, key, (offset, bytes), whole);
            }
            Event::InodeDirty { place } => self.inode_dirtied(thread, place),
            Event::WriteOut { place } | Event::InodeStart { place } => {
                let file = self.file_at(place);
                self.doing(thread).writes_out = Some(file);
            }
            Event::InodeDone { place, wrote } => self.wrote(thread, place, wrote),
            Event::LazyStart { reason } => self.doing(thread).reason = reason,
            Event::Throttled { ms } => self.throttled(thread, ms),
            Event::Reclaim { begins } => self.doing(thread).reclaims = begins,
            Event::Removed { key } => {
                self.removed(key);
            }
            Event::Inactive { key } => self.doing(thread).inactive = Some(key),
            Event::Unlinked => {
                if let Some(key) = self.doing(thread).inactive.take() {
                    self.removed(key);
                }
            }
            Event::Direct { key } => {
                let file = self.file_of(key);
                let doing = self.doing(thread);
                (doing.reads, doing.then_reads) = (Some(file), None);
                doing.writes_out = Some(file);
            }
            Event::Bio { dev, sectors, write, meta } => self.bio(thread, dev, sectors, write, meta),
            Event::Split { dev } => *self.splits.entry(dev).or_default() += 1,
            Event::NewTask { tid, thread: same, grouped } => {
                self.same = None;
                self.tasks.made(thread, tid, same);
                if grouped {
                    self.tasks.grouped(tid);
                }
            }
            Event::Joined { tid } => {
                self.same = None;
                self.tasks.joined(tid);
            }
            Event::Rename { tid, name } => {
                self.same = None;
                let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
                self.tasks.renamed(tid, &String::from_utf8_lossy(&name[..end]));
            }
            Event::Exit { tid } => {
                self.same = None;
                self.tasks.ended(tid);
                self.lookups.thread_ended(tid);
                self.doing.remove(&tid);
            }
        }
        None
    }

    /// Who looks up, which file, and where that is counted.
    fn same(&mut self, thread: u32, key: Key) -> Same {
        if let Some(same) = self.same.filter(|same| same.thread == thread && same.key == key) {
            return same;
        }
        let (who, file) = (self.tasks.thread_identity(thread), self.file_of(key));
        let same = Same { thread, key, who, file, place: self.place_again(who, file) };
        self.same = Some(same);
        same
    }

    /// Takes a look-up; answers with the request that it began, if it did.
    pub(crate) fn looked_up(&mut self, lookup: &Lookup) -> Option<Reference> {
        let Lookup { thread, key, first, last, held } = *lookup;
        let Same { who, file, place, .. } = self.same(thread, key);
        let held = held.unwrap_or_else(|| self.held(file, first, last));
        if last.min(held) < first {
            return None;
        }
        let found = self.lookups.looked_up(who, file, first, (last, held));
        let counts = &mut self.counts[place].2;
        let Found { first, hits, ahead, misses, corrected, is_new, in_order } = found;
        counts.hit_pages = (counts.hit_pages + hits).saturating_sub(corrected);
        counts.read_ahead_hit_pages += ahead;
        counts.miss_pages += misses;
        if !is_new {
            return None;
        }
        counts.read_requests += 1;
        let pages = last.min(held).saturating_add(1) - first;
        counts.read_pages += pages;
        counts.in_order_pages += if in_order { pages } else { 0 };
        Some(Reference {
            file,
            process: who.process,
            offset: first.saturating_mul(self.page_bytes),
            bytes: pages.saturating_mul(self.page_bytes),
            write: false,
            misses,
            ahead,
        })
    }

    /// A thread has made look-ups that were only counted.
    #[cfg(feature = "bpf")]
    pub(crate) fn skipped(&mut self, thread: u32, skipped: &super::kernel_probe::Skipped) {
        if skipped.count > 0 {
            let file = self.file_of(skipped.key);
            let request = (file, skipped.first, skipped.last);
            let habit = (skipped.in_order, skipped.pages);
            self.lookups.skipped(thread, skipped.count, request, habit);
        }
    }

    /// Requests of a process that found all of their pages, none of them fresh.
    #[cfg(feature = "bpf")]
    pub(crate) fn counted(
        &mut self,
        file: FileId,
        process: ProcessId,
        of: super::kernel_probe::Counted,
    ) {
        let counts = self.at(file, process);
        counts.read_requests += of.requests;
        counts.read_pages += of.pages;
        counts.hit_pages += of.pages;
        counts.in_order_pages += of.in_order;
    }

    /// Requests of a process to a file up to now.
    #[cfg(feature = "bpf")]
    pub(crate) fn requests(&self, file: FileId, process: ProcessId) -> u64 {
        let pair = u64::from(file) << 32 | u64::from(process);
        self.pairs.get(&pair).map_or(0, |&place| self.counts[place].2.read_requests)
    }

    /// Whether no page of a file is fresh.
    #[cfg(feature = "bpf")]
    pub(crate) fn none_fresh(&self, file: FileId) -> bool {
        self.lookups.none_fresh(file)
    }

    /// A page that is mapped after its fault belongs to the same touch.
    fn mapped(&mut self, thread: u32, key: Key, first: u64, last: u64) {
        let (who, file) = (self.tasks.thread_identity(thread), self.file_of(key));
        let fault = self.doing(thread).fault.take();
        let same = fault.is_some_and(|(of, page, _)| of == file && (first..=last).contains(&page));
        for page in first..=last.min(first.saturating_add(512)) {
            self.lookups.touched(file, page);
        }
        if !same {
            self.doing(thread).around = Some((file, first, last));
            self.at_again(who, file).map_touches += 1;
        }
    }

    fn fault(&mut self, thread: u32, key: Key, page: u64) -> Option<Reference> {
        let (who, file) = (self.tasks.thread_identity(thread), self.file_of(key));
        let again = self.doing(thread).fault;
        // After it had to wait for the page, the thread tries the same once more.
        if again.is_some_and(|(of, same, missed)| (of, same, missed) == (file, page, true)) {
            return None;
        }
        self.lookups.touched(file, page);
        let doing = self.doing(thread);
        doing.fault = Some((file, page, false));
        let around = doing.around.take();
        let same =
            around.is_some_and(|(of, first, last)| of == file && (first..=last).contains(&page));
        self.at_again(who, file).map_touches += u64::from(!same);
        Some(Reference {
            file,
            process: who.process,
            offset: page.saturating_mul(self.page_bytes),
            bytes: self.page_bytes,
            write: false,
            misses: 0,
            ahead: 0,
        })
    }

    fn added(&mut self, thread: u32, key: Key, first: u64, order: u32) {
        let (who, file) = (self.tasks.thread_identity(thread), self.file_of(key));
        let pages = 1_u64 << order.min(63);
        let end = first.saturating_add(pages);
        self.lookups.added(who, file, first, pages);
        self.file_mut(file).reaches(end);
        self.reads(thread, file, pages);
        let doing = self.doing(thread);
        let missed = match &mut doing.fault {
            Some((of, page, missed)) if *of == file && (first..end).contains(page) && !*missed => {
                *missed = true;
                true
            }
            _ => false,
        };
        let new = match doing.writes {
            Some((of, from, to)) if of == file => end.min(to).saturating_sub(first.max(from)),
            _ => 0,
        };
        let (mut refaults, mut remembered) = (0, self.remembered);
        let of = self.file_mut(file);
        if !of.evicted.is_empty() {
            let before = of.evicted.len();
            of.evicted.retain(first, end, |pages, ()| {
                refaults += pages;
                false
            });
            remembered = (remembered + of.evicted.len()).saturating_sub(before);
        }
        if let Ok(order) = u8::try_from(order)
            && order > 0
        {
            of.folios.put(first, end, order);
            remembered += 1;
        }
        self.remember(remembered);
        let counts = self.at_again(who, file);
        counts.added_pages += pages;
        counts.refault_pages += refaults;
        counts.map_misses += u64::from(missed);
        counts.write_new_pages += new;
    }

    fn deleted(&mut self, thread: u32, key: Key, first: u64, order: u32) {
        let (who, file) = (self.tasks.thread_identity(thread), self.file_of(key));
        let pages = 1_u64 << order.min(63);
        let end = first.saturating_add(pages);
        let mut unused = Vec::new();
        self.lookups.dropped(file, first, pages, |process, pages| unused.push((process, pages)));
        for (process, pages) in unused {
            self.at(file, process).read_ahead_unused_pages += pages;
        }
        let evicts = self.doing(thread).reclaims || self.tasks.reclaims(thread);
        let mut remembered = self.remembered;
        let of = self.file_mut(file);
        if order > 0 {
            let before = of.folios.len();
            of.folios.retain(first, end, |_, _| false);
            remembered = (remembered + of.folios.len()).saturating_sub(before);
        }
        if evicts {
            of.evicted.put(first, end, ());
            remembered += 1;
        } else {
            of.may_end_before();
        }
        self.remember(remembered);
        let counts = self.at_again(who, file);
        if evicts {
            counts.evicted_pages += pages;
        } else {
            counts.dropped_pages += pages;
        }
    }

    /// Keeps what is remembered of pages bounded.
    fn remember(&mut self, count: usize) {
        self.remembered = count;
        if count > REMEMBERED_MAX {
            for file in &mut self.files {
                (file.evicted, file.folios) = (Spans::default(), Spans::default());
            }
            self.remembered = 0;
        }
    }
}

#[cfg(test)]
mod tests;
