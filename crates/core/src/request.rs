//! Requests under way: what a front end keeps until it can answer, and the pieces that it cuts
//! them into.

mod budget;
mod message;
mod operation;
mod payload;
mod session;
#[cfg(test)]
mod tests;

pub use budget::{Budget, BudgetUsage, PoolUsage, SessionLimit};
pub use message::{
    Event, ImmediateReply, Prefetch, Reply, Request, RequestId, RequestOp, Submitted, Then,
};
pub use payload::{Park, Payload, Zeros};
pub use session::Session;

use crate::completion::Completion;
use crate::counters::{Class, Classes, Interface, Recorder};
use crate::frames::Frames;
use crate::hint::Hint;
use crate::mode::{FlushMode, WriteMode};
use crate::store::StoreError;
use crate::units::{BLOCK_BYTES, BLOCK_BYTES_U64};
use crate::volume::Volume;
use crate::write_order::GroupId;
use std::ops::Range;

/// Bytes of a piece of a read: what front ends pin for one request at a time, 1 MiB.
pub const READ_PIECE_BYTES: u32 = 1 << 20;
/// Bytes of a piece of a write: what front ends take in at a time, 64 KiB. All pieces but the last
/// end at a border of blocks, so that only a write's own ends are ragged.
pub const WRITE_PIECE_BYTES: u32 = 64 << 10;
/// Bytes of a piece of a write in a session that has leased no memory for more: 16 KiB.
pub const SMALL_WRITE_PIECE_BYTES: u32 = 16 << 10;

/// The permission to open a lane. Only this module can create it, so only the request engine can
/// call the operations of the cache.
#[derive(Debug)]
pub(crate) struct HandlePermit(());

/// Returns the first piece of a write. It has at most `bytes_max` bytes, which must be a multiple
/// of the block size. All pieces except the last end at a block boundary.
#[must_use]
pub fn next_write_piece(bytes: &Range<u64>, bytes_max: u32) -> Range<u64> {
    let ragged = bytes.start % BLOCK_BYTES_U64;
    bytes.start..bytes.end.min(bytes.start + u64::from(bytes_max) - ragged)
}

/// How a call on the cache ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Done; answer.
    Done,
    /// Done; answer at this time (nanoseconds), so that writers do not outrun the store.
    DoneAt(u64),
    /// Completions with the request's token will come.
    Pending,
    /// No room now: make the same call again after [`Completion::Unstalled`], or after a while.
    Stalled,
    /// Failed.
    Failed(StoreError),
}

/// The purpose of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A client asked for the bytes.
    #[default]
    Client,
    /// The pages shall be in the cache; they are not counted as references.
    Populate,
}

/// A read being assembled: the blocks that it covers, each pinned once it is there.
#[derive(Debug)]
pub struct ReadRequest<F: Frames> {
    /// Chosen by the caller; comes back in completions.
    pub token: u64,
    /// First byte of the volume.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    pub(crate) interface: Interface,
    /// Whether the call has been counted.
    pub(crate) is_call_counted: bool,
    pub(crate) parts: Vec<Option<F::Pin>>,
    /// Parts that have been asked of the store and have not come.
    pub(crate) missing: u32,
    /// Parts before this one have been found or asked for.
    pub(crate) cursor: u32,
    /// Parts before this one have been counted: a read that begins again after a stall touches its
    /// pages once all the same.
    pub(crate) counted: u32,
    pub(crate) classes: Classes,
    pub(crate) purpose: Purpose,
    pub(crate) error: Option<StoreError>,
    /// What the client says about this read; none if the volume's hint counts.
    pub(crate) hint: Option<Hint>,
    /// Bytes of the volume beyond which nothing is read ahead for it, if it is a part that is read.
    pub(crate) part: Option<Range<u64>>,
    /// Whether a page of it missed, and whether one missed or was read ahead: what the detector of
    /// streams wants to know.
    pub(crate) missed: bool,
    pub(crate) is_detector_input: bool,
}

