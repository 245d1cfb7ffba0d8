//! Inspection of other processes with a limit of time.
//!
//! Some reads of procfs, such as /proc/PID/io, maps, stat and links, and kcmp(2) take a lock of the
//! process; status, comm and the names of descriptors do not. Every user can make the kernel hold
//! the lock for as long as the user wants: execve(2) closes files under it, and waits for a FUSE
//! server of the user. An inspection therefore runs on a worker thread, and the caller waits for a
//! limited time.
//!
//! Invariants: a process whose inspection is blocked is not inspected again until that inspection
//! ends; no more than [`BLOCKED_MAX`] workers are blocked, beyond which no process is inspected.

use std::sync::Mutex;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Maximum time that a caller waits for the inspection of one process.
pub(crate) const WAIT_MAX: Duration = Duration::from_millis(500);
/// Maximum time of the inspection of all processes; then the others are not inspected.
const SCAN_TIME_MAX: Duration = Duration::from_secs(2);
/// Maximum number of workers that are blocked.
const BLOCKED_MAX: usize = 8;
/// Stack of a worker. A server locks its memory.
const STACK_BYTES: usize = 256 << 10;

/// A process cannot be inspected: it blocks the inspection, or too many others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uninspectable;

type Job = Box<dyn FnOnce() + Send>;

struct Worker {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

struct Workers {
    idle: Vec<Worker>,
    /// Processes with the workers whose inspection is blocked.
    blocked: Vec<(u32, JoinHandle<()>)>,
}

static WORKERS: Mutex<Workers> = Mutex::new(Workers { idle: Vec::new(), blocked: Vec::new() });

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
    let idle = {
        let mut workers = WORKERS.lock().map_err(|_poisoned| Uninspectable)?;
        workers.blocked.retain(|(_, thread)| !thread.is_finished());
        let is_blocked = workers.blocked.iter().any(|(blocked, _)| *blocked == pid);
        if is_blocked || workers.blocked.len() >= BLOCKED_MAX {
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
        workers.blocked.push((pid, worker.thread));
    }
    result
}

/// The inspection of several processes, with a common limit of time.
#[derive(Debug)]
pub(crate) struct Scan {
    end: Instant,
    /// Processes that were not inspected, or not completely.
    pub(crate) incomplete: Vec<u32>,
}

impl Scan {
    pub(crate) fn start() -> Scan {
        Scan { end: Instant::now() + SCAN_TIME_MAX, incomplete: Vec::new() }
    }

    /// Inspects a process as [`inspect`] does. `action` also returns true if its result is
    /// complete.
    ///
    /// # Errors
    /// As those of [`inspect`], or the time is used up.
    pub(crate) fn inspect<T: Send + 'static>(
        &mut self,
        pid: u32,
        action: impl FnOnce(Instant) -> (T, bool) + Send + 'static,
    ) -> Result<T, Uninspectable> {
        let wait = self.end.saturating_duration_since(Instant::now()).min(WAIT_MAX);
        let result = if wait.is_zero() { Err(Uninspectable) } else { inspect(pid, wait, action) };
        if !matches!(result, Ok((_, true))) {
            self.incomplete.push(pid);
        }
        result.map(|(result, _)| result)
    }

    /// Describes the processes that were not inspected completely, for a message; `None` if there
    /// are none.
    pub(crate) fn describe_incomplete(&self) -> Option<String> {
        let first = *self.incomplete.first()?;
        let name = crate::process_name::of(first).unwrap_or_default();
        let others = match self.incomplete.len() - 1 {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        Some(format!("process {first} ({name}){others} cannot be inspected completely"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::{PipeReader, PipeWriter, Read};

    /// A process with this ID is not inspected until the pipe is closed.
    pub(crate) fn block(pid: u32) -> PipeWriter {
        let (reader, writer) = std::io::pipe().unwrap();
        let wait_for = |mut pipe: PipeReader| pipe.read(&mut [0]);
        let blocked = inspect(pid, Duration::from_millis(1), move |_| wait_for(reader).unwrap());
        assert_eq!(blocked, Err(Uninspectable));
        writer
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
        let mut scan = Scan::start();
        assert_eq!(scan.inspect(1, |_| (5, true)), Err(Uninspectable));
        assert_eq!(scan.inspect(2, |_| (5, true)), Ok(5));
        assert_eq!(scan.inspect(3, |_| (5, false)), Ok(5));
        assert_eq!(scan.incomplete, [1, 3]);
        let description = scan.describe_incomplete().unwrap();
        assert!(description.ends_with(" and 1 more cannot be inspected completely"));
        drop(blocked);
        wait_until(|| inspect(1, WAIT_MAX, |_| 5) == Ok(5));
    }

    #[test]
    fn the_number_of_blocked_workers_has_a_limit() {
        let blocked: Vec<_> = (0..).take(BLOCKED_MAX).map(block).collect();
        assert_eq!(inspect(1000, WAIT_MAX, |_| 5), Err(Uninspectable));
        drop(blocked);
        wait_until(|| inspect(1000, WAIT_MAX, |_| 5) == Ok(5));
    }

    #[test]
    fn a_scan_has_a_limit_of_time() {
        let mut scan = Scan { end: Instant::now(), incomplete: Vec::new() };
        assert_eq!(scan.inspect(1, |_| (5, true)), Err(Uninspectable));
        assert_eq!(scan.incomplete, [1]);
    }
}
