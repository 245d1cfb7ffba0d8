//! The answer for each situation, at the thresholds and without counters.

use super::*;
use larder_schema::host_counters::{HostCpu, HostMemory, MetadataCache};

/// Returns the counters of a host with a disk that serves 4 KiB reads, one after the other.
fn host(reads: f64, latency: f64, queue: f64) -> HostCounters {
    HostCounters {
        cpu: HostCpu { busy: Some(0.1), ..HostCpu::default() },
        disks: vec![HostDisk {
            disk: "sda".to_owned(),
            is_rotational: Some(true),
            reads_per_s: Some(reads),
            writes_per_s: Some(0.0),
            read_bytes_per_s: Some(reads * 4096.0),
            seconds_per_read: Some(latency),
            read_time: Some(reads * latency),
            write_time: Some(0.0),
            busy: Some((reads * latency).min(1.0)),
            queue: Some(queue),
            ..HostDisk::default()
        }],
        memory: HostMemory {
            io_pressure: Some((reads * latency).min(1.0)),
            reread_bytes_per_s: Some(0.0),
            ..HostMemory::default()
        },
        ..HostCounters::default()
    }
}

fn writer(process: &str, bytes: f64) -> HostProcess {
    HostProcess {
        process: process.to_owned(),
        pid: Some(7),
        disk_write_bytes_per_s: Some(bytes),
        cpu: Some(0.1),
        ..HostProcess::default()
    }
}

fn of(counters: HostCounters) -> Bottleneck {
    judge("test".to_owned(), counters, expected_by_kind)
}

#[test]
fn each_situation_has_its_answer() {
    use BottleneckKind as Kind;
    assert_eq!(of(host(80.0, 0.0125, 1.0)).kind, Kind::SerialRequests);
    assert_eq!(of(host(20.0, 0.05, 1.0)).kind, Kind::SlowDisk);
    assert_eq!(of(host(80.0, 0.1, 8.0)).kind, Kind::SaturatedDisk);
    assert_eq!(of(host(10.0, 0.01, 0.1)).kind, Kind::Nothing);
    let mut small = host(80.0, 0.1, 8.0);
    small.memory.reread_bytes_per_s = Some(80.0 * 4096.0 * 0.4);
    assert_eq!(of(small).kind, Kind::SmallCache);
    let mut busy = host(10.0, 0.01, 0.1);
    busy.cpu.busy = Some(0.95);
    assert_eq!(of(busy).kind, Kind::Processor);
    let mut one = host(10.0, 0.01, 0.1);
    one.processes = vec![HostProcess { cpu: Some(0.97), ..writer("solver", 0.0) }];
    let found = of(one);
    assert_eq!((found.kind, found.process.as_deref()), (Kind::Processor, Some("solver (7)")));
    assert!(found.verdict.starts_with("The disks are not the problem"), "{}", found.verdict);
}

/// Returns a host whose disk writes, with these processes.
fn writing(processes: Vec<HostProcess>) -> HostCounters {
    let mut counters = host(0.0, 0.0, 10.0);
    counters.memory.io_pressure = Some(0.9);
    let disk = &mut counters.disks[0];
    disk.writes_per_s = Some(90.0);
    disk.write_bytes_per_s = Some(90.0 * 4096.0);
    disk.seconds_per_write = Some(0.11);
    (disk.write_time, disk.busy) = (Some(9.9), Some(1.0));
    counters.processes = processes;
    counters
}

#[test]
fn one_process_with_most_writes_fills_the_queue() {
    let found = of(writing(vec![writer("log", 80.0), writer("other", 20.0)]));
    assert_eq!(
        (found.kind, found.process.as_deref()),
        (BottleneckKind::OneWriter, Some("log (7)"))
    );
    let found = of(writing(vec![writer("log", 60.0), writer("other", 40.0)]));
    assert_eq!(found.kind, BottleneckKind::SaturatedDisk);
    let elsewhere = HostProcess { disks: Some(vec!["sdb".to_owned()]), ..writer("backup", 900.0) };
    let here = HostProcess { disks: Some(vec!["sda".to_owned()]), ..writer("log", 80.0) };
    let found = of(writing(vec![elsewhere, here]));
    assert_eq!(found.process.as_deref(), Some("log (7)"));
    assert_eq!(of(writing(Vec::new())).kind, BottleneckKind::SaturatedDisk);
}

#[test]
fn lazy_writes_that_nobody_waits_for_are_no_problem() {
    let mut counters = writing(vec![writer("log", 80.0)]);
    counters.memory.io_pressure = Some(0.05);
    assert_eq!(of(counters.clone()).kind, BottleneckKind::OneWriter, "asynchronous and direct");
    counters.memory.lazy_pages_per_s = Some(80.0);
    counters.memory.page_bytes = Some(4096.0);
    assert_eq!(of(counters.clone()).kind, BottleneckKind::Nothing);
    counters.memory.io_pressure = None;
    assert_eq!(of(counters).kind, BottleneckKind::OneWriter, "the utilization stands for waiting");
}

