//! A Samba server on the loopback interface, mounted with the SMB client of the kernel if it has
//! one, else with smbnetfs over FUSE.

use super::rig::{tool, undo, until};
use larder_host::mounts::Mount;
use larder_testing::{Cleanup, find_tool, has_tool, is_root, skip};
use rustix::process::{Pid, Signal, kill_process_group};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Unmounts `$1`, ends the process group `$2` and removes the directory `$3`.
const END: &str = "umount \"$1\" || umount --lazy \"$1\"; kill -s TERM -- \"-$2\"
rm -rf --one-file-system -- \"$3\"";

/// A share that is served and mounted until dropped or until the test process dies.
pub(crate) struct Samba {
    server: Child,
    /// The server admits every client as root, so it must not outlive the test.
    cleanup: Cleanup,
    /// Path of the share in the mounted file system.
    pub(crate) share: PathBuf,
    /// Directory that the server exports.
    pub(crate) exported: PathBuf,
    point: Option<PathBuf>,
    _directory: TempDir,
}

impl Samba {
    /// Starts the server and mounts its share. Reports a skip and returns `None` if this machine
    /// cannot.
    pub(crate) fn mounted() -> Option<Samba> {
        if !is_root() || !has_tool("smbd") {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let subdirectory = |name: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path
        };
        let [exported, mount_point, home, state] =
            ["kept", "seen", "home", "state"].map(subdirectory);
        // A port that was free a moment ago: Samba does not take a socket from its parent.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = directory.path().join("smb.conf");
        std::fs::write(&config, settings(port, &exported, &state)).unwrap();
        let mut command = Command::new("smbd");
        command.arg(format!("--configfile={}", config.display()));
        command.args(["--foreground", "--no-process-group"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // When smbd exits, it ends its whole process group, which must not be the group of the
        // test.
        command.process_group(0);
        let server = command.spawn().unwrap();
        let (point, group) = (mount_point.to_str().unwrap(), server.id().to_string());
        let cleanup = Cleanup::with(END, &[point, &group, directory.path().to_str().unwrap()]);
        until("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let share = PathBuf::new();
        let mut samba =
            Samba { server, cleanup, share, exported, point: None, _directory: directory };
        // Set before the mount, so that a test that fails during the mount unmounts as well.
        samba.point = Some(mount_point.clone());
        samba.share = mount(&mount_point, &home, &config, port)?;
        Some(samba)
    }
}

impl Drop for Samba {
    fn drop(&mut self) {
        if let Some(point) = &self.point {
            undo("umount", &[point.to_str().unwrap()]);
        }
        // Ends the server and its children, which are in its process group.
        kill_process_group(Pid::from_child(&self.server), Signal::TERM).unwrap();
        self.server.wait().unwrap();
        self.cleanup.cancel();
    }
}

fn settings(port: u16, exported: &Path, state: &Path) -> String {
    let state = state.display();
    let directories = ["pid", "lock", "state", "cache", "private", "ncalrpc"]
        .map(|option| {
            let kind = if option == "private" || option == "ncalrpc" { "dir" } else { "directory" };
            format!("{option} {kind} = {state}\n")
        })
        .concat();
    format!(
        "[global]\nserver role = standalone server\ninterfaces = lo\nbind interfaces only = yes\n\
         smb ports = {port}\ndisable netbios = yes\nmap to guest = Bad User\nguest account = root\n\
         load printers = no\ndisable spoolss = yes\nlog file = {state}/log\n{directories}\
         [share]\npath = {}\nread only = no\nguest ok = yes\n",
        exported.display()
    )
}

/// Mounts the share and returns its path.
fn mount(point: &Path, home: &Path, config: &Path, port: u16) -> Option<PathBuf> {
    let shown = point.to_str().unwrap();
    let known = std::fs::read_to_string("/proc/filesystems").unwrap();
    if known.lines().any(|line| line.ends_with("\tcifs")) && find_tool("mount.cifs").is_some() {
        let options = format!("port={port},guest,vers=3.0");
        tool("mount", &["-t", "cifs", "//127.0.0.1/share", shown, "-o", &options])?;
        return Some(point.to_path_buf());
    }
    // Without an SMB client in the kernel, smbnetfs mounts the share.
    if !has_tool("smbnetfs") || !has_tool("fusermount3") {
        return None;
    }
    let directory = home.join(".smb");
    std::fs::create_dir(&directory).unwrap();
    std::fs::copy(config, directory.join("smb.conf")).unwrap();
    // smbnetfs reports this free space and does not query the server.
    let options = directory.join("smbnetfs.conf");
    let hosts = format!("host 127.0.0.1:{port} visible=true\n");
    std::fs::write(directory.join("smbnetfs.host"), hosts).unwrap();
    std::fs::write(directory.join("smbnetfs.auth"), "auth \"guest\" \"\"\n").unwrap();
    let text = "free_space_size 1000000\nsmb_query_browsers \"false\"\n\
                include \"smbnetfs.auth\"\ninclude \"smbnetfs.host\"\n";
    std::fs::write(&options, text).unwrap();
    // smbnetfs reads passwords from these files and rejects files that other users can read.
    for name in ["smbnetfs.conf", "smbnetfs.host", "smbnetfs.auth"] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(directory.join(name), mode).unwrap();
    }
    let mut command = Command::new("smbnetfs");
    command.arg(point).arg("-o").arg(format!("config={}", options.display())).env("HOME", home);
    let output = command.output().unwrap();
    if !output.status.success() {
        skip(format_args!("smbnetfs: {}", String::from_utf8_lossy(&output.stderr).trim()));
        return None;
    }
    let share = point.join(format!("127.0.0.1:{port}")).join("share");
    until("the share is seen", || share.is_dir());
    assert_eq!(Mount::of(&share).unwrap().fs_type, "fuse.smbnetfs");
    Some(share)
}
