//! Blocking workers: threads that handle requests which wait for the directory's disk or for the
//! cache.
//!
//! Each has a session for each section and submits one request at a time. Invariant: truncated
//! data, and data of a deleted file, is not written after the truncation or deletion; the rest of
//! the file is not affected.

mod backlog;
mod border;
mod drops;
mod jobs;
mod retention;
mod space;
mod uncached;

pub(super) use drops::CoveredWrite;

use super::super::abi::{self, FsyncIn, InHeader, OpenIn, SetattrIn, TransferIn, opcode};
use super::super::link::ReplyPath;
use super::super::mount_failure::MountFailure;
use super::answer::{Answer, AnswerResult, empty_reply, is_lookup};
use super::attributes::sets_capabilities;
use super::data::BLOCK;
use super::names::RenameRequest;
use super::removal::{HiddenNamesWait, hidden_files_in, remove_directory};
use super::unnamed::{SweepControl, Sweeper};
use super::{Directory, Node};
use crate::blocking::BlockingSession;
use crate::engine::{ArenaCache, Engine};
use crate::fault::{self, Thread, confine};
use crate::front::errors::{errno_of, log_failure};
use crate::reclaim::reserve_stack;
use crate::store::files::{FileTable, PendingChange, SourceFile};
use crate::waker::Waker;
use backlog::{Backlog, BacklogEntry};
use drops::PageDropper;
use jobs::JobQueue;
use larder_core::clock::Clock;
use larder_core::request::{Request, RequestOp};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::thread::UnshareFlags;
use std::ffi::CString;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Number of workers: few enough that hits do not wait for a core, and enough to keep a slow disk
/// busy.
const BLOCKING_WORKERS: usize = 4;

/// Maximum time that the end of a mount waits for notifications to the kernel.
const END_TIMEOUT: Duration = Duration::from_secs(2);

const DESCRIPTOR_WAIT_MAX: Duration = Duration::from_secs(2);

/// Attempts of a worker to remove a directory with hidden names, before it retries later,
const REMOVAL_ATTEMPTS: u32 = 4;
/// and pause between them.
const REMOVAL_PAUSE: Duration = Duration::from_millis(5);

/// Maximum time that a request waits for a lease of another process. The kernel removes a lease
/// 45 s after a request for the file, unless `/proc/sys/fs/lease-break-time` says otherwise.
const LEASE_WAIT_MAX: Duration = Duration::from_mins(2);

/// Name of the thread that writes to files that have pages in the kernel's page cache.
const PAGE_WRITER: &str = "page-writer";

/// A request that waits for a blocking worker.
pub(crate) struct QueuedRequest {
    reply_path: ReplyPath,
    header: InHeader,
    body: Vec<u8>,
    backlog_entry: BacklogEntry,
    /// Wait of a request that removes a directory.
    hidden_names: HiddenNamesWait,
}

pub(crate) enum Job {
    Request(QueuedRequest),
    /// Drop the cached data of a node that the kernel has forgotten.
    Retire(Arc<Node>),
    /// Write the unwritten data of a file that no program has open, and close it.
    Close(Arc<Node>),
    /// Pin all of a file in the cache.
    Pin(Arc<Node>),
    /// Move a renamed file to the section of its new name.
    Relocate(Arc<Node>),
    /// Handle a change of a node by another process: invalidate its attributes in the kernel, and
    /// its contents too if `contents`.
    HandleChange {
        node: Arc<Node>,
        contents: bool,
    },
    /// Invalidate the kernel's pages and attributes of a file.
    InvalidateNode(Arc<Node>),
    /// Invalidate a name in a directory in the kernel.
    InvalidateEntry {
        directory: Arc<Node>,
        name: CString,
    },
    /// Make the kernel forget files, to free file descriptors.
    PruneIdle,
    /// Make the kernel forget nodes that have no name in SOURCE any more.
    ForgetUnnamed(Vec<Arc<Node>>),
}

