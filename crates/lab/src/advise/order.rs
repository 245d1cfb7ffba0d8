//! Requests in order: each begins where one of the last ones ended.

/// Ends of recent requests; a request at one of them continues a sequence.
const STREAMS: usize = 8;

/// The sequences of some requests.
#[derive(Clone, Debug)]
pub(super) struct Sequences {
    /// Ends of the last ones, and true for a sequence of at least two requests.
    ends: [(u64, bool); STREAMS],
    next: usize,
    /// Requests that continue a sequence.
    pub(super) in_order: u64,
    /// Sequences of at least two requests.
    pub(super) runs: u64,
}

impl Sequences {
    pub(super) fn new() -> Self {
        Sequences { ends: [(u64::MAX, false); STREAMS], next: 0, in_order: 0, runs: 0 }
    }

    /// Adds a request, and returns true if it continues a sequence.
    pub(super) fn include(&mut self, offset: u64, len: u64) -> bool {
        let end = offset + len;
        let Some((last, is_run)) = self.ends.iter_mut().find(|(last, _)| *last == offset) else {
            self.ends[self.next] = (end, false);
            self.next = (self.next + 1) % STREAMS;
            return false;
        };
        self.in_order += 1;
        self.runs += u64::from(!*is_run);
        (*last, *is_run) = (end, true);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_have_at_least_two_requests_and_may_alternate() {
        let mut sequences = Sequences::new();
        // Two runs of four requests by turns, then one request alone.
        for number in 0..8 {
            let start = if number % 2 == 0 { 0 } else { 1 << 30 };
            assert_eq!(sequences.include(start + number / 2 * 4096, 4096), number >= 2);
        }
        assert!(!sequences.include(1 << 40, 512));
        assert_eq!((sequences.in_order, sequences.runs), (6, 2));
    }
}
