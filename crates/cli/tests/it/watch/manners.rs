//! Ways to read other than read(2), and concurrent readers.

use super::group::MemoryGroup;
use super::reads::{Random, Workload, read};
use super::rig::{
    END_MAX, FILE_PAGES, GroundTruth, TestFs, Watcher, bpf_modes, counts, gone_pages,
    is_written_back, requests,
};
use larder_host::residency::{self, of_range, page_bytes};
use larder_io::file_map::FileMap;
use larder_schema::watch::Row;
use larder_testing::{has_tool, skip};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const READ_METHODS: &[Workload] = &[("a mapping", mapping), ("sendfile", sendfile)];

/// The entries of this process's page table for a mapping of a file.
struct PageTable {
    entries: File,
    /// Address of the mapping.
    start: u64,
}

impl PageTable {
    fn of(file: &File) -> Self {
        let number = file.metadata().unwrap().ino().to_string();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let is_of_file = |line: &&str| line.split_whitespace().nth(4) == Some(&number);
        let line = maps.lines().find(is_of_file).expect("the mapping");
        let start = u64::from_str_radix(line.split_once('-').unwrap().0, 16).unwrap();
        PageTable { entries: File::open("/proc/self/pagemap").unwrap(), start }
    }

    /// Returns true if the page at an offset of the file is mapped.
    fn has(&self, offset: u64) -> bool {
        let mut entry = [0; 8];
        let at = (self.start + offset) / page_bytes() * 8;
        self.entries.read_exact_at(&mut entry, at).unwrap();
        u64::from_le_bytes(entry) >> 63 == 1
    }
}

/// Touches pages of a mapping, each once. They are so far apart that the kernel maps few of them
/// along with another: those of a large folio for which a fault had to wait. Touches of these would
/// cause no fault, so they are left out.
fn mapping(file: &File) -> GroundTruth {
    let (page, mut truth, mut random) = (page_bytes(), GroundTruth::default(), Random(7));
    fadvise(file, 0, None, Advice::Random).unwrap();
    // Some pages are resident before.
    for number in 0..FILE_PAGES / 16 {
        if random.below(3) == 0 {
            file.read_exact_at(&mut [0], number * 16 * page).unwrap();
        }
    }
    let map = FileMap::new(file, FILE_PAGES * page, false).unwrap();
    let table = PageTable::of(file);
    for number in 0..FILE_PAGES / 16 {
        let offset = number * 16 * page;
        if table.has(offset) {
            continue;
        }
        let before = of_range(file, offset, page).unwrap();
        truth.hits += before.resident;
        truth.misses += 1 - before.resident;
        map.read(offset, &mut [0]).unwrap();
    }
    truth
}

/// Transfers pages within the kernel, 64 KiB at a time.
fn sendfile(file: &File) -> GroundTruth {
    let (page, mut truth, mut random) = (page_bytes(), GroundTruth::default(), Random(9));
    let sink = File::options().write(true).open("/dev/null").unwrap();
    for _ in 0..requests(400) {
        let first = random.below(FILE_PAGES / 16) * 16;
        let before = of_range(file, first * page, 16 * page).unwrap();
        truth.hits += before.resident;
        truth.misses += before.pages - before.resident;
        let (mut offset, end) = (first * page, (first + 16) * page);
        while offset < end {
            let left = usize::try_from(end - offset).unwrap();
            rustix::fs::sendfile(&sink, file, Some(&mut offset), left).unwrap();
        }
    }
    truth
}

