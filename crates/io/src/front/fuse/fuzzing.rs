//! Mounts without a kernel, for the fuzz targets of larder-fuzz: a socket stands for /dev/fuse.
//!
//! Requests are changed to ones that a kernel can send: names have no slash and are not "..", no
//! devices are created, and nodes and handles are those of earlier replies. So no request leaves
//! the directory.

use super::abi::{self, InHeader, opcode};
use super::device::Device;
use super::directory::{Directory, DirectoryOptions, OpenedDirectory, unshare_umask};
use super::files::Files;
use super::handshake;
use super::link::Link;
use super::mount_failure::MountFailure;
use super::shared::{MountContents, Shared};
use super::worker::Worker;
use crate::engine::{Engine, EngineOptions};
use crate::store::{SolidMap, TimedStore};
use crate::waker::Waker;
use larder_core::store::{Geometry, MemoryStore, Store as _};
use larder_core::volume::VolumeOptions;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Memory of the cache.
const MEMORY_BYTES: u64 = 16 << 20;
/// Bytes of the volumes.
const VOLUME_BYTES: u64 = 128 << 10;
/// Time after which a request counts as unanswered; longer than the pauses of a busy machine.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for which this thread polls for a reply before it sleeps: most replies come sooner, and a
/// sleep takes longer than that.
const SPIN: Duration = Duration::from_micros(200);
/// Bytes of the longest reply.
const ANSWER_BYTES: usize = 256 << 10;
/// Upper bound of the lengths of reads, and of the offsets and lengths of allocations.
const LENGTH_MAX: u32 = 1 << 17;

/// See fallocate(2).
const PUNCH_HOLE: u64 = 2;

/// A mount with one worker.
pub struct Mount {
    worker: Worker,
    shared: Arc<Shared>,
    /// Socket that stands for the kernel's side.
    kernel: OwnedFd,
    /// Nodes and handles from replies since the last reset.
    nodes: Vec<u64>,
    handles: Vec<u64>,
    unique: u64,
    buffer: Vec<u8>,
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mount").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

/// A sent request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The operation.
    pub opcode: u32,
    /// Number of the request; repeated in the reply.
    pub unique: u64,
    /// Maximum bytes of the reply to a read, a listing or an attribute request, or bytes of a
    /// write.
    pub size: u32,
}

/// Returns a pair of connected sockets that preserve message boundaries, as the device does.
fn socket() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .expect("a pair of sockets")
}

fn engine() -> Arc<Engine> {
    let options = EngineOptions {
        memory_bytes: MEMORY_BYTES,
        huge_pages: false,
        lock: false,
        threads: 2,
        policy_bytes: 64,
    };
    Arc::new(Engine::new(options).expect("memory for a small cache"))
}

/// Returns the replies to the first request of a connection, which negotiates capabilities.
#[must_use]
pub fn handshake(request: &[u8]) -> Vec<Vec<u8>> {
    let (kernel, device) = socket();
    // The request is sent once: a second receive finds the end of the stream.
    let sent = rustix::net::send(&kernel, request, SendFlags::empty());
    sent.expect("a request fits into a socket");
    rustix::net::shutdown(&kernel, rustix::net::Shutdown::Write).expect("it is connected");
    // A refusal is a reply, too.
    handshake::run_handshake(&device, handshake::DIRECTORY_CAPABILITIES).ok();
    let mut buffer = vec![0; ANSWER_BYTES];
    let mut answers = Vec::new();
    while let Ok(len @ 1..) = rustix::io::read(&kernel, &mut buffer[..]) {
        answers.push(buffer[..len].to_vec());
    }
    answers
}

impl Mount {
    /// Mounts two volumes, one of which is read-only, as files.
    #[must_use]
    pub fn of_volumes() -> Self {
        let engine = engine();
        let files = Files::new();
        for (name, read_only) in [("disk", false), ("iso", true)] {
            let geometry = Geometry { length: VOLUME_BYTES, granule: 512, read_only };
            let store = TimedStore::new(MemoryStore::new(geometry), engine.clock());
            let options = VolumeOptions::new(name, store.geometry());
            let volume = engine.add_volume(options, Box::new(store)).expect("a volume");
            files.add(volume, Arc::new(SolidMap)).expect("its name is free");
        }
        let failure = Arc::new(MountFailure::new(Path::new("fuzz")));
        Mount::new(engine, MountContents::Volumes(files), failure)
    }