impl<F: Frames> ReadRequest<F> {
    /// A read of `len` bytes (at least 1) at `offset`.
    #[must_use]
    pub fn new(token: u64, offset: u64, len: u32) -> Self {
        let mut read = ReadRequest {
            token,
            offset,
            len,
            interface: Interface::Copy,
            is_call_counted: false,
            parts: Vec::new(),
            missing: 0,
            cursor: 0,
            counted: 0,
            classes: Classes::default(),
            purpose: Purpose::default(),
            error: None,
            hint: None,
            part: None,
            missed: false,
            is_detector_input: false,
        };
        read.reset(token, offset, len);
        read
    }

    /// Says what it is for, which decides where it is counted; copying is what it is for else.
    #[must_use]
    pub fn through(mut self, interface: Interface) -> Self {
        self.interface = interface;
        self
    }

    /// Makes an assembly that was released ready for another read, keeping its memory.
    pub fn reset(&mut self, token: u64, offset: u64, len: u32) {
        assert!(len > 0, "a read of nothing");
        assert!(self.parts.iter().all(Option::is_none), "an assembly was reused with pins in it");
        let blocks = (offset + u64::from(len)).div_ceil(BLOCK_BYTES_U64) - offset / BLOCK_BYTES_U64;
        self.parts.clear();
        self.parts.resize_with(usize::try_from(blocks).expect("a u32 of bytes"), || None);
        (self.token, self.offset, self.len) = (token, offset, len);
        (self.missing, self.cursor, self.counted, self.error) = (0, 0, 0, None);
        self.is_call_counted = false;
        self.classes = Classes::default();
        self.purpose = Purpose::default();
        (self.hint, self.part) = (None, None);
        (self.missed, self.is_detector_input) = (false, false);
    }

    /// The hint that counts for it on `volume`.
    pub(crate) fn hint_in(&self, volume: &Volume<F>) -> Hint {
        self.hint.unwrap_or_else(|| volume.hint())
    }

    /// Counts a page as a reference of this class, if a client asked for it.
    pub(crate) fn count(&mut self, recorder: &Recorder, class: Class) {
        if self.purpose == Purpose::Client {
            self.classes.count(recorder, class);
        }
    }

    /// How its pages were classed, as far as they have been looked at.
    #[must_use]
    pub fn classes(&self) -> Classes {
        self.classes
    }

    pub(crate) fn first_block(&self) -> u64 {
        self.offset / BLOCK_BYTES_U64
    }

    /// Takes in a completion of this read.
    ///
    /// # Panics
    /// If the completion is not one of a read.
    pub(crate) fn apply_completion(&mut self, frames: &F, completion: Completion<F>) -> Status {
        match completion {
            Completion::Filled { part, pins, .. } => {
                for (i, pin) in pins.into_iter().enumerate() {
                    let place = &mut self.parts[part as usize + i];
                    assert!(place.is_none(), "a part of a read was delivered twice");
                    *place = Some(pin);
                    self.missing -= 1;
                }
            }
            Completion::Failed { parts, error, .. } => {
                self.missing -= parts;
                self.error.get_or_insert(error);
            }
            other => panic!("{other:?} is not a completion of a read"),
        }
        self.status(frames)
    }

    /// The next `parts` have been found or asked for, and counted.
    pub(crate) fn advance(&mut self, parts: u32) {
        self.cursor += parts;
        self.counted = self.counted.max(self.cursor);
    }

    /// Where the read stands. A failed read waits for all its parts, and then gives its pins back.
    pub(crate) fn status(&mut self, frames: &F) -> Status {
        if self.missing > 0 {
            return Status::Pending;
        }
        if let Some(error) = self.error.take() {
            self.release(frames);
            return Status::Failed(error);
        }
        if (self.cursor as usize) < self.parts.len() { Status::Stalled } else { Status::Done }
    }

