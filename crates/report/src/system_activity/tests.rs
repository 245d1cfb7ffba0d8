//! Output of iostat and sar as counters.

use super::*;
use larder_schema::host_counters::HostDisk;
use serde_json::json;

const FIRST: &str = "Linux 6.1.0 (srv) \t12/01/26 \t_x86_64_\t(4 CPU)\n\n";

/// Returns a report of `iostat -xk` of sysstat 12.
fn report(reads: f64, wait_ms: f64, queue: f64, busy: f64, idle: f64) -> String {
    format!(
        "avg-cpu:  %user   %nice %system %iowait  %steal   %idle\n\
         \x20         10.00    0.00    5.00    5.00    0.00   {idle}\n\n\
         Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s   \
         wrqm/s  %wrqm w_await wareq-sz  aqu-sz  %util\n\
         sda  {reads} {} 0.00 0.00 {wait_ms} 4.00 10.00 40.00 0.00 0.00 2.00 4.00 {queue} {busy}\n\
         sdb  0.00 0.00 0.00 0.00 0.00 0.00 0.00 0.00 0.00 0.00 0.00 0.00 0.00 0.00\n\n\n",
        reads * 4.0
    )
}

fn close(found: Option<f64>, wanted: f64) {
    let found = found.expect("a value");
    assert!((found - wanted).abs() < 1e-9 * wanted.abs().max(1.0), "{found} is not {wanted}");
}

#[test]
fn reports_are_averaged_with_latencies_weighted_and_without_the_first() {
    let text = [
        FIRST.to_owned(),
        report(999.0, 99.0, 9.0, 99.0, 1.0),
        report(100.0, 10.0, 1.0, 80.0, 80.0),
        report(300.0, 30.0, 9.0, 100.0, 60.0),
    ]
    .concat();
    let counters = read_text(text.as_bytes()).unwrap();
    assert_eq!((counters.source.as_str(), counters.host.as_str()), ("iostat", "srv"));
    assert_eq!((counters.processors, counters.samples), (Some(4), 2));
    let [disk] = &counters.disks[..] else { panic!("{:?}", counters.disks) };
    close(disk.reads_per_s, 200.0);
    close(disk.seconds_per_read, (100.0 * 0.01 + 300.0 * 0.03) / 400.0);
    close(disk.read_time, 5.0);
    close(disk.bytes_per_read(), 4096.0);
    close(disk.seconds_per_write, 0.002);
    close(disk.queue, 5.0);
    assert_eq!((disk.queue_max, disk.busy_max), (Some(9.0), Some(1.0)));
    close(disk.busy, 0.9);
    close(counters.cpu.busy, 0.25);
    close(counters.cpu.io_wait, 0.05);
    assert!(counters.notes[0].contains("since boot and is ignored"), "{:?}", counters.notes);
}

#[test]
fn the_only_report_counts_with_a_note_and_commas_are_decimals() {
    let text = FIRST.to_owned() + &report(12.5, 8.0, 0.5, 10.0, 90.0).replace('.', ",");
    let counters = read_text(text.as_bytes()).unwrap();
    close(counters.disks[0].reads_per_s, 12.5);
    assert!(
        counters.notes[0].starts_with("The log has only the report since boot"),
        "{:?}",
        counters.notes
    );
}

#[test]
fn old_versions_have_sectors_and_one_latency() {
    let text = "Linux 3.10.0 (old) 01/02/14 _x86_64_ (1 CPU)\n\n\
                Device: rrqm/s wrqm/s r/s w/s rsec/s wsec/s avgrq-sz avgqu-sz await svctm %util\n\
                sda 0.00 0.00 10.00 30.00 80.00 240.00 8.00 0.40 10.00 1.00 40.00\n";
    let counters = read_text(text.as_bytes()).unwrap();
    let disk = &counters.disks[0];
    close(disk.bytes_per_read(), 4096.0);
    close(disk.seconds_per_request(), 0.01);
    close(disk.disk_time(), 0.4);
}

#[test]
fn sar_has_requests_of_both_kinds_together_memory_and_swap_space() {
    let text = "Linux 6.1.0 (srv) \t12/01/26 \t_x86_64_\t(2 CPU)\n\n\
        12:27:01 AM     CPU     %user     %nice   %system   %iowait    %steal     %idle\n\
        12:27:11 AM     all     20.00      0.00     10.00     10.00      0.00     60.00\n\n\
        12:27:01 AM kbmemfree   kbavail kbmemused  %memused kbbuffers  kbcached\n\
        12:27:11 AM      1000      2000      3000     50.00       100       900\n\n\
        12:27:01 AM  pswpin/s pswpout/s\n\
        12:27:11 AM      3.00      4.00\n\n\
        12:27:01 AM kbswpfree kbswpused  %swpused  kbswpcad   %swpcad\n\
        12:27:11 AM       100       100     50.00         0      0.00\n\n\
        12:27:01 AM  DEV     tps   rkB/s   wkB/s   dkB/s areq-sz  aqu-sz   await   %util\n\
        12:27:11 AM  sda  100.00  400.00  400.00    0.00    8.00    2.00   20.00   90.00\n\
        Average:     sda  999.00  400.00  400.00    0.00    8.00    2.00   20.00   90.00\n";
    let counters = read_text(text.as_bytes()).unwrap();
    assert_eq!(counters.source, "sar");
    let disk = &counters.disks[0];
    close(disk.requests_per_s(), 100.0);
    close(disk.bytes_per_request(), 8192.0);
    close(disk.seconds_per_request(), 0.02);
    close(disk.disk_time(), 2.0);
    assert_eq!((disk.reads_per_s, disk.seconds_per_read), (None, None));
    close(counters.cpu.busy, 0.3);
    close(counters.memory.available_min_bytes, 2000.0 * 1024.0);
    close(counters.memory.cache_last_bytes, 1000.0 * 1024.0);
    close(counters.memory.paging_file_use, 0.5);
    close(counters.memory.pages_per_s, 7.0);
}

