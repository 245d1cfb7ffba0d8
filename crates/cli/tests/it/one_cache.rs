//! One cache per data: of two caches on the same data, in either order, the second is refused with
//! a message that names the process of the first. Caches on different data are allowed.
//!
//! The tests need root, FUSE and loop devices; otherwise each of them reports a skip.

mod changes;
mod overlays;
mod rig;
mod unlisted;

use super::control::files::Mountpoint;
use super::control::rig::{Server, larder};
use larder_testing::{can_mount, has_tool};
use rig::{Access, Outcome, Target, TestStorage};

/// Returns true if the machine can create the test storage.
fn can_create_storage() -> bool {
    can_mount() && has_tool("losetup") && has_tool("mount") && has_tool("mkfs.ext4")
}

/// Starts each target in turn, and attempts all others while it is served.
fn try_all(targets: &[Target], expected: impl Fn(&Target, &Target) -> bool) {
    let mut failures = Vec::new();
    for first in targets {
        let server = first.start();
        let holder = format!("process {} (", server.pid());
        for second in targets.iter().filter(|second| second.name != first.name) {
            let outcome = second.attempt();
            let excludes = expected(first, second);
            let is_right = match &outcome {
                Outcome::Refused(stderr) if excludes => stderr.contains(&holder),
                Outcome::Started => !excludes,
                Outcome::Refused(_) => false,
            };
            if !is_right {
                failures.push(format!("{} then {}: {outcome:?}", first.name, second.name));
            }
        }
        server.stop();
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn one_image_has_one_cache_by_whatever_way_it_is_reached() {
    if !can_create_storage() {
        return;
    }
    let mut storage = TestStorage::new();
    storage.directory("d/sub");
    storage.directory("elsewhere");
    storage.image("d/sub/a.img");
    std::fs::hard_link(storage.path("d/sub/a.img"), storage.path("elsewhere/link")).unwrap();
    storage.bind("d/sub", "bind");
    let whole = storage.loop_device("d/sub/a.img", 0);
    let half = storage.loop_device("bind/a.img", 8);
    let above = storage.loop_device_on_device(&whole);
    let targets = [
        storage.serve("image", "d/sub/a.img"),
        storage.serve("image by a bind mount", "bind/a.img"),
        storage.serve("image by a hard link", "elsewhere/link"),
        Target::serve("loop device", &whole),
        Target::serve("loop device on the second half", &half),
        Target::serve("loop device on a loop device", &above),
        storage.mount("directory", "d/sub"),
        storage.mount("directory above", "d"),
        storage.mount("bind mount of the directory", "bind"),
        storage.mount("directory of the hard link", "elsewhere"),
    ];
    // A hard link does not make two directories the same: a shared file is refused when it is
    // opened.
    let is_linked_pair = |one: &Target, other: &Target| {
        let is_linked = |target: &Target| target.name == "directory of the hard link";
        let is_tree = |target: &Target| target.access == Access::Mount;
        is_tree(one) && is_tree(other) && (is_linked(one) || is_linked(other))
    };
    try_all(&targets, |one, other| !is_linked_pair(one, other));
}

#[test]
fn partitions_of_a_loop_device_are_told_apart() {
    if !can_create_storage() || !has_tool("addpart") {
        return;
    }
    let mut storage = TestStorage::new();
    storage.directory("d");
    storage.image("d/disk.img");
    let whole = storage.loop_device("d/disk.img", 0);
    let one = storage.partition(&whole, 1, 1, 7);
    let two = storage.partition(&whole, 2, 8, 8);
    let second_half = storage.loop_device("d/disk.img", 8);
    let targets = [
        Target::serve("first", &one),
        Target::serve("second", &two),
        Target::serve("loop device on the second", &second_half),
        storage.serve("image", "d/disk.img"),
        storage.mount("directory", "d"),
    ];
    let are_disjoint = |one: &Target, other: &Target| {
        let names = [one.name, other.name];
        names.contains(&"first")
            && (names.contains(&"second") || names.contains(&"loop device on the second"))
    };
    try_all(&targets, |one, other| !are_disjoint(one, other));
}

#[test]
fn a_file_system_on_an_image_and_the_image_have_one_cache() {
    if !can_create_storage() {
        return;
    }
    let mut storage = TestStorage::new();
    storage.directory("d");
    storage.image("d/fs.img");
    let outer = storage.file_system("d/fs.img", "m");
    storage.directory("m/deep");
    storage.image("m/deep/inner.img");
    storage.image("m/other.img");
    let inner = storage.loop_device("m/deep/inner.img", 0);
    let targets = [
        storage.mount("directory of the image", "d"),
        storage.mount("file system on it", "m"),
        storage.mount("directory of it", "m/deep"),
        storage.serve("nested image", "m/deep/inner.img"),
        Target::serve("loop device on the nested image", &inner),
        storage.serve("image beside it", "m/other.img"),
    ];
    let are_disjoint = |one: &Target, other: &Target| {
        let is_sibling = |target: &Target| target.name == "image beside it";
        let is_nested =
            |target: &Target| target.name.contains("nested") || target.name == "directory of it";
        (is_sibling(one) && is_nested(other)) || (is_nested(one) && is_sibling(other))
    };
    try_all(&targets, |one, other| !are_disjoint(one, other));
    // The kernel uses the image: it has the file system mounted.
    for target in [storage.serve("image", "d/fs.img"), Target::serve("loop device", &outer)] {
        let Outcome::Refused(stderr) = target.attempt() else {
            panic!("{} is mounted", target.name)
        };
        let messages =
            ["the file system that is mounted at", "another program or the kernel uses it"];
        assert!(messages.iter().any(|messages| stderr.contains(messages)), "{stderr}");
    }
}

#[test]
fn a_file_that_is_mounted_in_a_directory_belongs_to_it() {
    if !can_create_storage() {
        return;
    }
    let mut storage = TestStorage::new();
    for name in ["d", "elsewhere", "beside"] {
        storage.directory(name);
    }
    storage.image("elsewhere/a.img");
    storage.bind_file("elsewhere/a.img", "d/here");
    let device = storage.loop_device("elsewhere/a.img", 0);
    let targets = [
        storage.mount("directory", "d"),
        storage.serve("file", "elsewhere/a.img"),
        storage.serve("file where it is mounted", "d/here"),
        Target::serve("loop device", &device),
        storage.mount("directory of the file", "elsewhere"),
    ];
    try_all(&targets, |_, _| true);
    let sibling = storage.mount("directory beside", "beside");
    try_all(&[storage.mount("directory", "d"), sibling], |_, _| false);
}

#[test]
fn what_a_larder_shows_is_not_cached_once_more() {
    if !can_create_storage() {
        return;
    }
    let mut storage = TestStorage::new();
    storage.directory("s/sub");
    storage.image("s/sub/a.img");
    let server = storage.mount("directory", "s").start();
    let mountpoint = server.mountpoint();
    let device = storage.loop_device_at(&mountpoint.join("sub/a.img"), 0);
    let stacked = [
        Target { path: mountpoint.clone(), ..storage.mount("mount", "s") },
        Target { path: mountpoint.join("sub"), ..storage.mount("directory of the mount", "s") },
        Target::serve("image in the mount", &mountpoint.join("sub/a.img")),
        Target::serve("loop device on an image in the mount", &device),
    ];
    assert_refused(&stacked, &server);
    storage.detach(&device);
    server.stop();
}

#[test]
fn the_files_of_volumes_are_not_cached_once_more() {
    if !can_create_storage() {
        return;
    }
    let mut storage = TestStorage::new();
    storage.image("a.img");
    let mountpoint = Mountpoint::new();
    let files = mountpoint.path().to_owned();
    let server = storage
        .serve("image", "a.img")
        .start_with(&["--fuse", files.to_str().expect("a path that is text")]);
    let device = storage.loop_device_at(&files.join("a"), 0);
    let stacked = [
        Target::serve("file of the volume", &files.join("a")),
        Target::serve("loop device on it", &device),
        Target { path: files, ..storage.mount("directory of files", ".") },
    ];
    assert_refused(&stacked, &server);
    storage.detach(&device);
    server.stop();
}

/// Checks that each target is refused with a message that names the process of the server.
fn assert_refused(targets: &[Target], server: &rig::RunningCache) {
    for target in targets {
        let outcome = target.attempt();
        let holder = format!("process {} (", server.pid());
        let is_refused = matches!(&outcome, Outcome::Refused(stderr) if stderr.contains(&holder));
        assert!(is_refused, "{}: {outcome:?}", target.name);
    }
}

#[test]
fn a_mountpoint_in_a_directory_that_is_cached_is_refused() {
    if !can_create_storage() {
        return;
    }
    let storage = TestStorage::new();
    storage.directory("s/inside");
    storage.directory("other");
    let server = storage.mount("directory", "s").start();
    let other = storage.mount("another directory", "other");
    let outcome = other.attempt_at(&storage.path("s/inside"));
    let holder = format!(": process {} (", server.pid());
    assert!(
        matches!(&outcome, Outcome::Refused(stderr) if stderr.contains(&holder)),
        "{outcome:?}"
    );
    server.stop();
}

#[test]
fn readers_share_data_and_exclude_writers() {
    if !can_create_storage() {
        return;
    }
    let mut storage = TestStorage::new();
    storage.directory("d");
    storage.image("d/a.img");
    let device = storage.loop_device("d/a.img", 0);
    let read_only = |target: Target| Target { read_only: true, ..target };
    let targets = || {
        [
            storage.serve("image", "d/a.img"),
            Target::serve("loop device", &device),
            storage.mount("directory", "d"),
        ]
    };
    try_all(&targets().map(read_only), |_, _| false);
    for writer in targets() {
        let server = writer.start();
        for reader in
            targets().map(read_only).into_iter().filter(|target| target.name != writer.name)
        {
            assert!(matches!(reader.attempt(), Outcome::Refused(_)), "{}", reader.name);
        }
        server.stop();
        for reader in targets().map(read_only) {
            let server = reader.start();
            assert!(matches!(writer.attempt(), Outcome::Refused(_)), "{}", reader.name);
            server.stop();
        }
    }
}

#[test]
fn a_killed_server_refuses_nobody() {
    if !can_create_storage() {
        return;
    }
    let storage = TestStorage::new();
    storage.directory("d");
    storage.image("d/a.img");
    let server = storage.mount("directory", "d").start();
    server.kill();
    storage.serve("image", "d/a.img").start().stop();
}

/// A server started by a test.
fn spawn(directory: tempfile::TempDir, command: std::process::Command) -> Server {
    Server::spawn(directory, command, 1)
}
