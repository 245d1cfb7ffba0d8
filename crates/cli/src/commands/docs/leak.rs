//! The chart of a leak: the recorded run of `cargo xtask prove leak`.

use anyhow::{Context, Result, bail};
use larder_report::chart::{Axis, Chart};
use larder_schema::run::Run;

/// The recorded run, relative to the root of the repository.
const RECORD: &str = "bench-runs/leak.json";

/// Returns the chart as SVG.
pub(super) fn chart() -> Result<String> {
    let text = std::fs::read_to_string(RECORD).with_context(|| format!("read {RECORD}"))?;
    let run = Run::from_json(&text).with_context(|| format!("read {RECORD}"))?;
    let Some((time, series)) = run.samples.split_first() else { bail!("{RECORD} has no samples") };
    let mut chart = Chart::new(
        "A process leaks memory, and no more than 640 MiB are there",
        Axis::new("time", "s"),
        Axis::new("memory", "MiB"),
    );
    for sample in series {
        chart.line(&sample.series, time.values.iter().copied().zip(sample.values.iter().copied()));
    }
    chart.to_svg(900, 420).context("draw the chart")
}
