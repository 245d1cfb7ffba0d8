//! Test storage of directories, images, mounts and loop devices, which is removed however a test
//! ends; targets on it, and servers of them.

use super::{Server, larder, spawn};
use crate::control::files::Mountpoint;
use crate::control::rig::{MIB, text};
use larder_testing::skip;
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Bytes of an image.
const IMAGE: u64 = 16 * MIB;

/// The command that puts a cache in front of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Serve,
    Mount,
}

/// A path to data, and the cache to start on it.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) name: &'static str,
    pub(super) access: Access,
    pub(super) path: PathBuf,
    pub(super) read_only: bool,
}

impl Target {
    pub(super) fn serve(name: &'static str, path: &Path) -> Self {
        Target { name, access: Access::Serve, path: path.to_owned(), read_only: false }
    }

    /// Returns the command that starts the cache, with its socket in `directory` and its mountpoint
    /// at `at`.
    fn command(&self, directory: &Path, at: &Path) -> Command {
        let mut command = larder();
        match self.access {
            Access::Serve => {
                let listen = format!("unix:{}", directory.join("nbd.sock").display());
                command.arg("serve").arg(&self.path).args(["--listen", &listen]);
            }
            Access::Mount => {
                command.arg("mount").arg(&self.path).arg(at);
            }
        }
        command.args(["--memory", "16MiB", "--control", "none"]);
        if self.read_only {
            command.args(["--write-mode", "read-only"]);
        }
        command
    }

    /// Starts a server, which must become ready.
    pub(super) fn start(&self) -> RunningCache {
        self.start_with(&[])
    }

    pub(super) fn start_with(&self, options: &[&str]) -> RunningCache {
        let (directory, mountpoint) = (TempDir::new().expect("a directory"), Mountpoint::new());
        let mut command = self.command(directory.path(), mountpoint.path());
        command.args(options);
        RunningCache { server: spawn(directory, command), mountpoint }
    }

    /// Starts a server, and stops it immediately if it becomes ready.
    pub(super) fn attempt(&self) -> Outcome {
        self.attempt_at(Mountpoint::new().path())
    }

    /// Does the same with this mountpoint.
    pub(super) fn attempt_at(&self, at: &Path) -> Outcome {
        let directory = TempDir::new().expect("a directory");
        let mut command = self.command(directory.path(), at);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the program starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("text");
        let has_started = !line.is_empty();
        if has_started {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        }
        let mut stderr = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("text");
        let status = child.wait().expect("it ends");
        if has_started {
            assert!(status.success(), "{stderr}");
            return Outcome::Started;
        }
        assert_eq!(status.code(), Some(2), "{stderr}");
        Outcome::Refused(stderr)
    }
}

/// The result of an attempt to start a server.
#[derive(Debug)]
pub(super) enum Outcome {
    Started,
    /// With the error output of the server.
    Refused(String),
}

/// A running server, with its mountpoint.
pub(super) struct RunningCache {
    server: Server,
    mountpoint: Mountpoint,
}

impl RunningCache {
    pub(super) fn pid(&self) -> u32 {
        self.server.pid()
    }

    pub(super) fn mountpoint(&self) -> PathBuf {
        self.mountpoint.path().to_owned()
    }

    pub(super) fn server(&mut self) -> &mut Server {
        &mut self.server
    }

    pub(super) fn stop(self) -> String {
        self.server.stop()
    }

    pub(super) fn kill(self) {
        drop(self.server.kill_and_keep());
    }
}

/// A change of the system that the end of the test undoes.
enum Undo {
    Mount(PathBuf),
    Loop(PathBuf),
    Partition(PathBuf, u32),
}

/// A temporary directory with test data, and all mounts and devices on it.
pub(super) struct TestStorage {
    directory: TempDir,
    undo: Vec<Undo>,
}

