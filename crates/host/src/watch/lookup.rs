//! Classification of look-ups as hit, read-ahead hit or miss: a state machine over events.
//!
//! For a look-up the kernel reports only the requested pages (`mm_filemap_get_pages`, emitted when
//! they are resident), and for an addition to the page cache only the added pages. A page is a miss
//! if the thread that looks it up added it for this request, a read-ahead hit if another operation
//! added it before and no look-up has used it since, and otherwise a hit. Added pages are therefore
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

use super::fast::Map;
use super::spans::Spans;

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
    /// Thread ID.
    pub(crate) thread: u32,
    /// Process of the thread.
    pub(crate) process: ProcessId,
    /// True for a worker that serves other threads of its process (`iou-wrk`).
    pub(crate) is_worker: bool,
}

/// Result of a look-up, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// First page, possibly earlier than the reported one.
    pub(crate) first: u64,
    /// True for a new request, false for the rest of one.
    pub(crate) is_new: bool,
    /// Resident pages that an earlier look-up or write had used.
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
    Ahead,
    /// Not reported: the thread's next look-up decides.
    Unknown,
}

/// State of a fresh page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fresh {
    who: ThreadIdentity,
    /// Number of look-ups that the thread had made before the addition.
    epoch: u32,
    why: FillReason,
}

/// Read-ahead that a thread currently performs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ahead {
    #[default]
    Nothing,
    /// Synchronous: a process requested these pages.
    For { file: FileId, first: u64, end: u64 },
    /// Asynchronous: no process has requested the pages yet.
    Beyond,
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
    ahead: Ahead,
}

/// State of all threads and all fresh pages.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    threads: Map<u32, Thread>,
    fresh: Map<FileId, Spans<Fresh>>,
    spans: usize,
    forgotten: u64,
}

impl Lookups {
    /// Processes the start of read-ahead for `count` requested pages from `first` on that are not
    /// resident.
    pub(crate) fn wanted(&mut self, who: ThreadIdentity, file: FileId, first: u64, count: u64) {
        let end = first.saturating_add(count);
        self.threads.entry(who.thread).or_default().ahead = Ahead::For { file, first, end };
    }

    /// Processes the start of read-ahead for pages that no process has requested yet.
    pub(crate) fn ahead(&mut self, who: ThreadIdentity) {
        self.threads.entry(who.thread).or_default().ahead = Ahead::Beyond;
    }

    /// Processes the addition of pages to the cache.
    pub(crate) fn added(&mut self, who: ThreadIdentity, file: FileId, first: u64, pages: u64) {
        let thread = *self.threads.entry(who.thread).or_default();
        let end = first.saturating_add(pages);
        let spans = self.fresh.entry(file).or_default();
        let before = spans.len();
        let mut put = |first, end, why| {
            spans.put(first, end, Fresh { who, epoch: thread.epoch, why });
        };
        match thread.ahead {
            Ahead::For { file: of, first: from, end: to } if of == file => {
                let (from, to) = (from.clamp(first, end), to.clamp(first, end));
                put(first, from, FillReason::Ahead);
                put(from, to, FillReason::Demand);
                put(to, end, FillReason::Ahead);
            }
            Ahead::Beyond => put(first, end, FillReason::Ahead),
            Ahead::For { .. } | Ahead::Nothing => put(first, end, FillReason::Unknown),
        }
        self.spans = (self.spans + spans.len()).saturating_sub(before);
        if self.spans > FRESH_MAX {
            self.forget();
        }
    }

    /// Classifies a look-up of the pages from `first` to `last` by a thread. The file contains only
    /// the pages up to `held`, and only these count; the requested range identifies the request.
    pub(crate) fn looked_up(
        &mut self,
        who: ThreadIdentity,
        file: FileId,
        first: u64,
        (last, held): (u64, u64),
    ) -> Found {
        let thread = self.threads.entry(who.thread).or_default();
        let epoch = thread.epoch;
        let rest =
            thread.request.is_some_and(|(of, come, end)| of == file && end == last && first > come);
        let (end, asked) = (last.min(held).saturating_add(1), last.saturating_add(1));
        let before = *thread;
        thread.epoch = epoch.wrapping_add(1);
        thread.request = Some((file, first, last));
        thread.ahead = Ahead::Nothing;
        let first = if rest { first } else { beginning(&self.fresh, before, file, first, asked) };
        let mut found = Found { first, is_new: !rest, ..Found::default() };
        if !rest {
            let pages = asked - first;
            let goes_on = before.request.is_some_and(|(of, _, last)| {
                of == file && (first == last || first == last.saturating_add(1))
            });
            let in_order = if goes_on { before.in_order.saturating_add(1) } else { 0 };
            found.in_order = goes_on;
            (thread.in_order, thread.pages) = (in_order, pages);
        }
        if let Some(spans) = self.fresh.get_mut(&file).filter(|spans| !spans.is_empty()) {
            let before = spans.len();
            spans.retain(first, end, |pages, fresh| match class(who, epoch, fresh) {
                Class::Miss => {
                    found.misses += pages;
                    false
                }
                // The first piece of the request counted these pages.
                Class::Ahead if rest => false,
                Class::Ahead => {
                    found.ahead += pages;
                    false
                }
                Class::Others => true,
            });
            self.spans = (self.spans + spans.len()).saturating_sub(before);
        }
        if rest {
            found.corrected = found.misses;
        } else {
            found.hits = end.saturating_sub(first).saturating_sub(found.misses + found.ahead);
        }
        found
    }

