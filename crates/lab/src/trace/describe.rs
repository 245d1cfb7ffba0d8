//! Description of a trace for people and programs: its statistics, and findings about the cache at
//! which it was recorded.

use super::summary::{Summary, VolumeSummary};
use super::{Addressing, NameKind, Observer, Op, Source, TraceError};
use larder_core::counters::HistogramSnapshot;
use larder_report::findings;
use larder_report::table::{Cell, Column, Table};
use larder_schema::format;
use larder_schema::watch::Finding;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// Maximum number of volumes in the text.
const VOLUMES_SHOWN: usize = 20;
/// The quantiles of the times between requests.
const QUANTILES: [(&str, f64); 5] =
    [("p10", 0.1), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];

/// The description of a trace.
#[derive(Debug)]
pub struct Description {
    summary: Summary,
    findings: Vec<Finding>,
}

impl Description {
    /// Reads a trace to its end.
    ///
    /// # Errors
    /// As [`Source::read_batch`].
    pub fn of(source: &mut dyn Source) -> Result<Self, TraceError> {
        let mut summary = Summary::new(source.addressing());
        let mut observer = Observer::new(source.addressing());
        let mut batch = Vec::new();
        while source.next_batch(&mut batch)? {
            for record in &batch {
                summary.add(record);
                observer.add(record);
            }
        }
        let findings = findings::find(&observer.observation(source));
        Ok(Description { summary, findings })
    }

    /// Returns the description as text; `source` provides the names.
    #[must_use]
    pub fn to_text(&self, source: &dyn Source) -> String {
        let mut text = text(&self.summary, source);
        if !self.findings.is_empty() {
            text.push_str("\nFindings\n\n");
            text.push_str(&findings::to_text(&self.findings));
        }
        text
    }

    /// Returns the description as `larder-trace-summary` of docs/FORMATS.md.
    #[must_use]
    pub fn to_json(&self, source: &dyn Source) -> Value {
        json(&self.summary, source, &self.findings)
    }
}

/// Returns the name of a volume, or its number.
fn volume_name(source: &dyn Source, number: u32) -> String {
    match source.name(NameKind::Volume, number) {
        Some(name) => name.to_owned(),
        None if number == u32::MAX => "others".to_owned(),
        None => number.to_string(),
    }
}

/// Returns the unit of the footprint.
fn footprint_unit(summary: &Summary) -> String {
    match summary.addressing {
        Addressing::Objects => "objects".to_owned(),
        _ => format!("pages of {}", format::bytes(summary.page_bytes)),
    }
}

/// Returns the range of a size class: minimum and maximum.
fn size_range(class: usize) -> (u64, u64) {
    let most = 512_u64 << class;
    (if class == 0 { 0 } else { most / 2 + 1 }, most)
}

#[expect(clippy::cast_precision_loss, reason = "shares for people")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Returns a quantile of the times between requests.
fn quantile(gaps: &HistogramSnapshot, q: f64) -> u64 {
    if q < 1.0 { gaps.quantile(q).unwrap_or(0) } else { gaps.max() }
}

fn text(summary: &Summary, source: &dyn Source) -> String {
    let total = &summary.total;
    let requests: u64 = total.ops.iter().map(|tally| tally.requests).sum();
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        writeln!(out, "{name:<16} {value}").expect("text takes any text");
    };
    line("requests", format::count(requests));
    for op in Op::ALL {
        let tally = total.ops[op as usize];
        if tally.requests > 0 {
            let (count, part) = (format::count(tally.requests), share(tally.requests, requests));
            let bytes = format::bytes(tally.bytes);
            line(op.name(), format!("{count} ({}), {bytes}", format::percent(part)));
        }
    }
    let footprint = &summary.footprint;
    let pages = footprint.pages();
    let exact = if footprint.is_exact() { "exact" } else { "estimated, within 1 %" };
    let mut size = String::new();
    if summary.addressing != Addressing::Objects {
        size = format!(" ({})", format::bytes(pages.saturating_mul(summary.page_bytes)));
    }
    let unit = footprint_unit(summary);
    line("footprint", format!("{} {unit}{size}, {exact}", format::count(pages)));
    let duration = match summary.duration_ns {
        0 => "none: the trace has no times".to_owned(),
        duration => format::duration(duration),
    };
    line("duration", duration);
    if summary.addressing != Addressing::Objects {
        let part = share(total.sequential, total.transfers());
        line("sequential", format!("{} of reads and writes", format::percent(part)));
    }
    let gaps = summary.gaps();
    let quantiles =
        QUANTILES.map(|(name, q)| format!("{name} {}", format::duration(quantile(&gaps, q))));
    line("between requests", quantiles.join(", "));
    out.push('\n');
    out.push_str(&sizes(summary).to_text());
    out.push('\n');
    out.push_str(&volumes(summary, source).to_text());
    if summary.volumes.len() > VOLUMES_SHOWN {
        let more = summary.volumes.len() - VOLUMES_SHOWN;
        writeln!(out, "and {more} more; --json has all").expect("text takes any text");
    }
    out
}

