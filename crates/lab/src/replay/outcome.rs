//! The results of a replay: counted per thread, summed, and formatted.

use super::ReplayOptions;
use super::requests::{RecordCounts, ReplayRequest};
use crate::connection::ConnectionError;
use crate::trace::Op;
use larder_core::counters::{Histogram, HistogramSnapshot};
use larder_report::table::{Cell, Column, Table};
use larder_schema::format;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// The quantiles of the text and JSON output.
const QUANTILES: [(&str, &str, f64); 4] = [
    ("p50", "median", 0.5),
    ("p90", "90 %", 0.9),
    ("p99", "99 %", 0.99),
    ("p999", "99.9 %", 0.999),
];

/// Quantiles of the JSON output only: among them is the latency of a hit, if few requests hit.
const SHORT_QUANTILES: [(&str, f64); 3] = [("p5", 0.05), ("p10", 0.1), ("p25", 0.25)];

/// Totals of requests of one kind, with a histogram of their latencies.
#[derive(Debug, Default)]
struct OpTotals<H> {
    requests: u64,
    bytes: u64,
    errors: u64,
    latency: H,
}

/// The results of one thread.
#[derive(Debug, Default)]
pub(super) struct ReplayTotals {
    ops: [OpTotals<Histogram>; Op::ALL.len()],
    late: Histogram,
    /// Number of its last request, and the delay of that.
    last_late: (u64, Duration),
    /// The first request that failed, with its number.
    first_error: Option<(u64, String)>,
    /// True if the thread ended before the trace did.
    pub(super) stopped: bool,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl ReplayTotals {
    /// Records the delay of a request against its due time.
    pub(super) fn record_delay(&mut self, request: &ReplayRequest, delay: Duration) {
        self.late.record(nanoseconds(delay));
        self.last_late = (request.number, delay);
    }

    /// Records the reply to a request.
    pub(super) fn record_reply(
        &mut self,
        request: &ReplayRequest,
        time: Duration,
        error: Option<ConnectionError>,
    ) {
        let op = &mut self.ops[request.op as usize];
        op.requests += 1;
        op.latency.record(nanoseconds(time));
        if let Some(error) = error {
            op.errors += 1;
            let ReplayRequest { number, len, offset, .. } = *request;
            let describe = || {
                let op = request.op.name();
                (number, format!("record {number}, a {op} of {len} bytes at {offset}: {error}"))
            };
            self.first_error.get_or_insert_with(describe);
        } else {
            op.bytes += request.len;
        }
    }
}

/// The results of all threads.
#[derive(Debug)]
pub struct Outcome {
    connections: usize,
    options: ReplayOptions,
    pub(super) duration_ns: u64,
    ops: [OpTotals<HistogramSnapshot>; Op::ALL.len()],
    late: HistogramSnapshot,
    last_late: (u64, Duration),
    first_error: Option<(u64, String)>,
    stopped: bool,
    pub(super) counts: RecordCounts,
}

impl Outcome {
    pub(super) fn new(connections: usize, options: ReplayOptions) -> Self {
        Outcome {
            connections,
            options,
            duration_ns: 0,
            ops: <_>::default(),
            late: HistogramSnapshot::default(),
            last_late: (0, Duration::ZERO),
            first_error: None,
            stopped: false,
            counts: RecordCounts::default(),
        }
    }

    /// Adds the results of a thread.
    pub(super) fn add(&mut self, totals: &ReplayTotals) {
        for (sum, op) in self.ops.iter_mut().zip(&totals.ops) {
            sum.requests += op.requests;
            sum.bytes += op.bytes;
            sum.errors += op.errors;
            op.latency.add_to(&mut sum.latency);
        }
        totals.late.add_to(&mut self.late);
        self.last_late = self.last_late.max(totals.last_late);
        let errors = self.first_error.take().into_iter().chain(totals.first_error.clone());
        self.first_error = errors.min();
        self.stopped |= totals.stopped;
    }

    /// Returns the number of answered requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.ops.iter().map(|op| op.requests).sum()
    }

    fn bytes(&self) -> u64 {
        [Op::Read, Op::Write].map(|op| self.ops[op as usize].bytes).iter().sum()
    }

