//! Which parts of a volume hold data, for clients that ask. A hole of the store under blocks that
//! only the cache has is data.

use crate::engine::{ArenaCache, ArenaVolume};
use crate::store::AllocationMap;
use larder_core::units::{BLOCK_BYTES_U64, blocks_touched};

/// Extents in one answer.
const EXTENTS_MAX: usize = 1024;
/// Maximum length of holes that are searched for blocks that only the cache has, for one answer:
/// the client asks again for the rest.
const HOLE_BYTES_MAX: u64 = 1 << 30;

/// The runs of `offset..offset + len`, each with its length and whether it is a hole, which reads
/// as zeros; at least one, and not necessarily up to the end.
pub(super) fn extents(
    cache: &ArenaCache,
    volume: &ArenaVolume,
    map: &dyn AllocationMap,
    offset: u64,
    len: u32,
    one: bool,
) -> Vec<(u32, bool)> {
    let end = offset + u64::from(len);
    let mut found: Vec<(u32, bool)> = Vec::new();
    let (mut at, mut search_bytes) = (offset, HOLE_BYTES_MAX);
    while at < end && found.len() < EXTENTS_MAX && search_bytes > 0 {
        let extent = map.extent(at, end - at);
        let (run, hole) = if extent.hole {
            let (run, hole) = look_through(cache, volume, at, extent.len.min(search_bytes));
            search_bytes -= run;
            // What was only in the cache may have been written before the cache was looked at, and
            // after the store was.
            let extent = map.extent(at, run);
            if !hole || extent.hole { (run.min(extent.len), hole) } else { (extent.len, false) }
        } else {
            (extent.len, false)
        };
        let run = u32::try_from(run.max(1)).expect("at most the request");
        match found.last_mut() {
            Some((last, last_hole)) if *last_hole == hole => *last += run,
            Some(_) if one => break,
            _ => found.push((run, hole)),
        }
        at += u64::from(run);
    }
    found
}

/// The first run of a hole in the store: a hole up to the first block that is newer in the cache,
/// or such blocks.
fn look_through(cache: &ArenaCache, volume: &ArenaVolume, at: u64, len: u64) -> (u64, bool) {
    if volume.unclean_blocks() == 0 {
        return (len, true);
    }
    let blocks = blocks_touched(&(at..at + len));
    let is_newer = |&block: &u64| cache.is_unclean(volume, block);
    let first = blocks.clone().find(is_newer);
    match first {
        None => (len, true),
        Some(first) if first * BLOCK_BYTES_U64 > at => (first * BLOCK_BYTES_U64 - at, true),
        Some(first) => {
            let end = (first..blocks.end).find(|block| !is_newer(block)).unwrap_or(blocks.end);
            ((end * BLOCK_BYTES_U64 - at).min(len), false)
        }
    }
}
