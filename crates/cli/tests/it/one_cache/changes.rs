//! Changes after a cache was put in front of the data.

use super::rig::{Outcome, Scene, View};
use super::{can_stage, try_all};
use crate::control::rig::eventually;
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::FileExt;

#[test]
fn a_file_that_is_served_is_not_opened_by_another_name_in_a_mount() {
    if !can_stage() {
        return;
    }
    let scene = Scene::new();
    scene.directory("d");
    scene.directory("elsewhere");
    scene.image("elsewhere/a.img");
    scene.image("elsewhere/b.img");
    let mount = scene.mount("directory", "d").start();
    let mut image = scene.serve("image", "elsewhere/a.img").start();
    fs::hard_link(scene.path("elsewhere/a.img"), scene.path("d/linked")).unwrap();
    fs::rename(scene.path("elsewhere/b.img"), scene.path("d/free")).unwrap();
    let at = mount.mountpoint();
    let busy = fs::File::open(at.join("linked")).unwrap_err();
    assert_eq!(Errno::from_io_error(&busy), Some(Errno::BUSY), "{busy}");
    let cut = fs::OpenOptions::new().write(true).truncate(true).open(at.join("linked"));
    assert_eq!(Errno::from_io_error(&cut.unwrap_err()), Some(Errno::BUSY));
    assert!(fs::read(at.join("free")).unwrap().len() > 1000, "a file that no cache serves");
    // The file is still served under its other name, and that server's process is named.
    fs::rename(scene.path("elsewhere/a.img"), scene.path("d/a.img")).unwrap();
    assert!(fs::read(at.join("a.img")).is_err());
    image.server().signal(rustix::process::Signal::USR1);
    fs::rename(scene.path("d/a.img"), scene.path("elsewhere/a.img")).unwrap();
    image.stop();
    assert!(fs::read(at.join("linked")).unwrap().len() > 1000, "once it is not served any more");
    let said = mount.stop();
    assert!(said.contains("another cache has its data"), "{said}");
}

#[test]
fn a_cached_directory_that_is_renamed_into_another_one_is_reached_through_one_mount() {
    if !can_stage() {
        return;
    }
    let scene = Scene::new();
    for name in ["outer/known", "inner"] {
        scene.directory(name);
    }
    let outer = scene.mount("outer", "outer").start();
    let inner = scene.mount("inner", "inner").start();
    let (above, below) = (outer.mountpoint(), inner.mountpoint());
    let file = fs::File::create(below.join("f")).unwrap();
    file.write_all_at(b"first", 0).unwrap();
    let is_busy = |name: &str| {
        let refused = fs::metadata(above.join(name)).unwrap_err();
        let listed = fs::read_dir(&above).unwrap().any(|it| it.unwrap().file_name() == name);
        assert_eq!((Errno::from_io_error(&refused), listed), (Some(Errno::BUSY), true), "{name}");
    };
    fs::rename(scene.path("inner"), scene.path("outer/inner")).unwrap();
    is_busy("inner");
    let opened = fs::OpenOptions::new().write(true).open(above.join("inner/f"));
    assert_eq!(Errno::from_io_error(&opened.unwrap_err()), Some(Errno::BUSY));
    file.sync_all().unwrap();
    assert_eq!(fs::read(scene.path("outer/inner/f")).unwrap(), b"first");
    // A directory that the kernel knew here before another mount has it.
    fs::metadata(above.join("known")).unwrap();
    fs::rename(scene.path("outer/known"), scene.path("known")).unwrap();
    let known = scene.mount("known", "known").start();
    fs::rename(scene.path("known"), scene.path("outer/known")).unwrap();
    eventually("the name is looked up again", || fs::metadata(above.join("known")).is_err());
    is_busy("known");
    known.stop();
    fs::read_dir(above.join("known")).unwrap();
    drop(file);
    inner.stop();
    assert_eq!(fs::read(above.join("inner/f")).unwrap(), b"first");
    let said = outer.stop();
    assert!(said.contains("refused to look up a directory"), "{said}");
    assert!(said.contains("inner"), "{said}");
}

