//! Reads of procfs that can hold memory or files of another process, through a process that can be
//! abandoned.
//!
//! A read of /proc/PID/maps, status, stat or of the links of a process takes a reference to its
//! memory or to a file. If the process drops its own reference meanwhile, the reader drops the last
//! one, and then waits for the FUSE server whose files the process mapped or had open. This wait
//! cannot be killed, and a program with such a thread does not end. So [`crate::inspector`] reads,
//! in a process without memory, descriptors or locks of this program. If it does not answer in
//! time, the next query uses another one. If it has not answered some time later, it is killed and
//! counts as a blocked worker of [`crate::inspect`] until it has ended.
//!
//! Small files of processes of root and of this user are read directly: a user cannot choose their
//! memory.

use crate::inspect::{self, ROOT};
use crate::inspector::{self, ARGUMENT, END, FAILED, GREETING, NAME, Query, REQUEST_BYTES};
use crate::proc;
use crate::process_links::{self, Link, Step};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::iter;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// Maximum length of a small file: status of a process with 65,536 groups has 722 KB.
const TEXT_BYTES_MAX: u64 = 1 << 20;
/// Maximum length of the output of a runtime before the greeting.
const PREAMBLE_BYTES_MAX: usize = 4096;
/// Maximum time for the start, on a machine that is busier still.
const GREETING_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum time for an answer, after which the inspector is killed.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(500);
/// Maximum number of inspectors that are late with an answer.
const LATE_MAX: usize = 4;
/// Maximum time of reading the rest of a late answer, for each query.
const DRAIN_TIME_MAX: Duration = Duration::from_millis(1);
/// Time for a killed inspector to end before it counts as blocked.
const END_TIME_MAX: Duration = Duration::from_millis(10);
/// Stack of a thread that waits for the end of an inspector. A server locks its memory.
const STACK_BYTES: usize = 64 << 10;
/// No process has this ID.
const UNNUMBERED: u32 = u32::MAX;

/// A running inspector.
struct Inspector {
    child: Child,
    requests: ChildStdin,
    replies: ChildStdout,
    started_at: Instant,
    /// The output of the runtime and the greeting, as far as they have arrived.
    preamble: Vec<u8>,
}

/// Inspectors that wait for queries, or start.
static IDLE: Mutex<Vec<Inspector>> = Mutex::new(Vec::new());
/// Replies that were not read to their ends, with the times since when.
static LATE: Mutex<Vec<(Pending, Instant)>> = Mutex::new(Vec::new());

impl Inspector {
    fn start() -> io::Result<Inspector> {
        if !inspector::is_available() {
            return Err(io::Error::other("this program does not serve inspections"));
        }
        let mut command = Command::new("/proc/self/exe");
        if cfg!(test) {
            command.args(["--exact", "--nocapture", inspector::SERVING_TEST]);
        } else {
            command.arg0(NAME).arg(ARGUMENT);
        }
        // A directory of this process would be in use until an abandoned inspector has ended.
        command.env_clear().current_dir("/").stderr(Stdio::null());
        command.envs(cfg!(test).then_some((ARGUMENT, "1")));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let missing = || io::Error::from(io::ErrorKind::BrokenPipe);
        let requests = child.stdin.take().ok_or_else(missing)?;
        let replies = child.stdout.take().ok_or_else(missing)?;
        let (started_at, preamble) = (Instant::now(), Vec::new());
        Ok(Inspector { child, requests, replies, started_at, preamble })
    }

    /// Returns an inspector that has started. One that needs longer is not lost.
    fn take(deadline: Instant) -> io::Result<Inspector> {
        let idle = IDLE.lock().ok().and_then(|mut idle| idle.pop());
        let mut inspector = idle.map_or_else(Inspector::start, Ok)?;
        match inspector.greet(deadline) {
            Ok(()) => Ok(inspector),
            Err(error) => {
                let is_starting = error.kind() == io::ErrorKind::TimedOut
                    && inspector.started_at.elapsed() < GREETING_TIME_MAX;
                if is_starting {
                    inspector.release();
                } else {
                    inspector.abandon(UNNUMBERED);
                }
                Err(error)
            }
        }
    }

    /// Makes the inspector available to the next query.
    fn release(self) {
        if let Ok(mut idle) = IDLE.lock() {
            idle.push(self);
        }
    }

    /// Waits for the greeting.
    fn greet(&mut self, deadline: Instant) -> io::Result<()> {
        while !self.preamble.ends_with(&GREETING) {
            let mut byte = [0];
            let is_end = self.read(&mut byte, deadline)? == 0;
            if is_end || self.preamble.len() > PREAMBLE_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.preamble.extend(byte);
        }
        Ok(())
    }

    fn read(&mut self, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now()));
        let left = left.map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.replies, PollFlags::IN)], Some(&left)) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Err(Errno::INTR) => self.read(buffer, deadline),
            Err(error) => Err(error.into()),
            Ok(_) => self.replies.read(buffer),
        }
    }

    /// Kills the inspector. If it does not end, the process with this ID blocks it.
    fn abandon(self, pid: u32) {
        let Inspector { mut child, requests, replies, .. } = self;
        drop((requests, replies));
        let has_ended = child.kill().is_err() || wait(&child, END_TIME_MAX);
        if has_ended && matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
            return;
        }
        let builder = thread::Builder::new().name("inspect".to_owned()).stack_size(STACK_BYTES);
        if let Ok(thread) = builder.spawn(move || drop(child.wait())) {
            inspect::add_blocked(pid, thread);
        }
    }
}

