//! Changes by others that are reported to the mount: it invalidates names, attributes and contents
//! that the kernel has cached. Without reports, files are checked when they are opened, and read
//! again after the TTL.

use super::{MIB, Service, Setting, can_mount};
use crate::common::rig;
use larder_io::front::fuse::{ChangeEvents, FileOptions, KernelPages};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

/// A TTL that is so long that only a report invalidates cached data.
fn long_ttl() -> Setting {
    Setting { ttl: Duration::from_hours(1), shared: true, ..Setting::default() }
}

/// Maximum age of data in tests that wait for it.
const DATA_AGE: Duration = Duration::from_millis(50);

/// Data may be this old; no change is reported.
fn short_ttl() -> Setting {
    Setting { ttl: DATA_AGE, ..long_ttl() }
}

/// Overwrites a file in SOURCE, with a different time from all changes before.
fn overwrite(service: &Service, name: &str, bytes: &[u8]) {
    std::thread::sleep(DATA_AGE);
    let behind = OpenOptions::new().write(true).open(service.behind(name)).expect("it");
    behind.write_all_at(bytes, 0).expect("room");
}

fn byte_at(file: &File, at: u64) -> u8 {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte");
    byte[0]
}

/// Reports changes as a watcher of the directory would.
struct ChangeReporter(ChangeEvents);

impl ChangeReporter {
    fn of(service: &Service) -> Self {
        ChangeReporter(service.mount.as_ref().expect("a mount").news())
    }

    fn contents(&self, service: &Service, name: &str) {
        let found = fs::metadata(service.behind(name)).expect("it");
        self.0.contents(found.dev(), found.ino());
    }

    fn attributes(&self, service: &Service, name: &str) {
        let found = fs::metadata(service.behind(name)).expect("it");
        self.0.attributes(found.dev(), found.ino());
    }

    fn name(&self, service: &Service, directory: &str, name: &str) {
        let found = fs::metadata(service.behind(directory)).expect("it");
        self.0.name(found.dev(), found.ino(), CString::new(name).expect("no zero in it"));
    }
}

fn len(service: &Service, name: &str) -> u64 {
    fs::metadata(service.path(name)).expect("it").len()
}

#[test]
fn names_and_attributes_are_believed_until_it_is_told_that_they_changed() {
    if !can_mount() {
        return;
    }
    let service = Service::new(long_ttl());
    let reporter = ChangeReporter::of(&service);
    fs::write(service.behind("f"), "four").expect("a file");
    assert_eq!(len(&service, "f"), 4);
    assert!(!service.path("g").exists());
    fs::write(service.behind("f"), "longer").expect("a file");
    fs::rename(service.behind("f"), service.behind("g")).expect("a name");
    assert_eq!(len(&service, "f"), 4, "believed");
    assert!(!service.path("g").exists(), "believed");
    reporter.contents(&service, "g");
    reporter.name(&service, "", "f");
    reporter.name(&service, "", "g");
    rig::eventually("the old name is gone", || !service.path("f").exists());
    rig::eventually("the new one is there", || service.path("g").exists());
    assert_eq!(len(&service, "g"), 6);
    let mode = || fs::metadata(service.path("g")).expect("it").mode() & 0o777;
    let original_mode = mode();
    let other = std::os::unix::fs::PermissionsExt::from_mode(original_mode ^ 0o070);
    fs::set_permissions(service.behind("g"), other).expect("root may");
    assert_eq!(mode(), original_mode, "believed");
    reporter.attributes(&service, "g");
    rig::eventually("the new mode is seen", || mode() == original_mode ^ 0o070);
    drop(reporter);
    service.end();
}

