//! Charts of the HTML report of `larder size`.

use super::super::server;
use super::super::text::{as_pair, curve_policy};
use crate::chart::plot::{Plot, count_f64};
use crate::chart::{Axis, Labels, Scale};
use larder_schema::format;
use larder_schema::sizing::{BestPoint, Effect, PolicyCurve, Sizing};
use larder_schema::{as_f64, as_u64};

/// Number of shades of the heat map.
const SHADES: f64 = 7.0;

fn sizes_axis(title: &str) -> Axis {
    Axis::new(title, "").labels(Labels::Bytes)
}

fn hits_axis() -> Axis {
    Axis::new("hit ratio", "").labels(Labels::Percent)
}

/// Draws the hit ratio by size, with regions and confidence band; `has_key` includes the key.
pub(super) fn curve_chart(sizing: &Sizing, width: f64, has_key: bool) -> String {
    let points: Vec<(f64, f64)> =
        sizing.curve.iter().map(|b| as_pair(b.point.bytes, b.point.hit_ratio)).collect();
    let low: Vec<_> = sizing.curve.iter().map(|b| as_pair(b.point.bytes, b.point.low)).collect();
    let high: Vec<_> = sizing.curve.iter().map(|b| as_pair(b.point.bytes, b.point.high)).collect();
    let (xs, _): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    // The axis includes half and twice the recommended size, even beyond the end of the curve.
    let effect_sizes = sizing.effects.iter().map(|effect| as_f64(effect.point.bytes));
    let xs: Vec<f64> = xs.into_iter().chain(effect_sizes).collect();
    let ys: Vec<f64> = high.iter().map(|(_, y)| *y).chain([0.0, sizing.workload.ceiling]).collect();
    let x_axis = sizes_axis("size of the cache").scale(Scale::Log2);
    let title = server::hits_title(sizing);
    let y_axis = Axis::new(title, "").labels(Labels::Percent);
    let mut plot = Plot::new((width, 420.0), x_axis, y_axis, &xs, &ys);
    draw_regions(sizing, &mut plot);
    plot.draw_x();
    plot.draw_y();
    let [left, right, ..] = plot.ends();
    let ceiling = plot.y(sizing.workload.ceiling);
    plot.stroke("ceiling", (left, ceiling), (right, ceiling));
    plot.band("band", &low, &high);
    let lru_points = lru_beside(sizing).map(|lru| {
        let points = lru.points.points().iter();
        points.map(|point| as_pair(point.bytes, point.hit_ratio)).collect::<Vec<_>>()
    });
    if let Some(points) = &lru_points {
        plot.line("other", points);
    }
    plot.line("best", &points);
    draw_effects(sizing, &mut plot);
    name_regions(sizing, &mut plot);
    if has_key {
        draw_key(sizing, &mut plot, &points, lru_points.as_deref().unwrap_or(&points));
    }
    plot.finish(&curve_label(sizing))
}

/// Returns the curve of LRU, unless the main curve is that of LRU itself.
fn lru_beside(sizing: &Sizing) -> Option<&PolicyCurve> {
    let is_main = curve_policy(sizing) == Some("lru");
    sizing.policies.iter().find(|curve| curve.policy == "lru" && !is_main)
}

/// Returns the key of [`curve_chart`]: the class and the name of each line and dot.
pub(super) fn curve_key(sizing: &Sizing) -> Vec<(String, String)> {
    let key = |class: &str, name: &str| (class.to_owned(), name.to_owned());
    let mut keys = vec![key("best", curve_policy(sizing).unwrap_or("best policy at each size"))];
    keys.extend(lru_beside(sizing).map(|lru| key("other", &lru.policy)));
    keys.push(key("ceiling", "reachable"));
    keys.extend(sizing.recommendation.as_ref().map(|advice| {
        key("point", &format!("{} at half, once and twice the recommended size", advice.policy))
    }));
    let bound = sizing.min_hit_ratio.filter(|_| !server::is_searched(sizing));
    keys.extend(bound.map(|_| key("bound", "MIN, the bound")));
    keys
}

