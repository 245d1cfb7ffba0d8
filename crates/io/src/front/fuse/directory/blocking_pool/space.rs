//! Changes of the length, holes and zeroed ranges of files, in the directory and in the cache
//! together.

use super::super::answer::{AnswerResult, empty_reply};
use super::super::data::{self, BLOCK};
use super::super::sections::CachedSection;
use super::{BlockingWorker, uncached};
use crate::front::fuse::abi::{FallocateIn, InHeader, LseekIn, LseekOut};
use crate::store::files::{FileTable, PendingChange, SourceFile};
use larder_core::request::{Request, RequestOp};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Interval of checks for the end of the writes to a file.
const WRITES_POLL_INTERVAL: Duration = Duration::from_micros(100);

impl BlockingWorker {
    pub(super) fn resize(&mut self, file: &Arc<SourceFile>, size: u64) -> Result<(), Errno> {
        let _change_guard = file.change();
        let directory = Arc::clone(&self.directory);
        let cached = directory.section(file).cached();
        let resized = if let Some(cached) = cached.filter(|_| size < file.size()) {
            self.shorten(file, cached, size)
        } else {
            let truncated = rustix::fs::ftruncate(file.buffered(true)?, size);
            truncated.map(|()| match cached {
                Some(_) => file.raise_size(size),
                None => file.set_size(size),
            })
        };
        file.take_times();
        resized
    }

    fn shorten(
        &mut self,
        file: &Arc<SourceFile>,
        cached: CachedSection<'_>,
        size: u64,
    ) -> Result<(), Errno> {
        let first = size / BLOCK * BLOCK;
        // The store truncates the directory's file when the cache discards the segment of this
        // block.
        cached.table.place(file, first)?;
        self.unpin(file, size);
        loop {
            let writes = self.wait_for_writes(file)?;
            // The cache discards the block of the new end as a whole.
            self.write_out(file, first..size, false)?;
            let all = first..file.reach().max(first + BLOCK);
            match self.discard_cached(file, all, PendingChange::Truncate { size, writes }) {
                // New writes to that block have to be written back first.
                Err(_) if file.writes() != Some(writes) => {}
                result => return result,
            }
        }
    }

    /// Waits until no write to a file is in flight; returns the number of writes before. The kernel
    /// starts none while it waits for the new size, but another thread may have one in its queue.
    fn wait_for_writes(&self, file: &SourceFile) -> Result<u64, Errno> {
        loop {
            if let Some(writes) = file.writes() {
                return Ok(writes);
            }
            if self.directory.pool.failure.has_failed() {
                return Err(Errno::IO);
            }
            std::thread::sleep(WRITES_POLL_INTERVAL);
        }
    }

    pub(super) fn fallocate(&mut self, header: &InHeader, args: &FallocateIn) -> AnswerResult {
        let node = self.directory.node(header.nodeid)?;
        let file = &node.file;
        let _change_guard = file.change();
        let mode = FallocateFlags::from_bits_retain(args.mode);
        let (offset, end) = (args.offset, args.offset.checked_add(args.length));
        let end = end.ok_or(Errno::FBIG)?;
        let keeps_size = mode.contains(FallocateFlags::KEEP_SIZE);
        let zeroes = mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE);
        let directory = Arc::clone(&self.directory);
        let section = directory.section(file);
        section.check_writable()?;
        // Kernels before 6.1 do not clear privileges before they send the request.
        file.take_rights(header.uid != 0, |group| data::is_member(header, group))?;
        let Some(cached) = section.cached() else { return uncached::allocate(file, args) };
        let size = file.size();
        if zeroes && offset < size {
            let keep_allocated = mode.contains(FallocateFlags::ZERO_RANGE);
            self.zero(file, cached, offset..end.min(size), keep_allocated)?;
        }
        let rest = if zeroes { offset.max(size).min(end)..end } else { offset..end };
        if !rest.is_empty() {
            let directory_file = file.buffered(true)?;
            rustix::fs::fallocate(directory_file, mode, rest.start, rest.end - rest.start)?;
        }
        if !keeps_size {
            file.raise_size(end);
        }
        file.take_times();
        Ok(empty_reply())
    }

    /// Zeroes a range of a file before its end.
    fn zero(
        &mut self,
        file: &Arc<SourceFile>,
        cached: CachedSection<'_>,
        part: Range<u64>,
        keep_allocated: bool,
    ) -> Result<(), Errno> {
        // The last block contains only zeros after the end.
        let end = if part.end == file.size() { part.end.next_multiple_of(BLOCK) } else { part.end };
        let section = file.section();
        cached.note_reach(file);
        let zero_flag =
            if keep_allocated { FallocateFlags::ZERO_RANGE } else { FallocateFlags::PUNCH_HOLE };
        let mode = zero_flag | FallocateFlags::KEEP_SIZE;
        let directory_file = file.buffered(true)?;
        // A sparse file can have far more uncached parts than segments.
        file.beside_segments(part.clone(), |part| {
            rustix::fs::fallocate(&*directory_file, mode, part.start, part.end - part.start)
        })?;
        for range in FileTable::ranges(file, part.start, end).1 {
            self.submit(
                section,
                Request::uncounted(RequestOp::Zero { keep_allocated }, range),
                &[],
            )?;
        }
        Ok(())
    }

    /// Answers the search for data or a hole, from the directory after everything is written.
    pub(super) fn seek(&mut self, header: &InHeader, args: &LseekIn) -> AnswerResult {
        let node = self.directory.node(header.nodeid)?;
        let file = &node.file;
        let wanted = match libc::c_int::try_from(args.whence) {
            Ok(libc::SEEK_DATA) => SeekFrom::Data(args.offset),
            Ok(libc::SEEK_HOLE) => SeekFrom::Hole(args.offset),
            _ => return Err(Errno::INVAL),
        };
        let is_cached = self.directory.section(file).cached().is_some();
        if is_cached && args.offset >= file.size() {
            return Err(Errno::NXIO);
        }
        self.write_out(file, 0..file.size(), false)?;
        // A separate descriptor has its own offset.
        let descriptor = file.open(OFlags::RDONLY)?;
        let offset = rustix::fs::seek(descriptor, wanted)?;
        Ok(LseekOut { offset }.as_bytes().to_vec().into())
    }
}
