//! Findings about the memory of a whole machine, caused in a memory control group, which is
//! equivalent to a machine for the processes in it.

use super::group::{self, MemoryGroup, Work};
use super::reads::Random;
use super::rig::{FILE_PAGES, TestFs};
use super::sick;
use larder_host::residency;
use larder_testing::Cleanup;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// Memory limits of the groups.
const LEAK_MIB: u64 = 96;
const PAGING_MIB: u64 = 128;
const SCAN_MIB: u64 = 64;
const LAYERS_MIB: u64 = 256;
/// Memory that the paging program holds; about a sixteenth of the limit remains.
const HELD_MIB: usize = 121;
/// Threads of the paging program.
const PAGING_THREADS: u64 = 8;
/// Pages of the file that is read repeatedly during the scan.
const HOT_PAGES: u64 = 10_000;
/// Pages of the file on the file system in an image.
const DEEP_PAGES: u64 = 8_192;
/// Duration of a program's work in a group, if the machine is not busy.
const LONG: Duration = Duration::from_millis(2500);
/// Factors of that duration, in turn, until the observation has enough intervals.
const STRETCHES: [u32; 3] = [1, 4, 16];
/// Minimum number of intervals for a leak, which is a trend, and for all other findings.
const LEAK_INTERVALS_MIN: usize = 10;
const INTERVALS_MIN: usize = 4;
/// Maximum time that a program in a group continues its work.
const LONG_MAX: Duration = Duration::from_mins(1);

/// Tasks of the program in a group.
pub(crate) const WORKS: &[Work] = &[("leak", leak), ("page", page), ("scan", scan), ("read", read)];

fn long() -> Duration {
    LONG * group::stretch()
}

fn read_all(file: &Path) {
    std::io::copy(&mut File::open(file).unwrap(), &mut std::io::sink()).unwrap();
}

fn read_page(file: &File, page: u64) {
    file.read_exact_at(&mut [0; 4096], page * 4096).unwrap();
}

/// Allocates memory step by step, and frees none: it continues to the end of the observation, which
/// may be late on a busy machine, and whose intervals all need the program.
fn leak(file: &Path, report_ready: &dyn Fn()) {
    read_all(file);
    report_ready();
    let mut all = Vec::new();
    for _ in 0..42 {
        all.push(vec![1_u8; 2 * MIB]);
        std::thread::sleep(2 * long() / 42);
    }
    group::done();
    std::thread::sleep(LONG_MAX);
    assert!(all.iter().all(|it| it[MIB] == 1));
}

/// Holds nearly all memory, and reads a file that does not fit. Each page was read before, since
/// only pages that are read again count as paged. On a busy machine a thread waits for a processor
/// after each read, so that only several threads together read often enough. They continue until
/// the end of the observation, which may be late there.
fn page(file: &Path, report_ready: &dyn Fn()) {
    let held = vec![1_u8; HELD_MIB * MIB];
    read_all(file);
    let opened = File::open(file).unwrap();
    report_ready();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for seed in 0..PAGING_THREADS {
            let opened = &opened;
            scope.spawn(move || {
                let mut random = Random(3 + seed);
                while begun.elapsed() < LONG_MAX {
                    read_page(opened, random.below(FILE_PAGES));
                }
            });
        }
        std::thread::sleep(long());
        group::done();
    });
    assert_eq!(held[MIB], 1);
}

/// Reads a file in order, alternating with one that would fit in memory.
fn scan(file: &Path, report_ready: &dyn Fn()) {
    let hot = File::open(file.with_file_name("hot")).unwrap();
    let mut random = Random(4);
    let mut read_hot = || (0..HOT_PAGES).for_each(|_| read_page(&hot, random.below(HOT_PAGES)));
    read_hot();
    report_ready();
    let begun = Instant::now();
    while begun.elapsed() < long() {
        read_all(file);
        read_hot();
    }
}

fn read(file: &Path, report_ready: &dyn Fn()) {
    report_ready();
    read_all(file);
    std::thread::sleep(long());
}

/// Checks that a finding is made while a program works in a group with a limit of `mib` MiB. Before
/// each attempt `cold` is dropped from the cache, since pages belong to the group that reads them.
/// On a busy machine there are few intervals in a second: the program then works for longer.
fn expect(rule: &str, mib: u64, work: &str, file: &Path, cold: &[&Path]) {
    let intervals_min = if rule == "leak" { LEAK_INTERVALS_MIN } else { INTERVALS_MIN };
    for stretch in STRETCHES {
        for path in cold {
            residency::drop::file(path).unwrap();
        }
        let Some(group) = MemoryGroup::of(mib) else { return };
        let mut worker = group.start(work, file, stretch);
        let watch = sick::watch_work(&["--cgroup", group.name()], || worker.run());
        if watch.intervals.len() >= intervals_min || Some(&stretch) == STRETCHES.last() {
            return sick::check(watch, rule);
        }
    }
}

pub(crate) fn all(test_fs: &TestFs) {
    let (file, hot) = (test_fs.file(), test_fs.fill("hot", HOT_PAGES));
    for (rule, mib, work) in
        [("leak", LEAK_MIB, "leak"), ("paging", PAGING_MIB, "page"), ("scan", SCAN_MIB, "scan")]
    {
        expect(rule, mib, work, &file, &[&file, &hot]);
    }
    std::fs::remove_file(&hot).unwrap();
    check_layered(test_fs);
}

/// A file system in an image whose own pages are cached as well.
fn check_layered(test_fs: &TestFs) {
    let (image, directory) = (test_fs.path().join("deep.img"), test_fs.path().join("deep"));
    std::fs::create_dir(&directory).unwrap();
    File::create(&image).unwrap().set_len(96 << 20).unwrap();
    let (image_name, directory_name) = (image.to_str().unwrap(), directory.to_str().unwrap());
    let cleanup = Cleanup::with("umount \"$1\"", &[directory_name]);
    let run = |command: &str, args: &[&str]| {
        assert!(Command::new(command).args(args).status().unwrap().success(), "{command}");
    };
    run("mkfs.ext4", &["-q", image_name]);
    run("mount", &["-o", "loop", image_name, directory_name]);
    let file = directory.join("file");
    let content = vec![5; usize::try_from(DEEP_PAGES * residency::page_bytes()).unwrap()];
    std::fs::write(&file, content).unwrap();
    rustix::fs::syncfs(File::open(&directory).unwrap()).unwrap();
    expect("layered-caches", LAYERS_MIB, "read", &file, &[&file, &image]);
    drop(cleanup);
    std::fs::remove_file(&image).unwrap();
}

/// Runs the task that the environment requests. The other tests run this in a group; elsewhere it
/// does nothing.
pub(crate) fn run_task() {
    group::work(WORKS);
}
