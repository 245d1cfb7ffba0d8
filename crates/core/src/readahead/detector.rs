//! Detection of streams in the requests of one handle or file.
//!
//! A request that continues no stream is added to the recent requests. There the detector checks if
//! it follows or precedes another one (a backward stream), or is the third at equal distances. So
//! random requests do not displace streams, and streams may interleave up to the maximum number of
//! streams.

use super::stream::{Stream, Window};
use super::{ObservedRequest, WindowLimits};
use std::ops::Range;

/// Number of remembered requests that continued no stream.
const RECENT: usize = 16;
/// Maximum distance of a stride, in pages.
const STRIDE_MAX: u64 = 4096;

/// The streams of one handle or file.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamDetector {
    streams: Vec<Stream>,
    recent: [Option<(u64, u64)>; RECENT],
    next_recent: usize,
    tick: u64,
    page_blocks: u32,
}

/// The result of one observed request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadaheadAdvice {
    /// The window to read now.
    pub(crate) window: Option<Window>,
    /// Pages that were read ahead for a stream that a new one has displaced.
    pub(crate) abandoned: u64,
    /// Pages that a trusted stream has passed with this request.
    pub(crate) passed: Option<Range<u64>>,
}

/// Returns the pages of one request of a stream that the next request does not contain.
fn pages_before_next(before: &Range<u64>, next: &Range<u64>) -> Range<u64> {
    if next.start > before.start {
        before.start..before.end.min(next.start)
    } else {
        before.start.max(next.end)..before.end
    }
}

impl StreamDetector {
    /// Sets the page size. If it has changed, all streams are forgotten.
    pub(crate) fn set_page_blocks(&mut self, blocks: u32) {
        if self.page_blocks != blocks {
            *self = StreamDetector { page_blocks: blocks, ..StreamDetector::default() };
        }
    }

    pub(crate) fn note_request(
        &mut self,
        observed: &ObservedRequest,
        limits: &WindowLimits,
    ) -> ReadaheadAdvice {
        self.tick += 1;
        let pages = &observed.pages;
        let found = self.streams.iter().position(|stream| stream.continues(pages, limits.steps));
        if let Some(index) = found {
            let stream = &mut self.streams[index];
            stream.used_at = self.tick;
            let before = stream.last_request();
            let window = stream.advance(observed, limits);
            let passed = stream.is_trusted(limits).then(|| pages_before_next(&before, pages));
            let passed = passed.filter(|passed| passed.start < passed.end);
            return ReadaheadAdvice { window, abandoned: 0, passed };
        }
        if let Some(mut stream) = self.find_stream(pages) {
            // The first requests of the stream missed. This one requests the window that they would
            // have.
            let window =
                stream.advance(&ObservedRequest { missed: false, ..observed.clone() }, limits);
            return ReadaheadAdvice {
                window,
                abandoned: self.add_stream(stream, limits),
                passed: None,
            };
        }
        if observed.sequential {
            let mut stream = Stream::new(pages, false, 0, 0);
            let window = stream.advance(observed, limits);
            return ReadaheadAdvice {
                window,
                abandoned: self.add_stream(stream, limits),
                passed: None,
            };
        }
        self.recent[self.next_recent] = Some((pages.start, pages.end));
        self.next_recent = (self.next_recent + 1) % RECENT;
        ReadaheadAdvice::default()
    }

    pub(super) fn has_streams(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Finds the stream that `pages` and recent requests form.
    fn find_stream(&mut self, pages: &Range<u64>) -> Option<Stream> {
        let Range { start, end } = *pages;
        let index = |of: &dyn Fn(u64, u64) -> bool| {
            self.recent.iter().position(|one| one.is_some_and(|(from, to)| of(from, to)))
        };
        let before = |from, to| (to == start || to == start + 1) && from < start && to < end;
        if let Some(index) = index(&before) {
            self.recent[index] = None;
            return Some(Stream::new(pages, false, 0, 1));
        }
        let after = |from, to| (from == end || from + 1 == end) && to > end && from > start;
        if let Some(index) = index(&after) {
            self.recent[index] = None;
            return Some(Stream::new(pages, true, 0, 1));
        }
        let (middle, first, backward, stride) = self.recent.iter().enumerate().find_map(|one| {
            let (middle, &Some((from, to))) = one else { return None };
            let (stride, backward) = (start.abs_diff(from), start < from);
            if stride == 0 || stride > STRIDE_MAX || stride < (end - start).max(to - from) {
                return None;
            }
            let origin = if backward { from + stride } else { from.checked_sub(stride)? };
            let is_origin = |one: &Option<(u64, u64)>| one.is_some_and(|one| one.0 == origin);
            let first = self.recent.iter().position(is_origin)?;
            Some((middle, first, backward, stride))
        })?;
        (self.recent[middle], self.recent[first]) = (None, None);
        Some(Stream::new(pages, backward, stride, 1))
    }

    /// Adds a stream, and removes the least recently used one if there are too many. Returns the
    /// number of pages that were read ahead for the removed one and not used.
    fn add_stream(&mut self, mut stream: Stream, limits: &WindowLimits) -> u64 {
        stream.used_at = self.tick;
        let mut abandoned = 0;
        while self.streams.len() >= limits.streams {
            let oldest = self.streams.iter().enumerate().min_by_key(|(_, stream)| stream.used_at);
            let Some((oldest, _)) = oldest else { break };
            abandoned += self.streams.swap_remove(oldest).ahead();
        }
        self.streams.push(stream);
        abandoned
    }
}