    /// Mounts a directory, which has to be on tmpfs.
    #[must_use]
    pub fn of_directory(path: &Path, options: DirectoryOptions) -> Self {
        // A second safeguard against requests that create devices; threads inherit this.
        let mut sets = capabilities(None).expect("a thread may look at its rights");
        sets.effective.remove(CapabilitySet::MKNOD);
        sets.permitted.remove(CapabilitySet::MKNOD);
        set_capabilities(None, sets).expect("a thread may drop a right");
        unshare_umask();
        let engine = engine();
        let opened =
            Directory::open(path, DirectoryOptions { plain: true, ..options }, &engine.clock());
        let OpenedDirectory { directory, stores, .. } = opened.expect("the directory is free");
        let volumes = stores.into_iter().enumerate().map(|(index, store)| {
            let options = VolumeOptions::new(format!("files{index}"), store.geometry());
            engine.add_volume(options, store).expect("a volume")
        });
        let volumes: Vec<_> = volumes.collect();
        let directory = directory.begin(&engine, &volumes, path).expect("threads");
        let failure = Arc::clone(&directory.pool.failure);
        Mount::new(engine, MountContents::Directory(directory), failure)
    }

    fn new(engine: Arc<Engine>, tree: MountContents, failure: Arc<MountFailure>) -> Self {
        let (kernel, device) = socket();
        let waker = Waker::new().expect("a descriptor");
        let shared = Shared::new(engine, tree, failure, None, vec![waker.clone()]);
        let shared = Arc::new(shared);
        let device = Device::new(device, &waker).expect("a descriptor");
        let worker = Worker::new(Arc::clone(&shared), Link::new(Arc::new(device), None), waker);
        let (nodes, handles, buffer) = (vec![abi::ROOT], Vec::new(), vec![0; ANSWER_BYTES]);
        Mount { worker, shared, kernel, nodes, handles, unique: 0, buffer }
    }

    /// Sends the request in `bytes`, after repairing it; returns it and its replies.
    ///
    /// # Panics
    /// If the mount has failed, or does not reply.
    pub fn exchange(&mut self, bytes: &[u8]) -> (Sent, Vec<Vec<u8>>) {
        let (sent, bytes, is_whole) = self.repair(bytes);
        rustix::io::write(&self.kernel, &bytes).expect("a request fits into a socket");
        let wanted = usize::from(is_whole && !abi::is_unanswered(sent.opcode));
        let begun = Instant::now();
        let mut answers = Vec::new();
        let mut is_taken = false;
        while !is_taken || answers.len() < wanted {
            is_taken |= self.worker.take_requests().expect("the socket is open") > 0;
            self.worker.take_completions(self.worker.clock.now());
            self.receive(&mut answers);
            assert!(!self.shared.failure.has_failed(), "the mount has failed after {sent:?}");
            assert!(begun.elapsed() < REPLY_TIMEOUT, "{sent:?} is not answered");
            if is_taken && answers.len() < wanted && begun.elapsed() < SPIN {
                std::thread::yield_now();
            } else if is_taken && answers.len() < wanted {
                let answer = Some((self.kernel.as_fd(), PollFlags::IN));
                self.worker.waker.sleep(answer, Some(Duration::from_millis(5))).expect("a sleep");
            }
        }
        for answer in &answers {
            self.record_reply(sent.opcode, answer);
        }
        (sent, answers)
    }

    /// Makes the mount forget the nodes that were looked up.
    pub fn reset(&mut self) {
        if let MountContents::Directory(directory) = &self.shared.tree {
            directory.forget_all();
        }
        self.nodes = vec![abi::ROOT];
        self.handles.clear();
    }

    fn receive(&mut self, answers: &mut Vec<Vec<u8>>) {
        loop {
            match rustix::io::read(&self.kernel, &mut self.buffer[..]) {
                Ok(len) => answers.push(self.buffer[..len].to_vec()),
                Err(Errno::AGAIN) => return,
                Err(error) => panic!("the socket is open: {error}"),
            }
        }
    }

    /// Records the node or handle in a reply.
    fn record_reply(&mut self, code: u32, answer: &[u8]) {
        let body = answer.get(size_of::<abi::OutHeader>()..).unwrap_or_default();
        if body.is_empty() {
            return;
        }
        let number = abi::head_of::<abi::ForgetIn>(body).nlookup;
        match code {
            opcode::LOOKUP
            | opcode::SYMLINK
            | opcode::MKNOD
            | opcode::MKDIR
            | opcode::LINK
            | opcode::CREATE
            | opcode::TMPFILE
                if number > 0 =>
            {
                self.nodes.push(number);
            }
            opcode::OPENDIR => self.handles.push(number),
            _ => {}
        }
    }

