//! I/O counters of processes that the kernel keeps without tracing, and open files of processes.
//!
//! Counters only grow; the activity of an interval is the difference of two readings. A process
//! that ends during a reading is left out, and so are processes whose counters this process may not
//! read.

use crate::disk::Disk;
use crate::foreign_file::{FileIdentity, ForeignFile};
use crate::inspect::{Uninspectable, WAIT_MAX, inspect};
use crate::inspector::Query;
use crate::inspector_client;
use crate::process_files::links;
use crate::process_identity::ProcessIdentity;
use crate::process_links::{Link, LinkPath, Step, threads};
use crate::scan::Scan;
use crate::{proc, process_name};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::iter;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Maximum number of descriptors by which the disks of a process are found.
const FILES_OF_DISKS_MAX: usize = 4096;
/// Number of files of a process that are listed before those of other processes.
const FILES_FAIR: usize = 16;

/// The I/O counters of a process, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessIo {
    /// Process ID.
    pub pid: u32,
    /// Identity of the process: the kernel reuses process IDs.
    pub identity: ProcessIdentity,
    /// Command name, at most 15 bytes.
    pub name: String,
    /// False if the process cannot be inspected now; its counters and memory are then 0.
    pub has_counters: bool,
    /// Calls that read.
    pub read_calls: u64,
    /// Calls that write.
    pub write_calls: u64,
    /// Processor time in clock ticks, as in /proc/stat.
    pub cpu_ticks: u64,
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
    let mut all = Vec::new();
    let read = |pid| move |deadline| Readings::of(pid, deadline);
    Scan::start().inspect_all(Scan::processes(), read, |pid, readings| {
        all.extend(
            ProcessIdentity::of(pid).and_then(|identity| process_io(pid, identity, readings)),
        );
        ControlFlow::Continue(())
    });
    all.sort_unstable_by_key(|process| process.pid);
    all
}

/// Returns the counters of one process, or `None` if it has ended or may not be read.
#[must_use]
pub fn of(pid: u32) -> Option<ProcessIo> {
    let read = move |deadline| Readings::of(pid, deadline).0;
    process_io(pid, ProcessIdentity::of(pid)?, inspect(pid, WAIT_MAX, read))
}

/// Readings of an inspection of a process, which the process can block or delay.
struct Readings {
    /// `None` if the process has ended or may not be read.
    counters: Option<String>,
    cpu_ticks: u64,
    private_bytes: u64,
}

impl Readings {
    /// Returns the readings, and true if they are complete.
    fn of(pid: u32, deadline: Instant) -> (Readings, bool) {
        let counters = proc::read(format!("/proc/{pid}/io"));
        let stat = inspector_client::text(Query::Stat, pid, deadline).ok().flatten();
        let cpu_ticks = stat.as_deref().and_then(cpu_ticks).unwrap_or(0);
        let private_bytes = private_bytes(pid, deadline);
        let is_complete = private_bytes.is_ok();
        (Readings { counters, cpu_ticks, private_bytes: private_bytes.unwrap_or(0) }, is_complete)
    }
}

fn process_io(
    pid: u32,
    identity: ProcessIdentity,
    readings: Result<Readings, Uninspectable>,
) -> Option<ProcessIo> {
    let has_counters = readings.is_ok();
    let unknown = |_| Readings { counters: Some(String::new()), cpu_ticks: 0, private_bytes: 0 };
    let Readings { counters, cpu_ticks, private_bytes } = readings.unwrap_or_else(unknown);
    let text = counters?;
    let count = |name| proc::field(&text, name).unwrap_or(0);
    Some(ProcessIo {
        pid,
        identity,
        name: process_name::of(pid)?,
        has_counters,
        private_bytes,
        cpu_ticks,
        read_calls: count("syscr"),
        write_calls: count("syscw"),
        asked_bytes: count("rchar"),
        given_bytes: count("wchar"),
        disk_read_bytes: count("read_bytes"),
        dirtied_bytes: count("write_bytes"),
    })
}

/// Returns user and system time from the text of /proc/PID/stat. The name, in parentheses, may have
/// any characters.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut field = || fields.next()?.parse::<u64>().ok();
    Some(field()? + field()?)
}

