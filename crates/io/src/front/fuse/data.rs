//! Requests about the data of volumes: read, write, flush, zeroing, and the search for data and
//! holes.

use super::abi::{self, FallocateIn, InHeader, LseekIn, LseekOut, TransferIn, WriteOut, opcode};
use super::files::VolumeFile;
use super::link::FuseRequest;
use super::volume_session::InFlight;
use super::worker::Worker;
use crate::front::extents::extents;
use crate::store::files::SourceFile;
use larder_core::clock::Nanos;
use larder_core::counters::Interface;
use larder_core::request::{ImmediateReply, Request, RequestOp, Submitted};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zerocopy::IntoBytes;

/// Bytes of one query of the allocation map.
const SEEK_PIECE_BYTES: u64 = 1 << 30;

impl Worker {
    /// Handles a data request. Returns false for other requests.
    pub(super) fn take_data_request(&mut self, now: Nanos, fuse_request: FuseRequest<'_>) -> bool {
        let FuseRequest { header, body, data } = fuse_request;
        let begun = match header.opcode {
            opcode::READ => self.begin_read(now, header, &abi::head_of(body)),
            opcode::WRITE => self.begin_write(now, header, &abi::head_of(body), data),
            opcode::FSYNC => self.begin_flush(now, header),
            opcode::FALLOCATE => self.begin_zero(now, header, &abi::head_of(body)),
            opcode::LSEEK => self.reply_seek(header, &abi::head_of(body)),
            _ => return false,
        };
        if let Err(errno) = begun {
            self.link.refuse(header.unique, errno);
        }
        true
    }

    fn begin_read(
        &mut self,
        now: Nanos,
        header: &InHeader,
        args: &TransferIn,
    ) -> Result<(), Errno> {
        let index = self.node_session(header.nodeid)?;
        let length = self.sessions[index].file().length;
        let left = length.saturating_sub(args.offset);
        let len_max = args.size.min(abi::READ_BYTES_MAX);
        let len = u32::try_from(left.min(u64::from(len_max))).expect("at most 1 MiB");
        if len == 0 {
            self.link.reply(header.unique, &[]);
        } else {
            self.read_at(now, index, header.unique, (args.offset, len), (None, 0..length));
        }
        Ok(())
    }

    /// Reads at least one byte of a volume; `file` is the file of a directory that the bytes belong
    /// to, and `bound` the range of the volume beyond which nothing is read ahead. The reads of a
    /// file arrive on all threads of a mount; this range makes them one sequence.
    pub(super) fn read_at(
        &mut self,
        now: Nanos,
        index: usize,
        unique: u64,
        (offset, len): (u64, u32),
        (file, bound): (Option<&Arc<SourceFile>>, Range<u64>),
    ) {
        self.read_in_batch = true;
        let bytes = offset..offset + u64::from(len);
        let interface = Interface::Gather;
        let request = Request {
            bound: Some(bound),
            interface,
            ..Request::new(RequestOp::Read, bytes.clone())
        };
        let arrived_at = self.arrived_at;
        let in_flight = || InFlight::new(unique, RequestOp::Read, arrived_at, bytes.clone());
        // A hit does not clone the reference to the file.
        let queued_record = || InFlight { file: file.cloned(), ..in_flight() };
        let requests = &mut self.sessions[index].requests;
        match requests.submit(&self.cache, now, request, &[][..], queued_record) {
            Submitted::Done(ImmediateReply { data, classes }) => {
                self.answer(now, index, (&in_flight(), file), Ok(data), classes);
            }
            Submitted::Queued(_) => self.answer_ended(now, index),
        }
    }

    /// Returns the record of a request that has just arrived.
    pub(super) fn in_flight(&self, unique: u64, op: RequestOp, bytes: Range<u64>) -> InFlight {
        InFlight::new(unique, op, self.arrived_at, bytes)
    }

