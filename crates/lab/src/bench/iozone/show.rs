//! Notes below the tables of a result.

use super::mode::FLUSHED;
use larder_report::stats::Summary;
use larder_schema::format;
use larder_schema::run::{Run, Sample};

/// Describes the measurement, the spread of the trials, and the doubts; with `flushed` the rates of
/// writes include the flush.
#[must_use]
pub fn notes(run: &Run, flushed: bool) -> String {
    let trials = run.trials.len();
    let start = run.trials.first().map_or("as-is", |trial| trial.started.start.name());
    let flush = if flushed { "with" } else { "without" };
    let count = if trials == 1 { "one trial".to_owned() } else { format!("median of {trials}") };
    let spread = widest(run, flushed).map(|(series, half)| {
        format!("; at most +-{} around it ({series})", format::percent(half))
    });
    let doubts = run.doubts.iter().map(|doubt| format!("\nDoubtful because {}.\n", doubt.text));
    format!(
        "\nkB per second, {count}, start {start}, {flush} the flush of writes{}.\n{}",
        spread.unwrap_or_default(),
        doubts.collect::<Vec<_>>().concat()
    )
}

/// Returns the series whose trials differ most, and half of their range as a share of their median;
/// series with the flush in their time only if `flushed` is set. `None` if each has one trial.
pub(super) fn widest(run: &Run, flushed: bool) -> Option<(&str, f64)> {
    let spread = |sample: &Sample| {
        let it = Summary::of(&sample.values).filter(|_| sample.values.len() > 1)?;
        let half = (it.max - it.min) / 2.0 / it.median.abs();
        half.is_finite().then_some(half)
    };
    let spreads = run.samples.iter().filter(|it| flushed || !it.series.contains(FLUSHED));
    let spreads = spreads.filter_map(|it| Some((it.series.as_str(), spread(it)?)));
    spreads.max_by(|a, b| a.1.total_cmp(&b.1))
}
