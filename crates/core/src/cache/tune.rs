//! Use of the references of a volume: the report of its curve, and automatic changes of its policy.

use super::Cache;
use crate::clock::Nanos;
use crate::curve::report::{self, CurveReport, Finding};
use crate::curve::tracker::Tracker;
use crate::frames::Frames;
use crate::input::{Input, Query};
use crate::sync::{Mutex, lock};
use crate::units::BLOCK_BYTES_U64;
use crate::volume::{Call, PolicySwitch, Volume, VolumeOptions};

/// Divisor of the pool size that gives the number of free frames up to which the pool counts as
/// full.
const FREE_DIVISOR: usize = 64;

/// Bytes for each frame that trackers of volumes may allocate, in addition to [`TRACKER_BYTES`].
pub(super) const TRACKER_BYTES_PER_FRAME: usize = 16;

/// Bytes that trackers of volumes may allocate in a cache of any size: the memory limit must cover
/// them once.
pub const TRACKER_BYTES: usize = 768 << 10;

/// Returns the bytes that the tracker of a volume gets while trackers may allocate this many: three
/// quarters, so that some are left for the next volume.
fn share_of(bytes_left: usize) -> usize {
    bytes_left / 4 * 3
}

/// Returns the bytes that all trackers of a cache with this many frames may allocate.
fn all_tracker_bytes(frames: u32) -> usize {
    TRACKER_BYTES + frames as usize * TRACKER_BYTES_PER_FRAME
}

/// Returns the bytes that the tracker of the only volume of a cache with this many frames gets.
#[must_use]
pub fn tracker_bytes(frames: u32) -> usize {
    share_of(all_tracker_bytes(frames))
}

/// Bytes that trackers of volumes may still allocate.
#[derive(Debug)]
pub(super) struct TrackerMemory(Mutex<usize>);

impl TrackerMemory {
    pub(super) fn new(frames: u32) -> Self {
        TrackerMemory(Mutex::new(all_tracker_bytes(frames)))
    }

    /// Returns the tracker that `make` makes with the bytes that are left, if it makes one.
    /// `released` bytes are those of a tracker that the new one replaces.
    pub(super) fn allocate(
        &self,
        released: usize,
        make: impl FnOnce(usize) -> Option<Tracker>,
    ) -> Option<Tracker> {
        let mut bytes_left = lock(&self.0);
        *bytes_left += released;
        let tracker = make(*bytes_left)?;
        *bytes_left -= tracker.bytes();
        Some(tracker)
    }

    fn release(&self, bytes: usize) {
        *lock(&self.0) += bytes;
    }
}

impl<F: Frames> Cache<F> {
    /// Returns a tracker for a volume that is about to be added. Returns `None` if the remaining
    /// tracker memory is too little.
    pub(super) fn tracker_for(&self, id: u16, options: &VolumeOptions) -> Option<Tracker> {
        let frames = u64::from(options.max_frames.min(self.pool.size()));
        let pages = frames / u64::from(options.page_blocks);
        self.tracker_memory.allocate(0, |bytes_left| {
            let bytes = if options.curve { share_of(bytes_left) } else { 0 };
            Tracker::new(bytes, pages, options.policy, id.into())
        })
    }

    /// Returns the tracker memory of a removed volume.
    pub(super) fn release_tracker_bytes(&self, volume: &Volume<F>) {
        if let Some(locked_tracker) = &volume.tuning.tracker {
            self.tracker_memory.release(locked_tracker.tracker().bytes());
        }
    }

    /// Updates the policy if a step of the tracker has ended, and divides the pool if that is due.
    /// The driver of a store calls it without a lock.
    pub(super) fn tune(&self, call: &Call<'_, F>) {
        let Call { volume, now, .. } = *call;
        if let Some(locked_tracker) =
            volume.tuning.tracker.as_ref().filter(|tracker| tracker.take_step_ended())
        {
            let mut tracker = locked_tracker.tracker();
            let window_ended = tracker.take_window_ended();
            tracker.note_policy(volume.policy());
            if let Some(pages) = self.pages_when_full(volume) {
                tracker.note_pages(pages);
            }
            let better_policy = tracker.decide().filter(|_| volume.policy_auto());
            if window_ended {
                let end = tracker.curve_end(volume.page_bytes());
                volume.tuning.set_scan_dominated(report::scanned_share(end.as_ref()).is_some());
            }
            drop(tracker);
            if window_ended {
                locked_tracker.traffic().end_window(&volume.totals());
            }
            let from = volume.policy();
            if let Some((to, gain)) = better_policy {
                self.switch_policy(call, PolicySwitch { at: now, from, to, gain });
            }
        }
        self.share(now);
    }

    /// Returns the number of pages of the volume, if it cannot grow by one page.
    fn pages_when_full(&self, volume: &Volume<F>) -> Option<u64> {
        let (usage, page_blocks) = (volume.quota.usage(), volume.page_blocks());
        let free_min = (self.pool.size() as usize / FREE_DIVISOR).max(page_blocks as usize - 1);
        let is_full =
            self.pool.free() <= free_min || usage.saturating_add(page_blocks) > volume.quota.max();
        is_full.then(|| u64::from(usage / page_blocks))
    }

    /// Returns the curve of a volume and the findings from it; `None` without a tracker.
    #[must_use]
    pub fn curve(&self, volume: &Volume<F>, now: Nanos) -> Option<CurveReport> {
        let query = || Input::Query { volume: volume.id, query: Query::Curve, now };
        let _logged = self.log.add(query);
        let locked_tracker = volume.tuning.tracker.as_ref()?;
        for mut shard in self.shards.each() {
            shard.drain(now);
            if let Some(instance) = shard.instance_of(volume) {
                instance.references.flush(volume);
            }
        }
        let bytes = u64::from(volume.quota.usage()) * BLOCK_BYTES_U64;
        let tracker = locked_tracker.tracker();
        let points = tracker.curve(volume.page_bytes());
        let (references, hit_ratio) = tracker.recent();
        let totals = volume.totals();
        let traffic = locked_tracker.traffic().now(&totals, volume.ahead.feedback.unused_share());
        let policy_points = tracker.policy_points(volume.page_bytes());
        let decisive = if policy_points.is_empty() { &points } else { &policy_points };
        let mut findings = report::findings(decisive, points.last(), bytes, traffic);
        if self.pages_when_full(volume).is_none() {
            // The volume takes free memory when it needs more.
            findings.retain(|finding| !matches!(finding, Finding::TooSmall { .. }));
        }
        let volume_pages = volume.geometry().length.div_ceil(volume.page_bytes());
        let references_missing = tracker.references_missing(volume_pages);
        if references_missing > 0 {
            findings.retain(|finding| {
                !matches!(finding, Finding::TooLarge { .. } | Finding::Scanned { .. })
            });
        }
        let better = tracker.better_policy();
        findings.extend(better.map(|(policy, gain)| Finding::BetterPolicy { policy, gain }));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let references = references as u64;
        Some(CurveReport {
            lifetime_policy_points: tracker.lifetime_policy_points(volume.page_bytes()),
            lifetime_points: tracker.lifetime_curve(volume.page_bytes()),
            sample_rate: tracker.sample_rate(),
            references,
            references_missing,
            hit_ratio,
            bytes,
            policy: volume.policy(),
            policy_auto: volume.policy_auto(),
            candidates: tracker.candidates(),
            recommended_policy: better.map(|(policy, _)| policy),
            recommended_bytes: report::enough_bytes(decisive),
            findings,
            points,
            policy_points,
        })
    }
}
