//! Block status: which parts of an export hold data. A hole of the store under blocks that only the
//! cache has is data.

use super::wire::{STATE_HOLE, STATE_ZERO};
use crate::engine::{ArenaCache, ArenaVolume};
use crate::store::AllocationMap;
use larder_core::units::BLOCK_BYTES_U64;

/// Extents in one answer.
const EXTENTS_MAX: usize = 1024;
/// A hole is looked through for blocks that only the cache has, this many bytes at a time: the
/// client asks again for the rest.
const HOLE_BYTES_MAX: u64 = 1 << 30;

/// The runs of `offset..offset + len`, each with its length and NBD state; at least one, and not
/// necessarily up to the end.
pub(super) fn extents(
    cache: &ArenaCache,
    volume: &ArenaVolume,
    map: &dyn AllocationMap,
    offset: u64,
    len: u32,
    one: bool,
) -> Vec<(u32, u32)> {
    let end = offset + u64::from(len);
    let mut found: Vec<(u32, u32)> = Vec::new();
    let mut at = offset;
    while at < end && found.len() < EXTENTS_MAX {
        let extent = map.extent(at, end - at);
        let (run, state) = if extent.hole {
            let (run, state) = look_through(cache, volume, at, extent.len.min(HOLE_BYTES_MAX));
            // What was only in the cache may have been written before the cache was looked at, and
            // after the store was.
            let extent = map.extent(at, run);
            if state == 0 || extent.hole { (run.min(extent.len), state) } else { (extent.len, 0) }
        } else {
            (extent.len, 0)
        };
        let run = u32::try_from(run.max(1)).expect("at most the request");
        match found.last_mut() {
            Some((last, last_state)) if *last_state == state => *last += run,
            Some(_) if one => break,
            _ => found.push((run, state)),
        }
        at += u64::from(run);
    }
    found
}

/// The first run of a hole in the store: a hole up to the first block that is newer in the cache,
/// or such blocks.
fn look_through(cache: &ArenaCache, volume: &ArenaVolume, at: u64, len: u64) -> (u64, u32) {
    const HOLE: u32 = STATE_HOLE | STATE_ZERO;
    if volume.unclean_blocks() == 0 {
        return (len, HOLE);
    }
    let blocks = at / BLOCK_BYTES_U64..(at + len).div_ceil(BLOCK_BYTES_U64);
    let is_newer = |&block: &u64| cache.is_unclean(volume, block);
    let first = blocks.clone().find(is_newer);
    match first {
        None => (len, HOLE),
        Some(first) if first * BLOCK_BYTES_U64 > at => (first * BLOCK_BYTES_U64 - at, HOLE),
        Some(first) => {
            let end = (first..blocks.end).find(|block| !is_newer(block)).unwrap_or(blocks.end);
            ((end * BLOCK_BYTES_U64 - at).min(len), 0)
        }
    }
}
