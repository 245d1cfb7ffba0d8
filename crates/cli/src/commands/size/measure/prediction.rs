//! Predicted hit ratios: simulations of the recorded requests.

use super::SizeRuns;
use super::trial::{Stopped, Trial};
use crate::args;
use crate::progress;
use crate::signals::Stop;
use anyhow::Result;
use larder_core::counters::Counter;
use larder_io::engine::MEMORY_BYTES_MIN;
use larder_lab::inputs::workload::RecordedWorkload;
use larder_lab::model::{DeviceRates, Latency, StoreModel};
use larder_lab::sim::engine::frames_of;
use larder_schema::measured::{MeasuredSizing, PredictedRun};
use std::sync::atomic::Ordering;

/// Adds predictions to the sizes. Returns the predicted hit ratio of a cache of twice the size of
/// all data.
pub(super) fn predict(
    workload: &RecordedWorkload,
    store: StoreModel,
    sizing: &mut MeasuredSizing,
    stop: &Stop,
) -> Result<f64> {
    let bar = progress::bar(sizing.sizes.len() as u64 + 1, "predicting [{bar:30}] {pos} of {len}");
    let simulate = |data_bytes: u64| {
        if stop.flag().load(Ordering::Acquire) {
            return Err(anyhow::Error::from(Stopped));
        }
        let totals = workload.simulate(frames_of(data_bytes), args::cores(), store)?;
        bar.inc(1);
        Ok(totals)
    };
    for size in &mut sizing.sizes {
        let totals = simulate(size.data_bytes)?;
        size.predicted = Some(PredictedRun {
            read_hit_ratio: totals.read_hit_ratio().unwrap_or(0.0),
            read_bytes: totals.get(Counter::StoreReadBytes),
            is_inside: false,
        });
    }
    let everything = (2 * workload.footprint_bytes()).max(MEMORY_BYTES_MIN);
    let reachable = simulate(everything)?.read_hit_ratio().unwrap_or(0.0);
    bar.finish_and_clear();
    Ok(reachable)
}

/// Returns a store whose operations take the mean time of those of the runs.
pub(super) fn store_model(measured: &[SizeRuns]) -> StoreModel {
    let mean = |times: fn(&Trial) -> (u64, u64)| {
        let trials = measured.iter().flat_map(|size| &size.trials);
        let (count, sum) =
            trials.map(times).fold((0, 0), |(n, s), (count, sum)| (n + count, s + sum));
        sum / count.max(1)
    };
    let (read, write) = (mean(|trial| trial.store_reads), mean(|trial| trial.store_writes));
    StoreModel::rated(DeviceRates {
        read_latency: Latency::constant(read),
        write_latency: Latency::constant(write),
        ..DeviceRates::fixed(read)
    })
}
