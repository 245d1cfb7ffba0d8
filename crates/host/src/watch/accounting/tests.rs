//! Hand-written events and the expected counts.

use super::super::event::{Event, InodeRef};
use super::super::tasks::TaskInfo;
use super::*;

const DEV: u32 = 7 << 20;
const FILE: Key = Key { dev: DEV, ino: 12 };
const DB: u32 = 100;
const CP: u32 = 200;
const FLUSHER: u32 = 7;
const KSWAPD: u32 = 9;
const PAGE: u64 = 4096;

fn accounting() -> Accounting {
    let describe_task: DescribeTask = Box::new(|thread| {
        let name = match thread {
            DB => "db",
            CP => "cp",
            FLUSHER => "kworker/u8:0-flush-7:0",
            KSWAPD => "kswapd0",
            _ => return None,
        };
        let (pid, kernel) = (thread, thread < 10);
        let (process, name) = (name.into(), name.into());
        Some(TaskInfo { pid, name, process, kernel, is_worker: false, watched: true })
    });
    let machine = MachineQueries {
        file_system_devices: Box::new(|file_system| match file_system {
            FileSystemId::Backing(name) if name.starts_with(b"7:0\0") => vec![DEV + 1, DEV],
            _ => Vec::new(),
        }),
        is_block_file_system: Box::new(|key| key.dev == 3),
        file_size: Box::new(|key| (key.ino == 13).then_some(2 * PAGE + 1)),
        page_bytes: PAGE,
    };
    Accounting::new(describe_task, machine)
}

fn backing(ino: u64) -> InodeRef {
    let mut name = [0; 32];
    name[..3].copy_from_slice(b"7:0");
    InodeRef { file_system: FileSystemId::Backing(name), ino }
}

/// Returns the counts of a process over all files.
fn of(accounting: &Accounting, name: &str) -> Counts {
    let mut sum = Counts::default();
    for (_, process, counts) in &accounting.counts {
        if accounting.tasks.process(*process).name == name {
            sum += *counts;
        }
    }
    sum
}

fn take(accounting: &mut Accounting, thread: u32, events: &[Event]) {
    for event in events {
        accounting.take(thread, *event);
    }
}

fn add(first: u64, order: u32) -> Event {
    Event::Add { key: FILE, first, order }
}

fn bio(sectors: u64, write: bool) -> Event {
    Event::Bio { dev: DEV, sectors, write, meta: false }
}

#[test]
fn a_cold_read_is_charged_to_the_reader_with_its_disk() {
    let mut accounting = accounting();
    let wanted = Event::SyncReadahead { key: FILE, first: 0, count: 1 };
    let lookup =
        |page| Event::Lookup { key: FILE, first: page, last: page, last_in_file: Some(page) };
    take(&mut accounting, DB, &[wanted, add(0, 2), bio(32, false)]);
    let first = accounting.take(DB, lookup(0)).unwrap();
    assert_eq!((first.offset, first.bytes, first.misses), (0, PAGE, 1));
    take(&mut accounting, DB, &[lookup(1), lookup(1)]);
    let counts = of(&accounting, "db");
    assert_eq!((counts.read_pages, counts.read_requests, counts.added_pages), (3, 3, 4));
    assert_eq!((counts.miss_pages, counts.read_ahead_hit_pages, counts.hit_pages), (1, 1, 1));
    assert_eq!((counts.disk_read_bytes, counts.disk_read_requests), (4 * PAGE, 1));
    assert!(
        accounting
            .take(DB, Event::Lookup { key: FILE, first: 5, last: 4, last_in_file: Some(4) })
            .is_none()
    );
}

