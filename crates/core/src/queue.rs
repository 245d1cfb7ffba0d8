//! Operations of a volume for its store, in four classes: reads that clients wait for, writes that
//! clients wait for, read-ahead, and background writes; and the context of each, for its
//! completion.

mod batch;
mod exclusive;
mod warm_restart;

use crate::clock::{MILLISECOND, Nanos};
use crate::completion::CompletionQueue;
use crate::frames::Frames;
use crate::page::Paging;
use crate::policy::Slot;
use crate::readahead::PendingWindows;
use crate::store::{Segment, StoreError, StoreOp, StoreOpKind};
use crate::sync::Arc;
use crate::units::overlap;
use exclusive::ExclusiveRanges;
use slab::Slab;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use warm_restart::WarmRestartList;

pub(crate) use batch::Batch;
pub(crate) use exclusive::ExclusiveRange;

/// The reason for a write to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteCause {
    /// The lazy writer.
    Lazy,
    /// A client waits for it: flush, FUA, write-through.
    Forced,
    /// The frames of a dirty page are needed.
    Steal,
}

/// A request that waits for blocks of a page.
#[derive(Debug)]
pub(crate) struct FillWaiter<F: Frames> {
    pub(crate) completions: Arc<CompletionQueue<F>>,
    pub(crate) token: u64,
    /// The blocks of a read, and the part of the read at which they start; `None` for a write that
    /// needs the page to be resident.
    pub(crate) read: Option<(Range<u64>, u32)>,
}

/// A flush that waits.
#[derive(Debug)]
pub(crate) struct FlushWaiter<F: Frames> {
    pub(crate) completions: Arc<CompletionQueue<F>>,
    pub(crate) token: u64,
    /// Blocks that became dirty at this epoch or before must be written.
    pub(crate) epoch: u64,
}

/// A flush of a range that waits.
#[derive(Debug)]
pub(crate) struct RangeFlush<F: Frames> {
    pub(crate) completions: Arc<CompletionQueue<F>>,
    pub(crate) token: u64,
    pub(crate) blocks: Range<u64>,
    /// Blocks of the range that became dirty at this epoch or before must be written.
    pub(crate) epoch: u64,
    /// True if the store must be flushed too.
    pub(crate) stable: bool,
    /// Pages to write.
    pub(crate) batch: Batch,
}

/// A read that is part of a joined read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JoinedRead {
    pub(crate) tag: u64,
    pub(crate) len: u64,
    pub(crate) segments: usize,
    pub(crate) queued_at: Nanos,
}

/// The purpose of an operation, which determines its completion.
#[derive(Debug)]
pub(crate) enum Context<F: Frames> {
    /// Blocks of a page that is being filled.
    Fill { page: u64, paging: Paging },
    /// Several fills in one read.
    JoinedRead(Vec<JoinedRead>),
    /// Blocks for one reader only, and the data that was resident: block, frame, sectors.
    Bypass { waiter: FillWaiter<F>, overlays: Vec<(u64, F::Pin, u8)> },
    /// Dirty pages of one region, by number and slot.
    WriteBack { pages: Vec<(u64, Slot)>, paging: Paging, epoch: u64 },
    /// A flush of the store for these waiters.
    Flush(Vec<FlushWaiter<F>>),
    /// A flush of a range.
    FlushRange(RangeFlush<F>),
    /// A range that is discarded or zeroed, named by its first block.
    Exclusive { start: u64 },
}

impl<F: Frames> Context<F> {
    /// Returns the blocks of the pages of a fill or a write-back. No exclusive range that overlaps
    /// them is submitted to the store before the operation has ended.
    fn blocks(&self) -> Option<Range<u64>> {
        match self {
            Context::Fill { page, paging } => Some(paging.blocks_of(*page)),
            Context::WriteBack { pages, paging, .. } => {
                // The pages of one write are adjacent and in order.
                let (first, last) = (pages.first()?.0, pages.last()?.0);
                Some(paging.blocks_of(first).start..paging.blocks_of(last).end)
            }
            Context::JoinedRead(_)
            | Context::Bypass { .. }
            | Context::Flush(_)
            | Context::FlushRange(_)
            | Context::Exclusive { .. } => None,
        }
    }
}

fn index(tag: u64) -> usize {
    usize::try_from(tag).expect("an index")
}

