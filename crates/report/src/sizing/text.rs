//! Text rendering for a terminal.

use crate::advise::goal::{self, Source};
use crate::advise::page_size::{BYTES_MORE, HITS_LOST};
use crate::advise::regions;
use crate::chart::{Axis, Chart, Labels, Scale};
use crate::table::{Cell, Column, Table};
use larder_schema::advice::Region;
use larder_schema::format;
use larder_schema::sizing::{Effect, Recommendation, Sizing};

/// Width and height of the chart's plane, in characters.
const CHART_SIZE: (usize, usize) = (64, 12);
/// Maximum number of rows in the table of the curve.
const CURVE_ROWS_MAX: usize = 16;
/// Reachable hit ratio below which a cache is hardly worth its memory.
pub(super) const CEILING_MIN: f64 = 0.05;

/// Renders the results as text.
#[must_use]
pub fn to_text(sizing: &Sizing) -> String {
    let mut parts = vec![head(sizing)];
    parts.extend(chart(sizing));
    parts.extend(curve_table(sizing));
    if !sizing.regions_why.is_empty() {
        parts.push(format!("Regions\n\n{}\n", indented(&sizing.regions_why)));
    }
    parts.push(advice(sizing));
    parts.extend(effects_table(sizing));
    parts.push(unavoidable(sizing));
    parts.extend(stability_text(sizing));
    parts.extend(volumes_table(sizing));
    parts.extend(page_sizes_table(sizing));
    if !sizing.notes.is_empty() {
        parts.push(format!("Notes\n\n{}\n", indented(&sizing.notes)));
    }
    parts.join("\n")
}

fn head(sizing: &Sizing) -> String {
    let work = &sizing.workload;
    let time = work.duration_ns.map_or(String::new(), |ns| format!(" in {}", format::duration(ns)));
    format!(
        "{}: {} requests{time}, {} of data asked for\n{} references to pages of {}, {}{} \
         different pages ({})\n",
        work.trace,
        format::count(work.requests),
        format::bytes(work.bytes),
        format::count(work.references),
        format::bytes(work.page_bytes.into()),
        if work.footprint_exact { "" } else { "about " },
        format::count(work.footprint_pages),
        format::bytes(work.footprint_bytes()),
    )
}

fn chart(sizing: &Sizing) -> Option<String> {
    let size = Axis::new("size of the cache", "").scale(Scale::Log2).labels(Labels::Bytes);
    let hits = Axis::new("hit ratio of the best policy", "")
        .labels(Labels::Percent)
        .range(0.0, sizing.workload.ceiling.max(0.01));
    let method = if sizing.exact { "counted" } else { "sampled" };
    let mut chart = Chart::new(format!("Hit-ratio curve ({method})"), size, hits);
    let points = sizing.curve.iter().map(|best| as_pair(best.point.bytes, best.point.hit_ratio));
    chart.line("best", points);
    chart.to_text(CHART_SIZE.0, CHART_SIZE.1).ok()
}

fn curve_table(sizing: &Sizing) -> Option<String> {
    let columns = [
        Column::numbers("bytes", "size"),
        Column::words("policy", "best policy"),
        Column::numbers("hit_ratio", "hits"),
        Column::numbers("low", "from"),
        Column::numbers("high", "to"),
    ];
    let mut table = Table::new("", columns);
    // The evaluated sizes are close together; the table shows a subset.
    let step = sizing.curve.len().div_ceil(CURVE_ROWS_MAX).max(1);
    let last = sizing.curve.len().checked_sub(1)?;
    for (index, best) in sizing.curve.iter().enumerate() {
        if (last - index) % step == 0 {
            table.push([
                Cell::bytes(best.point.bytes),
                Cell::word(&best.policy),
                Cell::percent(best.point.hit_ratio),
                Cell::percent(best.point.low),
                Cell::percent(best.point.high),
            ]);
        }
    }
    Some(table.to_text())
}

