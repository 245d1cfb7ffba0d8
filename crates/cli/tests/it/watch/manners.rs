//! Other ways to read than read(2), and readers beside each other.

use super::group::Group;
use super::reads::{Random, Workload, read};
use super::rig::{
    Bench, END_MAX, FILE_PAGES, Truth, Watching, counts, gone_pages, is_written_back, requests,
    ways,
};
use larder_host::residency::{self, of_range, page_bytes};
use larder_io::file_map::FileMap;
use larder_report::watch::Row;
use larder_testing::{has_tool, skip};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const WAYS: &[Workload] = &[("a mapping", mapping), ("sendfile", sendfile)];

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

    /// Returns whether the page at an offset of the file is mapped.
    fn has(&self, offset: u64) -> bool {
        let mut entry = [0; 8];
        let at = (self.start + offset) / page_bytes() * 8;
        self.entries.read_exact_at(&mut entry, at).unwrap();
        u64::from_le_bytes(entry) >> 63 == 1
    }
}

/// Touches pages of a mapping, each once, far enough apart that the kernel maps few of them along
/// with another: those of a large folio that a fault had to wait for. These touches cause no fault.
fn mapping(file: &File) -> Truth {
    let (page, mut truth, mut random) = (page_bytes(), Truth::default(), Random(7));
    fadvise(file, 0, None, Advice::Random).unwrap();
    // Some are there before.
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

/// Pages that the kernel moves itself, 64 KiB at a time.
fn sendfile(file: &File) -> Truth {
    let (page, mut truth, mut random) = (page_bytes(), Truth::default(), Random(9));
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

/// `dd` reads every second page, two of them at a time, each its own half; then both the same.
pub(crate) fn several_processes(bench: &Bench) {
    let path = bench.file();
    residency::drop::file(&path).unwrap();
    let watching = Watching::start(&[bench.path().to_str().unwrap()]);
    let pages = requests(8192);
    let start = |first: u64, pages: u64| {
        let input = format!("if={}", path.display());
        let (skip, count) = (format!("skip={first}"), format!("count={pages}"));
        let mut dd = Command::new("dd");
        dd.args([&input, "of=/dev/null", "bs=4096", &skip, &count]).stderr(Stdio::null());
        dd.spawn().unwrap()
    };
    let mut both = [start(0, pages / 2), start(pages / 2, pages / 2)];
    let apart: Vec<u32> = both
        .iter_mut()
        .map(|child| {
            assert!(child.wait().unwrap().success());
            child.id()
        })
        .collect();
    let mut again = [start(0, pages), start(0, pages)];
    let same: Vec<u32> = again
        .iter_mut()
        .map(|child| {
            assert!(child.wait().unwrap().success());
            child.id()
        })
        .collect();
    let watch = watching.end();
    let mut misses = 0;
    for pid in apart {
        let found = counts(&watch, &path, pid);
        assert_eq!(found.read_pages, pages / 2, "{found:?}");
        misses += found.added_pages;
        assert!(found.hit_pages * 100 <= found.read_pages, "all came for them: {found:?}");
    }
    assert!(misses >= pages * 99 / 100);
    let gone = gone_pages(&watch, &path);
    for pid in same {
        let found = counts(&watch, &path, pid);
        assert_eq!(found.read_pages, pages, "{found:?}");
        assert!(found.miss_pages <= gone, "{gone} pages left the cache: {:?}", watch.total.rows);
        assert!((found.hit_pages + gone) * 100 >= found.read_pages * 99, "{found:?}");
    }
    println!("shown: {}, four processes on one file: {pages} pages each exact", bench.kind);
}

/// 32 reads at a time through `io_uring`, each page once, cold; and once more.
pub(crate) fn a_ring(bench: &Bench) {
    if !has_tool("fio") {
        return;
    }
    let path = bench.file();
    residency::drop::file(&path).unwrap();
    let watching = Watching::start(&[bench.path().to_str().unwrap()]);
    let pages = requests(8192);
    let mut fio = Command::new("fio");
    fio.args(["--name=ring", "--ioengine=io_uring", "--iodepth=32", "--rw=randread", "--bs=4k"]);
    fio.args(["--thread", "--invalidate=0", "--loops=2", "--fadvise_hint=random"]);
    fio.arg(format!("--filename={}", path.display())).arg(format!("--size={}", pages * 4096));
    let mut child = fio.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let ended = child.wait().unwrap();
    let watch = watching.end();
    if !ended.success() {
        skip("fio has no io_uring here");
        return;
    }
    let found = counts(&watch, &path, child.id());
    let gone = gone_pages(&watch, &path);
    println!(
        "shown: {}, io_uring: {pages} pages missed and then hit, but for {gone} that left the \
         cache; found {} hits and {} misses ({} by read-ahead)",
        bench.kind,
        found.hit_pages + found.read_ahead_hit_pages,
        found.miss_pages,
        found.read_ahead_hit_pages
    );
    assert_eq!(found.read_pages, 2 * pages, "{:?}", watch.total.rows);
    // A page that leaves the cache after the second read is not missed.
    let misses = pages - pages / 100..=pages + gone + pages / 100;
    assert!(misses.contains(&found.miss_pages), "{misses:?}: {:?}", watch.total.rows);
}

/// Direct I/O looks nothing up, and its bytes are charged to the file.
pub(crate) fn past_the_cache(bench: &Bench) {
    let path = bench.file();
    residency::drop::file(&path).unwrap();
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap();
    let file = File::options().read(true).custom_flags(direct).open(&path).unwrap();
    let watching = Watching::start(&[bench.path().to_str().unwrap()]);
    let mut room = vec![0_u8; 8192];
    let at = room.as_ptr().align_offset(4096);
    let pages = requests(1000);
    for number in 0..pages {
        file.read_exact_at(&mut room[at..at + 4096], number * 8 * 4096).unwrap();
    }
    let watch = watching.end();
    let found = counts(&watch, &path, std::process::id());
    println!(
        "shown: {}, direct I/O: {} of {} bytes, {} look-ups",
        bench.kind,
        found.disk_read_bytes,
        pages * 4096,
        found.read_pages
    );
    assert_eq!(found.read_pages, 0, "{found:?}");
    assert_eq!(found.disk_read_bytes, pages * 4096, "{found:?}");
    let mut truth = Truth::default();
    read(&File::open(&path).unwrap(), 1, 1, &mut truth);
    assert_eq!(truth.misses, 1, "and nothing is resident");
}

/// A reader that asks for more than there is, as most do, looks up what there is.
pub(crate) fn past_the_end(bench: &Bench) {
    for way in ways() {
        let path = bench.fill("short", 16);
        residency::drop::file(&path).unwrap();
        let watching = Watching::start(&[bench.path().to_str().unwrap(), "--bpf", way]);
        let file = File::open(&path).unwrap();
        let mut room = vec![0; 1 << 17];
        for (offset, pages) in [(0, 16), (0, 16), (4096, 15)] {
            let bytes = file.read_at(&mut room, offset).unwrap();
            assert_eq!(bytes as u64, pages * page_bytes());
        }
        let watch = watching.end();
        let found = counts(&watch, &path, std::process::id());
        let (hits, misses) = (found.hit_pages + found.read_ahead_hit_pages, found.miss_pages);
        println!(
            "shown: {}, --bpf {way}, past the end: 31 hits and 16 misses, told {hits} and {misses}",
            bench.kind
        );
        assert_eq!((found.read_pages, hits, misses), (47, 31, 16), "{found:?}");
    }
}

/// Writes of any size are as many, and as long, as they were asked for, and new but for the pages
/// in which one ends and the next begins. They end before 2 MiB, where ext4 begins anew.
pub(crate) fn writes_of_any_size(bench: &Bench) {
    // btrfs does not report single writes.
    if bench.kind == "btrfs" {
        return;
    }
    for way in ways() {
        let path = bench.path().join(format!("written-{way}"));
        let watching = Watching::start(&[bench.path().to_str().unwrap(), "--bpf", way]);
        let file = File::create(&path).unwrap();
        let (mut requests, mut offset, mut again) = (0, 0, 0);
        for (bytes, times) in [(100_000, 8), (1_000_000, 1), (5_000, 40), (100, 50)] {
            for _ in 0..times {
                file.write_all_at(&vec![1; bytes], offset).unwrap();
                requests += 1;
                again += u64::from(offset % page_bytes() != 0);
                offset += bytes as u64;
            }
        }
        let watch = watching.end();
        let found = counts(&watch, &path, std::process::id());
        println!(
            "shown: {}, --bpf {way}, {requests} writes of {offset} bytes, {again} pages of them \
             again; told {} of {}, {} again",
            bench.kind,
            found.write_requests,
            found.write_bytes,
            found.write_pages - found.write_new_pages
        );
        let told = (found.write_requests, found.write_bytes);
        assert_eq!(told, (requests, offset), "{found:?}");
        let new = offset.div_ceil(page_bytes());
        assert_eq!((found.write_pages, found.write_new_pages), (new + again, new), "{found:?}");
        assert!(found.write_dirtied_pages >= new, "{found:?}");
        assert!(found.write_dirtied_pages == new || is_written_back(&watch), "{found:?}");
    }
}

/// A removed file and the one that gets its number stay apart.
pub(crate) fn the_same_number(bench: &Bench) {
    // btrfs does not reuse inode numbers.
    if bench.kind == "btrfs" {
        return;
    }
    for way in ways() {
        let inode = |path: &Path| std::fs::metadata(path).unwrap().ino();
        let name = |number: usize| format!("again-{way}-{number}");
        let watching = Watching::start(&[bench.path().to_str().unwrap(), "--bpf", way]);
        let (first, mut next) = (bench.fill(&name(0), 16), 0);
        let number = inode(&first);
        let times = 64;
        let all = |path: &Path, passes: u64| {
            let file = File::open(path).unwrap();
            (0..passes * 16).for_each(|page| {
                file.read_exact_at(&mut [0; 4096], page % 16 * page_bytes()).unwrap();
            });
        };
        all(&first, times);
        std::fs::remove_file(&first).unwrap();
        let begun = Instant::now();
        let found = loop {
            next += 1;
            let path = bench.fill(&name(next), 16);
            if inode(&path) == number {
                break Some(path);
            }
            if begun.elapsed() > Duration::from_secs(2) {
                break None;
            }
        };
        let Some(second) = found else {
            watching.end();
            skip(format_args!("{}: no inode number was reused", bench.kind));
            return;
        };
        all(&second, 2 * times);
        let watch = watching.end();
        let own = |row: &&Row| row.inode == number && row.pid == std::process::id();
        let rows: Vec<&Row> = watch.total.rows.iter().filter(own).collect();
        // It is known if it was met long enough before it was removed.
        let is_second = |row: &&&Row| Path::new(&row.file) == second;
        let [before, after] = [false, true].map(|wanted| {
            let of_it = rows.iter().filter(|row| is_second(row) == wanted);
            of_it.map(|row| (row.counts.read_pages, row.counts.hit_pages)).collect::<Vec<_>>()
        });
        println!(
            "shown: {}, --bpf {way}, a number that is given again: {} and {} pages, told \
             {before:?} and {after:?}",
            bench.kind,
            16 * times,
            32 * times,
        );
        let expected = |pages| vec![(pages, pages)];
        assert_eq!((before, after), (expected(16 * times), expected(32 * times)), "{rows:?}");
    }
}

/// Who goes into a group is watched from then on, with what it starts there.
pub(crate) fn into_a_group(bench: &Bench) {
    let Some(group) = Group::of(64) else { return };
    let (outside, inside) = (bench.fill("outside", 16), bench.fill("inside", 16));
    let watching = Watching::start(&["--cgroup", group.name()]);
    let script = "read -r line < \"$1\"; dd bs=4096 status=none < \"$1\"; echo $$ > \"$3\"; \
                  dd bs=4096 status=none < \"$2\"; read -r line < \"$2\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "joins"]).args([&outside, &inside]).arg(group.door());
    let _read_fails_without_a_line = shell.stdout(Stdio::null()).status().unwrap();
    // The events are those of the whole machine: on a busy one some may be lost, which the result
    // reports.
    let watch = watching.end_within(END_MAX);
    let is_complete = watch.total.lost_events == 0;
    let pages = |file: &Path, process: &str| {
        let rows = watch.total.rows.iter();
        let name = file.display().to_string();
        let own = rows.filter(|row| row.file == name && row.process == process);
        own.map(|row| row.counts.read_pages).sum::<u64>()
    };
    let rows = &watch.total.rows;
    assert_eq!((pages(&outside, "sh"), pages(&outside, "dd")), (0, 0), "{rows:?}");
    assert!(pages(&inside, "dd") == 16 || !is_complete, "{rows:?}");
    assert!(pages(&inside, "sh") > 0 || !is_complete, "{rows:?}");
}
