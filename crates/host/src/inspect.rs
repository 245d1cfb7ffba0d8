//! Inspection of other processes with a limit of time.
//!
//! Some reads of procfs, such as /proc/PID/io, maps, stat and links, and kcmp(2) take a lock of the
//! process; comm, cgroup, the names of descriptors and the owner of /proc/PID do not. Every user
//! can make the kernel hold the lock for as long as the user wants: execve(2) closes files under
//! it, and waits for a FUSE server of the user. An inspection therefore runs on a worker thread,
//! and the caller waits for a limited time. Reads that cannot be killed are for
//! [`crate::inspector_client`], which counts here as a blocked worker.
//!
//! Invariants: a process whose inspection is blocked is not inspected again until that inspection
//! ends; the processes of a user block a limited number of workers, beyond which no process of the
//! user is inspected, and do not keep those of root from being inspected.
use crate::process_identity::ProcessIdentity;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Maximum time that a caller waits for the inspection of one process.
pub(crate) const WAIT_MAX: Duration = Duration::from_millis(500);
/// Maximum number of workers that the processes of one user block.
const BLOCKED_BY_USER_MAX: usize = 2;
/// Maximum number of workers that processes of users other than root block, and that all block if a
/// further one is for a process of root.
const BLOCKED_MAX: usize = 8;
const BLOCKED_FOR_ROOT_MAX: usize = 16;
/// Stack of a worker. A server locks its memory.
const STACK_BYTES: usize = 256 << 10;
pub(crate) const ROOT: u32 = 0;
/// User of a process that has ended.
const UNKNOWN_USER: u32 = u32::MAX;

/// A process cannot be inspected: it blocks the inspection, or too many others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uninspectable;

type Job = Box<dyn FnOnce() + Send>;

struct Worker {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

/// A process as the limits distinguish it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    /// `None` if the process has ended.
    identity: Option<ProcessIdentity>,
    pub(crate) user: u32,
}

impl Subject {
    pub(crate) fn of(pid: u32) -> Subject {
        Subject { identity: ProcessIdentity::of(pid), user: user(pid) }
    }
}

/// Returns the effective user of a process, the owner of the directory /proc/PID. The files in the
/// directory belong to root if the process cannot be dumped, but the directory does not
/// (`task_dump_owner` in fs/proc/base.c). Unlike a read of status, this holds no memory of the
/// process.
pub(crate) fn user(pid: u32) -> u32 {
    std::fs::metadata(format!("/proc/{pid}")).map_or(UNKNOWN_USER, |found| found.uid())
}

struct Workers {
    idle: Vec<Worker>,
    /// Processes with the workers whose inspection is blocked.
    blocked: Vec<(Subject, JoinHandle<()>)>,
}

impl Workers {
    /// Returns true if a process may get a worker.
    fn admit(&mut self, process: Subject) -> bool {
        self.blocked.retain(|(_, thread)| !thread.is_finished());
        let blocked = || self.blocked.iter().map(|(blocked, _)| blocked);
        let is_blocked =
            blocked().any(|it| it.identity.is_some() && it.identity == process.identity);
        let by_users = blocked().filter(|blocked| blocked.user != ROOT).count();
        let by_user = blocked().filter(|blocked| blocked.user == process.user).count();
        let has_place = by_users < BLOCKED_MAX && by_user < BLOCKED_BY_USER_MAX;
        let is_of_root = process.user == ROOT && self.blocked.len() < BLOCKED_FOR_ROOT_MAX;
        !is_blocked && (has_place || is_of_root)
    }
}

static WORKERS: Mutex<Workers> = Mutex::new(Workers { idle: Vec::new(), blocked: Vec::new() });

/// Adds a thread that a process with this ID blocks.
pub(crate) fn add_blocked(pid: u32, thread: JoinHandle<()>) {
    if let Ok(mut workers) = WORKERS.lock() {
        workers.blocked.push((Subject::of(pid), thread));
    }
}

impl Worker {
    fn start() -> Option<Worker> {
        let (jobs, received) = mpsc::channel::<Job>();
        let builder = thread::Builder::new().name("inspect".to_owned()).stack_size(STACK_BYTES);
        // The thread ends with its last job after the sender is dropped.
        let thread = builder.spawn(move || received.iter().for_each(|job| job())).ok()?;
        Some(Worker { jobs, thread })
    }
}

/// Runs `action`, which inspects a process, on another thread, and waits for it up to `wait`. The
/// action gets the time at which it is to return what it has found.
///
/// # Errors
/// The action is blocked, an earlier one for the process still is, or too many are.
pub(crate) fn inspect<T: Send + 'static>(
    pid: u32,
    wait: Duration,
    action: impl FnOnce(Instant) -> T + Send + 'static,
) -> Result<T, Uninspectable> {
    run(Subject::of(pid), wait, action)
}

