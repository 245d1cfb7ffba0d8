//! Selection of the next operations for the store: misses and flushes first, then read-ahead and
//! the lazy writer.

use super::Cache;
use super::join::join;
use crate::clock::Nanos;
use crate::counters::{Counter, Recorder};
use crate::frames::Frames;
use crate::input::Input;
use crate::mode::FlushMode;
use crate::queue::Queue;
use crate::store::{Buffer, StoreOp, StoreOpKind};
use crate::sync::lock;
use crate::volume::{Call, Volume};

impl<F: Frames> Cache<F> {
    /// Appends the next operations for the store of `volume` to `out`, while the store has fewer
    /// than `depth` operations. Returns the latest time of the next call, if there is one. Only one
    /// thread at a time may call this for a volume.
    pub fn poll(
        &self,
        volume: &Volume<F>,
        recorder: &Recorder,
        now: Nanos,
        depth: usize,
        out: &mut Vec<StoreOp<F>>,
    ) -> Option<Nanos> {
        let _logged = self.log.add(|| Input::Poll { volume: volume.id, now, depth });
        let call = &Call { volume, recorder, now };
        let mut writer = lock(&volume.writer);
        Self::submit_exclusives(volume, now);
        let may_begin = self.regroup(volume, now);
        // Dirty pages of a broken volume are written only by a flush, after the user has given up
        // the volume.
        let is_served = volume.broken().is_none();
        let lazy = if may_begin {
            let (flushes, ranges, steals) = lock(&volume.queue).waiting_for_writes();
            if flushes {
                self.advance_flushes(call, &mut writer);
            }
            if ranges {
                self.advance_ranges(call);
            }
            if is_served {
                if steals {
                    self.steal(call);
                }
                self.write_lazily(call, &mut writer)
            } else {
                lock(&volume.queue).steals.clear();
                None
            }
        } else {
            // The completions for which the change waits trigger the next poll.
            None
        };
        // Groups advance in any case: a change of the page size may wait for them.
        let groups_next = self.advance_groups(call, &mut writer);
        let pinned = if may_begin && is_served { self.fill_pinned(call) } else { None };
        let ignores = volume.flush_mode() == FlushMode::Ignore;
        let flush =
            if ignores { Self::flush_in_ignore_mode(volume, &mut writer, now) } else { None };
        let next = lazy.into_iter().chain(groups_next).chain(pinned).chain(flush).min();
        drop(writer);
        let mut again = false;
        if may_begin && is_served {
            self.apply_drop_behind(volume);
            self.read_ahead(call);
            again = self.read_warm(call);
        }
        self.tune(call);
        let mut queue = lock(&volume.queue);
        emit(&mut queue, recorder, now, depth, out);
        let next = next.into_iter().chain(queue.reads_held_until(now)).min();
        if again { Some(now) } else { next }
    }

    /// Returns true if the volume has no unclean blocks and its store no operations.
    #[must_use]
    pub fn is_at_rest(&self, volume: &Volume<F>) -> bool {
        volume.unclean_blocks() == 0 && lock(&volume.queue).is_idle()
    }
}

/// Maximum number of consecutive reads while writes wait. Without a limit, reads that need the
/// frames of dirty pages could block the writes of these pages.
const READS_IN_ROW: u32 = 16;

/// Takes operations from the queues in the order of their classes.
fn emit<F: Frames>(
    queue: &mut Queue<F>,
    recorder: &Recorder,
    now: Nanos,
    depth: usize,
    out: &mut Vec<StoreOp<F>>,
) {
    while queue.in_flight < depth {
        let is_held = queue.reads_held_until(now).is_some();
        let writes_wait = !queue.forced.is_empty() || !queue.background.is_empty();
        let reads_first = queue.reads_in_row < READS_IN_ROW && !is_held;
        let mut ahead = false;
        let turn = if reads_first { queue.reads.pop_front() } else { None };
        let next = turn.or_else(|| queue.forced.pop_front()).or_else(|| {
            if !reads_first && let Some(op) = queue.background.pop_front() {
                return Some(op);
            }
            if is_held {
                return None;
            }
            ahead = queue.reads.is_empty();
            let read = if ahead { queue.next_ahead() } else { queue.reads.pop_front() };
            ahead &= read.is_some();
            read.or_else(|| queue.background.pop_front())
        });
        let Some(op) = next else { return };
        debug_assert!(op.kind == StoreOpKind::Flush || op.len > 0, "an operation on nothing");
        let in_row = op.kind == StoreOpKind::Read && writes_wait;
        queue.reads_in_row = if in_row { queue.reads_in_row + 1 } else { 0 };
        let op = join(queue, op);
        if ahead {
            queue.note_ahead(&op);
            recorder.add(Counter::ReadAheads, 1);
        }
        queue.start(&op);
        out.push(op);
    }
}

impl<F: Frames> Cache<F> {
    /// Discards the operations that the store of `volume` has not received, after its driver has
    /// ended: releases their frames. Dirty data is lost.
    pub fn abandon(&self, volume: &Volume<F>) {
        let _logged = self.log.add(|| Input::Abandon { volume: volume.id });
        let mut queue = lock(&volume.queue);
        let Queue { reads, forced, ahead, background, .. } = &mut *queue;
        let queues = [reads, forced, ahead, background];
        let ops: Vec<_> = queues.into_iter().flat_map(|queue| queue.drain(..)).collect();
        let overlays = queue.take_overlays();
        drop(queue);
        for segment in ops.into_iter().flat_map(|op| op.segments) {
            match segment.buffer {
                Buffer::Owned(write_pin) => self.frames.release_write_pin(write_pin),
                Buffer::Pinned(pin) => self.frames.unpin(pin),
            }
        }
        for pin in overlays {
            self.frames.unpin(pin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MILLISECOND;
    use crate::frames::PlainFrames;
    use crate::page::Paging;
    use crate::queue::Context;

    #[test]
    fn reads_wait_for_the_other_pages_of_their_request_but_not_for_long() {
        const PAGING: Paging = Paging { page_blocks: 1, blocks: 1 << 20 };
        let mut queue = Queue::<PlainFrames>::new();
        let push = |queue: &mut Queue<PlainFrames>, page: u64| {
            let bytes = page * 4096..(page + 1) * 4096;
            let context = Context::Fill { page, paging: PAGING };
            let op = queue.operation(StoreOpKind::Read, bytes, Vec::new(), context, 0);
            queue.push_read(op, false);
        };
        let emitted = |queue: &mut Queue<PlainFrames>, now| {
            let mut ops = Vec::new();
            emit(queue, &Recorder::default(), now, 32, &mut ops);
            ops.iter().map(|op| (op.offset / 4096, op.len / 4096)).collect::<Vec<_>>()
        };
        queue.gathering = 1;
        for page in [9, 5, 6] {
            push(&mut queue, page);
        }
        assert_eq!(emitted(&mut queue, 0), []);
        assert_eq!(queue.reads_held_until(0), Some(MILLISECOND / 5), "the next poll");
        for page in [10, 7] {
            push(&mut queue, page);
        }
        queue.gathering = 0;
        assert_eq!(emitted(&mut queue, 0), [(9, 2), (5, 3)], "two requests add pages in turn");
        queue.gathering = 1;
        push(&mut queue, 20);
        assert_eq!(emitted(&mut queue, MILLISECOND / 5 - 1), []);
        assert_eq!(emitted(&mut queue, MILLISECOND / 5), [(20, 1)]);
        assert_eq!(queue.reads_held_until(0), None);
    }
}