#[test]
fn contents_of_a_file_that_is_open_are_read_anew_and_what_is_dirty_stays() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting { lazy: true, ..long_ttl() });
    let reporter = ChangeReporter::of(&service);
    fs::write(service.path("f"), vec![1; 200_000]).expect("a file");
    let file = OpenOptions::new().read(true).write(true).open(service.path("f")).expect("it");
    file.sync_all().expect("the directory works");
    file.write_all_at(&[2; 5120], 102_400).expect("room");
    fs::OpenOptions::new()
        .write(true)
        .open(service.behind("f"))
        .and_then(|behind| behind.write_all_at(&[9; 200_000], 0))
        .expect("room");
    let read = |at: u64| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("a byte");
        byte[0]
    };
    assert_eq!(read(10), 1, "cached");
    reporter.contents(&service, "f");
    rig::eventually("theirs is seen", || read(10) == 9);
    assert_eq!([read(102_399), read(102_400), read(107_519), read(107_520)], [9, 2, 2, 9]);
    let behind = fs::read(service.behind("f")).expect("it");
    assert!(behind[102_400..107_520] == [2; 5120] && behind[107_520] == 9, "ours is laid over it");
    drop((file, reporter));
    service.end();
}

#[test]
fn writers_that_never_pause_lose_nothing_to_news() {
    if !can_mount() {
        return;
    }
    let service = Service::new(long_ttl());
    let reporter = ChangeReporter::of(&service);
    fs::write(service.path("f"), vec![0; 400_000]).expect("a file");
    let rounds = 150_u8;
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let file = OpenOptions::new().read(true).write(true).open(service.path("f"));
            let file = file.expect("it");
            scope.spawn(move || {
                let mut bytes = vec![0; 10_000];
                for round in 1..=rounds {
                    for piece in 0..10 {
                        let at = piece * 40_000 + thread * 10_000;
                        file.write_all_at(&vec![round; 10_000], at).expect("room");
                        file.read_exact_at(&mut bytes, at).expect("bytes");
                        assert!(bytes.iter().all(|&byte| byte == round), "at {at} of {round}");
                    }
                }
            });
        }
        for _ in 0..300 {
            reporter.contents(&service, "f");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    assert!(fs::read(service.path("f")).expect("it") == vec![rounds; 400_000]);
    drop(reporter);
    let source = service.end();
    assert!(fs::read(source.path().join("f")).expect("it") == vec![rounds; 400_000]);
}

#[test]
fn where_news_may_be_missing_nothing_is_believed() {
    if !can_mount() {
        return;
    }
    let service = Service::new(long_ttl());
    fs::write(service.behind("f"), "four").expect("a file");
    assert_eq!(len(&service, "f"), 4);
    fs::write(service.behind("f"), "longer").expect("a file");
    assert_eq!(len(&service, "f"), 6, "no change is reported");
    let reporter = ChangeReporter::of(&service);
    assert_eq!(len(&service, "f"), 6);
    fs::write(service.behind("f"), "x").expect("a file");
    assert_eq!(len(&service, "f"), 6, "believed");
    let open = File::open(service.path("f")).expect("it");
    reporter.0.missed();
    reporter.0.missed();
    rig::eventually("what was believed is forgotten", || len(&service, "f") == 1);
    fs::write(service.behind("f"), "something else").expect("a file");
    assert_eq!(len(&service, "f"), 14, "and not believed any more");
    drop((open, reporter));
    service.end();
}

#[test]
fn an_unreported_change_is_seen_when_the_file_is_opened_next() {
    if !can_mount() {
        return;
    }
    let service = Service::new(long_ttl());
    fs::write(service.path("f"), "ours").expect("a file");
    let open = File::open(service.path("f")).expect("it");
    open.sync_all().expect("the directory works");
    overwrite(&service, "f", b"new");
    assert_eq!(byte_at(&open, 0), b'o', "the data is younger than an hour");
    assert_eq!(fs::read(service.path("f")).expect("it"), b"news");
    assert_eq!(byte_at(&open, 0), b'n', "the old data has left the cache");
    overwrite(&service, "f", b"a longer text");
    let again = File::open(service.path("f")).expect("it");
    assert_eq!(again.metadata().expect("it is open").len(), 13);
    drop((open, again));
    service.end();
}

