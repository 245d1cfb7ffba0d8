//! Claims of several processes, each simulated by its own registry over one runtime directory,
//! without mounts and devices. Tests with those: `tests/it/one_cache` of the program.

use super::record::Record;
use super::*;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

struct Setup {
    directory: TempDir,
    one: Arc<Registry>,
    other: Arc<Registry>,
}

impl Setup {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        for name in ["run", "data", "data/sub", "elsewhere"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        for name in ["data/a.img", "data/sub/b.img", "elsewhere/c.img"] {
            fs::write(directory.path().join(name), [1; 4096]).unwrap();
        }
        let run = directory.path().join("run");
        Setup { one: Registry::within(&run), other: Registry::within(&run), directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn claim(&self, registry: &Arc<Registry>, name: &str) -> Result<Claim, ClaimError> {
        let path = self.path(name);
        Claim::of_open_in(registry, File::open(&path).unwrap(), &path, false)
    }

    fn claims(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("run/larder/claims")).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.file_name().unwrap() != "lock").collect()
    }
}

#[test]
fn the_same_data_is_claimed_once_whoever_asks_and_in_whatever_order() {
    let setup = Setup::new();
    symlink(setup.path("data/sub"), setup.path("link")).unwrap();
    let same = [
        ("data/a.img", "data/a.img"),
        ("data/a.img", "data"),
        ("data/sub/b.img", "data"),
        ("data/sub", "data"),
        ("data/sub/b.img", "link"),
        ("link/b.img", "data/sub"),
        ("link", "data"),
    ];
    for (one, other) in same.into_iter().flat_map(|(one, other)| [(one, other), (other, one)]) {
        for second in [&setup.one, &setup.other] {
            let first = setup.claim(&setup.one, one).unwrap();
            let refused = setup.claim(second, other).unwrap_err();
            assert!(matches!(refused.reason, ClaimRefusal::Held(..)), "{one}, {other}: {refused}");
            let message = refused.to_string();
            let name = setup.path(one).display().to_string();
            assert!(message.contains(&name) && message.contains("this process"), "{message}");
            drop(first);
            setup.claim(second, other).unwrap();
        }
    }
    assert_eq!(setup.claims(), Vec::<PathBuf>::new(), "nothing is left");
}

#[test]
fn different_data_is_claimed_side_by_side() {
    let setup = Setup::new();
    let held = ["data/a.img", "data/sub", "elsewhere/c.img"];
    let held = held.map(|name| setup.claim(&setup.one, name).unwrap());
    fs::create_dir(setup.path("data/subway")).unwrap();
    drop(setup.claim(&setup.other, "data/subway").unwrap());
    assert_eq!(setup.claims().len(), held.len());
}

#[test]
fn readers_share_and_a_writer_does_not() {
    let setup = Setup::new();
    let open = |registry: &Arc<Registry>, name: &str, read_only| {
        let path = setup.path(name);
        Claim::of_open_in(registry, File::open(&path).unwrap(), &path, read_only)
    };
    let readers = [
        open(&setup.one, "data/a.img", true).unwrap(),
        open(&setup.other, "data/a.img", true).unwrap(),
        open(&setup.other, "data", true).unwrap(),
    ];
    assert!(open(&setup.other, "data/a.img", false).is_err());
    drop(readers);
    let _writer = open(&setup.other, "data", false).unwrap();
    assert!(open(&setup.one, "data/a.img", true).is_err());
}

#[test]
fn the_claim_of_a_process_that_is_gone_refuses_nothing_and_is_removed() {
    let setup = Setup::new();
    drop(setup.claim(&setup.one, "elsewhere").unwrap());
    let path = setup.path("run/larder/claims/4711-1");
    let machine = LocalMachine::read().unwrap();
    let source = Source::Open(File::open(setup.path("data")).unwrap().into());
    let parts = source.trace(&machine).unwrap().footprint.parts;
    let record = Record { pid: 4711, data: "the directory".into(), parts, ..Record::default() };
    fs::write(&path, record.encode()).unwrap();
    let locked = File::open(&path).unwrap();
    locked.lock().unwrap();
    let refused = setup.claim(&setup.one, "data/a.img").unwrap_err().to_string();
    assert!(
        refused.contains("process 4711") && refused.contains("with the directory"),
        "{refused}"
    );
    drop(locked);
    let unfinished = setup.path("run/larder/claims/.4711-2");
    fs::write(&unfinished, "").unwrap();
    let _claim = setup.claim(&setup.one, "data/a.img").unwrap();
    assert!(!path.exists() && !unfinished.exists(), "the files of a process that is gone");
}

