//! Summary of a log.

mod disks;
mod machine;
mod processes;

use super::counters::{Counter, Kind, Object};
use super::log::Log;
use super::time;
use super::weighting::{Intervals, range, unweighted_mean};
use crate::findings::{self, Observation};
use larder_schema::perfmon::{Bursts, Interface, Line, SCHEMA, Summary, VERSION};

/// Maximum number of points in a line over time.
const POINTS_MAX: usize = 240;

/// Name, counter of calls, counter of hits.
const INTERFACES: [(&str, Counter, Counter); 4] = [
    ("copy", Counter::CopyReads, Counter::CopyReadHits),
    ("data map", Counter::DataMaps, Counter::DataMapHits),
    ("pin", Counter::PinReads, Counter::PinReadHits),
    ("mdl", Counter::MdlReads, Counter::MdlReadHits),
];

/// A log and its intervals, as the input of a summary.
struct SummaryInput<'a> {
    log: &'a Log,
    intervals: Intervals,
}

pub(super) fn summarize(log: &Log) -> Summary {
    let input = SummaryInput { log, intervals: Intervals::of(&log.times) };
    let rate =
        |counter| input.log.values(Object::Cache, counter).and_then(|v| input.intervals.mean(v));
    let at = |time: Option<&f64>| time.map_or_else(String::new, |time| time::format_time(*time));
    let mut notes = log.notes.clone();
    let gaps = input.intervals.gaps;
    if gaps > 0 {
        notes.push(format!("the log has {gaps} gaps; nothing is known of what happened in them"));
    }
    if log.times.len() == 1 {
        notes.push("the log has one sample; nothing can be said about changes".to_owned());
    }
    notes.extend(input.disk_notes());
    let mut summary = Summary {
        schema: SCHEMA,
        version: VERSION,
        host: log.host.clone(),
        language: log.language.clone(),
        begin: at(log.times.first()),
        end: at(log.times.last()),
        samples: log.times.len() as u64,
        interval_s: (log.times.len() > 1).then_some(input.intervals.median),
        interfaces: input.interfaces(),
        fast_reads_per_s: rate(Counter::FastReads),
        read_aheads_per_s: rate(Counter::ReadAheads),
        data_map_pins_per_s: rate(Counter::DataMapPins),
        bursts: input.bursts(),
        disks: input.disks(),
        memory: input.memory(),
        processor: input.processor(),
        paging_files: input.paging_files(),
        processes: input.processes(),
        lines: input.lines(),
        findings: Vec::new(),
        missing: missing(log),
        absent: KINDS
            .into_iter()
            .filter(|(kind, _)| !has_kind(log, *kind))
            .map(|(_, name)| name)
            .collect(),
        unknown: log.unknown.iter().map(|(_, heading)| heading.clone()).collect(),
        notes,
    };
    summary.findings = findings::find(&Observation::from(&summary));
    summary
}

/// Names of the categories in messages.
const KINDS: [(Kind, &str); 3] =
    [(Kind::Cache, "the cache"), (Kind::Memory, "memory"), (Kind::Disk, "disks")];

/// Returns true if a log has counters of a category, known or unknown.
fn has_kind(log: &Log, kind: Kind) -> bool {
    log.columns.iter().any(|column| column.object.kind() == kind)
        || log.unknown.iter().any(|(of, _)| *of == kind)
}

/// Returns the expected counters that the log lacks. One of the three units of available memory is
/// sufficient; a log of logical disks needs no physical disks, and processes are optional.
fn missing(log: &Log) -> Vec<&'static str> {
    let has = |counter| log.columns.iter().any(|column| column.counter == counter);
    let units = [Counter::AvailableBytes, Counter::AvailableKBytes, Counter::AvailableMBytes];
    let is_available = |counter| units.contains(&counter) && units.into_iter().any(has);
    let kinds = KINDS.into_iter().map(|(kind, _)| kind).filter(|kind| has_kind(log, *kind));
    kinds
        .flat_map(Counter::of)
        .filter(|counter| !has(*counter) && !is_available(*counter) && !counter.is_optional())
        .map(Counter::english)
        .collect()
}

/// Converts a percentage of hits to a ratio; a mean that rounding made larger than 100 % is 1.
fn hit_ratio(percent: f64) -> f64 {
    (percent / 100.0).min(1.0)
}

