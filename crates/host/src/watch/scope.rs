//! Scope of a watch: the machine, a file or a directory, a process with its descendants, or a
//! cgroup.

use super::event::Key;
use super::tasks::{IO_WORKER_NAME, TaskInfo};
use crate::inspect::Uninspectable;
use crate::inspector::Query;
use crate::inspector_client;
use crate::mounts::{self, Mount};
use crate::scan::TimeBudget;
use crate::{proc, process_name};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of ancestors of a process to follow.
const ANCESTORS_MAX: usize = 64;
/// Flag of a worker of an io_uring (include/linux/sched.h).
const PF_IO_WORKER: u64 = 0x10;
/// Flag of a kernel thread.
const PF_KTHREAD: u64 = 0x20_0000;

/// Scope requested by the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WatchScope {
    /// The whole machine.
    #[default]
    Machine,
    /// A file, or all files below a directory.
    Path(PathBuf),
    /// A process, its threads, and all its descendants.
    Process(u32),
    /// The processes of a cgroup, given by its path below the root of the hierarchy, or by its
    /// directory.
    Group(String),
}

impl WatchScope {
    /// Describes the scope in a few words.
    pub(super) fn describe(&self) -> String {
        match self {
            WatchScope::Machine => larder_schema::watch::WHOLE.to_owned(),
            WatchScope::Path(path) => path.display().to_string(),
            WatchScope::Process(pid) => format!("process {pid}"),
            WatchScope::Group(group) => format!("group {group}"),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(super) wanted: WatchScope,
    /// Location of the path, for a path scope.
    pub(super) path: Option<ScopePath>,
}

#[derive(Clone, Debug)]
pub(crate) struct ScopePath {
    pub(super) path: PathBuf,
    /// Device number, as in page cache events.
    pub(super) dev: u32,
    /// Inode number of a file; `None` for a directory.
    pub(super) ino: Option<u64>,
    pub(super) is_root: bool,
    pub(super) mount: Mount,
}

impl ScopePath {
    /// Returns the directory itself, or the parent directory of a file.
    pub(crate) fn directory(&self) -> PathBuf {
        match (self.ino, self.path.parent()) {
            (Some(_), Some(parent)) => parent.to_path_buf(),
            _ => self.path.clone(),
        }
    }
}

impl Scope {
    /// Resolves a requested scope.
    ///
    /// # Errors
    /// The path, process or group does not exist.
    pub(crate) fn find(wanted: &WatchScope) -> io::Result<Scope> {
        let mut scope = Scope { wanted: wanted.clone(), path: None };
        match wanted {
            WatchScope::Path(path) => {
                let found = resolve_path(path)?;
                scope.wanted = WatchScope::Path(found.path.clone());
                scope.path = Some(found);
            }
            WatchScope::Group(group) => scope.wanted = WatchScope::Group(resolve_group(group)?),
            WatchScope::Process(pid) if !Path::new(&format!("/proc/{pid}")).exists() => {
                return Err(io::Error::new(io::ErrorKind::NotFound, "there is no such process"));
            }
            WatchScope::Machine | WatchScope::Process(_) => {}
        }
        Ok(scope)
    }

    pub(super) fn is_file(&self) -> bool {
        self.path.as_ref().is_some_and(|location| location.ino.is_some())
    }

    /// Returns true if the scope selects rows by process.
    pub(super) fn by_process(&self) -> bool {
        matches!(self.wanted, WatchScope::Process(_) | WatchScope::Group(_))
    }

    /// Returns the kernel filter for an event with these names of device and inode fields; empty if
    /// all events pass. The filter of `hot` events selects the file, that of others its file
    /// system, since the attribution of disk I/O needs the other files too.
    pub(super) fn filter(&self, fields: (&str, &str), hot: bool) -> String {
        match (&self.path, fields) {
            (None, _) | (_, ("", _)) => String::new(),
            (Some(ScopePath { dev, ino: Some(ino), .. }), (device, inode)) if hot => {
                format!("{device} == {dev} && {inode} == {ino}")
            }
            (Some(ScopePath { dev, .. }), (device, _)) => format!("{device} == {dev}"),
        }
    }

    /// Returns the kernel filter for processes that move into the watched cgroup, or `None` if no
    /// group is watched or the filter syntax cannot express its name.
    pub(super) fn join_filter(&self) -> Option<String> {
        let WatchScope::Group(group) = &self.wanted else { return None };
        let group = group.trim_matches('/');
        let is_plain = !group.is_empty() && !group.contains(['"', '*', '?', '[', '\\']);
        is_plain.then(|| format!("dst_path == \"/{group}\" || dst_path ~ \"/{group}/*\""))
    }

    /// Returns the device and inode number that restrict lookups, if any.
    pub(super) fn files(&self) -> (Option<u32>, Option<u64>) {
        self.path.as_ref().map_or((None, None), |location| (Some(location.dev), location.ino))
    }

    /// Returns true if a file is in the scope, as far as the file decides.
    pub(super) fn has_file(&self, key: Key, path: Option<&Path>) -> bool {
        let Some(location) = &self.path else { return true };
        match location.ino {
            Some(ino) => key == Key { dev: location.dev, ino },
            None if location.is_root => key.dev == location.dev,
            None => {
                key.dev == location.dev && path.is_some_and(|path| path.starts_with(&location.path))
            }
        }
    }
}

fn resolve_path(path: &Path) -> io::Result<ScopePath> {
    let path = path.canonicalize()?;
    let (found, mount) = (std::fs::metadata(&path)?, Mount::of(&path)?);
    let dev = mount.device;
    let ino = (!found.is_dir()).then(|| found.ino());
    let is_root = path == mount.point;
    Ok(ScopePath { path, dev, ino, is_root, mount })
}

/// Returns the path of a group below the root of the hierarchy; `given` may be its directory.
fn resolve_group(given: &str) -> io::Result<String> {
    let is_of_groups = |mount: &Mount| matches!(mount.fs_type.as_str(), "cgroup" | "cgroup2");
    let roots: Vec<_> = mounts::all().into_iter().filter(is_of_groups).collect();
    let below = |mount: &Mount| Path::new(given).strip_prefix(&mount.point).ok()?.to_str();
    // Hierarchies may be mounted inside each other; the shortest rest belongs to the innermost.
    let group = roots.iter().filter_map(below).min_by_key(|rest| rest.len()).unwrap_or(given);
    let group = Path::new("/").join(group.trim_matches('/')).to_string_lossy().into_owned();
    let exists = |mount: &Mount| mount.point.join(group.trim_start_matches('/')).is_dir();
    if roots.iter().any(exists) || proc::pids().into_iter().any(|pid| in_group(&group, pid)) {
        return Ok(group);
    }
    let message = "there is no such control group; it is named by its path below the root of the \
               groups, as in /proc/PID/cgroup, or by its directory";
    Err(io::Error::new(io::ErrorKind::NotFound, message))
}

/// Time in each second that a reader waits for the processes of a user, and of all users but root.
const USER_TIME_MAX: Duration = Duration::from_millis(100);
const TIME_MAX: Duration = Duration::from_millis(500);

/// Descriptions of threads, from procfs. Many processes may delay their inspection, so the reader
/// waits for a limited time in each second.
#[derive(Debug)]
pub(super) struct TaskReader {
    wanted: WatchScope,
    budget: TimeBudget,
}

impl TaskReader {
    pub(super) fn new(wanted: WatchScope) -> TaskReader {
        TaskReader { wanted, budget: TimeBudget::new(USER_TIME_MAX, TIME_MAX) }
    }

    /// Describes a thread; returns `None` if it has ended. One that cannot be inspected counts as a
    /// process.
    pub(super) fn task_info(&mut self, thread: u32) -> Option<TaskInfo> {
        let status = match self.text(Query::Status, thread) {
            Ok(status) => status?,
            Err(Uninspectable) => String::new(),
        };
        let pid = number(&status, "Tgid").unwrap_or(thread);
        let process = if pid == thread { None } else { process_name::of(pid) };
        let name = process_name::of(thread)?;
        let watched = self.is_watched(pid);
        // Before Linux 6.8 the flags alone tell which threads are of the kernel; every thread may
        // have the name of a worker.
        let kernel = number(&status, "Kthread").map(|kernel| kernel == 1);
        let needs_flags = kernel.is_none() || name.starts_with(IO_WORKER_NAME);
        let flags = if needs_flags { self.flags(thread).unwrap_or(0) } else { 0 };
        let kernel = kernel.unwrap_or(flags & PF_KTHREAD != 0);
        let is_worker = flags & PF_IO_WORKER != 0;
        let process = process.unwrap_or_else(|| name.clone());
        Some(TaskInfo { pid, name, process, kernel, is_worker, watched })
    }

    /// Returns the flags of a thread; `None` if it cannot be inspected.
    fn flags(&mut self, thread: u32) -> Option<u64> {
        flags_in(&self.text(Query::Stat, thread).ok()??)
    }

    /// Returns the text of a file of a process or thread; `None` if it has ended.
    fn text(&mut self, query: Query, task: u32) -> Result<Option<String>, Uninspectable> {
        if query == Query::Status
            && let Some(status) = inspector_client::trusted_status(task)
        {
            return Ok((!status.is_empty()).then_some(status));
        }
        let read = move |deadline| inspector_client::text(query, task, deadline);
        self.budget.inspect(task, read)?.map_err(|_late| Uninspectable)
    }

    /// Returns true if the scope has a process.
    pub(super) fn is_watched(&mut self, pid: u32) -> bool {
        match &self.wanted {
            WatchScope::Machine | WatchScope::Path(_) => true,
            WatchScope::Process(ancestor) => self.is_descendant(*ancestor, pid),
            WatchScope::Group(group) => in_group(group, pid),
        }
    }

    fn is_descendant(&mut self, ancestor: u32, pid: u32) -> bool {
        let parent = |pid: &u32| {
            let status = self.text(Query::Status, *pid).ok()??;
            number(&status, "PPid").filter(|parent| *parent > 0)
        };
        std::iter::successors(Some(pid), parent).take(ANCESTORS_MAX).any(|pid| pid == ancestor)
    }
}

/// Returns the flags in the text of /proc/PID/stat: field 9 (proc(5)). The name, field 2, may
/// contain parentheses and spaces.
fn flags_in(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(6)?.parse().ok()
}

fn number(status: &str, name: &str) -> Option<u32> {
    proc::text(status, name)?.parse().ok()
}

/// Checks lines such as `4:memory:/system.slice/x.service` or `0::/system.slice/x.service`.
fn in_group(group: &str, pid: u32) -> bool {
    let wanted = Path::new("/").join(group.trim_start_matches('/'));
    let all = proc::read(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    all.lines()
        .any(|line| line.splitn(3, ':').nth(2).is_some_and(|it| Path::new(it).starts_with(&wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_testing::skip;

    #[test]
    fn filters_name_the_file_or_its_file_system() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let scope = Scope::find(&WatchScope::Path(file.path().to_path_buf())).unwrap();
        let location = scope.path.clone().unwrap();
        let (dev, ino) = (location.dev, location.ino.unwrap());
        let hot = scope.filter(("s_dev", "i_ino"), true);
        assert_eq!(hot, format!("s_dev == {dev} && i_ino == {ino}"));
        assert_eq!(scope.filter(("s_dev", "i_ino"), false), format!("s_dev == {dev}"));
        assert_eq!(scope.filter(("", ""), true), "");
        assert_eq!(scope.join_filter(), None);
        assert!(scope.has_file(Key { dev, ino }, None));
        assert!(!scope.has_file(Key { dev, ino: ino + 1 }, Some(file.path())));
        let everything = Scope::find(&WatchScope::Machine).unwrap();
        assert_eq!(everything.filter(("s_dev", "i_ino"), true), "");
        assert!(everything.has_file(Key { dev, ino }, None));
        assert!(Scope::find(&WatchScope::Path("/no/such/path".into())).is_err());
        assert!(Scope::find(&WatchScope::Process(u32::MAX)).is_err());
    }

    #[test]
    fn a_directory_has_what_lies_below_it_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let scope = Scope::find(&WatchScope::Path(directory.path().to_path_buf())).unwrap();
        let key = Key { dev: scope.path.as_ref().unwrap().dev, ino: 5 };
        assert!(scope.has_file(key, Some(&directory.path().join("a/b"))));
        assert!(!scope.has_file(key, Some(Path::new("/elsewhere"))));
        assert!(!scope.has_file(key, None));
    }

    fn task_info(wanted: &WatchScope, thread: u32) -> Option<TaskInfo> {
        TaskReader::new(wanted.clone()).task_info(thread)
    }

    #[test]
    fn processes_that_delay_their_inspection_do_not_delay_a_watch() {
        let own_pid = std::process::id();
        let mut reader = TaskReader::new(WatchScope::Machine);
        assert!(reader.flags(own_pid).is_some());
        reader.budget = TimeBudget::new(Duration::ZERO, Duration::ZERO);
        assert_eq!(reader.flags(own_pid), None);
        assert_eq!(reader.task_info(own_pid).unwrap().pid, own_pid);
    }

    #[test]
    fn processes_are_watched_with_those_that_they_have_made() {
        let own_pid = std::process::id();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = task_info(&WatchScope::Process(own_pid), child.id()).unwrap();
        assert!(found.watched && found.pid == child.id());
        assert!(!task_info(&WatchScope::Process(child.id()), own_pid).unwrap().watched);
        assert!(task_info(&WatchScope::Machine, own_pid).unwrap().watched);
        child.kill().unwrap();
        child.wait().unwrap();
        let line = proc::read("/proc/self/cgroup").unwrap();
        let group = line.lines().next().unwrap().splitn(3, ':').nth(2).unwrap().to_owned();
        assert!(task_info(&WatchScope::Group(group), own_pid).unwrap().watched);
        assert!(!task_info(&WatchScope::Group("/no/such/group".into()), own_pid).unwrap().watched);
    }

    #[test]
    fn a_process_that_cannot_be_inspected_is_described() {
        let own_pid = std::process::id();
        let blocked = crate::inspect::tests::block(own_pid);
        let found = task_info(&WatchScope::Process(own_pid), own_pid).unwrap();
        assert!(found.watched && !found.kernel && !found.is_worker);
        assert!(task_info(&WatchScope::Machine, 2).is_none_or(|found| found.kernel));
        drop(blocked);
    }

    #[test]
    fn groups_are_those_that_exist_by_path_or_by_directory() {
        let line = proc::read("/proc/self/cgroup").unwrap();
        let own_group = line.lines().next().unwrap().splitn(3, ':').nth(2).unwrap().to_owned();
        let found = Scope::find(&WatchScope::Group(own_group.clone())).unwrap();
        assert_eq!(found.wanted, WatchScope::Group(own_group));
        let message =
            Scope::find(&WatchScope::Group("no/such/group".into())).unwrap_err().to_string();
        assert!(message.starts_with("there is no such control group"), "{message}");
        let mounts = mounts::all();
        let Some(root) = mounts.iter().find(|mount| mount.fs_type.starts_with("cgroup")) else {
            skip("control groups are not mounted");
            return;
        };
        let directory = root.point.to_str().unwrap();
        let found = Scope::find(&WatchScope::Group(format!("{directory}/"))).unwrap();
        assert_eq!(found.wanted, WatchScope::Group("/".into()));
        assert!(Scope::find(&WatchScope::Group(format!("{directory}/no/such"))).is_err());
    }
}
