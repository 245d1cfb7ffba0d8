//! Counters of a host from results of `larder watch` and from logs of Perfmon.

use larder_schema::as_f64;
use larder_schema::host_counters::{HostCounters, HostCpu, HostDisk, HostMemory, HostProcess};
use larder_schema::perfmon::{Disk, Process, Summary};
use larder_schema::watch::Watch;

/// Returns the counters of a result of `larder watch`; `None` if it has none.
#[must_use]
pub fn of_watch(watch: &Watch) -> Option<HostCounters> {
    let mut counters = watch.host.clone()?;
    let (total, sum) = (&watch.total, &watch.total.sum);
    let seconds = as_f64(total.duration_ns.max(1)) / 1e9;
    let rate = |count: u64| Some(as_f64(count) / seconds);
    "larder watch".clone_into(&mut counters.source);
    if watch.total.lost_events > 0 {
        counters
            .notes
            .push("The kernel dropped events: the counts of the cache are too low.".to_owned());
    }
    counters.memory.hit_ratio = sum.hit_ratio();
    counters.memory.misses_per_s = counters.memory.hit_ratio.and(rate(sum.miss_pages));
    counters.memory.lazy_flushes_per_s = rate(sum.lazy_flushes);
    for disk in &mut counters.disks {
        let of_watch = total.disks.iter().find(|it| it.name == disk.disk);
        disk.splits_per_s = of_watch.and_then(|it| rate(it.splits));
    }
    Some(counters)
}

/// Returns the counters of a log of Perfmon.
#[must_use]
pub fn of_log(log: &Summary) -> HostCounters {
    HostCounters {
        source: "Perfmon".to_owned(),
        host: log.host.clone(),
        seconds: log.interval_s.map(|interval| interval * as_f64(log.samples)),
        samples: log.samples,
        cpu: HostCpu { busy: log.processor.as_ref().and_then(|it| it.time), ..HostCpu::default() },
        disks: disks(&log.disks),
        memory: memory(log),
        processes: log.processes.iter().map(process).collect(),
        notes: log.notes.clone(),
        ..HostCounters::default()
    }
}

/// Returns the physical disks, or the logical ones if the log has no others.
fn disks(all: &[Disk]) -> Vec<HostDisk> {
    let of = |object: &str| -> Vec<HostDisk> {
        let is_disk = |disk: &&Disk| disk.object == object && disk.disk != "_Total";
        all.iter().filter(is_disk).map(disk).collect()
    };
    let physical = of("PhysicalDisk");
    if physical.is_empty() { of("LogicalDisk") } else { physical }
}

fn disk(disk: &Disk) -> HostDisk {
    let bytes = |rate: Option<f64>, each: Option<f64>| Some(rate? * each?);
    HostDisk {
        disk: disk.disk.clone(),
        reads_per_s: disk.reads_per_s,
        writes_per_s: disk.writes_per_s,
        transfers_per_s: disk.transfers_per_s,
        read_bytes_per_s: bytes(disk.reads_per_s, disk.bytes_per_read),
        write_bytes_per_s: bytes(disk.writes_per_s, disk.bytes_per_write),
        seconds_per_read: disk.seconds_per_read,
        seconds_per_write: disk.seconds_per_write,
        seconds_per_transfer: disk.seconds_per_transfer,
        read_time: disk.read_time,
        write_time: disk.write_time,
        busy: disk.busy,
        busy_max: disk.busy_max,
        queue: disk.queue,
        queue_max: disk.queue_max,
        splits_per_s: disk.splits_per_s,
        ..HostDisk::default()
    }
}

