//! Requests to a mounted directory: those about the data of files are handled as those of volumes,
//! the others are answered here or passed to a blocking worker.

use super::super::abi::{self, FsyncIn, InHeader, TransferIn, opcode};
use super::super::directory::{
    Answer, AnswerResult, Directory, begin_write, check_alignment, clear_privileges, is_lookup,
    is_release, needs_no_disk, pad_to_sector, read_bound, reply, to_last_block,
};
use super::super::link::FuseRequest;
use super::super::volume_session::VolumeSession;
use super::Worker;
use crate::store::files::{FileTable, SEGMENT_BYTES};
use larder_core::clock::Nanos;
use larder_core::request::{Request, RequestOp, Then};
use larder_core::units::SECTOR_BYTES;
use rustix::io::Errno;
use std::sync::Arc;

/// Time of an answer above which the directory's disk counts as slow, so that clients of this
/// thread must not wait for it,
const SLOW_ANSWER: Nanos = 4_000_000;
/// and period for which it counts as slow.
const SLOW_PERIOD: Nanos = 40_000_000;

impl Worker {
    /// Answers a request that does not concern data, or passes it on.
    pub(crate) fn take_directory_request(
        &mut self,
        directory: &Arc<Directory>,
        now: Nanos,
        request: FuseRequest<'_>,
    ) {
        let FuseRequest { header, body, .. } = request;
        // Clients with requests in flight in this thread must not wait for the directory's disk.
        let is_idle = self.sessions.iter().all(VolumeSession::is_idle);
        let result = if directory.is_unauthorized(header) && !is_release(header.opcode) {
            Err(Errno::ACCESS)
        } else if needs_no_disk(header.opcode) {
            directory.answer(header, body)
        } else if is_idle && now >= self.slow_until {
            let result = directory.answer(header, body);
            let end = self.clock.now();
            if end.saturating_sub(now) > SLOW_ANSWER {
                self.slow_until = end + SLOW_PERIOD;
            }
            result
        } else {
            Ok(Answer::BlockingWorker)
        };
        // A request that changes nothing can be retried when file descriptors are free.
        let is_short = directory.prune_if_short(&result);
        let is_leased = matches!(result, Err(Errno::AGAIN));
        let is_retried = is_leased || is_short && is_lookup(header.opcode);
        let result = if is_retried { Ok(Answer::BlockingWorker) } else { result };
        reply(&mut self.link, directory, request, result);
    }

    /// Handles a data request for a file of a directory. Returns false for other requests.
    pub(crate) fn take_file_request(
        &mut self,
        directory: &Arc<Directory>,
        now: Nanos,
        request: FuseRequest<'_>,
    ) -> bool {
        let FuseRequest { header, body, data } = request;
        let result = match header.opcode {
            opcode::READ => self.read_file(directory, now, header, &abi::head_of(body)),
            opcode::WRITE => self.write_file(directory, now, header, &abi::head_of(body), data),
            opcode::FSYNC => self.sync_file(directory, now, header, &abi::head_of(body)),
            _ => return false,
        };
        reply(&mut self.link, directory, request, result);
        true
    }

    fn read_file(
        &mut self,
        directory: &Arc<Directory>,
        now: Nanos,
        header: &InHeader,
        args: &TransferIn,
    ) -> AnswerResult {
        let node = self.recent.find(directory, header.nodeid)?;
        let by_program = args.transfer_flags & abi::LOCKOWNER != 0;
        let section = directory.section(&node.file);
        let is_page = !by_program && section.is_direct_io();
        let must_wait = is_page && !node.file.note_page() || directory.must_check(&node, now);
        let Some(cached) = section.cached().filter(|_| !must_wait) else {
            check_alignment(&node, args, to_last_block(&node, args))?;
            return Ok(Answer::BlockingWorker);
        };
        let size = node.file.size();
        let left = size.saturating_sub(args.offset);
        let len = left.min(u64::from(args.size.min(abi::READ_BYTES_MAX)));
        if len == 0 {
            self.link.reply(header.unique, &[]);
            return Ok(Answer::None);
        }
        check_alignment(&node, args, to_last_block(&node, args))?;
        let begin = args.offset % SEGMENT_BYTES;
        if begin + len > SEGMENT_BYTES {
            return Ok(Answer::BlockingWorker);
        }
        // A file has one first segment, which may be allocated here. For other segments, a blocking
        // worker checks whether the file has data there, which may take time.
        let first = || cached.table.place(&node.file, args.offset).ok();
        let start = FileTable::find(&node.file, args.offset)
            .or_else(|| (args.offset < SEGMENT_BYTES).then(first).flatten());
        let Some(start) = start else { return Ok(Answer::BlockingWorker) };
        node.file.note_reach(size.next_multiple_of(cached.volume.page_bytes()));
        let bound = read_bound(start, args.offset, size);
        let index = self.section_session(node.file.section(), cached.volume)?;
        let len = u32::try_from(len).expect("at most 1 MiB");
        self.read_at(now, index, header.unique, (start, len), (Some(&node.file), bound));
        Ok(Answer::None)
    }

