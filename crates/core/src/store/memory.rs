//! A store in memory: sparse, without delay or faults.

use super::{Buffer, Geometry, Segment, Store, StoreCompletion, StoreOp, StoreOpKind};
use crate::clock::Nanos;
use crate::frames::Frames;
use crate::units::BLOCK_BYTES;
use std::collections::BTreeMap;

/// Bytes by block; blocks that were never written read as zeros.
#[derive(Clone, Debug, Default)]
pub struct SparseBytes {
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl SparseBytes {
    /// Calls `each` for every part of the range that lies in one block: block, offset in the block,
    /// range in the buffer.
    fn parts(offset: u64, len: usize, mut each: impl FnMut(u64, usize, std::ops::Range<usize>)) {
        let mut at = 0;
        while at < len {
            let position = offset + at as u64;
            let block = position / BLOCK_BYTES as u64;
            let within = usize::try_from(position % BLOCK_BYTES as u64).expect("below a block");
            let end = len.min(at + BLOCK_BYTES - within);
            each(block, within, at..end);
            at = end;
        }
    }

    /// Reads `to.len()` bytes.
    pub fn read(&self, offset: u64, to: &mut [u8]) {
        Self::parts(offset, to.len(), |block, within, range| {
            let len = range.len();
            match self.blocks.get(&block) {
                Some(bytes) => to[range].copy_from_slice(&bytes[within..within + len]),
                None => to[range].fill(0),
            }
        });
    }

    /// Writes `from`.
    pub fn write(&mut self, offset: u64, from: &[u8]) {
        Self::parts(offset, from.len(), |block, within, range| {
            let bytes = self.blocks.entry(block).or_insert_with(|| vec![0; BLOCK_BYTES].into());
            bytes[within..within + range.len()].copy_from_slice(&from[range]);
        });
    }

    /// Fills the range with zeros.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let len = usize::try_from(len).expect("a range in memory");
        let mut whole_blocks = Vec::new();
        Self::parts(offset, len, |block, within, range| {
            if range.len() == BLOCK_BYTES {
                whole_blocks.push(block);
            } else if let Some(bytes) = self.blocks.get_mut(&block) {
                bytes[within..within + range.len()].fill(0);
            }
        });
        for block in whole_blocks {
            self.blocks.remove(&block);
        }
    }
}

/// Copies between an operation's segments and `bytes`, in the direction of the operation.
pub(super) fn transfer<F: Frames>(frames: &F, op: &mut StoreOp<F>, bytes: &mut SparseBytes) {
    let mut at = op.offset;
    for Segment { buffer, offset, len } in &mut op.segments {
        let mut copy = vec![0; *len as usize];
        match buffer {
            Buffer::Owned(pin) => {
                bytes.read(at, &mut copy);
                frames.write(pin, *offset as usize, &copy);
            }
            Buffer::Pinned(pin) => {
                frames.read(pin, *offset as usize, &mut copy);
                bytes.write(at, &copy);
            }
        }
        at += u64::from(*len);
    }
}

/// A store in memory.
#[derive(Debug)]
pub struct MemoryStore<F: Frames> {
    geometry: Geometry,
    bytes: SparseBytes,
    done: Vec<StoreCompletion<F>>,
}

impl<F: Frames> MemoryStore<F> {
    /// Creates a store filled with zeros.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        MemoryStore { geometry, bytes: SparseBytes::default(), done: Vec::new() }
    }

    /// Returns its content.
    #[must_use]
    pub fn bytes(&self) -> &SparseBytes {
        &self.bytes
    }
}

impl<F: Frames> Store<F> for MemoryStore<F> {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, now: Nanos, frames: &F, mut op: StoreOp<F>) {
        match op.kind {
            StoreOpKind::Read | StoreOpKind::Write { .. } => {
                transfer(frames, &mut op, &mut self.bytes);
            }
            StoreOpKind::Discard | StoreOpKind::Zero { .. } => self.bytes.zero(op.offset, op.len),
            StoreOpKind::Flush => {}
        }
        self.done.push(StoreCompletion { op, result: Ok(()), started_at: now, finished_at: now });
    }

    fn reap(&mut self, _now: Nanos, _frames: &F, done: &mut Vec<StoreCompletion<F>>) {
        done.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn next_event(&self) -> Option<Nanos> {
        (!self.done.is_empty()).then_some(0)
    }
}
