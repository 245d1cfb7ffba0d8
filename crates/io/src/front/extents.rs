//! Block status of a volume: its parts that hold data, and its holes. A hole of the store under
//! blocks that only the cache has is data.

use crate::engine::{ArenaCache, ArenaVolume};
use crate::store::AllocationMap;
use larder_core::units::{BLOCK_BYTES_U64, blocks_touched};

/// Extents in one answer.
const EXTENTS_MAX: usize = 1024;
/// Maximum length of holes that are searched for blocks that only the cache has, for one answer:
/// the client asks again for the rest.
const HOLE_BYTES_MAX: u64 = 1 << 30;

/// Returns the runs of `offset..offset + len`, each with its length and whether it is a hole, which
/// reads as zeros. There is at least one, and the last one may end before the range.
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

/// Returns the length of the first run of a hole in the store, and whether it is a hole: the run
/// ends at the first block that is newer in the cache, or consists of such blocks.
fn look_through(cache: &ArenaCache, volume: &ArenaVolume, at: u64, len: u64) -> (u64, bool) {
    if volume.is_clean() {
        return (len, true);
    }
    let blocks = blocks_touched(&(at..at + len));
    let (run, is_unclean) = cache.unclean_run(volume, blocks.clone());
    let end = (blocks.start + run) * BLOCK_BYTES_U64;
    ((end - at).min(len), !is_unclean)
}
