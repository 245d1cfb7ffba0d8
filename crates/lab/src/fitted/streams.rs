//! The ends of recent requests, which later requests continue.

use std::collections::VecDeque;

/// Maximum number of ends.
const STREAMS_MAX: usize = 64;

/// A request that continues a recent one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Continuation {
    /// Streams with a later request.
    pub(super) age: u8,
    /// True if the request begins with the last page of the recent one: they share this page.
    pub(super) overlaps: bool,
}

/// The first pages after recent requests, the last request at the back.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    ends: VecDeque<u64>,
}

impl Streams {
    /// Returns how a request that begins with this page continues a recent one.
    pub(super) fn continuation(&self, first: u64) -> Option<Continuation> {
        let ends = self.ends.iter().rev();
        let (age, &end) =
            (0..).zip(ends).find(|&(_, &end)| end == first || end == first.wrapping_add(1))?;
        Some(Continuation { age, overlaps: end != first })
    }

    /// Returns the first pages of requests that would be such continuations, those of a similar
    /// age first.
    pub(super) fn begins(&self, like: Continuation) -> Vec<u64> {
        let ends = self.ends.iter().rev();
        let mut ends: Vec<_> =
            (0..).zip(ends).map(|(age, end)| (like.age.abs_diff(age), end)).collect();
        ends.sort_unstable();
        ends.into_iter().map(|(_, end)| end.wrapping_sub(u64::from(like.overlaps))).collect()
    }

    /// Adds a request; it replaces the one that it continues.
    pub(super) fn add(&mut self, first: u64, end: u64) {
        if let Some(found) = self.continuation(first) {
            self.ends.remove(self.ends.len() - 1 - usize::from(found.age));
        } else if self.ends.len() == STREAMS_MAX {
            self.ends.pop_front();
        }
        self.ends.push_back(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_replaces_the_one_that_it_continues() {
        let mut streams = Streams::default();
        (0..100).for_each(|stream| streams.add(stream * 10, stream * 10 + 2));
        assert_eq!(streams.continuation(2), None, "too old");
        let next = |age, overlaps| Some(Continuation { age, overlaps });
        assert_eq!(streams.continuation(972), next(2, false));
        streams.add(972, 974);
        assert_eq!(streams.continuation(972), None);
        assert_eq!(streams.continuation(973), next(0, true));
        assert_eq!(streams.begins(Continuation { age: 1, overlaps: true })[0], 991);
        assert_eq!(streams.begins(Continuation { age: 1, overlaps: false }).len(), STREAMS_MAX);
    }
}
