//! Text rendering for a terminal.

use super::server;
use crate::advise::goal::{self, Source};
use crate::advise::page_size::{self, BYTES_MORE, HITS_LOST};
use crate::advise::regions;
use crate::chart::{Axis, Chart, Labels, Scale};
use crate::table::{Cell, Column, Field, Table};
use larder_schema::advice::Region;
use larder_schema::format;
use larder_schema::share;
use larder_schema::sizing::{
    BestPoint, DEFAULT_POLICY, Effect, PageSize, PolicyRatio, Recommendation, Share, Sizing, Window,
};

/// Width and height of the chart's plane, in characters.
const CHART_SIZE: (usize, usize) = (64, 12);
/// Maximum number of rows in the table of the curve.
const CURVE_ROWS_MAX: usize = 16;
/// Reachable hit ratio below which a cache is hardly worth its memory.
pub(super) const CEILING_MIN: f64 = 0.05;

/// Minimum memory of a server, in bytes: `MEMORY_BYTES_MIN` of `larder_io::engine`.
pub const SERVER_BYTES_MIN: u64 = 8 << 20;

/// The cache whose size is recommended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizedCache {
    /// A cache of `larder serve`: the text has its command.
    Server,
    /// The page cache of this machine.
    PageCache,
}

/// Renders the results as text.
#[must_use]
pub fn to_text(sizing: &Sizing, cache: SizedCache) -> String {
    let mut parts = vec![head(sizing)];
    parts.extend(chart(sizing));
    parts.extend(curve_table(sizing));
    if !sizing.regions_why.is_empty() {
        parts.push(format!("Regions\n\n{}\n", indented(&sizing.regions_why)));
    }
    parts.push(advice(sizing, cache));
    parts.extend(effects_text(sizing));
    parts.push(unavoidable(sizing));
    parts.extend(stability_text(sizing));
    parts.extend(volumes_table(sizing).map(|table| {
        let title = "Memory among volumes, by marginal gain (a separate LRU curve for each volume)";
        format!("{title}\n\n{}", table.to_text())
    }));
    parts.extend(page_sizes_table(sizing).map(|table| {
        let bytes = if page_size::of_server(&sizing.page_sizes) {
            ""
        } else {
            "; byte hits are shares of the requested bytes"
        };
        let (table, rule) = (table.to_text(), page_size_rule(sizing));
        format!("Page sizes in the recommended memory{bytes}\n\n{table}{rule}\n")
    }));
    if !sizing.notes.is_empty() {
        parts.push(format!("Notes\n\n{}\n", indented(&sizing.notes)));
    }
    parts.join("\n")
}

fn head(sizing: &Sizing) -> String {
    let work = &sizing.workload;
    let time = work.duration_ns.map_or(String::new(), |ns| format!(" in {}", format::duration(ns)));
    format!(
        "{}: {} requests{time}, {} of requested data\n{} references to pages of {}, {}{} \
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
    let title = server::hits_title(sizing);
    let hits = Axis::new(format!("{title} {}", with_policy(sizing)), "")
        .labels(Labels::Percent)
        .range(0.0, sizing.workload.ceiling.max(0.01));
    let method = match (server::is_searched(sizing), sizing.exact) {
        (true, _) => "simulated",
        (false, true) => "counted",
        (false, false) => "sampled",
    };
    let mut chart = Chart::new(format!("Hit-ratio curve ({method})"), size, hits);
    let points = sizing.curve.iter().map(|best| as_pair(best.point.bytes, best.point.hit_ratio));
    chart.line("best", points);
    chart.to_text(CHART_SIZE.0, CHART_SIZE.1)
}

/// Returns the policy of the curve; `None` if its points are of several ones.
pub(super) fn curve_policy(sizing: &Sizing) -> Option<&str> {
    let policy = &sizing.curve.first()?.policy;
    sizing.curve.iter().all(|best| best.policy == *policy).then_some(policy)
}

/// Returns the end of a title that names the policy of the curve.
fn with_policy(sizing: &Sizing) -> String {
    curve_policy(sizing)
        .map_or_else(|| "of the best policy".to_owned(), |policy| format!("with {policy}"))
}

/// Returns the columns of the error bars; none if no bar has a width, as of counted values.
fn error_bars<T: 'static>(rows: &[T], low: fn(&T) -> f64, high: fn(&T) -> f64) -> Vec<Field<T>> {
    if rows.iter().all(|row| high(row) <= low(row)) {
        return Vec::new();
    }
    vec![Field::percent("low", "from", low), Field::percent("high", "to", high)]
}

