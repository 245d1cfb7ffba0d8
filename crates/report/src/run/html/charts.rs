//! Charts of the HTML report of a run.

use super::super::verdict::series_name;
use super::grid::Grid;
use crate::chart::plot::{LINES_MAX, Plot, count_f64, line_class};
use crate::chart::{Axis, Labels, Scale};
use crate::quantity::{quantity, quantity_range};
use crate::stats::{confidence_interval, median};
use crate::try_verdict::NATIVE;
use larder_schema::as_f64;
use larder_schema::format;
use larder_schema::run::Sample;
use larder_schema::run::trial::Latency;

/// Height of a bar with its margins, in pixels.
const ROW: f64 = 48.0;
/// Maximum number of points of a line that have their values beside them.
const LABELS_MAX: usize = 12;
/// Height of a chart with labels, as a multiple of its highest value.
const HEADROOM: f64 = 1.1;
/// Maximum ratio of a linear axis for sizes and client counts; wider ranges use a logarithmic one.
const LINEAR_MAX: f64 = 8.0;

/// Returns the median, and its 95 % confidence interval if there is one.
fn middle(sample: &Sample) -> (f64, Option<(f64, f64)>) {
    let interval = confidence_interval(&sample.values);
    (median(&sample.values).unwrap_or(0.0), interval.map(|it| (it.low, it.high)))
}

/// Returns an axis for values of a unit.
fn value_axis(title: &str, unit: &str) -> Axis {
    match unit {
        "ns" => Axis::new(title, "").labels(Labels::Duration),
        "s" => Axis::new(title, "").labels(Labels::Seconds),
        "bytes" => Axis::new(title, "").labels(Labels::Bytes),
        "bytes/s" | "B/s" => Axis::new(title, "").labels(Labels::ByteRate),
        _ => Axis::new(title, unit),
    }
}

/// Returns the name of a coordinate for readers.
fn title(name: &str) -> String {
    match name.strip_suffix("_bytes") {
        Some(of) => format!("{} size", of.replace('_', " ")),
        None => name.replace('_', " "),
    }
}

/// Returns an axis for a coordinate of a group; logarithmic for a wide range.
fn coordinate_axis(name: &str, values: &[f64]) -> Axis {
    let labels = if name.ends_with("_bytes") {
        Labels::Bytes
    } else if values.iter().all(|value| value.fract() == 0.0) {
        Labels::Count
    } else {
        Labels::Number
    };
    let minimum = values.iter().copied().fold(f64::INFINITY, f64::min);
    let maximum = values.iter().copied().fold(0.0, f64::max);
    let axis = Axis::new(title(name), "").labels(labels);
    if minimum > 0.0 && maximum / minimum > LINEAR_MAX { axis.scale(Scale::Log2) } else { axis }
}

/// Draws a bar for each series of one unit, from 0 to the median, with interval and trials; without
/// an interval, a bar is only an outline. `note` returns words to add to the label of a series.
pub(super) fn bars(
    samples: &[&Sample],
    note: impl Fn(&Sample) -> Option<String>,
    width: f64,
) -> String {
    let rows = count_f64(samples.len());
    let all: Vec<f64> = samples.iter().flat_map(|sample| &sample.values).copied().collect();
    let xs: Vec<f64> = all.iter().copied().chain([0.0]).collect();
    let nothing = Axis::new("", "").range(0.0, 1.0);
    let axis = value_axis("", &samples[0].unit);
    let plot = Plot::new((width, 70.0 + ROW * rows), axis, nothing, &xs, &[0.0]);
    let mut plot = plot.without_names();
    plot.draw_x();
    let [_, right, top, _] = plot.ends();
    let (zero, mut labels) = (plot.x(0.0), Vec::new());
    for (number, sample) in samples.iter().enumerate() {
        let y = top + ROW * count_f64(number) + 30.0;
        let (middle, interval) = middle(sample);
        let shown = quantity(middle, &sample.unit);
        let class = match interval {
            None => "unsure",
            Some(_) if sample.series.starts_with(NATIVE) => "without",
            Some(_) => "soft",
        };
        plot.rectangle(class, (zero, plot.x(middle)), (y - 9.0, y + 9.0), &shown);
        for value in &sample.values {
            plot.dot("trial", (plot.x(*value), y), &quantity(*value, &sample.unit));
        }
        let name = format!("{}: {shown}", series_name(sample));
        let note = note(sample).map_or_else(String::new, |note| format!(", {note}"));
        let mut label = name.clone();
        if let Some((low, high)) = interval {
            plot.interval((low, high), y);
            put!(label, " ({})", quantity_range(low, high, &sample.unit));
        }
        label.push_str(&note);
        let text = Plot::fitting(right - zero, &[&label, &(name.clone() + &note), &name]);
        plot.words("label", (zero, y - 14.0), "start", &text);
        labels.push(label);
    }
    plot.finish(&format!("Medians: {}", labels.join("; ")))
}

