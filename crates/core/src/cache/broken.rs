//! Volumes that an internal error has ended, and the remaining state of a cache after a panic.
//!
//! A broken volume fails every request and keeps its unwritten data. Invariant: no such data is
//! written to the store, unless the user gives it up.

use super::Cache;
use super::at_risk::joined;
use crate::frames::Frames;
use crate::input::Input;
use crate::store::StoreError;
use crate::sync::{Arc, try_lock};
use crate::volume::Volume;
use std::ops::Range;

/// Unwritten ranges of a volume, as far as they could be read after a panic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnwrittenData {
    /// Bytes of whole pages that the store may not have, sorted and joined.
    pub ranges: Vec<Range<u64>>,
    /// Number of shards that other threads had locked; their state is unknown.
    pub unread_shards: usize,
}

impl<F: Frames> Cache<F> {
    /// Ends a volume after an internal error: every request fails with `error` from now on,
    /// including requests that wait for frames. Unwritten data stays in memory.
    pub fn break_volume(&self, volume: &Volume<F>, error: StoreError) {
        let _logged = self.log.add(|| Input::Unsupported { call: "an internal error".to_owned() });
        volume.dirty.note_error(&error);
        volume.lifecycle.note_broken(error);
        self.unstall();
        volume.waker.wake();
    }

    /// Returns the unwritten ranges of each volume of a cache that a panic has left inconsistent.
    /// It waits for no lock; if it panics, the ranges are unknown.
    #[must_use]
    pub fn remains(&self) -> Vec<(Arc<Volume<F>>, UnwrittenData)> {
        let volumes =
            try_lock(&self.pool.volumes).map(|volumes| volumes.clone()).unwrap_or_default();
        let with_remains = |volume: Arc<Volume<F>>| {
            let remains = self.remains_of(&volume);
            (volume, remains)
        };
        volumes.into_iter().flatten().map(with_remains).collect()
    }

    fn remains_of(&self, volume: &Volume<F>) -> UnwrittenData {
        let (mut pages, mut unread_shards) = (Vec::new(), 0);
        for shard in self.shards.try_each() {
            let Some(shard) = shard else {
                unread_shards += 1;
                continue;
            };
            let Some(Some(instance)) = shard.instances.get(usize::from(volume.id)) else {
                continue;
            };
            let all = instance.pages.slots().map(|slot| instance.pages.get(slot));
            let unclean = all.filter(|page| page.dirty + page.writing > 0);
            pages.extend(unclean.map(|page| instance.paging.blocks_of(page.number)));
        }
        UnwrittenData { ranges: joined(volume, pages, usize::MAX), unread_shards }
    }
}
