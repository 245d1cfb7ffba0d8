//! Counters of a host from results of `larder watch` and from logs of Perfmon.

use larder_schema::as_f64;
use larder_schema::host_counters::{HostCounters, HostDisk, HostMemory, HostProcess};
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
        counters.notes.push("The kernel dropped events, so that the cache did more.".to_owned());
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
        read_bytes_per_s: bytes(disk.reads_per_s, disk.bytes_per_read),
        write_bytes_per_s: bytes(disk.writes_per_s, disk.bytes_per_write),
        seconds_per_read: disk.seconds_per_read,
        seconds_per_write: disk.seconds_per_write,
        read_time: disk.read_time,
        write_time: disk.write_time,
        queue: disk.queue,
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
    HostMemory {
        available_min_bytes: memory.and_then(|it| it.available_min_bytes),
        cache_first_bytes: memory.and_then(|it| it.cache_first_bytes),
        cache_last_bytes: memory.and_then(|it| it.cache_last_bytes),
        cache_max_bytes: memory.and_then(|it| it.cache_max_bytes),
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
    use larder_schema::perfmon::Interface;
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

    #[test]
    fn a_log_has_its_physical_disks_and_the_reads_of_data() {
        let disk = |object: &'static str, name: &str| Disk {
            object,
            disk: name.to_owned(),
            reads_per_s: Some(10.0),
            bytes_per_read: Some(4096.0),
            writes_per_s: None,
            seconds_per_read: None,
            averaged_seconds_per_read: None,
            seconds_per_write: None,
            averaged_seconds_per_write: None,
            bytes_per_write: None,
            read_time: Some(0.5),
            write_time: None,
            queue: None,
            splits_per_s: None,
        };
        let all =
            [disk("LogicalDisk", "C:"), disk("PhysicalDisk", "_Total"), disk("PhysicalDisk", "0")];
        let found = disks(&all);
        assert_eq!((found.len(), found[0].disk.as_str()), (1, "0"));
        assert_eq!(found[0].bytes_per_read(), Some(4096.0));
        assert_eq!(disks(&all[..1])[0].disk, "C:");
        let interface = |interface, calls, misses| Interface {
            interface,
            calls_per_s: Some(calls),
            hit_ratio: None,
            averaged_hit_ratio: None,
            misses_per_s: Some(misses),
        };
        let log = Summary {
            interfaces: vec![interface("copy", 80.0, 10.0), interface("pin", 50.0, 50.0),
                             interface("mdl", 20.0, 10.0)],
            ..crate::perfmon::read(
                &b"\"(PDH-CSV 4.0)\",\"\\\\S\\Cache\\Copy Reads/sec\"\n\"04/15/2000 10:00:00.000\",\"1\"\n"[..],
                &crate::perfmon::Options::default(),
            )
            .unwrap()
        };
        let memory = memory(&log);
        assert_eq!((memory.hit_ratio, memory.misses_per_s), (Some(0.8), Some(20.0)));
    }
}