#[test]
fn an_unreported_change_of_an_open_file_is_seen_after_the_ttl_and_what_is_dirty_stays() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting { lazy: true, ..short_ttl() });
    fs::write(service.path("f"), vec![1; 200_000]).expect("a file");
    let file = OpenOptions::new().read(true).write(true).open(service.path("f")).expect("it");
    file.sync_all().expect("the directory works");
    file.write_all_at(&[2; 5120], 102_400).expect("room");
    overwrite(&service, "f", &[9; 200_000]);
    std::thread::sleep(DATA_AGE);
    let places = [10, 102_399, 102_400, 107_519, 107_520];
    assert_eq!(places.map(|at| byte_at(&file, at)), [9, 9, 2, 2, 9]);
    overwrite(&service, "f", &[8; 300_000]);
    std::thread::sleep(DATA_AGE);
    assert_eq!(byte_at(&file, 299_999), 8, "a read behind the end that was known");
    drop(file);
    service.end();
}

#[test]
fn writes_of_the_mount_itself_are_not_taken_for_unreported_changes() {
    if !can_mount() {
        return;
    }
    let service = Service::new(short_ttl());
    fs::write(service.path("f"), vec![1; 1 << 20]).expect("a file");
    let file = OpenOptions::new().read(true).write(true).open(service.path("f")).expect("it");
    let resident = || {
        let files = service.mount.as_ref().expect("a mount").files();
        files.iter().map(|file| file.resident_bytes).sum::<u64>()
    };
    assert_eq!(resident(), MIB);
    for round in 2..6 {
        file.write_all_at(&[round; 5000], 100_000).expect("room");
        file.sync_all().expect("the directory works");
        std::thread::sleep(DATA_AGE);
        assert_eq!(byte_at(&file, 102_000), round);
        assert_eq!(resident(), MIB, "nothing was dropped");
    }
    drop(file);
    service.end();
}

#[test]
fn an_unreported_change_that_a_read_finds_takes_the_pages_of_the_kernel_too() {
    if !can_mount() {
        return;
    }
    let rest = FileOptions { kernel_pages: KernelPages::Open, ..FileOptions::default() };
    let service = Service::new(Setting { rest, ..short_ttl() });
    fs::write(service.behind("f"), vec![1; 4 << 20]).expect("a file");
    let file = File::open(service.path("f")).expect("it");
    assert_eq!(byte_at(&file, 10), 1);
    overwrite(&service, "f", &vec![9; 4 << 20]);
    std::thread::sleep(DATA_AGE);
    assert_eq!(byte_at(&file, 3 * MIB), 9, "the kernel has no page of this");
    rig::eventually("the kernel reads its page again", || byte_at(&file, 10) == 9);
    drop(file);
    service.end();
}

#[test]
fn what_others_append_is_read_after_reads_in_order_up_to_the_end() {
    const LEN: u64 = MIB;
    if !can_mount() {
        return;
    }
    // Each read is checked first.
    let service = Service::new(Setting { ttl: Duration::ZERO, ..long_ttl() });
    fs::write(service.behind("f"), [1; 1 << 20]).expect("a file");
    let file = File::open(service.path("f")).expect("it");
    let mut bytes = [0; 4096];
    for at in (0..LEN).step_by(4096) {
        file.read_exact_at(&mut bytes, at).expect("data");
        assert!(bytes == [1; 4096], "at {at}");
    }
    // Time in which data beyond the end could be read ahead.
    std::thread::sleep(DATA_AGE);
    let mut behind = OpenOptions::new().append(true).open(service.behind("f")).expect("it");
    behind.write_all(&[2; 1 << 16]).expect("room");
    for at in (LEN..LEN + (1 << 16)).step_by(4096) {
        file.read_exact_at(&mut bytes, at).expect("data");
        assert!(bytes == [2; 4096], "at {at}");
    }
    drop(file);
    service.end();
}
