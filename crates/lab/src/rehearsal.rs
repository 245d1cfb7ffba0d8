//! A rehearsal: the production cache on a virtual clock, in front of a modelled store, under a
//! workload with one request at a time. Ten minutes take a second or two, and the same seed gives
//! the same run.
//!
//! Times are nanoseconds, sizes are bytes.

use crate::workload::probe::{Action, ProbeRequest};
use larder_core::cache::{Cache, shards_for};
use larder_core::clock::Nanos;
use larder_core::counters::{Recorder, Totals};
use larder_core::frames::{Frames, NoFrames};
use larder_core::lane::{Completion, Lane, Silent};
use larder_core::request::{Assembly, Status, WriteTask};
use larder_core::store::Store;
use larder_core::volume::{Volume, VolumeOptions};
use std::sync::Arc;

/// Operations that the store has at a time.
const DEPTH: usize = 32;

/// A cache without memory, its store, and the time.
#[derive(Debug)]
pub struct Rehearsal<S> {
    cache: Cache<NoFrames>,
    volume: Arc<Volume<NoFrames>>,
    recorder: Arc<Recorder>,
    lane: Lane<NoFrames>,
    store: S,
    now: Nanos,
    completions: Vec<Completion<NoFrames>>,
    zeros: Vec<u8>,
}

/// A request that failed, which a modelled store never does by itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rehearse a request: {0}")]
pub struct RehearsalError(String);

impl<S: Store<NoFrames>> Rehearsal<S> {
    /// A cache of `frames` frames in front of `store`.
    #[must_use]
    pub fn new(frames: u32, options: VolumeOptions, store: S) -> Self {
        let cache = Cache::new(NoFrames::new(frames), shards_for(frames, 1));
        let volume = cache.add_volume(options, Box::new(Silent));
        let recorder = cache.recorder(&volume);
        let lane = cache.open_lane(&volume, Box::new(Silent));
        // The clock starts a second after its origin, as a machine's does.
        let now = larder_core::clock::SECOND;
        let (completions, zeros) = (Vec::new(), Vec::new());
        Rehearsal { cache, volume, recorder, lane, store, now, completions, zeros }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The counters so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.volume.totals()
    }

    /// Blocks that the store does not have yet.
    #[must_use]
    pub fn unclean_blocks(&self) -> u64 {
        self.volume.unclean_blocks()
    }

    /// Lets time pass until `until`, with whatever the lazy writer and the store do in it.
    pub fn pass(&mut self, until: Nanos) {
        while let Some(event) = self.step() {
            if event >= until {
                break;
            }
            self.now = self.now.max(event);
        }
        self.now = self.now.max(until);
    }

    /// Does everything that can be done now; when the next thing happens by itself.
    fn step(&mut self) -> Option<Nanos> {
        let (mut ops, mut done) = (Vec::new(), Vec::new());
        loop {
            let next = self.cache.poll(&self.volume, &self.recorder, self.now, DEPTH, &mut ops);
            for op in ops.drain(..) {
                self.store.submit(self.now, self.cache.frames(), op);
            }
            self.store.reap(self.now, self.cache.frames(), &mut done);
            if done.is_empty() {
                let event = self.store.next_event();
                return match (next, event) {
                    (Some(next), Some(event)) => Some(next.min(event).max(self.now + 1)),
                    (one, other) => one.or(other).map(|at| at.max(self.now + 1)),
                };
            }
            for done in done.drain(..) {
                self.cache.complete(&self.volume, &self.recorder, self.now, done);
            }
        }
    }

    /// Thinks and then serves one request, letting the time pass that it takes.
    ///
    /// # Errors
    /// If the store failed it.
    pub fn serve(&mut self, request: &ProbeRequest) -> Result<(), RehearsalError> {
        self.pass(self.now + request.think);
        let len = u32::try_from(request.len).expect("a record");
        match request.action {
            Action::Read => self.read(request.offset, len),
            Action::Write => self.write(request.offset, len),
        }
    }

    /// Lets the next thing happen.
    fn wait(&mut self) {
        let event = self.step();
        if !self.lane.has_mail() {
            self.now = event.expect("somebody waits, so something is under way");
        }
    }

