//! A real file server on the loopback interface: Samba, mounted with the kernel's client where
//! there is one, else with smbnetfs over FUSE.

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

/// A share that is served and mounted until dropped, or until the test process dies.
pub(crate) struct Samba {
    server: Child,
    /// The server admits every client as root, so it must not outlive the test.
    cleanup: Cleanup,
    /// Where the mounted share is seen, and where the server keeps it.
    pub(crate) seen: PathBuf,
    pub(crate) kept: PathBuf,
    point: Option<PathBuf>,
    _directory: TempDir,
}

impl Samba {
    /// Nothing where this machine cannot: then why was printed.
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
        let [kept, seen_at, home, state] = ["kept", "seen", "home", "state"].map(subdirectory);
        // A port that was free a moment ago; Samba takes no socket from outside.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = directory.path().join("smb.conf");
        std::fs::write(&config, settings(port, &kept, &state)).unwrap();
        let mut command = Command::new("smbd");
        command.arg(format!("--configfile={}", config.display()));
        command.args(["--foreground", "--no-process-group"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // When it ends it ends its whole process group, which must not be ours.
        command.process_group(0);
        let server = command.spawn().unwrap();
        let (point, group) = (seen_at.to_str().unwrap(), server.id().to_string());
        let cleanup = Cleanup::with(END, &[point, &group, directory.path().to_str().unwrap()]);
        until("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let seen = PathBuf::new();
        let mut samba = Samba { server, cleanup, seen, kept, point: None, _directory: directory };
        // Before the mount: a test that fails during it has to unmount as well.
        samba.point = Some(seen_at.clone());
        samba.seen = mount(&seen_at, &home, &config, port)?;
        Some(samba)
    }
}

impl Drop for Samba {
    fn drop(&mut self) {
        if let Some(point) = &self.point {
            undo("umount", &[point.to_str().unwrap()]);
        }
        // It and its children, which are in its group.
        kill_process_group(Pid::from_child(&self.server), Signal::TERM).unwrap();
        self.server.wait().unwrap();
        self.cleanup.cancel();
    }
}

fn settings(port: u16, kept: &Path, state: &Path) -> String {
    let state = state.display();
    let directories = ["pid", "lock", "state", "cache", "private", "ncalrpc"]
        .map(|what| {
            let kind = if what == "private" || what == "ncalrpc" { "dir" } else { "directory" };
            format!("{what} {kind} = {state}\n")
        })
        .concat();
    format!(
        "[global]\nserver role = standalone server\ninterfaces = lo\nbind interfaces only = yes\n\
         smb ports = {port}\ndisable netbios = yes\nmap to guest = Bad User\nguest account = root\n\
         load printers = no\ndisable spoolss = yes\nlog file = {state}/log\n{directories}\
         [share]\npath = {}\nread only = no\nguest ok = yes\n",
        kept.display()
    )
}

/// Mounts the share; where it is seen.
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
    // Pages that are said to be free; the server is not asked.
    let options = directory.join("smbnetfs.conf");
    let hosts = format!("host 127.0.0.1:{port} visible=true\n");
    std::fs::write(directory.join("smbnetfs.host"), hosts).unwrap();
    std::fs::write(directory.join("smbnetfs.auth"), "auth \"guest\" \"\"\n").unwrap();
    let text = "free_space_size 1000000\nsmb_query_browsers \"false\"\n\
                include \"smbnetfs.auth\"\ninclude \"smbnetfs.host\"\n";
    std::fs::write(&options, text).unwrap();
    // It reads passwords from these files and insists that nobody else can.
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
    let seen = point.join(format!("127.0.0.1:{port}")).join("share");
    until("the share is seen", || seen.is_dir());
    assert_eq!(Mount::of(&seen).unwrap().fs_type, "fuse.smbnetfs");
    Some(seen)
}
