//! The pool of frames: the free ones, the number in service, and the amount that each volume may
//! take.
//!
//! A frame in service holds data, is free, or is in limbo. All other frames are *parked*: they were
//! in service and have released their memory, or were never in service. Frames enter and leave
//! service in batches until their number equals the target.

use crate::frames::{FrameId, Frames};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::volume::{AllVolumes, Volume};
use std::collections::VecDeque;

#[derive(Debug)]
struct FreeFrames {
    frames: Vec<FrameId>,
    /// Frames that are out of the table but still pinned by a reader, each with the volume that is
    /// charged for it.
    limbo: VecDeque<(FrameId, u16)>,
    parked: Vec<FrameId>,
    /// The first frame that was never in service.
    fresh: FrameId,
    /// The reason why frames could not enter service at the last attempt.
    refused: Option<String>,
}

/// Free frames and the volumes that share them.
#[derive(Debug)]
pub(crate) struct Pool<F: Frames> {
    free: Mutex<FreeFrames>,
    usable: AtomicU32,
    target: AtomicU32,
    pub(crate) all: Arc<AllVolumes>,
    pub(crate) volumes: Mutex<Vec<Option<Arc<Volume<F>>>>>,
}

/// Number of frames in limbo that each call of [`Pool::take`] examines.
const LIMBO_SCAN: usize = 8;

fn count(frames: usize) -> u32 {
    u32::try_from(frames).expect("at most the arena")
}

impl<F: Frames> Pool<F> {
    /// Returns a pool with the first `usable` frames in service.
    pub(crate) fn new(usable: u32) -> Self {
        // Frames are popped from the end: ascending, so that memory is touched from the arena's
        // start.
        let frames = (0..usable).rev().collect();
        let limbo = VecDeque::new();
        Pool {
            free: Mutex::new(FreeFrames {
                frames,
                limbo,
                parked: Vec::new(),
                fresh: usable,
                refused: None,
            }),
            usable: AtomicU32::new(usable),
            target: AtomicU32::new(usable),
            all: Arc::new(AllVolumes { frames: u64::from(usable).into(), ..AllVolumes::default() }),
            volumes: Mutex::new(Vec::new()),
        }
    }

    /// Returns the number of frames in service.
    pub(crate) fn usable(&self) -> u32 {
        self.usable.load(Ordering::Acquire)
    }

    /// Returns the number of frames that should be in service.
    pub(crate) fn target(&self) -> u32 {
        self.target.load(Ordering::Acquire)
    }

    pub(crate) fn set_target(&self, frames: u32) {
        lock(&self.free).refused = None;
        self.target.store(frames, Ordering::Release);
    }

    /// Returns the number of frames that the cache can count on: those in service except those
    /// about to leave it.
    pub(crate) fn size(&self) -> u32 {
        self.usable().min(self.target())
    }

    /// Returns the highest number of frames that were ever in service. The tables have grown to
    /// that size.
    pub(crate) fn usable_ever(&self) -> u32 {
        lock(&self.free).fresh
    }

    pub(crate) fn refusal(&self) -> Option<String> {
        lock(&self.free).refused.clone()
    }

    /// Stops growing: lowers the target to the present number of frames.
    pub(crate) fn refuse(&self, reason: String) {
        lock(&self.free).refused = Some(reason);
        self.target.store(self.usable(), Ordering::Release);
    }

    /// Takes frames that will enter service: parked ones first, then ones below `end` that were
    /// never in service.
    pub(crate) fn unpark(&self, wanted: usize, end: FrameId) -> Vec<FrameId> {
        let mut free = lock(&self.free);
        let parked = free.parked.len().saturating_sub(wanted);
        let mut frames = free.parked.split_off(parked);
        let fresh = count(wanted - frames.len()).min(end - free.fresh);
        frames.extend(free.fresh..free.fresh + fresh);
        free.fresh += fresh;
        frames
    }

    pub(crate) fn has_parked(&self) -> bool {
        !lock(&self.free).parked.is_empty()
    }

    /// Parks frames whose memory could not be committed.
    pub(crate) fn park_uncommitted(&self, frames: impl IntoIterator<Item = FrameId>) {
        lock(&self.free).parked.extend(frames);
    }

    /// Puts frames into service.
    pub(crate) fn admit(&self, frames: &[FrameId]) {
        let mut free = lock(&self.free);
        // The lowest id is on top, as in a new pool.
        free.frames.extend(frames.iter().rev());
        self.usable.fetch_add(count(frames.len()), Ordering::AcqRel);
    }