#[test]
fn a_file_with_names_in_two_cached_directories_is_opened_through_one() {
    if !can_stage() {
        return;
    }
    let scene = Scene::new();
    for name in ["one", "two"] {
        scene.directory(name);
    }
    scene.image("one/a.img");
    fs::hard_link(scene.path("one/a.img"), scene.path("two/b.img")).unwrap();
    let one = scene.mount("one", "one").start();
    let two = scene.mount("two", "two").start();
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
    if !can_stage() {
        return;
    }
    let mut scene = Scene::new();
    scene.image("fs.img");
    // Created before the server starts, since it changes the image.
    let device = scene.file_system("fs.img", "m");
    scene.unmount("m");
    let mut server = scene.serve("image", "fs.img").start();
    scene.mount_device(&device, "again");
    let said = server.server().hear(|line| line.contains("not safe any more"));
    let at = scene.path("again");
    assert!(said.contains(&format!("mounted at {}", at.display())), "{said}");
    let refused = scene.mount("directory on it", "again").attempt();
    let holder = format!("process {} (", server.pid());
    assert!(matches!(&refused, Outcome::Refused(said) if said.contains(&holder)), "{refused:?}");
    server.stop();
}

#[test]
fn what_is_mounted_in_a_cached_directory_later_belongs_to_it() {
    if !can_stage() {
        return;
    }
    let mut scene = Scene::new();
    scene.directory("d/in");
    scene.directory("elsewhere");
    scene.image("elsewhere/a.img");
    let mount = scene.mount("directory", "d").start();
    scene.bind("elsewhere", "d/in");
    let image = scene.serve("image", "elsewhere/a.img");
    // The mount notices the change itself, and refuses the next cache.
    eventually("it is refused", || matches!(image.attempt(), Outcome::Refused(_)));
    mount.stop();
    // In the other order the first cache stays, and the second is refused.
    try_all(&[image, scene.mount("directory", "d")], |_, _| true);
}

#[test]
fn a_file_that_is_mounted_in_a_cached_directory_later_belongs_to_it() {
    if !can_stage() {
        return;
    }
    let mut scene = Scene::new();
    scene.directory("d");
    scene.directory("elsewhere");
    scene.image("elsewhere/a.img");
    scene.image("elsewhere/b.img");
    let mut mount = scene.mount("directory", "d").start();
    scene.bind_file("elsewhere/a.img", "d/a");
    let image = scene.serve("image", "elsewhere/a.img");
    eventually("it is refused", || matches!(image.attempt(), Outcome::Refused(_)));
    // A file that is served first is reported, and not opened a second time.
    let other = scene.serve("other image", "elsewhere/b.img").start();
    scene.bind_file("elsewhere/b.img", "d/b");
    let said = mount.server().hear(|line| line.contains("not safe any more"));
    assert!(said.contains(&format!("process {} (", other.pid())), "{said}");
    let busy = fs::File::open(mount.mountpoint().join("b")).unwrap_err();
    assert_eq!(Errno::from_io_error(&busy), Some(Errno::BUSY), "{busy}");
    other.stop();
    mount.stop();
}

#[test]
fn the_same_export_of_a_server_has_one_cache() {
    if !can_stage() {
        return;
    }
    let scene = Scene::new();
    scene.image("a.img");
    scene.image("b.img");
    let mut far = scene.serve("image", "a.img").start();
    let uri = far.server().uris[0].clone();
    let upstream = |name| View::serve(name, uri.as_ref());
    let near = upstream("export").start();
    let refused = upstream("the same again").attempt();
    let holder = format!("process {} (", near.pid());
    assert!(matches!(&refused, Outcome::Refused(said) if said.contains(&holder)), "{refused:?}");
    near.stop();
    far.stop();
}
