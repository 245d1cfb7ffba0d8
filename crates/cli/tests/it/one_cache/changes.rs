//! Changes to data after a cache was started on it.

use super::rig::{Outcome, Target, TestStorage};
use super::{can_create_storage, try_all};
use crate::control::rig::eventually;
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::FileExt;

#[test]
fn a_file_that_is_served_is_not_opened_by_another_name_in_a_mount() {
    if !can_create_storage() {
        return;
    }
    let storage = TestStorage::new();
    storage.directory("d");
    storage.directory("elsewhere");
    storage.image("elsewhere/a.img");
    storage.image("elsewhere/b.img");
    let mount = storage.mount("directory", "d").start();
    let mut image = storage.serve("image", "elsewhere/a.img").start();
    fs::hard_link(storage.path("elsewhere/a.img"), storage.path("d/linked")).unwrap();
    fs::rename(storage.path("elsewhere/b.img"), storage.path("d/free")).unwrap();
    let mountpoint = mount.mountpoint();
    let busy = fs::File::open(mountpoint.join("linked")).unwrap_err();
    assert_eq!(Errno::from_io_error(&busy), Some(Errno::BUSY), "{busy}");
    let cut = fs::OpenOptions::new().write(true).truncate(true).open(mountpoint.join("linked"));
    assert_eq!(Errno::from_io_error(&cut.unwrap_err()), Some(Errno::BUSY));
    assert!(fs::read(mountpoint.join("free")).unwrap().len() > 1000, "a file that no cache serves");
    // The file is still served under its other name, and that server's process is named.
    fs::rename(storage.path("elsewhere/a.img"), storage.path("d/a.img")).unwrap();
    assert!(fs::read(mountpoint.join("a.img")).is_err());
    image.server().signal(rustix::process::Signal::USR1);
    fs::rename(storage.path("d/a.img"), storage.path("elsewhere/a.img")).unwrap();
    image.stop();
    assert!(
        fs::read(mountpoint.join("linked")).unwrap().len() > 1000,
        "once it is not served any more"
    );
    let log = mount.stop();
    assert!(log.contains("another cache has its data"), "{log}");
}

#[test]
fn a_cached_directory_that_is_renamed_into_another_one_is_reached_through_one_mount() {
    if !can_create_storage() {
        return;
    }
    let storage = TestStorage::new();
    for name in ["outer/known", "inner"] {
        storage.directory(name);
    }
    let outer = storage.mount("outer", "outer").start();
    let inner = storage.mount("inner", "inner").start();
    let (above, below) = (outer.mountpoint(), inner.mountpoint());
    let file = fs::File::create(below.join("f")).unwrap();
    file.write_all_at(b"first", 0).unwrap();
    let is_busy = |name: &str| {
        let refused = fs::metadata(above.join(name)).unwrap_err();
        let listed = fs::read_dir(&above).unwrap().any(|it| it.unwrap().file_name() == name);
        assert_eq!((Errno::from_io_error(&refused), listed), (Some(Errno::BUSY), true), "{name}");
    };
    fs::rename(storage.path("inner"), storage.path("outer/inner")).unwrap();
    is_busy("inner");
    let opened = fs::OpenOptions::new().write(true).open(above.join("inner/f"));
    assert_eq!(Errno::from_io_error(&opened.unwrap_err()), Some(Errno::BUSY));
    file.sync_all().unwrap();
    assert_eq!(fs::read(storage.path("outer/inner/f")).unwrap(), b"first");
    // The kernel looks up a directory here before another mount serves it.
    fs::metadata(above.join("known")).unwrap();
    fs::rename(storage.path("outer/known"), storage.path("known")).unwrap();
    let known = storage.mount("known", "known").start();
    fs::rename(storage.path("known"), storage.path("outer/known")).unwrap();
    eventually("the name is looked up again", || fs::metadata(above.join("known")).is_err());
    is_busy("known");
    known.stop();
    fs::read_dir(above.join("known")).unwrap();
    drop(file);
    inner.stop();
    assert_eq!(fs::read(above.join("inner/f")).unwrap(), b"first");
    let log = outer.stop();
    assert!(log.contains("refused to look up a directory"), "{log}");
    assert!(log.contains("inner"), "{log}");
}

