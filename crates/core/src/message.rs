//! Requests of clients, and their replies.

use crate::clock::Nanos;
use crate::counters::{Classes, Interface};
use crate::frames::Frames;
use crate::hint::Hint;
use crate::mapping::Mapping;
use crate::read_write::ReadRequest;
use crate::store::StoreError;
use crate::write_order::GroupId;
use std::ops::Range;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum RequestOp {
    /// Return the bytes of the range.
    Read,
    /// Bring the range into the cache.
    Populate,
    /// Replace the bytes of the range.
    Write,
    /// Make every write that has completed before durable.
    Flush,
    /// The same, even if the volume ignores flushes; for a stop.
    FlushAlways,
    /// Write the dirty blocks of the range, and make them durable if `durable`.
    FlushRange {
        /// True if the store is flushed as well.
        durable: bool,
    },
    /// Make the range zeros.
    Zero {
        /// True if the store keeps the space allocated.
        keep_allocated: bool,
    },
    /// Tell the store that the range is no longer needed. Blocks that the range covers only in part
    /// keep their bytes.
    Discard,
    /// Map the range for change: see [`crate::request::Session::map`].
    Map,
    /// End a mapping: see [`crate::request::Session::unpin`].
    Unpin,
}

/// A step of the prefetch for a request that is about to be submitted; see
/// [`crate::request::Session::prefetch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// The lines of the page table.
    Table,
    /// The descriptors and latches of the frames that the table refers to. Perform the first step
    /// some requests earlier.
    Frames,
}

/// The step after all operations of a request have succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Then {
    /// Nothing.
    #[default]
    Nothing,
    /// A flush of the volume.
    Flush,
    /// A flush of this range of bytes.
    FlushRange(Range<u64>),
}

/// A request of a client to one volume. The range lies inside the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Request {
    /// The operation.
    pub op: RequestOp,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes of the range.
    pub len: u64,
    /// A write that is durable when it completes (forced unit access).
    pub fua: bool,
    /// The access pattern; `None` if that of the volume applies.
    pub hint: Option<Hint>,
    /// Bounds of read-ahead in bytes of the volume, as the ends of a file. The streams of reads
    /// whose bounds have the same start are detected together, on whatever sessions they arrive.
    pub bound: Option<Range<u64>>,
    /// The write-order group of a write.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub group: Option<GroupId>,
    /// True for a read that must be one piece, whatever the limit of pinned frames.
    pub unfragmented: bool,
    /// The interface that a read is counted for.
    pub interface: Interface,
    /// The step after the operation.
    pub then: Then,
    /// False for a request of the front end itself; it is not counted as a client's request.
    pub is_counted: bool,
}

impl Request {
    /// Returns a request without options.
    #[must_use]
    pub fn new(op: RequestOp, range: Range<u64>) -> Self {
        Request {
            op,
            offset: range.start,
            len: range.end - range.start,
            fua: false,
            hint: None,
            bound: None,
            group: None,
            unfragmented: false,
            interface: Interface::Copy,
            then: Then::Nothing,
            is_counted: true,
        }
    }

    /// Returns a request of the front end itself, which is not counted as a client's request.
    #[must_use]
    pub fn uncounted(op: RequestOp, range: Range<u64>) -> Self {
        Request { is_counted: false, ..Request::new(op, range) }
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.len
    }
}

/// A request in flight. Its number may be reused after the front end has polled its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(pub(super) usize);

impl RequestId {
    /// Returns the request with this number, which a log of inputs contains.
    #[must_use]
    pub fn of(index: usize) -> Self {
        RequestId(index)
    }

    /// Returns the number.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

/// The result of a request that was queued.
#[derive(Debug)]
pub struct Reply<F: Frames, C> {
    /// The front end's data of the request.
    pub context: C,
    /// The blocks of a read; release them with [`crate::request::Session::release`].
    pub data: Option<Box<ReadRequest<F>>>,
    /// The mapping that [`RequestOp::Map`] has created.
    pub mapping: Option<Box<Mapping<F>>>,
    /// The error of a request that has failed.
    pub error: Option<StoreError>,
    /// Classes of the pages of the request.
    pub classes: Classes,
    /// Time of the submission.
    pub started_at: Nanos,
}

/// The result of a request that completed at submission.
#[derive(Debug)]
pub struct ImmediateReply<F: Frames> {
    /// The blocks of a read; release them with [`crate::request::Session::release`].
    pub data: Option<Box<ReadRequest<F>>>,
    /// Classes of the pages of the request.
    pub classes: Classes,
}

/// The answer to a submission.
#[derive(Debug)]
pub enum Submitted<F: Frames> {
    /// The request is complete.
    Done(ImmediateReply<F>),
    /// A reply follows.
    Queued(RequestId),
}

/// A result that a session returns after the submission.
#[derive(Debug)]
pub enum Event<F: Frames, C> {
    /// The next bytes of a large read. More events follow: further pieces, or the end with data or
    /// an error.
    Piece(RequestId, Box<ReadRequest<F>>),
    /// The end of a request.
    End(Reply<F, C>),
}
