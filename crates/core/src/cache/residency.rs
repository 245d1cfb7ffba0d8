//! Census of the cached pages of a volume, for displays.

use super::Cache;
use crate::frames::Frames;
use crate::shard::Instance;
use crate::volume::Volume;

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
        let census = |instance: &Instance<F>, slot| {
            let page = instance.pages.get(slot);
            PageCensus {
                block: instance.paging.blocks_of(page.number).start,
                resident: page.resident.into(),
                unclean: u64::from(page.dirty) + u64::from(page.writing),
            }
        };
        self.shards
            .visit_pages(volume, None, census, |pages| pages.into_iter().for_each(&mut visit));
    }
}
