//! The BPF programs on the running kernel, if it permits them.

use super::*;
use larder_testing::skip;
use std::fs::File as StdFile;
use std::os::unix::fs::{FileExt, MetadataExt};

/// Starts the programs; returns `None` and reports a skip if this machine does not support them.
fn start_probe(file: &StdFile, reports_all: bool) -> Option<(KernelProbe, Key)> {
    let found = file.metadata().unwrap();
    let dev = rustix::fs::major(found.dev()) << 20 | rustix::fs::minor(found.dev());
    match KernelProbe::start(1 << 20, (Some(dev), Some(found.ino())), reports_all) {
        Ok(probe) => Some((probe, Key { dev, ino: found.ino() })),
        Err(reason) => {
            assert!(!reason.contains("refuses the program"), "{reason}");
            skip(reason);
            None
        }
    }
}

/// Creates a file whose reads cause lookups, unlike files on tmpfs.
fn file(pages: usize) -> Option<StdFile> {
    let path = std::env::current_dir().unwrap();
    if crate::mounts::Mount::of(&path).is_ok_and(|mount| mount.is_memory()) {
        skip(format_args!("{} is on a file system in memory", path.display()));
        return None;
    }
    let file = tempfile::tempfile_in(path).unwrap();
    file.write_all_at(&vec![1; pages * 4096], 0).unwrap();
    Some(file)
}

/// Returns the records of one file; the programs also report page additions of other files on the
/// device.
fn records_of(probe: &mut KernelProbe, of: Key) -> Vec<(u32, UnreportedLookups, Event)> {
    let mut all = Vec::new();
    probe.records(&mut |_, record| all.push(decode(record).unwrap()));
    all.retain(|(_, _, event)| match event {
        Event::Add { key, .. } | Event::Lookup { key, .. } => *key == of,
        _ => panic!("{event:?}"),
    });
    all
}

fn page(file: &StdFile, number: u64) {
    file.read_exact_at(&mut [0; 4096], number * 4096).unwrap();
}

fn own_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

#[test]
fn requests_end_where_the_file_ends() {
    let Some(file) = file(5) else { return };
    let Some((mut probe, key)) = start_probe(&file, true) else { return };
    let mut buffer = vec![0; 32 * 4096];
    // Requests that fill the buffer, start at the third page, end inside the file, and reach the
    // end of a file with a partial last page.
    for (offset, bytes) in [(0, 5), (2, 3)] {
        assert_eq!(file.read_at(&mut buffer, offset * 4096).unwrap(), bytes * 4096);
    }
    file.read_exact_at(&mut buffer[..8192], 4096).unwrap();
    file.set_len(4 * 4096 + 1).unwrap();
    file.read_at(&mut buffer, 3 * 4096).unwrap();
    file.set_len(4 * 4096).unwrap();
    file.read_at(&mut buffer, 3 * 4096).unwrap();
    let look_ups = records_of(&mut probe, key).into_iter().filter_map(|(.., event)| match event {
        Event::Lookup { first, last_in_file, .. } => Some((first, last_in_file.unwrap())),
        _ => None,
    });
    let look_ups: Vec<_> = look_ups.collect();
    assert_eq!(look_ups, [(0, 4), (2, 4), (1, 2), (3, 4), (3, 3)]);
}

#[test]
fn look_ups_are_told_until_they_may_be_counted_and_again_when_a_page_comes() {
    let Some(file) = file(20) else { return };
    let Some((mut probe, key)) = start_probe(&file, false) else { return };
    page(&file, 3);
    let thread = own_thread();
    let look_up = |page| Event::Lookup { key, first: page, last: page, last_in_file: Some(page) };
    assert_eq!(records_of(&mut probe, key), [(thread, UnreportedLookups::default(), look_up(3))]);
    probe.consider_counter(thread, key, (7, 8), REQUESTS_MIN - 1);
    assert!(probe.by_thread.is_empty(), "not worth it yet");
    probe.consider_counter(thread, key, (7, 8), REQUESTS_MIN);
    assert_eq!([probe.has_new_files(), probe.has_new_files()], [true, false]);
    page(&file, 4);
    assert_eq!(records_of(&mut probe, key).len(), 1, "a page may be fresh");
    probe.settle(now_ns(), |_| false);
    page(&file, 5);
    assert_eq!(records_of(&mut probe, key).len(), 1, "a page is fresh");
    probe.settle(now_ns(), |_| true);
    for number in 6..16 {
        page(&file, number);
    }
    assert_eq!(records_of(&mut probe, key), []);
    assert_eq!(probe.take(), [(7, 8, KernelCounts { requests: 10, pages: 10, in_order: 10 })]);
    // After a page addition, the next record reports the lookups that were only counted.
    file.write_all_at(&[1; 4096], 20 * 4096).unwrap();
    page(&file, 20);
    let all = records_of(&mut probe, key);
    let (_, skipped, page_added) = all[0];
    assert_eq!(page_added, Event::Add { key, first: 20, order: 0 });
    let (first, last) = (15, 15);
    assert_eq!(skipped, UnreportedLookups { count: 10, key, first, last, in_order: 12, pages: 1 });
    assert_eq!((all[1].1.count, all[1].2), (0, look_up(20)));
    assert_eq!(probe.ended(thread), [], "all was taken");
    assert!(probe.by_file.is_empty() && probe.by_thread.is_empty());
    assert_eq!((probe.pair_slots.free.len(), probe.file_slots.free.len()), (1, 1));
    assert_eq!(probe.lost(), 0);
}

#[test]
fn where_more_than_numbers_is_wanted_each_is_told() {
    let Some(file) = file(4) else { return };
    let Some((mut probe, key)) = start_probe(&file, true) else { return };
    probe.consider_counter(own_thread(), key, (7, 8), u64::MAX);
    for _ in 0..100 {
        page(&file, 1);
    }
    assert_eq!(records_of(&mut probe, key).len(), 100);
}

#[test]
fn what_finds_no_room_is_counted_as_lost() {
    let Some(file) = file(4) else { return };
    let Some((mut probe, key)) = start_probe(&file, true) else { return };
    let capacity = (1 << 20) / (u64::try_from(program::RECORD_BYTES).unwrap() + 8);
    for _ in 0..capacity + 100 {
        page(&file, 1);
    }
    let kept = u64::try_from(records_of(&mut probe, key).len()).unwrap();
    assert!(kept + probe.lost() >= capacity + 100, "{kept} and {}", probe.lost());
    assert!(kept <= capacity && probe.lost() >= 99, "{kept} and {}", probe.lost());
    page(&file, 2);
    assert_eq!(records_of(&mut probe, key).len(), 1, "there is room again");
}

#[test]
fn what_is_counted_after_a_removal_is_the_next_files() {
    let Some(file) = file(4) else { return };
    let Some((mut probe, key)) = start_probe(&file, false) else { return };
    page(&file, 1);
    probe.consider_counter(own_thread(), key, (7, 8), REQUESTS_MIN);
    probe.settle(now_ns(), |_| true);
    (0..5).for_each(|_| page(&file, 1));
    let slot = probe.slot(key).unwrap();
    let pages = |all: Vec<Counted>| -> Vec<_> {
        all.into_iter().map(|(file, process, of)| (file, process, of.pages)).collect()
    };
    assert_eq!(pages(probe.removed(slot, 9)), [(7, 8, 5)]);
    page(&file, 2);
    assert_eq!(pages(probe.take()), [(9, 8, 1)]);
    probe.settle(now_ns(), |file| {
        assert_eq!(file, 9);
        true
    });
}
