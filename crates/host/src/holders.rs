//! Users of a directory that prevent its unmount: processes with an open file or working directory
//! in it, and loop devices on its files, with their uses.
//!
//! Only root sees the processes of other users; processes that this process may not inspect are
//! left out.

use crate::{mounts, proc, processes};
use std::fmt;
use std::path::{Path, PathBuf};

/// A user of a path below a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A process.
    Process {
        /// Process ID.
        pid: u32,
        /// Command name.
        name: String,
        /// A path below the directory that the process uses.
        path: PathBuf,
    },
    /// A loop device.
    Loop {
        /// The device, as in `/dev/loop0`.
        device: PathBuf,
        /// The backing file.
        path: PathBuf,
        /// Uses of the device: mount points, or `swap`.
        used: Vec<String>,
    },
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Process { pid, name, path } => {
                write!(f, "process {pid} ({name}) uses {}", path.display())
            }
            Holder::Loop { device, path, used } => {
                write!(f, "{} is on {}", device.display(), path.display())?;
                if used.is_empty() { Ok(()) } else { write!(f, ", used as {}", used.join(" and ")) }
            }
        }
    }
}

/// Returns all users of paths below `directory` except this process; loop devices first.
#[must_use]
pub fn holders(directory: &Path) -> Vec<Holder> {
    let mut found = loops(directory);
    found.extend(users(directory));
    found
}

fn users(directory: &Path) -> Vec<Holder> {
    let user = |pid: u32| {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let links = ["cwd", "root", "exe"].map(|link| process.join(link)).into_iter();
        let links = links.chain(proc::entries(process.join("fd")));
        let mut used = links.filter_map(|link| std::fs::read_link(link).ok());
        let path = used.find(|path| path.starts_with(directory))?;
        Some(Holder::Process { pid, name: processes::name(pid).unwrap_or_default(), path })
    };
    let others = processes::pids().into_iter().filter(|&pid| pid != std::process::id());
    others.filter_map(user).collect()
}

fn loops(directory: &Path) -> Vec<Holder> {
    let mut found = Vec::new();
    for device in proc::entries("/sys/block") {
        let Some(path) = proc::read(device.join("loop/backing_file")) else { continue };
        let path = PathBuf::from(path);
        if !path.starts_with(directory) {
            continue;
        }
        let device = Path::new("/dev").join(device.file_name().unwrap_or_default());
        let mut used = mounts::mount_points_of(&device);
        used.extend(is_swap(&device).then(|| "swap".to_owned()));
        found.push(Holder::Loop { device, path, used });
    }
    found.sort_by_key(Holder::to_string);
    found
}

fn is_swap(device: &Path) -> bool {
    let swaps = proc::read("/proc/swaps").unwrap_or_default();
    swaps.lines().any(|line| line.split_whitespace().next().map(Path::new) == Some(device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn who_works_in_a_directory_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        assert_eq!(holders(&path), []);
        let mut child = Command::new("cat")
            .current_dir(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let found = holders(&path);
        drop(child.stdin.take());
        child.wait().unwrap();
        let [Holder::Process { pid, path: used, .. }] = &found[..] else { panic!("{found:?}") };
        assert_eq!((*pid, used), (child.id(), &path));
    }

    #[test]
    fn holders_are_said_in_words() {
        let device = Holder::Loop {
            device: "/dev/loop0".into(),
            path: "/mnt/larder/disk".into(),
            used: vec!["/srv".into(), "swap".into()],
        };
        assert_eq!(device.to_string(), "/dev/loop0 is on /mnt/larder/disk, used as /srv and swap");
        let process = Holder::Process { pid: 7, name: "dd".into(), path: "/mnt/larder".into() };
        assert_eq!(process.to_string(), "process 7 (dd) uses /mnt/larder");
    }
}