pub(super) fn advice(sizing: &Sizing) -> String {
    let Some(advice) = &sizing.recommendation else {
        return "Recommendation: no cache. No page is referenced twice, so nothing can hit.\n"
            .to_owned();
    };
    let mut text = format!(
        "Recommendation: {} with {}, pages of {}\n\n  {}\n",
        format::bytes(advice.bytes),
        advice.policy,
        format::bytes(advice.page_bytes.into()),
        reason(sizing, advice)
    );
    if sizing.workload.ceiling < CEILING_MIN {
        put_line!(
            text,
            "  Hardly worth it: {} of all references are the first of their page and miss in \
             any cache.",
            format::percent(1.0 - sizing.workload.ceiling)
        );
    }
    let region_text = region_text(sizing, advice);
    if !region_text.is_empty() {
        put_line!(text, "  It lies {region_text}.");
    }
    put_line!(text, "  {SERVE_TITLE}\n\n    {}", serve(advice));
    text
}

/// Describes the position of this size on the curve; empty if unknown.
pub(super) fn region_text(sizing: &Sizing, advice: &Recommendation) -> String {
    match (advice.region, &sizing.regions) {
        (Some(Region::Useful), Some(regions)) if regions.is_cliff() => {
            "where region 3, flat, begins".to_owned()
        }
        (Some(region), _) => format!("in {}", regions::title(region)),
        (None, _) => String::new(),
    }
}

/// Returns the reason for this size.
pub(super) fn reason(sizing: &Sizing, advice: &Recommendation) -> String {
    let source = Source { everything: "a cache for everything", largest: "All pages of the trace" };
    let ceiling = sizing.workload.ceiling;
    goal::reason(&sizing.goal, ceiling, advice.reach, advice.target_bytes, source)
}

pub(super) fn effects_columns() -> [Column; 7] {
    [
        Column::words("what", ""),
        Column::numbers("bytes", "size"),
        Column::numbers("hit_ratio", "hits"),
        Column::numbers("low", "from"),
        Column::numbers("high", "to"),
        Column::numbers("misses_per_hour", "misses per hour"),
        Column::numbers("store_bytes", "read from the store"),
    ]
}

pub(super) fn effect_cells(effect: &Effect) -> [Cell; 7] {
    [
        Cell::word(&effect.what),
        Cell::bytes(effect.point.bytes),
        Cell::percent(effect.point.hit_ratio),
        Cell::percent(effect.point.low),
        Cell::percent(effect.point.high),
        effect.misses_per_hour.map_or_else(Cell::missing, Cell::number),
        Cell::bytes(effect.store_bytes),
    ]
}

fn effects_table(sizing: &Sizing) -> Option<String> {
    let first = sizing.effects.first()?;
    let mut table = Table::new("", effects_columns());
    sizing.effects.iter().for_each(|effect| table.push(effect_cells(effect)));
    let counted = sizing.effects.iter().all(|effect| effect.counted);
    let method = if counted {
        "Counted over the whole trace".to_owned()
    } else {
        "Estimated from samples, with 95 % bars".to_owned()
    };
    let policy = sizing.recommendation.as_ref().map_or("", |advice| advice.policy.as_str());
    let page = format::bytes(sizing.workload.page_bytes.into());
    let best: Vec<String> = sizing
        .recommended()
        .unwrap_or(first)
        .policies
        .iter()
        .map(|one| format!("{} {}", one.policy, format::percent(one.hit_ratio)))
        .collect();
    Some(format!(
        "{}{method}: {policy}, pages of {page}.\nAll policies at the recommended size: {}.\n",
        table.to_text(),
        best.join(", ")
    ))
}

pub(super) fn unavoidable(sizing: &Sizing) -> String {
    let work = &sizing.workload;
    let share = 1.0 - work.ceiling;
    let mut text = format!(
        "Misses that no cache removes: {} first references, {} of all",
        format::count(work.compulsory_misses),
        format::percent(share)
    );
    if let Some(min) = sizing.min_hit_ratio {
        put!(
            text,
            ". At the recommended size no policy hits more than {} (MIN, which knows the \
             future)",
            format::percent(min)
        );
    }
    text + ".\n"
}

