//! The embedding API: reads, views, changes and orders on real files, and a journal that is killed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on is to panic")]

#[path = "../../examples/embed/journal.rs"]
mod journal;

use crate::common::spawn;
use journal::{Journal, JournalError, LOG};
use larder_core::counters::Counter;
use larder_core::mapping::Access;
use larder_core::store::StoreErrorKind;
use larder_io::embed::{CachedVolume, Caches, EmbedError};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

fn file(directory: &Path, length: u64) -> PathBuf {
    let path = directory.join("volume.img");
    std::fs::File::create(&path).unwrap().set_len(length).unwrap();
    path
}

fn open(path: &Path) -> (Caches, CachedVolume) {
    let caches = Caches::new(8 << 20).unwrap();
    let volume = caches.open(path, |_| {}).unwrap();
    (caches, volume)
}

#[test]
fn what_is_written_mapped_and_changed_is_in_the_file_after_closing() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), 32 << 20);
    let (caches, volume) = open(&path);
    let mut handle = volume.handle().unwrap();
    let bytes: Vec<u8> =
        (0..3_000_000_u32).map(|i| i.to_le_bytes()[0] ^ i.to_le_bytes()[1]).collect();
    handle.write(777, &bytes).unwrap();
    let mut again = vec![0; bytes.len()];
    handle.read(777, &mut again).unwrap();
    assert!(again == bytes, "more than the cache takes at a time");
    let view = handle.map(4000, 9000).unwrap();
    assert_eq!((view.len(), view.pieces().count()), (9000, 4));
    let mut change = handle.map_for_change(4096, 8192, Access::Change).unwrap();
    for piece in change.pieces() {
        piece.fill(0xAB);
    }
    change.mark_dirty(4096..12288);
    let mut gathered = Vec::new();
    let slices: Vec<_> = view.io_slices().collect();
    assert_eq!(gathered.write_vectored(&slices).unwrap(), 9000);
    assert!(gathered == bytes[4000 - 777..13000 - 777], "a view does not change");
    handle.unpin(change, None).unwrap();
    handle.read(4096, &mut again[..8192]).unwrap();
    assert!(again[..8192].iter().all(|&byte| byte == 0xAB), "seen after the unpin");
    let mut flat = vec![0; 9000];
    view.copy_to(&mut flat);
    assert!(flat == gathered, "the view is still what it was");
    drop(view);
    let discarded = handle.map_for_change(0, 512, Access::Overwrite).unwrap();
    drop(discarded);
    handle.write_stable(20 << 20, b"stable").unwrap();
    let totals = volume.counters();
    let counted =
        [Counter::MapReads, Counter::PinReads, Counter::PinOverwrites, Counter::FlushRequests];
    assert_eq!(counted.map(|counter| totals.get(counter)), [1, 1, 1, 0]);
    drop(handle);
    caches.close().unwrap();
    let disk = std::fs::read(&path).unwrap();
    assert!(disk[777..4096] == bytes[..4096 - 777] && disk[4096..12288] == [0xAB; 8192]);
    assert!(disk[12288..3_000_777] == bytes[12288 - 777..] && &disk[20 << 20..][..6] == b"stable");
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), 8 << 20);
    let (caches, volume) = open(&path);
    let mut handle = volume.handle().unwrap();
    let end = 8 << 20;
    assert!(matches!(handle.read(end - 1, &mut [0; 2]), Err(EmbedError::Range { .. })));
    assert!(matches!(handle.write(0, &[]), Err(EmbedError::Range { .. })));
    assert!(matches!(handle.map(u64::MAX, 1), Err(EmbedError::Range { .. })));
    assert!(matches!(handle.map(0, (1 << 20) + 1), Err(EmbedError::Range { .. })));
    let unaligned = handle.map_for_change(100, 512, Access::Overwrite).unwrap_err();
    assert!(matches!(unaligned, EmbedError::Unaligned { .. }), "{unaligned}");
    let change = handle.map_for_change(0, 4096, Access::Change).unwrap();
    let busy = handle.map_for_change(0, 4096, Access::Change).unwrap_err();
    assert!(matches!(&busy, EmbedError::Store(e) if e.kind == StoreErrorKind::Busy), "{busy}");
    drop(change);
    let group = volume.group();
    assert!(matches!(volume.order(group, group), Err(EmbedError::Order(_))));
    assert!(matches!(Caches::new(1000), Err(EmbedError::Engine(_))));
    let other = Caches::new(8 << 20).unwrap();
    assert!(matches!(other.open(&path, |_| {}), Err(EmbedError::Open(_))), "one cache per store");
    drop(handle);
    caches.close().unwrap();
}

#[test]
fn threads_take_turns_in_changing_a_counter() {
    let directory = tempfile::tempdir().unwrap();
    let (caches, volume) = open(&file(directory.path(), 8 << 20));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut handle = volume.handle().unwrap();
                for _ in 0..100 {
                    let mut change = handle.map_for_change(4096, 8, Access::Change).unwrap();
                    let piece = change.pieces().next().unwrap();
                    let count = u64::from_le_bytes(piece.try_into().unwrap()) + 1;
                    change.write(4096, &count.to_le_bytes());
                    handle.unpin(change, None).unwrap();
                }
            });
        }
    });
    let mut count = [0; 8];
    volume.handle().unwrap().read(4096, &mut count).unwrap();
    assert_eq!(u64::from_le_bytes(count), 400);
    caches.close().unwrap();
}

/// Environment variable with the file of the child of the test below.
const CHILD: &str = "LARDER_TEST_JOURNAL";

#[test]
fn the_child_that_appends_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let caches = Caches::new(8 << 20).unwrap();
    let quick = |options: &mut larder_core::volume::VolumeOptions| {
        // The index lies before the log: writeback without ordering would write it first.
        for (name, value) in [("first-delay", 0), ("idle-delay", 0), ("age-max", 10)] {
            options.tunables.set(name, value).unwrap();
        }
    };
    let volume = caches.open(Path::new(&path), quick).unwrap();
    let mut journal = Journal::open(&volume).unwrap();
    std::io::stderr().write_all(b"ready\n").unwrap();
    loop {
        let len = usize::try_from(journal.len() % 1500).unwrap();
        journal.append(&vec![7; len]).unwrap();
        std::thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn a_killed_journal_has_every_record_that_its_index_has() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), 64 * LOG);
    let (mut before, mut grown) = (0, 0);
    for round in 0..8 {
        let starting = spawn::starting();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "embed::the_child_that_appends_until_it_is_killed"])
            .env(CHILD, &path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        drop(starting);
        // Waits until the index on disk has grown, and for a time that differs from round to round.
        let disk = std::fs::File::open(&path).unwrap();
        let mut entry = [0; 8];
        while entry == [0; 8] {
            assert!(child.try_wait().unwrap().is_none(), "the child ended");
            std::thread::sleep(Duration::from_millis(5 + round));
            disk.read_exact_at(&mut entry, before * 8).unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let (caches, volume) = open(&path);
        let mut journal = Journal::open(&volume).unwrap_or_else(|error| panic!("{error}"));
        journal.flush().unwrap();
        grown += journal.len() - before;
        before = journal.len();
        drop(journal);
        caches.close().unwrap();
    }
    assert!(grown >= 8, "nothing was shown");
    // The check can fail: without its last record the journal is refused.
    let end = LOG + 24;
    let disk = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    disk.write_all_at(&[0xFF], end).unwrap();
    let (caches, volume) = open(&path);
    let refused = Journal::open(&volume).unwrap_err();
    assert!(matches!(refused, JournalError::Broken { .. }), "{refused}");
    caches.close().unwrap();
}
