//! Changes by others that the mount is told of: what the kernel believes of names, attributes and
//! contents is called back.

use super::{Service, Setting, can_mount};
use crate::common::rig;
use larder_io::front::fuse::FolderNews;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

/// Everything is believed for so long that only news can change it.
fn believing() -> Setting {
    Setting { ttl: Duration::from_hours(1), shared: true, ..Setting::default() }
}

/// Tells what somebody who watches the folder would.
struct Teller(FolderNews);

impl Teller {
    fn of(service: &Service) -> Self {
        Teller(service.mount.as_ref().expect("a mount").news())
    }

    fn contents(&self, service: &Service, name: &str) {
        let found = fs::metadata(service.behind(name)).expect("it");
        self.0.contents(found.dev(), found.ino());
    }

    fn attributes(&self, service: &Service, name: &str) {
        let found = fs::metadata(service.behind(name)).expect("it");
        self.0.attributes(found.dev(), found.ino());
    }

    fn name(&self, service: &Service, folder: &str, name: &str) {
        let found = fs::metadata(service.behind(folder)).expect("it");
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
    let service = Service::new(believing());
    let news = Teller::of(&service);
    fs::write(service.behind("f"), "four").expect("a file");
    assert_eq!(len(&service, "f"), 4);
    assert!(!service.path("g").exists());
    fs::write(service.behind("f"), "longer").expect("a file");
    fs::rename(service.behind("f"), service.behind("g")).expect("a name");
    assert_eq!(len(&service, "f"), 4, "believed");
    assert!(!service.path("g").exists(), "believed");
    news.contents(&service, "g");
    news.name(&service, "", "f");
    news.name(&service, "", "g");
    rig::eventually("the old name is gone", || !service.path("f").exists());
    rig::eventually("the new one is there", || service.path("g").exists());
    assert_eq!(len(&service, "g"), 6);
    let mode = || fs::metadata(service.path("g")).expect("it").mode() & 0o777;
    let was = mode();
    let other = std::os::unix::fs::PermissionsExt::from_mode(was ^ 0o070);
    fs::set_permissions(service.behind("g"), other).expect("root may");
    assert_eq!(mode(), was, "believed");
    news.attributes(&service, "g");
    rig::eventually("the new mode is seen", || mode() == was ^ 0o070);
    drop(news);
    service.end();
}

#[test]
fn contents_of_a_file_that_is_open_are_read_anew_and_what_is_dirty_stays() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting { lazy: true, ..believing() });
    let news = Teller::of(&service);
    fs::write(service.path("f"), vec![1; 200_000]).expect("a file");
    let file = OpenOptions::new().read(true).write(true).open(service.path("f")).expect("it");
    file.sync_all().expect("the folder works");
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
    news.contents(&service, "f");
    rig::eventually("theirs is seen", || read(10) == 9);
    assert_eq!([read(102_399), read(102_400), read(107_519), read(107_520)], [9, 2, 2, 9]);
    let behind = fs::read(service.behind("f")).expect("it");
    assert!(behind[102_400..107_520] == [2; 5120] && behind[107_520] == 9, "ours is laid over it");
    drop((file, news));
    service.end();
}

#[test]
fn writers_that_never_pause_lose_nothing_to_news() {
    if !can_mount() {
        return;
    }
    let service = Service::new(believing());
    let news = Teller::of(&service);
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
            news.contents(&service, "f");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    assert!(fs::read(service.path("f")).expect("it") == vec![rounds; 400_000]);
    drop(news);
    let source = service.end();
    assert!(fs::read(source.path().join("f")).expect("it") == vec![rounds; 400_000]);
}

#[test]
fn where_news_may_be_missing_nothing_is_believed() {
    if !can_mount() {
        return;
    }
    let service = Service::new(believing());
    fs::write(service.behind("f"), "four").expect("a file");
    assert_eq!(len(&service, "f"), 4);
    fs::write(service.behind("f"), "longer").expect("a file");
    assert_eq!(len(&service, "f"), 6, "nobody tells news");
    let news = Teller::of(&service);
    assert_eq!(len(&service, "f"), 6);
    fs::write(service.behind("f"), "x").expect("a file");
    assert_eq!(len(&service, "f"), 6, "believed");
    let open = File::open(service.path("f")).expect("it");
    news.0.missed();
    news.0.missed();
    rig::eventually("what was believed is forgotten", || len(&service, "f") == 1);
    fs::write(service.behind("f"), "something else").expect("a file");
    assert_eq!(len(&service, "f"), 14, "and not believed any more");
    drop((open, news));
    service.end();
}
