//! One stream: where a reader is, what has been read ahead of it, and how far the next window goes.
//!
//! A stream that runs backward is kept as its mirror image, so that there is one direction here.
//! Numbers are pages, or their mirror images.

use super::{Limits, ObservedRequest};
use std::ops::Range;

/// Pages are below this: volumes end at 2^60 bytes.
const EDGE: u64 = 1 << 52;
/// A stream that is trusted may leave out so many pages: requests under way at a time do not come
/// quite in order, and some of what lies in between is resident and never seen here.
const GAP_MAX: u64 = 16;

/// Pages to read: `count` runs of `len` pages each, in the order in which they will be needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    start: u64,
    len: u64,
    stride: u64,
    count: u64,
    backward: bool,
}

impl Window {
    /// The run that is needed first, which the window is without afterwards; at most `most` pages
    /// of it (at least one), whose rest stays.
    pub(crate) fn take(&mut self, most: u64) -> Option<Range<u64>> {
        if self.count == 0 {
            return None;
        }
        let run = self.start..self.start + self.len.min(most.max(1));
        if run.end == self.start + self.len || self.stride > 0 {
            // What a run of a stride has too much is not worth another read.
            self.start += self.stride;
            self.count -= 1;
        } else {
            self.len -= run.end - run.start;
            self.start = run.end;
        }
        Some(mirrored(self.backward, &run))
    }

    /// Pages of it.
    pub(crate) fn pages(&self) -> u64 {
        self.len * self.count
    }

    /// Returns the pages from the first to the last one of the window, with those between its runs.
    pub(crate) fn span(&self) -> Range<u64> {
        let last = self.start + self.stride * self.count.saturating_sub(1);
        mirrored(self.backward, &(self.start..last + self.len))
    }
}

/// The mirror image of `pages`, and back, if `backward`.
fn mirrored(backward: bool, pages: &Range<u64>) -> Range<u64> {
    if backward { EDGE - pages.end..EDGE - pages.start } else { pages.clone() }
}

/// A reader that asks for page after page, or for some pages at equal distances.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    backward: bool,
    /// From the start of one request to that of the next; 0 where they follow one another.
    stride: u64,
    /// The request that came last.
    start: u64,
    end: u64,
    /// Requests that agreed with those before.
    steps: u32,
    /// Up to here everything has been asked for; for strides, where the next run begins.
    requested_end: u64,
    /// The start of the window asked for last: a reader that comes here wants the next one.
    trigger: u64,
    /// Pages of the window asked for last; 0 if there was none.
    window: u64,
    wasted_before: u64,
    pub(super) used_at: u64,
}

impl Stream {
    /// A stream that begins with `request`, to which so many steps have led.
    pub(super) fn new(request: &Range<u64>, backward: bool, stride: u64, steps: u32) -> Self {
        let Range { start, end } = mirrored(backward, request);
        let (requested_end, trigger, window) = (end, end, 0);
        let (wasted_before, used_at) = (0, 0);
        Stream {
            backward,
            stride,
            start,
            end,
            steps,
            requested_end,
            trigger,
            window,
            wasted_before,
            used_at,
        }
    }

    /// The pages of the request that came last.
    pub(super) fn last_request(&self) -> Range<u64> {
        mirrored(self.backward, &(self.start..self.end))
    }

    /// Whether enough requests agreed for reading ahead of them.
    pub(super) fn is_trusted(&self, limits: &Limits) -> bool {
        self.steps >= limits.steps
    }

    /// Pages asked for that its reader has not come to.
    pub(super) fn ahead(&self) -> u64 {
        if self.stride == 0 {
            return self.requested_end.saturating_sub(self.end);
        }
        let runs =
            self.requested_end.saturating_sub(self.start + self.stride).div_ceil(self.stride);
        if self.window == 0 { 0 } else { runs * (self.end - self.start) }
    }

    /// Whether `request` goes on with it.
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
        // Behind by as much as it reads at a time: a request that was overtaken by others.
        let lag = self.window.max(self.end - self.start);
        request.start + lag >= self.end
            && request.start <= self.requested_end.max(self.end) + GAP_MAX
    }

    /// Takes a request in that goes on with it; the next window, if it is time to ask for it.
    pub(super) fn advance(
        &mut self,
        observed: &ObservedRequest,
        limits: &Limits,
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
            // What was to be there is not: evicted untouched, or there was no room for it.
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

    /// Where the reader is expected next.
    fn next_start(&self) -> u64 {
        if self.stride == 0 { self.end } else { self.start + self.stride }
    }

    /// Asks for `pages` more, behind what has been asked for.
    fn next_window(&mut self, pages: u64, limits: &Limits) -> Option<Window> {
        let from = self.requested_end.max(self.next_start());
        let edge = if self.backward { EDGE - limits.first } else { limits.pages };
        let window = if self.stride == 0 {
            let len = pages.min(edge.saturating_sub(from));
            Window { start: from, len, stride: 0, count: u64::from(len > 0), backward: false }
        } else {
            let len = self.end - self.start;
            // As many runs as lie inside the volume as a whole.
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