/// Queues and threads of a mount that may block. The threads run from [`start`] to the end of the
/// mount.
#[derive(Default)]
pub(crate) struct BlockingPool {
    jobs: JobQueue,
    /// Jobs of the thread that sends the kernel notifications of changes by other processes. It may
    /// have to wait for requests, so it answers none.
    notifications: JobQueue,
    /// Requests for the thread that writes to files that have pages in the kernel's page cache.
    /// Other threads make the kernel drop these pages. All of these threads wait only for requests
    /// that further threads answer.
    page_writes: JobQueue,
    /// Control of the thread that looks for files without a name.
    pub(crate) sweep: SweepControl,
    /// Memory of the requests in `jobs` and `page_writes`.
    backlog: Arc<Backlog>,
    threads: Mutex<Vec<Thread>>,
    /// Threads that handle `notifications` and `page_writes`, those that make the kernel drop
    /// pages, and the one that looks for files without a name.
    service_threads: Mutex<Vec<Thread>>,
    pub(crate) failure: Arc<MountFailure>,
}

/// Starts the threads of a directory that is about to be mounted.
pub(super) fn start(engine: &Engine, directory: &Arc<Directory>) -> io::Result<()> {
    let pool = &directory.pool;
    let start = |thread_name, jobs: fn(&BlockingPool) -> &JobQueue, page_dropper| {
        let worker = BlockingWorker {
            directory: Arc::clone(directory),
            sessions: directory.sections.iter().map(|_| None).collect(),
            cache: Arc::clone(engine.cache()),
            clock: engine.clock(),
            jobs,
            thread_name,
            page_dropper,
        };
        let failure = Arc::clone(&pool.failure);
        let failed = move |error: &dyn fmt::Display| failure.fail(error);
        fault::spawn(thread_name, Some(engine.cache()), || worker.run(), failed)
    };
    for _ in 0..BLOCKING_WORKERS {
        let thread = start("blocking-worker", |pool| &pool.jobs, None)?;
        pool.threads.lock().expect("no holder panics").push(thread);
    }
    let (page_dropper, [dropper, late_answers]) = PageDropper::start(engine, directory)?;
    let notifier = start("notifier", |pool| &pool.notifications, None)?;
    let writer = start(PAGE_WRITER, |pool| &pool.page_writes, Some(page_dropper))?;
    let sweeper = Sweeper::start(engine, directory)?;
    let threads = [notifier, writer, dropper, late_answers, sweeper];
    pool.service_threads.lock().expect("no holder panics").extend(threads);
    Ok(())
}

impl BlockingPool {
    /// Sets the wakers of the threads that receive requests from the kernel.
    pub(crate) fn set_wakers(&self, wakers: &[Waker]) {
        self.backlog.set_wakers(wakers);
    }

    /// Returns true if so many requests wait that no further ones may be received from the kernel.
    pub(crate) fn is_full(&self) -> bool {
        self.backlog.is_full()
    }

    pub(super) fn request(&self, reply_path: ReplyPath, header: &InHeader, body: Vec<u8>) -> Job {
        let backlog_entry = self.backlog.add(body.len());
        let (header, hidden_names) = (*header, HiddenNamesWait::default());
        Job::Request(QueuedRequest { reply_path, header, body, backlog_entry, hidden_names })
    }

    pub(super) fn send(&self, job: Job) {
        self.jobs.add(job);
    }

    /// Queues a write to a file that has pages in the kernel's page cache.
    pub(super) fn queue_page_write(&self, job: Job) {
        self.page_writes.add(job);
    }

    /// Queues a notification of a change by other processes.
    pub(super) fn queue_notification(&self, job: Job) {
        self.notifications.add(job);
    }

