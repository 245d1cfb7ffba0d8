//! I/O counters of processes that the kernel keeps without tracing, and open files of processes.
//!
//! Counters only grow; the activity of an interval is the difference of two readings. A process
//! that ends during a reading is left out, and so are processes whose counters this process may not
//! read.

use crate::proc;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Text for a process whose name is empty.
const NO_NAME: &str = "(no name)";

/// The I/O counters of a process, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessIo {
    /// Process ID.
    pub pid: u32,
    /// Command name, at most 15 bytes.
    pub name: String,
    /// Bytes returned by read calls, from the cache or from a disk; access through mappings does
    /// not count.
    pub asked_bytes: u64,
    /// Bytes passed to write calls.
    pub given_bytes: u64,
    /// Bytes that the kernel read from disks for the process.
    pub disk_read_bytes: u64,
    /// Bytes that the process dirtied in the page cache or wrote directly.
    pub dirtied_bytes: u64,
    /// Anonymous memory in use: neither file pages nor shared memory.
    pub private_bytes: u64,
}

/// Returns the counters of all readable processes, ordered by process ID.
#[must_use]
pub fn all() -> Vec<ProcessIo> {
    pids().into_iter().filter_map(of).collect()
}

pub(crate) fn pids() -> Vec<u32> {
    let mut pids: Vec<u32> = proc::names("/proc").filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// Returns the counters of one process, or `None` if it has ended or may not be read.
#[must_use]
pub fn of(pid: u32) -> Option<ProcessIo> {
    let io = proc::read(format!("/proc/{pid}/io"))?;
    let status = proc::read(format!("/proc/{pid}/status")).unwrap_or_default();
    let count = |name| proc::field(&io, name).unwrap_or(0);
    Some(ProcessIo {
        pid,
        name: name(pid)?,
        asked_bytes: count("rchar"),
        given_bytes: count("wchar"),
        disk_read_bytes: count("read_bytes"),
        dirtied_bytes: count("write_bytes"),
        private_bytes: proc::field(&status, "RssAnon").unwrap_or(0).saturating_mul(1024),
    })
}

/// Returns the command name of a process, at most 15 bytes before the conversion to UTF-8; `None`
/// if the process has ended.
pub(crate) fn name(pid: u32) -> Option<String> {
    let text = proc::read_lossy(format!("/proc/{pid}/comm")).ok()?;
    let name = text.trim();
    // A process may choose an empty name, but is not to hide by it.
    Some(if name.is_empty() { NO_NAME } else { name }.to_owned())
}

/// Returns the paths of the files with an inode number that a process maps; on btrfs their device
/// numbers differ from those of stat(2).
pub(crate) fn mapped_files(pid: u32, inode: u64) -> Vec<PathBuf> {
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let inode = inode.to_string();
    // Columns: address perms offset dev inode path.
    let path = |line: &[u8]| {
        let mut columns = line.split(|byte| *byte == b' ').filter(|column| !column.is_empty());
        let is_wanted = columns.nth(4) == Some(inode.as_bytes());
        let at = line.iter().position(|byte| *byte == b'/').filter(|_| is_wanted)?;
        Some(PathBuf::from(OsStr::from_bytes(&line[at..])))
    };
    maps.split(|byte| *byte == b'\n').filter_map(path).collect()
}

/// Returns the regular files that processes have open, by path, with the name and ID of one process
/// each; at most `max` files.
#[must_use]
pub fn open_files(max: usize) -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    for pid in pids() {
        let Some(process) = name(pid) else { continue };
        for descriptor in proc::entries(format!("/proc/{pid}/fd")) {
            if files.len() >= max {
                return files;
            }
            let Ok(path) = std::fs::read_link(descriptor) else { continue };
            // Descriptors without a path link to a word such as socket:[1]; a deleted file has no
            // inode at its path.
            if path.is_absolute() && !files.contains_key(&path) && path.is_file() {
                files.insert(path, format!("{process} ({pid})"));
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::Command;

    #[test]
    fn what_this_process_reads_and_has_open_is_told() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let own_counters =
            || all().into_iter().find(|it| it.pid == std::process::id()).expect("we live");
        let before = own_counters();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        let mut bytes = Vec::new();
        file.reopen().unwrap().read_to_end(&mut bytes).unwrap();
        let after = own_counters();
        assert!(after.asked_bytes - before.asked_bytes >= 1 << 20);
        assert!(after.given_bytes - before.given_bytes >= 1 << 20);
        assert!(after.private_bytes > 0 && !after.name.is_empty());
        let open = open_files(100_000);
        let process = open.get(file.path()).expect("it is open");
        assert!(process.ends_with(&format!("({})", std::process::id())), "{process}");
        assert!(open_files(1).len() <= 1);
    }

    #[test]
    fn no_process_hides_by_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let named = |name: &[u8]| {
            let program = directory.path().join(OsStr::from_bytes(name));
            std::fs::copy("/bin/sleep", &program).unwrap();
            let mut process = Command::new(&program).arg("1000").spawn().unwrap();
            let known = all().into_iter().find(|known| known.pid == process.id());
            process.kill().unwrap();
            process.wait().unwrap();
            known.expect("it runs")
        };
        let hidden = named(b"h\xffdden");
        assert_eq!(hidden.name, "h\u{fffd}dden");
        assert_eq!(named(b" ").name, NO_NAME);
    }
}
