//! Counters of the host from procfs and sysfs, without tracing.
//!
//! Invariant: a counter is the difference between two readings; one that went backwards is 0.

use super::metadata_caches::{self, MetadataReading};
use super::readings::CounterReadings;
use crate::activity::{self, Cpu};
use crate::processes::{self, ProcessIo};
use crate::stack::{Roots, Stack};
use crate::{device, proc, residency};
use larder_schema::host_counters::{HostCounters, HostCpu, HostDisk, HostMemory, HostProcess};
use larder_schema::watch::Disk;
use larder_schema::{ValueRange, as_f64, format, share};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// Maximum number of processes in a result.
const PROCESSES_MAX: usize = 100;
/// Number of processes whose disks are found.
const WRITERS: usize = 16;
/// Minimum length of a sample for its maxima, seconds: the kernel counts milliseconds.
const SAMPLE_MIN_S: f64 = 0.1;

/// Samples the counters of the host.
///
/// [`HostSampler::step`] takes a sample; the maxima of the result are those of samples, everything
/// else is the difference between begin and end.
#[derive(Debug)]
pub struct HostSampler {
    begin: Moment,
    last: Moment,
    samples: u64,
    processes: Vec<ProcessIo>,
    metadata: Vec<MetadataReading>,
    /// Bytes that the page cache had written to each disk at the start, by device number.
    lazy_bytes: BTreeMap<u32, u64>,
    disks_max: BTreeMap<String, DiskMaxima>,
    sizes: CacheSizes,
}

/// Counters at one time that each sample reads.
#[derive(Clone, Debug)]
struct Moment {
    at: Instant,
    cpu: Option<Cpu>,
    counters: CounterReadings,
}

#[derive(Clone, Copy, Debug, Default)]
struct DiskMaxima {
    busy: f64,
    queue: f64,
}

/// Sizes in bytes, and a share.
#[derive(Clone, Copy, Debug, Default)]
struct CacheSizes {
    cache: ValueRange,
    available: ValueRange,
    paging_file_use: ValueRange,
}

impl CacheSizes {
    fn add(&mut self) {
        let meminfo = proc::meminfo();
        self.cache.add(crate::memory::cache_bytes(&meminfo).map(as_f64));
        self.available.add(meminfo("MemAvailable").map(as_f64));
        let total = meminfo("SwapTotal").filter(|total| *total > 0);
        let used = |total: u64| share(total.saturating_sub(meminfo("SwapFree")?), total);
        self.paging_file_use.add(total.and_then(used));
    }
}

impl Moment {
    fn now() -> Moment {
        let counters = CounterReadings::now(None);
        Moment { at: Instant::now(), cpu: Cpu::now(), counters }
    }

    /// Returns the bytes that the page cache has written to each disk until now.
    fn lazy_bytes(&self) -> BTreeMap<u32, u64> {
        let lazy = |dev: u32| Some((dev, lazy_bytes(dev)?));
        self.counters.disks.iter().filter_map(|(dev, _)| lazy(*dev)).collect()
    }

    /// Returns the number of the disk with a name.
    fn number_of(&self, name: &str) -> Option<u32> {
        self.counters.disks.iter().find(|(_, disk)| disk.name == name).map(|(dev, _)| *dev)
    }
}

impl HostSampler {
    /// Starts.
    #[must_use]
    pub fn start() -> HostSampler {
        let processes = processes::all();
        let mut sizes = CacheSizes::default();
        sizes.add();
        let begin = Moment::now();
        HostSampler {
            last: begin.clone(),
            samples: 0,
            processes,
            metadata: metadata_caches::read(),
            lazy_bytes: begin.lazy_bytes(),
            disks_max: BTreeMap::new(),
            sizes,
            begin,
        }
    }

