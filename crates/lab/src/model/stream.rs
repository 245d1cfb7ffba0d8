//! The read-ahead of a disk into its own buffer after a read.
//!
//! After a read the head stays on the track, and the disk continues to read until its buffer is
//! full or another operation needs the head. So one program that reads sequentially gets the full
//! rate although each of its reads arrives a little too late for the platter. There is one buffer:
//! interleaved streams pay for positioning, as they do on drives with few segments.
//!
//! Bytes are addresses on the disk; times are nanoseconds.

use super::layout::Layout;
use larder_core::clock::Nanos;

/// Read-ahead in progress, or stopped because the buffer is full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// First byte in the buffer.
    start: u64,
    /// Byte under the head at `since`.
    from: u64,
    since: Nanos,
    /// Byte at which read-ahead stops.
    limit: u64,
}

impl Stream {
    /// Starts read-ahead after a read of `offset..end` from the platter that was done at `since`.
    pub(super) fn after(offset: u64, end: u64, since: Nanos, ahead: u64) -> Self {
        Stream { start: offset, from: end, since, limit: end + ahead }
    }

    /// Returns the byte under the head at `now`.
    pub(super) fn position(&self, layout: &Layout, now: Nanos) -> u64 {
        let passed = layout.passing(self.from, now.saturating_sub(self.since));
        (self.from + passed).min(self.limit)
    }

    /// Returns the time at which `offset..offset + len` is in the buffer, for a read that begins at
    /// `begin`, and the stream after it with space for `ahead` more bytes; `None` if the range lies
    /// elsewhere.
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
            // The head has stopped reading; it continues when its position passes under it again.
            next.from = self.limit;
            next.since = begin + layout.wait(begin, layout.position(self.limit));
        }
        let mut ready = begin;
        if end > next.from {
            ready = begin.max(next.since + layout.transfer(next.from, end - next.from));
            let passed = layout.passing(next.from, ready.saturating_sub(next.since));
            next.from += passed;
            next.since = ready;
            next.from = next.from.max(end);
        }
        // The buffer keeps about as many bytes before the reader as it reads ahead.
        next.start = next.start.max(offset.saturating_sub(ahead));
        next.limit = next.limit.max(end + ahead).max(next.from);
        Some((ready, next))
    }
}
