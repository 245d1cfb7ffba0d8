//! Ordered groups: what is given to the store only after something else is stable there.
//!
//! The order itself is kept in [`crate::group`]. Here are its ends in the cache: writes join their
//! group under the shard's lock, in which they are placed; every start of a round asks whether its
//! page is held back, whoever starts it; and what held pages wait for, once somebody wants one of
//! them, is written before the lazy writer would and the store flushed after it.

use super::Cache;
use crate::clock::Nanos;
use crate::completion::VolumeHandle;
use crate::counters::{Counter, Recorder};
use crate::frames::Frames;
use crate::input::Input;
use crate::page::Paging;
use crate::queue::WriteCause;
use crate::sync::lock;
use crate::tunables::Tunable;
use crate::volume::Volume;
use crate::write_order::{GroupId, OrderError, WriteOrder};
use crate::writeback::Writer;
/// How many pages one poll starts for the sake of groups at most.
const DUE_MAX: usize = 64;

impl<F: Frames> Cache<F> {
    /// Returns a new group of writes to `volume`; see [`Cache::order`] and
    /// [`crate::request::Request`]. The group does not have to be closed.
    #[must_use]
    pub fn group(&self, volume: &Volume<F>) -> GroupId {
        GroupId { volume: volume.id, number: volume.write_order.with(WriteOrder::add) }
    }

    /// From now on nothing of `after`, written before this call or later, is given to the store
    /// before everything that was written in `before` until this call is stable there. What is
    /// being written to the store at this moment has been given to it.
    ///
    /// # Errors
    /// If `before` could have to wait for `after`, the groups are of different volumes, or too many
    /// groups wait. Then nothing has changed.
    pub fn order(
        &self,
        volume: &Volume<F>,
        before: GroupId,
        after: GroupId,
    ) -> Result<(), OrderError> {
        let _logged =
            self.log_input(|| Input::Unsupported { call: "an order of groups".to_owned() });
        if before.volume != volume.id || after.volume != volume.id {
            return Err(OrderError::OtherVolume);
        }
        volume.write_order.with(|groups| groups.order(before.number, after.number))
    }

    /// Takes `blocks` of the page of block `first`, which are changed next, into a group, under the
    /// lock of their shard; false if that cannot be now.
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

    /// Writes what groups wait for, as far as somebody wants it, and flushes the store where that
    /// is what they wait for. When to go on, if that is not to be told by the store.
    pub(super) fn advance_groups(
        &self,
        volume: &Volume<F>,
        writer: &mut Writer,
        recorder: &Recorder,
        now: Nanos,
    ) -> Option<Nanos> {
        if volume.write_order.is_empty() {
            return None;
        }
        let paging = volume.paging();
        let due =
            volume.write_order.with(|groups| groups.due(DUE_MAX, |block| paging.around(block)));
        if !due.is_empty() && now < writer.retry_at {
            return Some(writer.retry_at);
        }
        let depth = usize::try_from(volume.tunables.get(Tunable::ForcedDepth)).expect("small");
        for block in due {
            if lock(&volume.queue).writes_started() >= depth {
                break;
            }
            self.write_back_around(volume, block, WriteCause::Forced, recorder, now);
        }
        let mut queue = lock(&volume.queue);
        let may_flush = !queue.flush_in_flight && queue.flush_failed.is_none();
        if may_flush && volume.write_order.with(|groups| groups.is_flush_due()) {
            recorder.add(Counter::OrderFlushes, 1);
            writer.unflushed_since = None;
            Self::flush_store(volume, &mut queue, now);
        }
        None
    }

    /// Whether changes are held back for ever: what comes before them is not known to be stable,
    /// since a flush of the store has failed.
    #[must_use]
    pub fn is_held_for_ever(&self, volume: &Volume<F>) -> bool {
        let flush_failed = lock(&volume.queue).flush_failed.is_some();
        flush_failed && volume.write_order.with(|groups| groups.has_waiting())
    }
}