fn stability_text(sizing: &Sizing) -> Option<String> {
    let stability = sizing.stability.as_ref()?;
    let columns = [
        Column::numbers("begin_ns", "from"),
        Column::numbers("references", "references"),
        Column::numbers("needed_bytes", "needs"),
        Column::numbers("ceiling", "reachable"),
        Column::numbers("hit_ratio", "hits with the recommended size"),
    ];
    let mut table = Table::new("Over time", columns);
    for window in &sizing.windows {
        table.push([
            if sizing.workload.duration_ns.is_some() {
                Cell::duration(window.begin_ns)
            } else {
                Cell::missing()
            },
            Cell::count(window.references),
            window.needed_bytes.map_or_else(Cell::missing, Cell::bytes),
            Cell::percent(window.ceiling),
            Cell::percent(window.hit_ratio),
        ]);
    }
    Some(format!("{}{}\n", table.to_text(), stability.judgement))
}

pub(super) fn volumes_table_of(sizing: &Sizing) -> Option<Table> {
    let all: u64 = sizing.volumes.iter().map(|share| share.bytes).sum();
    if sizing.volumes.is_empty() {
        return None;
    }
    let columns = [
        Column::words("volume", "volume"),
        Column::numbers("references", "references"),
        Column::numbers("footprint_bytes", "footprint"),
        Column::numbers("bytes", "memory"),
        Column::numbers("share", "share"),
        Column::numbers("hit_ratio", "hits"),
        Column::numbers("low", "from"),
        Column::numbers("high", "to"),
    ];
    let mut table = Table::new("", columns);
    for share in &sizing.volumes {
        table.push([
            Cell::word(&share.volume),
            Cell::count(share.references),
            Cell::bytes(share.footprint_bytes),
            Cell::bytes(share.bytes),
            crate::stats::hit_ratio(share.bytes, all).map_or_else(Cell::missing, Cell::percent),
            Cell::percent(share.hit_ratio),
            Cell::percent(share.low),
            Cell::percent(share.high),
        ]);
    }
    Some(table)
}

fn volumes_table(sizing: &Sizing) -> Option<String> {
    let table = volumes_table_of(sizing)?;
    Some(format!(
        "Memory among volumes, by what the next byte gains (LRU, each for itself)\n\n{}",
        table.to_text()
    ))
}

pub(super) fn page_sizes_table_of(sizing: &Sizing) -> Option<Table> {
    if sizing.page_sizes.is_empty() {
        return None;
    }
    let columns = [
        Column::numbers("page_bytes", "page"),
        Column::numbers("byte_hit_ratio", "byte hits"),
        Column::numbers("low", "from"),
        Column::numbers("high", "to"),
        Column::numbers("store_bytes", "read from the store"),
        Column::numbers("read_misses", "missing pages read"),
        Column::numbers("footprint_bytes", "footprint"),
    ];
    let mut table = Table::new("", columns);
    for size in &sizing.page_sizes {
        table.push([
            Cell::bytes(size.page_bytes.into()),
            Cell::percent(size.byte_hit_ratio),
            Cell::percent(size.low),
            Cell::percent(size.high),
            Cell::bytes(size.store_bytes),
            Cell::count(size.read_misses),
            Cell::bytes(size.footprint_bytes),
        ]);
    }
    Some(table)
}

/// Describes the rule that selects the page size.
pub(super) fn page_size_rule() -> String {
    format!(
        "Rule: the largest page that loses at most {:.0} point of byte hits against the best \
         and reads at most {BYTES_MORE} times the fewest bytes; if there is none, the one that \
         reads the fewest bytes. A disk that seeks may be better off with fewer, larger reads.",
        HITS_LOST * 100.0
    )
}

fn page_sizes_table(sizing: &Sizing) -> Option<String> {
    let table = page_sizes_table_of(sizing)?;
    Some(format!(
        "Page sizes in the recommended memory; byte hits are of the bytes asked for\n\n{}{}\n",
        table.to_text(),
        page_size_rule()
    ))
}

/// Introduction of the command of [`serve`].
pub(super) const SERVE_TITLE: &str =
    "To serve a volume so (--memory includes the tables of the cache):";

/// Returns the command that serves a volume with the recommended configuration.
pub(super) fn serve(advice: &Recommendation) -> String {
    format!(
        "larder serve VOLUME --memory {}MiB --policy {} --page-size {}KiB",
        advice.memory_bytes.div_ceil(1 << 20),
        advice.policy,
        advice.page_bytes / 1024
    )
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

pub(super) fn as_pair(bytes: u64, ratio: f64) -> (f64, f64) {
    (larder_schema::as_f64(bytes), ratio)
}
