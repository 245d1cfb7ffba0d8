//! Classification of lookups as hit, read-ahead hit or miss: a state machine over events.
//!
//! For a lookup the kernel reports only the requested pages (`mm_filemap_get_pages`, emitted when
//! they are resident), and for an addition to the page cache only the added pages. A page is a miss
//! if the thread that looks it up added it for this request, a read-ahead hit if another operation
//! added it before and no lookup has used it since, and otherwise a hit. Added pages are therefore
//! kept as fresh until a process looks them up or writes them, or the kernel drops them.
//!
//! The kernel reports a long request in pieces: each further range starts later and ends at the
//! same page. Only the first piece counts; a page of the rest that was added meanwhile was counted
//! as a hit before, and moves to the misses.
//!
//! The kernel does not report the first piece of some requests: if it finds resident pages followed
//! by one that is still being read, it copies the resident ones without an event and reports only
//! the rest. The module infers the missing piece if the read-ahead request covered all of it, or if
//! the thread reads sequentially with constant request size and read-ahead had added all pages in
//! between.
//!
//! One thread starts requests through `io_uring`, and a worker of the same process may look the
//! pages up, with many requests in flight. In that case the range of the read-ahead request
//! (`page_cache_sync_ra`) tells the requested pages from the additional ones.
//!
//! Invariants: counts are pages, never calls; every page of a request counts once, in one of the
//! three classes, except that a page that leaves the cache and returns within the request counts as
//! two misses; this module does not access the machine.

use super::Map;
use super::spans::SpanMap;

/// ID of a file in a watcher.
pub type FileId = u32;
/// ID of a process in a watcher.
pub type ProcessId = u32;

/// Maximum number of ranges of fresh pages; beyond it ranges from read-ahead are dropped, and their
/// pages count as hits when they are looked up.
const FRESH_MAX: usize = 1 << 20;
/// Number of consecutive sequential requests after which a gap counts as an unreported piece.
const IN_ORDER_MIN: u32 = 2;

/// The thread that performs an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadIdentity {
    pub(crate) thread: u32,
    pub(crate) process: ProcessId,
    /// True for a worker that serves other threads of its process (`iou-wrk`).
    pub(crate) is_worker: bool,
}

/// Result of a lookup, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// First page, possibly earlier than the reported one.
    pub(crate) first: u64,
    /// True for a new request, false for the rest of one.
    pub(crate) is_new: bool,
    /// Resident pages that an earlier lookup or write had used.
    pub(crate) hits: u64,
    /// Resident pages from read-ahead, looked up for the first time.
    pub(crate) ahead: u64,
    /// Pages that were not resident at the start of the request.
    pub(crate) misses: u64,
    /// Pages counted as hits before that are misses; the caller subtracts them from the hits.
    pub(crate) corrected: u64,
    /// True if the request started at the end of the thread's previous one.
    pub(crate) in_order: bool,
}

/// Cause of the addition of a fresh page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FillReason {
    /// A process requested the page.
    Demand,
    /// Read-ahead added the page.
    ReadAhead,
    /// Not reported: the thread's next lookup decides.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fresh {
    identity: ThreadIdentity,
    /// Number of lookups that the thread had made before the addition.
    epoch: u32,
    reason: FillReason,
}

/// Read-ahead that a thread currently performs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ActiveReadahead {
    #[default]
    Inactive,
    /// Synchronous: a process requested these pages.
    Sync { file: FileId, first: u64, end: u64 },
    /// Asynchronous: no process has requested the pages yet.
    Async,
}

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    epoch: u32,
    /// Number of consecutive requests that each started at the end of the previous one.
    in_order: u32,
    /// Number of pages that the last request asked for.
    pages: u64,
    /// Last request: file, first page of its last piece, last page.
    request: Option<(FileId, u64, u64)>,
    ahead: ActiveReadahead,
}

#[derive(Debug, Default)]
pub(crate) struct Lookups {
    threads: Map<u32, Thread>,
    fresh: Map<FileId, SpanMap<Fresh>>,
    spans: usize,
    /// Number of pages whose read-ahead state was dropped for lack of space; they count as hits.
    pub(super) forgotten: u64,
}

impl Lookups {
    /// Processes the start of read-ahead for `count` requested pages from `first` on that are not
    /// resident.
    pub(crate) fn sync_readahead(
        &mut self,
        identity: ThreadIdentity,
        file: FileId,
        first: u64,
        count: u64,
    ) {
        let end = first.saturating_add(count);
        self.threads.entry(identity.thread).or_default().ahead =
            ActiveReadahead::Sync { file, first, end };
    }