/// Two `dd` at a time read one half of the pages each; then two read the same pages.
pub(crate) fn check_processes(test_fs: &TestFs) {
    let path = test_fs.file();
    residency::drop::file(&path).unwrap();
    let watcher = Watcher::start(&[test_fs.path().to_str().unwrap()]);
    let pages = requests(8192);
    let start = |first: u64, pages: u64| {
        let input = format!("if={}", path.display());
        let (skip, count) = (format!("skip={first}"), format!("count={pages}"));
        let mut dd = Command::new("dd");
        dd.args([&input, "of=/dev/null", "bs=4096", &skip, &count]).stderr(Stdio::null());
        dd.spawn().unwrap()
    };
    let mut first_readers = [start(0, pages / 2), start(pages / 2, pages / 2)];
    let first_pids: Vec<u32> = first_readers
        .iter_mut()
        .map(|child| {
            assert!(child.wait().unwrap().success());
            child.id()
        })
        .collect();
    let mut second_readers = [start(0, pages), start(0, pages)];
    let second_pids: Vec<u32> = second_readers
        .iter_mut()
        .map(|child| {
            assert!(child.wait().unwrap().success());
            child.id()
        })
        .collect();
    let watch = watcher.end();
    let mut misses = 0;
    for pid in first_pids {
        let found = counts(&watch, &path, pid);
        assert_eq!(found.read_pages, pages / 2, "{found:?}");
        misses += found.added_pages;
        assert!(found.hit_pages * 100 <= found.read_pages, "all came for them: {found:?}");
    }
    assert!(misses >= pages * 99 / 100);
    let gone = gone_pages(&watch, &path);
    for pid in second_pids {
        let found = counts(&watch, &path, pid);
        assert_eq!(found.read_pages, pages, "{found:?}");
        assert!(found.miss_pages <= gone, "{gone} pages left the cache: {:?}", watch.total.rows);
        assert!((found.hit_pages + gone) * 100 >= found.read_pages * 99, "{found:?}");
    }
    println!("shown: {}, four processes on one file: {pages} pages each exact", test_fs.kind);
}

/// Reads each page twice through `io_uring`, first cold and then cached, with 32 reads in flight.
pub(crate) fn check_io_uring(test_fs: &TestFs) {
    if !has_tool("fio") {
        return;
    }
    let path = test_fs.file();
    residency::drop::file(&path).unwrap();
    let watcher = Watcher::start(&[test_fs.path().to_str().unwrap()]);
    let pages = requests(8192);
    let mut fio = Command::new("fio");
    fio.args(["--name=ring", "--ioengine=io_uring", "--iodepth=32", "--rw=randread", "--bs=4k"]);
    fio.args(["--thread", "--invalidate=0", "--loops=2", "--fadvise_hint=random"]);
    fio.arg(format!("--filename={}", path.display())).arg(format!("--size={}", pages * 4096));
    let mut child = fio.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let status = child.wait().unwrap();
    let watch = watcher.end();
    if !status.success() {
        skip("fio has no io_uring here");
        return;
    }
    let found = counts(&watch, &path, child.id());
    let gone = gone_pages(&watch, &path);
    println!(
        "shown: {}, io_uring: {pages} pages missed and then hit, but for {gone} that left the \
         cache; found {} hits and {} misses ({} by read-ahead)",
        test_fs.kind,
        found.hit_pages + found.read_ahead_hit_pages,
        found.miss_pages,
        found.read_ahead_hit_pages
    );
    assert_eq!(found.read_pages, 2 * pages, "{:?}", watch.total.rows);
    // A page that leaves the cache after the second read is not missed.
    let misses = pages - pages / 100..=pages + gone + pages / 100;
    assert!(misses.contains(&found.miss_pages), "{misses:?}: {:?}", watch.total.rows);
}

