//! Reads and writes in progress: operations of the cache, and the pieces that are still missing.

use crate::completion::Completion;
use crate::counters::{Class, Classes, Interface, Recorder};
use crate::frames::Frames;
use crate::hint::Hint;
use crate::mode::{FlushMode, WriteMode};
use crate::store::StoreError;
use crate::units::{BLOCK_BYTES, BLOCK_BYTES_U64};
use crate::write_order::GroupId;
use std::ops::Range;

/// Status of a request after a call on the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Complete.
    Done,
    /// Complete; reply at this time (nanoseconds), so that writers do not outrun the store.
    DoneAt(u64),
    /// Completions with the request's token follow.
    Pending,
    /// Frames or other resources are missing: repeat the call after [`Completion::Unstalled`] or
    /// after a delay.
    Stalled,
    /// Failed.
    Failed(StoreError),
}

/// The purpose of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReadPurpose {
    /// A client has requested the bytes.
    #[default]
    Client,
    /// The pages must be resident; they do not count as references.
    Populate,
}

/// A read: the blocks of its range, each pinned once it is resident.
#[derive(Debug)]
pub struct ReadRequest<F: Frames> {
    /// Chosen by the caller; completions carry it.
    pub token: u64,
    /// First byte in the volume.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
    pub(crate) interface: Interface,
    /// True once the call has been counted.
    pub(crate) is_call_counted: bool,
    pub(crate) parts: Vec<Option<F::Pin>>,
    /// Number of parts that the store is reading.
    pub(crate) missing: u32,
    /// Parts before this one were found or requested from the store.
    pub(crate) cursor: u32,
    /// Parts before this one have been counted. A read that restarts after a stall references its
    /// pages only once.
    pub(crate) counted: u32,
    pub(crate) classes: Classes,
    pub(crate) purpose: ReadPurpose,
    pub(crate) error: Option<StoreError>,
    /// The access pattern that the client has declared for this read; `None` if that of the volume
    /// applies.
    pub(crate) hint: Option<Hint>,
    /// Bounds of read-ahead for this read in bytes of the volume, as the ends of a file.
    pub(crate) part: Option<Range<u64>>,
    /// True if a page of it missed; and true if a page missed or was read ahead, so that the stream
    /// detector must observe the read.
    pub(crate) missed: bool,
    pub(crate) is_detector_input: bool,
}

