//! A store that can lose power.
//!
//! The fault model: a completed write is visible to reads, but it is stable only after the
//! completion of a flush that was submitted later, or at once if it was a FUA write. Operations in
//! flight may or may not have taken effect. At a crash, each sector that is not stable
//! independently has either the stable content or the content of any write to it since then: this
//! covers dropped, torn and reordered writes. A seed determines the choice. A discard, too, may or
//! may not have taken effect for each sector.
//!
//! Operations complete in an order that the seed determines, one per reap, so that every order that
//! a device with a queue may produce can occur.

use super::memory::{SparseBytes, transfer};
use super::{Geometry, Segment, Store, StoreCompletion, StoreOp, StoreOpKind};
use crate::clock::Nanos;
use crate::frames::Frames;
use crate::units::SECTOR_BYTES;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A possible content of a sector, and the sequence number of its submission.
#[derive(Clone, Debug)]
struct Version {
    sequence: u64,
    content: Box<[u8]>,
}

/// The storage device, which survives the store.
#[derive(Debug, Default)]
pub struct CrashDisk {
    stable: SparseBytes,
    /// The sequence number of the stable version of each sector that was ever changed.
    stable_sequences: BTreeMap<u64, u64>,
    /// The content that reads return.
    current: SparseBytes,
    /// For each sector, the versions that a crash may leave instead of the stable one.
    volatile: BTreeMap<u64, Vec<Version>>,
    sequence: u64,
}

/// A small random number generator (`SplitMix64`, Steele, Lea, Flood 2014), so that the library
/// needs no dependency for it.
#[derive(Clone, Debug)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % n as u64).expect("below n")
    }
}

impl CrashDisk {
    /// Returns the content that reads return now.
    #[must_use]
    pub fn current(&self) -> &SparseBytes {
        &self.current
    }

    /// Returns the content after a crash at this point and a restart.
    #[must_use]
    pub fn after_crash(&self, seed: u64) -> SparseBytes {
        let mut rng = SplitMix64(seed);
        let mut bytes = self.stable.clone();
        for (&sector, versions) in &self.volatile {
            let chosen = rng.below(versions.len() + 1);
            if let Some(version) = versions.get(chosen) {
                bytes.write(sector * SECTOR_BYTES as u64, &version.content);
            }
        }
        bytes
    }

    /// Records `content` as a possible version of each sector in the range; returns its sequence
    /// number.
    fn record_versions(&mut self, offset: u64, len: u64, content: &SparseBytes) -> u64 {
        self.sequence += 1;
        let sequence = self.sequence;
        for sector in sectors(offset, len) {
            let mut bytes = vec![0; SECTOR_BYTES];
            content.read(sector * SECTOR_BYTES as u64, &mut bytes);
            let version = Version { sequence, content: bytes.into() };
            self.volatile.entry(sector).or_default().push(version);
        }
        sequence
    }

    /// Makes a version of a sector stable, unless a later one already is.
    fn make_stable(&mut self, sector: u64, version: &Version) {
        let stable = self.stable_sequences.entry(sector).or_default();
        if *stable >= version.sequence {
            return;
        }
        *stable = version.sequence;
        self.stable.write(sector * SECTOR_BYTES as u64, &version.content);
        if let Some(versions) = self.volatile.get_mut(&sector) {
            versions.retain(|other| other.sequence > version.sequence);
            if versions.is_empty() {
                self.volatile.remove(&sector);
            }
        }
    }
}

fn sectors(offset: u64, len: u64) -> std::ops::Range<u64> {
    offset / SECTOR_BYTES as u64..(offset + len).div_ceil(SECTOR_BYTES as u64)
}

/// A store that can produce its content after a crash at any point.
#[derive(Debug)]
pub struct CrashStore<F: Frames> {
    geometry: Geometry,
    disk: Arc<Mutex<CrashDisk>>,
    rng: SplitMix64,
    /// Operations in flight, with the sequence number of their change, and the versions that become
    /// stable at their completion.
    pending: Vec<(StoreOp<F>, u64, BecomesStable)>,
}

