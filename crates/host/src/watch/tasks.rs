//! Threads and their processes, by name.
//!
//! A thread that exists when the watch starts is looked up when it first appears in an event; a
//! later one is known from the events of its creation, so a short-lived process has a name as well.
//! Invariant: a process keeps its ID in the watcher for the whole watch, even if the kernel reuses
//! its PID.

use super::Map;
use super::lookup::{ProcessId, ThreadIdentity};
use crate::process_name;

/// Prefix of the name that the kernel gives to a worker of an io_uring.
pub(crate) const IO_WORKER_NAME: &str = "iou-wrk-";

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Process ID; 0 for all kernel workers together.
    pub pid: u32,
    /// Command name.
    pub name: String,
    /// True if the process or one of its ancestors is watched.
    pub watched: bool,
}

/// Description of a thread by procfs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskInfo {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) process: String,
    /// True for a thread of the kernel, which no program can become.
    pub(crate) kernel: bool,
    /// True for a worker of an io_uring of its process.
    pub(crate) is_worker: bool,
    pub(crate) watched: bool,
}

/// Describes a thread; returns `None` if it has ended.
pub(crate) type DescribeTask = Box<dyn FnMut(u32) -> Option<TaskInfo> + Send>;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    identity: ThreadIdentity,
    /// True if the kernel was asked whether the thread is a worker of an io_uring.
    is_worker_known: bool,
    /// True for a kernel thread, which writes back pages that others dirtied.
    pub(crate) kernel: bool,
    /// True for a kernel thread that reclaims memory: kswapd if memory is short, kdamond (DAMON) if
    /// pages are idle.
    pub(crate) reclaims: bool,
}

pub(crate) struct Tasks {
    threads: Map<u32, Task>,
    processes: Vec<Process>,
    by_pid: Map<u32, ProcessId>,
    describe_task: DescribeTask,
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Tasks").field("processes", &self.processes).finish_non_exhaustive()
    }
}

impl Tasks {
    pub(crate) fn new(describe_task: DescribeTask) -> Tasks {
        let (threads, processes, by_pid) = (Map::default(), Vec::new(), Map::default());
        Tasks { threads, processes, by_pid, describe_task }
    }

    /// Returns a process by its ID in this watcher.
    pub(crate) fn process(&self, id: ProcessId) -> &Process {
        &self.processes[usize::try_from(id).expect("numbers are places")]
    }

    pub(crate) fn thread_identity(&mut self, thread: u32) -> ThreadIdentity {
        self.task(thread).identity
    }

    pub(crate) fn task(&mut self, thread: u32) -> Task {
        if let Some(task) = self.threads.get(&thread) {
            return *task;
        }
        let info = (self.describe_task)(thread).unwrap_or_else(|| TaskInfo {
            pid: thread,
            process: "(gone)".to_owned(),
            ..TaskInfo::default()
        });
        // Every program may choose these names.
        let is_flusher = info.kernel && info.name.starts_with("kworker/");
        let (pid, name) =
            if is_flusher { (0, "kworker".to_owned()) } else { (info.pid, info.process) };
        let process = self.process_of(pid, &name, info.watched);
        let names = ["kswapd", "kdamond"];
        let reclaims = info.kernel && names.iter().any(|name| info.name.starts_with(name));
        let identity = ThreadIdentity { thread, process, is_worker: info.is_worker };
        let is_worker_known = info.is_worker;
        let task = Task { identity, is_worker_known, kernel: info.kernel, reclaims };
        self.threads.insert(thread, task);
        task
    }

    fn process_of(&mut self, pid: u32, name: &str, watched: bool) -> ProcessId {
        if let Some(&id) = self.by_pid.get(&pid) {
            return id;
        }
        let id = ProcessId::try_from(self.processes.len()).expect("numbers of processes are small");
        self.processes.push(Process { pid, name: name.to_owned(), watched });
        self.by_pid.insert(pid, id);
        id
    }

