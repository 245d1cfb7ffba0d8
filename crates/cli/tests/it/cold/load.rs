//! Fileload and its files on real file systems: the extents match the request, each start is
//! verified, and no files are left behind.

use super::rig::{Loop, Outcome, bench, content};
use larder_host::extents::{Extent, of, pieces};
use larder_host::mounts::Mount;
use larder_schema::run::Run;
use larder_schema::run::trial::{Latency, Start};
use larder_testing::{skip, stays_resident};
use std::fs::File;
use std::path::Path;

const FILES: usize = 3;
const EXTENTS: u64 = 50;

fn extents(path: &Path) -> Vec<Extent> {
    of(&File::open(path).unwrap()).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "lost+found");
    names.sort();
    names
}

/// Creates fragmented files with interleaved extents and contiguous copies of them, checks both,
/// measures them and removes them.
fn check_fragments(directory: &Path) {
    let shown = directory.to_str().unwrap();
    let args = ["fragments", shown, "--files", "3", "--size", "4MiB", "--extents", "50"];
    let made = bench(&args);
    assert!(made.succeeded() && made.out.contains("3 files of 4 MiB, 50 extents each"), "{made:?}");
    let mut all: Vec<(u64, usize)> = Vec::new();
    for number in 1..=FILES {
        let file = |kind: &str| directory.join(kind).join(format!("file-{number}"));
        let found = extents(&file("fragmented"));
        assert_eq!(pieces(&found), EXTENTS);
        assert_eq!(pieces(&extents(&file("contiguous"))), 1);
        let read = |kind| std::fs::read(file(kind)).unwrap();
        assert!(read("fragmented") == read("contiguous"), "copies hold the same");
        all.extend(found.iter().map(|extent| (extent.physical, number)));
    }
    // The extents are interleaved: two neighbors on the disk rarely belong to the same file.
    all.sort_unstable();
    let adjacent = all.windows(2).filter(|pair| pair[0].1 == pair[1].1).count();
    assert!(adjacent < all.len() / 10, "{adjacent} of {}", all.len());
    let again = bench(&args);
    assert!(again.code == Some(2) && again.err.contains("file exists"), "{again:?}");
    measure_both_sets(shown);
    let removed = bench(&["fragments", shown, "--remove"]);
    assert!(removed.out == "removed 6 files\n", "{removed:?}");
    assert_eq!(names(directory), [""; 0]);
}

/// Measures both sets with one command, from a cold and from a warm start.
fn measure_both_sets(directory: &str) {
    for start in [Start::Cold, Start::Warm] {
        let args = ["fileload", directory, "--mode", "database", "--read", "8KiB", "--reads", "40"];
        let trial_args = ["--start", start.name(), "--trials", "2", "--confidence", "off"];
        let outcome =
            bench(&[&args[..], &trial_args, &["--in-flight", "2", "--format", "json"]].concat());
        assert!(outcome.succeeded(), "{outcome:?}");
        let run = Run::from_json(&outcome.out).unwrap();
        assert_eq!(run.workload, "fileload");
        for set in ["fragmented", "contiguous"] {
            let pieces = if set == "fragmented" { EXTENTS } else { 1 };
            assert_eq!(run.settings["extents"][set], serde_json::Value::from(vec![pieces; FILES]));
            let throughput = run.sample(&format!("throughput, {set}")).unwrap();
            assert_eq!(throughput.values.len(), 2);
        }
        for trial in &run.trials {
            let pages = 2 * FILES as u64 * (4 << 20) / larder_host::residency::page_bytes();
            let expected = if start == Start::Cold { 0 } else { pages };
            assert_eq!(trial.started.pages, Some(pages));
            assert!(stays_resident(trial.started.resident.unwrap(), expected), "{trial:?}");
            let reads: Vec<_> = trial.latencies.iter().map(Latency::count).collect();
            assert_eq!(reads, [40 * FILES as u64; 2]);
        }
        let page = larder_report::run::to_html(&run);
        assert!(page.contains("<svg") && page.contains("throughput, contiguous"));
    }
}

#[test]
fn on_ext4_extents_are_as_asked() {
    if let Some(fs) = Loop::with("ext4") {
        check_fragments(fs.path());
    }
}

#[test]
fn on_xfs_extents_are_as_asked() {
    if let Some(fs) = Loop::with("xfs") {
        check_fragments(fs.path());
    }
}

#[test]
fn on_btrfs_extents_are_as_asked() {
    if let Some(fs) = Loop::with("btrfs") {
        check_fragments(fs.path());
    }
}

fn assert_refused(args: &[&str], reason: &str) -> Outcome {
    let outcome = bench(args);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.err.contains(reason), "{reason}: {outcome:?}");
    outcome
}

#[test]
fn without_fiemap_there_are_no_fragments() {
    let memory = Path::new("/dev/shm");
    if !Mount::of(memory).is_ok_and(|mount| mount.is_memory()) {
        skip("/dev/shm is not a tmpfs");
        return;
    }
    let directory = tempfile::tempdir_in(memory).unwrap();
    let args =
        ["fragments", directory.path().to_str().unwrap(), "--size", "1MiB", "--extents", "9"];
    assert_refused(&args, "its file system has no FIEMAP");
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn what_cannot_be_is_said_and_nothing_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().to_str().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, content(1 << 20)).unwrap();
    let file = file.to_str().unwrap();
    assert_refused(&["fragments", here, "--size", "4KiB"], "an extent has at least 4 KiB");
    assert_refused(&["fragments", here, "--size", "900TiB"], "are free");
    assert_refused(&["fragments", "/no/such/directory"], "find /no/such/directory: no such file");
    assert_refused(&["fragments", here, "--remove", "--files", "3"], "cannot be used with");
    assert_refused(&["fileload", "/no/such/file"], "find /no/such/file");
    assert_refused(&["fileload", here, file], "files and directories at once");
    assert_refused(&["fileload", file, "--users", "2"], "work with 2 users: there are 1 files");
    assert_refused(&["fileload", file, "--size", "2MiB"], "it has 1048576");
    assert_refused(&["fileload", file, "--read", "2MiB"], "the least size is 2097152 bytes");
    assert_refused(&["fileload", file, "--read", "8KiB,8KiB"], "it is named twice");
    assert_refused(
        &["fileload", file, "--read", "1000", "--hint", "no-buffering"],
        "no multiple of 512",
    );
    assert_refused(&["fileload", here, "--size", "900TiB"], "are free");
    assert_eq!(names(directory.path()), ["file"]);
}

#[test]
fn files_are_made_for_each_user_and_each_read_size_has_its_series() {
    let Some(directory) = super::rig::create_disk_directory() else { return };
    let here = directory.path().to_str().unwrap();
    let args = ["fileload", here, "--users", "2", "--size", "1MiB", "--read", "4KiB,64KiB"];
    let trial_args =
        ["--mode", "random", "--trials", "2", "--confidence", "off", "--format", "json"];
    let outcome = bench(&[&args[..], &trial_args].concat());
    assert!(outcome.succeeded(), "{outcome:?}");
    let run = Run::from_json(&outcome.out).unwrap();
    // The default start of all modes but the sequential one is warm.
    assert!(run.trials.iter().all(|trial| trial.started.start == Start::Warm));
    for read in [4096, 65536] {
        let sample = run.sample(&format!("throughput at read_bytes {read}")).unwrap();
        assert_eq!(sample.group.as_deref(), Some("throughput"));
    }
    assert_eq!(names(directory.path()), [""; 0]);
}