    /// Ends all threads after they have handled the queued requests.
    pub(crate) fn end(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().expect("no holder panics"));
        self.sweep.end();
        self.jobs.close();
        for thread in threads {
            thread.join();
        }
        self.notifications.close();
        self.page_writes.close();
        let service_threads =
            std::mem::take(&mut *self.service_threads.lock().expect("no holder panics"));
        // These threads may wait in the kernel for a request that no thread answers any more.
        let begun = Instant::now();
        while !service_threads.iter().all(Thread::is_finished) && begun.elapsed() < END_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
        for thread in service_threads {
            if thread.is_finished() {
                thread.join();
            } else {
                tracing::warn!("a thread of the mount still waits for the kernel at the end");
            }
        }
    }
}

struct BlockingWorker {
    directory: Arc<Directory>,
    cache: Arc<ArenaCache>,
    /// Session for each section, opened at its first use.
    sessions: Vec<Option<BlockingSession>>,
    clock: Arc<dyn Clock>,
    /// Selects the queue of its jobs.
    jobs: fn(&BlockingPool) -> &JobQueue,
    thread_name: &'static str,
    /// Page drops of the page writer; none for other workers.
    page_dropper: Option<PageDropper>,
}

/// Returns the reply path and the header of the request that a job answers.
fn requester_of(job: &Job) -> Option<(ReplyPath, InHeader)> {
    match job {
        Job::Request(request) => Some((request.reply_path.clone(), request.header)),
        _ => None,
    }
}

/// Refuses a request, if `requester` is one that expects a reply.
fn refuse(requester: Option<(ReplyPath, InHeader)>, errno: Errno) {
    if let Some((reply_path, header)) =
        requester.filter(|(_, header)| !abi::is_unanswered(header.opcode))
    {
        reply_path.answer(header.unique, Err(errno));
    }
}

/// Returns true if a request is an open(2) with `O_NONBLOCK`.
fn is_nonblocking(header: &InHeader, body: &[u8]) -> bool {
    let flags = |body| abi::head_of::<OpenIn>(body).flags;
    header.opcode == opcode::OPEN && flags(body) & libc::O_NONBLOCK.cast_unsigned() != 0
}

/// Gives this thread its own umask, with which it creates files.
pub(crate) fn unshare_umask() {
    #[expect(deprecated, reason = "the part of it that is meant is safe")]
    let unshared = rustix::thread::unshare(UnshareFlags::FS);
    if let Err(error) = unshared {
        tracing::warn!(%error, "files may be made under the mask of another request");
    }
}

fn whole_blocks(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / BLOCK * BLOCK..bytes.end.next_multiple_of(BLOCK)
}

impl BlockingWorker {
    fn run(mut self) {
        reserve_stack();
        unshare_umask();
        while let Some(job) = (self.jobs)(&self.directory.pool).next() {
            let requester = requester_of(&job);
            if self.directory.pool.failure.has_failed() {
                refuse(requester, Errno::IO);
            } else if let Err(panic) = confine(|| self.run_job(job)) {
                // Without a reply, the requesting process would block in the kernel for ever.
                panic.end_if_damaging(&self.cache);
                self.directory.pool.failure.fail(&panic);
                refuse(requester, Errno::IO);
                // The reply to a request in flight must not be taken for that of the next one.
                self.sessions.iter_mut().for_each(|session| drop(session.take()));
            }
        }
    }

    fn run_job(&mut self, job: Job) {
        fault::point(self.thread_name, self.directory.pool.failure.name());
        match job {
            Job::Request(request) => self.run_request(request),
            Job::Retire(node) => {
                self.retire(&node);
                node.end_retirement();
            }
            Job::Close(node) => self.close(&node),
            Job::Pin(node) => self.pin(&node.file),
            Job::Relocate(node) => self.relocate(&node),
            Job::HandleChange { node, contents } => self.handle_change(&node, contents),
            Job::InvalidateNode(node) => self.directory.kernel.invalidate_node(node.id, true),
            Job::InvalidateEntry { directory, name } => {
                self.directory.kernel.invalidate_entry(directory.id, &name);
            }
            Job::PruneIdle => self.directory.prune_idle(),
            Job::ForgetUnnamed(nodes) => self.directory.forget_unnamed(&nodes),
        }
    }