#[test]
fn what_is_written_back_later_carries_the_name_of_its_writer() {
    let mut accounting = accounting();
    let write = Event::Write { key: FILE, offset: 0, bytes: 2 * PAGE, whole: false };
    let dirty = |page| Event::Dirty { inode: backing(12), page };
    take(&mut accounting, CP, &[write, add(0, 0), dirty(0), add(1, 0), dirty(1)]);
    // A write to a dirty page causes no event except the write.
    take(&mut accounting, CP, &[write]);
    let counts = of(&accounting, "cp");
    assert_eq!((counts.write_pages, counts.write_new_pages, counts.dirtied_pages), (4, 2, 2));
    assert_eq!((counts.overwritten_pages(), counts.write_bytes), (2, 4 * PAGE));
    let start = Event::InodeStart { inode: backing(12) };
    let done = Event::InodeDone { inode: backing(12), wrote: 2 };
    let lazy = Event::WritebackStart { reason: WritebackReason::Periodic };
    take(&mut accounting, FLUSHER, &[lazy, start, bio(16, true), done, bio(8, true)]);
    let counts = of(&accounting, "cp");
    assert_eq!((counts.disk_lazy_write_bytes, counts.disk_write_bytes), (2 * PAGE, 0));
    assert_eq!((counts.disk_lazy_write_requests, counts.disk_write_requests), (1, 0));
    let lazy = of(&accounting, "kworker");
    assert_eq!((lazy.lazy_periodic_pages, lazy.lazy_flushes), (2, 1));
    assert_eq!(accounting.unattributed.write_bytes, PAGE, "after it has left the file");
    // For fsync(2) the process itself writes back.
    let out =
        Event::WriteOut { inode: InodeRef { file_system: FileSystemId::Device(DEV), ino: 12 } };
    take(&mut accounting, CP, &[dirty(0), out, bio(8, true)]);
    let counts = of(&accounting, "cp");
    assert_eq!((counts.disk_write_bytes, counts.disk_write_requests), (PAGE, 1));
}

#[test]
fn large_folios_become_dirty_and_go_as_one() {
    let mut accounting = accounting();
    let dirty = Event::Dirty { inode: backing(12), page: 16 };
    let write = Event::Write { key: FILE, offset: 16 * PAGE, bytes: 100, whole: false };
    take(&mut accounting, DB, &[add(16, 4), write, dirty]);
    let counts = of(&accounting, "db");
    assert_eq!((counts.dirtied_pages, counts.write_dirtied_pages), (16, 1));
    let delete = Event::Delete { key: FILE, first: 16, order: 4 };
    take(&mut accounting, KSWAPD, &[delete]);
    assert_eq!(of(&accounting, "kswapd0").evicted_pages, 16);
    take(&mut accounting, DB, &[add(20, 1), Event::Delete { key: FILE, first: 20, order: 1 }]);
    let counts = of(&accounting, "db");
    assert_eq!((counts.refault_pages, counts.dropped_pages), (2, 2));
    let reclaim = |begins| Event::Reclaim { begins };
    let delete = |first| Event::Delete { key: FILE, first, order: 0 };
    take(&mut accounting, DB, &[reclaim(true), delete(1), reclaim(false), delete(2)]);
    let counts = of(&accounting, "db");
    assert_eq!((counts.evicted_pages, counts.dropped_pages), (1, 3));
}

#[test]
fn a_mapping_counts_first_touches_and_those_that_had_to_wait() {
    let mut accounting = accounting();
    let fault = |page| Event::Fault { key: FILE, page };
    let map = |first| Event::MapPages { key: FILE, first, last: first + 15 };
    // Cold: the thread waits for the page, faults again, and maps the pages around it.
    take(&mut accounting, DB, &[fault(3), add(0, 4), fault(3), map(0)]);
    // The pages come from read-ahead.
    take(&mut accounting, DB, &[map(16), fault(40)]);
    let counts = of(&accounting, "db");
    assert_eq!((counts.map_touches, counts.map_misses), (3, 1));
    // The surrounding pages are resident, and the page itself is not.
    take(&mut accounting, DB, &[map(64), fault(70), add(70, 0), fault(70), map(64)]);
    let counts = of(&accounting, "db");
    assert_eq!((counts.map_touches, counts.map_misses), (4, 2));
}

#[test]
fn files_of_block_devices_and_of_partitions_are_found() {
    let mut accounting = accounting();
    let device = Key { dev: 3, ino: u64::from(DEV) };
    take(&mut accounting, DB, &[Event::Add { key: device, first: 0, order: 0 }]);
    let inode = backing(u64::from(DEV));
    take(&mut accounting, DB, &[Event::Dirty { inode, page: 0 }]);
    assert_eq!(accounting.files.len(), 1, "the device is the same file by both names");
    assert_eq!(accounting.file(0).key.dev, BLOCK_DEVICES);
    take(&mut accounting, DB, &[add(0, 0), Event::Dirty { inode: backing(12), page: 0 }]);
    assert_eq!(accounting.files.len(), 2, "of two devices the one where the file is known");
    // The file's pages are not on another device.
    let other = Event::Bio { dev: DEV + 5, sectors: 8, write: false, meta: false };
    take(&mut accounting, DB, &[other]);
    assert_eq!(accounting.unattributed.read_bytes, PAGE);
}