    /// Takes a sample. One that is shorter than a tenth of a second has no maxima.
    pub fn step(&mut self) {
        let now = Moment::now();
        let seconds = now.at.duration_since(self.last.at).as_secs_f64();
        if seconds < SAMPLE_MIN_S {
            return;
        }
        for disk in now.counters.disks_since(&self.last.counters).0 {
            let max = self.disks_max.entry(disk.name.clone()).or_default();
            max.busy = max.busy.max((as_f64(disk.busy_ms) / 1000.0 / seconds).min(1.0));
            max.queue = max.queue.max(as_f64(disk.queue_ms) / 1000.0 / seconds);
        }
        self.sizes.add();
        self.samples += 1;
        self.last = now;
    }

    /// Returns the counters from the start to the last sample; those of processes until now.
    #[must_use]
    pub fn counters(&self) -> HostCounters {
        let (begin, last) = (&self.begin, &self.last);
        let seconds = last.at.duration_since(begin.at).as_secs_f64().max(1e-3);
        let ticks = last.cpu.zip(begin.cpu).map(|(now, before)| now.since(before));
        let processors = activity::processors().unwrap_or(1);
        // Ticks of one processor.
        let each = ticks.map(|it| as_f64(it.total) / f64::from(processors));
        let (processes, ended, unread) = self.processes(seconds, each);
        let (active, uncounted_disks) = last.counters.disks_since(&begin.counters);
        let mut notes = Vec::new();
        if ended > 0 {
            let ended = format::counted(ended as u64, "process");
            notes.push(format!("{ended} ended during the sample; the parents have their I/O."));
        }
        if unread > 0 {
            let unread = format::counted(unread as u64, "process");
            notes.push(format!("{unread} could not be inspected, and may have caused more."));
        }
        HostCounters {
            source: "/proc".to_owned(),
            host: String::new(),
            seconds: Some(seconds),
            samples: self.samples,
            processors: Some(processors),
            cpu: ticks.map_or_else(HostCpu::default, |it| HostCpu {
                busy: share(it.total.saturating_sub(it.idle), it.total),
                io_wait: share(it.io_wait, it.total),
                steal: share(it.steal, it.total),
            }),
            disks: self.disks(active, seconds),
            uncounted_disks,
            memory: self.memory(seconds),
            metadata: metadata_caches::since(&metadata_caches::read(), &self.metadata, seconds),
            processes,
            notes,
        }
    }

    fn disks(&self, disks: Vec<Disk>, seconds: f64) -> Vec<HostDisk> {
        let lazy_bytes = self.last.lazy_bytes();
        let is_whole = |disk: &Disk| Path::new("/sys/block").join(&disk.name).exists();
        let disk = |disk: Disk| {
            let max = self.disks_max.get(&disk.name).copied().unwrap_or_default();
            let number = self.last.number_of(&disk.name);
            let lazy = number.and_then(|dev| {
                let before = *self.lazy_bytes.get(&dev)?;
                Some(as_f64(lazy_bytes.get(&dev)?.saturating_sub(before)) / seconds)
            });
            let stack = number
                .and_then(|dev| Stack::of_file_system(&Roots::default(), device::decode(dev)).ok());
            let rotational = format!("/sys/block/{}/queue/rotational", disk.name);
            HostDisk {
                is_rotational: proc::read(rotational).map(|text| text == "1"),
                below: stack.map(|it| it.names_below()).unwrap_or_default(),
                lazy_bytes_per_s: lazy,
                busy_max: Some(max.busy),
                queue_max: Some(max.queue),
                ..host_disk(&disk, seconds)
            }
        };
        let mut disks: Vec<HostDisk> = disks.into_iter().filter(is_whole).map(disk).collect();
        disks.sort_by(|a, b| b.queue.unwrap_or(0.0).total_cmp(&a.queue.unwrap_or(0.0)));
        disks
    }

