//! I/O counters of processes that the kernel keeps without tracing, and open files of processes.
//!
//! Counters only grow; the activity of an interval is the difference of two readings. A process
//! that ends during a reading is left out, and so are processes whose counters this process may not
//! read.

use crate::{proc, syscall};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Text for a process whose name is empty.
const NO_NAME: &str = "(no name)";
/// Maximum length of the list of mappings of a process that is read, in bytes: a process may have
/// 65,530 mappings with long paths, hundreds of MB of text.
const MAPS_BYTES_MAX: u64 = 8 << 20;
/// Number of files of a process that are listed before those of other processes.
const FILES_FAIR: usize = 16;

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
    let count = |name| proc::field(&io, name).unwrap_or(0);
    Some(ProcessIo {
        pid,
        name: name(pid)?,
        private_bytes: private_bytes(pid),
        asked_bytes: count("rchar"),
        given_bytes: count("wchar"),
        disk_read_bytes: count("read_bytes"),
        dirtied_bytes: count("write_bytes"),
    })
}

/// Returns the anonymous memory of a process, in bytes. Only a thread that has not ended tells it:
/// the first thread may end before the others.
fn private_bytes(pid: u32) -> u64 {
    let of = |directory: PathBuf| proc::field(&proc::read(directory.join("status"))?, "RssAnon");
    let first = of(format!("/proc/{pid}").into());
    let kib = first.or_else(|| threads(pid).find_map(of)).unwrap_or(0);
    kib.saturating_mul(1024)
}

/// Returns the directories of the threads of a process.
fn threads(pid: u32) -> impl Iterator<Item = PathBuf> {
    proc::entries(format!("/proc/{pid}/task"))
}

/// Returns the links in procfs to the files that a process has open, its working, root and program
/// directories or files. A thread may have descriptors and directories of its own, and the first
/// thread may have ended; threads that share those of the first one are left out.
pub(crate) fn links(pid: u32) -> impl Iterator<Item = PathBuf> {
    let mut inspected: Option<u32> = None;
    threads(pid).flat_map(move |directory| {
        let thread = directory.file_name().and_then(|name| name.to_str()?.parse().ok());
        let shares = |kind| {
            let both = inspected.zip(thread);
            both.is_some_and(|(one, other)| syscall::share(one, other, kind))
        };
        let shares = [syscall::FILES, syscall::DIRECTORIES].map(shares);
        if shares != [true; 2] {
            inspected = thread;
        }
        let names: &[&str] = if shares[1] { &[] } else { &["cwd", "root", "exe"] };
        let descriptors = (!shares[0]).then(|| proc::entries(directory.join("fd")));
        let places = names.iter().map(move |name| directory.join(name));
        places.chain(descriptors.into_iter().flatten())
    })
}

/// Returns the command name of a process or thread, at most 15 bytes before the conversion to
/// UTF-8; `None` if the process has ended.
pub(crate) fn name(pid: u32) -> Option<String> {
    proc::read_lossy(format!("/proc/{pid}/comm")).ok().map(|name| shown_name(&name).to_owned())
}

/// Returns a command name as it is shown: a process may choose an empty name, but is not to hide by
/// it.
pub(crate) fn shown_name(name: &str) -> &str {
    let name = name.trim();
    if name.is_empty() { NO_NAME } else { name }
}

/// Returns the paths of the files that a process maps, each with its inode number, up to
/// [`MAPS_BYTES_MAX`]; on btrfs their device numbers differ from those of stat(2).
pub(crate) fn mapped_files(pid: u32) -> impl Iterator<Item = (u64, PathBuf)> {
    let maps = std::fs::File::open(format!("/proc/{pid}/maps")).ok();
    let maps = maps.map(|maps| BufReader::new(maps.take(MAPS_BYTES_MAX)).split(b'\n'));
    maps.into_iter().flatten().map_while(io::Result::ok).filter_map(|line| {
        // Columns: address perms offset dev inode path.
        let mut columns = line.split(|byte| *byte == b' ').filter(|column| !column.is_empty());
        let inode = str::from_utf8(columns.nth(4)?).ok()?.parse().ok()?;
        let at = line.iter().position(|byte| *byte == b'/')?;
        Some((inode, PathBuf::from(OsStr::from_bytes(&line[at..]))))
    })
}

/// Returns the regular files that processes have open, by path, with the name and ID of one process
/// each, and true if these are all; at most `max` files. A process with many files does not keep
/// those of others out.
#[must_use]
pub fn open_files(max: usize) -> (BTreeMap<PathBuf, String>, bool) {
    let (mut files, mut further) = (BTreeMap::new(), BTreeMap::new());
    let mut is_complete = true;
    for pid in pids() {
        let Some(process) = name(pid) else { continue };
        let mut own = 0;
        for path in links(pid).filter_map(|link| open_file(&link)) {
            if files.contains_key(&path) {
                continue;
            }
            let list = if own < FILES_FAIR { &mut files } else { &mut further };
            if list.len() >= max {
                is_complete = false;
                break;
            }
            own += 1;
            list.entry(path).or_insert_with(|| format!("{process} ({pid})"));
        }
    }
    for (path, process) in further {
        if files.len() < max {
            files.entry(path).or_insert(process);
        } else if !files.contains_key(&path) {
            is_complete = false;
        }
    }
    (files, is_complete)
}

/// Returns the regular file to which a link in a directory of descriptors leads.
fn open_file(link: &Path) -> Option<PathBuf> {
    let is_descriptor = link.parent().is_some_and(|parent| parent.ends_with("fd"));
    // Descriptors without a path link to a word such as socket:[1]; a deleted file has no inode at
    // its path.
    let path = std::fs::read_link(link).ok().filter(|_| is_descriptor)?;
    (path.is_absolute() && path.is_file()).then_some(path)
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
        let (open, is_complete) = open_files(100_000);
        assert!(is_complete);
        let process = open.get(file.path()).expect("it is open");
        assert!(process.ends_with(&format!("({})", std::process::id())), "{process}");
        let (open, is_complete) = open_files(1);
        assert!(open.len() == 1 && !is_complete);
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