/// The versions that become stable at the completion of an operation in flight.
#[derive(Debug)]
enum BecomesStable {
    Nothing,
    /// The versions with this sequence number: a FUA write.
    Sequence(u64),
    /// These versions of sectors: a flush.
    Versions(Vec<(u64, Version)>),
}

impl<F: Frames> CrashStore<F> {
    /// Creates a store with the initial content `content`.
    #[must_use]
    pub fn new(geometry: Geometry, content: SparseBytes, seed: u64) -> Self {
        let disk = CrashDisk { stable: content.clone(), current: content, ..CrashDisk::default() };
        let disk = Arc::new(Mutex::new(disk));
        CrashStore { geometry, disk, rng: SplitMix64(seed), pending: Vec::new() }
    }

    /// Returns the disk, for inspection after a crash.
    #[must_use]
    pub fn disk(&self) -> Arc<Mutex<CrashDisk>> {
        Arc::clone(&self.disk)
    }
}

/// Returns the data of a write, at its offset.
fn write_content<F: Frames>(frames: &F, op: &StoreOp<F>) -> SparseBytes {
    let mut bytes = SparseBytes::default();
    let mut at = op.offset;
    for Segment { buffer, offset, len } in &op.segments {
        let mut copy = vec![0; *len as usize];
        if let super::Buffer::Pinned(pin) = buffer {
            frames.read(pin, *offset as usize, &mut copy);
        }
        bytes.write(at, &copy);
        at += u64::from(*len);
    }
    bytes
}

impl<F: Frames> CrashStore<F> {
    /// Returns the last completed version of each sector.
    fn completed_versions(&self, disk: &CrashDisk) -> Vec<(u64, Version)> {
        let is_done = |version: &&Version| self.pending.iter().all(|w| w.1 != version.sequence);
        let last = |(&sector, versions): (&u64, &Vec<Version>)| {
            let version = versions.iter().rev().find(is_done)?.clone();
            Some((sector, version))
        };
        disk.volatile.iter().filter_map(last).collect()
    }
}

