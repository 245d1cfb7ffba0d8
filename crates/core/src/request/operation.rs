//! Operations: the calls on the cache that make up a request.

use super::{ReadRequest, Status, WriteRequest};
use crate::cache::Cache;
use crate::clock::Nanos;
use crate::completion::Completion;
use crate::counters::Classes;
use crate::frames::Frames;
use crate::mapping::Mapping;
use crate::payload::{Payload, ZeroPayload};
use crate::store::StoreOpKind;
use crate::volume::Volume;
use crate::volume::VolumeHandle;
use std::ops::Range;

/// An operation in flight. Its index is the token of its completions.
#[derive(Debug)]
pub(super) struct Operation<F: Frames, P> {
    /// Index of the request.
    pub(super) request: usize,
    pub(super) work: OperationCall<F, P>,
}

/// The call that an operation makes.
#[derive(Debug)]
pub(super) enum OperationCall<F: Frames, P> {
    Read(Box<ReadRequest<F>>),
    /// A write, with its bytes until they are in the cache.
    Write(WriteRequest, Option<P>),
    /// A write of zeros.
    WriteZeros(WriteRequest),
    Flush {
        /// True to flush even if the volume ignores flushes.
        always: bool,
    },
    FlushRange {
        blocks: Range<u64>,
        durable: bool,
    },
    /// Zeroes or discards blocks.
    DiscardOrZero {
        kind: StoreOpKind,
        blocks: Range<u64>,
    },
    Map(Box<Mapping<F>>),
    Unpin(Box<Mapping<F>>),
}

impl<F: Frames, P: Payload> OperationCall<F, P> {
    /// Makes the call, the first time or again. `token` is the operation's index.
    pub(super) fn submit(
        &mut self,
        cache: &Cache<F>,
        (volume, handle): (&Volume<F>, &mut VolumeHandle<F>),
        now: Nanos,
        token: u64,
    ) -> Status {
        match self {
            OperationCall::Read(read) => cache.read(handle, now, read),
            OperationCall::Write(write, payload) => {
                let payload = payload.as_ref().expect("the bytes of a write that is not placed");
                cache.write(volume, handle, now, write, payload)
            }
            OperationCall::WriteZeros(write) => {
                let len = write.len as usize;
                cache.write(volume, handle, now, write, &ZeroPayload(len))
            }
            OperationCall::Flush { always } => cache.flush(handle, now, token, *always),
            OperationCall::FlushRange { blocks, durable } => {
                cache.flush_range(handle, now, blocks.clone(), *durable, token)
            }
            OperationCall::DiscardOrZero { kind, blocks } => {
                cache.discard_or_zero(handle, now, *kind, blocks.clone(), token)
            }
            OperationCall::Map(mapping) => cache.map(handle, now, mapping),
            OperationCall::Unpin(mapping) => cache.unpin(handle, now, mapping),
        }
    }

    /// Makes the call again after the page for which it waited was filled. Releases the pins of
    /// that page.
    fn resume(
        &mut self,
        cache: &Cache<F>,
        (volume, handle): (&Volume<F>, &mut VolumeHandle<F>),
        now: Nanos,
        (token, pins): (u64, Vec<F::Pin>),
    ) -> Status {
        let had_pins = !pins.is_empty();
        for pin in pins {
            cache.frames().unpin(pin);
        }
        let status = self.submit(cache, (volume, handle), now, token);
        if had_pins {
            cache.pins_released();
        }
        status
    }

    /// Processes a completion of the call.
    pub(super) fn complete(
        &mut self,
        cache: &Cache<F>,
        (volume, handle): (&Volume<F>, &mut VolumeHandle<F>),
        now: Nanos,
        completion: Completion<F>,
    ) -> Status {
        let may_continue = matches!(
            self,
            OperationCall::Write(..) | OperationCall::WriteZeros(_) | OperationCall::Unpin(_)
        );
        let completion = match completion {
            Completion::Continue { token, pins } if may_continue => {
                return self.resume(cache, (volume, handle), now, (token, pins));
            }
            other => other,
        };
        match self {
            OperationCall::Read(read) => match read.apply_completion(cache.frames(), completion) {
                // The parts for which it waited are pinned: the rest can be read now.
                Status::Stalled => cache.read(handle, now, read),
                status => status,
            },
            OperationCall::Write(write, _) | OperationCall::WriteZeros(write) => {
                cache.write_completed(handle, now, write, completion)
            }
            OperationCall::Map(mapping) => cache.map_completed(handle, now, mapping, completion),
            OperationCall::Unpin(mapping) => {
                cache.write_completed(handle, now, &mut mapping.write, completion)
            }
            OperationCall::Flush { .. }
            | OperationCall::FlushRange { .. }
            | OperationCall::DiscardOrZero { .. } => {
                let Completion::Finished { result, .. } = completion else {
                    panic!("{completion:?} does not end a flush or an exclusive range")
                };
                result.map_or_else(Status::Failed, |()| Status::Done)
            }
        }
    }

    /// Returns the classes of the pages that the operation has touched.
    pub(super) fn classes(&self) -> Classes {
        match self {
            OperationCall::Read(read) => read.classes(),
            OperationCall::Write(write, _) | OperationCall::WriteZeros(write) => write.classes,
            OperationCall::Flush { .. }
            | OperationCall::FlushRange { .. }
            | OperationCall::DiscardOrZero { .. }
            | OperationCall::Map(_)
            | OperationCall::Unpin(_) => Classes::default(),
        }
    }

    pub(super) fn parked_bytes(&self) -> usize {
        match self {
            OperationCall::Write(_, Some(payload)) => payload.len(),
            _ => 0,
        }
    }

    /// Drops the payload if it is in the cache. Returns its bytes.
    pub(super) fn unpark(&mut self) -> usize {
        match self {
            OperationCall::Write(write, payload) if write.is_placed() => {
                payload.take().map_or(0, |payload| payload.len())
            }
            _ => 0,
        }
    }
}
