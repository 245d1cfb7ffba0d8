//! Block status of a volume: its allocated ranges and its holes. Blocks that only the cache holds
//! count as data, even above a hole of the store.

use crate::engine::{ArenaCache, ArenaVolume};
use crate::store::AllocationMap;
use larder_core::units::{BLOCK_BYTES_U64, blocks_touched};

/// Maximum number of extents in one reply.
const EXTENTS_MAX: usize = 1024;
/// Maximum length of holes that one answer searches for blocks that only the cache holds. The
/// client sends another request for the rest.
const HOLE_BYTES_MAX: u64 = 1 << 30;

/// Returns the extents of `offset..offset + len`, each with its length and true if it is a hole,
/// which reads as zeros. Returns at least one extent; the last one may end before the range.
pub(super) fn extents(
    cache: &ArenaCache,
    volume: &ArenaVolume,
    map: &dyn AllocationMap,
    offset: u64,
    len: u32,
    single: bool,
) -> Vec<(u32, bool)> {
    let end = offset + u64::from(len);
    let mut runs: Vec<(u32, bool)> = Vec::new();
    let (mut position, mut search_bytes) = (offset, HOLE_BYTES_MAX);
    while position < end && runs.len() < EXTENTS_MAX && search_bytes > 0 {
        let extent = map.extent(position, end - position);
        let (run, hole) = if extent.hole {
            let (run, hole) = probe_hole(cache, volume, position, extent.len.min(search_bytes));
            search_bytes -= run;
            // Read the map again: a block that was only in the cache may have been written to the
            // store after the first read of the map and before the cache was searched.
            let extent = map.extent(position, run);
            if !hole || extent.hole { (run.min(extent.len), hole) } else { (extent.len, false) }
        } else {
            (extent.len, false)
        };
        let run = u32::try_from(run.max(1)).expect("at most the request");
        match runs.last_mut() {
            Some((last, last_hole)) if *last_hole == hole => *last += run,
            Some(_) if single => break,
            _ => runs.push((run, hole)),
        }
        position += u64::from(run);
    }
    runs
}

/// Returns the length of the first run in a hole of the store, and true if the run is a hole. The
/// run ends at the first block that is newer in the cache, or consists of such blocks.
fn probe_hole(cache: &ArenaCache, volume: &ArenaVolume, position: u64, len: u64) -> (u64, bool) {
    if volume.is_clean() {
        return (len, true);
    }
    let blocks = blocks_touched(&(position..position + len));
    let (run, is_unclean) = cache.unclean_run(volume, blocks.clone());
    let end = (blocks.start + run) * BLOCK_BYTES_U64;
    ((end - position).min(len), !is_unclean)
}
