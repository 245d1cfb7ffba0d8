//! Census of the cached pages of a volume, for displays.

use super::Cache;
use crate::frames::Frames;
use crate::volume::Volume;

/// Number of pages examined under one hold of a shard's lock.
const SLOTS_AT_ONCE: u32 = 4096;

/// A page with resident blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCensus {
    /// Its first block.
    pub block: u64,
    /// Number of its resident blocks.
    pub resident: u64,
    /// Number of these that the store does not have yet, dirty or being written.
    pub unclean: u64,
}

impl<F: Frames> Cache<F> {
    /// Calls `visit` for each page of `volume` with resident blocks, in no particular order. Pages
    /// that enter or leave in the meantime may be missing.
    pub fn census(&self, volume: &Volume<F>, mut visit: impl FnMut(PageCensus)) {
        for index in 0..self.shards.len() {
            let mut first = 0;
            loop {
                let mut shard = self.shard(index);
                // The volume may have been removed in the meantime.
                let Some(instance) = shard.instance_of(volume) else { return };
                if first >= instance.pages.end() {
                    break;
                }
                for slot in instance.pages.slots_in(first..first + SLOTS_AT_ONCE) {
                    let page = instance.pages.get(slot);
                    if page.resident > 0 {
                        visit(PageCensus {
                            block: instance.paging.blocks_of(page.number).start,
                            resident: page.resident.into(),
                            unclean: u64::from(page.dirty) + u64::from(page.writing),
                        });
                    }
                }
                first += SLOTS_AT_ONCE;
            }
        }
    }
}