/// Draws the values of the main series, one dot per trial.
pub(super) fn by_trial(sample: &Sample, width: f64) -> String {
    let count = count_f64(sample.values.len());
    let x = Axis::new("trial", "").range(0.5, count + 0.5);
    let ys: Vec<f64> = sample.values.iter().copied().chain([0.0]).collect();
    let y = value_axis("", &sample.unit);
    let mut plot = Plot::new((width, 220.0), x, y, &[1.0, count], &ys);
    plot.draw_y();
    let [left, right, _, bottom] = plot.ends();
    let (middle, interval) = middle(sample);
    if let Some((low, high)) = interval {
        plot.rectangle("band", (left, right), (plot.y(low), plot.y(high)), "95 % interval");
    }
    plot.stroke("ceiling", (left, plot.y(middle)), (right, plot.y(middle)));
    for (number, value) in sample.values.iter().enumerate() {
        let trial = count_f64(number + 1);
        let label = format!("trial {}: {}", number + 1, quantity(*value, &sample.unit));
        plot.dot("here", (plot.x(trial), plot.y(*value)), &label);
    }
    plot.words("axis", (f64::midpoint(left, right), bottom + 24.0), "middle", "trial");
    plot.finish(&format!(
        "{} by trial, around {}",
        series_name(sample),
        quantity(middle, &sample.unit)
    ))
}

/// Draws a group with one coordinate, such as throughput over load, with a line at the stress
/// point.
pub(super) fn curve(name: &str, samples: &[&Sample], stress: Option<f64>, width: f64) -> String {
    let at = samples[0].at.keys().next().cloned().unwrap_or_default();
    let mut points: Vec<(f64, f64, f64, f64)> = samples
        .iter()
        .filter_map(|sample| {
            let (middle, interval) = middle(sample);
            let (low, high) = interval.unwrap_or((middle, middle));
            Some((*sample.at.get(&at)?, middle, low, high))
        })
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let xs: Vec<f64> = points.iter().map(|point| point.0).collect();
    let highest = points.iter().map(|point| point.3).fold(0.0, f64::max);
    let ys = [0.0, highest * HEADROOM];
    let y = value_axis(name, &samples[0].unit);
    let mut plot = Plot::new((width, 360.0), coordinate_axis(&at, &xs), y, &xs, &ys);
    plot.draw_x();
    plot.draw_y();
    let line = |pick: fn(&(f64, f64, f64, f64)) -> f64| -> Vec<(f64, f64)> {
        points.iter().map(|point| (point.0, pick(point))).collect()
    };
    plot.band("band", &line(|point| point.2), &line(|point| point.3));
    if let Some(clients) = stress {
        let (x, [_, right, top, bottom]) = (plot.x(clients), plot.ends());
        plot.stroke("ceiling", (x, top), (x, bottom));
        // Next to the line, on the side with enough space.
        let (x, anchor) = if x + 90.0 < right { (x + 6.0, "start") } else { (x - 6.0, "end") };
        plot.words("mark", (x, bottom - 8.0), anchor, "stress point");
    }
    plot.line("best", &line(|point| point.1));
    let positions: Vec<_> = points.iter().map(|point| (plot.x(point.0), plot.y(point.1))).collect();
    for (number, (_, middle, ..)) in points.iter().enumerate() {
        let label = quantity(*middle, &samples[0].unit);
        plot.dot("here", positions[number], &label);
        if points.len() <= LABELS_MAX {
            let before = number.checked_sub(1).map(|before| positions[before]);
            let after = positions.get(number + 1).copied();
            plot.label_beside(positions[number], [before, after], &label);
        }
    }
    plot.finish(&format!("{name} over {}", title(&at)))
}

/// Returns the columns of a grid that have a line, with its number: columns at equal distances,
/// which are the same in all grids of a run, and the one with the highest median.
pub(super) fn shown_columns(grid: &Grid<'_>) -> Vec<(usize, usize)> {
    let count = grid.columns.len();
    let step = if count <= LINES_MAX { 1 } else { count.div_ceil(LINES_MAX - 1) };
    let highest = |column: usize| {
        grid.medians.iter().filter_map(|row| row[column]).fold(f64::NEG_INFINITY, f64::max)
    };
    let mut shown: Vec<_> = (0..count).step_by(step).enumerate().collect();
    let best = (0..count).max_by(|a, b| highest(*a).total_cmp(&highest(*b)));
    if let Some(best) = best.filter(|best| best % step != 0) {
        shown.push((LINES_MAX - 1, best));
    }
    shown.sort_by_key(|(_, column)| *column);
    shown
}

