//! Joining: fills of adjacent pages become one read of the store.
//!
//! A large request over small pages misses page by page. Its reads are adjacent and go to the store
//! as one, also if other requests have queued reads between them. Read-ahead is joined in the same
//! way, also with a read that a client waits for. If a joined read fails, its parts are retried
//! separately: a bad sector of one page must not fail its neighbors. Parts for which no client
//! waits are not retried.

use super::Cache;
use crate::frames::Frames;
use crate::queue::{Context, JoinedRead, Queue};
use crate::store::{StoreError, StoreOp, StoreOpKind};
use crate::sync::lock;
use crate::units::{BLOCK_BYTES_U64, PAGE_BLOCKS_MAX, SEGMENT_BYTES};
use crate::volume::Call;

/// Maximum size of a joined read.
const JOINED_BYTES_MAX: u64 = PAGE_BLOCKS_MAX as u64 * BLOCK_BYTES_U64;

/// Joins `first` with the adjacent reads that continue it.
pub(super) fn join<F: Frames>(queue: &mut Queue<F>, first: StoreOp<F>) -> StoreOp<F> {
    if !queue.may_join(&first) {
        return first;
    }
    let mut ops = vec![first];
    let start = ops[0].offset;
    let mut end = start + ops[0].len;
    // Each segment is another file.
    while !end.is_multiple_of(SEGMENT_BYTES)
        && let Some(len_max) = JOINED_BYTES_MAX.checked_sub(end - start)
        && let Some(next) = queue.take_adjacent(end, len_max)
    {
        end += next.len;
        ops.push(next);
    }
    if ops.len() == 1 {
        return ops.swap_remove(0);
    }
    let queued_at = ops[0].queued_at;
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
