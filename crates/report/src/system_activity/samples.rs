//! Sums over the reports of iostat or sar.

use crate::escape;
use larder_schema::ValueRange;
use larder_schema::host_counters::{HostCounters, HostCpu, HostDisk, HostMemory};
use std::collections::BTreeMap;

/// Maximum number of disks; further ones are left out.
const DISKS_MAX: usize = 10_000;
/// Maximum bytes of the name of a disk.
const NAME_MAX: usize = 256;
const KIB: f64 = 1024.0;
/// Bytes of a sector in the columns of old versions.
const SECTOR: f64 = 512.0;
const MIB: f64 = KIB * KIB;
/// Seconds of a millisecond.
const MS: f64 = 1e-3;

/// The sum of a column, and its maximum; `None` without a value.
#[derive(Clone, Copy, Debug, Default)]
struct Sum(Option<(f64, f64, f64)>);

impl Sum {
    fn add(&mut self, value: Option<f64>) {
        let Some(value) = possible(value) else { return };
        let (sum, max, count) = self.0.unwrap_or_default();
        self.0 = Some((sum + value, f64::max(max, value), count + 1.0));
    }

    fn over(self, reports: f64) -> Option<f64> {
        self.0.map(|(sum, ..)| sum / reports)
    }

    fn mean(self) -> Option<f64> {
        self.0.map(|(sum, _, count)| sum / count)
    }

    fn max(self) -> Option<f64> {
        self.0.map(|(_, max, _)| max)
    }
}

/// Leaves out negative values, which come from counters that wrapped around, and infinite ones.
fn possible(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite() && *value >= 0.0)
}

#[derive(Clone, Debug, Default)]
struct DiskSums {
    reports: u64,
    reads: Sum,
    writes: Sum,
    transfers: Sum,
    read_bytes: Sum,
    write_bytes: Sum,
    /// Latencies of all reads of a second, seconds.
    read_time: Sum,
    write_time: Sum,
    transfer_time: Sum,
    queue: Sum,
    busy: Sum,
}

#[derive(Clone, Debug, Default)]
struct Sums {
    reports: u64,
    busy: Sum,
    io_wait: Sum,
    disks: BTreeMap<String, DiskSums>,
    steal: Sum,
    /// Disks that are left out: too many, or with impossible names.
    omitted_disks: u64,
    available: ValueRange,
    cache: ValueRange,
    paging_file: ValueRange,
    pages: Sum,
}

/// Reports of iostat or sar.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    host: String,
    processors: Option<u32>,
    pub(super) is_sar: bool,
    seconds: Option<f64>,
    /// Number of reports of iostat.
    reports: u64,
    /// The first report of iostat.
    first: Sums,
    rest: Sums,
}

impl Samples {
    pub(super) fn of_host(host: &str, processors: Option<u32>) -> Samples {
        Samples { host: host.to_owned(), processors, ..Samples::default() }
    }

    /// Begins a report of iostat.
    pub(super) fn begin_report(&mut self) {
        self.reports += 1;
        self.sums().reports += 1;
    }

    fn sums(&mut self) -> &mut Sums {
        if !self.is_sar && self.reports == 1 { &mut self.first } else { &mut self.rest }
    }

    /// Returns true if nothing was added.
    pub(super) fn is_empty(&self) -> bool {
        self.reports == 0 && !self.is_sar
    }

    pub(super) fn add_seconds(&mut self, seconds: Option<f64>) {
        if let Some(seconds) = seconds {
            self.seconds = Some(self.seconds.unwrap_or(0.0) + seconds);
        }
    }

    /// Adds the line of all processors; `column` returns a value by a name of its column.
    pub(super) fn add_cpu(&mut self, column: impl Fn(&str) -> Option<f64>) {
        let share = |percent: f64| (percent / 100.0).clamp(0.0, 1.0);
        let any = |names: [&str; 2]| names.into_iter().find_map(&column).map(share);
        let (idle, io_wait) = (any(["%idle", "idle"]), any(["%iowait", "iowait"]));
        let sums = self.sums();
        sums.busy.add(idle.map(|idle| (1.0 - idle - io_wait.unwrap_or(0.0)).max(0.0)));
        sums.io_wait.add(io_wait);
        sums.steal.add(any(["%steal", "steal"]));
    }

    /// Adds the line of a disk.
    pub(super) fn add_disk(&mut self, name: &str, column: impl Fn(&str) -> Option<f64>) {
        let sums = self.sums();
        let is_new = !sums.disks.contains_key(name);
        let is_possible = name.len() <= NAME_MAX && !name.contains(escape::is_unsafe);
        if is_new && (!is_possible || sums.disks.len() >= DISKS_MAX) {
            sums.omitted_disks += 1;
            return;
        }
        let disk = sums.disks.entry(name.to_owned()).or_default();
        disk.reports += 1;
        let any = |names: &[&str]| names.iter().find_map(|name| column(name));
        let bytes = |kib: &[&str], mib: &[&str], sectors: &[&str]| {
            let of = |names: &[&str], unit| any(names).map(|value: f64| value * unit);
            of(kib, KIB).or(of(mib, MIB)).or(of(sectors, SECTOR))
        };
        let (reads, writes, transfers) = (any(&["r/s"]), any(&["w/s"]), any(&["tps"]));
        let time = |rate: Option<f64>, ms: Option<f64>| Some(rate? * ms? * MS);
        let latency = any(&["await"]);
        disk.reads.add(reads);
        disk.writes.add(writes);
        disk.transfers.add(transfers);
        disk.read_bytes.add(bytes(
            &["rkB/s", "rkB", "kB_read/s"],
            &["rMB/s"],
            &["rsec/s", "rd_sec/s"],
        ));
        disk.write_bytes.add(bytes(
            &["wkB/s", "wkB", "kB_wrtn/s"],
            &["wMB/s"],
            &["wsec/s", "wr_sec/s"],
        ));
        disk.read_time.add(time(reads, any(&["r_await"]).or(latency)));
        disk.write_time.add(time(writes, any(&["w_await"]).or(latency)));
        disk.transfer_time.add(time(transfers, latency));
        disk.queue.add(any(&["aqu-sz", "avgqu-sz"]));
        disk.busy.add(any(&["%util", "util", "util-percent"]).map(|percent| percent / 100.0));
    }

