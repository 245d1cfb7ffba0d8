//! Write-order groups: changes that are submitted to the store only after others are stable there.
//!
//! [`crate::write_order`] keeps the order. The cache uses it in three places: a write joins its
//! group under the shard's lock under which it is placed; every start of a writeback checks if its
//! page is held back; and stages for which a held page waits are written before the lazy writer
//! would write them, once a client waits for the page, and the store is flushed after them.

use super::Cache;
use crate::clock::Nanos;
use crate::counters::Counter;
use crate::frames::Frames;
use crate::input::Input;
use crate::page::Paging;
use crate::queue::WriteCause;
use crate::sync::lock;
use crate::volume::{Call, Volume, VolumeHandle, Writer};
use crate::write_order::{GroupId, OrderError, WriteOrder};

/// Maximum number of pages that one poll starts to write for groups.
const DUE_MAX: usize = 64;

impl<F: Frames> Cache<F> {
    /// Returns a new write-order group of `volume`; see [`Cache::order`] and
    /// [`crate::message::Request`]. A group need not be closed.
    #[must_use]
    pub fn group(&self, volume: &Volume<F>) -> GroupId {
        GroupId { volume: volume.id, number: volume.write_order.with(WriteOrder::add) }
    }

    /// Orders two groups: no change of `after`, whether before or after this call, is submitted to
    /// the store before all present changes of `before` are stable there. Exempt is a change that
    /// is being written to the store now.
    ///
    /// # Errors
    /// If `before` might have to wait for `after`, the groups are of different volumes, or too many
    /// groups wait. The order is unchanged then.
    pub fn order(
        &self,
        volume: &Volume<F>,
        before: GroupId,
        after: GroupId,
    ) -> Result<(), OrderError> {
        let _logged = self.log.add(|| Input::Unsupported { call: "an order of groups".to_owned() });
        if before.volume != volume.id || after.volume != volume.id {
            return Err(OrderError::OtherVolume);
        }
        volume.write_order.with(|groups| groups.order(before.number, after.number))
    }

    /// Adds `blocks` of the page of block `first` to a group before the caller changes them. The
    /// caller holds the lock of their shard. Returns false if that is impossible now.
    pub(super) fn join_group(
        handle: &VolumeHandle<F>,
        paging: Paging,
        group: Option<GroupId>,
        first: u64,
        blocks: impl Iterator<Item = u64>,
    ) -> bool {
        let Some(group) = group else { return true };
        let volume = &*handle.volume;
        assert_eq!(group.volume, volume.id, "a write in a group of another volume");
        let page = paging.around(first);
        let joined = volume.write_order.with(|groups| groups.join(group.number, &page, blocks));
        if !joined {
            handle.recorder.add(Counter::OrderStalls, 1);
        }
        joined
    }

    /// Writes expedited stages, and flushes the store if groups wait for that. Returns the time of
    /// the next attempt, if no completion of the store triggers it.
    pub(super) fn advance_groups(&self, call: &Call<'_, F>, writer: &mut Writer) -> Option<Nanos> {
        let Call { volume, recorder, now } = *call;
        if volume.write_order.is_empty() {
            return None;
        }
        let paging = volume.paging();
        let due =
            volume.write_order.with(|groups| groups.due(DUE_MAX, |block| paging.around(block)));
        if !due.is_empty() && now < writer.retry_at {
            return Some(writer.retry_at);
        }
        self.write_back_each(call, due, WriteCause::Forced);
        let mut queue = lock(&volume.queue);
        let may_flush = !queue.flush_in_flight && queue.flush_failed.is_none();
        if may_flush && volume.write_order.with(|groups| groups.is_flush_due()) {
            recorder.add(Counter::OrderFlushes, 1);
            writer.unflushed_since = None;
            Self::flush_store(volume, &mut queue, now);
        }
        None
    }

    /// Returns true if changes are held back for good: a flush of the store has failed, so it is
    /// unknown if the changes before them are stable.
    #[must_use]
    pub fn is_held_for_ever(&self, volume: &Volume<F>) -> bool {
        let flush_failed = lock(&volume.queue).flush_failed.is_some();
        flush_failed && volume.write_order.with(|groups| groups.has_waiting())
    }
}