    fn run_request(&mut self, mut request: QueuedRequest) {
        let is_removal = request.header.opcode == opcode::RMDIR;
        let answer = if is_removal {
            self.remove_directory(&mut request)
        } else {
            self.answer_with_retries(&request.header, &request.body)
        };
        let QueuedRequest { reply_path, header, body, backlog_entry, .. } = &request;
        match answer {
            Ok(Answer::Bytes(bytes)) => reply_path.answer(header.unique, Ok(bytes)),
            Ok(Answer::None) => {}
            Ok(Answer::PageWriter) => {
                self.directory.pool.queue_page_write(Job::Request(request));
            }
            Ok(Answer::WhenDropped(write)) => {
                let page_dropper = self.page_dropper.as_ref().expect("this is the page writer");
                page_dropper.drop_and_answer(reply_path.clone(), header.unique, write);
            }
            Ok(Answer::BlockingWorker) if is_removal => {
                // The kernel ends the wait by forgetting files, a message to the device, not to a
                // queue.
                let count_max = reply_path.waiting_max().max(BLOCKING_WORKERS);
                self.retry_later(request, count_max, Errno::NOTEMPTY);
            }
            Ok(Answer::BlockingWorker) => unreachable!("a blocking worker does not pass this on"),
            // Another process has a lease on the file.
            Err(Errno::AGAIN)
                if backlog_entry.age() < LEASE_WAIT_MAX && !is_nonblocking(header, body) =>
            {
                let count_max = reply_path.waiting_max();
                self.retry_later(request, count_max, Errno::AGAIN);
            }
            Err(errno) => reply_path.answer(header.unique, Err(errno)),
        }
    }

    /// Retries a request later, since waiting here could occupy all blocking workers. If
    /// `count_max` requests wait, it is refused.
    fn retry_later(&self, request: QueuedRequest, count_max: usize, errno: Errno) {
        let jobs = (self.jobs)(&self.directory.pool);
        let refused = jobs.add_delayed(Job::Request(request), count_max);
        refuse(refused.as_ref().and_then(requester_of), errno);
    }