fn memory(log: &Summary) -> HostMemory {
    // Reads of data: the other interfaces count calls of file systems on their own structures.
    let of_data = || log.interfaces.iter().filter(|it| ["copy", "mdl"].contains(&it.interface));
    let calls: f64 = of_data().filter_map(|it| it.calls_per_s).sum();
    let misses: f64 = of_data().filter_map(|it| it.misses_per_s).sum();
    let has_hits = calls > 0.0 && of_data().any(|it| it.misses_per_s.is_some());
    let lazy = log.bursts.iter().find(|it| it.what == "lazy write");
    let memory = log.memory.as_ref();
    let paging = log.paging_files.last();
    HostMemory {
        available_min_bytes: memory.and_then(|it| it.available_min_bytes),
        cache_first_bytes: memory.and_then(|it| it.cache_first_bytes),
        cache_last_bytes: memory.and_then(|it| it.cache_last_bytes),
        cache_max_bytes: memory.and_then(|it| it.cache_max_bytes),
        paging_file_use: paging.and_then(|it| it.usage),
        paging_file_use_max: paging.and_then(|it| it.usage_peak.or(it.usage_max)),
        pages_per_s: memory.and_then(|it| it.pages_per_s),
        lazy_flushes_per_s: lazy.map(|it| it.bursts_per_s),
        lazy_pages_per_s: lazy.map(|it| it.pages_per_s),
        hit_ratio: has_hits.then(|| 1.0 - misses / calls),
        misses_per_s: has_hits.then_some(misses),
        ..HostMemory::default()
    }
}