    /// Takes up to `wanted` free frames out of the free list to leave service. Frames for unused
    /// floors stay.
    pub(crate) fn take_free(&self, frames: &F, wanted: usize) -> Vec<FrameId> {
        let unused_floors = self.unused_floors(None);
        let mut free = lock(&self.free);
        self.reclaim(&mut free, frames, LIMBO_SCAN);
        let left =
            free.frames.len().saturating_sub(wanted).max(unused_floors.min(free.frames.len()));
        free.frames.split_off(left)
    }

    /// Parks frames that are unpinned, out of the table and charged to no volume.
    pub(crate) fn park(&self, frames: &[FrameId]) {
        let mut free = lock(&self.free);
        free.parked.extend(frames);
        self.usable.fetch_sub(count(frames.len()), Ordering::AcqRel);
    }

    /// Returns the number of frames that floors need beyond the free ones.
    pub(crate) fn floor_deficit(&self) -> usize {
        self.unused_floors(None).saturating_sub(self.free())
    }

    /// Returns the sum of the unused floors of all volumes but `except`.
    fn unused_floors(&self, except: Option<u16>) -> usize {
        let volumes = lock(&self.volumes);
        let others = volumes.iter().flatten().filter(|other| Some(other.id) != except);
        others.map(|other| other.quota.unused_floor() as usize).sum()
    }

    /// Takes frames for `volume` until `spare` has `wanted`, within its ceiling and without using
    /// the floors of other volumes. Returns true if `spare` has enough.
    pub(crate) fn take(
        &self,
        frames: &F,
        volume: &Volume<F>,
        wanted: usize,
        spare: &mut Vec<FrameId>,
    ) -> bool {
        let unused_floors = self.unused_floors(Some(volume.id));
        let mut free = lock(&self.free);
        self.reclaim(&mut free, frames, LIMBO_SCAN);
        while spare.len() < wanted {
            if volume.quota.is_full() || free.frames.len() <= unused_floors {
                return false;
            }
            let Some(frame) = free.frames.pop() else { return false };
            volume.quota.charge();
            spare.push(frame);
        }
        true
    }

    /// Frees all frames in limbo that are no longer pinned. Returns the number of frames that
    /// remain in limbo.
    pub(crate) fn reclaim_all(&self, frames: &F) -> usize {
        let mut free = lock(&self.free);
        self.reclaim(&mut free, frames, usize::MAX);
        free.limbo.len()
    }

    /// Frees those of the next `frames_max` frames in limbo that are no longer pinned.
    fn reclaim(&self, free: &mut FreeFrames, frames: &F, frames_max: usize) {
        for _ in 0..frames_max.min(free.limbo.len()) {
            let Some((frame, volume)) = free.limbo.pop_front() else { return };
            match frames.try_write_pin(frame) {
                Some(write_pin) => {
                    frames.release_write_pin(write_pin);
                    if let Some(Some(volume)) = lock(&self.volumes).get(usize::from(volume)) {
                        volume.quota.uncharge(1);
                    }
                    free.frames.push(frame);
                }
                // A frame that is pinned for long goes to the end, so that it does not hide the
                // others.
                None => free.limbo.push_back((frame, volume)),
            }
        }
    }

    /// Frees frames that are unpinned and out of the table.
    pub(crate) fn give_back(&self, volume: &Volume<F>, frames: impl IntoIterator<Item = FrameId>) {
        let mut free = lock(&self.free);
        let before = free.frames.len();
        free.frames.extend(frames);
        volume.quota.uncharge(free.frames.len() - before);
    }

    /// Puts a frame into limbo: it is out of the table, but may still be pinned.
    pub(crate) fn retire(&self, volume: u16, frame: FrameId) {
        lock(&self.free).limbo.push_back((frame, volume));
    }

    pub(crate) fn free(&self) -> usize {
        lock(&self.free).frames.len()
    }

    /// Frees all frames in limbo that are no longer pinned. Returns the number of free frames, and
    /// the volume of each frame that remains in limbo.
    pub(crate) fn settle(&self, frames: &F) -> (usize, Vec<u16>) {
        let mut free = lock(&self.free);
        self.reclaim(&mut free, frames, usize::MAX);
        (free.frames.len(), free.limbo.iter().map(|&(_, volume)| volume).collect())
    }

    /// Asserts that every frame that was ever in service is in service or parked; for tests.
    pub(crate) fn check(&self) {
        let free = lock(&self.free);
        assert_eq!(self.usable() + count(free.parked.len()), free.fresh, "in service and parked");
    }
}