/// Width of the line or dot before a name in the key, in pixels.
const KEY_LINE_WIDTH: f64 = 34.0;

/// Draws the key in the larger space at the left: above the best curve, or below the lowest.
fn draw_key(sizing: &Sizing, plot: &mut Plot, best: &[(f64, f64)], lowest: &[(f64, f64)]) {
    let [left, _, _, bottom] = plot.ends();
    let (begin, keys) = (left + 12.0, curve_key(sizing));
    let widths = keys.iter().map(|(_, name)| KEY_LINE_WIDTH + Plot::text_width(name));
    let end = begin + widths.fold(0.0, f64::max);
    let beside_key = |points: &[(f64, f64)]| -> Vec<f64> {
        points.iter().filter(|point| plot.x(point.0) <= end).map(|point| point.1).collect()
    };
    let best = beside_key(best).into_iter().fold(0.0, f64::max);
    let lowest = beside_key(lowest).into_iter().fold(best, f64::min);
    let is_above = sizing.workload.ceiling - best > lowest;
    let top = if is_above {
        plot.y(sizing.workload.ceiling) + 24.0
    } else {
        bottom - 60.0 - 20.0 * count_f64(keys.len())
    };
    for (row, (class, name)) in keys.iter().enumerate() {
        let at = (begin, top + 20.0 * count_f64(row));
        if matches!(class.as_str(), "point" | "bound") {
            plot.dot(class, (at.0 + 13.0, at.1), "");
            plot.words("mark", (at.0 + KEY_LINE_WIDTH, at.1 + 4.0), "start", name);
        } else {
            plot.key(class, at, name);
        }
    }
}

/// Returns the sentence that describes the curve to a screen reader.
fn curve_label(sizing: &Sizing) -> String {
    let ends = sizing.curve.first().zip(sizing.curve.last());
    let Some((first, last)) = ends else { return "There is no curve".to_owned() };
    let point = |best: &BestPoint| {
        format!("{} at {}", format::percent(best.point.hit_ratio), format::bytes(best.point.bytes))
    };
    let recommended = sizing.recommended().map_or_else(String::new, |effect| {
        let (hits, size) = (effect.point.hit_ratio, effect.point.bytes);
        format!("; the recommended {} hit {}", format::bytes(size), format::percent(hits))
    });
    format!("The hit ratio rises from {} to {}{recommended}", point(first), point(last))
}

/// Draws the recommended size, half and twice of it, and the bound.
fn draw_effects(sizing: &Sizing, plot: &mut Plot) {
    let [left, right, top, bottom] = plot.ends();
    for effect in &sizing.effects {
        let x = plot.x(as_f64(effect.point.bytes));
        let class = if effect.what == "recommended" { "chosen" } else { "beside" };
        plot.stroke(class, (x, top), (x, bottom));
        let at = (x, plot.y(effect.point.hit_ratio));
        plot.dot("point", at, &effect_text(effect));
    }
    let Some(effect) = sizing.recommended() else { return };
    let x = plot.x(as_f64(effect.point.bytes));
    if let Some(min) = sizing.min_hit_ratio.filter(|_| !server::is_searched(sizing)) {
        let title = format!("MIN, the bound: {}", format::percent(min));
        plot.dot("bound", (x, plot.y(min)), &title);
    }
    // Text comes after the lines, which would cross it.
    let (dx, anchor) = if x > f64::midpoint(left, right) { (-8.0, "end") } else { (8.0, "start") };
    let room = (x - left).max(right - x) - 8.0;
    let size = format::bytes(effect.point.bytes);
    let text = Plot::fitting(room, &[&effect_text(effect), &size]);
    plot.words("mark", (x + dx, bottom - 40.0), anchor, &text);
}

/// Width below which a region counts as empty and has no name, in pixels.
const EMPTY: f64 = 1.0;
/// Width of the name of a region, in pixels.
const NAME_WIDTH: f64 = 60.0;
/// Width of a plane that has space for names beside their regions, in pixels.
const ROOMY: f64 = 400.0;

/// A region of the curve: its class, ends in pixels, and name.
type RegionBounds = (&'static str, f64, f64, &'static str);