/// The operations of one volume.
#[derive(Debug)]
pub(crate) struct Queue<F: Frames> {
    pub(crate) reads: VecDeque<StoreOp<F>>,
    /// Number of requests of which some pages are in `reads`, and others may still be added.
    pub(crate) gathering: usize,
    pub(crate) forced: VecDeque<StoreOp<F>>,
    /// Reads of pages that no client has requested.
    pub(crate) ahead: VecDeque<StoreOp<F>>,
    /// Such reads in the store, and the number of frames that they and the queued ones hold.
    ahead_tags: Vec<u64>,
    pub(crate) ahead_frames: usize,
    /// Windows to read ahead when there are free operations and frames.
    pub(crate) pending_windows: PendingWindows,
    /// Blocks to read for a warm restart.
    pub(crate) warm: WarmRestartList,
    /// Blocks that a sequential reader has passed; a page that is referenced after this time stays.
    pub(crate) drop_behind: Vec<(Range<u64>, Nanos)>,
    pub(crate) background: VecDeque<StoreOp<F>>,
    /// Number of consecutive reads submitted to the store while writes waited.
    pub(crate) reads_in_row: u32,
    /// By tag.
    contexts: Slab<Context<F>>,
    /// Reads that failed as parts of a joined read, to be retried separately.
    separate_reads: Vec<u64>,
    /// Operations in the store: reads, writes, all.
    pub(crate) reads_in_flight: usize,
    pub(crate) writes_in_flight: usize,
    pub(crate) in_flight: usize,
    /// Numbers of writes and exclusive ranges that have not ended, by epoch.
    changes_by_epoch: BTreeMap<u64, usize>,
    pub(crate) flushes: VecDeque<FlushWaiter<F>>,
    pub(crate) flush_in_flight: bool,
    /// Flushes of ranges whose blocks are not written yet.
    pub(crate) ranges: Vec<RangeFlush<F>>,
    /// The error of a failed flush of the store. The lost data is unknown, so every later flush
    /// fails too.
    pub(crate) flush_failed: Option<StoreError>,
    /// First blocks of dirty pages whose frames are needed.
    pub(crate) steals: Vec<u64>,
    pub(crate) exclusives: ExclusiveRanges<F>,
    pub(crate) stalled: Vec<Arc<CompletionQueue<F>>>,
}

/// Maximum time for which a read waits for the other pages of its request: a session needs
/// microseconds to add them, unless its thread loses the processor.
const GATHERING_MAX: Nanos = MILLISECOND / 5;
/// Maximum reads among which the continuation of a read is searched.
const SEARCHED_READS: usize = 32;

impl<F: Frames> Queue<F> {
    pub(crate) fn new() -> Self {
        Queue {
            reads: VecDeque::new(),
            gathering: 0,
            forced: VecDeque::new(),
            ahead: VecDeque::new(),
            ahead_tags: Vec::new(),
            ahead_frames: 0,
            pending_windows: PendingWindows::default(),
            warm: WarmRestartList::default(),
            drop_behind: Vec::new(),
            background: VecDeque::new(),
            reads_in_row: 0,
            contexts: Slab::new(),
            separate_reads: Vec::new(),
            reads_in_flight: 0,
            writes_in_flight: 0,
            in_flight: 0,
            changes_by_epoch: BTreeMap::new(),
            flushes: VecDeque::new(),
            flush_in_flight: false,
            ranges: Vec::new(),
            flush_failed: None,
            steals: Vec::new(),
            exclusives: ExclusiveRanges::new(),
            stalled: Vec::new(),
        }
    }

    /// Creates an operation and keeps its context.
    pub(crate) fn operation(
        &mut self,
        kind: StoreOpKind,
        range: Range<u64>,
        segments: Vec<Segment<F>>,
        context: Context<F>,
        now: Nanos,
    ) -> StoreOp<F> {
        debug_assert!(
            context.blocks().is_none_or(|blocks| !self.is_exclusive(&blocks)),
            "{context:?} begins in an exclusive range"
        );
        if let Context::WriteBack { epoch, .. } = context {
            *self.changes_by_epoch.entry(epoch).or_default() += 1;
        }
        let tag = self.contexts.insert(context) as u64;
        let len = range.end - range.start;
        StoreOp { tag, kind, offset: range.start, len, segments, queued_at: now }
    }

