//! Probe through a memory mapping, and next to a process that takes memory.

use super::rig::{bench, create_disk_directory, until};
use larder_schema::run::Run;
use larder_testing::stays_resident;
use std::process::{Command, Stdio};

const SHORT: [&str; 6] = ["--trials", "2", "--confidence", "off", "--length", "400ms"];

#[test]
fn a_mapped_file_starts_as_told_and_is_read_and_written() {
    let Some(directory) = create_disk_directory() else { return };
    let here = directory.path().to_str().unwrap();
    for start in ["cold", "warm"] {
        let args = ["probe", here, "--mapped", "--size", "1MiB", "--start", start];
        let done = bench(&[&args[..], &SHORT, &["--format", "json"]].concat());
        assert!(done.succeeded(), "{done:?}");
        let run = Run::from_json(&done.out).unwrap();
        assert_eq!(run.settings["target"], "a file mapped into memory");
        for trial in &run.trials {
            let pages = trial.started.pages.unwrap();
            let expected = if start == "cold" { 0 } else { pages };
            assert!(stays_resident(trial.started.resident.unwrap(), expected), "{trial:?}");
        }
        // If the machine stalls for most of a trial, the trial measures only one request.
        let all = !run.doubts.iter().any(|doubt| doubt.text.contains("no cycle fitted"));
        for series in ["reads", "writes"] {
            let values = &run.sample(series).unwrap().values;
            assert!(values.iter().all(|value| *value > 0.0 || !all), "{series}: {values:?}");
        }
    }
    let outcome = bench(&["probe", here, "--mapped", "--unbuffered"]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    let engine = bench(&["probe", "--in-process", "memory", "--mapped"]);
    assert!(engine.err.contains("--mapped is for files"), "{engine:?}");
}

#[test]
fn a_leak_takes_what_was_said_and_no_more() {
    let Some(directory) = create_disk_directory() else { return };
    let here = directory.path().to_str().unwrap();
    let args = ["probe", here, "--scenario", "leak", "--memory", "4MiB", "--leak", "8MiB"];
    // The helper takes all of its memory within a fifth of a second once it has a processor.
    let long = ["--trials", "2", "--confidence", "off", "--length", "2s", "--format", "json"];
    let done = bench(&[&args[..], &long].concat());
    assert!(done.succeeded(), "{done:?}");
    let run = Run::from_json(&done.out).unwrap();
    let taken = f64::from(8 << 20);
    assert_eq!(run.sample("memory taken").unwrap().values, [taken, taken]);
    assert_eq!(run.settings["leak_bytes"], 8 << 20);
    let file = run.settings["file_bytes"].as_f64().unwrap();
    let left = &run.sample("file left in memory").unwrap().values;
    assert!(left.iter().all(|left| (0.0..=file).contains(left)), "{left:?} of {file}");
    for (args, reason) in [
        (["--leak", "900TiB", "--memory", "4MiB", "--scenario", "leak"], "a tenth of it is left"),
        (["--leak", "8MiB", "--memory", "4MiB", "--scenario", "fits"], "is for --scenario leak"),
    ] {
        let refused = bench(&[&["probe", here][..], &args].concat());
        assert!(refused.code == Some(2) && refused.err.contains(reason), "{refused:?}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Returns true if a process that takes `bytes` of memory is running.
fn is_taking(bytes: u64) -> bool {
    let takes = |text: &[u8]| {
        let args: Vec<&[u8]> = text.split(|byte| *byte == 0).collect();
        args.contains(&b"take-memory".as_slice()) && args.contains(&bytes.to_string().as_bytes())
    };
    let entries = std::fs::read_dir("/proc").unwrap();
    entries
        .flatten()
        .any(|entry| std::fs::read(entry.path().join("cmdline")).is_ok_and(|text| takes(&text)))
}

#[test]
fn a_leak_ends_when_larder_is_killed() {
    let Some(directory) = create_disk_directory() else { return };
    // A size that no other test takes.
    let bytes = (8 << 20) + 4096 * u64::from(std::process::id() % 1000);
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(["bench", "probe"]).arg(directory.path()).args(["--scenario", "leak"]);
    command.args(["--memory", "4MiB", "--leak", &bytes.to_string(), "--length", "60s"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut larder = command.spawn().unwrap();
    until("memory is taken", || is_taking(bytes));
    larder.kill().unwrap();
    larder.wait().unwrap();
    until("the memory is free again", || !is_taking(bytes));
}