    /// Returns the file of a thread's last look-up.
    #[must_use]
    pub(crate) fn last_file(&self, thread: u32) -> Option<FileId> {
        self.threads.get(&thread)?.request.map(|(file, ..)| file)
    }

    /// Processes unreported look-ups of a thread, none of which met a fresh page; `request` is the
    /// last one, with `pages` pages after `in_order` sequential requests.
    #[cfg(feature = "bpf")]
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

    /// Returns true if a file has no fresh pages.
    #[cfg(feature = "bpf")]
    #[must_use]
    pub(crate) fn none_fresh(&self, file: FileId) -> bool {
        self.fresh.get(&file).is_none_or(Spans::is_empty)
    }

    /// Processes an access to a page through a mapping; returns true if read-ahead had added the
    /// page.
    pub(crate) fn touched(&mut self, file: FileId, page: u64) -> bool {
        let mut ahead = false;
        self.take(file, page, page.saturating_add(1), |_, fresh| {
            ahead |= fresh.why == FillReason::Ahead;
        });
        ahead
    }

    /// Processes a write to pages: later reads of them are hits.
    pub(crate) fn written(&mut self, file: FileId, first: u64, pages: u64) {
        self.take(file, first, first.saturating_add(pages), |_, _| ());
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
        self.take(file, first, first.saturating_add(pages), |pages, fresh| {
            if fresh.why == FillReason::Ahead {
                unused(fresh.who.process, pages);
            }
        });
    }

    /// Processes the removal of a file.
    pub(crate) fn removed(&mut self, file: FileId) {
        let spans = self.fresh.remove(&file).map_or(0, |spans| spans.len());
        self.spans = self.spans.saturating_sub(spans);
    }

    /// Processes the end of a thread.
    pub(crate) fn thread_ended(&mut self, thread: u32) {
        self.threads.remove(&thread);
    }

    /// Returns the number of pages whose read-ahead state was dropped for lack of space; they count
    /// as hits.
    #[must_use]
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn take(&mut self, file: FileId, first: u64, end: u64, mut each: impl FnMut(u64, Fresh)) {
        let Some(spans) = self.fresh.get_mut(&file).filter(|spans| !spans.is_empty()) else {
            return;
        };
        let before = spans.len();
        spans.retain(first, end, |pages, fresh| {
            each(pages, fresh);
            false
        });
        self.spans = (self.spans + spans.len()).saturating_sub(before);
    }

    /// Frees space: drops all ranges except those of requested pages.
    fn forget(&mut self) {
        for spans in self.fresh.values_mut() {
            spans.retain(0, u64::MAX, |pages, fresh| {
                let keep = fresh.why == FillReason::Demand;
                self.forgotten += if keep { 0 } else { pages };
                keep
            });
        }
        self.fresh.retain(|_, spans| !spans.is_empty());
        self.spans = self.fresh.values().map(Spans::len).sum();
        if self.spans > FRESH_MAX / 2 {
            // The threads of these requests ended without a look-up.
            self.fresh.clear();
            self.spans = 0;
        }
    }
}

/// Returns the first page of a request whose first reported page is `first`.
fn beginning(
    fresh: &Map<FileId, Spans<Fresh>>,
    before: Thread,
    file: FileId,
    first: u64,
    end: u64,
) -> u64 {
    match (before.ahead, before.request) {
        (Ahead::For { file: of, first: from, end: to }, _)
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
                    spans.count(from, first, |fresh| fresh.why != FillReason::Demand)
                        == first - from
                });
            if brought { from } else { first }
        }
        _ => first,
    }
}

enum Class {
    Miss,
    Ahead,
    /// A page that another process requested; it is that process's miss.
    Others,
}

fn class(who: ThreadIdentity, epoch: u32, fresh: Fresh) -> Class {
    let same_process = fresh.who.process == who.process;
    let own = fresh.who.thread == who.thread || (who.is_worker && same_process);
    // Epochs of different threads are not comparable; a worker treats a page that its process added
    // as its own.
    if own
        && (fresh.epoch == epoch || fresh.who.thread != who.thread)
        && fresh.why != FillReason::Ahead
    {
        return Class::Miss;
    }
    match fresh.why {
        FillReason::Demand if same_process => Class::Miss,
        FillReason::Demand => Class::Others,
        FillReason::Ahead if own && fresh.epoch == epoch => Class::Miss,
        FillReason::Ahead | FillReason::Unknown => Class::Ahead,
    }
}

#[cfg(test)]
mod tests;
