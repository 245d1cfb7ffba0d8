//! The run of a trial by the second-half rule, and the results of the trials.

use super::DemoContext;
use super::cached::CachedTrial;
use crate::progress;
use anyhow::{Context, Result};
use indicatif::ProgressBar;
use larder_core::clock::{Clock, Nanos};
use larder_core::counters::Counter;
use larder_io::clock::MonotonicClock;
use larder_lab::workload::probe::{Probe, ProbeRequest, ProbeRequests};
use larder_lab::workload::trial::Trial;
use larder_report::format;
use larder_report::table::{Cell, Column, Table};
use std::sync::Arc;

/// Operations per second of the measured half.
pub(super) type Rate = f64;

/// Generates the requests of a trial until its time is over.
pub(super) struct Runner<'a> {
    context: &'a DemoContext,
    clock: Arc<MonotonicClock>,
    requests: ProbeRequests,
    trial: Trial,
    started_at: Nanos,
    bar: ProgressBar,
}

impl<'a> Runner<'a> {
    pub(super) fn new(context: &'a DemoContext, probe: &Probe, title: &str) -> Self {
        let now = context.clock.now();
        let length = u64::try_from(context.trial.as_nanos()).expect("at most minutes");
        let bar = progress::bar(length / 1_000_000, "{prefix:32} [{bar:30}] {msg}");
        bar.set_prefix(title.to_owned());
        Runner {
            context,
            clock: Arc::clone(&context.clock),
            requests: probe.requests(super::SEED),
            trial: Trial::new(now, length),
            started_at: now,
            bar,
        }
    }

    /// Returns the next request; `None` when the trial is over.
    pub(super) fn next(&mut self) -> Result<Option<ProbeRequest>> {
        self.context.check()?;
        self.started_at = self.clock.now();
        if self.trial.is_over(self.started_at) {
            self.bar.finish_and_clear();
            return Ok(None);
        }
        let elapsed = (self.started_at - self.trial.begins_at()) / 1_000_000;
        if self.bar.position() + 100 < elapsed {
            self.bar.set_position(elapsed);
        }
        Ok(self.requests.next())
    }

    /// Returns true if the current request is measured.
    pub(super) fn is_measuring(&self) -> bool {
        self.trial.measures(self.started_at)
    }

    pub(super) fn record_completion(&mut self, _request: &ProbeRequest) {
        let now = self.clock.now();
        self.trial.record(self.started_at, now, now - self.started_at);
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub(super) fn rate(&self) -> Result<Rate> {
        let times = self.trial.response_times().context("measure: no request was finished")?;
        Ok(times.count as f64 * 1e9 / times.measured_ns.max(1) as f64)
    }
}

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
    row("read hits", &|o| {
        o.cached.measured.read_hit_ratio().map_or_else(Cell::missing, Cell::percent)
    });
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
