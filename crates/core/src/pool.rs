//! The pool: which frames are free, and how many each volume may have.

use crate::frames::{FrameId, Frames};
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, Mutex, lock};
use crate::volume::Volume;
use std::collections::VecDeque;

#[derive(Debug)]
struct Free {
    frames: Vec<FrameId>,
    /// Frames that are no longer findable but are still pinned by a reader, and whose they are.
    limbo: VecDeque<(FrameId, u16)>,
}

/// Free frames and the volumes that share them.
#[derive(Debug)]
pub(crate) struct Pool<F: Frames> {
    free: Mutex<Free>,
    pub(crate) total: u32,
    pub(crate) volumes: Mutex<Vec<Option<Arc<Volume<F>>>>>,
}

/// How many frames in limbo are looked at each time frames are taken.
const LIMBO_LOOKS: usize = 8;

impl<F: Frames> Pool<F> {
    pub(crate) fn new(total: u32) -> Self {
        // Popped from the end: ascending, so that memory is touched from the arena's start.
        let frames = (0..total).rev().collect();
        Pool {
            free: Mutex::new(Free { frames, limbo: VecDeque::new() }),
            total,
            volumes: Mutex::new(Vec::new()),
        }
    }

    /// Frames that other volumes have a right to and have not taken yet.
    fn promised_to_others(&self, volume: &Volume<F>) -> usize {
        let volumes = lock(&self.volumes);
        let others = volumes.iter().flatten().filter(|other| other.id != volume.id);
        let missing = others.map(|other| {
            let quota = &other.quota;
            quota.min.saturating_sub(quota.usage.load(Ordering::Relaxed)) as usize
        });
        missing.sum()
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
        let promised = self.promised_to_others(volume);
        let mut free = lock(&self.free);
        self.reclaim(&mut free, frames);
        let usage = &volume.quota.usage;
        while spare.len() < wanted {
            if usage.load(Ordering::Relaxed) >= volume.quota.max || free.frames.len() <= promised {
                return false;
            }
            let Some(frame) = free.frames.pop() else { return false };
            usage.fetch_add(1, Ordering::Relaxed);
            spare.push(frame);
        }
        true
    }

    fn reclaim(&self, free: &mut Free, frames: &F) {
        for _ in 0..LIMBO_LOOKS.min(free.limbo.len()) {
            let Some((frame, volume)) = free.limbo.pop_front() else { return };
            match frames.try_own(frame) {
                Some(own) => {
                    frames.disown(own);
                    self.uncharge(volume, 1);
                    free.frames.push(frame);
                }
                // To the end: one that is held for long must not hide the others.
                None => free.limbo.push_back((frame, volume)),
            }
        }
    }

    fn uncharge(&self, volume: u16, count: u32) {
        if let Some(Some(volume)) = lock(&self.volumes).get(usize::from(volume)) {
            volume.quota.usage.fetch_sub(count, Ordering::Relaxed);
        }
    }

    /// Gives frames back that nobody holds or can find.
    pub(crate) fn give_back(&self, volume: &Volume<F>, frames: impl IntoIterator<Item = FrameId>) {
        let mut free = lock(&self.free);
        let before = free.frames.len();
        free.frames.extend(frames);
        let count = u32::try_from(free.frames.len() - before).expect("at most the arena");
        volume.quota.usage.fetch_sub(count, Ordering::Relaxed);
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
        for _ in 0..free.limbo.len().div_ceil(LIMBO_LOOKS) {
            self.reclaim(&mut free, frames);
        }
        (free.frames.len(), free.limbo.iter().map(|&(_, volume)| volume).collect())
    }
}