fn sizes(summary: &Summary) -> Table {
    let columns = [
        Column::words("size", "size of reads and writes"),
        Column::numbers("requests", "requests"),
        Column::numbers("share", "share"),
    ];
    let mut table = Table::new("Sizes", columns);
    let all = summary.total.transfers();
    for (class, &count) in summary.sizes.iter().enumerate().filter(|(_, count)| **count > 0) {
        let upto = format!("up to {}", format::bytes(size_range(class).1));
        table.push([Cell::word(upto), Cell::count(count), Cell::percent(share(count, all))]);
    }
    table
}

fn volumes(summary: &Summary, source: &dyn Source) -> Table {
    let columns = [
        Column::words("volume", "volume"),
        Column::numbers("reads", "reads"),
        Column::numbers("writes", "writes"),
        Column::numbers("read_bytes", "read"),
        Column::numbers("write_bytes", "written"),
        Column::numbers("sequential_ratio", "sequential"),
        Column::numbers("end", "ends at"),
    ];
    let mut table = Table::new("Volumes", columns);
    let mut rows: Vec<_> = summary.volumes.iter().collect();
    rows.sort_by_key(|(number, volume)| (std::cmp::Reverse(volume.transfers()), **number));
    for (&number, volume) in rows.into_iter().take(VOLUMES_SHOWN) {
        let [read, write] = [Op::Read, Op::Write].map(|op| volume.ops[op as usize]);
        let objects = summary.addressing == Addressing::Objects;
        let unless_objects = |cell: Cell| if objects { Cell::missing() } else { cell };
        table.push([
            Cell::word(volume_name(source, number)),
            Cell::count(read.requests),
            Cell::count(write.requests),
            Cell::bytes(read.bytes),
            Cell::bytes(write.bytes),
            unless_objects(Cell::percent(share(volume.sequential, volume.transfers()))),
            unless_objects(Cell::bytes(volume.end)),
        ]);
    }
    table
}

fn json(summary: &Summary, source: &dyn Source, found: &[Finding]) -> Value {
    let one = |volume: &VolumeSummary| {
        let ops: Map<String, Value> = Op::ALL
            .map(|op| {
                let tally = volume.ops[op as usize];
                let value = json!({ "requests": tally.requests, "bytes": tally.bytes });
                (op.name().to_owned(), value)
            })
            .into_iter()
            .collect();
        json!({ "ops": ops, "sequential_requests": volume.sequential, "end_bytes": volume.end })
    };
    let gaps = summary.gaps();
    let between: Map<String, Value> = QUANTILES
        .map(|(name, q)| (name.to_owned(), quantile(&gaps, q).into()))
        .into_iter()
        .collect();
    let sizes: Vec<Value> = summary
        .sizes
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
        .map(|(class, count)| {
            let (least, most) = size_range(class);
            json!({ "min_bytes": least, "max_bytes": most, "requests": count })
        })
        .collect();
    let volumes: Vec<Value> = summary
        .volumes
        .iter()
        .map(|(&number, volume)| {
            let mut value = one(volume);
            value["volume"] = volume_name(source, number).into();
            value
        })
        .collect();
    json!({
        "schema": "larder-trace-summary",
        "version": 1,
        "addressing": summary.addressing.to_string(),
        "requests": summary.total.ops.iter().map(|tally| tally.requests).sum::<u64>(),
        "total": one(&summary.total),
        "footprint": {
            "pages": summary.footprint.pages(),
            "page_bytes": summary.page_bytes,
            "exact": summary.footprint.is_exact(),
        },
        "duration_ns": summary.duration_ns,
        "between_requests_ns": between,
        "sizes": sizes,
        "volumes": volumes,
        "findings": found,
        "notes": source.notes(),
    })
}
