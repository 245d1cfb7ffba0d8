//! Operations: the calls of the cache that a request consists of.

use super::payload::{Payload, Zeros};
use super::{ReadRequest, Status, WriteRequest};
use crate::cache::Cache;
use crate::clock::Nanos;
use crate::completion::{Completion, VolumeHandle};
use crate::counters::Classes;
use crate::frames::Frames;
use crate::mapping::Mapping;
use crate::store::StoreOpKind;
use crate::volume::Volume;
use std::ops::Range;

/// An operation in flight. Its index is the token of its completions.
#[derive(Debug)]
pub(super) struct Operation<F: Frames, P> {
    /// Index of the request.
    pub(super) request: usize,
    pub(super) work: Work<F, P>,
}

/// The call that an operation makes.
#[derive(Debug)]
pub(super) enum Work<F: Frames, P> {
    Read(Box<ReadRequest<F>>),
    /// A write, and its bytes as long as they are not in the cache.
    Write(WriteRequest, Option<P>),
    /// A write of zeros.
    WriteZeros(WriteRequest),
    Flush {
        /// Also where the volume ignores flushes.
        always: bool,
    },
    FlushRange {
        blocks: Range<u64>,
        durable: bool,
    },
    /// Zeroes or discards blocks.
    Exclude {
        kind: StoreOpKind,
        blocks: Range<u64>,
    },
    Map(Box<Mapping<F>>),
    Unpin(Box<Mapping<F>>),
}

impl<F: Frames, P: Payload> Work<F, P> {
    /// Makes the call, at first or again. `token` is the operation's index.
    pub(super) fn submit(
        &mut self,
        cache: &Cache<F>,
        (volume, lane): (&Volume<F>, &mut VolumeHandle<F>),
        now: Nanos,
        token: u64,
    ) -> Status {
        match self {
            Work::Read(read) => cache.read(lane, now, read),
            Work::Write(task, payload) => {
                let payload = payload.as_ref().expect("the bytes of a write that is not placed");
                cache.write(volume, lane, now, task, payload)
            }
            Work::WriteZeros(task) => {
                let len = task.len as usize;
                cache.write(volume, lane, now, task, &Zeros(len))
            }
            Work::Flush { always: true } => cache.flush_always(lane, now, token),
            Work::Flush { always: false } => cache.flush(lane, now, token),
            Work::FlushRange { blocks, durable } => {
                cache.flush_range(lane, now, blocks.clone(), *durable, token)
            }
            Work::Exclude { kind, blocks } => {
                cache.exclude(lane, now, *kind, blocks.clone(), token)
            }
            Work::Map(mapping) => cache.map(lane, now, mapping),
            Work::Unpin(mapping) => cache.unpin(lane, now, mapping),
        }
    }

    /// Makes the call again, now that the page is there that it waited for, with the pins of it.
    fn resume(
        &mut self,
        cache: &Cache<F>,
        (volume, lane): (&Volume<F>, &mut VolumeHandle<F>),
        now: Nanos,
        (token, pins): (u64, Vec<F::Pin>),
    ) -> Status {
        let had_pins = !pins.is_empty();
        for pin in pins {
            cache.frames().unpin(pin);
        }
        let status = self.submit(cache, (volume, lane), now, token);
        if had_pins {
            cache.pins_released();
        }
        status
    }

    /// Processes a completion of the call.
    pub(super) fn complete(
        &mut self,
        cache: &Cache<F>,
        (volume, lane): (&Volume<F>, &mut VolumeHandle<F>),
        now: Nanos,
        completion: Completion<F>,
    ) -> Status {
        match self {
            Work::Read(read) => match read.absorb(cache.frames(), completion) {
                // What had to come first has come: the rest can be read now.
                Status::Stalled => cache.read(lane, now, read),
                status => status,
            },
            Work::Write(task, _) | Work::WriteZeros(task) => {
                if let Completion::Continue { token, pins } = completion {
                    return self.resume(cache, (volume, lane), now, (token, pins));
                }
                cache.write_completed(lane, now, task, completion)
            }
            Work::Map(mapping) => cache.map_completed(lane, now, mapping, completion),
            Work::Unpin(mapping) => {
                if let Completion::Continue { token, pins } = completion {
                    return self.resume(cache, (volume, lane), now, (token, pins));
                }
                cache.unpin_completed(lane, now, mapping, completion)
            }
            Work::Flush { .. } | Work::FlushRange { .. } | Work::Exclude { .. } => {
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
            Work::Read(read) => read.classes(),
            Work::Write(task, _) | Work::WriteZeros(task) => task.classes(),
            Work::Flush { .. }
            | Work::FlushRange { .. }
            | Work::Exclude { .. }
            | Work::Map(_)
            | Work::Unpin(_) => Classes::default(),
        }
    }

    /// Returns the bytes of the payload that waits.
    pub(super) fn parked_bytes(&self) -> usize {
        match self {
            Work::Write(_, Some(payload)) => payload.len(),
            _ => 0,
        }
    }

    /// Drops a payload that is in the cache; returns its bytes.
    pub(super) fn unpark(&mut self) -> usize {
        match self {
            Work::Write(task, payload) if task.is_placed() => {
                payload.take().map_or(0, |payload| payload.len())
            }
            _ => 0,
        }
    }
}
