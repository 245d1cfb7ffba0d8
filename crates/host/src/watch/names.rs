//! Names of files: translation of device and inode number into a path.
//!
//! The sources, in order: earlier results; the file itself by its number ([`FilesByNumber`]); the
//! descriptors and mappings of the process that uses it; finally the directories of the file
//! system. Invariant: a reported path is one that the kernel itself names, never a guess.

use super::Map;
use super::accounting::BLOCK_DEVICES;
use super::event::Key;
use super::file_numbers::{FilesByNumber, without_mark};
use super::homes;
use super::lookup::FileId;
use crate::foreign_file::ForeignFile;
use crate::process_files::{links, mapped_files};
use crate::process_links::{Link, LinkPath};
use crate::scan::TimeBudget;
use crate::tracefs::now_ns;
use crate::{device, mounts, proc};
use std::collections::HashSet;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum number of attempts per file; processes that have it open start and end.
const TRIES_MAX: u8 = 3;
/// Maximum number of descriptors of a process to inspect for one file.
const DESCRIPTORS_MAX: usize = 4096;
/// Maximum time in each second of searches in the descriptors and mappings of the processes of a
/// user, and of all users but root: a process may have many, so that each search takes long.
const USER_TIME_MAX: Duration = Duration::from_millis(100);
const TIME_MAX: Duration = Duration::from_millis(300);
/// Maximum number of directory entries to read in one walk.
const ENTRIES_MAX: usize = 300_000;

#[derive(Debug)]
pub(crate) struct Names {
    /// Paths, with the time at which they were found.
    known: Map<FileId, (PathBuf, u64)>,
    tries: Map<FileId, u8>,
    walked: HashSet<FileId>,
    numbers: FilesByNumber,
    /// Time of the searches in the descriptors and mappings of processes.
    budget: TimeBudget,
}

impl Default for Names {
    fn default() -> Self {
        Names {
            known: Map::default(),
            tries: Map::default(),
            walked: HashSet::default(),
            numbers: FilesByNumber::default(),
            budget: TimeBudget::new(USER_TIME_MAX, TIME_MAX),
        }
    }
}

impl Names {
    /// Returns the path of a file, if it is known.
    pub(crate) fn get(&self, file: FileId) -> Option<&Path> {
        self.known.get(&file).map(|(path, _)| path.as_path())
    }

    /// Searches for the path of a file that a process uses, unless it is known or the attempts are
    /// exhausted.
    pub(crate) fn find(&mut self, file: FileId, key: Key, pid: u32) {
        if self.known.contains_key(&file) {
            return;
        }
        let tries = self.tries.entry(file).or_default();
        if *tries >= TRIES_MAX {
            return;
        }
        *tries += 1;
        if let Some(path) = self.look_up(key, pid) {
            self.known.insert(file, (path, now_ns()));
            self.tries.remove(&file);
        }
    }

    /// Processes the removal of a file: a path found after that time belongs to the new file with
    /// its number.
    pub(crate) fn file_ended(&mut self, file: FileId, when_ns: u64) {
        self.tries.remove(&file);
        if self.known.get(&file).is_some_and(|(_, found_ns)| *found_ns >= when_ns) {
            self.known.remove(&file);
        }
    }

    /// Searches for files by inode number below a directory, on its file system only, and removes
    /// the ones found from `wanted`. It ends at `end`. This serves file systems that cannot open a
    /// file by number.
    pub(crate) fn walk(&mut self, root: &Path, wanted: &mut Map<u64, FileId>, end: Instant) {
        let Ok((opened_root, _)) = ForeignFile::open(root) else { return };
        // Not even an open is safe: a network file system without an answering server would block
        // it forever.
        let nested_mounts = mounts::mount_points_below(root);
        let (mut directories, mut seen) = (vec![root.to_path_buf()], 0);
        while let Some(directory) = directories.pop() {
            // A user may put a link to another file system in the place of a directory, or move a
            // mount into the path of one.
            let below = directory.strip_prefix(root).unwrap_or(&directory);
            let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
            let Ok((opened, _)) = ForeignFile::open_below(&opened_root, below) else { continue };
            let Ok(entries) = std::fs::read_dir(proc::descriptor(&opened)) else { continue };
            for entry in entries.flatten() {
                seen += 1;
                if wanted.is_empty() || seen > ENTRIES_MAX || Instant::now() >= end {
                    return;
                }
                let Ok(kind) = entry.file_type() else { continue };
                let path = directory.join(entry.file_name());
                if kind.is_dir() {
                    if !nested_mounts.contains(&path) {
                        directories.push(path);
                    }
                } else if let Some(file) = wanted.remove(&entry.ino()) {
                    self.known.insert(file, (path, now_ns()));
                }
            }
        }
    }

