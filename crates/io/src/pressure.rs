//! Memory pressure as the kernel reports it: pressure stall information (PSI),
//! Documentation/accounting/psi.rst of Linux.
//!
//! A threshold is written to a pressure file, and the file then has an exceptional condition
//! (`POLLPRI`) whenever tasks were stalled on memory for longer than that. Two files are watched:
//! that of the whole machine and, if the process is in a cgroup other than the root (version 2),
//! that of the cgroup, whose limit may cause the shortage.

use crate::waker::Waker;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The pressure file of the whole machine.
const MACHINE: &str = "/proc/pressure/memory";
/// Some task stalled for 100 ms of 2 s, or 5 %. The window is the shortest one that the kernel
/// allows to all users.
const TRIGGER: &[u8] = b"some 100000 2000000\0";

/// A source of memory pressure events.
pub trait Pressure: Send {
    /// Waits for `time`, or until `waker` is notified. Returns true if memory was short meanwhile.
    ///
    /// # Errors
    /// If pressure cannot be measured any more.
    fn wait(&mut self, waker: &Waker, time: Duration) -> io::Result<bool>;

    /// Returns the paths of the watched files, for messages.
    fn watched(&self) -> Vec<String>;
}

/// A reason why the kernel does not report pressure, with a remedy. Each message can follow "failed
/// to".
#[derive(Debug, thiserror::Error)]
pub enum PressureError {
    /// The kernel has no pressure stall information.
    #[error(
        "watch {MACHINE}: this kernel has no pressure stall information; boot it with psi=1, or \
         use one built with CONFIG_PSI"
    )]
    Absent,
    /// The kernel refuses access to it.
    #[error("watch {}: {source}; it takes write access to the file, and before Linux 6.5 \
             CAP_SYS_RESOURCE as well", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// Pressure files, each with a trigger.
#[derive(Debug)]
pub struct Psi {
    files: Vec<(PathBuf, File)>,
}

impl Psi {
    /// Opens the pressure files and sets their triggers.
    ///
    /// # Errors
    /// If the trigger of the whole machine cannot be set. A cgroup whose trigger cannot be set is
    /// left out.
    pub fn open() -> Result<Self, PressureError> {
        let mut files = vec![(PathBuf::from(MACHINE), trigger(Path::new(MACHINE))?)];
        if let Some(path) = process_cgroup() {
            match trigger(&path) {
                Ok(file) => files.push((path, file)),
                Err(error) => tracing::info!(%error, "the pressure of the cgroup is not watched"),
            }
        }
        Ok(Psi { files })
    }
}

/// Opens a pressure file and sets its trigger.
fn trigger(path: &Path) -> Result<File, PressureError> {
    let refused = |source: io::Error| match source.raw_os_error() {
        // Without PSI the file does not exist, or cannot be opened.
        Some(libc::ENOENT | libc::EOPNOTSUPP) => PressureError::Absent,
        _ => PressureError::Refused { path: path.to_owned(), source },
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let mut file = options.open(path).map_err(refused)?;
    file.write_all(TRIGGER).map_err(refused)?;
    Ok(file)
}

/// Returns the pressure file of the cgroup of this process, unless that is the root.
fn process_cgroup() -> Option<PathBuf> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    cgroup_file(&groups, &mounts)
}

/// Returns the pressure file of the version 2 group in `groups` (`/proc/PID/cgroup`), below the
/// cgroup mount in `mounts` (`/proc/PID/mounts`).
fn cgroup_file(groups: &str, mounts: &str) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mount = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (mountpoint, kind) = (words.next()?, words.next()?);
        (kind == "cgroup2").then_some(mountpoint)
    })?;
    (!group.is_empty()).then(|| Path::new(mount).join(group).join("memory.pressure"))
}

impl Pressure for Psi {
    fn wait(&mut self, waker: &Waker, time: Duration) -> io::Result<bool> {
        if !waker.prepare_sleep() {
            return Ok(false);
        }
        // A time that does not fit is longer than any wait.
        let timeout = Timespec::try_from(time).ok();
        let mut fds = vec![PollFd::from_borrowed_fd(waker.event(), PollFlags::IN)];
        fds.extend(self.files.iter().map(|(_, file)| PollFd::new(file, PollFlags::PRI)));
        let polled = poll(&mut fds, timeout.as_ref());
        let events: Vec<PollFlags> = fds[1..].iter().map(PollFd::revents).collect();
        drop(fds);
        waker.awake();
        match polled {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // The kernel may remove the cgroup of a file, and its trigger with it.
        let is_gone = |flags: &PollFlags| flags.contains(PollFlags::ERR);
        for index in (0..events.len()).rev().filter(|&index| is_gone(&events[index])) {
            let (path, _) = self.files.remove(index);
            tracing::warn!(path = %path.display(), "the kernel no longer reports memory pressure");
        }
        if self.files.is_empty() {
            return Err(io::Error::other("nothing is watched any more"));
        }
        Ok(events.iter().any(|flags| flags.contains(PollFlags::PRI) && !is_gone(flags)))
    }

    fn watched(&self) -> Vec<String> {
        self.files.iter().map(|(path, _)| path.display().to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "proc /proc proc rw 0 0\n\
                          cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
                          cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";

    #[test]
    fn the_file_of_the_cgroup_is_found_where_it_is_mounted() {
        let found = cgroup_file("4:memory:/x\n0::/system.slice/larder.service\n", MOUNTS);
        let known = "/sys/fs/cgroup/unified/system.slice/larder.service/memory.pressure";
        assert_eq!(found.as_deref(), Some(Path::new(known)));
        assert_eq!(cgroup_file("0::/\n", MOUNTS), None, "the root is the machine");
        assert_eq!(cgroup_file("4:memory:/x\n", MOUNTS), None);
        assert_eq!(cgroup_file("0::/x\n", "proc /proc proc rw 0 0\n"), None);
    }

    #[test]
    fn what_is_no_file_of_pressure_is_refused_with_what_helps() {
        let directory = tempfile::tempdir().expect("a directory");
        let error = trigger(&directory.path().join("none")).expect_err("it is not there");
        assert!(error.to_string().contains("boot it with psi=1"), "{error}");
        let error = trigger(directory.path()).expect_err("a directory");
        assert!(error.to_string().contains("CAP_SYS_RESOURCE"), "{error}");
    }

    #[test]
    fn a_machine_at_rest_is_waited_for_and_a_waker_ends_that() {
        let mut psi = match Psi::open() {
            Ok(psi) => psi,
            Err(error) => {
                larder_testing::skip(error);
                return;
            }
        };
        assert_eq!(psi.watched()[0], MACHINE);
        let waker = Waker::new().expect("a descriptor");
        psi.wait(&waker, Duration::from_millis(10)).expect("the kernel waits");
        larder_core::completion::Wake::wake(&waker);
        let begun = std::time::Instant::now();
        assert!(!psi.wait(&waker, Duration::from_mins(1)).expect("it was notified"));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
