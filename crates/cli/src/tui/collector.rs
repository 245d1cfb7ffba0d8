//! Data of this machine that needs no tracing: open files and their resident parts, processes and
//! their I/O, disks, and caches that larder serves here.
//!
//! File accesses by process, and their hits, need tracing: [`super::uses`].

use super::snapshot::{Grid, TopSnapshot, Value, View};
use super::uses::UseTracer;
use crate::colors;
use larder_host::disk_counters;
use larder_host::memory::Memory;
use larder_host::processes::{self, OpenFile, ProcessIo};
use larder_host::residency;
use larder_report::watch::not_counted;
use larder_schema::as_f64;
use larder_schema::control::Stats;
use larder_schema::format;
use larder_schema::watch::Disk;
use larder_server::client::{Client, socket_directory};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Maximum number of open files; querying the residency of more would itself load the machine.
const FILES_MAX: usize = 1000;
/// Time limit for the answer of a server: one that is stopped does not answer.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(300);

/// The machine through procfs, cachestat(2) and the control sockets.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    /// Times of the first and the last snapshot.
    first: Option<Instant>,
    last: Option<Instant>,
    processes: BTreeMap<u32, ProcessIo>,
    disks: Vec<Disk>,
    /// Disks whose counters were switched off.
    switched_off: BTreeSet<String>,
    /// The last statistics of each server that answered.
    servers: Vec<Stats>,
    /// Hit ratios of the last intervals, by server and volume.
    trends: BTreeMap<String, Vec<f64>>,
    uses: UseTracer,
}

impl Collector {
    /// Returns the current snapshot; rates are those since the previous call, and the first
    /// snapshot has none. Data that is expensive to collect is collected only after its view was
    /// first selected.
    pub(crate) fn collect(&mut self, view: View) -> TopSnapshot {
        let now = Instant::now();
        let seconds = self.last.map(|last| now.duration_since(last).as_secs_f64());
        self.last = Some(now);
        if view == View::Uses {
            self.uses.begin();
        }
        TopSnapshot {
            at_s: now.duration_since(*self.first.get_or_insert(now)).as_secs_f64(),
            memory: Memory::now().map_or_else(String::new, memory_line),
            // In the order of the views.
            grids: [
                files(),
                self.collect_processes(seconds),
                self.collect_disks(seconds),
                self.collect_caches(),
                self.uses.refresh(),
            ],
        }
    }

    /// Reads pending events; the caller calls it every few milliseconds.
    pub(crate) fn step(&mut self) {
        self.uses.step();
    }
}

fn memory_line(memory: Memory) -> String {
    format!(
        "cache {}, dirty {}, writing {}, available {} of {}",
        format::bytes(memory.cache_bytes),
        format::bytes(memory.dirty_bytes),
        format::bytes(memory.write_back_bytes),
        format::bytes(memory.available_bytes),
        format::bytes(memory.total_bytes)
    )
}

fn files() -> Grid {
    let (page, mounts) = (residency::page_bytes(), residency::LocalMounts::now());
    let row = |(path, file): (std::path::PathBuf, OpenFile)| {
        // A lease of another process, for example, prevents a query.
        let figures = mounts.of_open_file(&path, file.identity).map(|found| {
            let dirty = (found.dirty + found.write_back) * page;
            [
                Some(Value::Bytes(found.resident * page)),
                found.share().map(Value::Share),
                found.knows_dirty().then_some(Value::Bytes(dirty)),
                Some(Value::Bytes(found.pages * page)),
            ]
        });
        let figures = figures.unwrap_or_default();
        let [resident, share, dirty, size] = figures.map(|it| it.unwrap_or(Value::Missing));
        let path = Value::Word(path.display().to_string());
        vec![path, resident, share, dirty, Value::Word(file.process), size]
    };
    let open = processes::open_files(FILES_MAX);
    let rows = open.files.into_iter().map(row).collect();
    let more =
        if open.is_cut { format!(" More than {FILES_MAX} are open.") } else { String::new() };
    let incomplete = open.incomplete.map(|clause| format!(" Files are missing: {clause}."));
    let incomplete = incomplete.unwrap_or_default();
    Grid {
        columns: vec!["open file", "resident", "of it", "dirty", "opened by", "size"],
        sort: 1,
        rows,
        note: Some(format!(
            "Files that are open now.{more}{incomplete} View 5 (uses) shows the tasks that \
             read them, and their hits."
        )),
        ..Grid::default()
    }
}