    /// Returns the request that a kernel could send instead, and true if it is complete.
    fn repair(&mut self, bytes: &[u8]) -> (Sent, Vec<u8>, bool) {
        let mut header: InHeader = abi::head_of(bytes);
        self.unique += 2;
        header.unique = self.unique;
        header.nodeid = resolve(&self.nodes, header.nodeid);
        // The kernel refuses the number of no user and no group.
        header.uid = header.uid.min(u32::MAX - 1);
        header.gid = header.gid.min(u32::MAX - 1);
        let mut bytes = bytes.to_vec();
        let is_whole = bytes.len() >= abi::IN_HEADER_BYTES && header.len as usize == bytes.len();
        let len = bytes.len().min(abi::IN_HEADER_BYTES);
        bytes[..len].copy_from_slice(&header.as_bytes()[..len]);
        let body = &mut bytes[len..];
        if !matches!(
            header.opcode,
            opcode::WRITE | opcode::SETXATTR | opcode::GETXATTR | opcode::REMOVEXATTR
        ) {
            // The whole body, since names can be anywhere in it.
            body.iter_mut().filter(|it| matches!(**it, b'/' | b'.')).for_each(|it| *it = b'_');
        }
        self.repair_body(header.opcode, body);
        let size = match header.opcode {
            opcode::GETXATTR | opcode::LISTXATTR => number(body, &(0..4)),
            _ => number(body, &(16..20)),
        };
        let size = u32::try_from(size).expect("4 bytes");
        (Sent { opcode: header.opcode, unique: header.unique, size }, bytes, is_whole)
    }

    fn repair_body(&self, code: u32, body: &mut [u8]) {
        let below = |max: u32| move |number: u64| number % u64::from(max);
        if matches!(code, opcode::READ | opcode::WRITE | opcode::FALLOCATE) {
            rewrite(body, &(8..16), |offset| offset & u64::MAX >> 1);
        }
        match code {
            opcode::READ => rewrite(body, &(16..20), below(LENGTH_MAX)),
            opcode::READDIR | opcode::READDIRPLUS | opcode::RELEASEDIR => {
                rewrite(body, &(0..8), |handle| resolve(&self.handles, handle));
            }
            opcode::SETATTR => {
                let user = |id: u64| id.min(u64::from(u32::MAX - 1));
                rewrite(body, &(76..80), user);
                rewrite(body, &(80..84), user);
            }
            opcode::MKNOD => {
                let mode = |mode: u64| mode & 0o7777 | u64::from(libc::S_IFREG);
                rewrite(body, &(0..4), mode);
            }
            opcode::LINK | opcode::RENAME | opcode::RENAME2 => {
                rewrite(body, &(0..8), |node| resolve(&self.nodes, node));
            }
            // A hole takes no space, so any length of a file is allowed.
            opcode::FALLOCATE if number(body, &(24..28)) & PUNCH_HOLE != 0 => {
                rewrite(body, &(16..24), |length| length & u64::MAX >> 1);
            }
            opcode::FALLOCATE => {
                rewrite(body, &(8..16), below(LENGTH_MAX));
                rewrite(body, &(16..24), below(LENGTH_MAX));
            }
            opcode::BATCH_FORGET => {
                for forget in body.get_mut(8..).unwrap_or_default().chunks_exact_mut(16) {
                    rewrite(forget, &(0..8), |node| resolve(&self.nodes, node));
                }
            }
            _ => {}
        }
    }
}

/// Returns the known number at a small index; returns a large number unchanged.
fn resolve(numbers: &[u64], number: u64) -> u64 {
    let index = usize::try_from(number).unwrap_or(usize::MAX);
    if numbers.is_empty() || index > 0xff { number } else { numbers[index % numbers.len()] }
}

/// Returns the part of a range that lies inside of a body.
fn clip(body: &[u8], range: &Range<usize>) -> Range<usize> {
    range.start.min(body.len())..range.end.min(body.len())
}

/// Returns the little-endian number in a range of a body; zeros follow a body.
fn number(body: &[u8], range: &Range<usize>) -> u64 {
    let part = &body[clip(body, range)];
    let mut bytes = [0; 8];
    bytes[..part.len()].copy_from_slice(part);
    u64::from_le_bytes(bytes)
}

/// Changes the number in a range of a body, as far as the range lies inside of it.
fn rewrite(body: &mut [u8], range: &Range<usize>, to: impl FnOnce(u64) -> u64) {
    let new = to(number(body, range)).to_le_bytes();
    let part = clip(body, range);
    let len = part.len();
    body[part].copy_from_slice(&new[..len]);
}