    fn read(&mut self, offset: u64, len: u32) -> Result<(), RehearsalError> {
        let mut assembly = Assembly::new(0, offset, len);
        let mut status = self.cache.read(&mut self.lane, self.now, &mut assembly);
        loop {
            match status {
                Status::Done | Status::DoneAt(_) => break,
                Status::Failed(error) => return Err(RehearsalError(error.to_string())),
                Status::Pending | Status::Stalled => self.wait(),
            }
            self.lane.collect(&mut self.completions);
            let stalled = status == Status::Stalled;
            for completion in self.completions.drain(..) {
                if !matches!(completion, Completion::Unstalled) {
                    status = assembly.absorb(self.cache.frames(), completion);
                }
            }
            if stalled || status == Status::Stalled {
                status = self.cache.read(&mut self.lane, self.now, &mut assembly);
            }
        }
        assembly.release(self.cache.frames());
        Ok(())
    }

    fn write(&mut self, offset: u64, len: u32) -> Result<(), RehearsalError> {
        self.zeros.resize(len as usize, 0);
        let mut task = WriteTask::new(0, offset, len, false);
        loop {
            let status = self.cache.write(&mut self.lane, self.now, &mut task, &self.zeros);
            match status {
                Status::Done => return Ok(()),
                Status::DoneAt(at) => {
                    self.pass(at);
                    return Ok(());
                }
                Status::Failed(error) => return Err(RehearsalError(error.to_string())),
                Status::Pending | Status::Stalled => self.wait(),
            }
            self.lane.collect(&mut self.completions);
            for completion in std::mem::take(&mut self.completions) {
                if matches!(completion, Completion::Unstalled | Completion::Continue { .. }) {
                    continue;
                }
                let lane = &mut self.lane;
                match self.cache.write_completed(lane, self.now, &mut task, completion) {
                    Status::Done => return Ok(()),
                    Status::Failed(error) => return Err(RehearsalError(error.to_string())),
                    _ => {}
                }
            }
        }
    }

    /// Gives up what is under way.
    pub fn finish(self) -> Totals {
        let totals = self.volume.totals();
        self.cache.close_lane(self.lane);
        self.cache.abandon(&self.volume);
        debug_assert!(self.cache.frames().count() > 0, "a cache has frames");
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Disk, Modelled};
    use crate::workload::probe::Probe;
    use larder_core::clock::{MILLISECOND, SECOND};
    use larder_core::counters::Counter;
    use larder_core::store::{Geometry, MemoryStore};
    use larder_core::tunables::Tunables;

    fn scenario(seconds: u64) -> (Totals, Vec<u64>) {
        let cache_bytes = 26 << 20;
        let mut probe = Probe::scenario_1(cache_bytes);
        probe.think.mean = 1.36e6;
        let geometry = Geometry { length: probe.file_bytes, granule: 512, read_only: false };
        let mut options = VolumeOptions::new("probe", geometry);
        options.tunables = Tunables::nt();
        let disk = Disk::seven_thousand_two_hundred(geometry.length);
        let store = Modelled::new(MemoryStore::new(geometry), disk);
        let frames = u32::try_from(cache_bytes / 4096).unwrap();
        let mut rehearsal = Rehearsal::new(frames, options, store);
        let mut dirty = Vec::new();
        for request in probe.requests(7) {
            rehearsal.serve(&request).unwrap();
            dirty.push(rehearsal.unclean_blocks());
            if rehearsal.now() > seconds * SECOND {
                break;
            }
        }
        assert!(rehearsal.now() > MILLISECOND);
        (rehearsal.finish(), dirty)
    }

    #[test]
    fn scenario_1_hits_and_absorbs_and_writes_in_bursts() {
        let (totals, dirty) = scenario(120);
        // Cold misses are what is left of a working set that fits.
        assert!(totals.read_hit_ratio().unwrap() > 0.9, "{:?}", totals.read_hit_ratio());
        let absorbed = totals.get(Counter::WriteAbsorbed);
        assert!(absorbed > totals.get(Counter::WriteNewDirty) / 4, "{absorbed} absorbed");
        let peak = *dirty.iter().max().unwrap();
        let late = &dirty[dirty.len() / 2..];
        assert!(*late.iter().min().unwrap() < peak / 2, "no saw-tooth: {peak} at the peak");
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        assert_eq!(scenario(20).1, scenario(20).1);
    }
}
