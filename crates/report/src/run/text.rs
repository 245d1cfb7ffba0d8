//! Text rendering of a run, and CSV.

use super::parts::parts_table;
use super::stress::stress_in_words;
use crate::doubts::doubts_in_words;
use crate::escape;
use crate::stats::{Summary, confidence_interval, median};
use crate::table::{Cell, Column, Field, Table};
use larder_schema::format;
use larder_schema::run::trial::{Latency, Start};
use larder_schema::run::{Machine, Run, Sample};

/// Explanation below a table of medians.
pub(super) const SPREAD: &str = "+- is half the way from the smallest to the largest trial.";

/// Describes the machine in one line.
#[must_use]
pub(super) fn in_words(machine: &Machine) -> String {
    let parts = [
        machine.cpu.clone(),
        format::counted(machine.cores.into(), "core"),
        format::bytes(machine.memory_bytes),
        format!("Linux {}", machine.kernel),
        machine.distribution.clone(),
    ];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    escape::line(&parts.join(", ")).into_owned()
}

/// Returns each series with its median, 95 % confidence interval and range.
pub(super) fn series_table<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Table {
    let fields = [
        Field::word("series", "series", |it: &Sample| &it.series),
        Field::word("unit", "unit", |it| &it.unit),
        Field::count("trials", "trials", |it| it.values.len() as u64),
        Field::number("median", "median", |it| median(&it.values)),
        Field::number("low", "from", |it| Some(confidence_interval(&it.values)?.low)),
        Field::number("high", "to", |it| Some(confidence_interval(&it.values)?.high)),
        Field::number("min", "min", |it| Some(Summary::of(&it.values)?.min)),
        Field::number("max", "max", |it| Some(Summary::of(&it.values)?.max)),
    ];
    Table::of("", samples, fields)
}

/// Returns the response times of all trials combined, by request type.
#[must_use]
pub fn latencies(run: &Run) -> Vec<Latency> {
    let mut sums: Vec<Latency> = Vec::new();
    for latency in run.trials.iter().flat_map(|trial| &trial.latencies) {
        match sums.iter_mut().find(|sum| sum.what == latency.what) {
            Some(sum) => sum.add(latency),
            None => sums.push(latency.clone()),
        }
    }
    sums
}

/// Returns the response times as a table.
pub(super) fn latency_table(run: &Run) -> Table {
    let fields = [
        Field::word("what", "latency", |it: &Latency| &it.what),
        Field::count("count", "count", Latency::count),
        Field::duration("mean_ns", "mean", Latency::mean_ns),
        Field::duration("p50_ns", "p50", |it| it.quantile_ns(0.5)),
        Field::duration("p90_ns", "p90", |it| it.quantile_ns(0.9)),
        Field::duration("p99_ns", "p99", |it| it.quantile_ns(0.99)),
        Field::duration("p999_ns", "p99.9", |it| it.quantile_ns(0.999)),
        Field::duration("max_ns", "max", |it| it.max_ns),
    ];
    Table::of("", &latencies(run), fields)
}

/// Describes the start states of the trials in one sentence; empty in runs without trials.
#[must_use]
pub fn starts_in_words(run: &Run) -> String {
    let started = started_in_words(run);
    match run.set_aside {
        0 => started,
        1 => format!("{started} One more was set aside: the machine was slower during it."),
        many => format!("{started} {many} more were set aside: the machine was slower then."),
    }
}

fn started_in_words(run: &Run) -> String {
    let Some(first) = run.trials.first() else { return String::new() };
    let files = format::counted(first.started.files, "file");
    let pages = first.started.pages.map(format::count);
    let trials = format::counted(run.trials.len() as u64, "trial");
    match (first.started.start, pages) {
        (start, Some(_)) if first.started.files == 0 => {
            format!("{trials}, started {}: no file of the workload was there before.", start.name())
        }
        (Start::Cold, Some(pages)) => format!(
            "{trials} from a cold start: before each, none of {pages} pages of {files} \
             was in memory, as the kernel confirmed."
        ),
        (Start::Warm, Some(pages)) => format!(
            "{trials} from a warm start: before each, all of {pages} pages of {files} \
             were in memory, as the kernel confirmed."
        ),
        (start, None) => {
            format!("{trials}, started {}: what was in memory cannot be known.", start.name())
        }
        (Start::AsIs, Some(_)) => {
            let shares = run.trials.iter().filter_map(|trial| trial.started.share());
            let (least, most) = shares.fold((1.0_f64, 0.0_f64), |(least, most), share| {
                (least.min(share), most.max(share))
            });
            let (least, most) = (format::percent(least.min(most)), format::percent(most));
            let share = if least == most { most } else { format!("{least} to {most}") };
            format!("{trials}, started as-is: {share} of {files} was in memory.")
        }
    }
}

/// Renders the run as text.
#[must_use]
pub fn to_text(run: &Run) -> String {
    let (what, started_at) = (escape::line(&run.what), escape::line(&run.started_at));
    let mut text = format!("{what}\n{started_at}, {}\n", in_words(&run.machine));
    let starts = starts_in_words(run);
    if !starts.is_empty() {
        put_line!(text, "{starts}");
    }
    if !run.is_gathered() {
        put!(text, "\n{}", series_table(&run.samples).to_text());
    }
    if !run.parts.is_empty() {
        put!(text, "\n{}Medians; {SPREAD}\n", parts_table(run).to_text());
    }
    if !run.verdict.is_empty() {
        put_line!(text, "\n{}", escape::line(&run.verdict));
    }
    if run.trials.iter().any(|trial| !trial.latencies.is_empty()) {
        put!(text, "\n{}", latency_table(run).to_text());
    }
    if let Some(stress) = stress_in_words(run) {
        put_line!(text, "\n{stress}");
    }
    for comparison in &run.comparisons {
        put_line!(
            text,
            "\n{}: {} of {} ({} to {}), {} required: {}",
            escape::line(&comparison.what),
            format::times(comparison.ratio_median),
            escape::text(&comparison.theirs),
            format::times(comparison.ratio_min),
            format::times(comparison.ratio_max),
            format::times(comparison.required),
            if comparison.holds { "holds" } else { "does not hold" }
        );
    }
    text.push_str(&doubts_in_words("Doubtful", run.doubts.iter().map(|doubt| &doubt.text)));
    text
}

/// Renders every value of every series as a CSV line, with its trial.
#[must_use]
pub fn to_csv(run: &Run) -> String {
    let columns = ["series", "unit", "trial", "start", "value"].map(|key| Column::words(key, ""));
    let mut table = Table::new("", columns);
    for sample in &run.samples {
        for (number, value) in sample.values.iter().enumerate() {
            let start = run.trials.get(number).map(|trial| trial.started.start.name());
            table.push([
                Cell::word(&sample.series),
                Cell::word(&sample.unit),
                Cell::count(number as u64 + 1),
                start.map_or_else(Cell::missing, Cell::word),
                Cell::number(*value),
            ]);
        }
    }
    table.to_csv()
}