    fn write_file(
        &mut self,
        directory: &Arc<Directory>,
        now: Nanos,
        header: &InHeader,
        args: &TransferIn,
        payload: &[u8],
    ) -> AnswerResult {
        let node = self.recent.find(directory, header.nodeid)?;
        let len = payload.len().min(args.size as usize);
        let payload = &payload[..len];
        let end = args.offset.checked_add(len as u64).filter(|&end| i64::try_from(end).is_ok());
        let end = end.ok_or(Errno::FBIG)?;
        if len == 0 {
            self.reply_written(header.unique, 0);
            return Ok(Answer::None);
        }
        check_alignment(&node, args, args.size.into())?;
        if node.file.may_give_rights() {
            clear_privileges(directory, &node, header, args)?;
        }
        if let Some(error) = node.file.write_refusal(end) {
            return Err(error);
        }
        let section = directory.section(&node.file);
        let is_one_segment = args.offset / SEGMENT_BYTES == (end - 1) / SEGMENT_BYTES;
        let exceeds_deferred =
            end > directory.nodes.deferred_size_max(&node) && end > node.file.size();
        let Some(cached) = section.cached().filter(|_| is_one_segment && !exceeds_deferred) else {
            return Ok(Answer::BlockingWorker);
        };
        // The last check that may pass the request to another thread: a write that waits in a queue
        // must not count as in flight, or threads that wait for writes in flight could deadlock
        // with it.
        let write_guard = match begin_write(section, &node.file, args, args.offset..end) {
            Ok(write_guard) => write_guard,
            Err(thread) => return Ok(thread),
        };
        let start = cached.table.place(&node.file, args.offset)?;
        let index = self.section_session(node.file.section(), cached.volume)?;
        // Before the bytes are in the cache: the store writes nothing beyond the end of the file.
        let is_end = end >= node.file.grow(end);
        cached.note_reach(&node.file);
        let bytes = start..start + len as u64;
        let mut in_flight = self.in_flight(header.unique, RequestOp::Write, bytes.clone());
        (in_flight.file, in_flight.write_guard) = (Some(Arc::clone(&node.file)), write_guard);
        let then = if args.flags & abi::SYNCHRONOUS == 0 {
            Then::Nothing
        } else {
            Then::FlushRange(bytes.clone())
        };
        let request = |range| Request { then, ..Request::new(RequestOp::Write, range) };
        let mut sector = [0; SECTOR_BYTES];
        let mut parts = pad_to_sector(start, payload, is_end, &mut sector);
        let (first, second) = (parts.next(), parts.next());
        if let (Some((offset, part)), None) = (first, second) {
            let range = offset..offset + part.len() as u64;
            self.submit(now, index, request(range), part, in_flight);
            return Ok(Answer::None);
        }
        let requests = &mut self.sessions[index].requests;
        let id = requests.begin(now, request(bytes), in_flight);
        for (offset, part) in first.into_iter().chain(second) {
            requests.push(&self.cache, now, id, offset, part);
        }
        requests.finish(&self.cache, now, id);
        self.answer_ended(now, index);
        Ok(Answer::None)
    }

    fn sync_file(
        &mut self,
        directory: &Arc<Directory>,
        now: Nanos,
        header: &InHeader,
        args: &FsyncIn,
    ) -> AnswerResult {
        let node = self.recent.find(directory, header.nodeid)?;
        let (section, ranges) = FileTable::ranges(&node.file, 0, node.file.size());
        let cached = directory.section(&node.file).cached();
        let Some(cached) = cached.filter(|_| !ranges.is_empty()) else {
            return Ok(Answer::BlockingWorker);
        };
        let index = self.section_session(section, cached.volume)?;
        let flush = RequestOp::FlushRange { durable: true };
        let mut in_flight = self.in_flight(header.unique, flush, 0..0);
        in_flight.metadata = (args.flags & abi::FSYNC_DATA == 0).then(|| node.file.want_metadata());
        if let [range] = &ranges[..] {
            self.submit(now, index, Request::new(flush, range.clone()), &[], in_flight);
            return Ok(Answer::None);
        }
        let requests = &mut self.sessions[index].requests;
        let id = requests.begin(now, Request::new(flush, 0..0), in_flight);
        for range in ranges {
            requests.push_flush(&self.cache, now, id, range);
        }
        requests.finish(&self.cache, now, id);
        self.answer_ended(now, index);
        Ok(Answer::None)
    }
}
