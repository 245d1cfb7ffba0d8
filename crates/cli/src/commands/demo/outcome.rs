//! The results of the trials.

use super::trial::{CachedTrial, Rate};
use larder_core::counters::Counter;
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
        ("writes that made a page dirty", Counter::WriteNewDirty),
        ("writes slowed down at the dirty limit", Counter::ThrottledWrites),
        ("lazy writes to the disk", Counter::LazyWrites),
        ("blocks in them", Counter::LazyWriteBlocks),
    ] {
        row(name, &|o| Cell::count(o.cached.measured.get(counter)));
    }
    row("dirty blocks left at the end", &|o| Cell::count(o.cached.left));
    row("read hits", &|o| Cell::percent(o.cached.measured.read_hit_ratio()));
    row("blocks per lazy write", &|o| burst(o));
    table
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
