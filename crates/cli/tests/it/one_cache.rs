//! One cache per data: of every pair of ways to the same data, in either order, the second is
//! refused with the process of the first; ways to different data are not.
//!
//! Runs as root on a machine with FUSE and loop devices; otherwise each test reports its skip.

mod changes;
mod overlays;
mod rig;
mod unlisted;

use super::control::files::Mountpoint;
use super::control::rig::{Server, larder};
use larder_testing::{can_mount, has_tool};
use rig::{Access, Outcome, Scene, View};

/// Returns whether the machine can create a scene.
fn can_stage() -> bool {
    can_mount() && has_tool("losetup") && has_tool("mount") && has_tool("mkfs.ext4")
}

/// Starts each view first, and tries all others against it.
fn try_all(views: &[View], expected: impl Fn(&View, &View) -> bool) {
    let mut wrong = Vec::new();
    for first in views {
        let server = first.start();
        let holder = format!("process {} (", server.pid());
        for second in views.iter().filter(|second| second.name != first.name) {
            let outcome = second.attempt();
            let excludes = expected(first, second);
            let is_right = match &outcome {
                Outcome::Refused(said) if excludes => said.contains(&holder),
                Outcome::Started => !excludes,
                Outcome::Refused(_) => false,
            };
            if !is_right {
                wrong.push(format!("{} then {}: {outcome:?}", first.name, second.name));
            }
        }
        server.stop();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn one_image_has_one_cache_by_whatever_way_it_is_reached() {
    if !can_stage() {
        return;
    }
    let mut scene = Scene::new();
    scene.directory("d/sub");
    scene.directory("elsewhere");
    scene.image("d/sub/a.img");
    std::fs::hard_link(scene.path("d/sub/a.img"), scene.path("elsewhere/link")).unwrap();
    scene.bind("d/sub", "bind");
    let whole = scene.loop_device("d/sub/a.img", 0);
    let half = scene.loop_device("bind/a.img", 8);
    let above = scene.loop_device_on_device(&whole);
    let views = [
        scene.serve("image", "d/sub/a.img"),
        scene.serve("image by a bind mount", "bind/a.img"),
        scene.serve("image by a hard link", "elsewhere/link"),
        View::serve("loop device", &whole),
        View::serve("loop device on the second half", &half),
        View::serve("loop device on a loop device", &above),
        scene.mount("directory", "d/sub"),
        scene.mount("directory above", "d"),
        scene.mount("bind mount of the directory", "bind"),
        scene.mount("directory of the hard link", "elsewhere"),
    ];
    // A hard link does not make two directories the same: a shared file is refused when it is
    // opened.
    let trees = |one: &View, other: &View| {
        let is_linked = |view: &View| view.name == "directory of the hard link";
        let is_tree = |view: &View| view.access == Access::Mount;
        is_tree(one) && is_tree(other) && (is_linked(one) || is_linked(other))
    };
    try_all(&views, |one, other| !trees(one, other));
}

#[test]
fn partitions_of_a_loop_device_are_told_apart() {
    if !can_stage() || !has_tool("addpart") {
        return;
    }
    let mut scene = Scene::new();
    scene.directory("d");
    scene.image("d/disk.img");
    let whole = scene.loop_device("d/disk.img", 0);
    let one = scene.partition(&whole, 1, 1, 7);
    let two = scene.partition(&whole, 2, 8, 8);
    let second_half = scene.loop_device("d/disk.img", 8);
    let views = [
        View::serve("first", &one),
        View::serve("second", &two),
        View::serve("loop device on the second", &second_half),
        scene.serve("image", "d/disk.img"),
        scene.mount("directory", "d"),
    ];
    let apart = |one: &View, other: &View| {
        let names = [one.name, other.name];
        names.contains(&"first")
            && (names.contains(&"second") || names.contains(&"loop device on the second"))
    };
    try_all(&views, |one, other| !apart(one, other));
}

#[test]
fn a_file_system_on_an_image_and_the_image_have_one_cache() {
    if !can_stage() {
        return;
    }
    let mut scene = Scene::new();
    scene.directory("d");
    scene.image("d/fs.img");
    let outer = scene.file_system("d/fs.img", "m");
    scene.directory("m/deep");
    scene.image("m/deep/inner.img");
    scene.image("m/other.img");
    let inner = scene.loop_device("m/deep/inner.img", 0);
    let views = [
        scene.mount("directory of the image", "d"),
        scene.mount("file system on it", "m"),
        scene.mount("directory of it", "m/deep"),
        scene.serve("nested image", "m/deep/inner.img"),
        View::serve("loop device on the nested image", &inner),
        scene.serve("image beside it", "m/other.img"),
    ];
    let apart = |one: &View, other: &View| {
        let beside = |view: &View| view.name == "image beside it";
        let nested = |view: &View| view.name.contains("nested") || view.name == "directory of it";
        (beside(one) && nested(other)) || (nested(one) && beside(other))
    };
    try_all(&views, |one, other| !apart(one, other));
    // The kernel itself has a file system mounted on it.
    for view in [scene.serve("image", "d/fs.img"), View::serve("loop device", &outer)] {
        let Outcome::Refused(said) = view.attempt() else { panic!("{} is mounted", view.name) };
        let known = ["the file system that is mounted at", "another program or the kernel uses it"];
        assert!(known.iter().any(|known| said.contains(known)), "{said}");
    }
}

#[test]
fn a_file_that_is_mounted_in_a_directory_belongs_to_it() {
    if !can_stage() {
        return;
    }
    let mut scene = Scene::new();
    for name in ["d", "elsewhere", "beside"] {
        scene.directory(name);
    }
    scene.image("elsewhere/a.img");
    scene.bind_file("elsewhere/a.img", "d/here");
    let device = scene.loop_device("elsewhere/a.img", 0);
    let views = [
        scene.mount("directory", "d"),
        scene.serve("file", "elsewhere/a.img"),
        scene.serve("file where it is mounted", "d/here"),
        View::serve("loop device", &device),
        scene.mount("directory of the file", "elsewhere"),
    ];
    try_all(&views, |_, _| true);
    let beside = scene.mount("directory beside", "beside");
    try_all(&[scene.mount("directory", "d"), beside], |_, _| false);
}

#[test]
fn what_a_larder_shows_is_not_cached_once_more() {
    if !can_stage() {
        return;
    }
    let mut scene = Scene::new();
    scene.directory("s/sub");
    scene.image("s/sub/a.img");
    let server = scene.mount("directory", "s").start();
    let shown = server.mountpoint();
    let on_it = scene.loop_device_at(&shown.join("sub/a.img"), 0);
    let stacked = [
        View { path: shown.clone(), ..scene.mount("mount", "s") },
        View { path: shown.join("sub"), ..scene.mount("directory of the mount", "s") },
        View::serve("image in the mount", &shown.join("sub/a.img")),
        View::serve("loop device on an image in the mount", &on_it),
    ];
    refuse(&stacked, &server);
    scene.detach(&on_it);
    server.stop();
}

#[test]
fn the_files_of_volumes_are_not_cached_once_more() {
    if !can_stage() {
        return;
    }
    let mut scene = Scene::new();
    scene.image("a.img");
    let mountpoint = Mountpoint::new();
    let files = mountpoint.path().to_owned();
    let server = scene
        .serve("image", "a.img")
        .start_with(&["--fuse", files.to_str().expect("a path that is text")]);
    let on_it = scene.loop_device_at(&files.join("a"), 0);
    let stacked = [
        View::serve("file of the volume", &files.join("a")),
        View::serve("loop device on it", &on_it),
        View { path: files, ..scene.mount("directory of files", ".") },
    ];
    refuse(&stacked, &server);
    scene.detach(&on_it);
    server.stop();
}

/// Checks that all views are refused with the process of the server.
fn refuse(views: &[View], server: &rig::Running) {
    for view in views {
        let outcome = view.attempt();
        let holder = format!("process {} (", server.pid());
        let is_refused = matches!(&outcome, Outcome::Refused(said) if said.contains(&holder));
        assert!(is_refused, "{}: {outcome:?}", view.name);
    }
}

#[test]
fn a_mountpoint_in_a_directory_that_is_cached_is_refused() {
    if !can_stage() {
        return;
    }
    let scene = Scene::new();
    scene.directory("s/inside");
    scene.directory("other");
    let server = scene.mount("directory", "s").start();
    let other = scene.mount("another directory", "other");
    let outcome = other.attempt_at(&scene.path("s/inside"));
    let holder = format!(": process {} (", server.pid());
    assert!(matches!(&outcome, Outcome::Refused(said) if said.contains(&holder)), "{outcome:?}");
    server.stop();
}

#[test]
fn readers_share_data_and_exclude_writers() {
    if !can_stage() {
        return;
    }
    let mut scene = Scene::new();
    scene.directory("d");
    scene.image("d/a.img");
    let device = scene.loop_device("d/a.img", 0);
    let read_only = |view: View| View { read_only: true, ..view };
    let views = || {
        [
            scene.serve("image", "d/a.img"),
            View::serve("loop device", &device),
            scene.mount("directory", "d"),
        ]
    };
    try_all(&views().map(read_only), |_, _| false);
    for writer in views() {
        let server = writer.start();
        for reader in views().map(read_only).into_iter().filter(|view| view.name != writer.name) {
            assert!(matches!(reader.attempt(), Outcome::Refused(_)), "{}", reader.name);
        }
        server.stop();
        for reader in views().map(read_only) {
            let server = reader.start();
            assert!(matches!(writer.attempt(), Outcome::Refused(_)), "{}", reader.name);
            server.stop();
        }
    }
}

#[test]
fn a_killed_server_refuses_nobody() {
    if !can_stage() {
        return;
    }
    let scene = Scene::new();
    scene.directory("d");
    scene.image("d/a.img");
    let server = scene.mount("directory", "d").start();
    server.kill();
    scene.serve("image", "d/a.img").start().stop();
}

/// A server started by a test.
fn spawn(directory: tempfile::TempDir, command: std::process::Command) -> Server {
    Server::spawn(directory, command, 1)
}
