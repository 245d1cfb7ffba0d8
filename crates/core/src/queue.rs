//! What a volume wants of its store, in four classes: reads that clients wait for, writes that
//! clients wait for, reads ahead, and background writes; and what to do when each is done.

mod warm;

use crate::clock::Nanos;
use crate::frames::Frames;
use crate::lane::Mailbox;
use crate::page::Paging;
use crate::policy::Slot;
use crate::readahead::Wishes;
use crate::store::{Segment, StoreError, StoreOp, StoreOpKind};
use crate::sync::Arc;
use crate::writeback::Batch;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use warm::ToWarm;

/// Why a write goes to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The lazy writer.
    Lazy,
    /// A client waits: flush, FUA, write-through.
    Forced,
    /// The room of a dirty page is wanted.
    Steal,
}

/// Who waits for blocks of a page.
#[derive(Debug)]
pub(crate) struct FillWaiter<F: Frames> {
    pub(crate) mailbox: Arc<Mailbox<F>>,
    pub(crate) token: u64,
    /// The blocks of a read and the part of its assembly that they start at; none for a write that
    /// only wants the page to be there.
    pub(crate) read: Option<(Range<u64>, u32)>,
}

/// Who waits for a flush.
#[derive(Debug)]
pub(crate) struct FlushWaiter<F: Frames> {
    pub(crate) mailbox: Arc<Mailbox<F>>,
    pub(crate) token: u64,
    /// What became dirty at this epoch or before must be written.
    pub(crate) epoch: u64,
}

/// Who waits for a flush of a range.
#[derive(Debug)]
pub(crate) struct RangeFlush<F: Frames> {
    pub(crate) mailbox: Arc<Mailbox<F>>,
    pub(crate) token: u64,
    pub(crate) blocks: Range<u64>,
    /// What became dirty there at this epoch or before must be written.
    pub(crate) epoch: u64,
    /// Whether the store must flush it too.
    pub(crate) stable: bool,
    /// Pages that are to be written.
    pub(crate) batch: Batch,
}

/// A read that is part of a joined one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined {
    pub(crate) tag: u64,
    pub(crate) len: u64,
    pub(crate) segments: usize,
    pub(crate) queued_at: Nanos,
}

/// What to do when an operation is done.
#[derive(Debug)]
pub(crate) enum Context<F: Frames> {
    /// Blocks of a page that is being filled.
    Fill { page: u64, paging: Paging },
    /// Several fills in one read.
    Joined(Vec<Joined>),
    /// Blocks that go to one reader only, and what was resident of them: block, frame, sectors.
    Bypass { waiter: FillWaiter<F>, overlays: Vec<(u64, F::Pin, u8)> },
    /// Dirty pages, all of one region, named by number and slot.
    WriteBack { pages: Vec<(u64, Slot)>, paging: Paging, epoch: u64 },
    /// A flush of the store for these waiters.
    Flush(Vec<FlushWaiter<F>>),
    /// A flush of a range.
    FlushRange(RangeFlush<F>),
    /// A range that is discarded or zeroed.
    Exclusive { id: u64 },
}

/// A range that is being discarded or zeroed: nothing of it is filled, written back or written to
/// meanwhile, and what is resident stays until the store has done it.
#[derive(Debug)]
pub(crate) struct Exclusive<F: Frames> {
    pub(crate) id: u64,
    pub(crate) blocks: Range<u64>,
    pub(crate) kind: StoreOpKind,
    pub(crate) epoch: u64,
    pub(crate) submitted: bool,
    pub(crate) mailbox: Arc<Mailbox<F>>,
    pub(crate) token: u64,
}

/// The operations of one volume.
#[derive(Debug)]
pub(crate) struct Queue<F: Frames> {
    pub(crate) reads: VecDeque<StoreOp<F>>,
    pub(crate) forced: VecDeque<StoreOp<F>>,
    /// Reads of pages that nobody has asked for.
    pub(crate) ahead: VecDeque<StoreOp<F>>,
    /// Such reads in the store, and the frames that they and the queued ones hold.
    ahead_tags: Vec<u64>,
    pub(crate) ahead_frames: usize,
    /// What is to be read ahead when there is room for it.
    pub(crate) wishes: Wishes,
    /// Blocks to be read back after a restart.
    pub(crate) warm: ToWarm,
    /// Blocks that a reader in order has passed; what is touched after this time stays.
    pub(crate) behind: Vec<(Range<u64>, Nanos)>,
    pub(crate) background: VecDeque<StoreOp<F>>,
    /// Reads given to the store in a row while writes waited.
    pub(crate) reads_in_row: u32,
    contexts: Vec<Option<Context<F>>>,
    free_tags: Vec<u64>,
    /// Reads that failed together with others, to be tried alone.
    alone: Vec<u64>,
    /// In the store: reads, writes, all.
    pub(crate) reads_in_flight: usize,
    pub(crate) writes_in_flight: usize,
    pub(crate) in_flight: usize,
    /// Writes queued or in flight, by epoch.
    writes_by_epoch: BTreeMap<u64, usize>,
    pub(crate) flushes: VecDeque<FlushWaiter<F>>,
    pub(crate) flush_in_flight: bool,
    /// Flushes of ranges that are not written yet.
    pub(crate) ranges: Vec<RangeFlush<F>>,
    /// A failed flush of the store: what it lost is not known, so every later flush fails too.
    pub(crate) flush_failed: Option<StoreError>,
    /// First blocks of dirty pages whose room is wanted.
    pub(crate) steals: Vec<u64>,
    pub(crate) exclusives: Vec<Exclusive<F>>,
    next_exclusive: u64,
    pub(crate) stalled: Vec<Arc<Mailbox<F>>>,
}

