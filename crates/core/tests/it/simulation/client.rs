//! A client: a lane, what it asked for, and what it still reads from.

use super::model::Model;
use super::world::{Request, Work};
use larder_core::frames::PlainFrames;
use larder_core::lane::{Completion, Lane};
use larder_core::mapping::Mapping;
use larder_core::request::Assembly;
use std::collections::VecDeque;
use std::ops::Range;

/// A read that is done and whose pins are still held, as by a slow socket.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) assembly: Assembly<PlainFrames>,
    /// What it held when it was done.
    pub(crate) copy: Vec<u8>,
}

/// A client of one volume.
pub(crate) struct Client {
    pub(crate) lane: Lane<PlainFrames>,
    pub(crate) disk: usize,
    pub(crate) requests: Vec<Request>,
    pub(crate) mail: VecDeque<Completion<PlainFrames>>,
    pub(crate) held: Vec<Held>,
    /// What it has mapped for change.
    pub(crate) mapped: Vec<Mapping<PlainFrames>>,
    /// Where its reads in order go on, and whether they run backward.
    pub(crate) cursor: u64,
    pub(crate) backward: bool,
    /// Whether a write of the volume failed since the last flush of this client.
    pub(crate) untold: bool,
}

impl Client {
    pub(crate) fn new(lane: Lane<PlainFrames>, disk: usize) -> Self {
        Client {
            lane,
            disk,
            requests: Vec::new(),
            mail: VecDeque::new(),
            held: Vec::new(),
            mapped: Vec::new(),
            cursor: 0,
            backward: false,
            untold: false,
        }
    }

    /// A change to `changed` has begun: reads in flight may see it.
    pub(crate) fn widen(&mut self, model: &Model, changed: &Range<u64>) {
        for request in &mut self.requests {
            if let Work::Read { allowed, .. } | Work::Map { allowed, .. } = &mut request.work {
                model.widen(&request.bytes, allowed, changed);
            }
        }
    }

    /// Lets go of the oldest read that is held, whose bytes must not have changed.
    pub(crate) fn release(&mut self, frames: &PlainFrames) {
        if self.held.is_empty() {
            return;
        }
        let Held { mut assembly, copy } = self.held.remove(0);
        let mut again = vec![0; copy.len()];
        assembly.copy_to(frames, &mut again);
        assert!(again == copy, "bytes changed under a pin");
        assembly.release(frames);
    }

    /// The next range of a reader in order in a volume of `length` bytes; at an end it turns round.
    pub(crate) fn read_on(&mut self, blocks: u64, length: u64) -> Range<u64> {
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

    /// What it has mapped or waits for to be mapped.
    fn mappings(&self) -> impl Iterator<Item = Range<u64>> {
        let waiting = self.requests.iter().filter_map(|request| match &request.work {
            Work::Map { mapping, .. } | Work::Unpin { mapping } => Some(mapping.bytes()),
            _ => None,
        });
        waiting.chain(self.mapped.iter().map(Mapping::bytes))
    }

    /// Blocks that its reads and mappings hold or wait for.
    pub(crate) fn blocks_read(&self) -> u64 {
        let waiting = self.requests.iter().filter_map(|request| match &request.work {
            Work::Read { assembly, .. } => Some(assembly),
            _ => None,
        });
        waiting
            .chain(self.held.iter().map(|held| &held.assembly))
            .map(|assembly| u64::from(assembly.len) / 4096 + 2)
            .chain(self.mappings().map(|bytes| 2 * ((bytes.end - bytes.start) / 4096 + 2)))
            .sum()
    }
}