/// The kernel reuses the number of an unmounted file system for the next one, while the process
/// that had mounted the former may still run.
#[test]
fn a_mount_with_the_number_of_one_that_is_gone_is_claimed_all_the_same() {
    let setup = Setup::new();
    let mount = |registry: &Arc<Registry>, at: &str| {
        let source = Source::Mount(u64::MAX, setup.path(at));
        registry.acquire(source, "the files", false, Duration::ZERO)
    };
    let _gone = mount(&setup.one, "data").unwrap();
    let _new = mount(&setup.other, "elsewhere").unwrap();
    let _newest = mount(&setup.other, "data/sub").unwrap();
    assert_eq!(setup.claims().len(), 3);
}

#[test]
fn a_claim_that_cannot_be_published_refuses_the_cache() {
    let setup = Setup::new();
    drop(setup.claim(&setup.one, "elsewhere").unwrap());
    let claims = setup.path("run/larder/claims");
    for number in 0..1000 {
        fs::create_dir(claims.join(format!(".{}-{number}", std::process::id()))).unwrap();
    }
    let refused = setup.claim(&setup.one, "data").unwrap_err();
    assert!(matches!(refused.reason, ClaimRefusal::Publish(..)), "{refused}");
}

#[test]
fn things_that_are_no_claims_do_no_harm() {
    let setup = Setup::new();
    drop(setup.claim(&setup.one, "elsewhere").unwrap());
    let claims = setup.path("run/larder/claims");
    fs::create_dir(claims.join("directory")).unwrap();
    symlink(setup.path("data/a.img"), claims.join("link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        claims.join("fifo"),
        FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let garbage = claims.join("garbage");
    fs::write(&garbage, [0xff; 1000]).unwrap();
    let locked = File::open(&garbage).unwrap();
    locked.lock().unwrap();
    let _claim = setup.claim(&setup.one, "data").unwrap();
    assert!(setup.claim(&setup.other, "data").is_err());
}

#[test]
fn a_file_with_another_name_in_a_claimed_directory_is_found() {
    let setup = Setup::new();
    fs::hard_link(setup.path("elsewhere/c.img"), setup.path("data/sub/also")).unwrap();
    for (one, other) in [("data", "elsewhere/c.img"), ("elsewhere/c.img", "data")] {
        let _first = setup.claim(&setup.one, one).unwrap();
        let refused = setup.claim(&setup.other, other).unwrap_err();
        assert!(matches!(refused.reason, ClaimRefusal::Linked(..)), "{refused}");
    }
    fs::rename(setup.path("data/sub/also"), setup.path("elsewhere/also")).unwrap();
    for (one, other) in [("data", "elsewhere/c.img"), ("elsewhere/c.img", "data")] {
        let _first = setup.claim(&setup.one, one).unwrap();
        setup.claim(&setup.other, other).unwrap();
    }
}

#[test]
fn a_file_that_comes_into_a_claimed_directory_is_known_by_its_inode() {
    let setup = Setup::new();
    let tree = setup.claim(&setup.one, "data").unwrap();
    let image = setup.claim(&setup.other, "elsewhere/c.img").unwrap();
    fs::rename(setup.path("elsewhere/c.img"), setup.path("data/c.img")).unwrap();
    let inode = |name: &str| {
        let found = rustix::fs::stat(setup.path(name)).unwrap();
        (found.st_dev, found.st_ino)
    };
    let (device, number) = inode("data/c.img");
    let holder = tree.other_holder(device, number).expect("another registry has it");
    assert!(holder.data.contains("elsewhere/c.img"), "{holder}");
    let (device, other) = inode("data/a.img");
    assert_eq!(tree.other_holder(device, other), None);
    drop(image);
    assert_eq!(tree.other_holder(device, number), None);
}

#[test]
fn a_claimed_directory_that_comes_into_another_one_is_known_by_its_inode() {
    let setup = Setup::new();
    let tree = setup.claim(&setup.one, "data").unwrap();
    for registry in [&setup.one, &setup.other] {
        let inner = setup.claim(registry, "elsewhere").unwrap();
        fs::rename(setup.path("elsewhere"), setup.path("data/moved")).unwrap();
        let holder_of = |claim: &Claim, name: &str| {
            let found = rustix::fs::stat(setup.path(name)).unwrap();
            claim.other_holder(found.st_dev, found.st_ino).map(|holder| holder.data)
        };
        let holder = holder_of(&tree, "data/moved").expect("it is claimed itself");
        assert!(holder.contains("elsewhere"), "{holder}");
        for (claim, name) in [(&tree, "data"), (&tree, "data/sub"), (&inner, "data/moved")] {
            assert_eq!(holder_of(claim, name), None, "{name}");
        }
        drop(inner);
        assert_eq!(holder_of(&tree, "data/moved"), None);
        fs::rename(setup.path("data/moved"), setup.path("elsewhere")).unwrap();
    }
}

#[test]
fn what_overlaps_later_is_reported_once() {
    let setup = Setup::new();
    let (sender, receiver) = std::sync::mpsc::channel();
    let _tree = setup.claim(&setup.one, "data").unwrap();
    let image = setup.claim(&setup.other, "elsewhere/c.img").unwrap();
    fs::rename(setup.path("elsewhere/c.img"), setup.path("data/c.img")).unwrap();
    let report = move |sentence: &str| sender.send(sentence.to_owned()).unwrap();
    let watch = ClaimWatch::of(Arc::clone(&setup.other), report).unwrap();
    let sentence = receiver.recv().unwrap();
    assert!(sentence.contains("c.img") && sentence.contains("with the directory"), "{sentence}");
    // Each change of claims makes the registry check again; no new report follows.
    drop(setup.claim(&setup.one, "elsewhere").unwrap());
    drop(setup.claim(&setup.one, "elsewhere").unwrap());
    drop(watch);
    drop(image);
    assert_eq!(receiver.try_iter().count(), 0);
}

/// A claim that will be refused is in the directory of claims briefly.
#[test]
fn a_claim_that_is_refused_raises_no_alarm() {
    let setup = Setup::new();
    let tree = setup.claim(&setup.one, "data").unwrap();
    let image = rustix::fs::stat(setup.path("data/a.img")).unwrap();
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..larder_testing::budget(2_000, 10_000) {
                setup.claim(&setup.other, "data/a.img").unwrap_err();
            }
            has_ended.store(true, Ordering::Release);
        });
        while !has_ended.load(Ordering::Acquire) {
            assert_eq!(setup.one.check_again(), Vec::<String>::new());
            assert_eq!(tree.other_holder(image.st_dev, image.st_ino), None);
        }
    });
}