#[test]
fn a_file_with_names_in_two_cached_directories_is_opened_through_one() {
    if !can_create_storage() {
        return;
    }
    let storage = TestStorage::new();
    for name in ["one", "two"] {
        storage.directory(name);
    }
    storage.image("one/a.img");
    fs::hard_link(storage.path("one/a.img"), storage.path("two/b.img")).unwrap();
    let one = storage.mount("one", "one").start();
    let two = storage.mount("two", "two").start();
    let (first, second) = (one.mountpoint().join("a.img"), two.mountpoint().join("b.img"));
    fs::write(&first, "changed").unwrap();
    for opened in [fs::File::open(&second), fs::File::create(&second)] {
        assert_eq!(Errno::from_io_error(&opened.unwrap_err()), Some(Errno::BUSY));
    }
    fs::read(&first).unwrap();
    one.stop();
    assert_eq!(fs::read(&second).unwrap(), b"changed");
    two.stop();
}

#[test]
fn a_file_system_that_is_mounted_past_the_cache_is_reported_and_its_directories_are_refused() {
    if !can_create_storage() {
        return;
    }
    let mut storage = TestStorage::new();
    storage.image("fs.img");
    // Created before the server starts, since it changes the image.
    let device = storage.file_system("fs.img", "m");
    storage.unmount("m");
    let mut server = storage.serve("image", "fs.img").start();
    storage.mount_device(&device, "again");
    let log = server.server().wait_for_line(|line| line.contains("not safe any more"));
    let at = storage.path("again");
    assert!(log.contains(&format!("mounted at {}", at.display())), "{log}");
    let refused = storage.mount("directory on it", "again").attempt();
    let holder = format!("process {} (", server.pid());
    assert!(
        matches!(&refused, Outcome::Refused(stderr) if stderr.contains(&holder)),
        "{refused:?}"
    );
    server.stop();
}

#[test]
fn what_is_mounted_in_a_cached_directory_later_belongs_to_it() {
    if !can_create_storage() {
        return;
    }
    let mut storage = TestStorage::new();
    storage.directory("d/in");
    storage.directory("elsewhere");
    storage.image("elsewhere/a.img");
    let mount = storage.mount("directory", "d").start();
    storage.bind("elsewhere", "d/in");
    let image = storage.serve("image", "elsewhere/a.img");
    // The mount notices the change itself, and refuses the next cache.
    eventually("it is refused", || matches!(image.attempt(), Outcome::Refused(_)));
    mount.stop();
    // In the other order the first cache stays, and the second is refused.
    try_all(&[image, storage.mount("directory", "d")], |_, _| true);
}

#[test]
fn a_file_that_is_mounted_in_a_cached_directory_later_belongs_to_it() {
    if !can_create_storage() {
        return;
    }
    let mut storage = TestStorage::new();
    storage.directory("d");
    storage.directory("elsewhere");
    storage.image("elsewhere/a.img");
    storage.image("elsewhere/b.img");
    let mut mount = storage.mount("directory", "d").start();
    storage.bind_file("elsewhere/a.img", "d/a");
    let image = storage.serve("image", "elsewhere/a.img");
    eventually("it is refused", || matches!(image.attempt(), Outcome::Refused(_)));
    // A file that is served first is reported, and not opened a second time.
    let other = storage.serve("other image", "elsewhere/b.img").start();
    storage.bind_file("elsewhere/b.img", "d/b");
    let log = mount.server().wait_for_line(|line| line.contains("not safe any more"));
    assert!(log.contains(&format!("process {} (", other.pid())), "{log}");
    let busy = fs::File::open(mount.mountpoint().join("b")).unwrap_err();
    assert_eq!(Errno::from_io_error(&busy), Some(Errno::BUSY), "{busy}");
    other.stop();
    mount.stop();
}

#[test]
fn the_same_export_of_a_server_has_one_cache() {
    if !can_create_storage() {
        return;
    }
    let storage = TestStorage::new();
    storage.image("a.img");
    storage.image("b.img");
    let mut server = storage.serve("image", "a.img").start();
    let uri = server.server().uris[0].clone();
    let upstream = |name| Target::serve(name, uri.as_ref());
    let cache = upstream("export").start();
    let refused = upstream("the same again").attempt();
    let holder = format!("process {} (", cache.pid());
    assert!(
        matches!(&refused, Outcome::Refused(stderr) if stderr.contains(&holder)),
        "{refused:?}"
    );
    cache.stop();
    server.stop();
}
