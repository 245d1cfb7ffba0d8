//! Pinned ranges: their pages are read in while the store is otherwise idle, and stay until they
//! are unpinned.

use super::Cache;
use super::fill::FillCause;
use crate::clock::Nanos;
use crate::frames::Frames;
use crate::input::{Input, LogGuard};
use crate::pinned::{PinError, RANGES_MAX};
use crate::sync::lock;
use crate::tunables::Tunable;
use crate::units::BLOCK_BYTES_U64;
use crate::volume::{Call, Volume};
use std::ops::Range;

/// Maximum number of reads in the queue and the store up to which fills of pinned pages start.
const FILLS_MAX: usize = 4;

impl<F: Frames> Cache<F> {
    /// Pins a range: its pages are read in the background, and are not evicted until
    /// [`Cache::unpin_range`], whatever the policy and the page size. Whole pages are pinned, in
    /// addition to the ranges that are already pinned.
    ///
    /// # Errors
    /// If the range is not inside the volume; if more would be pinned than half of the memory that
    /// the volume can have, or of all volumes than half of the pool; or if there are too many
    /// ranges. Nothing is changed then.
    pub fn pin_range(
        &self,
        volume: &Volume<F>,
        bytes: Range<u64>,
        now: Nanos,
    ) -> Result<(), PinError> {
        let _logged = self.log_pin(volume, &bytes, true, now);
        let blocks = Self::pages_around(volume, &bytes)?;
        let others: u64 = {
            let volumes = lock(&self.pool.volumes);
            let others = volumes.iter().flatten().filter(|other| other.id != volume.id);
            others.map(|other| other.pinned.blocks()).sum()
        };
        let (own_most, all_most) = (volume.config.capacity() / 2, u64::from(self.pool.size()) / 2);
        let name = || volume.name().to_owned();
        volume.pinned.change(&blocks, true, |ranges, count| {
            if ranges > RANGES_MAX {
                return Err(PinError::TooMany { volume: name() });
            }
            let limits = [(count, own_most), (count + others, all_most)];
            let Some(&(wanted, most)) = limits.iter().find(|(wanted, most)| wanted > most) else {
                return Ok(());
            };
            Err(PinError::TooMuch {
                volume: name(),
                asked_bytes: bytes.end - bytes.start,
                wanted_bytes: wanted * BLOCK_BYTES_U64,
                most_bytes: most * BLOCK_BYTES_U64,
            })
        })?;
        self.update_pinned_pages(volume, &blocks, now);
        volume.waker.wake();
        Ok(())
    }

    /// Unpins a range: the policy evicts its pages like others.
    ///
    /// # Errors
    /// If the range is not inside the volume.
    pub fn unpin_range(
        &self,
        volume: &Volume<F>,
        bytes: Range<u64>,
        now: Nanos,
    ) -> Result<(), PinError> {
        let _logged = self.log_pin(volume, &bytes, false, now);
        let blocks = Self::pages_around(volume, &bytes)?;
        volume.pinned.change(&blocks, false, |_, _| Ok(()))?;
        self.update_pinned_pages(volume, &blocks, now);
        self.unstall();
        Ok(())
    }

    fn log_pin(
        &self,
        volume: &Volume<F>,
        bytes: &Range<u64>,
        pin: bool,
        now: Nanos,
    ) -> Option<LogGuard<'_>> {
        self.log.add(|| Input::PinRange { volume: volume.id, bytes: bytes.clone(), pin, now })
    }

    /// Returns the pinned ranges of a volume in bytes, in order.
    #[must_use]
    pub fn pinned(&self, volume: &Volume<F>) -> Vec<Range<u64>> {
        let list = volume.pinned.list();
        list.iter().map(|blocks| volume.bytes_of_range(blocks)).collect()
    }

    /// Returns the blocks of the pages that `bytes` touch.
    fn pages_around(volume: &Volume<F>, bytes: &Range<u64>) -> Result<Range<u64>, PinError> {
        let length = volume.geometry().length;
        if bytes.is_empty() || bytes.end > length {
            let (volume, bytes) = (volume.name().to_owned(), bytes.clone());
            return Err(PinError::Range { volume, bytes, length });
        }
        let page = |byte: u64| volume.paging().around(byte / BLOCK_BYTES_U64);
        Ok(page(bytes.start).start..page(bytes.end - 1).end)
    }

    /// Adds the resident pages of `blocks` to the policies, or removes them, after a change of the
    /// pinned ranges.
    fn update_pinned_pages(&self, volume: &Volume<F>, blocks: &Range<u64>, now: Nanos) {
        for mut shard in self.shards.each() {
            shard.drain(now);
            // The volume may have been removed in the meantime.
            let Some(instance) = shard.instance_of(volume) else { return };
            for slot in self.slots_in(instance, blocks) {
                instance.note_pinned(slot, now);
            }
        }
    }

    /// Starts fills of pinned pages that are not resident, while the store has few other reads.
    /// Returns the time of the next scan, if no completion of the store triggers it.
    pub(super) fn fill_pinned(&self, call: &Call<'_, F>) -> Option<Nanos> {
        let Call { volume, now, .. } = *call;
        if volume.pinned.blocks() == 0 {
            return None;
        }
        let pause = volume.config.tunables.nanos(Tunable::RetryDelayMax);
        let mut spare = Vec::new();
        let next = loop {
            let reads = {
                let queue = lock(&volume.queue);
                queue.reads.len() + queue.reads_in_flight
            };
            if reads >= FILLS_MAX {
                break None;
            }
            let block = match volume.pinned.next(now, pause) {
                Ok(block) => block,
                Err(next) => break next,
            };
            let whole = volume.paging().around(block);
            let absent = self.count_absent(volume.id, &whole);
            let has_frames = self.reserve(call, absent, &mut spare);
            let mut shard = self.shard_of(volume, whole.start);
            let instance = shard.instance(volume.id);
            let whole = instance.paging.around(block);
            let page = instance.paging.page_of(block);
            let mut queue = lock(&volume.queue);
            let absent = self.count_absent(volume.id, &whole);
            let is_coming = instance.fills.contains_key(&page);
            // Checked under this lock: a thread that closes a volume inspects the queue afterwards.
            let can_come = has_frames
                && absent <= spare.len()
                && !queue.is_exclusive(&whole)
                && !volume.lifecycle.is_closed();
            if absent > 0 && !is_coming && can_come {
                let cause = FillCause::Pinned;
                self.start_fill(instance, &mut queue, page, &mut spare, cause, now);
            }
            volume.pinned.note_lookup(whole.end, absent > 0 && !is_coming && !can_come);
        };
        if !spare.is_empty() {
            self.pool.give_back(volume, spare);
        }
        next
    }
}