    fn begin_write(
        &mut self,
        now: Nanos,
        header: &InHeader,
        args: &TransferIn,
        payload: &[u8],
    ) -> Result<(), Errno> {
        let index = self.node_session(header.nodeid)?;
        let file = self.sessions[index].file();
        if file.is_read_only() {
            return Err(Errno::ROFS);
        }
        let left = file.length.saturating_sub(args.offset);
        // A write is cut off at the end of the volume, as at the end of a disk.
        let len = left.min(payload.len() as u64).min(u64::from(args.size));
        if len == 0 {
            return Err(if args.size == 0 { Errno::INVAL } else { Errno::NOSPC });
        }
        file.record_write(now);
        let bytes = args.offset..args.offset + len;
        let in_flight = self.in_flight(header.unique, RequestOp::Write, bytes.clone());
        // The server implements synchronous writes; the kernel passes the flags with each write.
        let fua = args.flags & abi::SYNCHRONOUS != 0;
        let request = Request { fua, ..Request::new(RequestOp::Write, bytes) };
        let short = usize::try_from(len).expect("at most the payload");
        self.submit(now, index, request, &payload[..short], in_flight);
        Ok(())
    }

    pub(super) fn reply_written(&mut self, unique: u64, len: u64) {
        let size = u32::try_from(len).expect("at most 1 MiB");
        self.link.reply(unique, WriteOut { size, padding: 0 }.as_bytes());
    }

    fn begin_flush(&mut self, now: Nanos, header: &InHeader) -> Result<(), Errno> {
        let index = self.node_session(header.nodeid)?;
        let in_flight = self.in_flight(header.unique, RequestOp::Flush, 0..0);
        self.submit(now, index, Request::new(RequestOp::Flush, 0..0), &[], in_flight);
        Ok(())
    }

    /// Zeroes a range by punching a hole or by zeroing. The other modes of fallocate(2) do not
    /// apply to a file with the fixed size and space of a disk.
    fn begin_zero(
        &mut self,
        now: Nanos,
        header: &InHeader,
        args: &FallocateIn,
    ) -> Result<(), Errno> {
        let index = self.node_session(header.nodeid)?;
        let file = self.sessions[index].file();
        let mode = libc::c_int::try_from(args.mode).map_err(|_unknown| Errno::OPNOTSUPP)?;
        let keeps_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let keep_allocated = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            libc::FALLOC_FL_PUNCH_HOLE if keeps_size => false,
            libc::FALLOC_FL_ZERO_RANGE => true,
            _ => return Err(Errno::OPNOTSUPP),
        };
        if file.is_read_only() {
            return Err(Errno::ROFS);
        }
        let length = file.length;
        let end = args.offset.checked_add(args.length).ok_or(Errno::FBIG)?;
        if end > length && !keeps_size {
            return Err(Errno::NOSPC);
        }
        let range = args.offset.min(length)..end.min(length);
        file.record_write(now);
        let op = RequestOp::Zero { keep_allocated };
        let in_flight = self.in_flight(header.unique, op, range.clone());
        self.submit(now, index, Request::new(op, range), &[], in_flight);
        Ok(())
    }

    /// Replies with the offset of the first data or hole at or after an offset.
    fn reply_seek(&mut self, header: &InHeader, args: &LseekIn) -> Result<(), Errno> {
        let file = self.shared.files().by_node(header.nodeid).ok_or(Errno::SHUTDOWN)?;
        let offset = self.seek(&file, args)?;
        self.link.reply(header.unique, LseekOut { offset }.as_bytes());
        Ok(())
    }

    fn seek(&self, file: &VolumeFile, args: &LseekIn) -> Result<u64, Errno> {
        let wants_hole = match libc::c_int::try_from(args.whence) {
            Ok(libc::SEEK_DATA) => false,
            Ok(libc::SEEK_HOLE) => true,
            _ => return Err(Errno::INVAL),
        };
        if file.removed.load(Ordering::Acquire) {
            return Err(Errno::SHUTDOWN);
        }
        let mut position = args.offset;
        while position < file.length {
            let len = (file.length - position).min(SEEK_PIECE_BYTES);
            let len = u32::try_from(len).expect("at most 1 GiB");
            for (run, hole) in extents(&self.cache, &file.volume, &*file.map, position, len, true) {
                if hole == wants_hole {
                    return Ok(position);
                }
                position += u64::from(run);
            }
        }
        // The end counts as a hole.
        let is_inside = wants_hole && args.offset < file.length;
        if is_inside { Ok(file.length) } else { Err(Errno::NXIO) }
    }
}