impl<F: Frames> Queue<F> {
    pub(crate) fn new() -> Self {
        Queue {
            reads: VecDeque::new(),
            forced: VecDeque::new(),
            ahead: VecDeque::new(),
            ahead_tags: Vec::new(),
            ahead_frames: 0,
            wishes: Wishes::default(),
            warm: ToWarm::default(),
            behind: Vec::new(),
            background: VecDeque::new(),
            reads_in_row: 0,
            contexts: Vec::new(),
            free_tags: Vec::new(),
            alone: Vec::new(),
            reads_in_flight: 0,
            writes_in_flight: 0,
            in_flight: 0,
            writes_by_epoch: BTreeMap::new(),
            flushes: VecDeque::new(),
            flush_in_flight: false,
            ranges: Vec::new(),
            flush_failed: None,
            steals: Vec::new(),
            exclusives: Vec::new(),
            next_exclusive: 0,
            stalled: Vec::new(),
        }
    }

    /// Makes an operation and remembers what to do when it is done.
    pub(crate) fn operation(
        &mut self,
        kind: StoreOpKind,
        range: Range<u64>,
        segments: Vec<Segment<F>>,
        context: Context<F>,
        now: Nanos,
    ) -> StoreOp<F> {
        if let Context::WriteBack { epoch, .. } = context {
            *self.writes_by_epoch.entry(epoch).or_default() += 1;
        }
        let tag = self.free_tags.pop().unwrap_or_else(|| {
            self.contexts.push(None);
            self.contexts.len() as u64 - 1
        });
        self.contexts[usize::try_from(tag).expect("an index")] = Some(context);
        let len = range.end - range.start;
        StoreOp { tag, kind, offset: range.start, len, segments, queued_at: now }
    }

    /// The context of an operation that is done.
    pub(crate) fn finish(&mut self, op: &StoreOp<F>) -> Context<F> {
        let context = self.take_context(op.tag);
        self.in_flight -= 1;
        if let Some(index) = self.ahead_tags.iter().position(|&tag| tag == op.tag) {
            self.ahead_tags.swap_remove(index);
            self.ahead_frames -= op.segments.len();
        }
        match op.kind {
            StoreOpKind::Read => self.reads_in_flight -= 1,
            StoreOpKind::Write { .. } => self.writes_in_flight -= 1,
            _ => {}
        }
        context
    }

    /// The context of an operation, or of a part of one, that is done.
    pub(crate) fn take_context(&mut self, tag: u64) -> Context<F> {
        let index = usize::try_from(tag).expect("an index");
        self.free_tags.push(tag);
        self.alone.retain(|&other| other != tag);
        self.contexts[index].take().expect("an operation is done once")
    }

    /// Whether a read may be joined with its neighbours.
    pub(crate) fn may_join(&self, op: &StoreOp<F>) -> bool {
        let context = &self.contexts[usize::try_from(op.tag).expect("an index")];
        matches!(context, Some(Context::Fill { .. })) && !self.alone.contains(&op.tag)
    }

    /// Queues the parts of a joined read again, each for itself.
    pub(crate) fn read_alone(&mut self, ops: Vec<StoreOp<F>>) {
        for op in ops.into_iter().rev() {
            self.alone.push(op.tag);
            self.reads.push_front(op);
        }
    }

    /// Queues a read of a page: for a client, or ahead of all.
    pub(crate) fn push_read(&mut self, op: StoreOp<F>, ahead: bool) {
        if ahead {
            self.ahead_frames += op.segments.len();
            self.ahead.push_back(op);
        } else {
            self.reads.push_back(op);
        }
    }

    /// Moves reads ahead of pages that meet `blocks` to those that clients wait for, as far as they
    /// are queued.
    pub(crate) fn promote(&mut self, blocks: &Range<u64>) {
        let Queue { ahead, ahead_frames, reads, contexts, .. } = self;
        let is_of_page = |op: &mut StoreOp<F>| {
            let context = &contexts[usize::try_from(op.tag).expect("an index")];
            let Some(Context::Fill { page, paging }) = context else { return false };
            let own = paging.blocks_of(*page);
            own.start < blocks.end && blocks.start < own.end
        };
        let mut index = 0;
        while index < ahead.len() {
            if is_of_page(&mut ahead[index]) {
                let op = ahead.remove(index).expect("below the length");
                *ahead_frames -= op.segments.len();
                reads.push_back(op);
            } else {
                index += 1;
            }
        }
    }