    /// Adds a line of memory, of swap space or of paging.
    pub(super) fn add_memory(&mut self, column: impl Fn(&str) -> Option<f64>) {
        let any = |names: &[&str]| names.iter().find_map(|name| column(name));
        let sums = self.sums();
        let cached = any(&["kbcached", "cached"]);
        let cache = cached.map(|it| it + any(&["kbbuffers", "buffers"]).unwrap_or(0.0));
        sums.cache.add(possible(cache.map(|kib| kib * KIB)));
        sums.available.add(possible(any(&["kbavail", "avail"]).map(|kib| kib * KIB)));
        let used = any(&["%swpused", "swpused-percent"]);
        sums.paging_file.add(possible(used.map(|percent| percent / 100.0)));
        let (into, out) = (any(&["pswpin/s", "pswpin"]), any(&["pswpout/s", "pswpout"]));
        sums.pages.add(into.zip(out).map(|(into, out)| into + out));
    }

    /// Returns the counters; `None` without a report.
    pub(super) fn counters(self) -> Option<HostCounters> {
        let has_data = |it: &Sums| it.busy.0.is_some() || !it.disks.is_empty();
        let mut notes = Vec::new();
        let sums = if has_data(&self.rest) {
            if has_data(&self.first) {
                let note = "The first report covers the time since boot and is ignored.";
                notes.push(note.to_owned());
            }
            self.rest
        } else {
            notes.push(
                "The log has only the report since boot. Record intervals: iostat -x 5 60."
                    .to_owned(),
            );
            self.first
        };
        if !has_data(&sums) {
            return None;
        }
        let reports = sums.disks.values().map(|disk| disk.reports).max().unwrap_or(0);
        let reports = reports.max(sums.reports);
        let mut disks: Vec<HostDisk> =
            sums.disks.iter().map(|(name, disk)| disk.counters(name, reports)).collect();
        let is_active = |disk: &HostDisk| {
            let all = [disk.requests_per_s(), disk.busy, disk.queue];
            all.into_iter().flatten().any(|value| value > 0.0)
        };
        // Idle disks are evidence if there are no others.
        if disks.iter().any(is_active) {
            disks.retain(is_active);
        }
        if sums.omitted_disks > 0 {
            notes.push(format!("Lines of disks that are left out: {}.", sums.omitted_disks));
        }
        disks.sort_by(|a, b| b.queue.unwrap_or(0.0).total_cmp(&a.queue.unwrap_or(0.0)));
        notes.push(
            "This log has no processes, repeated reads or waiting tasks. To tell whether a process \
             or a small cache is the cause, run larder advise --live."
                .to_owned(),
        );
        Some(HostCounters {
            source: if self.is_sar { "sar" } else { "iostat" }.to_owned(),
            host: self.host,
            seconds: self.seconds,
            samples: reports.max(1),
            processors: self.processors,
            cpu: HostCpu {
                busy: sums.busy.mean(),
                io_wait: sums.io_wait.mean(),
                steal: sums.steal.mean(),
            },
            disks,
            uncounted_disks: Vec::new(),
            memory: sums.memory(),
            metadata: Vec::new(),
            processes: Vec::new(),
            notes,
        })
    }
}

impl Sums {
    fn memory(&self) -> HostMemory {
        HostMemory {
            available_min_bytes: self.available.min(),
            cache_first_bytes: self.cache.first(),
            cache_last_bytes: self.cache.last(),
            cache_max_bytes: self.cache.max(),
            paging_file_use: self.paging_file.last(),
            paging_file_use_max: self.paging_file.max(),
            pages_per_s: self.pages.mean(),
            ..HostMemory::default()
        }
    }
}

impl DiskSums {
    fn counters(&self, name: &str, reports: u64) -> HostDisk {
        let reports = larder_schema::as_f64(reports.max(1));
        let mean = |sum: Sum| sum.over(reports);
        let each =
            |time: Sum, count: Sum| Some(mean(time)? / mean(count).filter(|count| *count > 0.0)?);
        let is_separate = self.reads.0.is_some();
        HostDisk {
            disk: name.to_owned(),
            reads_per_s: mean(self.reads),
            writes_per_s: mean(self.writes),
            transfers_per_s: if is_separate { None } else { mean(self.transfers) },
            read_bytes_per_s: mean(self.read_bytes),
            write_bytes_per_s: mean(self.write_bytes),
            seconds_per_read: each(self.read_time, self.reads),
            seconds_per_write: each(self.write_time, self.writes),
            seconds_per_transfer: each(self.transfer_time, self.transfers),
            read_time: mean(self.read_time),
            write_time: mean(self.write_time),
            busy: mean(self.busy),
            busy_max: self.busy.max(),
            queue: mean(self.queue),
            queue_max: self.queue.max(),
            ..HostDisk::default()
        }
    }
}