#[test]
fn repeated_reads_and_lazy_writes_of_other_disks_do_not_count() {
    let mut counters = host(80.0, 0.1, 8.0);
    counters.memory.reread_bytes_per_s = Some(80.0 * 4096.0);
    let other = HostDisk {
        disk: "sdb".to_owned(),
        read_bytes_per_s: Some(80.0 * 4096.0),
        ..HostDisk::default()
    };
    counters.disks.push(other);
    assert_eq!(of(counters.clone()).kind, BottleneckKind::SaturatedDisk);
    counters.disks[0].below = vec!["sdb".to_owned()];
    assert_eq!(of(counters).kind, BottleneckKind::SmallCache, "it serves the same reads again");
    let mut counters = writing(vec![writer("log", 80.0)]);
    counters.memory = HostMemory {
        io_pressure: Some(0.1),
        lazy_pages_per_s: Some(90.0),
        page_bytes: Some(4096.0),
        ..HostMemory::default()
    };
    let other = HostDisk {
        disk: "sdb".to_owned(),
        write_bytes_per_s: Some(90.0 * 4096.0),
        ..HostDisk::default()
    };
    counters.disks.push(other);
    assert_eq!(of(counters.clone()).kind, BottleneckKind::OneWriter);
    counters.disks[0].lazy_bytes_per_s = Some(90.0 * 4096.0);
    assert_eq!(of(counters).kind, BottleneckKind::Nothing, "counted for this disk");
}

#[test]
fn misses_of_metadata_are_a_reason() {
    let mut counters = host(80.0, 0.1, 8.0);
    let cache = |device: &str, hit_ratio| MetadataCache {
        device: device.to_owned(),
        file_system: "xfs".to_owned(),
        cache: "inodes".to_owned(),
        lookups_per_s: 100.0,
        hit_ratio,
    };
    counters.metadata = vec![cache("sdb1", 0.1), cache("sda1", 0.8)];
    assert!(!to_text(&of(counters.clone())).contains("vfs_cache_pressure"));
    counters.metadata[1].hit_ratio = 0.5;
    let text = to_text(&of(counters));
    assert!(text.contains("The cache of inodes of sda1 hits 50.0 % of its lookups"), "{text}");
    assert!(text.contains("Caches of metadata"), "{text}");
}

#[test]
fn asynchronous_reads_are_waited_for_although_no_task_is_counted() {
    let mut counters = host(80.0, 0.1, 8.0);
    counters.memory.io_pressure = Some(0.0);
    assert_eq!(of(counters).kind, BottleneckKind::SaturatedDisk);
}

#[test]
fn waiting_without_a_busy_disk_and_uncounted_disks_are_unknown() {
    let mut half = host(40.0, 0.01, 0.4);
    half.memory.io_pressure = Some(0.45);
    assert_eq!(of(half).kind, BottleneckKind::SerialRequests);
    let mut counters = host(10.0, 0.01, 0.1);
    counters.memory.io_pressure = Some(0.8);
    let found = of(counters.clone());
    assert_eq!(found.kind, BottleneckKind::Unknown);
    assert!(found.verdict.contains("no disk is busy"), "{}", found.verdict);
    counters.disks.clear();
    counters.uncounted_disks = vec!["sdb".to_owned()];
    let found = of(counters);
    assert!(found.verdict.contains("does not count the requests of sdb"), "{}", found.verdict);
    assert!(to_text(&found).contains("echo 1 > /sys/block/sdb/queue/iostats"));
}

#[test]
fn no_evidence_is_no_answer_and_a_peak_is_named() {
    let none = of(HostCounters { cpu: HostCpu::default(), ..HostCounters::default() });
    assert_eq!(none.kind, BottleneckKind::Unknown);
    assert!(none.verdict.contains("has no utilization of disks"), "{}", none.verdict);
    let mut counters = host(10.0, 0.01, 0.1);
    counters.memory.io_pressure = None;
    let without = of(HostCounters { cpu: HostCpu::default(), ..counters.clone() });
    assert!(without.verdict.ends_with("does not count processors"), "{}", without.verdict);
    counters.samples = 5;
    counters.disks[0].busy_max = Some(1.0);
    let found = of(counters);
    assert!(
        found.reasons.iter().any(|it| it.starts_with("In one sample sda was busy for 100.0 %"))
    );
}

#[test]
fn impossible_values_of_a_foreign_record_are_not_believed() {
    let mut counters = host(10.0, 0.01, 0.1);
    counters.disks[0].busy = Some(1e308);
    counters.disks[0].seconds_per_read = Some(f64::NAN);
    counters.disks[0].queue = Some(-1.0);
    counters.memory.reread_bytes_per_s = Some(f64::INFINITY);
    counters.cpu.busy = Some(1.47);
    counters.processes =
        vec![HostProcess { private_growth_bytes: Some(-4096.0), ..writer("a", 1.0) }];
    let found = of(counters).counters;
    let disk = &found.disks[0];
    assert_eq!((disk.busy, disk.seconds_per_read, disk.queue), (None, None, None));
    assert_eq!((found.memory.reread_bytes_per_s, found.cpu.busy), (None, Some(1.0)));
    assert_eq!(found.processes[0].private_growth_bytes, Some(-4096.0));
}

#[test]
fn a_log_of_windows_has_hits_instead_of_repeated_reads() {
    let mut counters = host(80.0, 0.1, 8.0);
    counters.memory =
        HostMemory { hit_ratio: Some(0.48), misses_per_s: Some(36.0), ..HostMemory::default() };
    assert_eq!(of(counters.clone()).kind, BottleneckKind::SmallCache);
    counters.memory.hit_ratio = Some(0.95);
    assert_eq!(of(counters).kind, BottleneckKind::SaturatedDisk);
}

#[test]
fn text_and_page_name_the_answer_and_escape_foreign_names() {
    let found = of(writing(vec![writer("\u{1b}[31m<b>", 80.0)]));
    let (text, page) = (to_text(&found), to_html(&found));
    assert!(text.contains("Disks") && text.contains("Next steps"), "{text}");
    assert!(!page.contains("<b>") && page.contains("Next steps"));
    let json = found.to_json();
    assert_eq!(
        (&json["schema"], &json["kind"]),
        (&"larder-bottleneck".into(), &"one-writer".into())
    );
    assert_eq!(json["counters"]["disks"][0]["disk"], "sda");
}