/// Returns the rate per second since the previous reading.
fn per_second(now: u64, before: u64, seconds: Option<f64>) -> Option<f64> {
    let seconds = seconds.filter(|seconds| *seconds > 0.0)?;
    Some(as_f64(now.saturating_sub(before)) / seconds)
}

/// Returns the mean; `None` if there are no events.
fn mean(sum: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| as_f64(sum) / as_f64(count))
}

impl Collector {
    fn collect_processes(&mut self, seconds: Option<f64>) -> Grid {
        let now = processes::all();
        let mut rows = Vec::new();
        for process in &now {
            let before = self.processes.get(&process.pid);
            let before = before.filter(|before| {
                let is_same = before.identity == process.identity;
                is_same && before.has_counters && process.has_counters
            });
            let rate = |field: fn(&ProcessIo) -> u64| {
                let rate = before.and_then(|b| per_second(field(process), field(b), seconds));
                rate.map_or(Value::Missing, Value::ByteRate)
            };
            rows.push(vec![
                Value::Word(format!("{} ({})", process.name, process.pid)),
                rate(|it| it.asked_bytes),
                rate(|it| it.disk_read_bytes),
                rate(|it| it.given_bytes),
                rate(|it| it.dirtied_bytes),
                Value::Bytes(process.private_bytes),
            ]);
        }
        self.processes = now.into_iter().map(|process| (process.pid, process)).collect();
        let note = "Read and written: bytes of read and write calls, from memory or disk. \
                    Dirtied: bytes to be written to disk.";
        Grid {
            columns: vec!["process", "read", "from disk", "written", "dirtied", "own memory"],
            sort: 1,
            rows,
            note: Some(note.to_owned()),
            ..Grid::default()
        }
    }

    /// Returns the disks whose requests the kernel did not count since the previous reading.
    fn uncounted_disks(&mut self, now: &[Disk]) -> BTreeSet<String> {
        let requests = |disk: &Disk| disk.reads + disk.writes;
        let was = |disk: &Disk| self.disks.iter().find(|it| it.name == disk.name).map(requests);
        let grew = |disk: &&Disk| was(disk).is_some_and(|before| before != requests(disk));
        let active: Vec<Disk> = now.iter().filter(grew).cloned().collect();
        let switched_off = disk_counters::switched_off();
        let uncounted = disk_counters::uncounted(&self.switched_off, &switched_off, &active);
        self.switched_off = switched_off;
        uncounted
    }