/// After a read starts and before it requests its data, btrfs reads checksums and ext4 reads
/// extents.
#[test]
fn metadata_read_during_a_read_does_not_change_the_file_of_its_data() {
    for (dev, ino, meta) in [(40, 1, true), (3, u64::from(DEV), false)] {
        let mut accounting = accounting();
        let metadata = Key { dev, ino };
        let page = |first| Event::Add { key: metadata, first, order: 0 };
        let meta = |sectors| Event::Bio { dev: DEV, sectors, write: false, meta };
        let direct = Event::Direct { key: FILE };
        take(&mut accounting, DB, &[direct, page(0), page(1), meta(8), meta(8), bio(16, false)]);
        let file = accounting.file_of(FILE);
        let read = |accounting: &Accounting| -> u64 {
            let of_file = accounting.counts.iter().filter(|(of, ..)| *of == file);
            of_file.map(|(.., counts)| counts.disk_read_bytes).sum()
        };
        assert_eq!(read(&accounting), 2 * PAGE, "direct");
        take(&mut accounting, DB, &[add(0, 0), page(2), meta(8), bio(8, false)]);
        assert_eq!(read(&accounting), 3 * PAGE, "through the cache");
    }
}

#[test]
fn waits_metadata_and_the_lives_of_threads() {
    let mut accounting = accounting();
    let lookup = Event::Lookup { key: FILE, first: 0, last: 0, last_in_file: Some(0) };
    take(&mut accounting, DB, &[lookup, Event::Throttled { ms: 20 }, Event::Throttled { ms: 0 }]);
    assert_eq!((of(&accounting, "db").throttles, of(&accounting, "db").throttled_ms), (1, 20));
    take(&mut accounting, DB, &[Event::Bio { dev: DEV, sectors: 8, write: true, meta: true }]);
    assert_eq!(accounting.unattributed.metadata_bytes, PAGE);
    let mut name = [0; 16];
    name[..4].copy_from_slice(b"tail");
    let made = Event::NewTask { tid: 300, thread: false, grouped: false };
    take(&mut accounting, DB, &[made, Event::Rename { tid: 300, name }]);
    take(&mut accounting, 300, &[lookup, Event::Exit { tid: 300 }]);
    assert_eq!(of(&accounting, "tail").read_pages, 1);
    take(&mut accounting, DB, &[Event::Split { dev: DEV }]);
    assert_eq!((accounting.splits(DEV), accounting.splits(1)), (1, 0));
}

/// Returns the number of pages of a lookup for which the kernel does not report the end of the
/// file.
fn looked_up_pages(accounting: &mut Accounting, key: Key, first: u64, last: u64) -> u64 {
    let found =
        accounting.take(DB, Event::Lookup { key, first, last, last_in_file: None }).unwrap();
    found.bytes / PAGE
}