/// Direct I/O looks nothing up in the page cache, and its bytes are charged to the file.
pub(crate) fn check_direct_io(test_fs: &TestFs) {
    let path = test_fs.file();
    residency::drop::file(&path).unwrap();
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap();
    let file = File::options().read(true).custom_flags(direct).open(&path).unwrap();
    let watcher = Watcher::start(&[test_fs.path().to_str().unwrap()]);
    let mut buffer = vec![0_u8; 8192];
    let aligned = buffer.as_ptr().align_offset(4096);
    let pages = requests(1000);
    for number in 0..pages {
        file.read_exact_at(&mut buffer[aligned..aligned + 4096], number * 8 * 4096).unwrap();
    }
    let watch = watcher.end();
    let found = counts(&watch, &path, std::process::id());
    println!(
        "shown: {}, direct I/O: {} of {} bytes, {} lookups",
        test_fs.kind,
        found.disk_read_bytes,
        pages * 4096,
        found.read_pages
    );
    assert_eq!(found.read_pages, 0, "{found:?}");
    assert_eq!(found.disk_read_bytes, pages * 4096, "{found:?}");
    let mut truth = GroundTruth::default();
    read(&File::open(&path).unwrap(), 1, 1, &mut truth);
    assert_eq!(truth.misses, 1, "and nothing is resident");
}

/// A read that asks for more bytes than the file has looks up only the pages that exist.
pub(crate) fn check_read_past_end(test_fs: &TestFs) {
    for mode in bpf_modes() {
        let path = test_fs.fill("short", 16);
        residency::drop::file(&path).unwrap();
        let watcher = Watcher::start(&[test_fs.path().to_str().unwrap(), "--bpf", mode]);
        let file = File::open(&path).unwrap();
        let mut buffer = vec![0; 1 << 17];
        for (offset, pages) in [(0, 16), (0, 16), (4096, 15)] {
            let bytes = file.read_at(&mut buffer, offset).unwrap();
            assert_eq!(bytes as u64, pages * page_bytes());
        }
        let watch = watcher.end();
        let found = counts(&watch, &path, std::process::id());
        let (hits, misses) = (found.hit_pages + found.read_ahead_hit_pages, found.miss_pages);
        println!(
            "shown: {}, --bpf {mode}, past the end: 31 hits and 16 misses, told {hits} and \
             {misses}",
            test_fs.kind
        );
        assert_eq!((found.read_pages, hits, misses), (47, 31, 16), "{found:?}");
    }
}

/// Number and length of writes of any size are reported as requested. All pages are new, except
/// those in which one write ends and the next begins. The writes end before 2 MiB, where ext4
/// restarts.
pub(crate) fn check_write_sizes(test_fs: &TestFs) {
    // btrfs does not report single writes.
    if test_fs.kind == "btrfs" {
        return;
    }
    for mode in bpf_modes() {
        let path = test_fs.path().join(format!("written-{mode}"));
        let watcher = Watcher::start(&[test_fs.path().to_str().unwrap(), "--bpf", mode]);
        let file = File::create(&path).unwrap();
        let (mut requests, mut offset, mut repeated) = (0, 0, 0);
        for (bytes, times) in [(100_000, 8), (1_000_000, 1), (5_000, 40), (100, 50)] {
            for _ in 0..times {
                file.write_all_at(&vec![1; bytes], offset).unwrap();
                requests += 1;
                repeated += u64::from(offset % page_bytes() != 0);
                offset += bytes as u64;
            }
        }
        let watch = watcher.end();
        let found = counts(&watch, &path, std::process::id());
        println!(
            "shown: {}, --bpf {mode}, {requests} writes of {offset} bytes, {repeated} pages of \
             them again; told {} of {}, {} again",
            test_fs.kind,
            found.write_requests,
            found.write_bytes,
            found.write_pages - found.write_new_pages
        );
        let reported = (found.write_requests, found.write_bytes);
        assert_eq!(reported, (requests, offset), "{found:?}");
        let new = offset.div_ceil(page_bytes());
        assert_eq!((found.write_pages, found.write_new_pages), (new + repeated, new), "{found:?}");
        assert!(found.write_dirtied_pages >= new, "{found:?}");
        assert!(found.write_dirtied_pages == new || is_written_back(&watch), "{found:?}");
    }
}