impl SummaryInput<'_> {
    fn cache(&self, counter: Counter) -> Option<&[Option<f64>]> {
        self.log.values(Object::Cache, counter)
    }

    fn interfaces(&self) -> Vec<Interface> {
        let interface = |(interface, calls, hits): (&'static str, Counter, Counter)| {
            let (calls, hits) = (self.cache(calls), self.cache(hits));
            if calls.is_none() && hits.is_none() {
                return None;
            }
            let hits_per_call = hits
                .zip(calls)
                .and_then(|(hits, calls)| self.intervals.per_call(hits, calls))
                .map(hit_ratio);
            let calls_per_s = calls.and_then(|calls| self.intervals.mean(calls));
            Some(Interface {
                interface,
                calls_per_s,
                hit_ratio: hits_per_call,
                averaged_hit_ratio: hits.and_then(unweighted_mean).map(hit_ratio),
                misses_per_s: calls_per_s
                    .zip(hits_per_call)
                    .map(|(calls, hits)| calls * (1.0 - hits)),
            })
        };
        INTERFACES.into_iter().filter_map(interface).collect()
    }

    fn bursts(&self) -> Vec<Bursts> {
        let bursts = |(what, flushes, pages): (&'static str, Counter, Counter)| {
            let (flushes, pages) = (self.cache(flushes)?, self.cache(pages)?);
            Some(Bursts {
                what,
                bursts_per_s: self.intervals.mean(flushes)?,
                pages_per_s: self.intervals.mean(pages)?,
                pages_per_burst: self.intervals.ratio_of_sums(pages, flushes),
                pages_per_s_max: range(pages)?.1,
            })
        };
        [
            ("lazy write", Counter::LazyWriteFlushes, Counter::LazyWritePages),
            ("data flush", Counter::DataFlushes, Counter::DataFlushPages),
        ]
        .into_iter()
        .filter_map(bursts)
        .collect()
    }

    fn lines(&self) -> Vec<Line> {
        let counted: Vec<_> = INTERFACES
            .into_iter()
            .filter_map(|(name, calls, hits)| Some((name, self.cache(calls)?, self.cache(hits)?)))
            .collect();
        let ratio = |(_, calls, hits): &(_, &[Option<f64>], &[Option<f64>]), from, to| {
            self.part(from, to).per_call(&hits[from..to], &calls[from..to]).map(hit_ratio)
        };
        let mean_of = |values: &[Option<f64>], from: usize, to: usize| {
            self.part(from, to).mean(&values[from..to])
        };
        // Calls and misses per second; an interface without calls has no ratio and no misses.
        let misses = |it: &(_, &[Option<f64>], &[Option<f64>]), from, to| {
            let calls = mean_of(it.1, from, to)?;
            Some((calls, calls * (1.0 - ratio(it, from, to).unwrap_or(1.0))))
        };
        let mut lines: Vec<Line> =
            counted.iter().map(|it| self.line(it.0, "ratio", |a, b| ratio(it, a, b))).collect();
        if counted.len() > 1 {
            let of_all = |from, to| {
                let rates = counted.iter().filter_map(|it| misses(it, from, to));
                let (calls, misses) =
                    rates.fold((0.0, 0.0), |(calls, misses), one| (calls + one.0, misses + one.1));
                (calls > 0.0).then(|| 1.0 - misses / calls)
            };
            lines.push(self.line("all", "ratio", of_all));
        }
        lines.extend(counted.iter().map(|it| {
            self.line(it.0, "misses per second", |a, b| misses(it, a, b).map(|(_, misses)| misses))
        }));
        if let Some(pages) = self.cache(Counter::LazyWritePages) {
            lines
                .push(self.line("pages written lazily", "per second", |a, b| mean_of(pages, a, b)));
        }
        if let Some(pages) = self.log.values(Object::Memory, Counter::PagesPerSec) {
            lines.push(self.line("pages of paging", "per second", |a, b| mean_of(pages, a, b)));
        }
        if let Some(available) = self.available() {
            lines.push(self.line("available", "bytes", |a, b| mean_of(&available, a, b)));
        }
        if let Some(cache) = self.resident() {
            lines.push(self.line("cache", "bytes", |a, b| mean_of(cache, a, b)));
        }
        lines.retain(|line| !line.points.is_empty());
        lines
    }

    /// Returns a value at the points of lines over time; empty unless every point has one.
    fn levels(&self, values: &[Option<f64>]) -> Vec<f64> {
        let means = values.chunks(self.samples_per_point()).map(unweighted_mean);
        means.collect::<Option<Vec<f64>>>().unwrap_or_default()
    }

    /// Returns the number of samples per point of a line over time.
    fn samples_per_point(&self) -> usize {
        self.log.times.len().div_ceil(POINTS_MAX).max(1)
    }

    /// Returns the intervals of a range of samples.
    fn part(&self, from: usize, to: usize) -> Intervals {
        Intervals { seconds: self.intervals.seconds[from..to].to_vec(), ..self.intervals }
    }

    fn line(
        &self,
        name: &'static str,
        unit: &'static str,
        value: impl Fn(usize, usize) -> Option<f64>,
    ) -> Line {
        let count = self.log.times.len();
        let samples_per_point = self.samples_per_point();
        let begin = self.log.times.first().copied().unwrap_or_default();
        let points = (0..count)
            .step_by(samples_per_point)
            .filter_map(|from| {
                let to = (from + samples_per_point).min(count);
                Some((self.log.times[to - 1] - begin, value(from, to)?))
            })
            .collect();
        Line { name, unit, points }
    }
}