/// Waits for the end of a process; returns true if it has ended.
fn wait(child: &Child, time: Duration) -> bool {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(Ok(pidfd)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return false };
    let Ok(time) = Timespec::try_from(time) else { return false };
    poll(&mut [PollFd::new(&pidfd.as_fd(), PollFlags::IN)], Some(&time)) == Ok(1)
}

/// A reply that has not ended.
struct Pending {
    inspector: Inspector,
    /// Length of the next piece, as far as it has arrived.
    header: Vec<u8>,
    /// Bytes of the current piece that are not read yet.
    piece_bytes: usize,
    pid: u32,
}

/// Result of a read of a reply.
enum Part {
    Bytes(usize),
    End,
    Failed,
}

impl Pending {
    fn read(&mut self, buffer: &mut [u8], deadline: Instant) -> io::Result<Part> {
        while self.piece_bytes == 0 {
            let mut byte = [0];
            if self.inspector.read(&mut byte, deadline)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.header.extend(byte);
            if let Ok(header) = <[u8; 4]>::try_from(&self.header[..]) {
                self.header.clear();
                match u32::from_le_bytes(header) {
                    END => return Ok(Part::End),
                    FAILED => return Ok(Part::Failed),
                    bytes => self.piece_bytes = bytes as usize,
                }
            }
        }
        let most = buffer.len().min(self.piece_bytes);
        let count = self.inspector.read(&mut buffer[..most], deadline)?;
        if count == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.piece_bytes -= count;
        Ok(Part::Bytes(count))
    }