    /// Returns the context of a completed operation.
    pub(crate) fn finish(&mut self, op: &StoreOp<F>) -> Context<F> {
        let context = self.take_context(op.tag);
        self.in_flight -= 1;
        if let Some(at) = self.ahead_tags.iter().position(|&tag| tag == op.tag) {
            self.ahead_tags.swap_remove(at);
            self.ahead_frames -= op.segments.len();
        }
        match op.kind {
            StoreOpKind::Read => self.reads_in_flight -= 1,
            StoreOpKind::Write { .. } => self.writes_in_flight -= 1,
            _ => {}
        }
        context
    }

    /// Returns the context of a completed operation, or of a completed part of one.
    pub(crate) fn take_context(&mut self, tag: u64) -> Context<F> {
        self.separate_reads.retain(|&other| other != tag);
        let context = self.contexts.try_remove(index(tag)).expect("an operation is done once");
        if let Some(blocks) = context.blocks() {
            self.exclusives.end_operation(&blocks);
        }
        context
    }

    /// Returns true if a read may be joined with adjacent ones.
    pub(crate) fn may_join(&self, op: &StoreOp<F>) -> bool {
        let context = self.contexts.get(index(op.tag));
        matches!(context, Some(Context::Fill { .. })) && !self.separate_reads.contains(&op.tag)
    }

    /// Queues the parts of a joined read again as separate reads.
    pub(crate) fn requeue_separately(&mut self, ops: Vec<StoreOp<F>>) {
        for op in ops.into_iter().rev() {
            self.separate_reads.push(op.tag);
            self.reads.push_front(op);
        }
    }

    /// Queues a read of a page, for a client or as read-ahead.
    pub(crate) fn push_read(&mut self, op: StoreOp<F>, ahead: bool) {
        if ahead {
            self.ahead_frames += op.segments.len();
            self.ahead.push_back(op);
        } else {
            self.reads.push_back(op);
        }
    }

    /// Returns the time until which the first read waits for further pages of a request, at most
    /// [`GATHERING_MAX`]; `None` if it does not wait.
    pub(crate) fn reads_held_until(&self, now: Nanos) -> Option<Nanos> {
        let first = self.reads.front().filter(|_| self.gathering > 0)?;
        Some(first.queued_at + GATHERING_MAX).filter(|&end| now < end)
    }

    /// Takes a read of at most `len_max` bytes that begins at this byte and may be joined: one of
    /// the first that clients wait for, since several requests may have added their pages in turn,
    /// or the first of read-ahead.
    pub(crate) fn take_adjacent(&mut self, offset: u64, len_max: u64) -> Option<StoreOp<F>> {
        let fits = |op: &StoreOp<F>| op.offset == offset && op.len <= len_max && self.may_join(op);
        match self.reads.iter().take(SEARCHED_READS).position(fits) {
            Some(at) => self.reads.remove(at),
            None if self.ahead.front().is_some_and(fits) => self.next_ahead(),
            None => None,
        }
    }

    /// Moves queued read-ahead of pages that overlap `blocks` to the reads that clients wait for.
    pub(crate) fn promote(&mut self, blocks: &Range<u64>) {
        let Queue { ahead, ahead_frames, reads, contexts, .. } = self;
        let is_of_page = |op: &mut StoreOp<F>| {
            let context = contexts.get(index(op.tag));
            let Some(Context::Fill { page, paging }) = context else { return false };
            overlap(&paging.blocks_of(*page), blocks)
        };
        let mut at = 0;
        while at < ahead.len() {
            if is_of_page(&mut ahead[at]) {
                let op = ahead.remove(at).expect("below the length");
                *ahead_frames -= op.segments.len();
                reads.push_back(op);
            } else {
                at += 1;
            }
        }
    }

    /// Takes the first read-ahead operation, which the caller submits to the store alone or joined
    /// with others.
    pub(crate) fn next_ahead(&mut self) -> Option<StoreOp<F>> {
        let op = self.ahead.pop_front()?;
        self.ahead_frames -= op.segments.len();
        Some(op)
    }

    /// Counts an operation as read-ahead until it completes.
    pub(crate) fn note_ahead(&mut self, op: &StoreOp<F>) {
        self.ahead_tags.push(op.tag);
        self.ahead_frames += op.segments.len();
    }

