//! Mountpoints below a directory of another user, who renames the directory and puts another mount
//! at the old path: Larder changes and unmounts only its own mount.

use super::restrictions::{Mounted, restrictions};
use super::{Service, Setting, can_mount};
use crate::common::rig;
use rustix::fs::StatVfsMountFlags;
use rustix::mount::MountFlags;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory whose subdirectory `dir` has the mountpoint of a service.
struct Scene {
    service: Service,
    directory: TempDir,
    /// The path of the mountpoint in `directory` at first, and after a rename of `dir`.
    old: PathBuf,
    new: PathBuf,
}

impl Scene {
    fn new(source: TempDir) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("dir")).expect("room");
        let at = tempfile::tempdir_in(directory.path().join("dir")).expect("room");
        let name = at.path().file_name().expect("it has one");
        let (old, new) = (at.path().to_owned(), directory.path().join("renamed").join(name));
        let service = Service::at(at, source, Setting::default());
        Scene { service, directory, old, new }
    }

    /// Renames `dir`, and makes an empty directory at the old path of the mountpoint.
    fn replace(&self) {
        fs::rename(self.directory.path().join("dir"), self.directory.path().join("renamed"))
            .expect("it is ours");
        fs::create_dir_all(&self.old).expect("room");
    }

    fn unmount(&self, lazily: bool) -> Result<(), String> {
        let mount = self.service.mount.as_ref().expect("until the end");
        mount.unmount(lazily).map_err(|error| error.to_string())
    }
}

impl Drop for Scene {
    /// Unmounts the mount at its current path, also after a failure.
    fn drop(&mut self) {
        for path in [&self.new, &self.old] {
            while rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH).is_ok() {}
        }
    }
}

/// Returns a mount, a service of another directory, and a service of the mount.
fn scene_with_another_service() -> (Mounted, Service, Scene) {
    let source = tempfile::tempdir().expect("a directory");
    let mounted = Mounted::new(source.path(), MountFlags::empty());
    (mounted, Service::new(Setting::default()), Scene::new(source))
}

/// Returns the number of mounts at a path.
fn mounts_at(path: &Path) -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("it is there");
    let path = path.to_str().expect("text");
    table.lines().filter(|line| line.split(' ').nth(4) == Some(path)).count()
}

#[test]
fn an_unmount_leaves_what_is_mounted_at_the_old_path() {
    if !can_mount() {
        return;
    }
    for lazily in [false, true] {
        let scene = Scene::new(tempfile::tempdir().expect("a directory"));
        scene.replace();
        let other = Mounted::new(&scene.old, MountFlags::empty());
        assert_eq!((mounts_at(&scene.old), mounts_at(&scene.new)), (1, 1));
        rig::eventually("it is unused", || scene.unmount(lazily).is_ok());
        assert_eq!((mounts_at(&scene.old), mounts_at(&scene.new)), (1, 0), "lazily: {lazily}");
        drop((other, scene));
    }
}

#[test]
fn a_mount_that_was_moved_is_unmounted_where_it_is() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new(tempfile::tempdir().expect("a directory"));
    let parent = tempfile::tempdir().expect("a directory");
    let private = Mounted::new(parent.path(), MountFlags::empty());
    let moved = parent.path().join("moved");
    fs::create_dir(&moved).expect("room");
    // The kernel moves no mount out of a shared mount.
    if rustix::mount::mount_move(&scene.old, &moved).is_err() {
        larder_testing::skip("the temporary directory is on a shared mount");
        return;
    }
    let other = Mounted::new(&scene.old, MountFlags::empty());
    rig::eventually("it is unused", || scene.unmount(false).is_ok());
    assert_eq!((mounts_at(&scene.old), mounts_at(&moved)), (1, 0));
    drop((other, private, parent));
}

#[test]
fn a_mount_that_covers_another_is_not_unmounted_in_its_place() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new(tempfile::tempdir().expect("a directory"));
    let cover = Mounted::new(&scene.old, MountFlags::empty());
    for lazily in [false, true] {
        let refused = scene.unmount(lazily).expect_err("it is covered");
        assert!(
            refused
                .ends_with("another mount covers it and was not changed; unmount both with umount"),
            "{refused}"
        );
    }
    assert_eq!(mounts_at(&scene.old), 2);
    drop(cover);
    rig::eventually("it is unused", || scene.unmount(false).is_ok());
    assert_eq!(mounts_at(&scene.old), 0);
}

#[test]
fn restrictions_go_to_a_mount_whose_directory_was_renamed() {
    if !can_mount() {
        return;
    }
    let (mounted, other, scene) = scene_with_another_service();
    scene.replace();
    // The other mount is a Larder mount too.
    let bound = Mounted::bound(other.at.path(), &scene.old);
    mounted.remount(MountFlags::NOSUID);
    rig::eventually("it follows", || restrictions(&scene.new) == StatVfsMountFlags::NOSUID);
    assert_eq!(restrictions(&scene.old), StatVfsMountFlags::empty());
    drop((bound, scene, mounted));
    other.end();
}

#[test]
fn restrictions_wait_until_the_mount_is_not_covered() {
    if !can_mount() {
        return;
    }
    let (mounted, other, scene) = scene_with_another_service();
    let inside = scene.service.behind("inside");
    fs::create_dir(&inside).expect("room");
    let directory = fs::File::open(&scene.old).expect("it is there");
    let within = |name: &str| format!("/proc/self/fd/{}/{name}", directory.as_raw_fd());
    let cover = Mounted::bound(other.at.path(), &scene.old);
    mounted.remount(MountFlags::NOSUID);
    let beyond = Mounted::new(&inside, MountFlags::NODEV);
    // Each lookup beyond a mountpoint tries again, and is refused.
    let opened = fs::File::open(within("inside")).map_err(|error| error.kind());
    assert_eq!(opened.map(drop), Err(std::io::ErrorKind::PermissionDenied));
    assert_eq!(restrictions(&scene.old), StatVfsMountFlags::empty());
    drop(cover);
    let both = StatVfsMountFlags::NOSUID | StatVfsMountFlags::NODEV;
    rig::eventually("it follows", || restrictions(&scene.old) == both);
    fs::File::open(within("inside")).expect("it is restricted now");
    drop((directory, beyond, scene, mounted));
    other.end();
}