    /// Returns true if a file's name is unknown and no walk has searched for it; the call marks it
    /// as searched.
    pub(crate) fn needs_walk(&mut self, file: FileId) -> bool {
        !self.known.contains_key(&file) && self.walked.insert(file)
    }

    /// Drops the cached mounts, so that later mounts are found.
    pub(crate) fn forget_homes(&mut self) {
        self.numbers.forget();
    }

    /// Returns the path of a file that a process has open or mapped.
    fn of_process(&mut self, key: Key, pid: u32) -> Option<PathBuf> {
        self.budget.inspect(pid, move |deadline| in_use(key, pid, deadline)).ok()?
    }

    fn look_up(&mut self, key: Key, pid: u32) -> Option<PathBuf> {
        if key.dev == BLOCK_DEVICES {
            return block_device(key.ino);
        }
        self.numbers.path(key).or_else(|| self.of_process(key, pid))
    }
}

fn block_device(ino: u64) -> Option<PathBuf> {
    let text = proc::read(device::in_sysfs(u32::try_from(ino).ok()?).join("uevent"))?;
    let name = text.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    Some(Path::new("/dev").join(name))
}

fn in_use(key: Key, pid: u32, deadline: Instant) -> Option<PathBuf> {
    let open = links(pid, deadline).take(DESCRIPTORS_MAX).find_map(|link| path_behind(key, link));
    open.or_else(|| {
        let mapped = mapped_files(pid, deadline).filter(|file| file.ino == key.ino);
        mapped
            .map(|file| file.path)
            .find(|path| ForeignFile::open(path).is_ok_and(|(_, found)| is_same(key, &found)))
    })
}

fn is_same(key: Key, file: &ForeignFile) -> bool {
    file.identity.ino == key.ino && homes::is_on(key.dev, file)
}

/// Returns the path of a file that a process uses, if it is this file. The path may be one of
/// another mount namespace: it must name the file here. That of a removed file names none, and must
/// be one of a mount of this namespace.
fn path_behind(key: Key, link: Link) -> Option<PathBuf> {
    let file = link.file;
    let LinkPath::Known(path) = link.path else { return None };
    if file.identity.ino != key.ino {
        return None;
    }
    if let Ok((_, found)) = ForeignFile::open(&path)
        && found.identity == file.identity
    {
        return is_same(key, &found).then_some(path);
    }
    let is_removed = file.links == 0 && is_same(key, &file) && file.mount_here().is_some();
    is_removed.then(|| without_mark(path, file.links))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign_file::tests::Hider;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_path_of_another_mount_namespace_names_no_file_here() {
        let Some(hider) = Hider::start() else { return };
        let file = ForeignFile::open(&hider.other).unwrap().1.identity;
        let key = Key { dev: file.dev, ino: file.ino };
        assert_eq!(Names::default().of_process(key, hider.process.id()), None);
    }

    #[test]
    fn a_file_that_we_have_open_or_mapped_is_found_by_its_number() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![1; 8192]).unwrap();
        let found = file.as_file().metadata().unwrap();
        let dev = device::from_stat(found.dev());
        let key = Key { dev, ino: found.ino() };
        let own_pid = std::process::id();
        assert_eq!(Names::default().of_process(key, own_pid).as_deref(), Some(file.path()));
        let mut names = Names::default();
        names.find(3, key, own_pid);
        assert_eq!(names.get(3), Some(file.path()));
        let no_file = Key { dev, ino: u64::MAX };
        names.find(4, no_file, own_pid);
        assert_eq!(names.get(4), None);
        names.budget = TimeBudget::new(Duration::ZERO, Duration::ZERO);
        assert_eq!(names.of_process(key, own_pid), None);
    }

    #[test]
    fn a_walk_finds_files_by_their_inodes_and_once() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("a/b")).unwrap();
        let path = directory.path().join("a/b/file");
        std::fs::write(&path, "x").unwrap();
        let mut names = Names::default();
        assert!(names.needs_walk(5) && !names.needs_walk(5), "a walk is enough");
        let mut wanted: Map<u64, FileId> = Map::default();
        wanted.insert(std::fs::metadata(&path).unwrap().ino(), 5);
        wanted.insert(u64::MAX, 6);
        names.walk(directory.path(), &mut wanted, Instant::now());
        assert_eq!(wanted.len(), 2, "there is no time");
        names.walk(directory.path(), &mut wanted, Instant::now() + Duration::from_mins(1));
        assert_eq!((names.get(5), wanted.len()), (Some(path.as_path()), 1));
    }

    #[test]
    fn names_of_removed_files_are_told_without_the_remark_of_the_kernel() {
        let path = PathBuf::from("/a/b (deleted)");
        assert_eq!(without_mark(path.clone(), 0), Path::new("/a/b"));
        assert_eq!(without_mark(path.clone(), 1), path, "a file may have such a name");
    }
}
