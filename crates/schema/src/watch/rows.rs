//! Selection and order of rows. Reads, writes and evictions are three separate criteria; the first
//! rows of each are kept and shown.

use super::{Counts, Row};
use std::cmp::Reverse;

/// Weight of a page of disk I/O, relative to a page from memory.
const DISK_PAGE: u64 = 16;

/// A criterion for the order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchColumn {
    /// Pages read, also through mappings.
    Reads,
    /// Pages written and written back.
    Writes,
    /// Pages evicted, dropped or read again.
    Leaving,
}

impl WatchColumn {
    const ALL: [WatchColumn; 3] = [WatchColumn::Reads, WatchColumn::Writes, WatchColumn::Leaving];

    /// Returns the weight of a row: pages, and disk I/O; 0 if it is not affected.
    fn weight(self, counts: &Counts, page_bytes: u64) -> u64 {
        let of_disk = |bytes: u64| DISK_PAGE * bytes.div_ceil(page_bytes.max(1));
        match self {
            WatchColumn::Reads => {
                counts.read_pages + counts.map_touches + of_disk(counts.disk_read_bytes)
            }
            WatchColumn::Writes => {
                let pages = counts.write_pages.max(counts.write_requests).max(counts.dirtied_pages);
                let moved = of_disk(counts.disk_write_bytes + counts.disk_lazy_write_bytes);
                pages + counts.lazy_flushes + counts.throttles + moved
            }
            WatchColumn::Leaving => {
                counts.evicted_pages
                    + counts.dropped_pages
                    + counts.refault_pages
                    + counts.read_ahead_unused_pages
            }
        }
    }

    /// Returns the indices of the affected rows, in descending order of weight.
    #[must_use]
    pub fn order(self, rows: &[Row], page_bytes: u64) -> Vec<usize> {
        let weight = |index: usize| self.weight(&rows[index].counts, page_bytes);
        let mut indices: Vec<usize> = (0..rows.len()).filter(|&index| weight(index) > 0).collect();
        indices.sort_by_cached_key(|&index| Reverse(weight(index)));
        indices
    }

    /// Returns the number of first rows, in the order of [`WatchColumn::order`], that together have
    /// at least 99 % of the weight.
    #[must_use]
    pub fn leading(self, order: &[usize], rows: &[Row], page_bytes: u64) -> usize {
        let weight = |&index: &usize| u128::from(self.weight(&rows[index].counts, page_bytes));
        let weights = order.iter().map(weight);
        let mut left: u128 = weights.clone().sum();
        let left_out_max = left / 100;
        let is_needed = |weight: &u128| {
            let was_left = left;
            left -= weight;
            was_left > left_out_max
        };
        weights.take_while(is_needed).count()
    }
}

/// Returns the total weight of a row.
fn weight(counts: &Counts, page_bytes: u64) -> u64 {
    WatchColumn::ALL.iter().map(|criterion| criterion.weight(counts, page_bytes)).sum()
}

/// Returns the rows in descending order of weight, at most `max` of them, and their original
/// number. If there are too many, it keeps those that rank first in one of the criteria.
#[must_use]
pub fn rows(mut all: Vec<Row>, page_bytes: u64, max: usize) -> (Vec<Row>, u64) {
    all.retain(|row| !row.counts.is_zero());
    all.sort_by(|a, b| {
        let by_weight = weight(&b.counts, page_bytes).cmp(&weight(&a.counts, page_bytes));
        by_weight.then_with(|| (&a.file, &a.process).cmp(&(&b.file, &b.process)))
    });
    let count = all.len() as u64;
    if all.len() > max {
        keep_first(&mut all, page_bytes, max);
    }
    (all, count)
}

/// Keeps `max` rows, in their current order.
fn keep_first(all: &mut Vec<Row>, page_bytes: u64, max: usize) {
    // The best rank of each row in any criterion; rows without a rank come last, by their weight.
    let mut ranks = vec![usize::MAX; all.len()];
    for criterion in WatchColumn::ALL {
        for (rank, index) in criterion.order(all, page_bytes).into_iter().enumerate() {
            ranks[index] = ranks[index].min(rank);
        }
    }
    let mut indices: Vec<usize> = (0..all.len()).collect();
    indices.sort_by_key(|&index| ranks[index]);
    let mut kept = vec![false; all.len()];
    for index in indices.into_iter().take(max) {
        kept[index] = true;
    }
    let mut kept = kept.into_iter();
    all.retain(|_| kept.next() == Some(true));
}
