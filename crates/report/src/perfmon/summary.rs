//! What a log comes to.

use super::counters::{Counter, Kind, Object};
use super::log::Log;
use super::weighting::{Intervals, averaged, range};
use super::{SCHEMA, VERSION, time};
use crate::findings::{self, Finding, Observation};
use serde::Serialize;

/// Points of a line over time, at most.
const POINTS: usize = 240;
/// Processes that are told about, those with the most I/O first.
const PROCESSES: usize = 12;

/// One of the interfaces of the cache.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interface {
    /// `copy`, `data map`, `pin`, `mdl`.
    pub interface: &'static str,
    /// Calls per second; none if the log has no such counter.
    pub calls_per_s: Option<f64>,
    /// Hits of all calls; none without calls or without the counter of calls.
    pub hit_ratio: Option<f64>,
    /// What a monitor shows: the plain average of the samples.
    pub averaged_hit_ratio: Option<f64>,
    /// Calls per second that had to wait for a disk.
    pub misses_per_s: Option<f64>,
}

/// Writes in bursts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bursts {
    /// `lazy write`, or `data flush`: the same with flushes and the mapped page writer.
    pub what: &'static str,
    /// Bursts per second.
    pub bursts_per_s: f64,
    /// Pages per second.
    pub pages_per_s: f64,
    /// Pages of a burst: all pages through all bursts.
    pub pages_per_burst: Option<f64>,
    /// Most pages per second in one sample.
    pub pages_per_s_max: f64,
}

/// One disk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Disk {
    /// `LogicalDisk` or `PhysicalDisk`.
    pub object: &'static str,
    /// Its name there.
    pub disk: String,
    /// Reads per second.
    pub reads_per_s: Option<f64>,
    /// Writes per second.
    pub writes_per_s: Option<f64>,
    /// Seconds of a read, over all reads; the plain average where the log has no reads per second.
    pub seconds_per_read: Option<f64>,
    /// The plain average of the samples, as a monitor shows it.
    pub averaged_seconds_per_read: Option<f64>,
    /// As for reads.
    pub seconds_per_write: Option<f64>,
    /// As for reads.
    pub averaged_seconds_per_write: Option<f64>,
    /// Bytes of a read, over all reads.
    pub bytes_per_read: Option<f64>,
    /// Bytes of a write, over all writes.
    pub bytes_per_write: Option<f64>,
    /// Time with a read under way, as a share; more than 1 with several at once.
    pub read_time: Option<f64>,
    /// The same for writes.
    pub write_time: Option<f64>,
    /// Requests waiting or under way.
    pub queue: Option<f64>,
    /// Requests that were split, per second.
    pub splits_per_s: Option<f64>,
}

/// Memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Memory {
    /// Least memory that was available, bytes.
    pub available_min_bytes: Option<f64>,
    /// Its mean.
    pub available_mean_bytes: Option<f64>,
    /// Pages read from and written to disk because of page faults, per second.
    pub pages_per_s: Option<f64>,
    /// The most in one sample.
    pub pages_per_s_max: Option<f64>,
    /// The cache at the beginning, bytes.
    pub cache_first_bytes: Option<f64>,
    /// At its smallest.
    pub cache_min_bytes: Option<f64>,
    /// At its largest.
    pub cache_max_bytes: Option<f64>,
    /// At the end.
    pub cache_last_bytes: Option<f64>,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Process {
    /// Its name.
    pub process: String,
    /// Bytes per second that it read, from the cache or from a disk.
    pub read_bytes_per_s: Option<f64>,
    /// Bytes per second that it wrote.
    pub write_bytes_per_s: Option<f64>,
    /// Its own memory when it was first seen, bytes.
    pub private_first_bytes: Option<f64>,
    /// When it was last seen.
    pub private_last_bytes: Option<f64>,
    /// At the points of lines over time; empty if it was not there all the time.
    pub private_bytes: Vec<f64>,
}

/// A value over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// What it is.
    pub name: &'static str,
    /// `ratio`, `per second`, `bytes`.
    pub unit: &'static str,
    /// Seconds since the beginning, and the value; many samples are joined.
    pub points: Vec<(f64, f64)>,
}