    /// Returns the number of read-ahead operations in the store.
    pub(crate) fn ahead_in_flight(&self) -> usize {
        self.ahead_tags.len()
    }

    /// Returns true if a client waits for a read.
    pub(crate) fn has_waiting_reads(&self) -> bool {
        !self.reads.is_empty() || self.reads_in_flight > self.ahead_tags.len()
    }

    /// Returns three flags: flushes, flushes of ranges, and requests for frames of dirty pages wait
    /// for writes to the store.
    pub(crate) fn waiting_for_writes(&self) -> (bool, bool, bool) {
        (!self.flushes.is_empty(), !self.ranges.is_empty(), !self.steals.is_empty())
    }

    /// Returns the number of forced writes in the queue plus all writes in the store.
    pub(crate) fn writes_started(&self) -> usize {
        self.forced.len() + self.writes_in_flight
    }

    /// Counts an operation as submitted to the store.
    pub(crate) fn start(&mut self, op: &StoreOp<F>) {
        self.in_flight += 1;
        match op.kind {
            StoreOpKind::Read => self.reads_in_flight += 1,
            StoreOpKind::Write { .. } => self.writes_in_flight += 1,
            _ => {}
        }
    }

    /// Records the end of a write of `epoch`, with its pages, or of an exclusive range.
    pub(crate) fn end_change(&mut self, epoch: u64) {
        let count = self.changes_by_epoch.get_mut(&epoch).expect("a change of this epoch");
        *count -= 1;
        if *count == 0 {
            self.changes_by_epoch.remove(&epoch);
        }
    }

    /// Returns whether a write or an exclusive range of `epoch` or before has not ended.
    pub(crate) fn has_changes_up_to(&self, epoch: u64) -> bool {
        self.changes_by_epoch.first_key_value().is_some_and(|(&first, _)| first <= epoch)
    }

    /// Adds a range to discard or zero, which must not overlap another one. It is ready for the
    /// store when the fills and write-backs in progress in it have ended.
    pub(crate) fn add_exclusive(&mut self, range: ExclusiveRange<F>) {
        let under_way = self.count_outstanding(&range.blocks);
        if under_way > 0 {
            // A client waits for the end of the read-ahead in the range.
            self.promote(&range.blocks);
        }
        *self.changes_by_epoch.entry(range.epoch).or_default() += 1;
        self.exclusives.insert(range, under_way);
    }

    /// Removes the range that starts at `start`; the store has discarded or zeroed it, or failed
    /// to.
    pub(crate) fn remove_exclusive(&mut self, start: u64) -> ExclusiveRange<F> {
        let range = self.exclusives.remove(start);
        self.end_change(range.epoch);
        range
    }

    /// Returns whether a range that is discarded or zeroed overlaps `blocks`.
    pub(crate) fn is_exclusive(&self, blocks: &Range<u64>) -> bool {
        self.exclusives.overlaps(blocks)
    }

    /// Counts the fills and write-backs, queued or in flight, of pages that overlap `blocks`. It
    /// visits all operations, so it runs once for each range, when the range is added.
    fn count_outstanding(&self, blocks: &Range<u64>) -> usize {
        let ranges = self.contexts.iter().filter_map(|(_, context)| context.blocks());
        ranges.filter(|range| overlap(range, blocks)).count()
    }

    /// Asserts the invariants of exclusive ranges; for tests.
    pub(crate) fn check(&self) {
        let submitted = self.contexts.iter().filter_map(|(_, context)| match context {
            Context::Exclusive { start } => Some(*start),
            _ => None,
        });
        let submitted: Vec<_> = submitted.collect();
        self.exclusives.check(|blocks| self.count_outstanding(blocks), &submitted);
    }

    /// Returns true if a write-back of `epoch` or before of a page that overlaps `blocks` is queued
    /// or in flight.
    pub(crate) fn has_writes_in(&self, blocks: &Range<u64>, epoch: u64) -> bool {
        self.contexts.iter().any(|(_, context)| match context {
            Context::WriteBack { epoch: write_epoch, .. } => {
                *write_epoch <= epoch
                    && context.blocks().is_some_and(|range| overlap(&range, blocks))
            }
            _ => false,
        })
    }

