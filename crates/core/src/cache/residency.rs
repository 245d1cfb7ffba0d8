//! What of a volume is in the cache, page by page, for those who show it.

use super::Cache;
use crate::frames::Frames;
use crate::volume::Volume;

/// Pages that are looked at under one hold of a shard's lock.
const SLOTS_AT_ONCE: u32 = 4096;

/// A page that has something in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCensus {
    /// Its first block.
    pub block: u64,
    /// Blocks of it that are resident.
    pub resident: u64,
    /// Of these, blocks that the store does not have yet, written now or not.
    pub unclean: u64,
}

impl<F: Frames> Cache<F> {
    /// Shows `visit` each page of `volume` that has something in the cache, in no order. What comes
    /// and goes meanwhile may be seen or not.
    pub fn census(&self, volume: &Volume<F>, mut visit: impl FnMut(PageCensus)) {
        for index in 0..self.shards.len() {
            let mut first = 0;
            loop {
                let mut shard = self.shard(index);
                // Whoever asks may be late: then nothing of the volume is left.
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
