//! Clerks: threads that do what has to wait, for the folder's disk or for the cache.
//!
//! Each has a lane of its own and makes one call at a time. Invariant: data that is cut off, or of
//! a file that is gone, is not written after that; what remains of the file is untouched by it.

use super::super::abi::{
    self, FallocateIn, FsyncIn, InHeader, LseekIn, LseekOut, OpenIn, SetattrIn, TransferIn,
    WriteOut, opcode,
};
use super::super::device::Device;
use super::data::{self, BLOCK, ZEROS};
use super::names::Renaming;
use super::requests::{Answer, Answered, behind, done, opened};
use super::{Folder, Node};
use crate::call::{Call, Exclude, Flush, FlushRange, Write, wait};
use crate::engine::{ArenaCache, ArenaLane, ArenaVolume, Engine};
use crate::front::desk::errno_of;
use crate::reclaim::reserve_stack;
use crate::store::files::{Act, FileTable, SEGMENT_BYTES, SourceFile};
use crate::wake::Waker;
use larder_core::cache::cut;
use larder_core::clock::Clock;
use larder_core::counters::Interface;
use larder_core::request::{Assembly, WriteTask};
use larder_core::store::StoreOpKind;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::thread::UnshareFlags;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use zerocopy::IntoBytes;

/// So many do not make hits wait for a core, and keep a slow disk busy.
const CLERKS: usize = 4;

/// What a clerk is asked for.
pub(in crate::front::fuse) enum Job {
    /// To answer a request.
    Request { device: Arc<Device>, header: InHeader, body: Vec<u8> },
    /// To have the cache forget a node that the kernel has forgotten.
    Retire(Arc<Node>),
    /// To write what is left of a file that nobody has open, and to close it.
    Close(Arc<Node>),
    /// To end.
    End,
}

/// The way to all clerks. Clones lead to the same ones.
#[derive(Clone, Debug)]
pub(in crate::front::fuse) struct Clerks {
    jobs: Sender<Job>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Clerks {
    pub(super) fn start(
        engine: &Arc<Engine>,
        folder: &Arc<Folder>,
        volume: &Arc<ArenaVolume>,
    ) -> io::Result<Self> {
        let (sender, jobs) = channel();
        let clerks = Clerks { jobs: sender, threads: Arc::default() };
        let jobs = Arc::new(Mutex::new(jobs));
        for _ in 0..CLERKS {
            let waker = Waker::new()?;
            let cache = Arc::clone(engine.cache());
            let clerk = Clerk {
                folder: Arc::clone(folder),
                clerks: clerks.clone(),
                volume: Arc::clone(volume),
                lane: cache.open_lane(volume, Box::new(waker.clone())),
                cache,
                waker,
                clock: engine.clock(),
                jobs: Arc::clone(&jobs),
            };
            let named = std::thread::Builder::new().name("clerk".into());
            let thread = named.spawn(move || {
                // Whoever waits for a clerk that is gone would wait for ever, in the kernel.
                if catch_unwind(AssertUnwindSafe(|| clerk.run())).is_err() {
                    tracing::error!("a broken invariant; ending at once, as after a power failure");
                    std::process::abort();
                }
            })?;
            clerks.threads.lock().expect("no holder panics").push(thread);
        }
        Ok(clerks)
    }

    pub(super) fn send(&self, job: Job) {
        // Without clerks the mount is gone, and nobody waits for it.
        if self.jobs.send(job).is_err() {
            tracing::debug!("a request came after the end");
        }
    }

    /// Has all of them end, once what was asked before is done.
    pub(in crate::front::fuse) fn end(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().expect("no holder panics"));
        for _ in &threads {
            self.send(Job::End);
        }
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the mount panicked");
            }
        }
    }
}

struct Clerk {
    folder: Arc<Folder>,
    clerks: Clerks,
    cache: Arc<ArenaCache>,
    volume: Arc<ArenaVolume>,
    lane: ArenaLane,
    waker: Waker,
    clock: Arc<dyn Clock>,
    jobs: Arc<Mutex<Receiver<Job>>>,
}

/// Gives this thread a mask of its own, under which it makes files.
pub(in crate::front::fuse) fn own_mask() {
    #[expect(deprecated, reason = "the part of it that is meant is safe")]
    let unshared = rustix::thread::unshare(UnshareFlags::FS);
    if let Err(error) = unshared {
        tracing::warn!(%error, "files may be made under the mask of another request");
    }
}