    /// Reads what has arrived of the rest; returns true if the reply has ended.
    fn drain(&mut self) -> io::Result<bool> {
        let (begun, mut buffer) = (Instant::now(), [0; 4096]);
        while begun.elapsed() < DRAIN_TIME_MAX {
            match self.read(&mut buffer, begun) {
                Ok(Part::Bytes(_)) => {}
                Ok(Part::End | Part::Failed) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

/// Makes inspectors available that have answered meanwhile, and kills those that have not.
fn collect_late() {
    let Ok(late) = LATE.lock().map(|mut late| std::mem::take(&mut *late)) else { return };
    let excess = late.len().saturating_sub(LATE_MAX);
    for (at, (mut pending, since)) in late.into_iter().enumerate() {
        match pending.drain() {
            Ok(true) => pending.inspector.release(),
            Ok(false) if at >= excess && since.elapsed() < ANSWER_TIME_MAX => {
                if let Ok(mut late) = LATE.lock() {
                    late.push((pending, since));
                }
            }
            Ok(false) | Err(_) => pending.inspector.abandon(pending.pid),
        }
    }
}

/// The reply to a query.
pub(crate) struct Reply {
    /// `None` after the end.
    pending: Option<Pending>,
    deadline: Instant,
}

impl Reply {
    fn start(query: Query, pid: u32, deadline: Instant) -> io::Result<Reply> {
        collect_late();
        let [a, b, c, d] = pid.to_le_bytes();
        let request: [u8; REQUEST_BYTES] = [query as u8, a, b, c, d];
        let mut inspector = Inspector::take(deadline)?;
        if inspector.requests.write_all(&request).is_err() {
            // Something ended it.
            inspector.abandon(UNNUMBERED);
            inspector = Inspector::take(deadline)?;
            inspector.requests.write_all(&request)?;
        }
        let pending = Pending { inspector, header: Vec::new(), piece_bytes: 0, pid };
        Ok(Reply { pending: Some(pending), deadline })
    }
}

impl Read for Reply {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(pending) = &mut self.pending else { return Ok(0) };
        let part = pending.read(buffer, self.deadline)?;
        if let Part::Bytes(count) = part {
            return Ok(count);
        }
        if let Some(pending) = self.pending.take() {
            pending.inspector.release();
        }
        match part {
            Part::Failed => Err(io::ErrorKind::NotFound.into()),
            Part::Bytes(_) | Part::End => Ok(0),
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(pending) = self.pending.take()
            && let Ok(mut late) = LATE.lock()
        {
            late.push((pending, Instant::now()));
        }
    }
}

/// Starts an inspector, unless one waits for queries, and waits for it up to `wait`.
pub(crate) fn prepare(wait: Duration) {
    collect_late();
    if let Ok(inspector) = Inspector::take(Instant::now() + wait) {
        inspector.release();
    }
}

/// Returns true if this process may read what a query asks for itself. The descriptors of a program
/// that runs as root may be those of a user who started it.
fn reads_itself(query: Query, task: u32) -> bool {
    let user = inspect::user(task);
    let is_trusted = user == ROOT || user == rustix::process::geteuid().as_raw();
    match query {
        Query::Links => task == std::process::id() || (is_trusted && !inspector::is_available()),
        Query::Status | Query::Stat | Query::Maps => is_trusted,
    }
}

/// Returns the links of a process. An error is the last step.
pub(crate) fn links(
    pid: u32,
    deadline: Instant,
) -> Box<dyn Iterator<Item = io::Result<Step<Link>>>> {
    if reads_itself(Query::Links, pid) {
        return Box::new(process_links::of(pid).map(Ok));
    }
    let mut reply = Reply::start(Query::Links, pid, deadline).map(BufReader::new);
    Box::new(iter::from_fn(move || match &mut reply {
        Ok(reply) => Step::decode(reply).transpose(),
        Err(error) => Some(Err(error.kind().into())),
    }))
}

/// Returns a file of procfs of a process or thread; reads end with an error at `deadline`.
///
/// # Errors
/// The inspector cannot be started, or the process has ended or may not be read.
pub(crate) fn open(query: Query, task: u32, deadline: Instant) -> io::Result<Box<dyn Read>> {
    if reads_itself(query, task) {
        return Ok(Box::new(File::open(inspector::path(query, task))?));
    }
    Ok(Box::new(Reply::start(query, task, deadline)?))
}

/// Returns the text of /proc/PID/status, if this process may read it itself: no process of another
/// user blocks or delays that. `None` otherwise; the text of a process that has ended is empty.
pub(crate) fn trusted_status(task: u32) -> Option<String> {
    let path = reads_itself(Query::Status, task).then(|| inspector::path(Query::Status, task))?;
    Some(proc::read(path).unwrap_or_default())
}

/// Returns the text of a small file of a process or thread; `None` if it has ended or may not be
/// read.
///
/// # Errors
/// It was not read until `deadline`.
pub(crate) fn text(query: Query, task: u32, deadline: Instant) -> io::Result<Option<String>> {
    let mut text = Vec::new();
    let file = open(query, task, deadline);
    match file.and_then(|file| file.take(TEXT_BYTES_MAX).read_to_end(&mut text)) {
        Ok(_) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns true if an error means that a process has ended, or that this process may not inspect
/// it.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    let is_ended = error.raw_os_error() == Some(libc::ESRCH);
    is_ended || matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, WaitOptions, kill_process, waitpid};

    fn later() -> Instant {
        Instant::now() + Duration::from_mins(1)
    }

    fn read(query: Query, deadline: Instant) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        Reply::start(query, std::process::id(), deadline)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    #[test]
    fn an_inspector_answers_until_it_is_late() {
        let status = read(Query::Status, later()).unwrap();
        assert!(String::from_utf8(status).unwrap().contains("RssAnon:"));
        let maps = read(Query::Maps, later()).unwrap();
        assert!(maps.ends_with(b"\n") && maps.len() > 1000);
        let error = read(Query::Maps, Instant::now()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let mut reply = Reply::start(Query::Maps, std::process::id(), later()).unwrap();
        reply.read_exact(&mut [0; 10]).unwrap();
        drop(reply);
        assert!(read(Query::Maps, later()).unwrap().len() > 1000, "another inspector");
        let gone = Reply::start(Query::Maps, UNNUMBERED, later()).unwrap().read(&mut [0]);
        assert!(is_gone(&gone.unwrap_err()));
    }

    #[test]
    fn an_inspector_that_is_late_is_not_lost() {
        let starting = Inspector::start().unwrap();
        let pid = starting.child.id();
        starting.release();
        let started = loop {
            match Inspector::take(Instant::now()) {
                Ok(started) => break started,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::TimedOut),
            }
        };
        started.release();
        let mut reply = Reply::start(Query::Maps, std::process::id(), later()).unwrap();
        assert_eq!(reply.pending.as_ref().unwrap().inspector.child.id(), pid);
        reply.read_exact(&mut [0; 10]).unwrap();
        drop(reply);
        // Its time does not end on a busy machine either.
        LATE.lock().unwrap()[0].1 = later();
        while !LATE.lock().unwrap().is_empty() {
            collect_late();
        }
        assert_eq!(IDLE.lock().unwrap()[0].child.id(), pid);
    }

    #[test]
    fn an_inspector_that_does_not_answer_leaves_nothing_but_itself() {
        let inspector = Inspector::take(later()).unwrap();
        let pid = inspector.child.id();
        let links: Vec<_> = process_links::of(pid).collect();
        let descriptors = links
            .iter()
            .filter(|step| matches!(step, Step::Item(Link { is_descriptor: true, .. })));
        assert_eq!(descriptors.count(), 3, "{links:?}");
        let child = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(child, Signal::STOP).unwrap();
        let (_, state) = waitpid(Some(child), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(state.stopped());
        IDLE.lock().unwrap().push(inspector);
        let soon = Instant::now() + Duration::from_millis(10);
        assert_eq!(read(Query::Maps, soon).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let end = Instant::now() + Duration::from_mins(1);
        while std::path::Path::new(&format!("/proc/{pid}")).exists() {
            assert!(Instant::now() < end, "it is killed and reaped");
            assert!(read(Query::Status, later()).is_ok(), "others answer");
        }
    }
}