fn curve_table(sizing: &Sizing) -> Option<String> {
    // The evaluated sizes are close together; the table shows a subset, with both ends and the
    // recommended size.
    let count = sizing.curve.len();
    let step = count.div_ceil(CURVE_ROWS_MAX).max(1);
    let recommended = sizing.recommendation.as_ref().map(|advice| advice.bytes);
    let is_shown = |(index, best): &(usize, &BestPoint)| {
        *index == 0
            || (count - 1 - index).is_multiple_of(step)
            || Some(best.point.bytes) == recommended
    };
    let shown = sizing.curve.iter().enumerate().filter(is_shown);
    let shown: Vec<BestPoint> = shown.map(|(_, best)| best.clone()).collect();
    if shown.is_empty() {
        return None;
    }
    let omitted = match count - shown.len() {
        0 => String::new(),
        _ => format!("{} of {count} sizes; --json prints all.\n", shown.len()),
    };
    Some(curve_rows(&shown, curve_policy(sizing)).to_text() + &omitted)
}

/// Returns the policy of the curve and its hit ratio at each evaluated size.
pub(super) fn all_curve_rows(sizing: &Sizing) -> Table {
    curve_rows(&sizing.curve, curve_policy(sizing))
}

/// Returns a row for each point; `policy` is that of all points of the curve, if it is one.
fn curve_rows(shown: &[BestPoint], policy: Option<&str>) -> Table {
    let title = if policy.is_some() { "policy" } else { "best policy" };
    let mut fields = vec![
        Field::bytes("bytes", "size", |it: &BestPoint| it.point.bytes),
        Field::word("policy", title, |it| &it.policy),
        Field::percent("hit_ratio", "hits", |it| it.point.hit_ratio),
    ];
    fields.extend(error_bars(shown, |it| it.point.low, |it| it.point.high));
    Table::of("", shown, fields)
}

fn advice(sizing: &Sizing, cache: SizedCache) -> String {
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
            "  Hardly worth it: {} of the {} miss in any cache.",
            format::percent(1.0 - sizing.workload.ceiling),
            server::counted(sizing)
        );
    }
    let region_text = region_text(sizing, advice);
    if !region_text.is_empty() {
        put_line!(text, "  It lies {region_text}.");
    }
    if cache == SizedCache::Server {
        put_line!(text, "  {}\n\n    {}", serve_title(advice), serve(advice));
    }
    text
}

/// Describes the position of this size on the curve; empty if unknown.
pub(super) fn region_text(sizing: &Sizing, advice: &Recommendation) -> String {
    match (advice.region, &sizing.regions) {
        (Some(Region::Useful), Some(regions))
            if regions.is_cliff() || advice.bytes >= regions.flat_begin_bytes =>
        {
            "where region 3, flat, begins".to_owned()
        }
        (Some(region), _) => format!("in {}", regions::title(region)),
        (None, _) => String::new(),
    }
}

/// Returns the reason for this size, and for a policy that is not the best one.
pub(super) fn reason(sizing: &Sizing, advice: &Recommendation) -> String {
    let source = Source {
        counted: server::counted(sizing),
        everything: "a cache of all pages",
        largest: "All pages of the trace",
    };
    let ceiling = sizing.workload.ceiling;
    let size = goal::reason(&sizing.goal, ceiling, advice.reach, advice.target_bytes, source);
    match policy_reason(sizing, advice) {
        Some(policy) => format!("{size} {policy}"),
        None => size,
    }
}