#[test]
fn words_of_others_do_not_reach_a_terminal_as_they_are() {
    let data = "the file \u{1b}[2J\nx".to_owned() + &"y".repeat(1000);
    let message = CacheProcess { pid: u32::MAX, data }.to_string();
    assert!(message.starts_with("process 4294967295 with the file ?[2J?xy"), "{message}");
    assert!(message.len() < 500);
}

#[test]
fn who_has_a_lock_is_named() {
    let setup = Setup::new();
    let file = File::open(setup.path("data/a.img")).unwrap();
    file.lock().unwrap();
    assert_eq!(lock_holder(&file), "this process");
    file.unlock().unwrap();
    assert_eq!(lock_holder(&file), "another process");
}

#[test]
fn data_whose_mount_is_gone_is_waited_for_as_long_as_it_was_asked_for() {
    let setup = Setup::new();
    let tree = setup.claim(&setup.one, "data").unwrap();
    // An unused file system number.
    tree.mounted(Path::new("/gone"), u64::MAX);
    let path = setup.path("data/sub");
    let take = |timeout| {
        let source = Source::Open(File::open(&path).unwrap().into());
        setup.other.acquire(source, "the same", false, timeout)
    };
    let refused = take(Duration::ZERO).unwrap_err();
    assert!(matches!(refused.reason, ClaimRefusal::Ending(..)), "{refused}");
    let message = refused.to_string();
    assert!(
        message.contains("mounted at /gone") && message.contains("try again when"),
        "{message}"
    );
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| take(Duration::from_mins(1)));
        drop(tree);
        waits.join().unwrap().unwrap();
    });
}

#[test]
fn the_number_of_a_mount_that_is_gone_may_be_that_of_another_file_system() {
    let setup = Setup::new();
    let tree = setup.claim(&setup.one, "data").unwrap();
    let elsewhere = File::open(setup.path("elsewhere")).unwrap();
    let fs_path = LocalMachine::read().unwrap().locate(&elsewhere).unwrap().fs_path.unwrap();
    tree.mounted(Path::new("/gone"), fs_path.filesystem);
    setup.claim(&setup.other, "elsewhere/c.img").unwrap();
    // The rest of the claimed data stays claimed, and the caller waits for it.
    let source = Source::Open(File::open(setup.path("data/sub")).unwrap().into());
    let refused = setup.other.acquire(source, "it", false, Duration::ZERO);
    assert!(
        matches!(refused, Err(ClaimError { reason: ClaimRefusal::Ending(_), .. })),
        "{refused:?}"
    );
}