    fn memory(&self, seconds: f64) -> HostMemory {
        let since = |name| {
            let count = |moment: &Moment| proc::counter(moment.counters.vmstat(), name);
            as_f64(count(&self.last).saturating_sub(count(&self.begin))) / seconds
        };
        let page_bytes = as_f64(residency::page_bytes());
        let memory = self.last.counters.memory_since(&self.begin.counters);
        HostMemory {
            available_min_bytes: self.sizes.available.min(),
            cache_first_bytes: self.sizes.cache.first(),
            cache_last_bytes: self.sizes.cache.last(),
            cache_max_bytes: self.sizes.cache.max(),
            paging_file_use: self.sizes.paging_file_use.last(),
            paging_file_use_max: self.sizes.paging_file_use.max(),
            pages_per_s: Some(since("pswpin") + since("pswpout")),
            lazy_flushes_per_s: None,
            lazy_pages_per_s: Some(since("nr_written")),
            page_bytes: Some(page_bytes),
            reread_bytes_per_s: Some(as_f64(memory.refault_pages) * page_bytes / seconds),
            hit_ratio: None,
            misses_per_s: None,
            io_pressure: memory.io_pressure,
            memory_pressure: memory.memory_pressure,
        }
    }

    /// Returns the processes with the most I/O, the number of those that have ended, and of those
    /// that could not be inspected.
    fn processes(&self, seconds: f64, ticks: Option<f64>) -> (Vec<HostProcess>, usize, usize) {
        let now = processes::all();
        let before: BTreeMap<u32, &ProcessIo> =
            self.processes.iter().map(|it| (it.pid, it)).collect();
        let (mut found, mut lived_on) = (Vec::new(), 0);
        for after in &now {
            let same = before.get(&after.pid).filter(|it| it.identity == after.identity);
            lived_on += usize::from(same.is_some());
            let started;
            let earlier = if let Some(same) = same {
                same
            } else {
                started = without_counts(after);
                &started
            };
            found.push(host_process(earlier, after, seconds, ticks));
        }
        let ended = before.len() - lived_on;
        found.retain(|it| it.pid != Some(std::process::id()));
        let weight = |it: &HostProcess| {
            let disk =
                it.disk_read_bytes_per_s.unwrap_or(0.0) + it.disk_write_bytes_per_s.unwrap_or(0.0);
            (disk, it.data_bytes_per_s().unwrap_or(0.0) + it.cpu.unwrap_or(0.0))
        };
        found.retain(|it| weight(it) != (0.0, 0.0));
        found.sort_by(|a, b| weight(b).partial_cmp(&weight(a)).expect("numbers"));
        // A process that only computes may come last.
        let busiest = found
            .iter()
            .enumerate()
            .max_by(|a, b| a.1.cpu.unwrap_or(0.0).total_cmp(&b.1.cpu.unwrap_or(0.0)))
            .map(|(index, _)| index);
        if let Some(index) = busiest.filter(|index| *index >= PROCESSES_MAX) {
            found.swap(index, PROCESSES_MAX - 1);
        }
        found.truncate(PROCESSES_MAX);
        for process in found.iter_mut().take(WRITERS) {
            let pid = process.pid.filter(|_| process.disk_write_bytes_per_s > Some(0.0));
            let disks = pid.and_then(processes::disks_of);
            process.disks = disks.map(|disks| disks.into_iter().collect());
        }
        (found, ended, now.iter().filter(|it| !it.has_counters).count())
    }
}

/// Returns the bytes that the page cache has written to a disk, if debugfs is mounted and this
/// process may read it.
fn lazy_bytes(dev: u32) -> Option<u64> {
    let (major, minor) = device::decode(dev);
    let stats = proc::read(format!("/sys/kernel/debug/bdi/{major}:{minor}/stats"))?;
    proc::field(&stats, "BdiWritten")?.checked_mul(1024)
}

/// Returns a process as it was before its first operation.
fn without_counts(process: &ProcessIo) -> ProcessIo {
    ProcessIo {
        read_calls: 0,
        write_calls: 0,
        cpu_ticks: 0,
        asked_bytes: 0,
        given_bytes: 0,
        disk_read_bytes: 0,
        dirtied_bytes: 0,
        private_bytes: 0,
        ..process.clone()
    }
}

