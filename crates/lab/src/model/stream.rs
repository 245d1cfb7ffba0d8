//! What a disk reads ahead into its own buffer after a read.
//!
//! After a read the head stays on the track and the disk goes on reading until its buffer is full
//! or another operation needs the head. That is why one program that reads in order gets the full
//! rate although each of its reads comes a little too late for the platter. There is one buffer:
//! streams that interleave pay for positioning, as they do on drives with few segments.
//!
//! Bytes are addresses on the disk; times are nanoseconds.

use super::layout::Layout;
use larder_core::clock::Nanos;

/// Read-ahead in progress, or stopped because the buffer is full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// First byte in the buffer.
    start: u64,
    /// The byte that passed under the head at `since`.
    from: u64,
    since: Nanos,
    /// Where reading ahead stops.
    limit: u64,
}

impl Stream {
    /// Reading on after a read of `offset..end` from the platter that was done at `since`.
    pub(super) fn after(offset: u64, end: u64, since: Nanos, ahead: u64) -> Self {
        Stream { start: offset, from: end, since, limit: end + ahead }
    }

    /// The byte under the head at `now`.
    pub(super) fn position(&self, layout: &Layout, now: Nanos) -> u64 {
        let passed = layout.passing(self.from, now.saturating_sub(self.since));
        (self.from + passed).min(self.limit)
    }

    /// When `offset..offset + len` is in the buffer, for a read that begins at `begin`, and how the
    /// stream goes on with room for `ahead` more bytes; nothing if the range lies elsewhere.
    pub(super) fn ready(
        &self,
        layout: &Layout,
        begin: Nanos,
        (offset, len): (u64, u64),
        ahead: u64,
    ) -> Option<(Nanos, Stream)> {
        if offset < self.start || offset > self.limit {
            return None;
        }
        let end = offset + len;
        let mut next = *self;
        let full_at = self.since + layout.transfer(self.from, self.limit - self.from);
        if begin > full_at {
            // The head has stopped reading; it goes on when its place comes round again.
            next.from = self.limit;
            next.since = begin + layout.wait(begin, layout.place(self.limit).angle);
        }
        let mut ready = begin;
        if end > next.from {
            ready = begin.max(next.since + layout.transfer(next.from, end - next.from));
            let behind = layout.passing(next.from, ready.saturating_sub(next.since));
            next.from += behind;
            next.since = ready;
            next.from = next.from.max(end);
        }
        // The buffer keeps about as much behind the reader as it reads ahead of it.
        next.start = next.start.max(offset.saturating_sub(ahead));
        next.limit = next.limit.max(end + ahead).max(next.from);
        Some((ready, next))
    }
}
