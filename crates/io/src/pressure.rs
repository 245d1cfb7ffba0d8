//! Memory pressure as the kernel tells it: pressure stall information (PSI), Documentation/
//! accounting/psi.rst of Linux.
//!
//! A threshold is written to a file of pressure, and the file then has an exceptional condition
//! (`POLLPRI`) whenever tasks were stalled for want of memory for longer than that. Watched are the
//! file of the whole machine and, where the process is in a cgroup of its own (version 2), that of
//! the cgroup, whose limit may be what is short.

use crate::waker::Waker;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::time::Timespec;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file of the whole machine.
const MACHINE: &str = "/proc/pressure/memory";
/// Some task stalled for 100 ms of 2 s, or 5 %. The window is the shortest that the kernel lets
/// everybody have.
const TRIGGER: &[u8] = b"some 100000 2000000\0";

/// Where it is told that memory is short.
pub trait Pressure: Send {
    /// Waits for `time`, or until `waker` is notified; whether memory was short meanwhile.
    ///
    /// # Errors
    /// If nothing can be told any more.
    fn wait(&mut self, waker: &Waker, time: Duration) -> io::Result<bool>;

    /// What is watched, for people.
    fn watched(&self) -> Vec<String>;
}

/// Why the kernel does not tell: a sentence that can follow "failed to", with what helps.
#[derive(Debug, thiserror::Error)]
pub enum PressureError {
    /// The kernel has no such thing.
    #[error(
        "watch {MACHINE}: this kernel has no pressure stall information; boot it with psi=1, or \
         use one built with CONFIG_PSI"
    )]
    Absent,
    /// It has, but does not let us.
    #[error("watch {}: {source}; it takes write access to the file, and before Linux 6.5 \
             CAP_SYS_RESOURCE as well", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Files of pressure with a trigger each.
#[derive(Debug)]
pub struct Psi {
    files: Vec<(PathBuf, File)>,
}

impl Psi {
    /// Sets the triggers.
    ///
    /// # Errors
    /// If that of the whole machine cannot be set. One of a cgroup is left out then.
    pub fn open() -> Result<Self, PressureError> {
        let mut files = vec![(PathBuf::from(MACHINE), trigger(Path::new(MACHINE))?)];
        if let Some(path) = own_cgroup() {
            match trigger(&path) {
                Ok(file) => files.push((path, file)),
                Err(error) => tracing::info!(%error, "the pressure of the cgroup is not watched"),
            }
        }
        Ok(Psi { files })
    }
}

/// A file with a trigger set.
fn trigger(path: &Path) -> Result<File, PressureError> {
    let refused = |source: io::Error| match source.raw_os_error() {
        // Without PSI the file is not there, or cannot be opened.
        Some(libc::ENOENT | libc::EOPNOTSUPP) => PressureError::Absent,
        _ => PressureError::Refused { path: path.to_owned(), source },
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let mut file = options.open(path).map_err(refused)?;
    file.write_all(TRIGGER).map_err(refused)?;
    Ok(file)
}

/// The file of the cgroup that this process is in, unless that is the root.
fn own_cgroup() -> Option<PathBuf> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    cgroup_file(&groups, &mounts)
}

/// The file of pressure of the group of version 2 in `groups` (`/proc/PID/cgroup`), where `mounts`
/// (`/proc/PID/mounts`) say that the tree is.
fn cgroup_file(groups: &str, mounts: &str) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mount = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind) = (words.next()?, words.next()?);
        (kind == "cgroup2").then_some(place)
    })?;
    (!group.is_empty()).then(|| Path::new(mount).join(group).join("memory.pressure"))
}

impl Pressure for Psi {
    fn wait(&mut self, waker: &Waker, time: Duration) -> io::Result<bool> {
        if !waker.prepare_sleep() {
            return Ok(false);
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        let mut fds: Vec<PollFd<'_>> = vec![of(waker.event(), PollFlags::IN)];
        fds.extend(self.files.iter().map(|(_, file)| of(file.as_fd(), PollFlags::PRI)));
        let polled = poll(&mut fds, Some(&timeout));
        let told: Vec<PollFlags> = fds[1..].iter().map(PollFd::revents).collect();
        drop(fds);
        waker.awake();
        match polled {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // The cgroup of a file may go, and its trigger with it.
        let is_gone = |flags: &PollFlags| flags.contains(PollFlags::ERR);
        for place in (0..told.len()).rev().filter(|&place| is_gone(&told[place])) {
            let (path, _) = self.files.remove(place);
            tracing::warn!(path = %path.display(), "the pressure of memory is not told any more");
        }
        if self.files.is_empty() {
            return Err(io::Error::other("nothing is watched any more"));
        }
        Ok(told.iter().any(|flags| flags.contains(PollFlags::PRI) && !is_gone(flags)))
    }

    fn watched(&self) -> Vec<String> {
        self.files.iter().map(|(path, _)| path.display().to_string()).collect()
    }
}

fn of(fd: BorrowedFd<'_>, flags: PollFlags) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, flags)
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
        larder_core::completion::Notify::notify(&waker);
        let begun = std::time::Instant::now();
        assert!(!psi.wait(&waker, Duration::from_mins(1)).expect("it was notified"));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
