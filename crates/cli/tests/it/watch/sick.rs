//! Findings: workloads that cause one each, and five healthy ones that cause none.
//!
//! [`super::squeezed`] has the findings about the memory of a machine, [`super::limits`] those
//! about dirty data.

use super::manners;
use super::reads::{Random, Workload};
use super::rig::{END_MAX, FILE_PAGES, TestFs, Watcher, is_written_back};
use larder_host::residency;
use larder_schema::watch::Watch;
use larder_testing::skip;
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Length of an interval, and a duration with enough intervals for a finding.
const INTERVAL: &str = "200ms";
const LONG: Duration = Duration::from_millis(1900);
const PAGE: u64 = 4096;

fn read(file: &File, page: u64) {
    file.read_exact_at(&mut [0; 4096], page * PAGE).unwrap();
}

/// Watches a single run of `work` for at least [`LONG`].
pub(crate) fn watch_work(args: &[&str], mut work: impl FnMut()) -> Watch {
    let watcher = Watcher::start(&[args, &["--interval", INTERVAL]].concat());
    let begun = Instant::now();
    work();
    // Some workloads end immediately, and less than three intervals cause no finding.
    std::thread::sleep(LONG.saturating_sub(begun.elapsed()));
    watcher.end_within(END_MAX)
}

/// Returns the rules that fire, and their evidence.
fn rules(watch: Watch) -> Vec<(String, String)> {
    watch.findings.into_iter().map(|finding| (finding.rule, finding.seen)).collect()
}

/// Checks that the rule fires while `work` runs; `args` select what is watched.
pub(crate) fn expect(args: &[&str], rule: &str, work: impl FnMut()) {
    check(watch_work(args, work), rule);
}

/// Checks that the rule fires.
pub(crate) fn check(watch: Watch, rule: &str) {
    let found = rules(watch);
    let Some((_, seen)) = found.iter().find(|(name, _)| name == rule) else {
        panic!("{rule} is not among {found:?}");
    };
    println!("shown: finding {rule}: {seen}");
}

/// Each read waits for its page, since the kernel does not read ahead.
fn cold_random(file: &File) {
    fadvise(file, 0, None, Advice::Random).unwrap();
    let mut random = Random(11);
    for _ in 0..4000 {
        read(file, random.below(FILE_PAGES));
    }
}

fn cold_in_order(file: &File) {
    fadvise(file, 0, None, Advice::Random).unwrap();
    for page in 0..2048 {
        read(file, page);
    }
}

/// After each two pages in order, the kernel reads ahead pages that no process reads.
fn wasted_read_ahead(file: &File) {
    for number in 0..FILE_PAGES / 32 {
        read(file, number * 32);
        read(file, number * 32 + 1);
    }
    fadvise(file, 0, None, Advice::DontNeed).unwrap();
}

fn small_files(directory: &Path, count: usize) {
    std::fs::create_dir_all(directory).unwrap();
    for number in 0..count {
        std::fs::write(directory.join(number.to_string()), [7; 5000]).unwrap();
    }
}

fn read_all(directory: &Path, count: usize) {
    for number in 0..count {
        std::fs::read(directory.join(number.to_string())).unwrap();
    }
}

/// Findings that can be caused without an effect on the rest of the machine.
pub(crate) fn all(test_fs: &TestFs) {
    let path = test_fs.file();
    let args = [test_fs.path().to_str().unwrap()];
    let open = || {
        residency::drop::file(&path).unwrap();
        File::open(&path).unwrap()
    };
    let others = ["one", "two"].map(|name| test_fs.fill(name, 64));
    let file = open();
    expect(&args, "one-file-misses", || {
        cold_random(&file);
        for path in &others {
            std::fs::read(path).unwrap();
        }
    });
    let file = open();
    expect(&args, "read-ahead-small", || cold_in_order(&file));
    let file = open();
    expect(&args, "read-ahead-wasted", || wasted_read_ahead(&file));
    let directory = test_fs.path().join("many");
    small_files(&directory, 300);
    let directory_itself = File::open(&directory).unwrap();
    rustix::fs::syncfs(&directory_itself).unwrap();
    expect(&args, "access-times", || read_all(&directory, 300));
    check_throttled(test_fs);
}

/// Limits the dirty data of one disk.
fn check_throttled(test_fs: &TestFs) {
    let disk = larder_host::disk::Disk::of(test_fs.path()).unwrap().unwrap();
    let number = std::fs::read_to_string(format!("/sys/block/{}/dev", disk.name)).unwrap();
    let bounds = format!("/sys/class/bdi/{}", number.trim());
    let set = |name: &str, value: &str| std::fs::write(format!("{bounds}/{name}"), value);
    if set("max_bytes", "4194304").and_then(|()| set("strict_limit", "1")).is_err() {
        skip("throttled-writers: this kernel has no bounds for one disk");
        return;
    }
    let (path, args) = (test_fs.path().join("flood"), [test_fs.path().to_str().unwrap()]);
    expect(&args, "throttled-writers", || {
        let file = File::create(&path).unwrap();
        let block = vec![1; 1 << 20];
        for index in 0..96 {
            file.write_all_at(&block, index << 20).unwrap();
        }
    });
    std::fs::remove_file(&path).unwrap();
    set("strict_limit", "0").unwrap();
    set("max_bytes", "0").unwrap_or_else(|_| set("max_ratio", "100").unwrap());
}

/// Workloads that cause no finding.
pub(crate) fn none(test_fs: &TestFs) {
    let path = test_fs.file();
    let file = File::open(&path).unwrap();
    let hot = |file: &File| {
        let mut random = Random(5);
        for _ in 0..60_000 {
            read(file, random.below(2000));
        }
    };
    let args = [test_fs.path().to_str().unwrap()];
    let assert_no_finding = |watch: Watch, name: &str| {
        // The first read of a new file makes its inode dirty again if the kernel has written it
        // back; the finding is then correct.
        let written_back = is_written_back(&watch);
        let mut rules = rules(watch);
        rules.retain(|(rule, _)| !written_back || rule != "access-times");
        assert!(rules.is_empty(), "{name}: {rules:?}");
        println!("shown: no finding: {name}");
    };
    assert_no_finding(watch_work(&args, || ()), "an idle file system");
    hot(&file);
    assert_no_finding(watch_work(&args, || hot(&file)), "a database that fits");
    residency::drop::file(&path).unwrap();
    let backup = || {
        let mut source = File::open(&path).unwrap();
        std::io::copy(&mut source, &mut std::io::sink()).unwrap();
    };
    assert_no_finding(watch_work(&args, backup), "a backup");
    let directory = test_fs.path().join("build");
    let build = || {
        small_files(&directory, 400);
        read_all(&directory, 400);
        small_files(&directory, 400);
    };
    assert_no_finding(watch_work(&args, build), "a build");
    let methods: &[Workload] = manners::READ_METHODS;
    let warm = || {
        for (_, method) in methods {
            method(&file);
        }
    };
    std::fs::read(&path).unwrap();
    assert_no_finding(watch_work(&args, warm), "mappings and sendfile of what is resident");
}