/// A removed file and a later file with the same inode number are counted separately.
pub(crate) fn check_inode_reuse(test_fs: &TestFs) {
    // btrfs does not reuse inode numbers.
    if test_fs.kind == "btrfs" {
        return;
    }
    for mode in bpf_modes() {
        let inode = |path: &Path| std::fs::metadata(path).unwrap().ino();
        let name = |number: usize| format!("again-{mode}-{number}");
        let watcher = Watcher::start(&[test_fs.path().to_str().unwrap(), "--bpf", mode]);
        let (first, mut next) = (test_fs.fill(&name(0), 16), 0);
        let number = inode(&first);
        let times = 64;
        let read_all = |path: &Path, passes: u64| {
            let file = File::open(path).unwrap();
            (0..passes * 16).for_each(|page| {
                file.read_exact_at(&mut [0; 4096], page % 16 * page_bytes()).unwrap();
            });
        };
        read_all(&first, times);
        std::fs::remove_file(&first).unwrap();
        let begun = Instant::now();
        let found = loop {
            next += 1;
            let path = test_fs.fill(&name(next), 16);
            if inode(&path) == number {
                break Some(path);
            }
            if begun.elapsed() > Duration::from_secs(2) {
                break None;
            }
        };
        let Some(second) = found else {
            watcher.end();
            skip(format_args!("{}: no inode number was reused", test_fs.kind));
            return;
        };
        read_all(&second, 2 * times);
        let watch = watcher.end();
        let is_own = |row: &&Row| row.inode == number && row.pid == std::process::id();
        let rows: Vec<&Row> = watch.total.rows.iter().filter(is_own).collect();
        // The name of a file is known if the watch met the file long enough before its removal.
        let is_second = |row: &&&Row| Path::new(&row.file) == second;
        let [before, after] = [false, true].map(|matches_second| {
            let of_it = rows.iter().filter(|row| is_second(row) == matches_second);
            of_it.map(|row| (row.counts.read_pages, row.counts.hit_pages)).collect::<Vec<_>>()
        });
        println!(
            "shown: {}, --bpf {mode}, a number that is given again: {} and {} pages, told \
             {before:?} and {after:?}",
            test_fs.kind,
            16 * times,
            32 * times,
        );
        let expected = |pages| vec![(pages, pages)];
        assert_eq!((before, after), (expected(16 * times), expected(32 * times)), "{rows:?}");
    }
}

/// A process that enters a group is watched from then on, together with the processes that it
/// starts there.
pub(crate) fn check_group_entry(test_fs: &TestFs) {
    let Some(group) = MemoryGroup::of(64) else { return };
    let (outside, inside) = (test_fs.fill("outside", 16), test_fs.fill("inside", 16));
    let watcher = Watcher::start(&["--cgroup", group.name()]);
    let script = "read -r line < \"$1\"; dd bs=4096 status=none < \"$1\"; echo $$ > \"$3\"; \
                  dd bs=4096 status=none < \"$2\"; read -r line < \"$2\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "joins"]).args([&outside, &inside]).arg(group.procs_file());
    let _read_fails_without_a_line = shell.stdout(Stdio::null()).status().unwrap();
    // The events are those of the whole machine. On a busy one some may be lost, which the result
    // reports.
    let watch = watcher.end_within(END_MAX);
    let is_complete = watch.total.lost_events == 0;
    let pages = |file: &Path, process: &str| {
        let rows = watch.total.rows.iter();
        let name = file.display().to_string();
        let matching = rows.filter(|row| row.file == name && row.process == process);
        matching.map(|row| row.counts.read_pages).sum::<u64>()
    };
    let rows = &watch.total.rows;
    assert_eq!((pages(&outside, "sh"), pages(&outside, "dd")), (0, 0), "{rows:?}");
    assert!(pages(&inside, "dd") == 16 || !is_complete, "{rows:?}");
    assert!(pages(&inside, "sh") > 0 || !is_complete, "{rows:?}");
}