fn host_process(
    before: &ProcessIo,
    after: &ProcessIo,
    seconds: f64,
    ticks: Option<f64>,
) -> HostProcess {
    let has_counters = before.has_counters && after.has_counters;
    let rate = |count: fn(&ProcessIo) -> u64| {
        has_counters.then(|| as_f64(count(after).saturating_sub(count(before))) / seconds)
    };
    let cpu_ticks = as_f64(after.cpu_ticks.saturating_sub(before.cpu_ticks));
    let ticks = ticks.filter(|ticks| has_counters && *ticks > 0.0);
    HostProcess {
        process: after.name.clone(),
        pid: Some(after.pid),
        cpu: ticks.map(|ticks| cpu_ticks / ticks),
        reads_per_s: rate(|it| it.read_calls),
        writes_per_s: rate(|it| it.write_calls),
        others_per_s: None,
        read_bytes_per_s: rate(|it| it.asked_bytes),
        write_bytes_per_s: rate(|it| it.given_bytes),
        disk_read_bytes_per_s: rate(|it| it.disk_read_bytes),
        disk_write_bytes_per_s: rate(|it| it.dirtied_bytes),
        disks: None,
        private_bytes: has_counters.then(|| as_f64(after.private_bytes)),
        private_growth_bytes: has_counters
            .then(|| as_f64(after.private_bytes) - as_f64(before.private_bytes)),
    }
}

/// Returns the activity of a disk in some seconds.
fn host_disk(disk: &Disk, seconds: f64) -> HostDisk {
    let rate = |count: u64| Some(as_f64(count) / seconds);
    let each = |sum: f64, count: u64| (count > 0).then(|| sum / as_f64(count));
    let of_time = |ms: u64| as_f64(ms) / 1000.0;
    HostDisk {
        disk: disk.name.clone(),
        is_rotational: None,
        below: Vec::new(),
        lazy_bytes_per_s: None,
        reads_per_s: rate(disk.reads),
        writes_per_s: rate(disk.writes),
        transfers_per_s: None,
        read_bytes_per_s: rate(disk.read_bytes()),
        write_bytes_per_s: rate(disk.write_bytes()),
        seconds_per_read: each(of_time(disk.read_ms), disk.reads),
        seconds_per_write: each(of_time(disk.write_ms), disk.writes),
        seconds_per_transfer: None,
        read_time: Some(of_time(disk.read_ms) / seconds),
        write_time: Some(of_time(disk.write_ms) / seconds),
        busy: Some((of_time(disk.busy_ms) / seconds).min(1.0)),
        busy_max: None,
        queue: Some(of_time(disk.queue_ms) / seconds),
        queue_max: None,
        splits_per_s: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    #[test]
    fn a_disk_has_the_measures_of_perfmon() {
        let disk = Disk {
            name: "a".to_owned(),
            reads: 40,
            read_sectors: 320,
            read_ms: 800,
            busy_ms: 600,
            queue_ms: 800,
            ..Disk::default()
        };
        let found = host_disk(&disk, 2.0);
        assert_eq!((found.reads_per_s, found.writes_per_s), (Some(20.0), Some(0.0)));
        assert_eq!((found.bytes_per_read(), found.bytes_per_write()), (Some(4096.0), None));
        assert_eq!((found.seconds_per_read, found.read_time), (Some(0.02), Some(0.4)));
        assert_eq!((found.busy, found.queue), (Some(0.3), Some(0.4)));
    }

    #[test]
    fn a_process_that_writes_is_found_and_this_one_is_left_out() {
        let mut sampler = HostSampler::start();
        let directory = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", "head -c 6553600 /dev/zero > file; read word"])
            .current_dir(&directory)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let file = directory.path().join("file");
        while std::fs::metadata(&file).map_or(0, |it| it.len()) < 6_553_600 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_secs_f64(SAMPLE_MIN_S));
        sampler.step();
        let counters = sampler.counters();
        drop(child.stdin.take());
        child.wait().unwrap();
        let of = |pid: u32| counters.processes.iter().find(|it| it.pid == Some(pid));
        let writer = of(child.id()).expect("it wrote, and so did its child");
        assert!(writer.write_bytes_per_s.unwrap() > 1000.0 && writer.cpu.is_some(), "{writer:?}");
        assert_eq!(of(std::process::id()), None);
        assert!(counters.memory.cache_last_bytes.is_some() && counters.processors.is_some());
    }
}