    /// Answers a request. A lookup that gets no file descriptor is retried for a bounded time.
    fn answer_with_retries(&mut self, header: &InHeader, body: &[u8]) -> AnswerResult {
        let begun = Instant::now();
        loop {
            let result = self.answer(header, body);
            let is_short = self.directory.prune_if_short(&result);
            if !is_short || !is_lookup(header.opcode) || begun.elapsed() > DESCRIPTOR_WAIT_MAX {
                return result;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn answer(&mut self, header: &InHeader, body: &[u8]) -> AnswerResult {
        match header.opcode {
            opcode::READ => self.read(header, &abi::head_of(body)),
            opcode::WRITE => {
                let args: TransferIn = abi::head_of(body);
                let payload = abi::bytes_after::<TransferIn>(body);
                let len = payload.len().min(args.size as usize);
                self.write(header, &args, &payload[..len])
            }
            opcode::FSYNC => self.fsync(header, &abi::head_of(body)),
            opcode::FSYNCDIR => {
                let args: FsyncIn = abi::head_of(body);
                let node = self.directory.node(header.nodeid)?;
                let directory = node.file.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
                sync(&directory, &args)?;
                Ok(empty_reply())
            }
            opcode::SYNCFS => {
                let directory = Arc::clone(&self.directory);
                let is_cached = |&section: &usize| directory.sections[section].cached().is_some();
                for section in (0..directory.sections.len()).filter(is_cached) {
                    self.submit(section, Request::uncounted(RequestOp::Flush, 0..0), &[])?;
                }
                Ok(empty_reply())
            }
            opcode::FALLOCATE => self.fallocate(header, &abi::head_of(body)),
            opcode::LSEEK => self.seek(header, &abi::head_of(body)),
            opcode::GETATTR | opcode::STATX => {
                let node = self.directory.node(header.nodeid)?;
                // A failure to write does not prevent the reply with the current attributes.
                self.renew(&node.file).ok();
                let attributes = node.file.attributes()?;
                Ok(self.directory.reply_with(header, &node, &attributes).into())
            }
            opcode::OPEN => self.open(header, abi::head_of(body)),
            opcode::SETATTR => {
                let args: SetattrIn = abi::head_of(body);
                let node = self.directory.node(header.nodeid)?;
                let directory = Arc::clone(&self.directory);
                let changed =
                    directory.change(header, &node, &args, |size| self.resize(&node.file, size));
                if changed.is_err() {
                    // A truncation unpins the end of the file before it fails.
                    self.directory.pool.send(Job::Pin(node));
                }
                changed
            }
            opcode::RENAME | opcode::RENAME2 => self.rename(header, body),
            opcode::SETXATTR => {
                let directory = Arc::clone(&self.directory);
                if sets_capabilities(body) {
                    // A later write to SOURCE's file would clear them.
                    let node = directory.node(header.nodeid)?;
                    self.write_out(&node.file, 0..node.file.reach(), false)?;
                }
                directory.setxattr(header, body)
            }
            _ => Arc::clone(&self.directory).answer(header, body),
        }
    }

    /// Submits a request to the volume of a section and waits for its reply.
    fn submit(&mut self, section: usize, request: Request, payload: &[u8]) -> Result<(), Errno> {
        let result = self.session(section)?.submit(request, payload, |_, _| {});
        result.map_err(|error| log_failure(&error))
    }

    /// Reads data of a section into `to` through the cache. Nothing is read ahead beyond `bound`.
    fn read_to(
        &mut self,
        section: usize,
        (start, bound): (u64, Range<u64>),
        to: &mut [u8],
    ) -> Result<(), Errno> {
        let bytes = start..start + to.len() as u64;
        let request = Request { bound: Some(bound), ..Request::uncounted(RequestOp::Read, bytes) };
        let session = self.session(section)?;
        let result = session.submit(request, &[], |frames, read| read.copy_to(frames, to));
        result.map_err(|error| log_failure(&error))
    }

    fn session(&mut self, section: usize) -> Result<&mut BlockingSession, Errno> {
        let slot = &mut self.sessions[section];
        if slot.is_none() {
            let cached = self.directory.sections[section].cached().ok_or(Errno::INVAL)?;
            let (cache, clock) = (Arc::clone(&self.cache), Arc::clone(&self.clock));
            let session = BlockingSession::open(cache, clock, cached.volume);
            *slot = Some(session.map_err(|_closed| Errno::SHUTDOWN)?);
        }
        Ok(slot.as_mut().expect("opened before"))
    }

    /// Writes the dirty data of a range of a file. `stable`: to stable storage.
    fn write_out(
        &mut self,
        file: &SourceFile,
        part: Range<u64>,
        durable: bool,
    ) -> Result<(), Errno> {
        let (section, ranges) = FileTable::ranges(file, part.start, part.end);
        for range in ranges {
            let flush = RequestOp::FlushRange { durable };
            self.submit(section, Request::uncounted(flush, range), &[])?;
        }
        Ok(())
    }

    /// Discards a range of a file, which begins at a block, from the cache: segment by segment, the
    /// last one first. The store changes the directory's file as `change` says when no operation of
    /// the segment is in flight; truncation removes a segment from the cache and from the directory
    /// at the same moment, so that an error between two segments loses no data of the others.
    fn discard_cached(
        &mut self,
        file: &SourceFile,
        part: Range<u64>,
        change: PendingChange,
    ) -> Result<(), Errno> {
        let (section, parts) = FileTable::parts(file, part.start, part.end);
        for (at, range) in parts.into_iter().rev() {
            file.plan(match change {
                PendingChange::Truncate { size, writes } => {
                    PendingChange::Truncate { size: size.max(at), writes }
                }
                PendingChange::Forget | PendingChange::Renew(_) => change,
            });
            let discard = Request::uncounted(RequestOp::Discard, whole_blocks(&range));
            let result = self.session(section)?.submit(discard, &[], |_, _| {});
            result.map_err(|error| {
                tracing::debug!(%error, "nothing was forgotten");
                errno_of(&error)
            })?;
        }
        Ok(())
    }

    /// Opens a file that other processes have changed, or may have: first discards its cached data
    /// if it has changed.
    fn open(&mut self, header: &InHeader, args: OpenIn) -> AnswerResult {
        let node = self.directory.node(header.nodeid)?;
        if self.directory.is_unwatched(&node) {
            self.check_for_changes(&node)?;
        }
        self.renew(&node.file)?;
        Ok(self.directory.open_node((&node, node.has_one_name()), header, args.flags)?.into())
    }

    /// Renames a file after its data is written; if it replaces another file, after its data is on
    /// stable storage.
    fn rename(&mut self, header: &InHeader, body: &[u8]) -> AnswerResult {
        let directory = Arc::clone(&self.directory);
        let renaming = RenameRequest::parse(&directory, header, body)?;
        let (file, moving) = renaming.files(&directory)?;
        if let Some(node) = &file {
            self.write_out(&node.file, 0..node.file.size(), renaming.replaces_target())?;
        }
        renaming.perform()?;
        for node in moving {
            node.file.set_moves();
            self.relocate(&node);
        }
        Ok(empty_reply())
    }

    /// Removes a directory. If files on a server that were removed in it have hidden names that are
    /// likely to disappear, the request is to be retried. Closes those that no program has open.
    fn remove_directory(&mut self, request: &mut QueuedRequest) -> AnswerResult {
        let parent = self.directory.node(request.header.nodeid)?;
        let name = abi::parse_name(&request.body)?;
        let (mut count, mut is_held) = (0, false);
        for attempt in 0..REMOVAL_ATTEMPTS {
            if attempt > 0 {
                std::thread::sleep(REMOVAL_PAUSE);
            }
            let removed = remove_directory(&parent, name);
            if removed != Err(Errno::NOTEMPTY) || !self.directory.is_remote {
                return removed.map(|()| empty_reply());
            }
            let Ok(Some(inodes)) = hidden_files_in(&parent, name) else {
                return Err(Errno::NOTEMPTY);
            };
            (count, is_held) = (inodes.len(), inodes.is_empty());
            for inode in inodes {
                let node = self.directory.nodes.by_inode(parent.device(), inode);
                // The name disappears some time after the file is forgotten: both are progress.
                count += usize::from(node.is_some());
                // A file with another name (hard link) is forgotten with that name.
                is_held |= node.as_ref().is_none_or(|it| it.file.is_open() || !it.has_one_name());
                if let Some(node) = node {
                    self.retire(&node);
                    node.file.rest();
                }
            }
        }
        let waits = request.hidden_names.continues(Instant::now(), count, is_held);
        if waits { Ok(Answer::BlockingWorker) } else { Err(Errno::NOTEMPTY) }
    }

    /// Syncs a file without cached data.
    fn fsync(&mut self, header: &InHeader, args: &FsyncIn) -> AnswerResult {
        let node = self.directory.node(header.nodeid)?;
        sync(&*node.file.buffered(false)?, args)?;
        Ok(empty_reply())
    }
}

fn sync(file: impl std::os::fd::AsFd, args: &FsyncIn) -> Result<(), Errno> {
    if args.flags & abi::FSYNC_DATA != 0 {
        rustix::fs::fdatasync(file)
    } else {
        rustix::fs::fsync(file)
    }
}
