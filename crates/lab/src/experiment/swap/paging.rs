//! Page-ins and page-outs of a machine whose memory is short.

use crate::random::Random;
use larder_core::units::{BLOCK_BYTES_U64, as_f64};
use std::ops::Range;

/// Pages that are paged out together (Windows Internals: the modified page writer writes up to 16
/// pages at a time).
const CLUSTER_PAGES: u64 = 16;

/// A transfer between memory and the page file: its bytes there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// The program waits for it.
    In(Range<u64>),
    /// A write of pages that were changed.
    Out(Range<u64>),
}

/// The paging of a program.
#[derive(Clone, Debug)]
pub(super) struct Paging {
    /// Page-ins of each operation, on average.
    per_operation: f64,
    /// Page-outs for each page-in.
    page_outs: f64,
    working_set_bytes: u64,
    /// Page-ins that are due, and pages that wait to be paged out; both less than one transfer
    /// after each operation.
    due: f64,
    changed: f64,
    random: Random,
}

impl Paging {
    pub(super) fn new(
        (per_operation, page_outs): (f64, f64),
        working_set_bytes: u64,
        seed: u64,
    ) -> Self {
        let random = Random::from_seed(seed);
        Paging { per_operation, page_outs, working_set_bytes, due: 0.0, changed: 0.0, random }
    }

    /// Appends the transfers of an operation, in order.
    pub(super) fn operation(&mut self, transfers: &mut Vec<Transfer>) {
        self.due += self.per_operation;
        while self.due >= 1.0 {
            self.due -= 1.0;
            transfers.push(Transfer::In(self.place(1)));
            self.changed += self.page_outs;
            if self.changed >= as_f64(CLUSTER_PAGES) {
                self.changed -= as_f64(CLUSTER_PAGES);
                transfers.push(Transfer::Out(self.place(CLUSTER_PAGES)));
            }
        }
    }

    /// Returns a random place of this many pages.
    fn place(&mut self, pages: u64) -> Range<u64> {
        let bytes = pages * BLOCK_BYTES_U64;
        let start = self.random.below(self.working_set_bytes / bytes) * bytes;
        start..start + bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_on_average_and_places_lie_in_the_working_set() {
        let (mut paging, mut all) = (Paging::new((0.3, 0.5), 8 << 20, 1), Vec::new());
        (0..3_200).for_each(|_| paging.operation(&mut all));
        let ins = all.iter().filter(|it| matches!(it, Transfer::In(_))).count();
        let outs = all.len() - ins;
        assert!(ins.abs_diff(960) <= 1 && outs.abs_diff(30) <= 1, "{ins} {outs}");
        for Transfer::In(range) | Transfer::Out(range) in &all {
            let len = range.end - range.start;
            assert!(range.end <= 8 << 20 && range.start.is_multiple_of(len));
        }
        let mut none = Vec::new();
        let mut idle = Paging::new((0.0, 1.0), 8 << 20, 1);
        (0..1_000).for_each(|_| idle.operation(&mut none));
        assert_eq!(none, []);
    }
}
