//! A client: a session, its requests in flight, and the reads whose pins it holds.

use super::model::Model;
use super::world::{Kind, Request};
use larder_core::cache::Cache;
use larder_core::clock::Nanos;
use larder_core::frames::PlainFrames;
use larder_core::mapping::Mapping;
use larder_core::request::{ReadRequest, Session};
use std::ops::Range;

/// A completed read whose pins are still held, as by a slow socket.
#[derive(Debug)]
pub(crate) struct HeldRead {
    pub(crate) read: Box<ReadRequest<PlainFrames>>,
    /// Its bytes at completion.
    pub(crate) copy: Vec<u8>,
}

/// A client of one volume.
pub(crate) struct Client {
    /// The context of a request is its token.
    pub(crate) session: Session<PlainFrames, Vec<u8>, u64>,
    pub(crate) disk: usize,
    pub(crate) requests: Vec<Request>,
    pub(crate) held: Vec<HeldRead>,
    /// Its mappings for change.
    pub(crate) mapped: Vec<Mapping<PlainFrames>>,
    /// The position of its sequential reads, and their direction.
    pub(crate) cursor: u64,
    pub(crate) backward: bool,
    /// True if a write of the volume has failed and no reply has reported this to the client yet.
    pub(crate) has_unreported_failure: bool,
}

impl Client {
    pub(crate) fn new(session: Session<PlainFrames, Vec<u8>, u64>, disk: usize) -> Self {
        Client {
            session,
            disk,
            requests: Vec::new(),
            held: Vec::new(),
            mapped: Vec::new(),
            cursor: 0,
            backward: false,
            has_unreported_failure: false,
        }
    }

    /// Allows reads in flight to return the content of a change to `changed` that begins now.
    pub(crate) fn allow_new_content(&mut self, model: &Model, changed: &Range<u64>) {
        for request in &mut self.requests {
            if let Kind::Read { allowed } | Kind::Map { allowed, .. } = &mut request.kind {
                model.allow_new_content(&request.bytes, allowed, changed);
            }
        }
    }

    /// Releases the oldest held read, whose bytes must not have changed.
    pub(crate) fn release(&mut self, cache: &Cache<PlainFrames>, now: Nanos) {
        if self.held.is_empty() {
            return;
        }
        let HeldRead { read, copy } = self.held.remove(0);
        let mut again = vec![0; copy.len()];
        read.copy_to(cache.frames(), &mut again);
        assert!(again == copy, "bytes changed under a pin");
        self.session.release(cache, now, read);
    }

    /// Returns the next range of a sequential reader in a volume of `length` bytes; at an end the
    /// direction reverses.
    pub(crate) fn next_sequential_range(&mut self, blocks: u64, length: u64) -> Range<u64> {
        let end = length.div_ceil(4096);
        let blocks = blocks.min(end);
        let start = if self.backward { self.cursor.saturating_sub(blocks) } else { self.cursor };
        let start = start.min(end - blocks);
        self.cursor = if self.backward { start } else { start + blocks };
        if self.cursor == if self.backward { 0 } else { end } {
            self.backward = !self.backward;
        }
        start * 4096..((start + blocks) * 4096).min(length)
    }

    /// Returns the number of blocks that its reads and mappings hold or wait for.
    pub(crate) fn held_blocks(&self) -> u64 {
        let blocks = |bytes: &Range<u64>| (bytes.end - bytes.start) / 4096 + 2;
        let waiting = self.requests.iter().map(|request| match &request.kind {
            Kind::Read { .. } => blocks(&request.bytes),
            Kind::Map { .. } | Kind::Unpin => 2 * blocks(&request.bytes),
            _ => 0,
        });
        let held = self.held.iter().map(|held| held.copy.len() as u64 / 4096 + 2);
        let mapped = self.mapped.iter().map(|mapping| 2 * blocks(&mapping.bytes()));
        waiting.chain(held).chain(mapped).sum()
    }
}
