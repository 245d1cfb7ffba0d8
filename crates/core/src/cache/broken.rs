//! Volumes that an internal error has ended, and the remaining state of a cache after a panic.
//!
//! A broken volume fails every request and keeps its unwritten data. Invariant: no such data is
//! written to the store, unless the user gives it up.

use super::Cache;
use crate::frames::Frames;
use crate::input::Input;
use crate::store::StoreError;
use crate::sync::{Arc, try_lock};
use crate::units::BLOCK_BYTES_U64;
use crate::volume::Volume;
use std::ops::Range;

/// Unwritten ranges of a volume, as far as they could be read after a panic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remains {
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
        volume.notify.notify();
    }

    /// Returns the unwritten ranges of each volume of a cache that a panic has left inconsistent.
    /// It waits for no lock; if it panics, the ranges are unknown.
    #[must_use]
    pub fn remains(&self) -> Vec<(Arc<Volume<F>>, Remains)> {
        let volumes =
            try_lock(&self.pool.volumes).map(|volumes| volumes.clone()).unwrap_or_default();
        let with_remains = |volume: Arc<Volume<F>>| {
            let remains = self.remains_of(&volume);
            (volume, remains)
        };
        volumes.into_iter().flatten().map(with_remains).collect()
    }

    fn remains_of(&self, volume: &Volume<F>) -> Remains {
        let mut remains = Remains::default();
        for shard in &self.shards {
            let Some(shard) = try_lock(shard) else {
                remains.unread_shards += 1;
                continue;
            };
            let Some(Some(instance)) = shard.instances.get(usize::from(volume.id)) else {
                continue;
            };
            for slot in instance.pages.slots() {
                let page = instance.pages.get(slot);
                if page.dirty + page.writing > 0 {
                    let blocks = instance.paging.blocks_of(page.number);
                    let end = (blocks.end * BLOCK_BYTES_U64).min(volume.geometry().length);
                    remains.ranges.push(blocks.start * BLOCK_BYTES_U64..end);
                }
            }
        }
        remains.ranges.sort_unstable_by_key(|range| range.start);
        remains.ranges.dedup_by(|next, last| {
            let joins = next.start == last.end;
            if joins {
                last.end = next.end;
            }
            joins
        });
        remains
    }
}
