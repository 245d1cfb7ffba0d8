//! The settings of a volume, each of which can change at any time.

use super::VolumeOptions;
use crate::hint::Hint;
use crate::mode::{FlushMode, WriteMode};
use crate::named::Live;
use crate::policy::PolicyKind;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::tunables::{LiveTunables, Tunable};

/// The settings.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) write_mode: Live<WriteMode>,
    pub(crate) flush_mode: Live<FlushMode>,
    /// The access pattern of requests without a hint.
    pub(crate) hint: Live<Hint>,
    pub(crate) policy: Live<PolicyKind>,
    policy_auto: AtomicBool,
    pub(crate) page_size: PageSize,
    pub(crate) tunables: LiveTunables,
    /// Number of frames to which ratios refer: the maximum of the volume or the size of the pool.
    capacity: AtomicU64,
}

impl Config {
    pub(super) fn new(options: &VolumeOptions, frames: u64) -> Self {
        Config {
            write_mode: Live::new(options.write_mode),
            flush_mode: Live::new(options.flush_mode),
            hint: Live::new(options.hint),
            policy: Live::new(options.policy),
            policy_auto: AtomicBool::new(options.policy_auto),
            page_size: PageSize::new(options.page_blocks),
            tunables: LiveTunables::new(&options.tunables),
            capacity: AtomicU64::new(u64::from(options.max_frames).min(frames)),
        }
    }

    /// Returns the modes as set.
    #[inline]
    pub(crate) fn modes(&self) -> (WriteMode, FlushMode) {
        (self.write_mode.get(), self.flush_mode.get())
    }

    #[inline]
    pub(crate) fn policy_auto(&self) -> bool {
        self.policy_auto.load(Ordering::Relaxed)
    }

    pub(super) fn set_policy_auto(&self, auto: bool) {
        self.policy_auto.store(auto, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    pub(crate) fn set_capacity(&self, frames: u32) {
        self.capacity.store(u64::from(frames), Ordering::Relaxed);
    }

    /// Returns the share of the capacity given by a tunable in per mille.
    #[inline]
    pub(crate) fn share_of_capacity(&self, tunable: Tunable) -> u64 {
        self.tunables.share(tunable, self.capacity())
    }
}

/// The page size of a volume in blocks, and the change of it that is pending.
#[derive(Debug)]
pub(crate) struct PageSize {
    blocks: AtomicU32,
    /// Requested page size; 0 if no change is pending.
    requested: AtomicU32,
}

impl PageSize {
    fn new(blocks: u32) -> Self {
        PageSize { blocks: AtomicU32::new(blocks), requested: AtomicU32::new(0) }
    }

    #[inline]
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn requested(&self) -> Option<u32> {
        let requested = self.requested.load(Ordering::Acquire);
        (requested != 0).then_some(requested)
    }

    #[inline]
    pub(crate) fn is_changing(&self) -> bool {
        self.requested().is_some()
    }

    pub(crate) fn request(&self, blocks: u32) {
        if self.is_changing() || blocks != self.blocks() {
            self.requested.store(blocks, Ordering::Release);
        }
    }

    /// Records that all shards have this page size. Returns true if no other size was requested.
    pub(crate) fn note_reached(&self, blocks: u32) -> bool {
        self.blocks.store(blocks, Ordering::Release);
        self.requested.compare_exchange(blocks, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_page_size_ends_with_the_size_requested_last() {
        let size = PageSize::new(4);
        size.request(4);
        assert!(!size.is_changing(), "it is the size already");
        size.request(8);
        size.request(16);
        assert!(!size.note_reached(8), "16 was requested in the meantime");
        assert_eq!((size.blocks(), size.requested()), (8, Some(16)));
        size.request(8);
        assert!(size.note_reached(8));
        assert_eq!((size.blocks(), size.requested()), (8, None));
    }
}