    /// Processes the start of read-ahead for pages that no process has requested yet.
    pub(crate) fn async_readahead(&mut self, identity: ThreadIdentity) {
        self.threads.entry(identity.thread).or_default().ahead = ActiveReadahead::Async;
    }

    pub(crate) fn added(&mut self, identity: ThreadIdentity, file: FileId, first: u64, pages: u64) {
        let thread = *self.threads.entry(identity.thread).or_default();
        let end = first.saturating_add(pages);
        let spans = self.fresh.entry(file).or_default();
        let before = spans.len();
        let mut set = |first, end, reason| {
            spans.set(first, end, Fresh { identity, epoch: thread.epoch, reason });
        };
        match thread.ahead {
            ActiveReadahead::Sync { file: of, first: from, end: to } if of == file => {
                let (from, to) = (from.clamp(first, end), to.clamp(first, end));
                set(first, from, FillReason::ReadAhead);
                set(from, to, FillReason::Demand);
                set(to, end, FillReason::ReadAhead);
            }
            ActiveReadahead::Async => set(first, end, FillReason::ReadAhead),
            ActiveReadahead::Sync { .. } | ActiveReadahead::Inactive => {
                set(first, end, FillReason::Unknown);
            }
        }
        self.spans = (self.spans + spans.len()).saturating_sub(before);
        if self.spans > FRESH_MAX {
            self.drop_readahead_ranges();
        }
    }

    /// Classifies a lookup of the pages from `first` to `last` by a thread. The file contains only
    /// the pages up to `last_in_file`, and only these count; the requested range identifies the
    /// request.
    pub(crate) fn looked_up(
        &mut self,
        identity: ThreadIdentity,
        file: FileId,
        first: u64,
        (last, last_in_file): (u64, u64),
    ) -> Found {
        let thread = self.threads.entry(identity.thread).or_default();
        let epoch = thread.epoch;
        let rest = thread.request.is_some_and(|(of, previous_first, end)| {
            of == file && end == last && first > previous_first
        });
        let (end, requested_end) =
            (last.min(last_in_file).saturating_add(1), last.saturating_add(1));
        let before = *thread;
        thread.epoch = epoch.wrapping_add(1);
        thread.request = Some((file, first, last));
        thread.ahead = ActiveReadahead::Inactive;
        let first = if rest {
            first
        } else {
            infer_first_page(&self.fresh, before, file, first, requested_end)
        };
        let mut found = Found { first, is_new: !rest, ..Found::default() };
        if !rest {
            let pages = requested_end - first;
            let is_sequential = before.request.is_some_and(|(of, _, last)| {
                of == file && (first == last || first == last.saturating_add(1))
            });
            let in_order = if is_sequential { before.in_order.saturating_add(1) } else { 0 };
            found.in_order = is_sequential;
            (thread.in_order, thread.pages) = (in_order, pages);
        }
        self.retain_fresh(file, (first, end), |pages, fresh| {
            let class = classify(identity, epoch, fresh);
            match class {
                LookupClass::Miss => found.misses += pages,
                // The first piece of the request counted these pages.
                LookupClass::ReadAhead if rest => {}
                LookupClass::ReadAhead => found.ahead += pages,
                LookupClass::OtherProcess => {}
            }
            class == LookupClass::OtherProcess
        });
        if rest {
            found.corrected = found.misses;
        } else {
            found.hits = end.saturating_sub(first).saturating_sub(found.misses + found.ahead);
        }
        found
    }

    /// Returns the file of a thread's last lookup.
    pub(crate) fn last_file(&self, thread: u32) -> Option<FileId> {
        self.threads.get(&thread)?.request.map(|(file, ..)| file)
    }

    /// Processes unreported lookups of a thread, none of which met a fresh page; `request` is the
    /// last one, with `pages` pages after `in_order` sequential requests.
    pub(crate) fn skipped(
        &mut self,
        thread: u32,
        count: u32,
        request: (FileId, u64, u64),
        (in_order, pages): (u32, u64),
    ) {
        let thread = self.threads.entry(thread).or_default();
        thread.epoch = thread.epoch.wrapping_add(count);
        (thread.request, thread.in_order, thread.pages) = (Some(request), in_order, pages);
    }

    pub(crate) fn none_fresh(&self, file: FileId) -> bool {
        self.fresh.get(&file).is_none_or(SpanMap::is_empty)
    }

