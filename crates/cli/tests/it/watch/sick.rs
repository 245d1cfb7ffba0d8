//! Findings: workloads made to show one each, and five that nothing is wrong with.
//!
//! Those that are about the memory of a machine are in [`super::squeezed`], and those about what
//! may be dirty in [`super::limits`].

use super::manners;
use super::reads::{Random, Workload};
use super::rig::{Bench, END_MAX, FILE_PAGES, Watching, is_written_back};
use larder_host::residency;
use larder_report::watch::Watch;
use larder_testing::skip;
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// An interval, and so long that there are enough of them for a finding.
const INTERVAL: &str = "200ms";
const LONG: Duration = Duration::from_millis(1900);
const PAGE: u64 = 4096;

fn read(file: &File, page: u64) {
    file.read_exact_at(&mut [0; 4096], page * PAGE).unwrap();
}

/// Watches a single run of `work` for at least [`LONG`].
pub(crate) fn watched(words: &[&str], mut work: impl FnMut()) -> Watch {
    let watching = Watching::start(&[words, &["--interval", INTERVAL]].concat());
    let begun = Instant::now();
    work();
    // Some are over at once, and nothing is said of less than three intervals.
    std::thread::sleep(LONG.saturating_sub(begun.elapsed()));
    watching.end_within(END_MAX)
}

/// Returns the rules that fire, and their evidence.
fn rules(watch: Watch) -> Vec<(String, String)> {
    watch.findings.into_iter().map(|finding| (finding.rule, finding.seen)).collect()
}

/// Checks that the rule fires when `words` select what is watched.
pub(crate) fn expect(words: &[&str], rule: &str, work: impl FnMut()) {
    check(watched(words, work), rule);
}

/// Checks that the rule fires.
pub(crate) fn check(watch: Watch, rule: &str) {
    let found = rules(watch);
    let Some((_, seen)) = found.iter().find(|(name, _)| name == rule) else {
        panic!("{rule} is not among {found:?}");
    };
    println!("shown: finding {rule}: {seen}");
}

/// Each page is waited for, since nobody reads ahead.
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

/// Two pages in order make the kernel read more, which nobody wants.
fn promises(file: &File) {
    for place in 0..FILE_PAGES / 32 {
        read(file, place * 32);
        read(file, place * 32 + 1);
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

/// Those that can be shown without touching the rest of the machine.
pub(crate) fn all(bench: &Bench) {
    let path = bench.file();
    let words = [bench.path().to_str().unwrap()];
    let open = || {
        residency::drop::file(&path).unwrap();
        File::open(&path).unwrap()
    };
    let others = ["one", "two"].map(|name| bench.fill(name, 64));
    let file = open();
    expect(&words, "one-file-misses", || {
        cold_random(&file);
        for path in &others {
            std::fs::read(path).unwrap();
        }
    });
    let file = open();
    expect(&words, "read-ahead-small", || cold_in_order(&file));
    let file = open();
    expect(&words, "read-ahead-wasted", || promises(&file));
    let directory = bench.path().join("many");
    small_files(&directory, 300);
    let directory_itself = File::open(&directory).unwrap();
    rustix::fs::syncfs(&directory_itself).unwrap();
    expect(&words, "access-times", || read_all(&directory, 300));
    throttled(bench);
}

/// What may be dirty of one disk is bounded, for that disk alone.
fn throttled(bench: &Bench) {
    let disk = larder_host::disk::Disk::of(bench.path()).unwrap().unwrap();
    let number = std::fs::read_to_string(format!("/sys/block/{}/dev", disk.name)).unwrap();
    let bounds = format!("/sys/class/bdi/{}", number.trim());
    let set = |name: &str, value: &str| std::fs::write(format!("{bounds}/{name}"), value);
    if set("max_bytes", "4194304").and_then(|()| set("strict_limit", "1")).is_err() {
        skip("throttled-writers: this kernel has no bounds for one disk");
        return;
    }
    let (path, words) = (bench.path().join("flood"), [bench.path().to_str().unwrap()]);
    expect(&words, "throttled-writers", || {
        let file = File::create(&path).unwrap();
        let block = vec![1; 1 << 20];
        for place in 0..96 {
            file.write_all_at(&block, place << 20).unwrap();
        }
    });
    std::fs::remove_file(&path).unwrap();
    set("strict_limit", "0").unwrap();
    set("max_bytes", "0").unwrap_or_else(|_| set("max_ratio", "100").unwrap());
}

/// Nothing is said of these.
pub(crate) fn none(bench: &Bench) {
    let path = bench.file();
    let file = File::open(&path).unwrap();
    let hot = |file: &File| {
        let mut random = Random(5);
        for _ in 0..60_000 {
            read(file, random.below(2000));
        }
    };
    let words = [bench.path().to_str().unwrap()];
    let nothing = |watch: Watch, name: &str| {
        // The first read of a new file makes its inode dirty again if it was written back; the
        // finding is then correct.
        let written_back = is_written_back(&watch);
        let mut rules = rules(watch);
        rules.retain(|(rule, _)| !written_back || rule != "access-times");
        assert!(rules.is_empty(), "{name}: {rules:?}");
        println!("shown: no finding: {name}");
    };
    nothing(watched(&words, || ()), "an idle file system");
    hot(&file);
    nothing(watched(&words, || hot(&file)), "a database that fits");
    residency::drop::file(&path).unwrap();
    let backup = || {
        let mut source = File::open(&path).unwrap();
        std::io::copy(&mut source, &mut std::io::sink()).unwrap();
    };
    nothing(watched(&words, backup), "a backup");
    let directory = bench.path().join("build");
    let build = || {
        small_files(&directory, 400);
        read_all(&directory, 400);
        small_files(&directory, 400);
    };
    nothing(watched(&words, build), "a build");
    let ways: &[Workload] = manners::WAYS;
    let warm = || {
        for (_, way) in ways {
            way(&file);
        }
    };
    std::fs::read(&path).unwrap();
    nothing(watched(&words, warm), "mappings and sendfile of what is resident");
}