    /// Whether parts are still to come.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.missing > 0
    }

    /// The pieces of a read that is done: each block's pin, and the range of bytes inside it.
    pub fn pieces(&self) -> impl Iterator<Item = (&F::Pin, std::ops::Range<usize>)> {
        let start = usize::try_from(self.offset % BLOCK_BYTES_U64).expect("below a block");
        let end = start + self.len as usize;
        self.parts.iter().enumerate().map(move |(i, pin)| {
            let block = i * BLOCK_BYTES;
            let range = start.max(block) - block..end.min(block + BLOCK_BYTES) - block;
            (pin.as_ref().expect("the read is done"), range)
        })
    }

    /// Copies a read that is done.
    pub fn copy_to(&self, frames: &F, to: &mut [u8]) {
        assert_eq!(to.len(), self.len as usize, "a buffer of the read's length");
        let mut at = 0;
        for (pin, range) in self.pieces() {
            let len = range.len();
            frames.read(pin, range.start, &mut to[at..at + len]);
            at += len;
        }
    }

    /// Moves the pieces of a read that is done out of the assembly; the caller unpins them.
    pub fn take_pieces(&mut self) -> impl Iterator<Item = (F::Pin, std::ops::Range<usize>)> + '_ {
        let start = usize::try_from(self.offset % BLOCK_BYTES_U64).expect("below a block");
        let end = start + self.len as usize;
        self.parts.iter_mut().enumerate().map(move |(i, pin)| {
            let block = i * BLOCK_BYTES;
            let range = start.max(block) - block..end.min(block + BLOCK_BYTES) - block;
            (pin.take().expect("the read is done"), range)
        })
    }

    /// Gives up a read, done or not, whose lane is closed: what is still to come goes nowhere.
    pub fn abandon(&mut self, frames: &F) {
        self.missing = 0;
        self.release(frames);
    }

    /// Gives the pins back. Every assembly ends with this.
    pub fn release(&mut self, frames: &F) {
        assert_eq!(self.missing, 0, "a read was released before its parts came");
        for pin in self.parts.iter_mut().filter_map(Option::take) {
            frames.unpin(pin);
        }
    }
}

/// A write under way. Its bytes stay with the caller until it is done.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not states of one thing")]
pub(crate) struct WriteRequest {
    /// Chosen by the caller; comes back in completions.
    pub token: u64,
    /// First byte of the volume.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// Whether it must be on stable storage when done.
    pub fua: bool,
    /// The group that its changes belong to, if any.
    pub(crate) group: Option<GroupId>,
    /// The modes that it met first: a change of them meets the requests that come after it.
    pub(crate) modes: Option<(WriteMode, FlushMode)>,
    /// Bytes that are in the cache.
    pub(crate) done: u32,
    /// Whether the page at hand had to be read first.
    pub(crate) filled: bool,
    /// Pages that the store is writing.
    pub(crate) waiting: u32,
    /// Whether it has been handed to the store where its mode asks for that.
    pub(crate) synced: bool,
    pub(crate) needs_flush: bool,
    pub(crate) classes: Classes,
    pub(crate) error: Option<StoreError>,
    /// What the client says about this write; none if the volume's hint counts.
    pub(crate) hint: Option<Hint>,
}

impl WriteRequest {
    /// A write of `len` bytes (at least 1) at `offset`.
    #[must_use]
    pub(crate) fn new(token: u64, offset: u64, len: u32, fua: bool) -> Self {
        assert!(len > 0, "a write of nothing");
        WriteRequest {
            token,
            offset,
            len,
            fua,
            group: None,
            modes: None,
            done: 0,
            filled: false,
            waiting: 0,
            synced: false,
            needs_flush: false,
            classes: Classes::default(),
            error: None,
            hint: None,
        }
    }

    /// Whether it must be on stable storage when done, and flushes are kept.
    pub(crate) fn is_stable(&self) -> bool {
        self.fua && self.modes.is_none_or(|(_, flush_mode)| flush_mode == FlushMode::Keep)
    }

    /// How its pages were classed, as far as they are in the cache.
    #[must_use]
    pub(crate) fn classes(&self) -> Classes {
        self.classes
    }

    /// Whether the caller may let go of the bytes: all of them are in the cache.
    #[must_use]
    pub(crate) fn is_placed(&self) -> bool {
        self.done == self.len
    }
}
