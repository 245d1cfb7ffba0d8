//! The BPF programs on the running kernel, if it permits them.

use super::*;
use larder_testing::skip;
use std::fs::File as Opened;
use std::os::unix::fs::{FileExt, MetadataExt};

/// Starts the programs; returns `None` and reports a skip if this machine does not support them.
fn started(file: &Opened, tells_all: bool) -> Option<(KernelProbe, Key)> {
    let found = file.metadata().unwrap();
    let dev = rustix::fs::major(found.dev()) << 20 | rustix::fs::minor(found.dev());
    match KernelProbe::start(1 << 20, (Some(dev), Some(found.ino())), tells_all) {
        Ok(inside) => Some((inside, Key { dev, ino: found.ino() })),
        Err(why) => {
            assert!(!why.contains("refuses the program"), "{why}");
            skip(why);
            None
        }
    }
}

/// Creates a file whose reads cause look-ups, unlike files on tmpfs.
fn file(pages: usize) -> Option<Opened> {
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
fn told(inside: &mut KernelProbe, of: Key) -> Vec<(u32, Skipped, Event)> {
    let mut all = Vec::new();
    inside.records(&mut |_, record| all.push(decode(record).unwrap()));
    all.retain(|(_, _, event)| match event {
        Event::Add { key, .. } | Event::Lookup { key, .. } => *key == of,
        _ => panic!("{event:?}"),
    });
    all
}

fn page(file: &Opened, number: u64) {
    file.read_exact_at(&mut [0; 4096], number * 4096).unwrap();
}

fn own_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

#[test]
fn requests_end_where_the_file_ends() {
    let Some(file) = file(5) else { return };
    let Some((mut inside, key)) = started(&file, true) else { return };
    let mut room = vec![0; 32 * 4096];
    // Requests that fill the buffer, start at the third page, end inside the file, and reach the
    // end of a file with a partial last page.
    for (offset, bytes) in [(0, 5), (2, 3)] {
        assert_eq!(file.read_at(&mut room, offset * 4096).unwrap(), bytes * 4096);
    }
    file.read_exact_at(&mut room[..8192], 4096).unwrap();
    file.set_len(4 * 4096 + 1).unwrap();
    file.read_at(&mut room, 3 * 4096).unwrap();
    file.set_len(4 * 4096).unwrap();
    file.read_at(&mut room, 3 * 4096).unwrap();
    let look_ups = told(&mut inside, key).into_iter().filter_map(|(.., event)| match event {
        Event::Lookup { first, held, .. } => Some((first, held.unwrap())),
        _ => None,
    });
    let look_ups: Vec<_> = look_ups.collect();
    assert_eq!(look_ups, [(0, 4), (2, 4), (1, 2), (3, 4), (3, 3)]);
}

#[test]
fn look_ups_are_told_until_they_may_be_counted_and_again_when_a_page_comes() {
    let Some(file) = file(20) else { return };
    let Some((mut inside, key)) = started(&file, false) else { return };
    page(&file, 3);
    let thread = own_thread();
    let look_up = |page| Event::Lookup { key, first: page, last: page, held: Some(page) };
    assert_eq!(told(&mut inside, key), [(thread, Skipped::default(), look_up(3))]);
    inside.met(thread, key, (7, 8), REQUESTS_MIN - 1);
    assert!(inside.by_thread.is_empty(), "not worth it yet");
    inside.met(thread, key, (7, 8), REQUESTS_MIN);
    assert_eq!([inside.has_begun(), inside.has_begun()], [true, false]);
    page(&file, 4);
    assert_eq!(told(&mut inside, key).len(), 1, "a page may be fresh");
    inside.settle(now_ns(), |_| false);
    page(&file, 5);
    assert_eq!(told(&mut inside, key).len(), 1, "a page is fresh");
    inside.settle(now_ns(), |_| true);
    for number in 6..16 {
        page(&file, number);
    }
    assert_eq!(told(&mut inside, key), []);
    let mut counted = Vec::new();
    inside.take(|file, process, of| counted.push((file, process, of)));
    assert_eq!(counted, [(7, 8, Counted { requests: 10, pages: 10, in_order: 10 })]);
    // After a page addition, the next record reports the look-ups that were only counted.
    file.write_all_at(&[1; 4096], 20 * 4096).unwrap();
    page(&file, 20);
    let all = told(&mut inside, key);
    let (_, skipped, came) = all[0];
    assert_eq!(came, Event::Add { key, first: 20, order: 0 });
    let (first, last) = (15, 15);
    assert_eq!(skipped, Skipped { count: 10, key, first, last, in_order: 12, pages: 1 });
    assert_eq!((all[1].1.count, all[1].2), (0, look_up(20)));
    inside.ended(thread, |_, _, _| panic!("all was taken"));
    assert!(inside.by_file.is_empty() && inside.by_thread.is_empty());
    assert_eq!((inside.free_pairs.len(), inside.free_files.len()), (1, 1));
    assert_eq!(inside.lost(), 0);
}

#[test]
fn where_more_than_numbers_is_wanted_each_is_told() {
    let Some(file) = file(4) else { return };
    let Some((mut inside, key)) = started(&file, true) else { return };
    inside.met(own_thread(), key, (7, 8), u64::MAX);
    for _ in 0..100 {
        page(&file, 1);
    }
    assert_eq!(told(&mut inside, key).len(), 100);
}

#[test]
fn what_finds_no_room_is_counted_as_lost() {
    let Some(file) = file(4) else { return };
    let Some((mut inside, key)) = started(&file, true) else { return };
    let room = (1 << 20) / (u64::try_from(program::RECORD_BYTES).unwrap() + 8);
    for _ in 0..room + 100 {
        page(&file, 1);
    }
    let kept = u64::try_from(told(&mut inside, key).len()).unwrap();
    assert!(kept + inside.lost() >= room + 100, "{kept} and {}", inside.lost());
    assert!(kept <= room && inside.lost() >= 99, "{kept} and {}", inside.lost());
    page(&file, 2);
    assert_eq!(told(&mut inside, key).len(), 1, "there is room again");
}

#[test]
fn what_is_counted_after_a_removal_is_the_next_files() {
    let Some(file) = file(4) else { return };
    let Some((mut inside, key)) = started(&file, false) else { return };
    page(&file, 1);
    inside.met(own_thread(), key, (7, 8), REQUESTS_MIN);
    inside.settle(now_ns(), |_| true);
    (0..5).for_each(|_| page(&file, 1));
    let slot = inside.slot(key).unwrap();
    let mut counted = Vec::new();
    inside.removed(slot, 9, |file, process, of| counted.push((file, process, of.pages)));
    page(&file, 2);
    inside.take(|file, process, of| counted.push((file, process, of.pages)));
    assert_eq!(counted, [(7, 8, 5), (9, 8, 1)]);
    inside.settle(now_ns(), |file| {
        assert_eq!(file, 9);
        true
    });
}