#[test]
fn names_of_sar_may_come_last_and_a_second_log_continues_the_first() {
    let text = "Linux 6.1.0 (srv) 12/01/26 _x86_64_ (2 CPU)\n\n\
        02:03:40          tps     rkB/s     wkB/s   areq-sz    aqu-sz     await     %util DEV\n\
        02:03:41        10.00     40.00      0.00      4.00      0.10     10.00     10.00 sda\n";
    let counters = read_text(format!("{text}{text}").as_bytes()).unwrap();
    assert_eq!((counters.disks.len(), counters.samples), (1, 2));
    close(counters.disks[0].requests_per_s(), 10.0);
}

#[test]
fn impossible_names_are_left_out_and_idle_disks_are_evidence() {
    let long = "x".repeat(300);
    let text = format!(
        "{FIRST}Device r/s w/s aqu-sz %util\n{long} 1.00 1.00 1.00 5.00\n\
                        sda 0.00 0.00 0.00 0.00\n"
    );
    let counters = read_text(text.as_bytes()).unwrap();
    assert_eq!((counters.disks.len(), counters.disks[0].busy), (1, Some(0.0)));
    assert!(counters.notes.iter().any(|it| it.contains("left out: 1")), "{:?}", counters.notes);
}

#[test]
fn json_of_both_programs_reads_like_their_text() {
    let iostat = json!({"sysstat": {"hosts": [{"nodename": "srv", "number-of-cpus": 2,
    "statistics": [
        {"avg-cpu": {"idle": 0.0, "iowait": 0.0}, "disk": [{"disk_device": "sda", "r/s": 1.0}]},
        {"avg-cpu": {"idle": 75.0, "iowait": 5.0}, "disk": [{"disk_device": "sda", "r/s": 10.0,
         "w/s": 0.0, "rkB/s": 40.0, "r_await": 5.0, "aqu-sz": 0.05, "util": 4.0}]},
    ]}]}});
    assert!(is_json(&iostat));
    let counters = read_json(&iostat).unwrap();
    let disk: &HostDisk = &counters.disks[0];
    close(disk.reads_per_s, 10.0);
    close(disk.seconds_per_read, 0.005);
    close(disk.busy, 0.04);
    close(counters.cpu.busy, 0.2);
    let sadf = json!({"sysstat": {"hosts": [{"nodename": "srv", "number-of-cpus": 2,
        "statistics": [{"timestamp": {"interval": 10}, "cpu-load": [{"cpu": "all", "idle": 40.0}],
            "memory": {"avail": 5, "cached": 3, "buffers": 1, "swpused-percent": 25.0},
            "disk": [{"disk-device": "sda", "tps": 20.0, "rkB": 80.0, "wkB": 0.0, "await": 10.0,
                      "aqu-sz": 0.2, "util-percent": 15.0}]}]}]}});
    let counters = read_json(&sadf).unwrap();
    assert_eq!((counters.source.as_str(), counters.seconds), ("sar", Some(10.0)));
    close(counters.disks[0].busy, 0.15);
    close(counters.memory.paging_file_use, 0.25);
    close(counters.memory.cache_last_bytes, 4096.0);
}

#[test]
fn text_without_reports_is_refused_and_odd_lines_are_left_out() {
    assert!(matches!(read_text(FIRST.as_bytes()), Err(ActivityError::Empty)));
    assert!(matches!(read_json(&json!({"sysstat": {}})), Err(ActivityError::Empty)));
    let text = FIRST.to_owned()
        + "Device r/s w/s %util\nsda 1.00 2.00\nsdb 1.00 nan 5.00\nsdc 1.00 -5.00 1e999\n\
           \u{1b}[31m 4.00 4.00 4.00\n";
    let counters = read_text(text.as_bytes()).unwrap();
    let names: Vec<&str> = counters.disks.iter().map(|it| it.disk.as_str()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    let sdc = counters.disks.iter().find(|it| it.disk == "sdc").unwrap();
    assert_eq!((sdc.writes_per_s, sdc.busy), (None, None));
    assert!(is_text(FIRST.as_bytes()) && !is_text(b"Linux is fine"));
}