    /// Returns the pages with a write to the store queued or in flight.
    pub(crate) fn pages_under_writeback(&self) -> Vec<u64> {
        let pages = self.contexts.iter().filter_map(|(_, context)| match context {
            Context::WriteBack { pages, .. } => Some(pages),
            _ => None,
        });
        pages.flatten().map(|&(page, _)| page).collect()
    }

    /// Takes the pins of bypasses that will not complete, because the driver of the store has
    /// ended.
    pub(crate) fn take_overlays(&mut self) -> Vec<F::Pin> {
        let overlays = self.contexts.iter_mut().filter_map(|(_, context)| match context {
            Context::Bypass { overlays, .. } => Some(std::mem::take(overlays)),
            _ => None,
        });
        overlays.flatten().map(|(_, pin, _)| pin).collect()
    }

    /// Adds a handle to those that a release of resources wakes.
    pub(crate) fn stall(&mut self, completions: &Arc<CompletionQueue<F>>) {
        if !self.stalled.iter().any(|other| Arc::ptr_eq(other, completions)) {
            self.stalled.push(Arc::clone(completions));
        }
    }

    /// Returns true if no operation is queued or in flight, and no request waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0
            && self.reads.is_empty()
            && self.ahead.is_empty()
            && self.forced.is_empty()
            && self.background.is_empty()
            && self.flushes.is_empty()
            && self.ranges.is_empty()
            && self.exclusives.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::completion::NoWaker;
    use crate::frames::PlainFrames;

    const PAGING: Paging = Paging { page_blocks: 4, blocks: 64 };

    #[test]
    fn a_range_waits_only_for_writes_of_its_own_blocks_and_time() {
        let mut queue = Queue::<PlainFrames>::new();
        let context = Context::WriteBack { pages: vec![(2, 0), (3, 1)], paging: PAGING, epoch: 5 };
        let kind = StoreOpKind::Write { fua: false };
        let op = queue.operation(kind, 8..16, Vec::new(), context, 0);
        for blocks in [8..9, 15..16, 0..64, 4..9, 15..20] {
            assert!(queue.has_writes_in(&blocks, 5), "{blocks:?} overlaps pages 2 and 3");
            assert!(queue.has_writes_in(&blocks, 6), "{blocks:?}: the write is older");
            assert!(!queue.has_writes_in(&blocks, 4), "{blocks:?}: the write is younger");
        }
        for blocks in [0..8, 16..20] {
            assert!(!queue.has_writes_in(&blocks, 5), "{blocks:?} does not overlap pages 2 and 3");
        }
        queue.start(&op);
        queue.finish(&op);
        assert!(!queue.has_writes_in(&(8..16), 5), "the write is done");
    }

    type Operation = StoreOp<PlainFrames>;

    fn write_back(queue: &mut Queue<PlainFrames>, pages: Range<u64>) -> Operation {
        let bytes = pages.start * 16384..pages.end * 16384;
        let context =
            Context::WriteBack { pages: pages.zip(0..).collect(), paging: PAGING, epoch: 1 };
        queue.operation(StoreOpKind::Write { fua: false }, bytes, Vec::new(), context, 0)
    }

    fn fill(queue: &mut Queue<PlainFrames>, page: u64) -> Operation {
        let bytes = page * 16384..(page + 1) * 16384;
        let context = Context::Fill { page, paging: PAGING };
        queue.operation(StoreOpKind::Read, bytes, Vec::new(), context, 0)
    }

    fn discard_or_zero(queue: &mut Queue<PlainFrames>, blocks: Range<u64>, epoch: u64) {
        let completions = Arc::new(CompletionQueue::new(Box::new(NoWaker), 0));
        let kind = StoreOpKind::Discard;
        queue.add_exclusive(ExclusiveRange { blocks, kind, epoch, completions, token: 0 });
        queue.check();
    }

    fn end(queue: &mut Queue<PlainFrames>, op: &Operation) {
        queue.start(op);
        queue.finish(op);
    }

    /// Takes the ranges that are ready, and creates their operations as a poll does.
    fn submit_ready(queue: &mut Queue<PlainFrames>) -> Vec<u64> {
        let ready = queue.exclusives.take_ready();
        for &start in &ready {
            let context = Context::Exclusive { start };
            queue.operation(StoreOpKind::Discard, 0..1, Vec::new(), context, 0);
        }
        queue.check();
        ready
    }

