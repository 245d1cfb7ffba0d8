//! Joining: fills of adjacent pages become one read of the store.
//!
//! A large request over small pages misses page by page. Its reads are adjacent in the queue and go
//! to the store as one. Read-ahead is joined in the same way, also with a read that a client waits
//! for. If a joined read fails, its parts are retried separately: a bad sector of one page must not
//! fail its neighbors. Parts for which no client waits are not retried.

use super::Cache;
use crate::frames::Frames;
use crate::queue::{Context, JoinedRead, Queue};
use crate::store::{StoreError, StoreOp, StoreOpKind};
use crate::sync::lock;
use crate::units::{BLOCK_BYTES_U64, PAGE_BLOCKS_MAX, SEGMENT_BYTES};
use crate::volume::Call;

/// Maximum size of a joined read.
const JOINED_BYTES_MAX: u64 = PAGE_BLOCKS_MAX as u64 * BLOCK_BYTES_U64;

/// Joins `first` with the adjacent reads that follow it in the queue.
pub(super) fn join<F: Frames>(queue: &mut Queue<F>, first: StoreOp<F>) -> StoreOp<F> {
    if !queue.may_join(&first) {
        return first;
    }
    let mut ops = vec![first];
    let mut end = ops[0].offset + ops[0].len;
    loop {
        let is_ahead = queue.reads.front().is_none_or(|next| next.offset != end);
        let front = if is_ahead { queue.ahead.front() } else { queue.reads.front() };
        let Some(next) = front else { break };
        // The distance is known to be positive only for adjacent reads. Each segment is another
        // file.
        let fits = next.offset == end
            && !end.is_multiple_of(SEGMENT_BYTES)
            && end + next.len - ops[0].offset <= JOINED_BYTES_MAX;
        if !fits || !queue.may_join(next) {
            break;
        }
        end += next.len;
        ops.extend(if is_ahead { queue.next_ahead() } else { queue.reads.pop_front() });
    }
    if ops.len() == 1 {
        return ops.swap_remove(0);
    }
    let (start, queued_at) = (ops[0].offset, ops[0].queued_at);
    let mut parts = Vec::with_capacity(ops.len());
    let mut segments = Vec::new();
    for op in ops {
        let queued_at = op.queued_at;
        parts.push(JoinedRead { tag: op.tag, len: op.len, segments: op.segments.len(), queued_at });
        segments.extend(op.segments);
    }
    let context = Context::JoinedRead(parts);
    queue.operation(StoreOpKind::Read, start..end, segments, context, queued_at)
}

impl<F: Frames> Cache<F> {
    /// Splits a completed joined read into its parts.
    pub(super) fn split_joined_read(
        &self,
        call: &Call<'_, F>,
        (op, parts): (StoreOp<F>, Vec<JoinedRead>),
        error: Option<&StoreError>,
    ) {
        let Call { volume, .. } = *call;
        let mut offset = op.offset;
        let mut segments = op.segments.into_iter();
        let mut again = Vec::new();
        for JoinedRead { tag, len, segments: count, queued_at } in parts {
            let segments = segments.by_ref().take(count).collect();
            let op = StoreOp { tag, kind: StoreOpKind::Read, offset, len, segments, queued_at };
            offset += len;
            if error.is_some() {
                again.push(op);
                continue;
            }
            let Context::Fill { page, .. } = lock(&volume.queue).take_context(tag) else {
                unreachable!("only fills are joined")
            };
            self.filled(call, (op, page), None);
        }
        if let Some(error) = error {
            again = self.give_up_ahead(call, again, error);
        }
        lock(&volume.queue).requeue_separately(again);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::PlainFrames;
    use crate::page::Paging;

    #[test]
    fn neighbors_are_joined_but_not_across_segments() {
        const PAGING: Paging = Paging { page_blocks: 4, blocks: 1 << 20 };
        let joined = |first: u64| {
            let mut queue = Queue::<PlainFrames>::new();
            for page in first..first + 2 {
                let bytes = page * 16384..(page + 1) * 16384;
                let context = Context::Fill { page, paging: PAGING };
                let op = queue.operation(StoreOpKind::Read, bytes, Vec::new(), context, 0);
                queue.push_read(op, false);
            }
            let op = queue.reads.pop_front().expect("the first of two");
            (join(&mut queue, op).len, queue.reads.len())
        };
        assert_eq!(joined(5), (32768, 0));
        assert_eq!(joined(SEGMENT_BYTES / 16384 - 1), (16384, 1));
        assert_eq!(joined(SEGMENT_BYTES / 16384), (32768, 0));
    }
}