/// Draws a group with two coordinates as lines over the first, one for each value of the second,
/// with the value of the highest point.
/// Returns the chart, and the class and name of each line.
pub(super) fn lines(name: &str, grid: &Grid<'_>, width: f64) -> (String, Vec<(String, String)>) {
    let highest = grid.medians.iter().flatten().flatten().copied().fold(0.0, f64::max);
    // The label of the highest point has room above it.
    let ys = [0.0, highest * HEADROOM];
    let y = value_axis(name, grid.unit);
    let x = coordinate_axis(grid.names[0], &grid.rows);
    let mut plot = Plot::new((width, 340.0), x, y, &grid.rows, &ys);
    plot.draw_x();
    plot.draw_y();
    let (mut keys, mut highest) = (Vec::new(), (0.0, 0.0));
    for (number, column) in shown_columns(grid) {
        let class = line_class(number);
        let value = |row: usize| Some((grid.rows[row], grid.medians[row][column]?));
        let points: Vec<_> = (0..grid.rows.len()).map(value).collect();
        // No line leads through a value that was not measured.
        for points in points.split(Option::is_none) {
            plot.line(&class, &points.iter().flatten().copied().collect::<Vec<_>>());
        }
        for point in points.into_iter().flatten() {
            let label = quantity(point.1, grid.unit);
            plot.dot(&class, (plot.x(point.0), plot.y(point.1)), &label);
            highest = if point.1 > highest.1 { point } else { highest };
        }
        keys.push((class, grid.column_name(column)));
    }
    let at = (plot.x(highest.0), plot.y(highest.1));
    plot.label_beside(at, [None; 2], &quantity(highest.1, grid.unit));
    let [over, each] = grid.names.map(title);
    (plot.finish(&format!("{name} over {over}, a line for each {each}")), keys)
}

/// Draws the cumulative distribution of response times, with room for the slowest. Returns the
/// chart, and the class and name of each line.
pub(super) fn latency_distribution(
    latencies: &[Latency],
    width: f64,
) -> (String, Vec<(String, String)>) {
    let x = Axis::new("latency", "").labels(Labels::Duration).scale(Scale::Log2);
    let count = latencies.iter().map(Latency::count).max().unwrap_or(0);
    let y = Axis::new("requests", "").labels(Labels::Percent).scale(Scale::Tail);
    let y = y.range(0.0, share_of_slowest(count));
    let lines: Vec<(&str, Vec<(f64, f64)>)> = latencies
        .iter()
        .filter(|latency| latency.count() > 0)
        .map(|latency| (latency.what.as_str(), steps(latency)))
        .collect();
    let xs: Vec<f64> = lines.iter().flat_map(|(_, line)| line).map(|point| point.0).collect();
    let mut plot = Plot::new((width, 360.0), x, y, &xs, &[0.0]);
    plot.draw_x();
    plot.draw_y();
    let mut keys = Vec::new();
    for (number, (what, line)) in lines.iter().enumerate() {
        let class = line_class(number);
        plot.line(&class, line);
        keys.push((class, (*what).to_owned()));
    }
    let median = latencies.iter().filter_map(|it| Some((it, it.quantile_ns(0.5)?)));
    let median = median.map(|(it, ns)| format!("{} {}", it.what, format::duration(ns)));
    let medians: Vec<String> = median.collect();
    let text = format!("Share of requests by latency; medians: {}", medians.join(", "));
    (plot.finish(&text), keys)
}

fn steps(latency: &Latency) -> Vec<(f64, f64)> {
    let count = as_f64(latency.count());
    let mut seen = 0;
    let mut line = Vec::with_capacity(latency.buckets.len());
    for (middle, many) in &latency.buckets {
        seen += many;
        line.push((as_f64(*middle), as_f64(seen) / count));
    }
    // The last bucket ends at the exact maximum.
    if let Some(last) = line.last_mut() {
        let slowest = last.0.min(as_f64(latency.max_ns)).max(1.0);
        *last = (slowest, share_of_slowest(latency.count()));
    }
    line
}

/// Returns the share at which the slowest of `count` requests is drawn: the middle of the last
/// step, since the axis has no place for 1.
fn share_of_slowest(count: u64) -> f64 {
    1.0 - 0.5 / as_f64(count.max(1))
}