impl<F: Frames> ReadRequest<F> {
    /// Returns a read of `len` bytes (at least 1) at `offset`.
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
            purpose: ReadPurpose::default(),
            error: None,
            hint: None,
            part: None,
            missed: false,
            is_detector_input: false,
        };
        read.reset(token, offset, len);
        read
    }

    /// Sets the interface for which the read is counted; the default is copying.
    #[must_use]
    pub fn through(mut self, interface: Interface) -> Self {
        self.interface = interface;
        self
    }

    /// Prepares a released read for reuse; its memory is kept.
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
        self.purpose = ReadPurpose::default();
        (self.hint, self.part) = (None, None);
        (self.missed, self.is_detector_input) = (false, false);
    }

    /// Counts a page as a reference of this class, if a client has requested it.
    pub(crate) fn count(&mut self, recorder: &Recorder, class: Class) {
        if self.purpose == ReadPurpose::Client {
            self.classes.count(recorder, class);
        }
    }

    /// Returns the classes of the pages processed so far.
    #[must_use]
    pub fn classes(&self) -> Classes {
        self.classes
    }

    pub(crate) fn first_block(&self) -> u64 {
        self.offset / BLOCK_BYTES_U64
    }

    /// Processes a completion of this read.
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

    /// Records that the next `parts` have been found or requested, and counted.
    pub(crate) fn advance(&mut self, parts: u32) {
        self.cursor += parts;
        self.counted = self.counted.max(self.cursor);
    }

    /// Returns the status. A failed read waits for all its parts, and then releases its pins.
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

    /// Returns true if the store is still reading parts.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.missing > 0
    }

    /// Returns the pieces of a complete read: the pin of each block, and the byte range in it.
    pub fn pieces(&self) -> impl Iterator<Item = (&F::Pin, Range<usize>)> {
        let range = self.range_in_part();
        let pieces = self.parts.iter().enumerate();
        pieces.map(move |(i, pin)| (pin.as_ref().expect("the read is done"), range(i)))
    }

    /// Returns a function from the index of a part to the byte range of the read in its block.
    fn range_in_part(&self) -> impl Fn(usize) -> Range<usize> + use<F> {
        let start = usize::try_from(self.offset % BLOCK_BYTES_U64).expect("below a block");
        let end = start + self.len as usize;
        move |i| {
            let block = i * BLOCK_BYTES;
            start.max(block) - block..end.min(block + BLOCK_BYTES) - block
        }
    }

    /// Copies the bytes of a complete read.
    pub fn copy_to(&self, frames: &F, to: &mut [u8]) {
        assert_eq!(to.len(), self.len as usize, "a buffer of the read's length");
        let mut at = 0;
        for (pin, range) in self.pieces() {
            let len = range.len();
            frames.read(pin, range.start, &mut to[at..at + len]);
            at += len;
        }
    }

    /// Moves the pieces of a complete read out of it; the caller unpins them.
    pub fn take_pieces(&mut self) -> impl Iterator<Item = (F::Pin, Range<usize>)> + '_ {
        let range = self.range_in_part();
        let pieces = self.parts.iter_mut().enumerate();
        pieces.map(move |(i, pin)| (pin.take().expect("the read is done"), range(i)))
    }

    /// Cancels a read whose handle is closed. Completions that still arrive are discarded.
    pub fn abandon(&mut self, frames: &F) {
        self.missing = 0;
        self.release(frames);
    }

    /// Releases the pins. Every read ends with this call.
    pub fn release(&mut self, frames: &F) {
        assert_eq!(self.missing, 0, "a read was released before its parts came");
        for pin in self.parts.iter_mut().filter_map(Option::take) {
            frames.unpin(pin);
        }
    }
}

/// A write in progress. The caller keeps its bytes until they are in the cache.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not states of one thing")]
pub(crate) struct WriteRequest {
    /// Chosen by the caller; completions carry it.
    pub token: u64,
    /// First byte in the volume.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
    /// True if the data must be on stable storage when the write completes.
    pub fua: bool,
    /// The write-order group of its changes, if any.
    pub(crate) group: Option<GroupId>,
    /// The modes at its start: a change of the modes applies to later requests only.
    pub(crate) modes: Option<(WriteMode, FlushMode)>,
    /// Number of bytes that are in the cache.
    pub(crate) done: u32,
    /// True if the current page had to be filled first.
    pub(crate) filled: bool,
    /// Number of page writebacks and flushes for which it waits.
    pub(crate) waiting: u32,
    /// True once the write was submitted to the store, if its mode requires that.
    pub(crate) synced: bool,
    pub(crate) needs_flush: bool,
    pub(crate) classes: Classes,
    pub(crate) error: Option<StoreError>,
    /// The access pattern that the client has declared for this write; `None` if that of the volume
    /// applies.
    pub(crate) hint: Option<Hint>,
}

impl WriteRequest {
    /// Returns a write of `len` bytes (at least 1) at `offset`.
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

    /// Returns true if the data must be on stable storage when the write completes, and flushes are
    /// not ignored.
    pub(crate) fn is_stable(&self) -> bool {
        self.fua && self.modes.is_none_or(|(_, flush_mode)| flush_mode == FlushMode::Keep)
    }

    /// Returns true if all bytes are in the cache, so that the caller may release them.
    #[must_use]
    pub(crate) fn is_placed(&self) -> bool {
        self.done == self.len
    }
}