/// Returns the anonymous memory of a process, in bytes. Only a thread that has not ended tells it:
/// the first thread may end before the others.
fn private_bytes(pid: u32, deadline: Instant) -> io::Result<u64> {
    let number = |thread: PathBuf| thread.file_name()?.to_str()?.parse().ok();
    for task in iter::once(pid).chain(threads(pid).filter_map(number)) {
        let status = inspector_client::text(Query::Status, task, deadline)?.unwrap_or_default();
        if let Some(kib) = proc::field(&status, "RssAnon") {
            return Ok(kib.saturating_mul(1024));
        }
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(0)
}

/// Returns the anonymous memory of all processes with their IDs.
pub(crate) fn private_memory() -> Vec<(u32, u64)> {
    let (mut all, mut others) = (Vec::new(), Vec::new());
    for pid in Scan::processes() {
        match inspector_client::trusted_status(pid) {
            None => others.push(pid),
            Some(status) => match proc::field(&status, "RssAnon") {
                Some(kib) => all.push((pid, kib.saturating_mul(1024))),
                // The first thread has ended before others, unless it is a thread of the kernel.
                None if proc::text(&status, "Kthread") != Some("1") => others.push(pid),
                None => {}
            },
        }
    }
    let read = |pid| {
        move |deadline| {
            let found = private_bytes(pid, deadline);
            let is_complete = found.is_ok();
            (found.unwrap_or(0), is_complete)
        }
    };
    Scan::start().inspect_all(others, read, |pid, private_bytes| {
        all.extend(private_bytes.ok().map(|private_bytes| (pid, private_bytes)));
        ControlFlow::Continue(())
    });
    all
}

/// Returns the disk of a file's file system. No path is accessed: other users can choose paths that
/// block or lead elsewhere.
fn disk_of(file: &ForeignFile) -> Option<Disk> {
    Disk::of_device(file.identity.dev).or_else(|| {
        // btrfs uses anonymous device numbers; the mount has the name of a device.
        let source = PathBuf::from(file.mount_here()?.source);
        let is_device = source.parent() == Some(Path::new("/dev"));
        Disk::of(&source).ok().flatten().filter(|_| is_device)
    })
}

/// Returns the whole disks on which a process has files open, or which it has open itself; `None`
/// if that is unknown or the process has too many files.
pub(crate) fn disks_of(pid: u32) -> Option<BTreeSet<String>> {
    let read = move |deadline| {
        let (mut disks, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut open = links(pid, deadline).and_then(Step::Item);
        for link in open.by_ref().take(FILES_OF_DISKS_MAX) {
            if !link.is_descriptor {
                continue;
            }
            if let LinkPath::Known(path) = &link.path
                && !link.file.is_regular
                && path.parent() == Some(Path::new("/dev"))
                && link.file.has_path(path)
            {
                disks.extend(Disk::of(path).ok().flatten().map(|disk| disk.name));
            } else if seen.insert(link.file.identity.dev) {
                disks.extend(disk_of(&link.file).map(|disk| disk.name));
            }
        }
        open.is_complete.then_some(disks)
    };
    inspect(pid, WAIT_MAX, read).ok().flatten()
}

/// A regular file that a process has open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFile {
    /// Identity of the file: another file may take its path.
    pub identity: FileIdentity,
    /// Name and ID of one process.
    pub process: String,
}

/// The regular files that processes have open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenFiles {
    /// Files by their paths.
    pub files: BTreeMap<PathBuf, OpenFile>,
    /// True if more files are open than were asked for.
    pub is_cut: bool,
    /// A clause about processes whose files are missing, since they cannot be inspected.
    pub incomplete: Option<String>,
}