    /// Processes an access to a page through a mapping; returns true if read-ahead had added the
    /// page.
    pub(crate) fn touched(&mut self, file: FileId, page: u64) -> bool {
        let mut ahead = false;
        self.retain_fresh(file, (page, page.saturating_add(1)), |_, fresh| {
            ahead |= fresh.reason == FillReason::ReadAhead;
            false
        });
        ahead
    }

    /// Processes a write to pages: later reads of them are hits.
    pub(crate) fn written(&mut self, file: FileId, first: u64, pages: u64) {
        self.retain_fresh(file, (first, first.saturating_add(pages)), |_, _| false);
    }

    /// Processes the removal of pages from the cache. Reports unused read-ahead pages, with the
    /// process that caused the read-ahead.
    pub(crate) fn dropped(
        &mut self,
        file: FileId,
        first: u64,
        pages: u64,
        mut unused: impl FnMut(ProcessId, u64),
    ) {
        self.retain_fresh(file, (first, first.saturating_add(pages)), |pages, fresh| {
            if fresh.reason == FillReason::ReadAhead {
                unused(fresh.identity.process, pages);
            }
            false
        });
    }

    pub(crate) fn removed(&mut self, file: FileId) {
        let spans = self.fresh.remove(&file).map_or(0, |spans| spans.len());
        self.spans = self.spans.saturating_sub(spans);
    }

    pub(crate) fn thread_ended(&mut self, thread: u32) {
        self.threads.remove(&thread);
    }

    /// Calls `keep` with each piece of fresh pages between `first` and `end`, and removes those for
    /// which it returns false.
    fn retain_fresh(
        &mut self,
        file: FileId,
        (first, end): (u64, u64),
        keep: impl FnMut(u64, Fresh) -> bool,
    ) {
        if let Some(spans) = self.fresh.get_mut(&file).filter(|spans| !spans.is_empty()) {
            let before = spans.len();
            spans.retain(first, end, keep);
            self.spans = (self.spans + spans.len()).saturating_sub(before);
        }
    }

    /// Frees space: drops all ranges except those of requested pages.
    fn drop_readahead_ranges(&mut self) {
        for spans in self.fresh.values_mut() {
            spans.retain(0, u64::MAX, |pages, fresh| {
                let keep = fresh.reason == FillReason::Demand;
                self.forgotten += if keep { 0 } else { pages };
                keep
            });
        }
        self.fresh.retain(|_, spans| !spans.is_empty());
        self.spans = self.fresh.values().map(SpanMap::len).sum();
        if self.spans > FRESH_MAX / 2 {
            // The threads of these requests ended without a lookup.
            self.fresh.clear();
            self.spans = 0;
        }
    }
}

/// Returns the first page of a request whose first reported page is `first`.
fn infer_first_page(
    fresh: &Map<FileId, SpanMap<Fresh>>,
    before: Thread,
    file: FileId,
    first: u64,
    end: u64,
) -> u64 {
    match (before.ahead, before.request) {
        (ActiveReadahead::Sync { file: of, first: from, end: to }, _)
            if of == file && to == end && from < first =>
        {
            from
        }
        (_, Some((of, _, last)))
            if of == file && before.in_order >= IN_ORDER_MIN && first > last =>
        {
            let from = last.saturating_add(1);
            // With the missing piece, the request is as long as the previous one.
            let brought = end - from == before.pages
                && fresh.get(&file).is_some_and(|spans| {
                    spans.count(from, first, |fresh| fresh.reason != FillReason::Demand)
                        == first - from
                });
            if brought { from } else { first }
        }
        _ => first,
    }
}

#[derive(PartialEq, Eq)]
enum LookupClass {
    Miss,
    ReadAhead,
    /// A page that another process requested; it is that process's miss.
    OtherProcess,
}

fn classify(identity: ThreadIdentity, epoch: u32, fresh: Fresh) -> LookupClass {
    let same_process = fresh.identity.process == identity.process;
    let same_requester =
        fresh.identity.thread == identity.thread || (identity.is_worker && same_process);
    // Epochs of different threads are not comparable; a worker treats a page that its process added
    // as its own.
    if same_requester
        && (fresh.epoch == epoch || fresh.identity.thread != identity.thread)
        && fresh.reason != FillReason::ReadAhead
    {
        return LookupClass::Miss;
    }
    match fresh.reason {
        FillReason::Demand if same_process => LookupClass::Miss,
        FillReason::Demand => LookupClass::OtherProcess,
        FillReason::ReadAhead if same_requester && fresh.epoch == epoch => LookupClass::Miss,
        FillReason::ReadAhead | FillReason::Unknown => LookupClass::ReadAhead,
    }
}

#[cfg(test)]
mod tests;