/// Returns the bounds of the regions, without region 1 if it was not measured.
fn region_bounds(sizing: &Sizing, plot: &Plot) -> Vec<RegionBounds> {
    let Some(regions) = &sizing.regions else { return Vec::new() };
    let [left, right, ..] = plot.ends();
    let steep = plot.x(as_f64(regions.steep_end_bytes));
    let flat = plot.x(as_f64(regions.flat_begin_bytes));
    let mut bounds = vec![("useful", steep, flat, "2 useful"), ("flat", flat, right, "3 flat")];
    if regions.steep_seen {
        bounds.insert(0, ("steep", left, steep, "1 steep"));
    }
    bounds
}

fn draw_regions(sizing: &Sizing, plot: &mut Plot) {
    let [_, _, top, bottom] = plot.ends();
    for (class, from, to, title) in region_bounds(sizing, plot) {
        plot.rectangle(class, (from, to), (top, bottom), title);
    }
}

/// Writes the name of each region, over the lines of the chart.
fn name_regions(sizing: &Sizing, plot: &mut Plot) {
    let [left, right, _, bottom] = plot.ends();
    for (_, from, to, title) in region_bounds(sizing, plot) {
        let y = bottom - 12.0;
        // On a narrow screen there is no space beside a narrow region.
        let is_unnamed = to - from < EMPTY || (to - from <= NAME_WIDTH && right - left < ROOMY);
        if is_unnamed {
            continue;
        }
        if to - from > NAME_WIDTH {
            plot.words("region", (f64::midpoint(from, to), y), "middle", title);
        } else if from - left > right - to {
            plot.words("region", (from - 4.0, y), "end", &format!("{title} \u{2192}"));
        } else {
            plot.words("region", (to + 4.0, y), "start", &format!("\u{2190} {title}"));
        }
    }
}

/// Draws all policies at the three sizes.
pub(super) fn policies_chart(sizing: &Sizing, width: f64) -> String {
    let Some(recommended) = sizing.recommended() else { return String::new() };
    let rows = recommended.policies.len();
    let compared = compared_effects(sizing);
    let all = compared.iter().flat_map(|effect| &effect.policies);
    let (mut minimum, mut maximum) = (f64::INFINITY, 0.0_f64);
    for one in all {
        minimum = minimum.min(one.low);
        maximum = maximum.max(one.high);
    }
    let height = 62.0 + 24.0 * count_f64(rows);
    let nothing = Axis::new("", "").range(0.0, 1.0);
    let mut plot =
        Plot::new((width, height), hits_axis(), nothing, &[minimum.min(maximum), maximum], &[0.0]);
    plot.draw_x();
    let [left, _, top, _] = plot.ends();
    for (row, policy) in recommended.policies.iter().enumerate() {
        let y = top + 14.0 + 24.0 * count_f64(row);
        plot.words("label", (left - 10.0, y + 4.0), "end", &policy.policy);
        let found: Vec<_> = compared
            .iter()
            .filter_map(|&effect| {
                let one = effect.policies.iter().find(|one| one.policy == policy.policy)?;
                Some((effect, one))
            })
            .collect();
        let positions: Vec<f64> = found.iter().map(|(_, one)| plot.x(one.hit_ratio)).collect();
        let from = positions.iter().copied().fold(f64::INFINITY, f64::min);
        let to = positions.iter().copied().fold(0.0, f64::max);
        plot.stroke("range", (from, y), (to, y));
        for ((effect, one), x) in found.iter().zip(&positions) {
            plot.stroke("error", (plot.x(one.low), y), (plot.x(one.high), y));
            let title = format!(
                "{} at {}: {}",
                one.policy,
                format::bytes(effect.point.bytes),
                format::percent(one.hit_ratio)
            );
            plot.dot(dot_class(effect), (*x, y), &title);
        }
    }
    plot.finish("Hit ratios of all policies at half, once and twice the recommended size")
}

