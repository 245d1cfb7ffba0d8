//! Read-ahead of a volume: its accuracy, and flags for work in the volume's queue. Without a flag,
//! a thread need not lock the queue.

use super::config::Config;
use crate::page::Paging;
use crate::readahead::{Feedback, FileDetectors, WindowLimits};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::tunables::Tunable;
use crate::units::BLOCK_BYTES_U64;

/// Number of windows that fit into the share of memory for read-ahead: two for each of several
/// streams.
const WINDOWS: u64 = 32;

/// The state of read-ahead.
#[derive(Debug, Default)]
pub(crate) struct AheadState {
    has_windows: AtomicBool,
    has_warm: AtomicBool,
    has_passed: AtomicBool,
    pub(crate) feedback: Feedback,
    pub(crate) files: FileDetectors,
}

impl AheadState {
    /// Returns true if windows are pending.
    #[inline]
    pub(crate) fn has_windows(&self) -> bool {
        self.has_windows.load(Ordering::Relaxed)
    }

    pub(crate) fn set_has_windows(&self, has_windows: bool) {
        self.has_windows.store(has_windows, Ordering::Relaxed);
    }

    /// Returns true if blocks of a warm restart are to be read.
    #[inline]
    pub(crate) fn has_warm(&self) -> bool {
        self.has_warm.load(Ordering::Acquire)
    }

    pub(crate) fn set_has_warm(&self, has_warm: bool) {
        self.has_warm.store(has_warm, Ordering::Release);
    }

    /// Records that sequential readers have passed pages.
    pub(crate) fn note_passed(&self) {
        self.has_passed.store(true, Ordering::Release);
    }

    /// Returns true if sequential readers have passed pages since the last call.
    pub(crate) fn take_passed(&self) -> bool {
        self.has_passed.swap(false, Ordering::AcqRel)
    }

    /// Returns the present limits of read-ahead in pages of this paging; none if it is off.
    pub(super) fn limits(&self, config: &Config, paging: Paging) -> Option<WindowLimits> {
        // The windows take such a small part of the memory that those of many streams stay resident
        // until they are used, even under a policy with a probation part of a tenth.
        let share = config.share_of_capacity(Tunable::ReadAheadShare) / WINDOWS;
        let share = (share / u64::from(paging.page_blocks)).max(1);
        let page_bytes = u64::from(paging.page_blocks) * BLOCK_BYTES_U64;
        let max = (config.tunables.get(Tunable::ReadAheadMax) / page_bytes).min(share);
        if max == 0 {
            return None;
        }
        let min = config.tunables.get(Tunable::ReadAheadMin) / page_bytes;
        let steps = config.tunables.get(Tunable::ReadAheadSteps);
        let steps = u32::try_from(steps).expect("in its range");
        let pages = paging.page_of(paging.blocks - 1) + 1;
        let min = min.clamp(1, max);
        let streams = config.tunables.count(Tunable::ReadAheadStreams);
        Some(self.feedback.apply(WindowLimits { min, max, streams, steps, first: 0, pages }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::VolumeOptions;
    use super::*;
    use crate::store::Geometry;

    #[test]
    fn windows_take_a_small_part_of_the_memory_and_none_if_read_ahead_is_off() {
        let paging = Paging { page_blocks: 4, blocks: 1001 };
        let geometry = Geometry { length: 1001 << 12, granule: 512, read_only: false };
        let options = VolumeOptions { page_blocks: 4, ..VolumeOptions::new("v", geometry) };
        let (small, large) = (Config::new(&options, 1 << 10), Config::new(&options, 1 << 20));
        let ahead = AheadState::default();
        let [few, many] = [&small, &large].map(|it| ahead.limits(it, paging).unwrap());
        assert_eq!((few.first, few.pages), (0, 251), "a part of a page is a page");
        assert!(few.min <= few.max && few.max < many.max, "{few:?}, {many:?}");
        large.tunables.set("read-ahead-max", 0).unwrap();
        assert!(ahead.limits(&large, paging).is_none());
    }

    #[test]
    fn passed_pages_are_taken_once() {
        let ahead = AheadState::default();
        assert!(!ahead.take_passed());
        ahead.note_passed();
        assert!(ahead.take_passed() && !ahead.take_passed());
    }
}
