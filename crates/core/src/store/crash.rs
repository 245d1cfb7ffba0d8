//! A store that can lose power.
//!
//! The fault model: a write that is done is visible to reads, but stable only once a flush that was
//! submitted after it is done, or at once if it was a FUA write. Operations that were submitted and
//! not done may or may not have happened. At a crash, of everything that is not stable each sector
//! independently may have the stable content or the content of any write to it since: that covers
//! dropped, torn and reordered writes alike. A seed decides. A discard, too, may have happened for
//! each sector or not.
//!
//! Operations are done in an order that the seed decides, one for each reap, so that everything a
//! device with a queue may do is seen.

use super::memory::{SparseBytes, transfer};
use super::{Geometry, Segment, Store, StoreDone, StoreOp, StoreOpKind};
use crate::clock::Nanos;
use crate::frames::Frames;
use crate::units::SECTOR_BYTES;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A content that a sector may have, and the turn at which it was submitted.
#[derive(Clone, Debug)]
struct Version {
    turn: u64,
    content: Box<[u8]>,
}

/// What survives the store: the platters, so to say.
#[derive(Debug, Default)]
pub struct CrashDisk {
    stable: SparseBytes,
    /// Per sector, the turn of the version that is stable, where it ever changed.
    stable_turns: BTreeMap<u64, u64>,
    /// What reads see.
    current: SparseBytes,
    /// Per sector, the versions that it may have instead of the stable one.
    volatile: BTreeMap<u64, Vec<Version>>,
    turn: u64,
}

/// A small generator (`SplitMix64`, Steele, Lea, Flood 2014): enough to choose, and without a
/// dependency in the library.
#[derive(Clone, Debug)]
struct Choice(u64);

impl Choice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % n as u64).expect("below n")
    }
}

impl CrashDisk {
    /// What reads see now.
    #[must_use]
    pub fn current(&self) -> &SparseBytes {
        &self.current
    }

    /// What a machine finds that comes up after a crash now.
    #[must_use]
    pub fn after_crash(&self, seed: u64) -> SparseBytes {
        let mut choice = Choice(seed);
        let mut bytes = self.stable.clone();
        for (&sector, versions) in &self.volatile {
            let chosen = choice.below(versions.len() + 1);
            if let Some(version) = versions.get(chosen) {
                bytes.write(sector * SECTOR_BYTES as u64, &version.content);
            }
        }
        bytes
    }

    /// Notes that the range may have the content that `content` has there; the turn of that.
    fn note(&mut self, offset: u64, len: u64, content: &SparseBytes) -> u64 {
        self.turn += 1;
        let turn = self.turn;
        for sector in sectors(offset, len) {
            let mut bytes = vec![0; SECTOR_BYTES];
            content.read(sector * SECTOR_BYTES as u64, &mut bytes);
            let version = Version { turn, content: bytes.into() };
            self.volatile.entry(sector).or_default().push(version);
        }
        turn
    }

    /// Makes a version of a sector stable, unless a later one is.
    fn stabilise(&mut self, sector: u64, version: &Version) {
        let stable = self.stable_turns.entry(sector).or_default();
        if *stable >= version.turn {
            return;
        }
        *stable = version.turn;
        self.stable.write(sector * SECTOR_BYTES as u64, &version.content);
        if let Some(versions) = self.volatile.get_mut(&sector) {
            versions.retain(|other| other.turn > version.turn);
            if versions.is_empty() {
                self.volatile.remove(&sector);
            }
        }
    }
}

fn sectors(offset: u64, len: u64) -> std::ops::Range<u64> {
    offset / SECTOR_BYTES as u64..(offset + len).div_ceil(SECTOR_BYTES as u64)
}

/// A store whose content can be looked at as after a crash at any moment.
#[derive(Debug)]
pub struct CrashStore<F: Frames> {
    geometry: Geometry,
    disk: Arc<Mutex<CrashDisk>>,
    choice: Choice,
    /// With the turn of what they change, and what becomes stable when they are done.
    waiting: Vec<(StoreOp<F>, u64, Promise)>,
}

/// What becomes stable when an operation in flight is done.
#[derive(Debug)]
enum Promise {
    Nothing,
    /// The versions of this turn: a FUA write.
    Turn(u64),
    /// These versions of sectors: a flush.
    Versions(Vec<(u64, Version)>),
}

impl<F: Frames> CrashStore<F> {
    /// A store that begins with `content`.
    #[must_use]
    pub fn new(geometry: Geometry, content: SparseBytes, seed: u64) -> Self {
        let disk = CrashDisk { stable: content.clone(), current: content, ..CrashDisk::default() };
        let disk = Arc::new(Mutex::new(disk));
        CrashStore { geometry, disk, choice: Choice(seed), waiting: Vec::new() }
    }

    /// The disk, to look at after a crash.
    #[must_use]
    pub fn disk(&self) -> Arc<Mutex<CrashDisk>> {
        Arc::clone(&self.disk)
    }
}

/// The bytes that a write carries, at their place.
fn carried<F: Frames>(frames: &F, op: &StoreOp<F>) -> SparseBytes {
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
    /// The last version of each sector that is done.
    fn done_versions(&self, disk: &CrashDisk) -> Vec<(u64, Version)> {
        let is_done = |version: &&Version| self.waiting.iter().all(|w| w.1 != version.turn);
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
        let (turn, promise) = match op.kind {
            StoreOpKind::Read => (0, Promise::Nothing),
            StoreOpKind::Write { fua } => {
                let turn = disk.note(op.offset, op.len, &carried(frames, &op));
                (turn, if fua { Promise::Turn(turn) } else { Promise::Nothing })
            }
            StoreOpKind::Flush => {
                let mut versions = self.done_versions(&disk);
                if op.len > 0 {
                    let range = sectors(op.offset, op.len);
                    versions.retain(|(sector, _)| range.contains(sector));
                }
                (0, Promise::Versions(versions))
            }
            StoreOpKind::Discard | StoreOpKind::Zero { .. } => {
                (disk.note(op.offset, op.len, &SparseBytes::default()), Promise::Nothing)
            }
        };
        self.waiting.push((op, turn, promise));
    }

    fn reap(&mut self, now: Nanos, frames: &F, done: &mut Vec<StoreDone<F>>) {
        if self.waiting.is_empty() {
            return;
        }
        let (mut op, _, promise) = self.waiting.swap_remove(self.choice.below(self.waiting.len()));
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
        let versions = match promise {
            Promise::Nothing => Vec::new(),
            Promise::Versions(versions) => versions,
            Promise::Turn(turn) => {
                let of_turn = |sector| {
                    let versions: &Vec<Version> = disk.volatile.get(&sector)?;
                    let version = versions.iter().find(|version| version.turn == turn)?;
                    Some((sector, version.clone()))
                };
                sectors(op.offset, op.len).filter_map(of_turn).collect()
            }
        };
        for (sector, version) in versions {
            disk.stabilise(sector, &version);
        }
        done.push(StoreDone { op, result: Ok(()), started_at: now, finished_at: now });
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }

    fn next_event(&self) -> Option<Nanos> {
        (!self.waiting.is_empty()).then_some(0)
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

    /// Returns whether a crash can lose the write of a block.
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
        assert_eq!(Choice(0).below(usize::MAX), 0xe220_a839_7b1d_cdaf);
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
