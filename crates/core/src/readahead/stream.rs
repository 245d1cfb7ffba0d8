//! One stream: the position of its reader, the pages requested ahead of it, and its next window.
//!
//! A backward stream is stored mirrored, so that this code has one direction. Numbers are pages, or
//! mirrored pages.

use super::{ObservedRequest, WindowLimits};
use std::ops::Range;

/// Upper bound of page numbers: volumes end at 2^60 bytes.
const EDGE: u64 = 1 << 52;
/// Maximum number of pages that a trusted stream may skip: concurrent requests arrive slightly out
/// of order, and requests for resident pages in between are not observed.
const GAP_MAX: u64 = 16;

/// Pages to read: `count` runs of `len` pages each, in the order in which the reader needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    start: u64,
    len: u64,
    stride: u64,
    count: u64,
    backward: bool,
}

impl Window {
    /// Takes at most `pages_max` pages (at least one) of the first run out of the window; the rest
    /// of the run stays.
    pub(crate) fn take(&mut self, pages_max: u64) -> Option<Range<u64>> {
        if self.count == 0 {
            return None;
        }
        let run = self.start..self.start + self.len.min(pages_max.max(1));
        if run.end == self.start + self.len || self.stride > 0 {
            // The rest of a run of a strided window is not worth another read.
            self.start += self.stride;
            self.count -= 1;
        } else {
            self.len -= run.end - run.start;
            self.start = run.end;
        }
        Some(mirrored(self.backward, &run))
    }

    pub(crate) fn pages(&self) -> u64 {
        self.len * self.count
    }

    /// Returns the pages from the first to the last one of the window, with those between its runs.
    pub(crate) fn span(&self) -> Range<u64> {
        let last = self.start + self.stride * self.count.saturating_sub(1);
        mirrored(self.backward, &(self.start..last + self.len))
    }
}

/// Mirrors `pages` if `backward`. Applied twice, it returns the original.
fn mirrored(backward: bool, pages: &Range<u64>) -> Range<u64> {
    if backward { EDGE - pages.end..EDGE - pages.start } else { pages.clone() }
}

/// A reader of consecutive requests, or of requests at equal distances.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    backward: bool,
    /// Distance from the start of one request to that of the next; 0 if they are adjacent.
    stride: u64,
    /// The last request.
    start: u64,
    end: u64,
    /// Number of requests that matched the stream.
    steps: u32,
    /// End of the requested pages; for strides, the start of the next run.
    requested_end: u64,
    /// Start of the last requested window: a reader that reaches it triggers the next window.
    trigger: u64,
    /// Size of the last requested window in pages; 0 without one.
    window: u64,
    wasted_before: u64,
    pub(super) used_at: u64,
}

impl Stream {
    /// Returns a stream whose last request is `request`, after `steps` matching requests.
    pub(super) fn new(request: &Range<u64>, backward: bool, stride: u64, steps: u32) -> Self {
        let Range { start, end } = mirrored(backward, request);
        let positions =
            Stream { start, end, requested_end: end, trigger: end, ..Stream::default() };
        Stream { backward, stride, steps, ..positions }
    }

    pub(super) fn last_request(&self) -> Range<u64> {
        mirrored(self.backward, &(self.start..self.end))
    }

    /// Returns true if enough requests have matched to read ahead.
    pub(super) fn is_trusted(&self, limits: &WindowLimits) -> bool {
        self.steps >= limits.steps
    }

    /// Returns the number of requested pages that the reader has not reached.
    pub(super) fn ahead(&self) -> u64 {
        if self.stride == 0 {
            return self.requested_end.saturating_sub(self.end);
        }
        let runs =
            self.requested_end.saturating_sub(self.start + self.stride).div_ceil(self.stride);
        if self.window == 0 { 0 } else { runs * (self.end - self.start) }
    }

    /// Returns true if `request` continues the stream.
    pub(super) fn continues(&self, request: &Range<u64>, trusted: u32) -> bool {
        let request = mirrored(self.backward, request);
        if self.stride > 0 {
            let expected = self.start + self.stride;
            let end =
                if self.window > 0 { self.requested_end.max(expected + 1) } else { expected + 1 };
            let is_expected = request.start >= expected
                && (request.start - expected).is_multiple_of(self.stride)
                && request.start < end;
            return is_expected && request.end - request.start <= self.stride;
        }
        let follows = request.start == self.end || request.start + 1 == self.end;
        if self.steps < trusted {
            return follows && request.end > self.end;
        }
        // A late request may lag by as much as the stream reads at a time: other requests have
        // overtaken it.
        let lag = self.window.max(self.end - self.start);
        request.start + lag >= self.end
            && request.start <= self.requested_end.max(self.end) + GAP_MAX
    }

    /// Records a request that continues the stream. Returns the next window if it is due.
    pub(super) fn advance(
        &mut self,
        observed: &ObservedRequest,
        limits: &WindowLimits,
    ) -> Option<Window> {
        let request = mirrored(self.backward, &observed.pages);
        let is_lost = observed.missed && request.start < self.requested_end && self.window > 0;
        if request.end > self.end {
            (self.start, self.end) = (request.start, request.end);
            self.steps = self.steps.saturating_add(1);
        }
        if observed.sequential {
            self.steps = self.steps.max(limits.steps);
        }
        if self.steps < limits.steps {
            self.wasted_before = observed.wasted;
            return None;
        }
        if is_lost {
            // Pages that were requested are not resident: they were evicted untouched, or there
            // were no frames for them.
            self.requested_end = self.next_start();
            if observed.wasted > self.wasted_before {
                self.window = (self.window / 2).max(1);
                self.wasted_before = observed.wasted;
                return self.next_window(self.window.clamp(limits.min, limits.max), limits);
            }
        }
        let is_overtaken = self.requested_end < self.next_start();
        let is_due = self.window == 0
            || is_overtaken
            || is_lost
            || self.start.max(self.end - 1) >= self.trigger;
        if !is_due {
            return None;
        }
        self.wasted_before = observed.wasted;
        let window = match self.window {
            _ if observed.sequential => limits.max,
            0 => 2 * (self.end - self.start),
            _ if is_lost => self.window,
            before => 2 * before,
        };
        self.next_window(window.clamp(limits.min, limits.max), limits)
    }

    /// Returns the page that the reader is expected to read next.
    fn next_start(&self) -> u64 {
        if self.stride == 0 { self.end } else { self.start + self.stride }
    }

    /// Requests `pages` more pages after those already requested.
    fn next_window(&mut self, pages: u64, limits: &WindowLimits) -> Option<Window> {
        let from = self.requested_end.max(self.next_start());
        let edge = if self.backward { EDGE - limits.first } else { limits.pages };
        let window = if self.stride == 0 {
            let len = pages.min(edge.saturating_sub(from));
            Window { start: from, len, stride: 0, count: u64::from(len > 0), backward: false }
        } else {
            let len = self.end - self.start;
            // The number of runs that lie completely inside the volume.
            let inside = edge.saturating_sub(from + len).div_ceil(self.stride)
                + u64::from(edge >= from + len && (edge - from - len).is_multiple_of(self.stride));
            let count = (pages / len).max(1).min(inside);
            Window { start: from, len, stride: self.stride, count, backward: false }
        };
        self.window = pages;
        self.trigger = from;
        self.requested_end =
            from + if self.stride == 0 { window.len } else { window.count * self.stride };
        (window.count > 0).then_some(Window { backward: self.backward, ..window })
    }
}