impl<F: Frames> Store<F> for CrashStore<F> {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, _now: Nanos, frames: &F, op: StoreOp<F>) {
        let shared = Arc::clone(&self.disk);
        let mut disk = shared.lock().expect("no holder panics");
        let (sequence, becomes_stable) = match op.kind {
            StoreOpKind::Read => (0, BecomesStable::Nothing),
            StoreOpKind::Write { fua } => {
                let sequence = disk.record_versions(op.offset, op.len, &write_content(frames, &op));
                (
                    sequence,
                    if fua { BecomesStable::Sequence(sequence) } else { BecomesStable::Nothing },
                )
            }
            StoreOpKind::Flush => {
                let mut versions = self.completed_versions(&disk);
                if op.len > 0 {
                    let range = sectors(op.offset, op.len);
                    versions.retain(|(sector, _)| range.contains(sector));
                }
                (0, BecomesStable::Versions(versions))
            }
            StoreOpKind::Discard | StoreOpKind::Zero { .. } => (
                disk.record_versions(op.offset, op.len, &SparseBytes::default()),
                BecomesStable::Nothing,
            ),
        };
        self.pending.push((op, sequence, becomes_stable));
    }

    fn reap(&mut self, now: Nanos, frames: &F, done: &mut Vec<StoreCompletion<F>>) {
        if self.pending.is_empty() {
            return;
        }
        let (mut op, _, becomes_stable) =
            self.pending.swap_remove(self.rng.below(self.pending.len()));
        let shared = Arc::clone(&self.disk);
        let mut disk = shared.lock().expect("no holder panics");
        match op.kind {
            StoreOpKind::Read | StoreOpKind::Write { .. } => {
                transfer(frames, &mut op, &mut disk.current);
            }
            StoreOpKind::Discard | StoreOpKind::Zero { .. } => {
                disk.current.zero(op.offset, op.len);
            }
            StoreOpKind::Flush => {}
        }
        let versions = match becomes_stable {
            BecomesStable::Nothing => Vec::new(),
            BecomesStable::Versions(versions) => versions,
            BecomesStable::Sequence(sequence) => {
                let of_sequence = |sector| {
                    let versions: &Vec<Version> = disk.volatile.get(&sector)?;
                    let version = versions.iter().find(|version| version.sequence == sequence)?;
                    Some((sector, version.clone()))
                };
                sectors(op.offset, op.len).filter_map(of_sequence).collect()
            }
        };
        for (sector, version) in versions {
            disk.make_stable(sector, &version);
        }
        done.push(StoreCompletion { op, result: Ok(()), started_at: now, finished_at: now });
    }

    fn in_flight(&self) -> usize {
        self.pending.len()
    }

    fn next_event(&self) -> Option<Nanos> {
        (!self.pending.is_empty()).then_some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::PlainFrames;
    use crate::store::Buffer;
    use crate::units::{BLOCK_BYTES, BLOCK_BYTES_U64};

    fn store() -> CrashStore<PlainFrames> {
        let geometry = Geometry { length: 8 * BLOCK_BYTES_U64, granule: 512, read_only: false };
        CrashStore::new(geometry, SparseBytes::default(), 1)
    }

    fn run(
        store: &mut CrashStore<PlainFrames>,
        frames: &PlainFrames,
        (kind, offset, len): (StoreOpKind, u64, u64),
        segments: Vec<Segment<PlainFrames>>,
    ) {
        let op = StoreOp { tag: 1, kind, offset, len, segments, queued_at: 0 };
        store.submit(0, frames, op);
        let mut done = Vec::new();
        store.reap(0, frames, &mut done);
        for segment in done.into_iter().flat_map(|done| done.op.segments) {
            let Buffer::Pinned(pin) = segment.buffer else { panic!("it was pinned") };
            frames.unpin(pin);
        }
    }

    fn write(store: &mut CrashStore<PlainFrames>, frames: &PlainFrames, block: u64) {
        let buffer = Buffer::Pinned(frames.try_pin(0).unwrap());
        let len = u32::try_from(BLOCK_BYTES).unwrap();
        let segments = vec![Segment { buffer, offset: 0, len }];
        let kind = StoreOpKind::Write { fua: false };
        run(store, frames, (kind, block * BLOCK_BYTES_U64, BLOCK_BYTES_U64), segments);
    }

    /// Returns true if a crash can lose the write of a block.
    fn can_lose(store: &CrashStore<PlainFrames>, block: u64) -> bool {
        (0..20).any(|seed| {
            let mut bytes = [0; BLOCK_BYTES];
            let disk = store.disk();
            disk.lock().unwrap().after_crash(seed).read(block * BLOCK_BYTES_U64, &mut bytes);
            bytes.contains(&0)
        })
    }

    /// The first output for the seed 0 in the authors' C code (splitmix64.c).
    #[test]
    fn choices_are_those_of_splitmix64() {
        assert_eq!(SplitMix64(0).below(usize::MAX), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn an_operation_is_an_event_until_it_is_reaped() {
        let frames = PlainFrames::new(1);
        let mut store = store();
        assert_eq!(Store::<PlainFrames>::next_event(&store), None);
        let kind = StoreOpKind::Flush;
        let op = StoreOp { tag: 1, kind, offset: 0, len: 0, segments: Vec::new(), queued_at: 0 };
        store.submit(7, &frames, op);
        assert_eq!((store.next_event(), store.in_flight()), (Some(0), 1));
        store.reap(7, &frames, &mut Vec::new());
        assert_eq!((store.next_event(), store.in_flight()), (None, 0));
    }

    #[test]
    fn a_flush_makes_only_its_own_range_stable_or_everything_if_it_has_none() {
        let frames = PlainFrames::new(1);
        let mut store = store();
        for block in [1, 2, 3] {
            write(&mut store, &frames, block);
        }
        let range = (StoreOpKind::Flush, 2 * BLOCK_BYTES_U64, BLOCK_BYTES_U64);
        run(&mut store, &frames, range, Vec::new());
        assert_eq!([1, 2, 3].map(|block| can_lose(&store, block)), [true, false, true]);
        run(&mut store, &frames, (StoreOpKind::Flush, 0, 0), Vec::new());
        assert_eq!([1, 2, 3].map(|block| can_lose(&store, block)), [false; 3]);
    }
}
