//! Requests that move or look at data: read, write, flush, zeroing, and where data is.

use super::abi::{self, FallocateIn, LseekIn, LseekOut, TransferIn, WriteOut, opcode};
use super::files::VolumeFile;
use super::link::Asked;
use super::worker::{READ_BYTES_MAX, Worker};
use crate::call::Call as _;
use crate::front::desk::{Kind, Request, Work};
use crate::front::extents::extents;
use crate::store::files::SourceFile;
use larder_core::clock::Nanos;
use larder_core::counters::{Counter, Latency};
use larder_core::request::Status;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Flags of open(2) under which a write is to be on stable storage when it returns.
const SYNCHRONOUS: u32 = (libc::O_DSYNC | libc::O_SYNC).cast_unsigned();
/// The allocation is asked for this many bytes at a time.
const SEEK_PIECE_BYTES: u64 = 1 << 30;

impl Worker {
    /// Takes a request that is about data; false if it is about something else.
    pub(super) fn take_data_request(&mut self, now: Nanos, asked: Asked<'_>) -> bool {
        if !matches!(
            asked.header.opcode,
            opcode::READ | opcode::WRITE | opcode::FSYNC | opcode::FALLOCATE | opcode::LSEEK
        ) {
            return false;
        }
        if let Err(errno) = self.begin(now, asked) {
            self.link.refuse(asked.header.unique, errno);
        }
        true
    }

    fn begin(&mut self, now: Nanos, asked: Asked<'_>) -> Result<(), Errno> {
        let Asked { header, body, data } = asked;
        let unique = header.unique;
        if header.opcode == opcode::LSEEK {
            let file = self.shared.files().at(header.nodeid).ok_or(Errno::SHUTDOWN)?;
            let found = self.seek(&file, &abi::head_of(body))?;
            self.link.reply(unique, LseekOut { offset: found }.as_bytes());
            return Ok(());
        }
        let desk = self.desk(header.nodeid)?;
        match header.opcode {
            opcode::READ => {
                self.begin_read(now, desk, unique, &abi::head_of(body));
                Ok(())
            }
            opcode::WRITE => self.begin_write(now, desk, unique, &abi::head_of(body), data),
            opcode::FSYNC => {
                self.begin_flush(now, desk, unique);
                Ok(())
            }
            _ => self.begin_zero(now, desk, unique, &abi::head_of(body)),
        }
    }

    fn begin_read(&mut self, now: Nanos, index: usize, unique: u64, asked: &TransferIn) {
        let desk = &mut self.desks[index];
        let left = desk.file().length.saturating_sub(asked.offset);
        let wanted = asked.size.min(READ_BYTES_MAX);
        let len = u32::try_from(left.min(u64::from(wanted))).expect("at most 1 MiB");
        if len == 0 {
            self.link.reply(unique, &[]);
            return;
        }
        self.read_at(now, index, unique, (asked.offset, len), None);
    }

    /// Reads bytes of a volume, at least one; `of` is the file of a folder that they belong to, and
    /// what of the volume that is.
    pub(super) fn read_at(
        &mut self,
        now: Nanos,
        index: usize,
        unique: u64,
        (offset, len): (u64, u32),
        of: Option<(&Arc<SourceFile>, Range<u64>)>,
    ) {
        self.read_in_batch = true;
        let desk = &mut self.desks[index];
        desk.lane.recorder().add(Counter::ReadRequests, 1);
        desk.lane.recorder().add(Counter::ReadBytes, u64::from(len));
        let token = desk.next_token();
        let mut read = desk.spare.assembly(token, offset, len);
        let file = of.map(|(file, part)| {
            read.set_part(part);
            file
        });
        let status = read.ask(&self.cache, &mut desk.lane, now);
        let span = offset..u64::from(len);
        match status {
            Status::Done => {
                self.link.reply_read(unique, self.cache.frames(), &read);
                read.release(self.cache.frames());
                let duration = self.clock.now().saturating_sub(now);
                desk.lane.recorder().record(Latency::Read, duration);
                let classes = read.classes();
                if let Some(file) = file {
                    file.count(classes);
                }
                desk.spare.recycle(read);
                self.observe(index, Kind::Read, self.arrived_at, span, classes);
            }
            Status::Pending | Status::Stalled => {
                let at = self.arrived_at;
                let request = Request::new(Kind::Read, unique, span.start, span.end, at);
                let request = desk.open(request.about(file));
                desk.keep(request, Work::Read(read), status == Status::Stalled);
            }
            Status::DoneAt(_) | Status::Failed(_) => {
                let at = self.arrived_at;
                let request = Request::new(Kind::Read, unique, span.start, span.end, at);
                let request = desk.open(request);
                desk.spare.recycle(read);
                self.note_status(now, index, request, &status);
                self.end_request(now, index, request);
            }
        }
    }

