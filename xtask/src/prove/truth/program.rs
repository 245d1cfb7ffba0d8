//! A workload with a combination of settings: the measurement, the simulation, and their
//! differences.

use super::calibration::{Calibration, DEPTHS, read_volume};
use super::combination::Combination;
use super::own_times::OwnTimes;
use super::simulation::{ELAPSED, memory_bytes, simulate};
use super::workload::{TraceSummary, Workload};
use crate::disk::Disk;
use crate::prove::prelude::*;
use crate::record::Record;
use std::fmt;

/// Counters of page reads: those that do not wait for the store, and the others.
const HITS: [&str; 2] = ["read_hit_pages", "read_ahead_hit_pages"];
const WAITS: [&str; 4] =
    ["read_partial_hit_pages", "read_miss_pages", "read_bypass_pages", "read_ahead_wait_pages"];

/// Work of a server, measured or predicted.
#[derive(Clone, Copy, Debug)]
struct Work {
    hit_percent: f64,
    /// Read operations of the store.
    reads: f64,
    read_bytes: f64,
    elapsed_s: Option<f64>,
}

impl Work {
    fn of(counters: &Value, elapsed_s: Option<f64>) -> Result<Self> {
        let sum = |names: &[&str]| names.iter().map(|it| number(counters, it)).sum::<Result<f64>>();
        let (hits, waits) = (sum(&HITS)?, sum(&WAITS)?);
        let hit_percent = 100.0 * hits / (hits + waits).max(1.0);
        let reads = number(counters, "store_reads")?;
        let read_bytes = number(counters, "store_read_bytes")?;
        Ok(Work { hit_percent, reads, read_bytes, elapsed_s })
    }
}

/// A workload on its disk, and its trace.
pub(super) struct Program<'a> {
    pub(super) workload: &'a Workload,
    pub(super) trace: &'a Path,
    pub(super) summary: TraceSummary,
    pub(super) disk: &'a Disk,
    pub(super) calibration: &'a Calibration,
    /// By depth.
    pub(super) own_times: Vec<OwnTimes>,
}

impl Program<'_> {
    /// Measures a combination, and simulates it.
    pub(super) fn compare(&self, env: &Env, combination: &Combination) -> Result<Compared> {
        let memory = combination.memory(self.summary.footprint_bytes);
        let depth = DEPTHS[combination.depth];
        let counters = env.file("counters.json");
        let common = combination.common();
        let mut options = format!("{common} --memory {memory} --counters {}", counters.display());
        // The requests of programs on a file system differ from run to run.
        let recorded = env.file("recorded.ltr");
        let is_direct = self.workload.is_direct();
        if !is_direct {
            let _was_there = std::fs::remove_file(&recorded);
            options += " --record ";
            options += recorded.to_str().context("a path that is no text")?;
        }
        let elapsed_s = self.workload.run(env, self.disk, &options, depth)?;
        let trace = if is_direct { self.trace } else { &recorded };
        let volume = read_volume(&counters)?;
        let size = memory_bytes(&volume)?;
        let predicted = self.simulate(env, combination, trace, size)?;
        let predicted_s = number(&predicted, ELAPSED)? / 1e9;
        Ok(Compared {
            name: format!(
                "{}, {:.1} MiB, {common}, depth {depth}",
                self.workload.name,
                to_f64(memory) / to_f64(MIB)
            ),
            depth,
            measured: Work::of(&volume["counters"], elapsed_s)?,
            predicted: Work::of(&predicted, elapsed_s.map(|_| predicted_s))?,
        })
    }

    fn simulate(
        &self,
        env: &Env,
        combination: &Combination,
        trace: &Path,
        size: u64,
    ) -> Result<Value> {
        let own_times = &self.own_times[combination.depth];
        let own = own_times.options(self.workload, DEPTHS[combination.depth]);
        let store = self.calibration.store(&own_times.store);
        let options = format!("--store {store} {} {own}", combination.common());
        simulate(env, trace, size, &options)
    }
}

/// A measured and a predicted run.
pub(super) struct Compared {
    name: String,
    pub(super) depth: u32,
    measured: Work,
    predicted: Work,
}

impl Compared {
    /// Returns the difference of the hit ratios in points.
    pub(super) fn points(&self) -> f64 {
        (self.predicted.hit_percent - self.measured.hit_percent).abs()
    }

    /// Returns the relative difference of the bytes that the store reads.
    pub(super) fn bytes_apart(&self) -> f64 {
        (self.predicted.read_bytes / self.measured.read_bytes.max(1.0) - 1.0).abs()
    }

    /// Returns the relative difference of the times.
    pub(super) fn time_apart(&self) -> Option<f64> {
        Some((self.predicted.elapsed_s? / self.measured.elapsed_s? - 1.0).abs())
    }

    pub(super) fn add_to(&self, record: &mut Record) {
        let Compared { name, predicted, measured, .. } = self;
        let both = |of: fn(&Work) -> f64| [of(predicted), of(measured)];
        record.series(&format!("{name}: hits"), "%", &both(|it| it.hit_percent), 2);
        record.series(&format!("{name}: reads"), "", &both(|it| it.reads), 0);
        record.series(&format!("{name}: read"), "B", &both(|it| it.read_bytes), 0);
        if predicted.elapsed_s.is_some() {
            let times = both(|it| it.elapsed_s.unwrap_or(0.0));
            record.series(&format!("{name}: time"), "s", &times, 2);
        }
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compared { name, predicted, measured, .. } = self;
        let mib = to_f64(MIB);
        write!(
            f,
            "{name}: hits {:.2} % / {:.2} %, {} / {} reads, {:.1} / {:.1} MiB",
            predicted.hit_percent,
            measured.hit_percent,
            predicted.reads,
            measured.reads,
            predicted.read_bytes / mib,
            measured.read_bytes / mib
        )?;
        if let (Some(predicted), Some(measured)) = (predicted.elapsed_s, measured.elapsed_s) {
            write!(f, ", {predicted:.2} / {measured:.2} s")?;
        }
        Ok(())
    }
}
