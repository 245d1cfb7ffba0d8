//! Hit, read-ahead hit or miss: the rule, as a state machine over events.
//!
//! The kernel tells of a look-up only which pages were asked for (`mm_filemap_get_pages`, emitted
//! when they are there), and of a page that came into the cache only that it came. A page is a miss
//! if the thread that looks it up has brought it in for this very request, a read-ahead hit if
//! somebody brought it in before and nobody has looked it up since, and else a hit. So pages that
//! came are kept as fresh until they are looked up, written or dropped.
//!
//! A long request is told piece by piece: each time the range begins later and ends at the same
//! page. Only what is new counts; a page of the rest that came meanwhile was counted as a hit
//! before, and is moved to the misses.
//!
//! Of some requests the kernel does not tell the first piece: when it finds pages that are there
//! and behind them one that is still being read, it copies the first ones without a word and tells
//! of the rest. The missing piece is known if read-ahead was asked for the whole of it, and if the
//! thread reads in order, each time as much, and read-ahead had brought all pages in between.
//!
//! Requests through `io_uring` are begun by one thread and may be looked up by a worker of the same
//! process, many at a time. There the range that read-ahead was asked for (`page_cache_sync_ra`)
//! says which pages were wanted and which came along.
//!
//! Invariants: counts are pages, never calls; every page of a request counts once, as one of the
//! three, except that a page that leaves the cache and comes back within the request is missed
//! twice; this module does not access the machine.

use super::fast::Map;
use super::spans::Spans;

/// A file, as a small number.
pub type FileId = u32;
/// A process, as a small number.
pub type ProcessId = u32;

/// Spans of fresh pages that are kept at most; beyond it those that came by read-ahead are
/// forgotten, and count as hits when they are looked up.
const FRESH_MAX: usize = 1 << 20;
/// Requests in order before a gap is taken for a piece that was not told.
const IN_ORDER_MIN: u32 = 2;

/// The thread that does something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadIdentity {
    /// Its number.
    pub(crate) thread: u32,
    /// Its process.
    pub(crate) process: ProcessId,
    /// It works for other threads of its process (`iou-wrk`).
    pub(crate) is_worker: bool,
}

/// What a look-up came to, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The first page, which may be an earlier one than was told.
    pub(crate) first: u64,
    /// Whether this is a new request and not the rest of one.
    pub(crate) is_new: bool,
    /// Were there, and had been looked up or written before.
    pub(crate) hits: u64,
    /// Were there, since read-ahead had brought them, for the first time.
    pub(crate) ahead: u64,
    /// Were not there when the request began.
    pub(crate) misses: u64,
    /// Counted as hits before and are misses: to be taken from the hits.
    pub(crate) corrected: u64,
    /// The request began where the thread's one before had ended.
    pub(crate) in_order: bool,
}

/// How a fresh page came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FillReason {
    /// Somebody asked for it.
    Demand,
    /// It came along.
    Ahead,
    /// The kernel does not tell: the next look-up of the thread decides.
    Unknown,
}

/// A fresh page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fresh {
    who: ThreadIdentity,
    /// Look-ups that the thread had made when it came.
    epoch: u32,
    why: FillReason,
}

/// What a thread reads ahead at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ahead {
    #[default]
    Nothing,
    /// These pages are wanted now.
    For { file: FileId, first: u64, end: u64 },
    /// None are.
    Beyond,
}

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    epoch: u32,
    /// Requests in a row that began where the one before had ended.
    in_order: u32,
    /// Pages that the last request asked for.
    pages: u64,
    /// The request that it looked up last: file, where it has come to, last page.
    request: Option<(FileId, u64, u64)>,
    ahead: Ahead,
}

/// All threads and all fresh pages.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    threads: Map<u32, Thread>,
    fresh: Map<FileId, Spans<Fresh>>,
    spans: usize,
    forgotten: u64,
}

impl Lookups {
    /// Read-ahead begins because `count` pages from `first` on are wanted and not there.
    pub(crate) fn wanted(&mut self, who: ThreadIdentity, file: FileId, first: u64, count: u64) {
        let end = first.saturating_add(count);
        self.threads.entry(who.thread).or_default().ahead = Ahead::For { file, first, end };
    }

    /// Read-ahead begins for pages that nobody wants yet.
    pub(crate) fn ahead(&mut self, who: ThreadIdentity) {
        self.threads.entry(who.thread).or_default().ahead = Ahead::Beyond;
    }

    /// Pages came into the cache.
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

    /// A thread has looked up all pages from `first` to `last`, of which the file has those up to
    /// `held`: they count. Requests are told from one another by what they asked for.
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
                // The rest of a request was counted when it began.
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

    /// The file in which a thread looked pages up last.
    #[must_use]
    pub(crate) fn last_file(&self, thread: u32) -> Option<FileId> {
        self.threads.get(&thread)?.request.map(|(file, ..)| file)
    }

    /// A thread has made look-ups that were not told, none of which met a fresh page; the last one
    /// was of pages from `first` to `last`, a request of `pages` after `in_order` others.
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

    /// Whether no page of a file is fresh.
    #[cfg(feature = "bpf")]
    #[must_use]
    pub(crate) fn none_fresh(&self, file: FileId) -> bool {
        self.fresh.get(&file).is_none_or(Spans::is_empty)
    }

    /// A page was touched through a mapping; whether read-ahead had brought it.
    pub(crate) fn touched(&mut self, file: FileId, page: u64) -> bool {
        let mut ahead = false;
        self.take(file, page, page.saturating_add(1), |_, fresh| {
            ahead |= fresh.why == FillReason::Ahead;
        });
        ahead
    }

    /// Pages were written: whoever reads them later finds them.
    pub(crate) fn written(&mut self, file: FileId, first: u64, pages: u64) {
        self.take(file, first, first.saturating_add(pages), |_, _| ());
    }

    /// Pages left the cache. Tells those that read-ahead had brought for nothing, with whose.
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

    /// A file is gone.
    pub(crate) fn removed(&mut self, file: FileId) {
        let spans = self.fresh.remove(&file).map_or(0, |spans| spans.len());
        self.spans = self.spans.saturating_sub(spans);
    }

    /// A thread is gone.
    pub(crate) fn thread_ended(&mut self, thread: u32) {
        self.threads.remove(&thread);
    }

    /// Pages whose read-ahead was forgotten for want of room; they count as hits.
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

    /// Makes room: pages that came along, and those whose thread has gone on without them.
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
            // Requests that never ended: their threads are gone.
            self.fresh.clear();
            self.spans = 0;
        }
    }
}

/// The first page of a request that was told from `first` on.
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
            // With it, the request is as long as the one before.
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
    /// Somebody else's miss, who waits for it and will look it up.
    Others,
}

fn class(who: ThreadIdentity, epoch: u32, fresh: Fresh) -> Class {
    let same_process = fresh.who.process == who.process;
    let own = fresh.who.thread == who.thread || (who.is_worker && same_process);
    // Of others only the number of look-ups is unknown; a page just come is theirs.
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