    /// Processes the creation of a thread by `creator`, in its own process or in a new one.
    pub(crate) fn created(&mut self, creator: u32, thread: u32, same_process: bool) {
        let parent = self.task(creator);
        if parent.kernel {
            // The new kernel thread receives its name later; it is looked up at its first event.
            self.threads.remove(&thread);
            self.by_pid.remove(&thread);
            return;
        }
        let identity = if same_process {
            ThreadIdentity { thread, ..parent.identity }
        } else {
            let Process { name, watched, .. } = self.process(parent.identity.process).clone();
            // An ended process may have had this PID.
            self.by_pid.remove(&thread);
            let process = self.process_of(thread, &name, watched);
            ThreadIdentity { thread, process, is_worker: false }
        };
        let task = Task { identity, is_worker_known: false, kernel: false, reclaims: false };
        self.threads.insert(thread, task);
    }

    /// Processes the move of a process into the watched cgroup.
    pub(crate) fn joined_cgroup(&mut self, thread: u32) {
        self.set_watched(thread, true);
    }

    /// Processes the creation of a process in another cgroup than that of its creator.
    pub(crate) fn created_in_cgroup(&mut self, thread: u32) {
        if let Some(info) = (self.describe_task)(thread) {
            self.set_watched(thread, info.watched);
        }
    }

    /// Changes whether a process is watched. It becomes a new process; its earlier counts stay with
    /// the old one.
    fn set_watched(&mut self, thread: u32, is_watched: bool) {
        // An unknown thread is looked up at its first event.
        let Some(before) = self.threads.get(&thread).map(|task| task.identity.process) else {
            return;
        };
        let Process { pid, name, watched } = self.process(before).clone();
        if watched == is_watched {
            return;
        }
        self.by_pid.remove(&pid);
        let now = self.process_of(pid, &name, is_watched);
        for task in self.threads.values_mut().filter(|task| task.identity.process == before) {
            task.identity.process = now;
        }
    }

    /// Processes a new name of a thread; the name of the first thread is that of the process.
    pub(crate) fn renamed(&mut self, thread: u32, name: &str) {
        let Some(task) = self.threads.get_mut(&thread) else { return };
        // The kernel names the worker of an io_uring once, after its creation; a program may use
        // the name, too, any number of times.
        if name.starts_with(IO_WORKER_NAME) && !task.is_worker_known {
            task.is_worker_known = true;
            let info = (self.describe_task)(thread);
            task.identity.is_worker = info.is_some_and(|info| info.is_worker);
        }
        let index = usize::try_from(task.identity.process).expect("numbers are places");
        let process = &mut self.processes[index];
        if process.pid == thread {
            process_name::shown(name).clone_into(&mut process.name);
        }
    }

