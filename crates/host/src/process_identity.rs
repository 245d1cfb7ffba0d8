//! Identities of processes, which the processes cannot choose.

use rustix::fs::{fstat, fstatfs};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::unix::fs::MetadataExt;

/// Magic number of pidfs (include/uapi/linux/magic.h).
const PIDFS: i64 = 0x5049_4446;

/// A process: the kernel reuses its PID, but not its identity.
///
/// It is the inode number of a pidfd. Before Linux 6.9 it is that of /proc/PID, of which a process
/// may get a second one when memory is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessIdentity(u64);

impl ProcessIdentity {
    /// Returns the identity of a process; `None` if it has ended.
    pub(crate) fn of(pid: u32) -> Option<ProcessIdentity> {
        let process = Pid::from_raw(i32::try_from(pid).ok()?)?;
        let by_pidfd = || {
            let pidfd = pidfd_open(process, PidfdFlags::empty()).ok()?;
            let is_unique =
                fstatfs(&pidfd).is_ok_and(|found| i128::from(found.f_type) == PIDFS.into());
            if is_unique { fstat(&pidfd).ok().map(|found| found.st_ino) } else { None }
        };
        let by_directory = || Some(std::fs::metadata(format!("/proc/{pid}")).ok()?.ino());
        by_pidfd().or_else(by_directory).map(ProcessIdentity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_one_identity() {
        let identity = ProcessIdentity::of(std::process::id());
        assert!(identity.is_some() && identity == ProcessIdentity::of(std::process::id()));
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let of_child = ProcessIdentity::of(child.id());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(of_child.is_some() && of_child != identity);
        assert_eq!(ProcessIdentity::of(u32::MAX), None);
    }
}
