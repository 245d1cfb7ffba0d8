//! Pieces of operations: their requests on the wire, and the meaning of their replies.

use super::NbdStore;
use super::journal::Change;
use crate::frames::ArenaFrames;
use crate::nbd_client::{Completion, Request, RequestError};
use crate::nbd_wire::{self as wire, Errno};
use larder_core::clock::Nanos;
use larder_core::frames::Frames;
use larder_core::store::{Buffer, Segment, StoreError, StoreErrorKind};
use std::ops::Range;

/// Maximum number of buffers that are kept for reuse.
const SPARE_MAX: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceOperation {
    Read,
    Write {
        fua: bool,
    },
    /// Zeros that are written, if the server cannot make them.
    Zeros,
    Zero {
        keep_allocated: bool,
    },
    Trim,
    /// A flush that has not been sent.
    Flush,
    /// A flush that was sent when the journal ended at `end`, after this many discards.
    Flushing {
        end: u64,
        discards: u64,
    },
    /// An entry of the journal, sent again.
    Repeat {
        number: u64,
    },
    /// A query for holes, sent when the number of changes was `changes`.
    Status {
        changes: u64,
    },
}

impl PieceOperation {
    /// Returns true if it changes the holes, and must be repeated if it gets lost.
    pub(super) fn is_change(self) -> bool {
        matches!(
            self,
            PieceOperation::Write { .. } | PieceOperation::Zeros | PieceOperation::Zero { .. }
        )
    }
}

/// A part of an operation, or a request of the store itself.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) job: Option<usize>,
    pub(super) operation: PieceOperation,
    pub(super) range: Range<u64>,
}

impl Piece {
    /// Returns a flush for an operation, or of the store itself.
    pub(super) fn flush(job: Option<usize>) -> Self {
        Piece { job, operation: PieceOperation::Flush, range: 0..0 }
    }

    fn len(&self) -> usize {
        usize::try_from(self.range.end - self.range.start).expect("a range that a request can have")
    }

    fn short_len(&self) -> u32 {
        u32::try_from(self.len()).expect("cut to what a request can have")
    }

    pub(super) fn buffer_bytes(&self) -> usize {
        match self.operation {
            PieceOperation::Read
            | PieceOperation::Write { .. }
            | PieceOperation::Zeros
            | PieceOperation::Repeat { .. } => self.len(),
            _ => 0,
        }
    }

    /// Returns the bytes of data that it adds to the journal.
    pub(super) fn change_bytes(&self) -> usize {
        match self.operation {
            PieceOperation::Write { .. } | PieceOperation::Zeros => self.len(),
            _ => 0,
        }
    }
}

fn kind(errno: Errno) -> StoreErrorKind {
    match errno {
        Errno::NoSpace => StoreErrorKind::NoSpace,
        Errno::Perm => StoreErrorKind::ReadOnly,
        Errno::NotSup => StoreErrorKind::Unsupported,
        _ => StoreErrorKind::Io,
    }
}

/// Calls `each` for the parts of an operation's memory that belong to `range` of the store.
fn for_each_part(
    segments: &mut [Segment<ArenaFrames>],
    start: u64,
    range: &Range<u64>,
    mut each: impl FnMut(&mut Buffer<ArenaFrames>, usize, Range<usize>),
) {
    let mut at = start;
    for Segment { buffer, offset, len } in segments {
        let end = at + u64::from(*len);
        let (from, to) = (at.max(range.start), end.min(range.end));
        if from < to {
            let small = |n: u64| usize::try_from(n).expect("inside an operation");
            let within = *offset as usize + small(from - at);
            each(buffer, within, small(from - range.start)..small(to - range.start));
        }
        at = end;
    }
}

impl NbdStore {
    fn buffer(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = self.spare_buffers.pop().unwrap_or_default();
        buffer.resize(len, 0);
        buffer
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        // Large buffers, which a server with large blocks needs, are not kept.
        let fits = buffer.capacity() > 0 && buffer.capacity() * SPARE_MAX <= self.buffer_bytes;
        if fits && self.spare_buffers.len() < SPARE_MAX {
            self.spare_buffers.push(buffer);
        }
    }

    pub(super) fn request(&mut self, frames: &ArenaFrames, piece: &Piece) -> Request {
        let offset = piece.range.start;
        match piece.operation {
            PieceOperation::Read => Request::read(offset, self.buffer(piece.len())),
            PieceOperation::Write { fua } => {
                let mut bytes = self.buffer(piece.len());
                let op = &mut self.jobs[piece.job.expect("a piece of a job")].op;
                for_each_part(&mut op.segments, op.offset, &piece.range, |buffer, within, part| {
                    let Buffer::Pinned(pin) = buffer else { unreachable!("a write pins") };
                    frames.read(pin, within, &mut bytes[part]);
                });
                let flags = if fua { wire::CMD_FLAG_FUA } else { 0 };
                Request::write(offset, bytes).with_flags(flags)
            }
            PieceOperation::Zeros => {
                let mut bytes = self.buffer(piece.len());
                bytes.fill(0);
                Request::write(offset, bytes)
            }
            PieceOperation::Zero { keep_allocated } => {
                zeroes(offset, piece.short_len(), keep_allocated)
            }
            PieceOperation::Trim => Request::trim(offset, piece.short_len()),
            PieceOperation::Flush | PieceOperation::Flushing { .. } => Request::flush(),
            PieceOperation::Repeat { number } => {
                let entry = self.journal.get(number).expect("entries stay while they are repeated");
                match &entry.change {
                    Change::Write(data) => Request::write(offset, data.clone()),
                    &Change::Zero { keep_allocated } => {
                        zeroes(offset, piece.short_len(), keep_allocated)
                    }
                }
            }
            PieceOperation::Status { .. } => Request::block_status(offset, piece.short_len()),
        }
    }