    pub(crate) fn ended(&mut self, thread: u32) {
        if let Some(task) = self.threads.remove(&thread)
            && self.process(task.identity.process).pid == thread
        {
            self.by_pid.remove(&thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn tasks() -> Tasks {
        Tasks::new(Box::new(|thread| {
            let info = |pid, name: &str, process: &str| TaskInfo {
                pid,
                name: name.into(),
                process: process.into(),
                kernel: pid <= 10,
                is_worker: name == "iou-wrk-100",
                watched: pid == 100,
            };
            match thread {
                100 => Some(info(100, "db", "db")),
                101 => Some(info(100, "io", "db")),
                102 => Some(info(100, "iou-wrk-100", "db")),
                7 | 8 => Some(info(thread, "kworker/u8:1-flush-7:0", "kworker/u8:1-flush-7:0")),
                9 => Some(info(9, "kswapd0", "kswapd0")),
                10 => Some(info(10, "kdamond.0", "kdamond.0")),
                11 => Some(info(11, "kworker/u8:1", "kworker/u8:1")),
                12 => Some(info(12, "kswapd0", "kswapd0")),
                13 => Some(info(13, "iou-wrk-13", "iou-wrk-13")),
                _ => None,
            }
        }))
    }

    #[test]
    fn threads_belong_to_processes_and_workers_of_the_kernel_are_one() {
        let mut tasks = tasks();
        let (first, second) = (tasks.thread_identity(101), tasks.thread_identity(100));
        assert_eq!(first.process, second.process);
        assert_eq!(tasks.process(first.process).name, "db");
        assert!(tasks.process(first.process).watched);
        assert!(tasks.thread_identity(102).is_worker && !first.is_worker);
        assert_eq!(tasks.thread_identity(7).process, tasks.thread_identity(8).process);
        assert!(tasks.task(7).kernel && !tasks.task(100).kernel);
        assert!(tasks.task(9).reclaims && tasks.task(10).reclaims && !tasks.task(7).reclaims);
        let ended_process = tasks.thread_identity(5).process;
        assert_eq!(tasks.process(ended_process).name, "(gone)");
    }

    #[test]
    fn a_program_with_the_name_of_a_kernel_thread_is_a_program() {
        let mut tasks = tasks();
        let identity = tasks.thread_identity(11);
        let process = Process { pid: 11, name: "kworker/u8:1".into(), watched: false };
        assert_eq!(tasks.process(identity.process), &process);
        assert!(!tasks.task(12).reclaims && !tasks.thread_identity(13).is_worker);
        tasks.created(100, 101, true);
        tasks.renamed(101, "iou-wrk-1");
        assert!(!tasks.thread_identity(101).is_worker);
        tasks.created(100, 102, true);
        tasks.renamed(102, "iou-wrk-100");
        assert!(tasks.thread_identity(102).is_worker, "the kernel says that it is one");
    }

    #[test]
    fn a_thread_that_is_renamed_often_is_looked_up_once() {
        let lookups = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&lookups);
        let mut tasks = Tasks::new(Box::new(move |thread| {
            counted.fetch_add(1, Ordering::Relaxed);
            Some(TaskInfo { pid: thread, ..TaskInfo::default() })
        }));
        tasks.created(100, 101, true);
        for _ in 0..1000 {
            tasks.renamed(101, "iou-wrk-100");
        }
        assert_eq!(lookups.load(Ordering::Relaxed), 2, "its creator, and it");
    }

    #[test]
    fn who_goes_into_a_group_is_another_from_then_on() {
        let mut tasks = tasks();
        tasks.created(7, 200, false);
        let before = tasks.thread_identity(200).process;
        tasks.created(200, 201, true);
        tasks.joined_cgroup(300);
        tasks.joined_cgroup(200);
        let after = tasks.thread_identity(200).process;
        assert_ne!(before, after);
        assert_eq!(tasks.thread_identity(201).process, after, "all of its threads");
        assert!(tasks.process(after).watched && !tasks.process(before).watched);
        tasks.created(200, 202, false);
        let created = tasks.thread_identity(202).process;
        assert!(tasks.process(created).watched, "and what it makes then");
        tasks.joined_cgroup(200);
        assert_eq!(tasks.thread_identity(200).process, after, "nothing has changed");
        // The creator is outside the group; the new process in the group is looked up.
        tasks.created(9, 100, false);
        tasks.created_in_cgroup(100);
        let created_in_cgroup = tasks.thread_identity(100).process;
        assert!(tasks.process(created_in_cgroup).watched);
    }

    #[test]
    fn a_process_that_lives_for_a_moment_has_a_name() {
        let mut tasks = tasks();
        tasks.created(100, 200, false);
        tasks.renamed(200, "cp");
        tasks.created(200, 201, true);
        tasks.renamed(201, "a thread");
        let id = tasks.thread_identity(201).process;
        let expected = Process { pid: 200, name: "cp".into(), watched: true };
        assert_eq!(tasks.process(id), &expected, "its creator is watched");
        tasks.ended(201);
        tasks.ended(200);
        // The kernel reuses the PID.
        tasks.created(100, 200, false);
        let other = tasks.thread_identity(200).process;
        assert_ne!(other, id);
        assert_eq!(tasks.process(id).name, "cp", "what was counted keeps its name");
        tasks.created(9, 8, true);
        assert!(tasks.task(8).kernel, "a thread of the kernel is looked up");
    }
}