/// Returns the key of [`policies_chart`]: the class and the size of each kind of dot.
pub(super) fn policies_key(sizing: &Sizing) -> Vec<(String, String)> {
    let entry = |effect: &Effect| {
        let size = format!("{}: {}", effect.what, format::bytes(effect.point.bytes));
        (dot_class(effect).to_owned(), size)
    };
    compared_effects(sizing).into_iter().map(entry).collect()
}

/// Returns the sizes at which all policies of the chart were simulated.
pub(super) fn compared_effects(sizing: &Sizing) -> Vec<&Effect> {
    let rows = sizing.recommended().map_or(0, |it| it.policies.len());
    sizing.effects.iter().filter(|effect| effect.policies.len() == rows).collect()
}

fn dot_class(effect: &Effect) -> &'static str {
    match effect.what.as_str() {
        "half" => "half",
        "twice" => "twice",
        _ => "here",
    }
}

/// Returns the horizontal axis of the charts over time, and its end.
fn time_axis(sizing: &Sizing) -> (Axis, f64) {
    match sizing.workload.duration_ns {
        Some(duration) if duration >= 600_000_000_000 => {
            (Axis::new("time", "min"), as_f64(duration) / 60e9)
        }
        Some(duration) if duration >= 1_000_000_000 => {
            (Axis::new("time", "s"), as_f64(duration) / 1e9)
        }
        Some(duration) => (Axis::new("time", "ms"), as_f64(duration) / 1e6),
        None => (Axis::new("requests", ""), as_f64(sizing.workload.requests)),
    }
}

/// Draws a bar for each time slice.
fn bars(
    (sizing, width): (&Sizing, f64),
    y: Axis,
    values: &[f64],
    line: Option<f64>,
    label: impl Fn(f64) -> String,
) -> String {
    let (x_axis, end) = time_axis(sizing);
    let title = y.title.clone();
    let ys: Vec<f64> = values.iter().copied().chain([0.0]).chain(line).collect();
    let mut plot = Plot::new((width, 240.0), x_axis.range(0.0, end), y, &[0.0, end], &ys);
    plot.draw_y();
    plot.draw_x();
    let [_, _, _, bottom] = plot.ends();
    let step = end / count_f64(values.len().max(1));
    for (number, value) in values.iter().enumerate().filter(|(_, value)| **value > 0.0) {
        let from = plot.x(step * count_f64(number)) + 0.5;
        let to = (plot.x(step * count_f64(number + 1)) - 0.5).max(from + 0.5);
        let class = if line.is_some_and(|line| *value > line) { "over" } else { "bar" };
        plot.rectangle(class, (from, to), (plot.y(*value), bottom), &label(*value));
    }
    draw_limit(&mut plot, line);
    plot.finish(&title)
}

/// Draws the distinct data of each slice.
pub(super) fn working_set_chart(sizing: &Sizing, width: f64) -> String {
    let page = f64::from(sizing.workload.page_bytes);
    let values: Vec<f64> = sizing.slices.iter().map(|slice| as_f64(slice.pages) * page).collect();
    let line = sizing.recommendation.as_ref().map(|advice| as_f64(advice.bytes));
    bars((sizing, width), sizes_axis("working set"), &values, line, |value| {
        format::bytes(as_u64(value))
    })
}

/// Draws the references of each slice.
pub(super) fn load_chart(sizing: &Sizing, width: f64) -> String {
    let values: Vec<f64> = sizing.slices.iter().map(|slice| as_f64(slice.references)).collect();
    let label = |value: f64| format!("{} references", format::count(as_u64(value)));
    bars((sizing, width), Axis::new("references", "pages"), &values, None, label)
}

