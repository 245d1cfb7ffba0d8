//! The pool: which frames are free, how many there are, and how many each volume may have.
//!
//! The frames in service are those that hold data, are free, or are in limbo. The others are
//! *parked*: they were in service and gave their memory back, or never were. Frames come into
//! service and leave it one batch at a time, until they are as many as was asked for, the target.

use crate::frames::{FrameId, Frames};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::volume::{AllVolumes, Volume};
use std::collections::VecDeque;

#[derive(Debug)]
struct FreeFrames {
    frames: Vec<FrameId>,
    /// Frames that are no longer findable but are still pinned by a reader, and whose they are.
    limbo: VecDeque<(FrameId, u16)>,
    parked: Vec<FrameId>,
    /// Frames from this one on were never in service.
    fresh: FrameId,
    /// Why frames could not come into service when they were wanted last.
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

/// How many frames in limbo are looked at each time frames are taken.
const LIMBO_SCAN: usize = 8;

fn count(frames: usize) -> u32 {
    u32::try_from(frames).expect("at most the arena")
}

impl<F: Frames> Pool<F> {
    /// A pool with the first `usable` frames in service.
    pub(crate) fn new(usable: u32) -> Self {
        // Popped from the end: ascending, so that memory is touched from the arena's start.
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

    /// Frames in service.
    pub(crate) fn usable(&self) -> u32 {
        self.usable.load(Ordering::Acquire)
    }

    /// Frames that are to be in service.
    pub(crate) fn target(&self) -> u32 {
        self.target.load(Ordering::Acquire)
    }

    pub(crate) fn set_target(&self, frames: u32) {
        lock(&self.free).refused = None;
        self.target.store(frames, Ordering::Release);
    }

    /// Frames that can be reckoned with: those in service, but for those that are about to leave.
    pub(crate) fn size(&self) -> u32 {
        self.usable().min(self.target())
    }

    /// The most frames that were ever in service: the tables have grown to that.
    pub(crate) fn usable_ever(&self) -> u32 {
        lock(&self.free).fresh
    }

    /// Why the target could not be reached.
    pub(crate) fn refusal(&self) -> Option<String> {
        lock(&self.free).refused.clone()
    }

    /// Gives up growing: what there is, is enough.
    pub(crate) fn refuse(&self, reason: String) {
        lock(&self.free).refused = Some(reason);
        self.target.store(self.usable(), Ordering::Release);
    }

    /// Takes frames that are to come into service, parked ones first; the others are below `end`.
    pub(crate) fn unpark(&self, wanted: usize, end: FrameId) -> Vec<FrameId> {
        let mut free = lock(&self.free);
        let parked = free.parked.len().saturating_sub(wanted);
        let mut frames = free.parked.split_off(parked);
        let fresh = count(wanted - frames.len()).min(end - free.fresh);
        frames.extend(free.fresh..free.fresh + fresh);
        free.fresh += fresh;
        frames
    }

    /// Whether every frame that ever was in service is so now, or is about to be.
    pub(crate) fn has_parked(&self) -> bool {
        !lock(&self.free).parked.is_empty()
    }

    /// Parks frames again that could not come into service.
    pub(crate) fn park_uncommitted(&self, frames: impl IntoIterator<Item = FrameId>) {
        lock(&self.free).parked.extend(frames);
    }

    /// Brings frames into service.
    pub(crate) fn admit(&self, frames: &[FrameId]) {
        let mut free = lock(&self.free);
        // The lowest id on top, as in a new pool.
        free.frames.extend(frames.iter().rev());
        self.usable.fetch_add(count(frames.len()), Ordering::AcqRel);
    }

    /// Takes up to `wanted` free frames that are to leave service, except those that volumes have a
    /// right to.
    pub(crate) fn take_free(&self, frames: &F, wanted: usize) -> Vec<FrameId> {
        let unused_floors = self.unused_floors(None);
        let mut free = lock(&self.free);
        self.reclaim(&mut free, frames, LIMBO_SCAN);
        let left =
            free.frames.len().saturating_sub(wanted).max(unused_floors.min(free.frames.len()));
        free.frames.split_off(left)
    }

    /// Takes frames out of service that nobody holds, finds or is charged for.
    pub(crate) fn park(&self, frames: &[FrameId]) {
        let mut free = lock(&self.free);
        free.parked.extend(frames);
        self.usable.fetch_sub(count(frames.len()), Ordering::AcqRel);
    }

    /// Frames that volumes have a right to, have not taken, and that are not free.
    pub(crate) fn floor_deficit(&self) -> usize {
        self.unused_floors(None).saturating_sub(self.free())
    }

    /// Frames that volumes, but for one, have a right to and have not taken yet.
    fn unused_floors(&self, except: Option<u16>) -> usize {
        let volumes = lock(&self.volumes);
        let others = volumes.iter().flatten().filter(|other| Some(other.id) != except);
        others.map(|other| unused_floor(other)).sum()
    }

    /// Takes frames for `volume` until `spare` has `wanted`, as far as its ceiling and the floors
    /// of others allow; whether it has.
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
        let usage = &volume.quota.usage;
        while spare.len() < wanted {
            if usage.load(Ordering::Relaxed) >= volume.quota.max()
                || free.frames.len() <= unused_floors
            {
                return false;
            }
            let Some(frame) = free.frames.pop() else { return false };
            usage.fetch_add(1, Ordering::Relaxed);
            spare.push(frame);
        }
        true
    }

    /// Frees all frames in limbo that no reader pins any more. Returns the number of the others.
    pub(crate) fn reclaim_all(&self, frames: &F) -> usize {
        let mut free = lock(&self.free);
        self.reclaim(&mut free, frames, usize::MAX);
        free.limbo.len()
    }

    /// Frees those of the next `frames_max` frames in limbo that no reader pins any more.
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
                // To the end: one that is held for long must not hide the others.
                None => free.limbo.push_back((frame, volume)),
            }
        }
    }

    /// Gives frames back that nobody holds or can find.
    pub(crate) fn give_back(&self, volume: &Volume<F>, frames: impl IntoIterator<Item = FrameId>) {
        let mut free = lock(&self.free);
        let before = free.frames.len();
        free.frames.extend(frames);
        volume.quota.uncharge(free.frames.len() - before);
    }

    /// Gives a frame back that nobody can find but somebody may still hold.
    pub(crate) fn retire(&self, volume: u16, frame: FrameId) {
        lock(&self.free).limbo.push_back((frame, volume));
    }

    /// Frames that hold nothing.
    pub(crate) fn free(&self) -> usize {
        lock(&self.free).frames.len()
    }

    /// Reclaims what is no longer held, all of it; then free frames, and whose the frames are that
    /// are still held.
    pub(crate) fn settle(&self, frames: &F) -> (usize, Vec<u16>) {
        let mut free = lock(&self.free);
        self.reclaim(&mut free, frames, usize::MAX);
        (free.frames.len(), free.limbo.iter().map(|&(_, volume)| volume).collect())
    }

    /// Asserts that every frame that was ever in service is so, or is parked; for tests.
    pub(crate) fn check(&self) {
        let free = lock(&self.free);
        assert_eq!(self.usable() + count(free.parked.len()), free.fresh, "in service and parked");
    }
}

/// Frames that a volume has a right to and has not taken.
fn unused_floor<F: Frames>(volume: &Volume<F>) -> usize {
    volume.quota.floor().saturating_sub(volume.quota.usage.load(Ordering::Relaxed)) as usize
}
