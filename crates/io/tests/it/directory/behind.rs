//! Changes behind the mount, and two mounts of one directory.

use super::privileges::as_other;
use super::{Service, Setting, can_mount};
use crate::common::rig;
use larder_io::front::fuse::{Directory, DirectoryMount, DirectoryOptions};
use std::fs::{self, Permissions};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn zero_ttl() -> Setting {
    Setting { ttl: Duration::ZERO, ..Setting::default() }
}

#[test]
fn a_file_that_others_change_is_read_anew_when_it_is_opened() {
    if !can_mount() {
        return;
    }
    let service = Service::new(zero_ttl());
    fs::write(service.path("f"), "ours").expect("a file");
    assert_eq!(fs::read(service.path("f")).expect("it"), b"ours");
    fs::File::open(service.path("f"))
        .and_then(|file| file.sync_all())
        .expect("the directory works");
    for text in ["theirs", "longer than before", "short"] {
        fs::write(service.behind("f"), text).expect("a file");
        assert_eq!(fs::read_to_string(service.path("f")).expect("it"), text);
    }
    fs::write(service.behind("new"), "new").expect("a file");
    assert_eq!(fs::read(service.path("new")).expect("it"), b"new");
    fs::remove_file(service.behind("f")).expect("it can go");
    assert!(!service.path("f").exists());
    service.end();
}

#[test]
fn a_file_that_others_cut_ends_where_they_cut_it() {
    if !can_mount() {
        return;
    }
    let service = Service::new(zero_ttl());
    fs::write(service.path("f"), vec![1; 100_000]).expect("a file");
    fs::File::open(service.path("f"))
        .and_then(|file| file.sync_all())
        .expect("the directory works");
    let file = fs::OpenOptions::new().write(true).open(service.behind("f")).expect("it");
    file.set_len(5000).expect("shorter");
    assert!(fs::read(service.path("f")).expect("it") == [1; 5000]);
    file.set_len(10_000).expect("longer");
    let bytes = fs::read(service.path("f")).expect("it");
    assert!(bytes[..5000] == [1; 5000] && bytes[5000..] == [0; 5000]);
    service.end();
}

#[test]
fn a_directory_is_mounted_once_and_not_inside_of_itself() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting::default());
    let engine = rig::engine(8 << 20);
    let options = DirectoryOptions::default();
    let refused = Directory::open(service.source.path(), options.clone(), &engine.clock())
        .expect_err("in use");
    assert!(refused.to_string().contains("this process with the directory"), "{refused}");
    let missing = service.behind("missing");
    let refused = Directory::open(&missing, options, &engine.clock()).expect_err("not there");
    assert!(refused.to_string().contains("No such file"), "{refused}");
    fs::create_dir(service.behind("inner")).expect("a directory");
    let overlapping =
        [service.behind("inner"), service.source.path().parent().expect("one").into()];
    for directory in overlapping {
        let refused = Directory::open(&directory, DirectoryOptions::default(), &engine.clock());
        let refused = refused.expect_err("it overlaps").to_string();
        let (source, at) = (service.source.path().display(), service.at.path().display());
        let other = format!("with the directory {source} (mounted at {at}) caches the same data");
        // Other tests cache other directories in the parent of this one.
        let is_above = directory != service.behind("inner");
        assert!(refused.contains(&other) || is_above, "{refused}");
        assert!(refused.contains("two caches of the same data lose changes"), "{refused}");
    }
    let inside = DirectoryMount::check(service.source.path(), &service.behind("inner"));
    assert!(inside.expect_err("it is inside").to_string().contains("inside the directory"));
    DirectoryMount::check(service.source.path(), service.at.path()).expect("it is elsewhere");
    rig::end(&engine);
    service.end();
}

#[test]
fn a_file_that_others_have_made_is_not_given_to_the_user_who_wants_to_make_it() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting { ttl: Duration::from_hours(1), ..Setting::default() });
    let directory = service.path("open");
    fs::create_dir(&directory).expect("room");
    for open in [service.at.path(), &directory] {
        fs::set_permissions(open, Permissions::from_mode(0o777)).expect("ours");
    }
    for (name, mode) in [("secret", 0o600), ("public", 0o666)] {
        let path = directory.join(name);
        assert!(!path.exists(), "the kernel remembers that");
        let behind = service.behind("open").join(name);
        fs::write(&behind, "theirs").expect("room");
        fs::set_permissions(&behind, Permissions::from_mode(mode)).expect("ours");
        let options = || fs::OpenOptions::new().create(true).read(true).append(true).clone();
        let opened = as_other(|| options().open(&path));
        assert_eq!(opened.is_ok(), mode == 0o666, "{name}: {opened:?}");
        let exclusively = as_other(|| options().create_new(true).open(directory.join(name)));
        let refused = exclusively.expect_err("it is there").kind();
        assert_eq!(refused, std::io::ErrorKind::AlreadyExists);
        let found = fs::metadata(&behind).expect("it is there");
        assert_eq!((found.uid(), found.mode() & 0o777), (0, mode), "{name}");
        if let Ok(mut file) = opened {
            let mut text = String::new();
            file.read_to_string(&mut text).expect("text");
            assert_eq!(text, "theirs");
        }
    }
    service.end();
}

#[test]
fn a_directory_that_takes_the_place_of_a_new_one_keeps_its_owner() {
    if !can_mount() {
        return;
    }
    let service = Service::new(zero_ttl());
    let (path, behind) = (service.path("x"), service.behind("x"));
    for open in [service.at.path(), service.source.path()] {
        fs::set_permissions(open, Permissions::from_mode(0o777)).expect("ours");
    }
    let theirs = service.behind("theirs");
    fs::create_dir(&theirs).expect("room");
    fs::write(theirs.join("secret"), "theirs").expect("room");
    let begun = Instant::now();
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                if fs::rename(&theirs, &behind).is_ok() {
                    std::thread::sleep(Duration::from_millis(1));
                    fs::rename(&behind, &theirs).expect("it is there");
                }
            }
        });
        while begun.elapsed() < Duration::from_secs(2) {
            let made = as_other(|| fs::create_dir(&path));
            if made.is_err() || fs::remove_dir(&path).is_err() {
                std::thread::yield_now();
            }
        }
        has_ended.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::metadata(&theirs).expect("it is there").uid(), 0);
    fs::create_dir(service.path("y")).expect("room");
    as_other(|| fs::create_dir(service.path("z"))).expect("all may");
    let owner = |name| fs::metadata(service.behind(name)).expect("it is there").uid();
    assert_eq!((owner("y"), owner("z")), (0, 65_534));
    service.end();
}