/// Inspects a process as [`inspect`] does.
///
/// # Errors
/// As those of [`inspect`].
pub(crate) fn run<T: Send + 'static>(
    process: Subject,
    wait: Duration,
    action: impl FnOnce(Instant) -> T + Send + 'static,
) -> Result<T, Uninspectable> {
    let idle = {
        let mut workers = WORKERS.lock().map_err(|_poisoned| Uninspectable)?;
        if !workers.admit(process) {
            return Err(Uninspectable);
        }
        workers.idle.pop()
    };
    let worker = idle.or_else(Worker::start).ok_or(Uninspectable)?;
    let (sender, received) = mpsc::channel();
    let deadline = Instant::now() + wait / 2;
    // The receiver is gone if the caller waits no longer.
    let job = Box::new(move || drop(sender.send(action(deadline))));
    worker.jobs.send(job).map_err(|_ended| Uninspectable)?;
    let result = received.recv_timeout(wait).map_err(|_late| Uninspectable);
    let mut workers = WORKERS.lock().map_err(|_poisoned| Uninspectable)?;
    if result.is_ok() {
        workers.idle.push(worker);
    } else {
        workers.blocked.push((process, worker.thread));
    }
    result
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::{PipeReader, PipeWriter, Read};
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;

    fn block_subject(process: Subject) -> PipeWriter {
        let (reader, writer) = std::io::pipe().unwrap();
        let wait_for = |mut pipe: PipeReader| pipe.read(&mut [0]);
        let action = move |_| wait_for(reader).unwrap();
        assert_eq!(run(process, Duration::from_millis(1), action), Err(Uninspectable));
        writer
    }

    /// The process with this ID is not inspected until the pipe is closed.
    pub(crate) fn block(pid: u32) -> PipeWriter {
        block_subject(Subject::of(pid))
    }

    fn wait_until(mut is_true: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_mins(1);
        while !is_true() {
            assert!(Instant::now() < end, "it never happens");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_process_that_blocks_its_inspection_is_left_out_until_it_answers() {
        assert_eq!(inspect(1, WAIT_MAX, |_| 5), Ok(5));
        let blocked = block(1);
        assert_eq!(inspect(1, WAIT_MAX, |_| 5), Err(Uninspectable));
        assert_eq!(inspect(2, WAIT_MAX, |_| 5), Ok(5), "others are inspected");
        drop(blocked);
        wait_until(|| inspect(1, WAIT_MAX, |_| 5) == Ok(5));
    }

    #[test]
    fn the_processes_of_a_user_block_few_workers_and_those_of_root_none() {
        let identity = ProcessIdentity::of(std::process::id());
        let of_user = |user| Subject { identity: None, user };
        let inspect = |process| run(process, WAIT_MAX, |_| 5);
        let first = [of_user(1000); BLOCKED_BY_USER_MAX].map(block_subject);
        assert_eq!(inspect(of_user(1000)), Err(Uninspectable));
        assert_eq!(inspect(of_user(1001)), Ok(5), "another user");
        let users = 1001..;
        let others = users.take(BLOCKED_MAX - first.len()).map(|user| block_subject(of_user(user)));
        let others: Vec<_> = others.collect();
        assert_eq!(inspect(of_user(2000)), Err(Uninspectable));
        let of_root = block_subject(Subject { identity, user: ROOT });
        assert_eq!(inspect(Subject { identity, user: ROOT }), Err(Uninspectable));
        assert_eq!(inspect(of_user(ROOT)), Ok(5));
        drop((first, others, of_root));
        wait_until(|| inspect(of_user(1000)) == Ok(5) && inspect(of_user(2000)) == Ok(5));
    }

    /// Makes a process that cannot be dumped.
    const UNDUMPABLE: &str = r"
import ctypes, sys
ctypes.CDLL(None).prctl(4, 0)
print('ready', flush=True)
sys.stdin.readline()
";

    #[test]
    fn a_process_that_cannot_be_dumped_does_not_pass_as_one_of_root() {
        let mut command = std::process::Command::new("python3");
        command.args(["-c", UNDUMPABLE]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let own_user = rustix::process::geteuid();
        let wanted = if own_user.is_root() { 65_534 } else { own_user.as_raw() };
        if own_user.is_root() {
            command.uid(wanted).current_dir("/");
        }
        let Ok(mut process) = command.spawn() else {
            larder_testing::skip("python3 is needed");
            return;
        };
        let mut ready = [0; 6];
        process.stdout.take().unwrap().read_exact(&mut ready).unwrap();
        let of_file = std::fs::metadata(format!("/proc/{}/maps", process.id())).unwrap().uid();
        let found = user(process.id());
        drop(process.stdin.take());
        process.wait().unwrap();
        assert_eq!((of_file, found), (ROOT, wanted));
        assert_eq!(user(u32::MAX), UNKNOWN_USER);
    }
}
