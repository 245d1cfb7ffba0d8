//! File systems that are missing from the mount table that Larder sees.

use super::rig::{Outcome, Target, TestStorage};
use super::{assert_refused, can_create_storage, try_all};
use larder_testing::{has_tool, skip};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

#[test]
fn a_file_system_that_is_unmounted_and_still_open_lies_on_its_disk() {
    if !can_create_storage() {
        return;
    }
    let mut storage = TestStorage::new();
    storage.image("fs.img");
    let device = storage.file_system("fs.img", "m");
    storage.directory("m/dir");
    storage.image("m/dir/a.img");
    storage.image("m/b.img");
    let root = File::open(storage.path("m")).unwrap();
    storage.unmount_lazily("m");
    let path = |name: &str| {
        let pid = std::process::id();
        PathBuf::from(format!("/proc/{pid}/fd/{}/{name}", root.as_raw_fd()))
    };
    let read_only_device = Target { read_only: true, ..Target::serve("device", &device) };
    let file = Target::serve("file", &path("dir/a.img"));
    let server = file.start();
    assert_refused(&[storage.serve("image", "fs.img"), read_only_device], &server);
    server.stop();
    try_all(&[Target::serve("other file", &path("b.img")), file.clone()], |_, _| false);
    let Outcome::Refused(stderr) = storage.serve("image", "fs.img").attempt() else {
        panic!("the kernel still uses it");
    };
    assert!(stderr.contains("/dev/loop"), "{stderr}");
    // The same file system, at a path that the mount table lists.
    storage.mount_device(&device, "again");
    let [inner, sibling] = ["again/dir", "again/beside"].map(|path| storage.path(path));
    std::fs::create_dir(&sibling).unwrap();
    let directory = Target { path: inner, ..storage.mount("directory of the file", ".") };
    try_all(&[directory, file.clone()], |_, _| true);
    try_all(&[Target { path: sibling, ..storage.mount("beside", ".") }, file], |_, _| false);
    drop(root);
}

/// A process in another mount namespace, killed when dropped.
struct NamespaceProcess(Child);

impl NamespaceProcess {
    /// Runs a shell command in the namespace, and keeps the process afterwards.
    fn start(shell: &str) -> Option<Self> {
        let line = format!("set -e; {shell}; echo ready; exec sleep 600");
        let child = Command::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-c", &line])
            .stdout(Stdio::piped())
            .spawn();
        let mut process = NamespaceProcess(child.expect("unshare runs"));
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

impl Drop for NamespaceProcess {
    fn drop(&mut self) {
        let result = self.0.kill().and_then(|()| self.0.wait());
        assert!(result.is_ok() || std::thread::panicking(), "{result:?}");
    }
}

#[test]
fn file_systems_of_another_mount_namespace_are_recognized() {
    if !can_create_storage() || !has_tool("unshare") {
        return;
    }
    let mut storage = TestStorage::new();
    for name in ["lo", "up", "wk", "m", "ov"] {
        storage.directory(name);
    }
    storage.image("lo/a.img");
    storage.image("fs.img");
    let device = storage.file_system("fs.img", "m");
    storage.directory("m/dir");
    storage.image("m/dir/a.img");
    storage.image("m/b.img");
    storage.unmount("m");
    storage.directory("m/dir");
    let shell = format!(
        "cd {}; mount -t ext4 {} m; mount -t overlay overlay -o \
         lowerdir=$PWD/lo,upperdir=$PWD/up,workdir=$PWD/wk ov",
        storage.path("").display(),
        device.display()
    );
    let Some(process) = NamespaceProcess::start(&shell) else { return };
    let path_in_namespace = |name: &str| {
        let path = storage.path(name);
        process.root().join(path.strip_prefix("/").expect("an absolute path"))
    };
    let device = Target { read_only: true, ..Target::serve("device", &device) };
    let file = Target::serve("file", &path_in_namespace("m/dir/a.img"));
    let server = file.start();
    assert_refused(&[storage.serve("image", "fs.img"), device], &server);
    server.stop();
    try_all(&[Target::serve("other file", &path_in_namespace("m/b.img")), file], |_, _| false);
    let in_overlay = Target::serve("file in an overlay", &path_in_namespace("ov/a.img"));
    for layer in ["lo", "up"] {
        try_all(&[in_overlay.clone(), storage.mount("layer", layer)], |_, _| true);
    }
    // In this namespace, the path leads to another directory.
    let refused =
        Target { path: path_in_namespace("m/dir"), ..storage.mount("directory", ".") }.attempt();
    assert!(matches!(refused, Outcome::Refused(_)), "{refused:?}");
    let Outcome::Refused(stderr) = storage.serve("image", "fs.img").attempt() else {
        panic!("the kernel of the other namespace uses it");
    };
    assert!(stderr.contains("/dev/loop"), "{stderr}");
}
