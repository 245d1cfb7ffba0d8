//! Selection and order of rows. Reads, writes and evictions are three separate criteria; the first
//! rows of each are kept and shown.

use super::{Counts, Row};
use std::cmp::Reverse;

/// Weight of a page of disk I/O, relative to a page from memory.
const DISK_PAGE: u64 = 16;

/// A criterion for the order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchColumn {
    Reads,
    Writes,
    Leaving,
}

impl WatchColumn {
    const ALL: [WatchColumn; 3] = [WatchColumn::Reads, WatchColumn::Writes, WatchColumn::Leaving];

    /// Returns the weight of a row: pages, and disk I/O; 0 if it is not affected.
    pub(super) fn weight(self, it: &Counts, page_bytes: u64) -> u64 {
        let of_disk = |bytes: u64| DISK_PAGE * bytes.div_ceil(page_bytes.max(1));
        match self {
            WatchColumn::Reads => it.read_pages + it.map_touches + of_disk(it.disk_read_bytes),
            WatchColumn::Writes => {
                let pages = it.write_pages.max(it.write_requests).max(it.dirtied_pages);
                let moved = of_disk(it.disk_write_bytes + it.disk_lazy_write_bytes);
                pages + it.lazy_flushes + it.throttles + moved
            }
            WatchColumn::Leaving => {
                it.evicted_pages + it.dropped_pages + it.refault_pages + it.read_ahead_unused_pages
            }
        }
    }

    /// Returns the indices of the affected rows, in descending order of weight.
    pub(super) fn order(self, rows: &[Row], page_bytes: u64) -> Vec<usize> {
        let weight = |place: usize| self.weight(&rows[place].counts, page_bytes);
        let mut places: Vec<usize> = (0..rows.len()).filter(|&place| weight(place) > 0).collect();
        places.sort_by_cached_key(|&place| Reverse(weight(place)));
        places
    }
}

/// Returns the total weight of a row.
fn weight(counts: &Counts, page_bytes: u64) -> u64 {
    WatchColumn::ALL.iter().map(|matter| matter.weight(counts, page_bytes)).sum()
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
    for matter in WatchColumn::ALL {
        for (rank, place) in matter.order(all, page_bytes).into_iter().enumerate() {
            ranks[place] = ranks[place].min(rank);
        }
    }
    let mut places: Vec<usize> = (0..all.len()).collect();
    places.sort_by_key(|&place| ranks[place]);
    let mut kept = vec![false; all.len()];
    for place in places.into_iter().take(max) {
        kept[place] = true;
    }
    let mut kept = kept.into_iter();
    all.retain(|_| kept.next() == Some(true));
}
