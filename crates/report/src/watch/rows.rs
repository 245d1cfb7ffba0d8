//! Files by processes, in the order in which people want to see them.

use super::{Counts, Row};

/// How much a row matters: pages asked for, and disks kept busy.
fn weight(counts: &Counts, page_bytes: u64) -> u64 {
    let asked = counts.read_pages
        + counts.map_touches
        + counts.write_pages.max(counts.dirtied_pages)
        + counts.evicted_pages
        + counts.dropped_pages;
    // A page that a disk has to move is worth many that memory answers.
    asked + 16 * (counts.disk_bytes() / page_bytes.max(1))
}

/// The rows in the order of their weight, at most `max` of them; and how many there were.
#[must_use]
pub fn rows(mut all: Vec<Row>, page_bytes: u64, max: usize) -> (Vec<Row>, u64) {
    all.retain(|row| !row.counts.is_zero());
    all.sort_by(|a, b| {
        let by_weight = weight(&b.counts, page_bytes).cmp(&weight(&a.counts, page_bytes));
        by_weight.then_with(|| (&a.file, &a.process).cmp(&(&b.file, &b.process)))
    });
    let count = all.len() as u64;
    all.truncate(max);
    (all, count)
}