    #[test]
    fn a_poll_visits_ranges_that_became_ready_and_none_that_wait() {
        let mut queue = Queue::<PlainFrames>::new();
        let writes = [write_back(&mut queue, 0..8), write_back(&mut queue, 8..16)];
        for block in 0..64 {
            discard_or_zero(&mut queue, block..block + 1, 1);
        }
        for _ in 0..3 {
            assert_eq!(submit_ready(&mut queue), [], "64 ranges wait for two writes");
        }
        end(&mut queue, &writes[1]);
        let mut ready = submit_ready(&mut queue);
        ready.sort_unstable();
        assert_eq!(ready, (32..64).collect::<Vec<_>>());
        assert_eq!(submit_ready(&mut queue), [], "they have been submitted");
        end(&mut queue, &writes[0]);
        assert_eq!(submit_ready(&mut queue).len(), 32);
    }

    #[test]
    fn a_range_waits_for_each_operation_of_its_pages_and_no_other() {
        let mut queue = Queue::<PlainFrames>::new();
        let [first, again, other] = [2, 2, 5].map(|page| fill(&mut queue, page));
        let write = write_back(&mut queue, 3..5);
        discard_or_zero(&mut queue, 11..13, 1);
        discard_or_zero(&mut queue, 24..64, 1);
        assert_eq!(submit_ready(&mut queue), [24], "nothing is under way there");
        for op in [&write, &other, &first] {
            end(&mut queue, op);
            assert_eq!(submit_ready(&mut queue), [], "another fill of page 2 is under way");
        }
        end(&mut queue, &again);
        assert_eq!(submit_ready(&mut queue), [11]);
    }

    #[test]
    fn a_range_waits_for_the_parts_of_a_joined_read() {
        let mut queue = Queue::<PlainFrames>::new();
        let parts = [fill(&mut queue, 0), fill(&mut queue, 1)];
        let joined =
            |op: &Operation| JoinedRead { tag: op.tag, len: op.len, segments: 0, queued_at: 0 };
        let context = Context::JoinedRead(parts.iter().map(joined).collect());
        let op = queue.operation(StoreOpKind::Read, 0..32768, Vec::new(), context, 0);
        discard_or_zero(&mut queue, 2..6, 1);
        end(&mut queue, &op);
        let [first, second] = parts;
        queue.take_context(first.tag);
        // The other one is retried as a separate read.
        queue.requeue_separately(vec![second]);
        assert_eq!(submit_ready(&mut queue), []);
        let second = queue.reads.pop_front().expect("queued again");
        end(&mut queue, &second);
        assert_eq!(submit_ready(&mut queue), [2]);
    }

    #[test]
    fn a_range_moves_reads_ahead_of_its_pages_to_the_reads() {
        let mut queue = Queue::<PlainFrames>::new();
        for page in 0..3 {
            let op = fill(&mut queue, page);
            queue.push_read(op, true);
        }
        discard_or_zero(&mut queue, 5..6, 1);
        assert_eq!(queue.reads.iter().map(|op| op.offset).collect::<Vec<_>>(), [16384]);
        assert_eq!(queue.ahead.len(), 2);
    }

    #[test]
    fn a_flush_waits_for_ranges_of_its_epoch_and_before() {
        let mut queue = Queue::<PlainFrames>::new();
        discard_or_zero(&mut queue, 0..1, 3);
        discard_or_zero(&mut queue, 1..2, 3);
        discard_or_zero(&mut queue, 2..3, 5);
        assert!(!queue.has_changes_up_to(2) && queue.has_changes_up_to(3));
        queue.remove_exclusive(0);
        assert!(queue.has_changes_up_to(3));
        queue.remove_exclusive(1);
        assert!(!queue.has_changes_up_to(4) && queue.has_changes_up_to(5));
    }

    #[test]
    #[should_panic(expected = "begins in an exclusive range")]
    #[cfg(debug_assertions)]
    fn a_fill_in_an_exclusive_range_is_an_error() {
        let mut queue = Queue::<PlainFrames>::new();
        discard_or_zero(&mut queue, 5..6, 1);
        fill(&mut queue, 1);
    }
}