/// Everything that was found in a log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// [`VERSION`].
    pub version: u32,
    /// The machine; empty if the log does not say.
    pub host: String,
    /// The language of the names of counters.
    pub language: String,
    /// First sample, on the clock of the log.
    pub begin: String,
    /// Last sample.
    pub end: String,
    /// Samples.
    pub samples: u64,
    /// The middle interval, seconds; none if there is one sample only.
    pub interval_s: Option<f64>,
    /// The interfaces of the cache of which there is something in the log.
    pub interfaces: Vec<Interface>,
    /// Reads of the copy interface that took the fast way, per second.
    pub fast_reads_per_s: Option<f64>,
    /// Read-ahead operations per second.
    pub read_aheads_per_s: Option<f64>,
    /// Pins of data that was mapped, per second.
    pub data_map_pins_per_s: Option<f64>,
    /// Lazy writes, and all writes of the cache.
    pub bursts: Vec<Bursts>,
    /// Disks.
    pub disks: Vec<Disk>,
    /// Memory, if the log has something of it.
    pub memory: Option<Memory>,
    /// Processes, those with the most I/O first.
    pub processes: Vec<Process>,
    /// Values over time.
    pub lines: Vec<Line>,
    /// What is wrong, as far as a log can show it.
    pub findings: Vec<Finding>,
    /// Counters that were not found of objects that are in the log.
    pub missing: Vec<&'static str>,
    /// Objects of which nothing is in the log.
    pub absent: Vec<&'static str>,
    /// Headings of these objects that mean none of the counters that are told about.
    pub unknown: Vec<String>,
    /// What the user should know about the reading.
    pub notes: Vec<String>,
}

/// Interface, calls, hits.
const INTERFACES: [(&str, Counter, Counter); 4] = [
    ("copy", Counter::CopyReads, Counter::CopyReadHits),
    ("data map", Counter::DataMaps, Counter::DataMapHits),
    ("pin", Counter::PinReads, Counter::PinReadHits),
    ("mdl", Counter::MdlReads, Counter::MdlReadHits),
];

/// A log and its intervals, while it is added up.
struct Adding<'a> {
    log: &'a Log,
    intervals: Intervals,
}

impl Summary {
    pub(super) fn of(log: &Log) -> Summary {
        let adding = Adding { log, intervals: Intervals::of(&log.times) };
        let rate = |counter| {
            adding.log.values(Object::Cache, counter).and_then(|v| adding.intervals.mean(v))
        };
        let at = |time: Option<&f64>| time.map_or_else(String::new, |time| time::show(*time));
        let mut notes = log.notes.clone();
        let gaps = adding.intervals.gaps;
        if gaps > 0 {
            notes.push(format!(
                "the log has {gaps} gaps; nothing is known of what happened in them"
            ));
        }
        if log.times.len() == 1 {
            notes.push("the log has one sample; nothing can be said about changes".to_owned());
        }
        let mut summary = Summary {
            schema: SCHEMA,
            version: VERSION,
            host: log.host.clone(),
            language: log.language.clone(),
            begin: at(log.times.first()),
            end: at(log.times.last()),
            samples: log.times.len() as u64,
            interval_s: (log.times.len() > 1).then_some(adding.intervals.middle),
            interfaces: adding.interfaces(),
            fast_reads_per_s: rate(Counter::FastReads),
            read_aheads_per_s: rate(Counter::ReadAheads),
            data_map_pins_per_s: rate(Counter::DataMapPins),
            bursts: adding.bursts(),
            disks: adding.disks(),
            memory: adding.memory(),
            processes: adding.processes(),
            lines: adding.lines(),
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
}

/// What the objects of a kind are called.
const KINDS: [(Kind, &str); 3] =
    [(Kind::Cache, "the cache"), (Kind::Memory, "memory"), (Kind::Disk, "disks")];

/// Whether a log has anything of a kind, known or not.
fn has_kind(log: &Log, kind: Kind) -> bool {
    log.columns.iter().any(|column| column.object.kind() == kind)
        || log.unknown.iter().any(|(of, _)| *of == kind)
}

/// What is looked for and not there. Memory that is available comes in three units, of which one is
/// enough; a log of logical disks needs no physical ones, and processes are extra.
fn missing(log: &Log) -> Vec<&'static str> {
    let has = |counter| log.columns.iter().any(|column| column.counter == counter);
    let units = [Counter::AvailableBytes, Counter::AvailableKBytes, Counter::AvailableMBytes];
    let enough = |counter| units.contains(&counter) && units.into_iter().any(has);
    let kinds = KINDS.into_iter().map(|(kind, _)| kind).filter(|kind| has_kind(log, *kind));
    kinds
        .flat_map(Counter::of)
        .filter(|counter| !has(*counter) && !enough(*counter))
        .map(Counter::english)
        .collect()
}

impl Adding<'_> {
    fn cache(&self, counter: Counter) -> Option<&[Option<f64>]> {
        self.log.values(Object::Cache, counter)
    }