/// Runs a program, which must succeed, and returns its trimmed output.
fn run(program: &str, args: &[&std::ffi::OsStr]) -> String {
    let output = Command::new(program).args(args).output().expect("the program runs");
    assert!(output.status.success(), "{program} {args:?}: {}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

impl TestStorage {
    pub(super) fn new() -> Self {
        TestStorage { directory: TempDir::new().expect("a directory"), undo: Vec::new() }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn directory(&self, name: &str) {
        std::fs::create_dir_all(self.path(name)).expect("a directory");
    }

    /// Creates an empty image.
    pub(super) fn image(&self, name: &str) {
        let file = File::create(self.path(name)).expect("an image");
        file.set_len(if name.contains("fs") { 8 * IMAGE } else { IMAGE }).expect("an image");
    }

    pub(super) fn bind(&mut self, name: &str, at: &str) {
        self.directory(at);
        let (from, at) = (self.path(name), self.path(at));
        rustix::mount::mount_bind(from, &at).expect("a bind mount");
        self.undo.push(Undo::Mount(at.clone()));
        rustix::mount::mount_change(&at, MountPropagationFlags::PRIVATE).expect("it is private");
    }

    /// Mounts a file over an empty file.
    pub(super) fn bind_file(&mut self, name: &str, at: &str) {
        let (from, at) = (self.path(name), self.path(at));
        File::create(&at).expect("a file");
        rustix::mount::mount_bind(from, &at).expect("a bind mount");
        self.undo.push(Undo::Mount(at));
    }

    /// Creates a loop device on a file, starting at this many MiB.
    pub(super) fn loop_device(&mut self, name: &str, skip_mib: u64) -> PathBuf {
        self.loop_device_at(&self.path(name), skip_mib)
    }

    pub(super) fn loop_device_at(&mut self, path: &Path, skip_mib: u64) -> PathBuf {
        let offset = (skip_mib * MIB).to_string();
        let args = ["-f", "--show", "-o", &offset].map(std::ffi::OsStr::new);
        let device = run("losetup", &[&args[..], &[path.as_os_str()]].concat());
        self.undo.push(Undo::Loop(device.clone().into()));
        device.into()
    }

    /// Creates a loop device on another one.
    pub(super) fn loop_device_on_device(&mut self, device: &Path) -> PathBuf {
        self.loop_device_at(device, 0)
    }

    /// Unmounts a directory of the storage.
    pub(super) fn unmount(&mut self, name: &str) {
        let at = self.path(name);
        self.undo.retain(|undo| !matches!(undo, Undo::Mount(known) if *known == at));
        rustix::mount::unmount(&at, UnmountFlags::empty()).expect("it is not in use");
    }

    /// Lazily unmounts a directory of the storage that is still in use.
    pub(super) fn unmount_lazily(&mut self, name: &str) {
        let at = self.path(name);
        self.undo.retain(|undo| !matches!(undo, Undo::Mount(known) if *known == at));
        rustix::mount::unmount(&at, UnmountFlags::DETACH).expect("it is mounted");
    }

    /// Detaches a loop device.
    pub(super) fn detach(&mut self, device: &Path) {
        self.undo.retain(|undo| !matches!(undo, Undo::Loop(known) if known == device));
        run("losetup", &["-d".as_ref(), device.as_os_str()]);
    }

    /// Creates a partition of a device; `start` and `mib` are in MiB.
    pub(super) fn partition(
        &mut self,
        device: &Path,
        number: u32,
        start: u64,
        mib: u64,
    ) -> PathBuf {
        let sectors = |mib: u64| (mib * MIB / 512).to_string();
        let args = [number.to_string(), sectors(start), sectors(mib)];
        let args: Vec<_> = args.iter().map(std::ffi::OsStr::new).collect();
        run("addpart", &[&[device.as_os_str()][..], &args].concat());
        self.undo.push(Undo::Partition(device.to_owned(), number));
        PathBuf::from(format!("{}p{number}", device.display()))
    }

    /// Creates ext4 on an image, mounts it, and returns its loop device.
    pub(super) fn file_system(&mut self, name: &str, at: &str) -> PathBuf {
        run("mkfs.ext4", &["-q".as_ref(), self.path(name).as_os_str()]);
        let device = self.loop_device(name, 0);
        self.mount_device(&device, at);
        device
    }

    /// Mounts the ext4 on a device.
    pub(super) fn mount_device(&mut self, device: &Path, at: &str) {
        self.directory(at);
        let at = self.path(at);
        run("mount", &["-t".as_ref(), "ext4".as_ref(), device.as_os_str(), at.as_os_str()]);
        self.undo.push(Undo::Mount(at));
    }

    /// Mounts an overlay. Returns false if the kernel does not support this.
    pub(super) fn overlay(&mut self, lower: &str, upper: &str, work: &str, at: &str) -> bool {
        let [lower, upper, work] = [lower, upper, work].map(|name| self.path(name));
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            upper.display(),
            work.display()
        );
        self.overlay_with(&options, at)
    }

    /// Mounts an overlay with these options, in which paths may be relative to the storage
    /// directory.
    pub(super) fn overlay_with(&mut self, options: &str, at: &str) -> bool {
        self.directory(at);
        let at = self.path(at);
        let mounted = Command::new("mount")
            .args(["-t", "overlay", "overlay", "-o", options])
            .arg(&at)
            .current_dir(self.directory.path())
            .output()
            .expect("mount runs");
        if !mounted.status.success() {
            skip(format_args!("no overlay can be mounted: {}", text(&mounted.stderr)));
            return false;
        }
        self.undo.push(Undo::Mount(at));
        true
    }

    pub(super) fn serve(&self, name: &'static str, path: &str) -> Target {
        Target::serve(name, &self.path(path))
    }

    pub(super) fn mount(&self, name: &'static str, path: &str) -> Target {
        Target { name, access: Access::Mount, path: self.path(path), read_only: false }
    }
}

impl Drop for TestStorage {
    fn drop(&mut self) {
        for undo in self.undo.drain(..).rev() {
            let undone = match &undo {
                Undo::Mount(at) => rustix::mount::unmount(at, UnmountFlags::DETACH).is_ok(),
                Undo::Loop(device) => Command::new("losetup")
                    .arg("-d")
                    .arg(device)
                    .status()
                    .is_ok_and(|it| it.success()),
                Undo::Partition(device, number) => Command::new("delpart")
                    .arg(device)
                    .arg(number.to_string())
                    .status()
                    .is_ok_and(|it| it.success()),
            };
            // A test that failed may have removed it already.
            assert!(undone || std::thread::panicking(), "a mount or loop device is left behind");
        }
    }
}