/// The blocks that a range of bytes touches.
fn blocks_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / BLOCK..bytes.end.div_ceil(BLOCK)
}

impl Clerk {
    fn run(mut self) {
        reserve_stack();
        own_mask();
        loop {
            let job = self.jobs.lock().expect("no holder panics").recv();
            match job {
                Ok(Job::Request { device, header, body }) => match self.answer(&header, &body) {
                    Ok(Answer::Bytes(bytes)) => device.reply(header.unique, &bytes),
                    Ok(Answer::None) => {}
                    Ok(Answer::Clerk) => unreachable!("a clerk does not pass work on"),
                    Err(errno) => device.refuse(header.unique, errno),
                },
                Ok(Job::Retire(node)) => self.retire(&node),
                Ok(Job::Close(node)) => self.close(&node),
                Ok(Job::End) | Err(_) => break,
            }
        }
        self.cache.close_lane(self.lane);
    }

    fn answer(&mut self, header: &InHeader, body: &[u8]) -> Answered {
        match header.opcode {
            opcode::READ => self.read(header, &abi::head_of(body)),
            opcode::WRITE => self.write(header, &abi::head_of(body), behind::<TransferIn>(body)),
            opcode::FSYNC => self.fsync(header, &abi::head_of(body)),
            opcode::FSYNCDIR => {
                let asked: FsyncIn = abi::head_of(body);
                let node = self.folder.node(header.nodeid)?;
                let directory = node.file.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
                sync(&directory, &asked)?;
                Ok(done())
            }
            opcode::SYNCFS => {
                self.call(&mut Flush { token: 0 })?;
                Ok(done())
            }
            opcode::FALLOCATE => self.fallocate(header, &abi::head_of(body)),
            opcode::LSEEK => self.seek(header, &abi::head_of(body)),
            opcode::OPEN => self.open(header, abi::head_of(body)),
            opcode::SETATTR => {
                let asked: SetattrIn = abi::head_of(body);
                let node = self.folder.node(header.nodeid)?;
                let folder = Arc::clone(&self.folder);
                folder.change(&node, &asked, |size| self.resize(&node.file, size))
            }
            opcode::RENAME | opcode::RENAME2 => self.rename(header, body),
            _ => Arc::clone(&self.folder).answer(&self.clerks, header, body),
        }
    }

    /// Makes a call on the cache and waits for its end.
    fn call(&mut self, call: &mut dyn Call) -> Result<(), Errno> {
        let clock = Arc::clone(&self.clock);
        let waited = wait(call, &self.cache, &mut self.lane, &self.waker, &|| clock.now());
        match waited {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                tracing::warn!(%error, "a request failed");
                Err(errno_of(&error))
            }
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }

    /// Writes what is in the cache of a part of a file.
    fn write_out(
        &mut self,
        file: &SourceFile,
        part: Range<u64>,
        stable: bool,
    ) -> Result<(), Errno> {
        for range in FileTable::ranges(file, part.start, part.end) {
            let blocks = blocks_of(&range);
            self.call(&mut FlushRange { token: 0, blocks, stable })?;
        }
        Ok(())
    }

    /// Has the cache forget a part of a file, which begins at a block; the folder's file becomes
    /// what `act` says when nothing of it is under way. False if nothing of it can be cached.
    fn forget(&mut self, file: &SourceFile, part: Range<u64>, act: Act) -> Result<bool, Errno> {
        let mut ranges = FileTable::ranges(file, part.start, part.end);
        let Some(first) = (!ranges.is_empty()).then(|| ranges.remove(0)) else { return Ok(false) };
        for (range, act) in
            ranges.into_iter().rev().map(|range| (range, Act::Forget)).chain([(first, act)])
        {
            file.plan(act);
            let (kind, blocks) = (StoreOpKind::Discard, blocks_of(&range));
            self.call(&mut Exclude { token: 0, kind, blocks })?;
        }
        Ok(true)
    }

    /// All of a file may come into the cache, and what its last page has beyond the end.
    fn note_reach(&self, file: &SourceFile) {
        file.note_reach(file.size().next_multiple_of(self.volume.page_bytes()));
    }