/// Returns at most `max` regular files that processes have open. A process with many files does not
/// keep those of others out.
#[must_use]
pub fn open_files(max: usize) -> OpenFiles {
    let (mut files, mut further) = (BTreeMap::new(), BTreeMap::new());
    let (mut scan, mut is_cut) = (Scan::start(), false);
    let read = |pid| move |deadline| files_of(pid, max, deadline);
    scan.inspect_all(Scan::processes(), read, |pid, paths| {
        let Some(process) = process_name::of(pid) else { return ControlFlow::Continue(()) };
        let mut own = 0;
        for (path, identity) in paths.unwrap_or_default() {
            if files.contains_key(&path) {
                continue;
            }
            let list = if own < FILES_FAIR { &mut files } else { &mut further };
            if list.len() >= max {
                is_cut = true;
                break;
            }
            own += 1;
            let process = format!("{process} ({pid})");
            list.entry(path).or_insert(OpenFile { identity, process });
        }
        ControlFlow::Continue(())
    });
    for (path, file) in further {
        if files.len() < max {
            files.entry(path).or_insert(file);
        } else if !files.contains_key(&path) {
            is_cut = true;
        }
    }
    OpenFiles { files, is_cut, incomplete: scan.describe_incomplete() }
}

/// Returns regular files that a process has open, at least `max` of them if it has as many, and
/// true if its descriptors were all read.
fn files_of(pid: u32, max: usize, deadline: Instant) -> (BTreeMap<PathBuf, FileIdentity>, bool) {
    let mut files = BTreeMap::new();
    let mut open = links(pid, deadline).and_then(open_file);
    for (path, identity) in open.by_ref() {
        files.insert(path, identity);
        if files.len() > max {
            break;
        }
    }
    (files, open.is_complete)
}

/// Returns the path of a regular file that a process has open. The path may lead to another file
/// here: the file may have been removed, or may be in another mount namespace. A path may be too
/// long.
fn open_file(link: Link) -> Step<(PathBuf, FileIdentity)> {
    if !link.is_descriptor || !link.file.is_regular {
        return Step::Nothing;
    }
    match link.path {
        LinkPath::Known(path) if link.file.has_path(&path) => {
            Step::Item((path, link.file.identity))
        }
        LinkPath::TooLong => Step::Unknown,
        LinkPath::Known(_) | LinkPath::Unknown => Step::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign_file::tests::Hider;
    use std::ffi::OsStr;
    use std::io::{Read, Write};
    use std::os::unix::ffi::OsStrExt;
    use std::process::Command;
    use std::time::Duration;

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
        assert!(after.read_calls > before.read_calls && after.write_calls > before.write_calls);
        assert!(after.cpu_ticks >= before.cpu_ticks);
        let open = open_files(100_000);
        assert!(!open.is_cut);
        let process = &open.files.get(file.path()).expect("it is open").process;
        assert!(process.ends_with(&format!("({})", std::process::id())), "{process}");
        let open = open_files(1);
        assert!(open.files.len() == 1 && open.is_cut);
    }

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let stat = "7 (a) 1 2 (b) R 1 1 1 0 -1 4194560 100 0 0 0 30 12 5 6 20 0 1 0 99";
        assert_eq!(cpu_ticks(stat), Some(42));
        assert_eq!(cpu_ticks("7 (a"), None);
    }

    #[test]
    fn a_process_uses_the_disk_of_its_files() {
        let Some(disk) = Disk::of(Path::new(".")).unwrap() else {
            larder_testing::skip("the directory is not on a disk");
            return;
        };
        let named = tempfile::NamedTempFile::new_in(".").unwrap();
        assert!(disks_of(std::process::id()).unwrap().contains(&disk.name), "{disk:?}");
        drop(named);
    }

    #[test]
    fn a_process_that_cannot_be_inspected_is_listed_without_counters() {
        let pid = std::process::id();
        let blocked = crate::inspect::tests::block(pid);
        let known = of(pid).unwrap();
        assert!(!known.has_counters && known.private_bytes == 0 && !known.name.is_empty());
        assert!(all().iter().any(|known| known.pid == pid && !known.has_counters));
        let incomplete = open_files(100_000).incomplete.unwrap();
        assert!(incomplete.starts_with("Larder cannot completely inspect process"), "{incomplete}");
        drop(blocked);
    }

    #[test]
    fn a_path_of_another_mount_namespace_is_not_taken_for_the_file_here() {
        let Some(hider) = Hider::start() else { return };
        let later = Instant::now() + Duration::from_mins(1);
        let (files, _) = files_of(hider.process.id(), 100, later);
        assert!(!files.contains_key(&hider.here), "{files:?}");
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
        assert_eq!(named(b" ").name, "(no name)");
    }
}
