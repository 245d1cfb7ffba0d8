//! The run of a trial by the second-half rule.

use super::DemoContext;
use crate::progress;
use anyhow::{Context, Result};
use indicatif::ProgressBar;
use larder_core::clock::{Clock, Nanos};
use larder_io::clock::MonotonicClock;
use larder_lab::workload::probe::{Probe, ProbeRequest, ProbeRequests};
use larder_lab::workload::trial::Trial;
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
