//! `larder advise` of counters: each source is recognized, and files that are none are refused.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn larder(directory: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(line.split(' ').skip(1)).current_dir(directory).output().unwrap()
}

fn json(directory: &Path, line: &str) -> Value {
    let output = larder(directory, line);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

const IOSTAT: &str = "Linux 6.1.0 (srv) 12/01/26 _x86_64_ (4 CPU)\n\n\
    Device r/s rkB/s r_await w/s wkB/s w_await aqu-sz %util\n\
    sda 80.00 320.00 100.00 0.00 0.00 0.00 8.00 100.00\n";
const PERFMON: &str = "\"(PDH-CSV 4.0)\",\"\\\\S\\PhysicalDisk(0)\\Disk Reads/sec\",\
    \"\\\\S\\PhysicalDisk(0)\\Avg. Disk sec/Read\",\"\\\\S\\PhysicalDisk(0)\\% Disk Read Time\",\
    \"\\\\S\\PhysicalDisk(0)\\Avg. Disk Queue Length\"\n\
    \"04/15/2000 10:00:00.000\",\"80\",\"0.1\",\"800\",\"8\"\n";

#[test]
fn each_source_is_recognized_by_its_content() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::write(at.join("a.txt"), IOSTAT).unwrap();
    std::fs::write(at.join("a.csv"), PERFMON).unwrap();
    let sadf = r#"{"sysstat": {"hosts": [{"nodename": "s", "statistics": [{"timestamp": {},
        "disk": [{"disk-device": "sda", "tps": 80.0, "await": 100.0, "aqu-sz": 8.0,
                  "util-percent": 100.0}]}]}]}}"#;
    std::fs::write(at.join("a.json"), sadf).unwrap();
    for (file, source) in [("a.txt", "iostat"), ("a.csv", "Perfmon"), ("a.json", "sar")] {
        let found = json(at, &format!("larder advise {file} --json"));
        assert_eq!(
            (&found["kind"], &found["counters"]["source"]),
            (&"saturated-disk".into(), &source.into())
        );
    }
    let found = json(at, "larder advise a.txt --disk iops:500 --json");
    assert_eq!(
        (&found["kind"], &found["expected"]["read_s"]),
        (&"slow-disk".into(), &0.002.into())
    );
    let array = json(at, "larder advise a.txt --array --space 1GiB --disks 3 --json");
    assert_eq!(array["subject"], "sda of a.txt, at random places");
    assert!(array["traffic"]["recorded_per_s"].as_f64().is_some_and(|it| (it - 80.0).abs() < 0.1));
    let message = larder(at, "larder advise a.json --array --space 1GiB").stderr;
    assert!(String::from_utf8_lossy(&message).contains("does not separate reads and writes"));
    let page = larder(at, "larder advise a.txt -o a.html");
    assert!(page.status.success());
    let page = std::fs::read_to_string(at.join("a.html")).unwrap();
    assert!(page.contains("sda is saturated") && page.contains("Next steps"));
}

#[test]
fn this_machine_is_sampled_and_a_watch_keeps_its_counters() {
    let directory = tempfile::tempdir().unwrap();
    let found = json(directory.path(), "larder advise --live --for 1s --json");
    let counters = &found["counters"];
    assert_eq!(counters["source"], "/proc");
    assert!(counters["samples"].as_u64() >= Some(1) && counters["cpu"]["busy"].is_number());
    let record = larder(directory.path(), "larder watch --for 1s --json -o load.json");
    assert!(record.status.success(), "{}", String::from_utf8_lossy(&record.stderr));
    let found = json(directory.path(), "larder advise load.json --json");
    assert_eq!(found["counters"]["source"], "larder watch");
}

#[test]
fn a_file_that_is_no_record_is_refused_in_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::write(at.join("run.json"), r#"{"schema": "larder-run"}"#).unwrap();
    std::fs::write(at.join("cut.json"), r#"{"schema": "#).unwrap();
    std::fs::write(at.join("old.json"), r#"{"schema": "larder-watch", "version": 1}"#).unwrap();
    std::fs::write(at.join("a.txt"), "Linux 6.1.0 (srv) 12/01/26 _x86_64_ (4 CPU)\n").unwrap();
    for (file, message) in [
        ("run.json", "it is not JSON of larder watch, iostat or sadf"),
        ("cut.json", "cannot read cut.json"),
        ("old.json", "cannot read old.json"),
        ("a.txt", "record with iostat -x 5 60 or sar -d -u -r -S -W 5 60"),
        ("missing.txt", "cannot read missing.txt: no such file or directory"),
    ] {
        let output = larder(at, &format!("larder advise {file}"));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{file}: {stderr}");
        assert!(stderr.contains(message) && stderr.lines().count() == 1, "{file}: {stderr}");
    }
    let output = larder(at, "larder advise --live --for 10ms");
    assert!(String::from_utf8_lossy(&output.stderr).contains("must be at least 1s"));
}