fn process(process: &Process) -> HostProcess {
    let growth = process.private_last_bytes.zip(process.private_first_bytes);
    HostProcess {
        process: process.process.clone(),
        cpu: process.processor_time,
        reads_per_s: process.reads_per_s,
        writes_per_s: process.writes_per_s,
        others_per_s: process.other_operations_per_s,
        read_bytes_per_s: process.read_bytes_per_s,
        write_bytes_per_s: process.write_bytes_per_s,
        private_bytes: process.private_last_bytes,
        private_growth_bytes: growth.map(|(last, first)| last - first),
        ..HostProcess::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_schema::watch::{self, Counts, Interval};

    #[test]
    fn a_watch_adds_what_events_count() {
        let sum = Counts {
            read_pages: 100,
            hit_pages: 60,
            miss_pages: 40,
            lazy_flushes: 20,
            ..Counts::default()
        };
        let disk = watch::Disk { name: "sda".to_owned(), splits: 30, ..watch::Disk::default() };
        let total =
            Interval { sum, disks: vec![disk], duration_ns: 10_000_000_000, ..Interval::default() };
        let host = HostCounters {
            disks: vec![HostDisk { disk: "sda".to_owned(), ..HostDisk::default() }],
            ..HostCounters::default()
        };
        let watch = Watch { total, host: Some(host), ..Watch::default() };
        let counters = of_watch(&watch).unwrap();
        assert_eq!(
            (counters.memory.hit_ratio, counters.memory.misses_per_s),
            (Some(0.6), Some(4.0))
        );
        assert_eq!(counters.memory.lazy_flushes_per_s, Some(2.0));
        assert_eq!(counters.disks[0].splits_per_s, Some(3.0));
        assert_eq!(of_watch(&Watch::default()), None);
    }

    /// The counters of Perfmon, with the values of two samples.
    const LOG: [(&str, f64, f64); 28] = [
        ("PhysicalDisk(0 C:)\\Disk Reads/sec", 10.0, 30.0),
        ("PhysicalDisk(0 C:)\\Disk Writes/sec", 10.0, 10.0),
        ("PhysicalDisk(0 C:)\\Avg. Disk sec/Read", 0.01, 0.03),
        ("PhysicalDisk(0 C:)\\Avg. Disk sec/Write", 0.02, 0.02),
        ("PhysicalDisk(0 C:)\\Avg. Disk Bytes/Read", 4096.0, 8192.0),
        ("PhysicalDisk(0 C:)\\Avg. Disk Bytes/Write", 4096.0, 4096.0),
        ("PhysicalDisk(0 C:)\\% Disk Read Time", 10.0, 90.0),
        ("PhysicalDisk(0 C:)\\% Disk Write Time", 20.0, 20.0),
        ("PhysicalDisk(0 C:)\\% Idle Time", 70.0, 10.0),
        ("PhysicalDisk(0 C:)\\Avg. Disk Queue Length", 0.3, 1.1),
        ("PhysicalDisk(0 C:)\\Split IO/Sec", 1.0, 3.0),
        ("LogicalDisk(C:)\\Disk Reads/sec", 7.0, 7.0),
        ("PhysicalDisk(_Total)\\Disk Reads/sec", 99.0, 99.0),
        ("Cache\\Copy Reads/sec", 80.0, 80.0),
        ("Cache\\Copy Read Hits %", 90.0, 80.0),
        ("Cache\\Pin Reads/sec", 50.0, 50.0),
        ("Cache\\Pin Read Hits %", 0.0, 0.0),
        ("Cache\\Lazy Write Flushes/sec", 1.0, 3.0),
        ("Cache\\Lazy Write Pages/sec", 6.0, 10.0),
        ("Memory\\Available Bytes", 4e6, 3e6),
        ("Memory\\Cache Bytes", 13e6, 26e6),
        ("Memory\\Pages/sec", 40.0, 50.0),
        ("Paging File(_Total)\\% Usage", 20.0, 40.0),
        ("Processor(_Total)\\% Processor Time", 30.0, 50.0),
        ("Process(sql)\\IO Read Operations/sec", 5.0, 15.0),
        ("Process(sql)\\IO Other Operations/sec", 2.0, 4.0),
        ("Process(sql)\\IO Read Bytes/sec", 4096.0, 8192.0),
        ("Process(sql)\\Private Bytes", 1e6, 3e6),
    ];

    fn log() -> HostCounters {
        let mut text = "\"(PDH-CSV 4.0)\"".to_owned();
        for (name, ..) in LOG {
            put!(text, ",\"\\\\SRV\\{name}\"");
        }
        for (second, index) in [("00", 0), ("15", 1)] {
            put!(text, "\n\"04/15/2000 10:00:{second}.000\"");
            for (_, first, last) in LOG {
                put!(text, ",\"{}\"", [first, last][index]);
            }
        }
        let log = crate::perfmon::read(text.as_bytes(), &crate::perfmon::Options::default());
        of_log(&log.unwrap())
    }

    fn close(found: Option<f64>, wanted: f64) {
        let found = found.expect("a value");
        assert!((found - wanted).abs() < 1e-9 * wanted.abs(), "{found} is not {wanted}");
    }

    #[test]
    fn a_log_has_its_physical_disks_under_the_same_names() {
        let counters = log();
        let [disk] = &counters.disks[..] else { panic!("{:?}", counters.disks) };
        assert_eq!(disk.disk, "0 C:");
        close(disk.reads_per_s, 20.0);
        close(disk.seconds_per_read, 0.025);
        close(disk.bytes_per_read(), 7168.0);
        close(disk.seconds_per_request(), (20.0 * 0.025 + 10.0 * 0.02) / 30.0);
        close(disk.disk_time(), 0.7);
        close(disk.busy, 0.6);
        close(disk.queue, 0.7);
        assert_eq!(disk.queue_max, Some(1.1));
        close(disk.splits_per_s, 2.0);
    }

    #[test]
    fn a_log_has_the_reads_of_data_memory_and_processes() {
        let counters = log();
        let memory = &counters.memory;
        close(memory.hit_ratio, 0.85);
        close(memory.misses_per_s, 12.0);
        close(memory.lazy_flushes_per_s, 2.0);
        close(memory.available_min_bytes, 3e6);
        assert_eq!((memory.cache_first_bytes, memory.cache_last_bytes), (Some(13e6), Some(26e6)));
        close(memory.paging_file_use, 0.3);
        close(counters.cpu.busy, 0.4);
        let [process] = &counters.processes[..] else { panic!("{:?}", counters.processes) };
        close(process.reads_per_s, 10.0);
        close(process.others_per_s, 3.0);
        close(process.private_growth_bytes, 2e6);
    }
}
