//! The results of the trials.

use super::trial::{CachedTrial, Rate};
use larder_core::counters::{Counter, Totals};
use larder_report::table::{Cell, Column, Table};
use larder_schema::format;

/// The results for one working set, without and with the cache.
pub(super) struct Outcome {
    pub(super) title: &'static str,
    pub(super) uncached: Rate,
    pub(super) cached: CachedTrial,
}

/// Returns the results on one disk as a table.
pub(super) fn table(title: &str, outcomes: &[Outcome]) -> Table {
    let mut columns = vec![Column::words("what", "")];
    columns.extend(outcomes.iter().map(|outcome| Column::numbers(outcome.title, outcome.title)));
    let mut table = Table::new(title, columns);
    let mut row = |name: &str, cell: &dyn Fn(&Outcome) -> Cell| {
        table.push(std::iter::once(Cell::word(name)).chain(outcomes.iter().map(cell)));
    };
    row("without a cache, operations/s", &|o| rate_cell(o.uncached));
    row("with larder, operations/s", &|o| rate_cell(o.cached.rate));
    row("gain", &|o| {
        let gain = o.cached.rate / o.uncached;
        Cell::shown(gain, format::times(gain))
    });
    for (name, counter) in [
        ("reads that hit, pages", Counter::ReadHit),
        ("reads that missed, pages", Counter::ReadMiss),
        ("writes absorbed by dirty pages", Counter::WriteAbsorbed),
        ("writes slowed down at the dirty limit", Counter::ThrottledWrites),
    ] {
        row(name, &|o| Cell::count(o.cached.measured.get(counter)));
    }
    // Dirty blocks at the start, plus the blocks that became dirty, are the sum of the other three.
    row("dirty blocks at the start", &|o| Cell::count(dirty_blocks(&[&o.cached.before])));
    for (name, counter) in [
        ("writes that made a block dirty", Counter::WriteNewDirty),
        ("dirty blocks written lazily", Counter::LazyWriteBlocks),
        ("dirty blocks written to make room", Counter::StealWriteBlocks),
    ] {
        row(name, &|o| Cell::count(o.cached.measured.get(counter)));
    }
    row("dirty blocks left at the end", &|o| {
        Cell::count(dirty_blocks(&[&o.cached.before, &o.cached.measured]))
    });
    row("read hits", &|o| Cell::percent(o.cached.measured.read_hit_ratio()));
    row("lazy writes to the disk", &|o| Cell::count(o.cached.measured.get(Counter::LazyWrites)));
    row("blocks per lazy write", &|o| burst(o));
    table
}

/// Returns the blocks that were made dirty and whose writing to the disk has not begun, after
/// consecutive intervals. The pages of the demo are single blocks, and no client flushes.
fn dirty_blocks(intervals: &[&Totals]) -> u64 {
    let sum = |counter| intervals.iter().map(|totals| totals.get(counter)).sum::<u64>();
    let written = sum(Counter::LazyWriteBlocks) + sum(Counter::StealWriteBlocks);
    sum(Counter::WriteNewDirty).saturating_sub(written)
}

#[expect(clippy::cast_precision_loss, reason = "a mean for people")]
fn burst(outcome: &Outcome) -> Cell {
    let totals = &outcome.cached.measured;
    let writes = totals.get(Counter::LazyWrites);
    if writes == 0 {
        return Cell::missing();
    }
    let mean = totals.get(Counter::LazyWriteBlocks) as f64 / writes as f64;
    Cell::shown(mean, format!("{mean:.1}"))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for people")]
fn rate_cell(rate: Rate) -> Cell {
    Cell::count(rate.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_core::counters::Recorder;

    fn totals(counts: &[(Counter, u64)]) -> Totals {
        let (recorder, mut totals) = (Recorder::default(), Totals::default());
        for &(counter, count) in counts {
            recorder.add(counter, count);
        }
        recorder.add_to(&mut totals);
        totals
    }

    #[test]
    fn the_dirty_blocks_of_the_table_add_up() {
        use Counter::{LazyWriteBlocks, StealWriteBlocks, WriteNewDirty};
        let before = totals(&[(WriteNewDirty, 50), (LazyWriteBlocks, 20), (StealWriteBlocks, 10)]);
        let measured = totals(&[(WriteNewDirty, 90), (LazyWriteBlocks, 60), (StealWriteBlocks, 7)]);
        let cached = CachedTrial { rate: 2.0, measured, before, requests: Vec::new() };
        let outcome = Outcome { title: "a set", uncached: 1.0, cached };
        let csv = table("a disk", &[outcome]).to_csv();
        let rows = "\ndirty blocks at the start,20\nwrites that made a block dirty,90\n\
                    dirty blocks written lazily,60\ndirty blocks written to make room,7\n\
                    dirty blocks left at the end,43\n";
        assert!(csv.contains(rows), "20 + 90 = 60 + 7 + 43: {csv}");
    }
}