    fn interfaces(&self) -> Vec<Interface> {
        let interface = |(interface, calls, hits): (&'static str, Counter, Counter)| {
            let (calls, hits) = (self.cache(calls), self.cache(hits));
            if calls.is_none() && hits.is_none() {
                return None;
            }
            let percent = |value: f64| (value / 100.0).min(1.0);
            let hit_ratio = hits
                .zip(calls)
                .and_then(|(hits, calls)| self.intervals.per_call(hits, calls))
                .map(percent);
            let calls_per_s = calls.and_then(|calls| self.intervals.mean(calls));
            Some(Interface {
                interface,
                calls_per_s,
                hit_ratio,
                averaged_hit_ratio: hits.and_then(averaged).map(percent),
                misses_per_s: calls_per_s.zip(hit_ratio).map(|(calls, hits)| calls * (1.0 - hits)),
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
                pages_per_burst: self.intervals.each(pages, flushes),
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

    fn disks(&self) -> Vec<Disk> {
        let mut disks = Vec::new();
        for object in [Object::LogicalDisk, Object::PhysicalDisk] {
            let mut instances = self.log.instances(object);
            // What is added up comes last.
            instances.sort_by_key(|instance| *instance == "_Total");
            disks.extend(instances.into_iter().map(|instance| self.disk(object, instance)));
        }
        disks
    }

    fn disk(&self, object: Object, instance: &str) -> Disk {
        let values = |counter| self.log.instance(object, instance, counter);
        let mean = |counter| values(counter).and_then(|v| self.intervals.mean(v));
        let plain = |counter| values(counter).and_then(averaged);
        let per_call = |counter, calls| match values(calls) {
            Some(calls) => values(counter).and_then(|v| self.intervals.per_call(v, calls)),
            None => plain(counter),
        };
        let share = |counter| mean(counter).map(|percent: f64| percent / 100.0);
        Disk {
            object: object.english(),
            disk: instance.to_owned(),
            reads_per_s: mean(Counter::DiskReads),
            writes_per_s: mean(Counter::DiskWrites),
            seconds_per_read: per_call(Counter::SecPerRead, Counter::DiskReads),
            averaged_seconds_per_read: plain(Counter::SecPerRead),
            seconds_per_write: per_call(Counter::SecPerWrite, Counter::DiskWrites),
            averaged_seconds_per_write: plain(Counter::SecPerWrite),
            bytes_per_read: per_call(Counter::BytesPerRead, Counter::DiskReads),
            bytes_per_write: per_call(Counter::BytesPerWrite, Counter::DiskWrites),
            read_time: share(Counter::ReadTime),
            write_time: share(Counter::WriteTime),
            queue: mean(Counter::AvgDiskQueue).or_else(|| mean(Counter::DiskQueue)),
            splits_per_s: mean(Counter::SplitIo),
        }
    }

    /// Memory that is available, in bytes, whatever unit the log has.
    fn available(&self) -> Option<Vec<Option<f64>>> {
        let units = [
            (Counter::AvailableBytes, 1.0),
            (Counter::AvailableKBytes, 1024.0),
            (Counter::AvailableMBytes, 1024.0 * 1024.0),
        ];
        units.into_iter().find_map(|(counter, unit)| {
            let values = self.log.values(Object::Memory, counter)?;
            Some(values.iter().map(|value| value.map(|value| value * unit)).collect())
        })
    }

    /// What the cache holds; the working set of the whole system where that alone is there.
    fn resident(&self) -> Option<&[Option<f64>]> {
        let memory = |counter| self.log.values(Object::Memory, counter);
        memory(Counter::CacheResident).or_else(|| memory(Counter::CacheBytes))
    }

    fn memory(&self) -> Option<Memory> {
        self.log.columns.iter().find(|column| column.object == Object::Memory)?;
        let available = self.available();
        let pages = self.log.values(Object::Memory, Counter::PagesPerSec);
        let cache = self.resident();
        let ends = cache.and_then(range);
        let mut seen = cache.into_iter().flatten().copied().flatten();
        let first = seen.next();
        Some(Memory {
            available_min_bytes: available.as_deref().and_then(range).map(|ends| ends.0),
            available_mean_bytes: available.as_deref().and_then(|v| self.intervals.mean(v)),
            pages_per_s: pages.and_then(|v| self.intervals.mean(v)),
            pages_per_s_max: pages.and_then(range).map(|ends| ends.1),
            cache_first_bytes: first,
            cache_min_bytes: ends.map(|ends| ends.0),
            cache_max_bytes: ends.map(|ends| ends.1),
            cache_last_bytes: seen.last().or(first),
        })
    }

    fn processes(&self) -> Vec<Process> {
        let ours = |instance: &&str| !["_Total", "Idle"].contains(instance);
        let instances = self.log.instances(Object::Process).into_iter().filter(ours);
        let mut processes: Vec<Process> = instances
            .map(|instance| {
                let values = |counter| self.log.instance(Object::Process, instance, counter);
                let mean = |counter| values(counter).and_then(|v| self.intervals.mean(v));
                let private = values(Counter::PrivateBytes).unwrap_or_default();
                let mut seen = private.iter().copied().flatten();
                let first = seen.next();
                Process {
                    process: instance.to_owned(),
                    read_bytes_per_s: mean(Counter::IoReadBytes),
                    write_bytes_per_s: mean(Counter::IoWriteBytes),
                    private_first_bytes: first,
                    private_last_bytes: seen.last().or(first),
                    private_bytes: self.course(private),
                }
            })
            .collect();
        let weight = |process: &Process| {
            let io =
                process.read_bytes_per_s.unwrap_or(0.0) + process.write_bytes_per_s.unwrap_or(0.0);
            (io, process.private_last_bytes.unwrap_or(0.0))
        };
        processes.sort_by(|a, b| {
            let (a, b) = (weight(a), weight(b));
            b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
        });
        processes.truncate(PROCESSES);
        processes
    }

    fn lines(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        for (interface, calls, hits) in INTERFACES {
            if let (Some(hits), Some(calls)) = (self.cache(hits), self.cache(calls)) {
                let part = |from, to| {
                    let rates = self.part(from, to);
                    let ratio = rates.per_call(&hits[from..to], &calls[from..to]);
                    ratio.map(|percent| (percent / 100.0).min(1.0))
                };
                lines.push(self.line(interface, "ratio", part));
            }
        }
        let mean_of = |values: &[Option<f64>], from: usize, to: usize| {
            self.part(from, to).mean(&values[from..to])
        };
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

    /// A level at the points of lines over time; empty unless it is known at all of them.
    fn course(&self, values: &[Option<f64>]) -> Vec<f64> {
        let means = values.chunks(self.each()).map(averaged);
        means.collect::<Option<Vec<f64>>>().unwrap_or_default()
    }

    /// Samples that become one point of a line over time.
    fn each(&self) -> usize {
        self.log.times.len().div_ceil(POINTS).max(1)
    }

    /// The intervals of some of the samples.
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
        let each = self.each();
        let begin = self.log.times.first().copied().unwrap_or_default();
        let points = (0..count)
            .step_by(each)
            .filter_map(|from| {
                let to = (from + each).min(count);
                Some((self.log.times[to - 1] - begin, value(from, to)?))
            })
            .collect();
        Line { name, unit, points }
    }
}