#[test]
fn a_number_that_is_given_again_is_another_file() {
    let mut accounting = accounting();
    let freed = |key| [Event::Inactive { key }, Event::Unlinked];
    let lookup = Event::Lookup { key: FILE, first: 0, last: 1, last_in_file: Some(1) };
    accounting.now_ns = 5;
    // XFS inactivates inodes that stay in use as well.
    take(&mut accounting, FLUSHER, &[Event::Inactive { key: FILE }]);
    take(&mut accounting, DB, &[lookup, add(4, 2)]);
    let first = accounting.file_of(FILE);
    accounting.now_ns = 6;
    take(&mut accounting, FLUSHER, &freed(FILE));
    assert!(accounting.file(first).is_removed);
    assert_eq!((accounting.take_ended(), accounting.take_ended()), (vec![(first, 6)], Vec::new()));
    // No file has the number yet, and freeing it twice changes nothing.
    take(&mut accounting, CP, &[Event::Removed { key: FILE }, Event::Unlinked]);
    assert_eq!(accounting.take_ended(), []);
    take(&mut accounting, CP, &[lookup]);
    let second = accounting.file_of(FILE);
    assert!(
        second != first
            && accounting.file(second).reuses_number
            && !accounting.file(second).is_removed
    );
    assert!(!accounting.file(first).reuses_number);
    assert_eq!((accounting.file(first).key, accounting.file(second).key), (FILE, FILE));
    // Unused read-ahead pages of the removed file do not belong to the new one.
    let found =
        accounting.take(CP, Event::Lookup { key: FILE, first: 4, last: 4, last_in_file: Some(4) });
    assert_eq!(found.map(|found| (found.ahead, found.misses)), Some((0, 0)));
    let pages = |file| {
        let of_it = accounting.counts.iter().filter(|(of, ..)| *of == file);
        of_it.map(|(.., counts)| counts.read_pages).sum::<u64>()
    };
    assert_eq!((pages(first), pages(second)), (2, 3));
    // With several possible devices, the known file is still chosen.
    let inode = backing(FILE.ino);
    take(&mut accounting, CP, &[Event::Removed { key: FILE }, Event::Dirty { inode, page: 0 }]);
    let third = accounting.file_of(FILE);
    assert!(third != second && accounting.file(third).key == FILE);
    let counts = of(&accounting, "cp");
    assert_eq!((counts.dirtied_pages, accounting.counts.last().unwrap().2.dirtied_pages), (1, 1));
}

#[test]
fn removed_files_are_kept_apart_up_to_a_bound() {
    let mut accounting = accounting();
    let lookup = Event::Lookup { key: FILE, first: 0, last: 0, last_in_file: Some(0) };
    for _ in 0..files::REMOVED_MAX + 3 {
        assert_eq!(accounting.removed_overflow(), accounting.counts.len() >= files::REMOVED_MAX);
        take(&mut accounting, DB, &[lookup, Event::Removed { key: FILE }]);
    }
    assert_eq!(accounting.counts.len(), files::REMOVED_MAX + 1);
    assert_eq!(of(&accounting, "db").read_pages, files::REMOVED_MAX as u64 + 3);
}

#[test]
fn where_the_kernel_does_not_say_it_the_file_system_knows_the_end() {
    let mut accounting = accounting();
    let known = Key { dev: DEV, ino: 13 };
    // The file has three pages and the reader requests more; beyond the end the size is unknown.
    assert_eq!(looked_up_pages(&mut accounting, known, 0, 31), 3);
    assert_eq!(looked_up_pages(&mut accounting, known, 2, 33), 1);
    assert_eq!(looked_up_pages(&mut accounting, known, 3, 4), 2, "it was longer then");
    assert_eq!(looked_up_pages(&mut accounting, FILE, 0, 31), 32, "its end is not known");
    // The file grows, is truncated and grows without an event.
    take(&mut accounting, DB, &[Event::Add { key: known, first: 4, order: 2 }]);
    assert_eq!(looked_up_pages(&mut accounting, known, 0, 31), 8);
    take(&mut accounting, DB, &[Event::Delete { key: known, first: 4, order: 2 }]);
    assert_eq!(looked_up_pages(&mut accounting, known, 1, 32), 2);
    accounting.start_round();
    assert_eq!(looked_up_pages(&mut accounting, known, 0, 30), 3);
}

#[test]
fn a_write_is_one_however_many_folios_it_goes_through() {
    let mut accounting = accounting();
    let write = |offset, bytes, whole| Event::Write { key: FILE, offset, bytes, whole };
    let first = accounting.take(DB, write(100, 100_000, false)).unwrap();
    assert_eq!((first.offset, first.bytes), (100, 100_000));
    for from in [65_536, 98_304] {
        assert_eq!(accounting.take(DB, write(from, 100_100 - from, false)), None, "the rest");
    }
    // Another write that ends at the same offset, and writes of a file system that reports whole
    // writes.
    assert!(accounting.take(DB, write(98_305, 1_795, false)).is_some());
    assert!(accounting.take(DB, write(8192, 4096, true)).is_some());
    assert!(accounting.take(DB, write(8192, 4096, true)).is_some());
    assert!(accounting.take(CP, write(8192, 4096, false)).is_some());
    let counts = of(&accounting, "db");
    assert_eq!((counts.write_requests, counts.write_bytes), (4, 100_000 + 1_795 + 2 * 4096));
}
