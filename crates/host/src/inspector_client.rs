//! Reads of procfs that can hold memory or files of another process, through a process that can be
//! abandoned.
//!
//! A read of /proc/PID/maps, status, stat or of the links of a process takes a reference to its
//! memory or to a file. If the process drops its own reference meanwhile, the reader drops the last
//! one, and then waits for the FUSE server whose files the process mapped or had open. This wait
//! cannot be killed, and a program with such a thread does not end. So [`crate::inspector`] reads,
//! in a process without memory, descriptors or locks of this program. If it does not answer in
//! time, it is killed and counts as a blocked worker of [`crate::inspect`] until it has ended.
//!
//! Small files of processes of root and of this user are read directly: a user cannot choose their
//! memory.

use crate::inspect::{self, ROOT};
use crate::inspector::{self, ARGUMENT, END, FAILED, GREETING, NAME, Query, REQUEST_BYTES};
use crate::process_links::{self, Link, Step};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
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
/// Maximum time for the start of an inspector, which no other user delays.
const START_TIME_MAX: Duration = Duration::from_secs(1);
/// Time for a killed inspector to end before it counts as blocked.
const END_TIME_MAX: Duration = Duration::from_millis(10);
/// Stack of a thread that waits for the end of an inspector. A server locks its memory.
const STACK_BYTES: usize = 64 << 10;

/// A running inspector.
struct Inspector {
    child: Child,
    requests: ChildStdin,
    replies: ChildStdout,
}

static IDLE: Mutex<Vec<Inspector>> = Mutex::new(Vec::new());

impl Inspector {
    fn start(deadline: Instant) -> io::Result<Inspector> {
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
        let mut inspector = Inspector { child, requests, replies };
        if let Err(error) = inspector.greet(deadline) {
            inspector.abandon(UNNUMBERED);
            return Err(error);
        }
        Ok(inspector)
    }

    /// Waits for the greeting.
    fn greet(&mut self, deadline: Instant) -> io::Result<()> {
        let mut read = Vec::new();
        while !read.ends_with(&GREETING) {
            let mut byte = [0];
            if read.len() > PREAMBLE_BYTES_MAX || self.read(&mut byte, deadline)? == 0 {
                return Err(io::ErrorKind::InvalidData.into());
            }
            read.extend(byte);
        }
        Ok(())
    }

    fn read(&mut self, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now()));
        let left = left.map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.replies, PollFlags::IN)], Some(&left)) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Err(error) => Err(error.into()),
            Ok(_) => self.replies.read(buffer),
        }
    }

    fn read_exact(&mut self, mut buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read(buffer, deadline)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => buffer = &mut buffer[count..],
            }
        }
        Ok(())
    }

    /// Kills the inspector. If it does not end, the process with this ID blocks it.
    fn abandon(self, pid: u32) {
        let Inspector { mut child, requests, replies } = self;
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

/// No process has this ID.
const UNNUMBERED: u32 = u32::MAX;

/// Waits for the end of a process; returns true if it has ended.
fn wait(child: &Child, time: Duration) -> bool {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(Ok(pidfd)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return false };
    let Ok(time) = Timespec::try_from(time) else { return false };
    poll(&mut [PollFd::new(&pidfd.as_fd(), PollFlags::IN)], Some(&time)) == Ok(1)
}

/// The reply to a query. A reply that is not read to its end ends its inspector.
pub(crate) struct Reply {
    /// `None` after the end.
    inspector: Option<Inspector>,
    /// Bytes of the current piece that are not read yet.
    piece_bytes: usize,
    pid: u32,
    deadline: Instant,
}

impl Reply {
    fn start(query: Query, pid: u32, deadline: Instant) -> io::Result<Reply> {
        let mut request = [query as u8, 0, 0, 0, 0];
        request[1..].copy_from_slice(&pid.to_le_bytes());
        let _: [u8; REQUEST_BYTES] = request;
        let idle = IDLE.lock().ok().and_then(|mut idle| idle.pop());
        let mut inspector = idle.map_or_else(|| Inspector::start(deadline), Ok)?;
        if inspector.requests.write_all(&request).is_err() {
            // Something ended it.
            inspector.abandon(UNNUMBERED);
            inspector = Inspector::start(deadline)?;
            inspector.requests.write_all(&request)?;
        }
        Ok(Reply { inspector: Some(inspector), piece_bytes: 0, pid, deadline })
    }

    /// Makes the inspector available to the next query.
    fn release(&mut self) {
        if let Ok(mut idle) = IDLE.lock() {
            idle.extend(self.inspector.take());
        }
    }
}

impl Read for Reply {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(inspector) = &mut self.inspector else { return Ok(0) };
        if self.piece_bytes == 0 {
            let mut header = [0; 4];
            inspector.read_exact(&mut header, self.deadline)?;
            match u32::from_le_bytes(header) {
                END => {
                    self.release();
                    return Ok(0);
                }
                FAILED => {
                    self.release();
                    return Err(io::ErrorKind::NotFound.into());
                }
                bytes => self.piece_bytes = bytes as usize,
            }
        }
        let most = buffer.len().min(self.piece_bytes);
        let count = inspector.read(&mut buffer[..most], self.deadline)?;
        if count == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.piece_bytes -= count;
        Ok(count)
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(inspector) = self.inspector.take() {
            inspector.abandon(self.pid);
        }
    }
}

/// Starts an inspector, unless one waits for queries.
pub(crate) fn prepare() {
    let has_idle = IDLE.lock().is_ok_and(|idle| !idle.is_empty());
    if has_idle || !inspector::is_available() {
        return;
    }
    if let Ok(inspector) = Inspector::start(Instant::now() + START_TIME_MAX)
        && let Ok(mut idle) = IDLE.lock()
    {
        idle.push(inspector);
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
    fn an_inspector_that_does_not_answer_leaves_nothing_but_itself() {
        let inspector = Inspector::start(later()).unwrap();
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
            assert!(Instant::now() < end, "it is reaped");
            thread::yield_now();
        }
    }
}