/// Returns the reason for a policy with fewer hits than another one.
fn policy_reason(sizing: &Sizing, advice: &Recommendation) -> Option<String> {
    let policies = &sizing.recommended()?.policies;
    let best = policies.first()?;
    let chosen = policies.iter().find(|ratio| ratio.policy == advice.policy)?;
    let [of_best, of_chosen] = [best, chosen].map(|it| format::percent(it.hit_ratio));
    (chosen.hit_ratio < best.hit_ratio && of_best != of_chosen).then(|| {
        let why = if chosen.policy == DEFAULT_POLICY {
            "is the server's default"
        } else if server::is_searched(sizing) {
            "is as good within the half point by which simulated servers vary"
        } else {
            "needs the least memory of the policies that are within 0.1 points"
        };
        format!(
            "{} hits {of_best}; {}, with {of_chosen}, is recommended instead, since it {why}.",
            best.policy, chosen.policy,
        )
    })
}

pub(super) fn effects_table(sizing: &Sizing) -> Table {
    let mut fields = vec![
        Field::word("what", "", |it: &Effect| &it.what),
        Field::bytes("bytes", "size", |it| it.point.bytes),
        Field::percent("hit_ratio", "hits", |it| it.point.hit_ratio),
    ];
    fields.extend(error_bars(&sizing.effects, |it| it.point.low, |it| it.point.high));
    fields.extend([
        Field::number("misses_per_hour", "misses per hour", |it: &Effect| it.misses_per_hour),
        Field::bytes("store_bytes", "read from the store", |it| it.store_bytes),
    ]);
    Table::of("", &sizing.effects, fields)
}

fn effects_text(sizing: &Sizing) -> Option<String> {
    let first = sizing.effects.first()?;
    let (what, table) = match (server::description(sizing), server::table(sizing)) {
        (Some(description), Some(table)) => (description, table),
        _ => (method(sizing), effects_table(sizing)),
    };
    Some(format!(
        "{}{what}\n\nAll policies at the recommended size\n\n{}",
        table.to_text(),
        policies_table(sizing.recommended().unwrap_or(first)).to_text()
    ))
}

/// Returns the sentence about the origin of effects by replacement alone.
fn method(sizing: &Sizing) -> String {
    let counted = sizing.effects.iter().all(|effect| effect.counted);
    let method = if counted {
        "Counted over the whole trace"
    } else {
        "Estimated from samples, with 95 % bars"
    };
    let policy = sizing.recommendation.as_ref().map_or("", |advice| advice.policy.as_str());
    let page = format::bytes(sizing.workload.page_bytes.into());
    let recommended_page = sizing.recommendation.as_ref().map(|advice| advice.page_bytes);
    let others = if recommended_page == Some(sizing.workload.page_bytes) {
        ""
    } else {
        ". The table of page sizes has the hits and the bytes of the recommended one"
    };
    format!("{method}: {policy}, pages of {page}{others}.")
}

/// Returns the hit ratios of all policies at one size.
pub(super) fn policies_table(effect: &Effect) -> Table {
    let mut fields = vec![
        Field::word("policy", "policy", |it: &PolicyRatio| &it.policy),
        Field::percent("hit_ratio", "hits", |it| it.hit_ratio),
    ];
    fields.extend(error_bars(&effect.policies, |it| it.low, |it| it.high));
    Table::of("", &effect.policies, fields)
}

pub(super) fn unavoidable(sizing: &Sizing) -> String {
    let work = &sizing.workload;
    let first = share(work.compulsory_misses, work.references).unwrap_or(0.0);
    let opening = if server::is_searched(sizing) {
        "First references, which miss without read-ahead:"
    } else {
        "First references, which miss in any cache:"
    };
    let mut text = format!(
        "{opening} {} ({} of all references)",
        format::count(work.compulsory_misses),
        format::percent(first)
    );
    if let Some(min) = sizing.min_hit_ratio {
        let at = if server::is_searched(sizing) {
            "Without read-ahead, at the recommended size,"
        } else {
            "At the recommended size"
        };
        put!(
            text,
            ". {at} no policy hits more than {} of the references, reads and writes (MIN, which \
             knows the future)",
            format::percent(min)
        );
    }
    text + ".\n"
}