    fn collect_disks(&mut self, seconds: Option<f64>) -> Grid {
        const COLUMNS: [&str; 11] = [
            "disk",
            "busy",
            "reads/s",
            "a read",
            "writes/s",
            "a write",
            "queue",
            "bytes/read",
            "bytes/write",
            "% read time",
            "% write time",
        ];
        let now = disk_counters::all();
        let uncounted = self.uncounted_disks(&now);
        let mut rows = Vec::new();
        for disk in now.iter().filter(|disk| !uncounted.contains(&disk.name)) {
            let Some(before) = self.disks.iter().find(|before| before.name == disk.name) else {
                continue;
            };
            let since = |field: fn(&Disk) -> u64| field(disk).saturating_sub(field(before));
            let rate = |field: fn(&Disk) -> u64| {
                per_second(field(disk), field(before), seconds).map_or(Value::Missing, Value::Rate)
            };
            let time = |ms: fn(&Disk) -> u64, count: fn(&Disk) -> u64| {
                let mean = mean(since(ms), since(count));
                mean.map_or(Value::Missing, |mean| Value::Time(mean * 1e6))
            };
            let size = |bytes: fn(&Disk) -> u64, count: fn(&Disk) -> u64| {
                since(bytes).checked_div(since(count)).map_or(Value::Missing, Value::Bytes)
            };
            let share = |ms: fn(&Disk) -> u64| {
                per_second(ms(disk), ms(before), seconds).map(|ms| ms / 1000.0)
            };
            let of_time = |ms| share(ms).map_or(Value::Missing, Value::Share);
            rows.push(vec![
                Value::Word(disk.name.clone()),
                of_time(|it| it.busy_ms),
                rate(|it| it.reads),
                time(|it| it.read_ms, |it| it.reads),
                rate(|it| it.writes),
                time(|it| it.write_ms, |it| it.writes),
                share(|it| it.queue_ms).map_or(Value::Missing, Value::Number),
                size(Disk::read_bytes, |it| it.reads),
                size(Disk::write_bytes, |it| it.writes),
                of_time(|it| it.read_ms),
                of_time(|it| it.write_ms),
            ]);
        }
        self.disks = now;
        // The first snapshot has no rates, and so no disks.
        let uncounted = if seconds.is_some() { uncounted } else { BTreeSet::new() };
        rows.extend(uncounted.iter().map(|disk| {
            let mut row = vec![Value::Missing; COLUMNS.len()];
            row[0] = Value::Word(disk.clone());
            row
        }));
        let sentences: Vec<String> = uncounted.iter().map(|disk| not_counted(disk)).collect();
        Grid {
            columns: COLUMNS.to_vec(),
            note: (!sentences.is_empty()).then(|| sentences.join("; ")),
            sort: 1,
            rows,
            ..Grid::default()
        }
    }

    fn collect_caches(&mut self) -> Grid {
        let clients = Client::all().unwrap_or_default();
        let stats = |client: &Client| client.get_within("stats", ANSWER_TIME_MAX).ok();
        let now: Vec<Stats> = clients.iter().filter_map(stats).collect();
        let mut rows = Vec::new();
        for stats in &now {
            // A shorter uptime means that the server was restarted.
            let before = self
                .servers
                .iter()
                .find(|before| before.uptime_ns < stats.uptime_ns && names(before) == names(stats));
            let Some(before) = before else { continue };
            let (since, seconds) = stats.since(before);
            for volume in &since.volumes {
                let count = |name: &str| volume.counters.get(name).copied().unwrap_or(0);
                let rate = |name: &str| {
                    per_second(count(name), 0, Some(seconds)).map_or(Value::Missing, Value::Rate)
                };
                let gauge =
                    |name: &str| Value::Bytes(volume.gauges.get(name).copied().unwrap_or(0));
                let name = format!("{:?} {}", names(stats), volume.name);
                let trend = self.trends.entry(name).or_default();
                colors::extend_trend(trend, volume.read_hit_ratio);
                let bypassed = count("read_bypass_pages") + count("write_bypass_pages");
                rows.push(vec![
                    Value::Word(volume.name.clone()),
                    volume.read_hit_ratio.map_or(Value::Missing, Value::Share),
                    Value::Trend(trend.clone()),
                    rate("read_requests"),
                    rate("write_requests"),
                    gauge("resident_bytes"),
                    gauge("dirty_bytes"),
                    rate("store_reads"),
                    rate("store_writes"),
                    per_second(bypassed, 0, Some(seconds)).map_or(Value::Missing, Value::Rate),
                ]);
            }
        }
        let note = now.is_empty().then(|| {
            format!("No server that you may query has a socket in {}.", socket_directory())
        });
        self.servers = now;
        Grid {
            columns: vec![
                "volume",
                "hits",
                "trend",
                "reads/s",
                "writes/s",
                "resident",
                "dirty",
                "store reads/s",
                "store writes/s",
                "bypassed/s",
            ],
            sort: 3,
            rows,
            note,
            ..Grid::default()
        }
    }
}

/// Returns the names of the volumes, which identify a server.
fn names(stats: &Stats) -> Vec<&str> {
    stats.volumes.iter().map(|volume| volume.name.as_str()).collect()
}