    fn begin_write(
        &mut self,
        now: Nanos,
        index: usize,
        unique: u64,
        asked: &TransferIn,
        payload: &[u8],
    ) -> Result<(), Errno> {
        let desk = &mut self.desks[index];
        desk.lane.recorder().add(Counter::WriteRequests, 1);
        if desk.file().is_read_only() {
            return Err(Errno::ROFS);
        }
        let left = desk.file().length.saturating_sub(asked.offset);
        // As with a disk: what fits is written, and nothing beyond the end.
        let len = left.min(payload.len() as u64).min(u64::from(asked.size));
        if len == 0 {
            return Err(if asked.size == 0 { Errno::INVAL } else { Errno::NOSPC });
        }
        desk.file().note_written(now);
        let short = usize::try_from(len).expect("at most the payload");
        let request = Request::new(Kind::Write, unique, asked.offset, len, self.arrived_at);
        let request = desk.open(request);
        // The kernel leaves it to us to be synchronous, and says so with each write.
        let fua = asked.flags & SYNCHRONOUS != 0;
        self.write_part(now, index, request, asked.offset, &payload[..short], fua);
        self.end_request(now, index, request);
        Ok(())
    }

    /// Writes bytes as a part of a request.
    pub(super) fn write_part(
        &mut self,
        now: Nanos,
        index: usize,
        request: usize,
        offset: u64,
        bytes: &[u8],
        fua: bool,
    ) {
        self.desks[index].write_part(&self.cache, now, request, (offset, bytes), fua);
    }

    pub(super) fn reply_written(&mut self, unique: u64, len: u64) {
        let size = u32::try_from(len).expect("at most 1 MiB");
        self.link.reply(unique, WriteOut { size, padding: 0 }.as_bytes());
    }

    fn begin_flush(&mut self, now: Nanos, index: usize, unique: u64) {
        let desk = &mut self.desks[index];
        desk.lane.recorder().add(Counter::FlushRequests, 1);
        let request = desk.open(Request::new(Kind::Flush, unique, 0, 0, self.arrived_at));
        desk.flush_part(&self.cache, now, request);
        self.end_request(now, index, request);
    }

    /// Both ways of making zeros: punching a hole, and zeroing. The rest of fallocate(2) is not
    /// for a file whose size and space are those of a disk.
    fn begin_zero(
        &mut self,
        now: Nanos,
        index: usize,
        unique: u64,
        asked: &FallocateIn,
    ) -> Result<(), Errno> {
        let desk = &mut self.desks[index];
        let mode = libc::c_int::try_from(asked.mode).map_err(|_unknown| Errno::OPNOTSUPP)?;
        let keeps_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let keep_allocated = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            libc::FALLOC_FL_PUNCH_HOLE if keeps_size => false,
            libc::FALLOC_FL_ZERO_RANGE => true,
            _ => return Err(Errno::OPNOTSUPP),
        };
        if desk.file().is_read_only() {
            return Err(Errno::ROFS);
        }
        let length = desk.file().length;
        let end = asked.offset.checked_add(asked.length).ok_or(Errno::FBIG)?;
        if end > length && !keeps_size {
            return Err(Errno::NOSPC);
        }
        let range = asked.offset.min(length)..end.min(length);
        desk.lane.recorder().add(Counter::ZeroRequests, 1);
        desk.file().note_written(now);
        let kind = Kind::Zero { keep_allocated };
        let len = range.end - range.start;
        let opened = Request::new(kind, unique, range.start, len, self.arrived_at);
        let request = desk.open_zeroing(&self.cache, now, opened, length);
        self.end_request(now, index, request);
        Ok(())
    }

    /// Where data or a hole begins, at or after an offset.
    fn seek(&self, file: &VolumeFile, asked: &LseekIn) -> Result<u64, Errno> {
        let wants_hole =
            match libc::c_int::try_from(asked.whence).map_err(|_unknown| Errno::INVAL)? {
                libc::SEEK_DATA => false,
                libc::SEEK_HOLE => true,
                _ => return Err(Errno::INVAL),
            };
        if file.is_removed() {
            return Err(Errno::SHUTDOWN);
        }
        let mut at = asked.offset;
        while at < file.length {
            let len = (file.length - at).min(SEEK_PIECE_BYTES);
            let len = u32::try_from(len).expect("at most 1 GiB");
            for (run, hole) in extents(&self.cache, &file.volume, &*file.map, at, len, true) {
                if hole == wants_hole {
                    return Ok(at);
                }
                at += u64::from(run);
            }
        }
        // The end counts as a hole.
        let is_inside = wants_hole && asked.offset < file.length;
        if is_inside { Ok(file.length) } else { Err(Errno::NXIO) }
    }
}
