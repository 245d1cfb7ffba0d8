//! Charts of the HTML report of a run.

use crate::chart::plot::{Plot, count_f64, line_class};
use crate::chart::{Axis, Labels, Scale};
use crate::stats::{confidence_interval, median};
use larder_schema::format;
use larder_schema::run::Sample;
use larder_schema::run::trial::Latency;
use larder_schema::{as_f64, as_u64};

const WIDTH: f64 = 880.0;
/// Height of a bar with its margins, in pixels.
const ROW: f64 = 48.0;
/// Number of shades of a surface.
const SHADES: f64 = 7.0;
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
        "bytes" => Axis::new(title, "").labels(Labels::Bytes),
        _ => Axis::new(title, unit),
    }
}

/// Returns an axis for a coordinate of a group; logarithmic for a wide range.
fn coordinate_axis(name: &str, values: &[f64]) -> Axis {
    let (title, labels) = match name.strip_suffix("_bytes") {
        Some(title) => (title, Labels::Bytes),
        None => (name, Labels::Number),
    };
    let minimum = values.iter().copied().fold(f64::INFINITY, f64::min);
    let maximum = values.iter().copied().fold(0.0, f64::max);
    let axis = Axis::new(title.replace('_', " "), "").labels(labels);
    if minimum > 0.0 && maximum / minimum > LINEAR_MAX { axis.scale(Scale::Log2) } else { axis }
}

/// Draws a bar for each series of one unit, from 0 to the median, with interval and trials.
pub(super) fn bars(samples: &[&Sample]) -> String {
    let rows = count_f64(samples.len());
    let all: Vec<f64> = samples.iter().flat_map(|sample| &sample.values).copied().collect();
    let xs: Vec<f64> = all.iter().copied().chain([0.0]).collect();
    let nothing = Axis::new("", "").range(0.0, 1.0);
    let axis = value_axis("", &samples[0].unit);
    let mut plot = Plot::new((WIDTH, 70.0 + ROW * rows), axis, nothing, &xs, &[0.0]);
    plot.draw_x();
    let [_, _, top, _] = plot.ends();
    let zero = plot.x(0.0);
    for (number, sample) in samples.iter().enumerate() {
        let y = top + ROW * count_f64(number) + 30.0;
        let (middle, interval) = middle(sample);
        let label = format!("{}: {} {}", sample.series, format::number(middle), sample.unit);
        plot.rectangle("soft", (zero, plot.x(middle)), (y - 9.0, y + 9.0), &label);
        for value in &sample.values {
            plot.dot("trial", (plot.x(*value), y), &format::number(*value));
        }
        if let Some((low, high)) = interval {
            plot.stroke("error", (plot.x(low), y), (plot.x(high), y));
            for end in [low, high] {
                plot.stroke("error", (plot.x(end), y - 6.0), (plot.x(end), y + 6.0));
            }
        }
        plot.words("label", (zero, y - 14.0), "start", &sample.series);
    }
    let series: Vec<&str> = samples.iter().map(|sample| sample.series.as_str()).collect();
    plot.finish(&format!("Medians of {}", series.join(", ")))
}

/// Draws the values of the main series, one dot per trial.
pub(super) fn by_trial(sample: &Sample) -> String {
    let count = count_f64(sample.values.len());
    let x = Axis::new("trial", "").range(0.5, count + 0.5);
    let ys: Vec<f64> = sample.values.iter().copied().chain([0.0]).collect();
    let y = value_axis("", &sample.unit);
    let mut plot = Plot::new((WIDTH, 220.0), x, y, &[1.0, count], &ys);
    plot.draw_y();
    let [left, right, _, bottom] = plot.ends();
    let (middle, interval) = middle(sample);
    if let Some((low, high)) = interval {
        plot.rectangle("band", (left, right), (plot.y(low), plot.y(high)), "95 % interval");
    }
    plot.stroke("ceiling", (left, plot.y(middle)), (right, plot.y(middle)));
    for (number, value) in sample.values.iter().enumerate() {
        let trial = count_f64(number + 1);
        let label = format!("trial {}: {}", number + 1, format::number(*value));
        plot.dot("here", (plot.x(trial), plot.y(*value)), &label);
    }
    plot.words("axis", (f64::midpoint(left, right), bottom + 24.0), "middle", "trial");
    plot.finish(&format!("{} by trial", sample.series))
}

/// Draws a group with one coordinate, such as throughput over load, with a line at the stress
/// point.
pub(super) fn curve(name: &str, samples: &[&Sample], stress: Option<f64>) -> String {
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
    let ys: Vec<f64> = points.iter().map(|point| point.3).chain([0.0]).collect();
    let y = value_axis(name, &samples[0].unit);
    let mut plot = Plot::new((WIDTH, 360.0), coordinate_axis(&at, &xs), y, &xs, &ys);
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
    let highest = points.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|point| point.0);
    for (coordinate, middle, ..) in &points {
        let class = if highest == Some(*coordinate) { "point" } else { "here" };
        let label = format!("{at} {}: {}", format::number(*coordinate), format::number(*middle));
        plot.dot(class, (plot.x(*coordinate), plot.y(*middle)), &label);
    }
    plot.finish(&format!("{name} over {at}"))
}