fn stability_text(sizing: &Sizing) -> Option<String> {
    let stability = sizing.stability.as_ref()?;
    Some(format!("{}{}\n", windows_table(sizing).to_text(), stability.judgment))
}

/// Returns the size that each part of the trace needs.
pub(super) fn windows_table(sizing: &Sizing) -> Table {
    let has_times = sizing.workload.duration_ns.is_some();
    let begin = move |it: &Window| Cell::duration(has_times.then_some(it.begin_ns));
    let fields = [
        Field::of(Column::numbers("begin_ns", "from"), begin),
        Field::count("references", "references", |it| it.references),
        Field::bytes("needed_bytes", "needs", |it| it.needed_bytes),
        Field::percent("ceiling", "reachable", |it| it.ceiling),
        Field::percent("hit_ratio", "hits with the recommended size", |it| it.hit_ratio),
    ];
    Table::of("Over time", &sizing.windows, fields)
}

pub(super) fn volumes_table(sizing: &Sizing) -> Option<Table> {
    let all: u64 = sizing.volumes.iter().map(|share| share.bytes).sum();
    let mut fields = vec![
        Field::word("volume", "volume", |it: &Share| &it.volume),
        Field::count("references", "references", |it| it.references),
        Field::bytes("footprint_bytes", "footprint", |it| it.footprint_bytes),
        Field::bytes("bytes", "memory", |it| it.bytes),
        Field::of(Column::numbers("share", "share"), move |it: &Share| {
            Cell::percent(share(it.bytes, all))
        }),
        Field::percent("hit_ratio", "hits", |it| it.hit_ratio),
    ];
    fields.extend(error_bars(&sizing.volumes, |it| it.low, |it| it.high));
    (!sizing.volumes.is_empty()).then(|| Table::of("", &sizing.volumes, fields))
}

pub(super) fn page_sizes_table(sizing: &Sizing) -> Option<Table> {
    if let Some(table) = server::page_sizes_table(sizing) {
        return Some(table);
    }
    let mut fields = vec![
        Field::bytes("page_bytes", "page", |it: &PageSize| u64::from(it.page_bytes)),
        Field::percent("byte_hit_ratio", "byte hits", |it| it.byte_hit_ratio),
    ];
    fields.extend(error_bars(&sizing.page_sizes, |it| it.low, |it| it.high));
    fields.extend([
        Field::bytes("store_bytes", "read from the store", |it: &PageSize| it.store_bytes),
        Field::count("read_misses", "missing pages read", |it| it.read_misses),
        Field::bytes("footprint_bytes", "footprint", |it| it.footprint_bytes),
    ]);
    (!sizing.page_sizes.is_empty()).then(|| Table::of("", &sizing.page_sizes, fields))
}

/// Describes the rule that selects the page size.
pub(super) fn page_size_rule(sizing: &Sizing) -> String {
    let (hits, transfers) = if page_size::of_server(&sizing.page_sizes) {
        ("reads without waiting", "transfers")
    } else {
        ("byte hits", "reads")
    };
    format!(
        "Rule: the largest page that loses at most {:.0} point of {hits} against the best and \
         {transfers} at most {BYTES_MORE} times the fewest bytes; if there is none, the one with \
         the fewest bytes. A disk that seeks may be better off with fewer, larger reads.",
        HITS_LOST * 100.0
    )
}

/// Introduction of the command of [`serve`].
pub(super) fn serve_title(advice: &Recommendation) -> &'static str {
    if advice.memory_bytes < SERVER_BYTES_MIN {
        "To serve a volume with the minimum memory of a server, which is more than it needs:"
    } else {
        "To serve a volume with it (--memory includes the metadata of the cache):"
    }
}

/// Returns the command that serves a volume with the recommended configuration.
pub(super) fn serve(advice: &Recommendation) -> String {
    format!(
        "larder serve VOLUME --memory {}MiB --policy {} --page-size {}KiB",
        advice.memory_bytes.max(SERVER_BYTES_MIN).div_ceil(1 << 20),
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