    /// Gives a file another length.
    fn resize(&mut self, file: &SourceFile, size: u64) -> Result<(), Errno> {
        let _alone = file.change();
        let old = file.size();
        let truncate = |file: &SourceFile| rustix::fs::ftruncate(file.buffered(true)?, size);
        if size >= old {
            truncate(file)?;
            file.set_size(size);
            file.take_times();
            return Ok(());
        }
        let first = size / BLOCK * BLOCK;
        if first < size {
            // The block that the end lies in is forgotten as a whole.
            self.write_out(file, first..size, false)?;
        }
        file.set_size(size);
        let forgotten =
            match self.forget(file, first..file.reach().max(first + BLOCK), Act::Truncate(size)) {
                Ok(false) => truncate(file),
                other => other.map(drop),
            };
        if forgotten.is_err() {
            file.set_size(old);
        }
        file.take_times();
        forgotten
    }

    fn fallocate(&mut self, header: &InHeader, asked: &FallocateIn) -> Answered {
        let node = self.folder.node(header.nodeid)?;
        let file = &node.file;
        let _alone = file.change();
        let mode = FallocateFlags::from_bits_retain(asked.mode);
        let (offset, end) = (asked.offset, asked.offset.checked_add(asked.length));
        let end = end.ok_or(Errno::FBIG)?;
        let keeps_size = mode.contains(FallocateFlags::KEEP_SIZE);
        let zeroes = mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE);
        let size = file.size();
        if zeroes && offset < size {
            let keep_allocated = mode.contains(FallocateFlags::ZERO_RANGE);
            self.zero(file, offset..end.min(size), keep_allocated)?;
        }
        let rest = if zeroes { offset.max(size).min(end)..end } else { offset..end };
        if !rest.is_empty() {
            let folder_file = file.buffered(true)?;
            rustix::fs::fallocate(folder_file, mode, rest.start, rest.end - rest.start)?;
        }
        if !keeps_size && end > size {
            file.set_size(end);
        }
        file.take_times();
        Ok(done())
    }

    /// Makes zeros of a part of a file that lies before its end.
    fn zero(
        &mut self,
        file: &Arc<SourceFile>,
        part: Range<u64>,
        keep_allocated: bool,
    ) -> Result<(), Errno> {
        // What lies behind the end in its last block is zeros already.
        let end = if part.end == file.size() { part.end.next_multiple_of(BLOCK) } else { part.end };
        let folder = Arc::clone(&self.folder);
        self.note_reach(file);
        let mut at = part.start;
        while at < end {
            let next = end.min((at / SEGMENT_BYTES + 1) * SEGMENT_BYTES);
            let start = folder.table.place(file, at)?;
            let pieces = cut(start..start + (next - at), u64::MAX);
            for ragged in [pieces.head, pieces.tail] {
                self.write_zeros(ragged)?;
            }
            if !pieces.blocks.is_empty() {
                let (kind, blocks) = (StoreOpKind::Zero { keep_allocated }, pieces.blocks);
                self.call(&mut Exclude { token: 0, kind, blocks })?;
            }
            at = next;
        }
        Ok(())
    }

    /// Writes zeros to what is no whole block; it may touch two of them.
    fn write_zeros(&mut self, mut range: Range<u64>) -> Result<(), Errno> {
        while !range.is_empty() {
            let len = (range.end - range.start).min(ZEROS.len() as u64);
            let len = u32::try_from(len).expect("at most a block");
            let task = WriteTask::new(0, range.start, len, false);
            self.call(&mut Write { task, bytes: &ZEROS[..len as usize] })?;
            range.start += u64::from(len);
        }
        Ok(())
    }

    /// Where data or a hole begins, as the folder has it once everything is written.
    fn seek(&mut self, header: &InHeader, asked: &LseekIn) -> Answered {
        let node = self.folder.node(header.nodeid)?;
        let file = &node.file;
        let wanted = match libc::c_int::try_from(asked.whence) {
            Ok(libc::SEEK_DATA) => SeekFrom::Data(asked.offset),
            Ok(libc::SEEK_HOLE) => SeekFrom::Hole(asked.offset),
            _ => return Err(Errno::INVAL),
        };
        if asked.offset >= file.size() {
            return Err(Errno::NXIO);
        }
        self.write_out(file, 0..file.size(), false)?;
        // The place of a descriptor is its own.
        let own = file.open(OFlags::RDONLY)?;
        let offset = rustix::fs::seek(own, wanted)?;
        Ok(LseekOut { offset }.as_bytes().to_vec().into())
    }

    /// Opens a file that somebody else has changed: what is cached of it is forgotten.
    fn open(&mut self, header: &InHeader, asked: OpenIn) -> Answered {
        let node = self.folder.node(header.nodeid)?;
        {
            let _alone = node.file.change();
            if node.file.take_stale() {
                tracing::info!(file = node.file.name(), "it was changed behind the mount");
                self.write_out(&node.file, 0..node.file.reach(), false)?;
                self.forget(&node.file, 0..node.file.reach(), Act::Forget)?;
            }
        }
        Ok(opened(&node, asked.flags)?.into())
    }

    /// Renames a file after its data has gone out; where it takes the place of another one, after
    /// its data is stable.
    fn rename(&mut self, header: &InHeader, body: &[u8]) -> Answered {
        let folder = Arc::clone(&self.folder);
        let asked = Renaming::parse(&folder, header, body)?;
        if let Some(node) = asked.file(&folder)? {
            self.write_out(&node.file, 0..node.file.size(), asked.replaces())?;
        }
        asked.perform()?;
        Ok(done())
    }

    /// Of a file that nothing is cached of.
    fn fsync(&mut self, header: &InHeader, asked: &FsyncIn) -> Answered {
        let node = self.folder.node(header.nodeid)?;
        sync(&*node.file.buffered(false)?, asked)?;
        Ok(done())
    }

    /// A read that touches two segments.
    fn read(&mut self, header: &InHeader, asked: &TransferIn) -> Answered {
        let node = self.folder.node(header.nodeid)?;
        let left = node.file.size().saturating_sub(asked.offset);
        let len = left.min(u64::from(asked.size));
        let mut bytes = vec![0; usize::try_from(len).expect("at most 1 MiB")];
        let folder = Arc::clone(&self.folder);
        self.note_reach(&node.file);
        for (part, at) in data::segments(asked.offset..asked.offset + len) {
            let start = folder.table.place(&node.file, part.start)?;
            let len = u32::try_from(part.end - part.start).expect("at most 1 MiB");
            let mut read = Assembly::new(0, start, len).through(Interface::Copy);
            self.call(&mut read)?;
            read.copy_to(self.cache.frames(), &mut bytes[at..at + len as usize]);
            read.release(self.cache.frames());
        }
        Ok(bytes.into())
    }

    /// A write that touches two segments.
    fn write(&mut self, header: &InHeader, asked: &TransferIn, payload: &[u8]) -> Answered {
        let node = self.folder.node(header.nodeid)?;
        let end = asked.offset + payload.len() as u64;
        let old = node.file.grow(end);
        self.note_reach(&node.file);
        let folder = Arc::clone(&self.folder);
        for (part, at) in data::segments(asked.offset..end) {
            let start = folder.table.place(&node.file, part.start)?;
            let len = usize::try_from(part.end - part.start).expect("at most 1 MiB");
            let bytes = &payload[at..at + len];
            let is_end = part.end == end && end >= old;
            for (offset, bytes) in data::padded(start, bytes, is_end, &mut [0; 512]) {
                let len = u32::try_from(bytes.len()).expect("at most 1 MiB");
                let task = WriteTask::new(0, offset, len, false);
                self.call(&mut Write { task, bytes })?;
            }
        }
        if asked.flags & data::SYNCHRONOUS != 0 {
            self.write_out(&node.file, asked.offset..end, true)?;
        }
        let size = u32::try_from(payload.len()).expect("at most 1 MiB");
        Ok(WriteOut { size, padding: 0 }.as_bytes().to_vec().into())
    }

    /// Has the cache forget a node, unless somebody uses it again.
    fn retire(&mut self, node: &Node) {
        let file = &node.file;
        if node.file.is_open() {
            return;
        }
        let _alone = file.change();
        if !file.is_dead() && self.write_out(file, 0..file.reach(), false).is_err() {
            // It stays until it can be written.
            return;
        }
        if let Err(error) = self.forget(file, 0..file.reach(), Act::Forget) {
            tracing::warn!(file = file.name(), %error, "the cache keeps what nobody asks for");
            return;
        }
        self.folder.nodes.leave(node, || self.folder.table.free(file));
    }

    fn close(&mut self, node: &Node) {
        if self.write_out(&node.file, 0..node.file.reach(), false).is_ok() && !node.file.is_open() {
            node.file.close_data();
        }
    }
}

/// Makes a file or directory of the folder stable.
fn sync(file: impl std::os::fd::AsFd, asked: &FsyncIn) -> Result<(), Errno> {
    if asked.flags & abi::FSYNC_DATA != 0 {
        rustix::fs::fdatasync(file)
    } else {
        rustix::fs::fsync(file)
    }
}