    /// Returns the number of failed requests, and the first of them in the order of the trace.
    #[must_use]
    pub fn errors(&self) -> Option<(u64, &str)> {
        let (_, first) = self.first_error.as_ref()?;
        Some((self.ops.iter().map(|op| op.errors).sum(), first))
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn per_second(&self, number: u64) -> f64 {
        number as f64 / (self.duration_ns.max(1) as f64 / 1e9)
    }

    /// Formats the results for people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let mut line = |text: std::fmt::Arguments<'_>| {
            writeln!(out, "{text}").expect("text takes any text");
        };
        let (requests, bytes) = (self.requests(), self.bytes());
        line(format_args!(
            "{} {} requests, {}, in {}: {}, {}",
            if self.stopped { "stopped after" } else { "replayed" },
            format::count(requests),
            format::bytes(bytes),
            format::duration(self.duration_ns),
            format::rate(self.per_second(requests), "requests"),
            format::byte_rate(self.per_second(bytes)),
        ));
        if self.late.count() > 0 {
            let at = |q| format::duration(self.late.quantile(q).unwrap_or(0));
            line(format_args!(
                "behind the trace by {} (median), {} (99 %), {} (max), {} at the end",
                at(0.5),
                at(0.99),
                format::duration(self.late.max()),
                format::duration(nanoseconds(self.last_late.1)),
            ));
        }
        let RecordCounts { split, wrapped, read_only, not_offered, empty, .. } = self.counts;
        let notes = [
            (split, "sent in pieces"),
            (wrapped, "folded into the export"),
            (read_only, "left out because of --read-only"),
            (not_offered, "left out because the server does not know them"),
            (empty, "left out because they are of no bytes"),
        ];
        for (count, text) in notes.into_iter().filter(|(count, _)| *count > 0) {
            line(format_args!("requests of the trace {text}: {}", format::count(count)));
        }
        if requests > 0 {
            out.push('\n');
            out.push_str(&self.table().to_text());
        }
        out
    }

    fn table(&self) -> Table {
        let mut columns = vec![
            Column::words("op", "operation"),
            Column::numbers("requests", "requests"),
            Column::numbers("bytes", "bytes"),
            Column::numbers("errors", "errors"),
            Column::numbers("mean_ns", "mean"),
        ];
        columns
            .extend(QUANTILES.map(|(key, title, _)| Column::numbers(format!("{key}_ns"), title)));
        columns.push(Column::numbers("max_ns", "max"));
        let mut table = Table::new("Latencies", columns);
        for (op, sum) in Op::ALL.into_iter().zip(&self.ops).filter(|(_, sum)| sum.requests > 0) {
            let time = |ns: Option<u64>| Cell::duration(ns);
            let mut row = vec![
                Cell::word(op.name()),
                Cell::count(sum.requests),
                Cell::bytes(sum.bytes),
                Cell::count(sum.errors),
                time(sum.latency.mean()),
            ];
            row.extend(QUANTILES.map(|(_, _, q)| time(sum.latency.quantile(q))));
            row.push(Cell::duration(sum.latency.max()));
            table.push(row);
        }
        table
    }

    /// Returns the results for programs: `larder-trace-replay` of docs/FORMATS.md.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let times = |histogram: &HistogramSnapshot| {
            let quantiles = QUANTILES.map(|(name, _, q)| (name, q)).into_iter();
            let mut times: Map<String, Value> = quantiles
                .chain(SHORT_QUANTILES)
                .map(|(name, q)| (name.to_owned(), json!(histogram.quantile(q))))
                .collect();
            times.insert("mean".to_owned(), json!(histogram.mean()));
            times.insert("max".to_owned(), json!(histogram.max()));
            Value::Object(times)
        };
        let op = |(op, sum): (Op, &OpTotals<HistogramSnapshot>)| {
            let OpTotals { requests, bytes, errors, latency } = sum;
            let value = json!({
                "requests": requests,
                "bytes": bytes,
                "errors": errors,
                "latency_ns": times(latency),
            });
            (op.name().to_owned(), value)
        };
        let ops: Map<String, Value> = Op::ALL.into_iter().zip(&self.ops).map(op).collect();
        let late = self.options.speed.map(|_| {
            let mut late = times(&self.late);
            late["at_end"] = json!(nanoseconds(self.last_late.1));
            late
        });
        let (requests, bytes) = (self.requests(), self.bytes());
        let counts = self.counts;
        json!({
            "schema": "larder-trace-replay",
            "version": 1,
            "complete": !self.stopped,
            "connections": self.connections,
            "depth": self.options.depth,
            "speed": self.options.speed,
            "records": counts.records,
            "requests": requests,
            "bytes": bytes,
            "duration_ns": self.duration_ns,
            "requests_per_s": self.per_second(requests),
            "bytes_per_s": self.per_second(bytes),
            "ops": ops,
            "late_ns": late,
            "split": counts.split,
            "wrapped": counts.wrapped,
            "left_out": {
                "read_only": counts.read_only,
                "not_offered": counts.not_offered,
                "empty": counts.empty,
            },
            "first_error": self.first_error.as_ref().map(|(_, text)| text),
        })
    }
}
