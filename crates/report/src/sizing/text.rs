//! Text rendering for a terminal.

use super::{Effect, Recommendation, Region, Sizing};
use crate::advise::goal::{self, Source};
use crate::advise::page_size::{BYTES_MORE, HITS_LOST};
use crate::chart::{Axis, Chart, Labels, Scale};
use crate::format;
use crate::table::{Cell, Column, Table};

/// Width and height of the chart's plane, in characters.
const CHART_SIZE: (usize, usize) = (64, 12);
/// Maximum number of rows in the table of the curve.
const CURVE_ROWS_MAX: usize = 16;
/// Reachable hit ratio below which a cache is hardly worth its memory.
pub(super) const CEILING_MIN: f64 = 0.05;

impl Sizing {
    /// Renders the results as text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut parts = vec![self.head()];
        parts.extend(self.chart());
        parts.extend(self.curve_table());
        if !self.regions_why.is_empty() {
            parts.push(format!("Regions\n\n{}\n", indented(&self.regions_why)));
        }
        parts.push(self.advice());
        parts.extend(self.effects_table());
        parts.push(self.unavoidable());
        parts.extend(self.stability_text());
        parts.extend(self.volumes_table());
        parts.extend(self.page_sizes_table());
        if !self.notes.is_empty() {
            parts.push(format!("Notes\n\n{}\n", indented(&self.notes)));
        }
        parts.join("\n")
    }

    fn head(&self) -> String {
        let work = &self.workload;
        let time =
            work.duration_ns.map_or(String::new(), |ns| format!(" in {}", format::duration(ns)));
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

    fn chart(&self) -> Option<String> {
        let size = Axis::new("size of the cache", "").scale(Scale::Log2).labels(Labels::Bytes);
        let hits = Axis::new("hit ratio of the best policy", "")
            .labels(Labels::Percent)
            .range(0.0, self.workload.ceiling.max(0.01));
        let method = if self.exact { "counted" } else { "sampled" };
        let mut chart = Chart::new(format!("Hit-ratio curve ({method})"), size, hits);
        let points = self.curve.iter().map(|best| as_pair(best.point.bytes, best.point.hit_ratio));
        chart.line("best", points);
        chart.to_text(CHART_SIZE.0, CHART_SIZE.1).ok()
    }

    fn curve_table(&self) -> Option<String> {
        let columns = [
            Column::numbers("bytes", "size"),
            Column::words("policy", "best policy"),
            Column::numbers("hit_ratio", "hits"),
            Column::numbers("low", "from"),
            Column::numbers("high", "to"),
        ];
        let mut table = Table::new("", columns);
        // The evaluated sizes are close together; the table shows a subset.
        let step = self.curve.len().div_ceil(CURVE_ROWS_MAX).max(1);
        let last = self.curve.len().checked_sub(1)?;
        for (index, best) in self.curve.iter().enumerate() {
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

    pub(super) fn advice(&self) -> String {
        let Some(advice) = &self.recommendation else {
            return "Recommendation: no cache. No page is referenced twice, so nothing can hit.\n"
                .to_owned();
        };
        let mut text = format!(
            "Recommendation: {} with {}, pages of {}\n\n  {}\n",
            format::bytes(advice.bytes),
            advice.policy,
            format::bytes(advice.page_bytes.into()),
            self.reason(advice)
        );
        if self.workload.ceiling < CEILING_MIN {
            put_line!(
                text,
                "  Hardly worth it: {} of all references are the first of their page and miss in \
                 any cache.",
                format::percent(1.0 - self.workload.ceiling)
            );
        }
        let region_text = self.region_text(advice);
        if !region_text.is_empty() {
            put_line!(text, "  It lies {region_text}.");
        }
        put_line!(text, "  {SERVE_TITLE}\n\n    {}", serve(advice));
        text
    }

    /// Describes the position of this size on the curve; empty if unknown.
    pub(super) fn region_text(&self, advice: &Recommendation) -> String {
        match (advice.region, &self.regions) {
            (Some(Region::Useful), Some(regions)) if regions.is_cliff() => {
                "where region 3, flat, begins".to_owned()
            }
            (Some(region), _) => format!("in {}", region.title()),
            (None, _) => String::new(),
        }
    }

    /// Returns the reason for this size.
    pub(super) fn reason(&self, advice: &Recommendation) -> String {
        let source =
            Source { everything: "a cache for everything", largest: "All pages of the trace" };
        let ceiling = self.workload.ceiling;
        goal::reason(&self.goal, ceiling, advice.reach, advice.target_bytes, source)
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

    fn effects_table(&self) -> Option<String> {
        let first = self.effects.first()?;
        let mut table = Table::new("", Self::effects_columns());
        self.effects.iter().for_each(|effect| table.push(Self::effect_cells(effect)));
        let counted = self.effects.iter().all(|effect| effect.counted);
        let method = if counted {
            "Counted over the whole trace".to_owned()
        } else {
            "Estimated from samples, with 95 % bars".to_owned()
        };
        let policy = self.recommendation.as_ref().map_or("", |advice| advice.policy.as_str());
        let page = format::bytes(self.workload.page_bytes.into());
        let best: Vec<String> = self
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

    pub(super) fn unavoidable(&self) -> String {
        let work = &self.workload;
        let share = 1.0 - work.ceiling;
        let mut text = format!(
            "Misses that no cache removes: {} first references, {} of all",
            format::count(work.compulsory_misses),
            format::percent(share)
        );
        if let Some(min) = self.min_hit_ratio {
            put!(
                text,
                ". At the recommended size no policy hits more than {} (MIN, which knows the \
                 future)",
                format::percent(min)
            );
        }
        text + ".\n"
    }

    fn stability_text(&self) -> Option<String> {
        let stability = self.stability.as_ref()?;
        let columns = [
            Column::numbers("begin_ns", "from"),
            Column::numbers("references", "references"),
            Column::numbers("needed_bytes", "needs"),
            Column::numbers("ceiling", "reachable"),
            Column::numbers("hit_ratio", "hits with the recommended size"),
        ];
        let mut table = Table::new("Over time", columns);
        for window in &self.windows {
            table.push([
                if self.workload.duration_ns.is_some() {
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

    pub(super) fn volumes_table_of(&self) -> Option<Table> {
        let all: u64 = self.volumes.iter().map(|share| share.bytes).sum();
        if self.volumes.is_empty() {
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
        for share in &self.volumes {
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

    fn volumes_table(&self) -> Option<String> {
        let table = self.volumes_table_of()?;
        Some(format!(
            "Memory among volumes, by what the next byte gains (LRU, each for itself)\n\n{}",
            table.to_text()
        ))
    }

    pub(super) fn page_sizes_table_of(&self) -> Option<Table> {
        if self.page_sizes.is_empty() {
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
        for size in &self.page_sizes {
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

    fn page_sizes_table(&self) -> Option<String> {
        let table = self.page_sizes_table_of()?;
        Some(format!(
            "Page sizes in the recommended memory; byte hits are of the bytes asked for\n\n{}{}\n",
            table.to_text(),
            Self::page_size_rule()
        ))
    }
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
    (crate::advise::as_f64(bytes), ratio)
}