    pub(super) fn complete_piece(
        &mut self,
        frames: &ArenaFrames,
        now: Nanos,
        completion: Completion,
    ) {
        let Completion { cookie, result, data, extents } = completion;
        let piece = self.sent.remove(&cookie).expect("the client knows what it was asked");
        self.sent_bytes -= piece.buffer_bytes();
        if piece.operation.is_change() {
            self.map.changed();
            self.sent_change_bytes -= piece.change_bytes();
        }
        let error = result.err().map(|error| self.error(&piece, &error));
        let keeps_copies = self.offers(wire::FLAG_SEND_FLUSH);
        match (piece.operation, &error) {
            (PieceOperation::Read, None) => {
                let op = &mut self.jobs[piece.job.expect("a piece of a job")].op;
                for_each_part(&mut op.segments, op.offset, &piece.range, |buffer, within, part| {
                    let Buffer::Owned(pin) = buffer else { unreachable!("a read owns") };
                    frames.write(pin, within, &data[part]);
                });
                self.recycle(data);
            }
            // A write with FUA is stable, but an older one that is repeated must not undo it.
            (PieceOperation::Write { .. } | PieceOperation::Zeros, None) if keeps_copies => {
                self.journal.push(piece.range.clone(), Change::Write(data));
            }
            (PieceOperation::Zero { keep_allocated }, None) if keeps_copies => {
                self.journal.push(piece.range.clone(), Change::Zero { keep_allocated });
            }
            (PieceOperation::Zero { .. }, Some(error))
                if error.kind == StoreErrorKind::Unsupported =>
            {
                self.write_zeros_instead(&piece);
                return;
            }
            (PieceOperation::Flushing { end, discards }, None) => self.note_flush(end, discards),
            (PieceOperation::Trim, None) => self.discards += 1,
            (PieceOperation::Flushing { .. } | PieceOperation::Repeat { .. }, Some(error)) => {
                self.record_loss(error);
            }
            (PieceOperation::Status { changes }, _) => {
                let extents = error.is_none().then_some(&extents[..]);
                self.map.reply(piece.range.start, changes, extents);
            }
            _ => self.recycle(data),
        }
        if matches!(piece.operation, PieceOperation::Flushing { .. }) && piece.job.is_none() {
            self.flushing = false;
        }
        let Some(index) = piece.job else { return };
        let job = &mut self.jobs[index];
        job.pieces_left -= 1;
        if let Some(error) = error {
            job.error.get_or_insert(error);
        }
        self.finish_if_complete(index, now);
    }

    /// Records a flush of the changes before `end` of the journal, and of this many discards.
    fn note_flush(&mut self, end: u64, discards: u64) {
        if let Some(spare) = self.journal.drop_flushed(end) {
            self.recycle(spare);
        }
        let is_unflushed = |piece: &Piece| {
            piece.operation.is_change() || matches!(piece.operation, PieceOperation::Trim)
        };
        let flushed = self.flush_error.is_none()
            && self.journal.is_empty()
            && discards == self.discards
            && !self.sent.values().any(is_unflushed);
        self.control.set_unflushed(!flushed);
    }

    /// Writes zeros to a server that offers zeroing, but fails it.
    fn write_zeros_instead(&mut self, piece: &Piece) {
        self.features &= !wire::FLAG_SEND_WRITE_ZEROES;
        let index = piece.job.expect("a piece of a job");
        self.jobs[index].pieces_left -= 1;
        self.split_range(index, PieceOperation::Zeros, &piece.range, self.piece_bytes);
    }

    /// Records a failure after which any data that the server has not flushed may be lost. All
    /// later flushes fail. Operations that wait for a flush now fail too: a later flush that
    /// succeeds does not recover the lost data.
    fn record_loss(&mut self, error: &StoreError) {
        if self.flush_error.is_none() {
            tracing::error!(
                place = self.address,
                %error,
                "the server failed a flush or a repeated write: data written since its last \
                 successful flush may be lost. Every flush of the volume fails until larder opens \
                 the volume again; check the server, then restart larder"
            );
            self.flush_error = Some(error.clone());
            // A stop reports it.
            self.control.set_unflushed(true);
        } else {
            tracing::debug!(place = self.address, %error, "another flush or repeated write failed");
        }
        for (_, job) in self.jobs.iter_mut().filter(|(_, job)| job.needs_flush) {
            job.error.get_or_insert_with(|| error.clone());
        }
        self.journal.drop_flushed(self.journal.end());
    }

    fn error(&self, piece: &Piece, error: &RequestError) -> StoreError {
        let (start, len) = (piece.range.start, piece.range.end - piece.range.start);
        let operation = match piece.operation {
            PieceOperation::Read => "read",
            PieceOperation::Write { .. } | PieceOperation::Zeros => "write",
            PieceOperation::Zero { .. } => "zero",
            PieceOperation::Trim => "discard",
            PieceOperation::Repeat { .. } => "write again, after the connection was lost,",
            PieceOperation::Status { .. } => "look for holes in",
            PieceOperation::Flush | PieceOperation::Flushing { .. } => {
                return StoreError::new(
                    kind(error.errno),
                    format!("flush {}: {error}", self.address),
                );
            }
        };
        let message = format!("{operation} {len} bytes at {start} of {}: {error}", self.address);
        StoreError::new(kind(error.errno), message)
    }
}

fn zeroes(offset: u64, len: u32, keep_allocated: bool) -> Request {
    let flags = if keep_allocated { wire::CMD_FLAG_NO_HOLE } else { 0 };
    Request::write_zeroes(offset, len).with_flags(flags)
}
