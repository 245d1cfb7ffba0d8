//! File systems that are not in the mount table of Larder.

use super::rig::{Outcome, Scene, View};
use super::{can_stage, refuse, try_all};
use larder_testing::{has_tool, skip};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

#[test]
fn a_file_system_that_is_unmounted_and_still_open_lies_on_its_disk() {
    if !can_stage() {
        return;
    }
    let mut scene = Scene::new();
    scene.image("fs.img");
    let device = scene.file_system("fs.img", "m");
    scene.directory("m/dir");
    scene.image("m/dir/a.img");
    scene.image("m/b.img");
    let root = File::open(scene.path("m")).unwrap();
    scene.unmount_later("m");
    let path = |name: &str| {
        let own = std::process::id();
        PathBuf::from(format!("/proc/{own}/fd/{}/{name}", root.as_raw_fd()))
    };
    let read_only_device = View { read_only: true, ..View::serve("device", &device) };
    let file = View::serve("file", &path("dir/a.img"));
    let server = file.start();
    refuse(&[scene.serve("image", "fs.img"), read_only_device], &server);
    server.stop();
    try_all(&[View::serve("other file", &path("b.img")), file.clone()], |_, _| false);
    let Outcome::Refused(said) = scene.serve("image", "fs.img").attempt() else {
        panic!("the kernel still uses it");
    };
    assert!(said.contains("/dev/loop"), "{said}");
    // The same file system, where the mount table has it.
    scene.mount_device(&device, "again");
    let [inside, beside] = ["again/dir", "again/beside"].map(|path| scene.path(path));
    std::fs::create_dir(&beside).unwrap();
    let directory = View { path: inside, ..scene.mount("directory of the file", ".") };
    try_all(&[directory, file.clone()], |_, _| true);
    try_all(&[View { path: beside, ..scene.mount("beside", ".") }, file], |_, _| false);
    drop(root);
}

/// A process in another mount namespace, which ends when this is dropped.
struct Elsewhere(Child);

impl Elsewhere {
    /// Runs a line of shell there, which the process survives.
    fn start(shell: &str) -> Option<Self> {
        let line = format!("set -e; {shell}; echo ready; exec sleep 600");
        let child = Command::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-c", &line])
            .stdout(Stdio::piped())
            .spawn();
        let mut process = Elsewhere(child.expect("unshare runs"));
        let mut ready = String::new();
        let stdout = process.0.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut ready).expect("text");
        if ready.is_empty() {
            skip(format_args!("cannot mount in another namespace"));
            return None;
        }
        Some(process)
    }

    fn root(&self) -> PathBuf {
        format!("/proc/{}/root", self.0.id()).into()
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let ended = self.0.kill().and_then(|()| self.0.wait());
        assert!(ended.is_ok() || std::thread::panicking(), "{ended:?}");
    }
}

#[test]
fn file_systems_of_another_mount_namespace_are_recognized() {
    if !can_stage() || !has_tool("unshare") {
        return;
    }
    let mut scene = Scene::new();
    for name in ["lo", "up", "wk", "m", "ov"] {
        scene.directory(name);
    }
    scene.image("lo/a.img");
    scene.image("fs.img");
    let device = scene.file_system("fs.img", "m");
    scene.directory("m/dir");
    scene.image("m/dir/a.img");
    scene.image("m/b.img");
    scene.unmount("m");
    scene.directory("m/dir");
    let shell = format!(
        "cd {}; mount -t ext4 {} m; mount -t overlay overlay -o \
         lowerdir=$PWD/lo,upperdir=$PWD/up,workdir=$PWD/wk ov",
        scene.path("").display(),
        device.display()
    );
    let Some(process) = Elsewhere::start(&shell) else { return };
    let there = |name: &str| {
        let path = scene.path(name);
        process.root().join(path.strip_prefix("/").expect("an absolute path"))
    };
    let device = View { read_only: true, ..View::serve("device", &device) };
    let file = View::serve("file", &there("m/dir/a.img"));
    let server = file.start();
    refuse(&[scene.serve("image", "fs.img"), device], &server);
    server.stop();
    try_all(&[View::serve("other file", &there("m/b.img")), file], |_, _| false);
    let in_overlay = View::serve("file in an overlay", &there("ov/a.img"));
    for layer in ["lo", "up"] {
        try_all(&[in_overlay.clone(), scene.mount("layer", layer)], |_, _| true);
    }
    // Its path in this namespace is another directory.
    let refused = View { path: there("m/dir"), ..scene.mount("directory", ".") }.attempt();
    assert!(matches!(refused, Outcome::Refused(_)), "{refused:?}");
    let Outcome::Refused(said) = scene.serve("image", "fs.img").attempt() else {
        panic!("the kernel of the other namespace uses it");
    };
    assert!(said.contains("/dev/loop"), "{said}");
}