/// Draws the required size of each window.
pub(super) fn windows_chart(sizing: &Sizing, width: f64) -> String {
    let needs: Vec<f64> =
        sizing.windows.iter().map(|window| as_f64(window.needed_bytes.unwrap_or(0))).collect();
    let line = sizing.recommendation.as_ref().map(|advice| as_f64(advice.bytes));
    let count = count_f64(sizing.windows.len());
    let ys: Vec<f64> = needs.iter().copied().chain([0.0]).chain(line).collect();
    let x_axis = Axis::new("part of the trace", "").range(0.0, count);
    let mut plot = Plot::new((width, 240.0), x_axis, sizes_axis("needs"), &[0.0, count], &ys);
    plot.draw_y();
    let [left, right, _, bottom] = plot.ends();
    plot.words("axis", (f64::midpoint(left, right), bottom + 40.0), "middle", "part of the trace");
    for (number, need) in needs.iter().enumerate() {
        let (from, to) = (plot.x(count_f64(number)) + 6.0, plot.x(count_f64(number + 1)) - 6.0);
        let class = if line.is_some_and(|line| *need > line) { "over" } else { "bar" };
        let title = format::bytes(as_u64(*need));
        plot.rectangle(class, (from, to), (plot.y(*need), bottom), &title);
        let middle = f64::midpoint(from, to);
        plot.words("mark", (middle, bottom + 18.0), "middle", &(number + 1).to_string());
    }
    draw_limit(&mut plot, line);
    plot.finish("What each part of the trace needs")
}

/// Draws addresses over time; adjacent cells of the same shade form one rectangle.
pub(super) fn heat_chart(sizing: &Sizing, width: f64) -> String {
    let (x_axis, end) = time_axis(sizing);
    let rows = sizing.heat.rows.len().max(1);
    let columns = sizing.heat.rows.first().map_or(1, Vec::len).max(1);
    let y_axis = Axis::new("address", "").range(0.0, count_f64(rows));
    let height = (count_f64(rows) * 8.0).max(200.0) + 60.0;
    let ys = [0.0, count_f64(rows)];
    let mut plot = Plot::new((width, height), x_axis.range(0.0, end), y_axis, &[0.0, end], &ys);
    let [left, right, top, bottom] = plot.ends();
    let maximum = sizing.heat.rows.iter().flatten().copied().max().unwrap_or(0);
    let shade = |count: u64| {
        let part = (as_f64(count) + 1.0).ln() / (as_f64(maximum) + 1.0).ln();
        as_u64((part * SHADES).ceil().min(SHADES))
    };
    let x = |column: usize| left + (right - left) * count_f64(column) / count_f64(columns);
    for (row, counts) in sizing.heat.rows.iter().enumerate() {
        let up = (plot.y(count_f64(row)), plot.y(count_f64(row + 1)));
        let mut from = 0;
        while from < counts.len() {
            let level = if counts[from] == 0 { 0 } else { shade(counts[from]) };
            let same = |&count: &u64| (if count == 0 { 0 } else { shade(count) }) == level;
            let length = counts[from..].iter().take_while(|count| same(count)).count();
            if level > 0 {
                plot.rectangle(&format!("h{level}"), (x(from), x(from + length)), up, "");
            }
            from += length;
        }
    }
    let mut first = 0;
    for volume in &sizing.heat.volumes {
        let (low, high) = (plot.y(count_f64(first)), plot.y(count_f64(first + volume.rows)));
        plot.stroke("edge", (left, low), (right, low));
        if sizing.heat.volumes.len() > 1 {
            let middle = f64::midpoint(low, high) + 4.0;
            plot.words("mark", (left - 8.0, middle), "end", &volume.volume);
        } else {
            plot.words("mark", (left - 8.0, low), "end", &format::bytes(volume.begin_bytes));
            plot.words("mark", (left - 8.0, high + 10.0), "end", &format::bytes(volume.end_bytes));
        }
        first += volume.rows;
    }
    plot.stroke("edge", (left, top), (left, bottom));
    plot.draw_x();
    plot.finish("References by address and time")
}

/// Draws the recommended size as a horizontal line.
fn draw_limit(plot: &mut Plot, limit: Option<f64>) {
    let Some(y) = limit.map(|limit| plot.y(limit)) else { return };
    let [left, right, ..] = plot.ends();
    plot.stroke("chosen", (left, y), (right, y));
}

fn effect_text(effect: &Effect) -> String {
    let (bytes, ratio) =
        (format::bytes(effect.point.bytes), format::percent(effect.point.hit_ratio));
    format!("{}: {bytes}, {ratio}", effect.what)
}