/// Formats a number for a cell of the surface.
fn short_number(value: f64) -> String {
    if value < 1e6 { format::number(value) } else { format::short_count(as_u64(value)) }
}

/// Draws a group with two coordinates as a shaded map: the first by row, the second by column.
pub(super) fn surface(name: &str, samples: &[&Sample]) -> String {
    let keys: Vec<&String> = samples[0].at.keys().collect();
    let coordinates = |key: &String| -> Vec<f64> {
        let mut coordinates: Vec<f64> =
            samples.iter().filter_map(|sample| sample.at.get(key).copied()).collect();
        coordinates.sort_by(f64::total_cmp);
        coordinates.dedup_by(|a, b| a.total_cmp(b).is_eq());
        coordinates
    };
    let (rows, columns) = (coordinates(keys[0]), coordinates(keys[1]));
    let (row_axis, column_axis) = (coordinate_axis(keys[0], &[]), coordinate_axis(keys[1], &[]));
    let height = 60.0 + 26.0 * count_f64(rows.len());
    let range = |count: usize| Axis::new("", "").range(0.0, count_f64(count));
    let ends = |count: usize| [0.0, count_f64(count)];
    let mut plot = Plot::new(
        (WIDTH, height),
        range(columns.len()),
        range(rows.len()),
        &ends(columns.len()),
        &ends(rows.len()),
    );
    let [left, right, _, bottom] = plot.ends();
    let medians: Vec<f64> = samples.iter().map(|sample| middle(sample).0).collect();
    let maximum = medians.iter().copied().fold(0.0, f64::max);
    for (sample, value) in samples.iter().zip(&medians) {
        let coordinate = |coordinates: &[f64], key: &String| {
            let at = sample.at.get(key)?;
            coordinates.iter().position(|coordinate| coordinate.total_cmp(at).is_eq())
        };
        let (Some(row), Some(column)) = (coordinate(&rows, keys[0]), coordinate(&columns, keys[1]))
        else {
            continue;
        };
        let fraction = if maximum > 0.0 { (value / maximum).clamp(0.0, 1.0) } else { 0.0 };
        let shade = as_u64((fraction * SHADES).ceil().clamp(1.0, SHADES));
        let x = (plot.x(count_f64(column)) + 1.0, plot.x(count_f64(column + 1)) - 1.0);
        let y = (plot.y(count_f64(row + 1)) + 1.0, plot.y(count_f64(row)) - 1.0);
        let label = format!("{}: {} {}", sample.series, format::number(*value), sample.unit);
        plot.rectangle(&format!("h{shade}"), x, y, &label);
        let class = if fraction > 0.55 { "over-dark" } else { "cell" };
        let middle = (f64::midpoint(x.0, x.1), f64::midpoint(y.0, y.1) + 4.0);
        plot.words(class, middle, "middle", &short_number(*value));
    }
    for (row, value) in rows.iter().enumerate() {
        let y = f64::midpoint(plot.y(count_f64(row)), plot.y(count_f64(row + 1))) + 4.0;
        plot.words("mark", (left - 8.0, y), "end", &row_axis.label(*value));
    }
    for (column, value) in columns.iter().enumerate() {
        let x = f64::midpoint(plot.x(count_f64(column)), plot.x(count_f64(column + 1)));
        plot.words("mark", (x, bottom + 16.0), "middle", &column_axis.label(*value));
    }
    let across = f64::midpoint(left, right);
    let titles = format!("{} (up) by {} (across)", row_axis.title, column_axis.title);
    plot.words("axis", (across, height - 6.0), "middle", &titles);
    plot.finish(&format!("{name} by {titles}"))
}

/// Draws the cumulative distribution of response times.
pub(super) fn answer_times(latencies: &[Latency]) -> String {
    let x = Axis::new("answer time", "").labels(Labels::Duration).scale(Scale::Log2);
    let y = Axis::new("requests", "").labels(Labels::Percent).range(0.0, 1.0);
    let lines: Vec<(&str, Vec<(f64, f64)>)> = latencies
        .iter()
        .filter(|latency| latency.count() > 0)
        .map(|latency| (latency.what.as_str(), steps(latency)))
        .collect();
    let xs: Vec<f64> = lines.iter().flat_map(|(_, line)| line).map(|point| point.0).collect();
    let mut plot = Plot::new((WIDTH, 360.0), x, y, &xs, &[0.0, 1.0]);
    plot.draw_x();
    plot.draw_y();
    let [left, _, top, _] = plot.ends();
    for (number, (what, line)) in lines.iter().enumerate() {
        let class = line_class(number);
        plot.line(&class, line);
        let y = top + 18.0 + 20.0 * count_f64(number);
        plot.key(&class, (left + 12.0, y), what);
    }
    plot.finish("Share of requests by answer time")
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
        last.0 = last.0.min(as_f64(latency.max_ns)).max(1.0);
    }
    line
}