    /// Takes the first read ahead, which is about to go to the store alone or with others.
    pub(crate) fn next_ahead(&mut self) -> Option<StoreOp<F>> {
        let op = self.ahead.pop_front()?;
        self.ahead_frames -= op.segments.len();
        Some(op)
    }

    /// Counts an operation as one of read-ahead until it is done.
    pub(crate) fn note_ahead(&mut self, op: &StoreOp<F>) {
        self.ahead_tags.push(op.tag);
        self.ahead_frames += op.segments.len();
    }

    /// Reads ahead that the store has.
    pub(crate) fn ahead_in_flight(&self) -> usize {
        self.ahead_tags.len()
    }

    /// Whether a client waits for a read.
    pub(crate) fn clients_wait(&self) -> bool {
        !self.reads.is_empty() || self.reads_in_flight > self.ahead_tags.len()
    }

    /// Writes that do not wait for the lazy writer, and those that the store has.
    pub(crate) fn writes_started(&self) -> usize {
        self.forced.len() + self.writes_in_flight
    }

    /// Counts an operation as given to the store.
    pub(crate) fn start(&mut self, op: &StoreOp<F>) {
        self.in_flight += 1;
        match op.kind {
            StoreOpKind::Read => self.reads_in_flight += 1,
            StoreOpKind::Write { .. } => self.writes_in_flight += 1,
            _ => {}
        }
    }

    /// A write of `epoch` has come to its end, its pages included.
    pub(crate) fn write_ended(&mut self, epoch: u64) {
        let count = self.writes_by_epoch.get_mut(&epoch).expect("a write of this epoch");
        *count -= 1;
        if *count == 0 {
            self.writes_by_epoch.remove(&epoch);
        }
    }

    /// Whether a write or an exclusive range of `epoch` or before has not come to its end.
    pub(crate) fn has_writes_up_to(&self, epoch: u64) -> bool {
        self.writes_by_epoch.first_key_value().is_some_and(|(&first, _)| first <= epoch)
            || self.exclusives.iter().any(|exclusive| exclusive.epoch <= epoch)
    }

    pub(crate) fn next_exclusive(&mut self) -> u64 {
        self.next_exclusive += 1;
        self.next_exclusive
    }

    /// Whether `blocks` meet a range that is being discarded or zeroed.
    pub(crate) fn is_exclusive(&self, blocks: &Range<u64>) -> bool {
        self.exclusives.iter().any(|exclusive| {
            exclusive.blocks.start < blocks.end && blocks.start < exclusive.blocks.end
        })
    }

    /// Whether a fill or a write back of a page that meets `blocks` is queued or in flight.
    pub(crate) fn is_under_way(&self, blocks: &Range<u64>) -> bool {
        let meets = |page: u64, paging: Paging| {
            let own = paging.blocks_of(page);
            own.start < blocks.end && blocks.start < own.end
        };
        self.contexts.iter().flatten().any(|context| match context {
            Context::Fill { page, paging } => meets(*page, *paging),
            Context::WriteBack { pages, paging, .. } => {
                pages.iter().any(|&(page, _)| meets(page, *paging))
            }
            Context::Joined(_)
            | Context::Bypass { .. }
            | Context::Flush(_)
            | Context::FlushRange(_)
            | Context::Exclusive { .. } => false,
        })
    }

    /// Whether a write back of `epoch` or before of a page that meets `blocks` is queued or in
    /// flight.
    pub(crate) fn has_writes_in(&self, blocks: &Range<u64>, epoch: u64) -> bool {
        self.contexts.iter().flatten().any(|context| match context {
            Context::WriteBack { pages, paging, epoch: of } => {
                let meets = |&(page, _): &(u64, Slot)| {
                    let own = paging.blocks_of(page);
                    own.start < blocks.end && blocks.start < own.end
                };
                *of <= epoch && pages.iter().any(meets)
            }
            _ => false,
        })
    }

    /// Pages with a write to the store queued or in flight.
    pub(crate) fn pages_in_rounds(&self) -> Vec<u64> {
        let pages = self.contexts.iter().flatten().filter_map(|context| match context {
            Context::WriteBack { pages, .. } => Some(pages),
            _ => None,
        });
        pages.flatten().map(|&(page, _)| page).collect()
    }

    /// Takes out what bypasses hold, when nobody will finish them.
    pub(crate) fn take_overlays(&mut self) -> Vec<F::Pin> {
        let overlays = self.contexts.iter_mut().flatten().filter_map(|context| match context {
            Context::Bypass { overlays, .. } => Some(std::mem::take(overlays)),
            _ => None,
        });
        overlays.flatten().map(|(_, pin, _)| pin).collect()
    }

    /// Notes that a lane waits for room.
    pub(crate) fn stall(&mut self, mailbox: &Arc<Mailbox<F>>) {
        if !self.stalled.iter().any(|other| Arc::ptr_eq(other, mailbox)) {
            self.stalled.push(Arc::clone(mailbox));
        }
    }

    /// Whether nothing is queued, in flight or waited for.
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
}
