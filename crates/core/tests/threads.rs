//! Real threads on one cache: readers, writers that own a block each, and one that drives the
//! store. Every block holds one number over and over, which only grows.

#![expect(clippy::tests_outside_test_module, reason = "all of this is a test")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on is to panic")]

use larder_core::cache::Cache;
use larder_core::clock::{MILLISECOND, SECOND};
use larder_core::frames::{Frames, PlainFrames};
use larder_core::lane::{Completion, Lane, Silent};
use larder_core::mode::WriteMode;
use larder_core::policy::PolicyKind;
use larder_core::request::{Assembly, Status, WriteTask};
use larder_core::store::{Geometry, MemoryStore, Store};
use larder_core::units::{BLOCK_BYTES, BLOCK_BYTES_U64};
use larder_core::volume::{Volume, VolumeOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

type Plain = PlainFrames;
const BLOCKS: u64 = 96;
const WRITERS: u64 = 2;
const READERS: usize = 2;

struct Shared {
    cache: Cache<Plain>,
    volume: Arc<Volume<Plain>>,
    now: AtomicU64,
    stop: AtomicBool,
    stop_engine: AtomicBool,
}

impl Shared {
    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Waits until a completion comes, or for so long that trying again does no harm.
    fn wait(lane: &Lane<Plain>, mail: &mut Vec<Completion<Plain>>) {
        let begin = Instant::now();
        while mail.is_empty() && begin.elapsed() < Duration::from_millis(5) {
            lane.collect(mail);
            std::thread::yield_now();
        }
    }

    fn write(&self, lane: &mut Lane<Plain>, token: u64, offset: u64, data: &[u8], fua: bool) {
        let mut task = WriteTask::new(token, offset, u32::try_from(data.len()).unwrap(), fua);
        let mut mail = Vec::new();
        let mut status = self.cache.write(lane, self.now(), &mut task, data);
        loop {
            match status {
                Status::Done | Status::DoneAt(_) => return,
                Status::Failed(error) => panic!("{error}"),
                Status::Pending | Status::Stalled => Self::wait(lane, &mut mail),
            }
            let stalled = status == Status::Stalled;
            status = match mail.pop() {
                Some(Completion::Unstalled) | None if !stalled => Status::Pending,
                Some(Completion::Unstalled | Completion::Continue { .. }) | None => {
                    self.cache.write(lane, self.now(), &mut task, data)
                }
                Some(other) => self.cache.write_completed(lane, self.now(), &mut task, other),
            };
        }
    }

    fn read(&self, lane: &mut Lane<Plain>, token: u64, offset: u64, to: &mut [u8]) {
        if self.cache.read_hit(lane, offset, to) {
            return;
        }
        let mut assembly = Assembly::new(token, offset, u32::try_from(to.len()).unwrap());
        let mut mail = Vec::new();
        let mut status = self.cache.read(lane, self.now(), &mut assembly);
        while status != Status::Done {
            assert!(!matches!(status, Status::Failed(_)), "{status:?}");
            Self::wait(lane, &mut mail);
            status = match mail.pop() {
                Some(Completion::Unstalled) | None => match status {
                    Status::Stalled => self.cache.read(lane, self.now(), &mut assembly),
                    other => other,
                },
                Some(completion) => assembly.absorb(self.cache.frames(), completion),
            };
        }
        assembly.copy_to(self.cache.frames(), to);
        assembly.release(self.cache.frames());
    }

    fn drive_store(&self, store: &mut MemoryStore<Plain>) {
        let recorder = self.cache.recorder(&self.volume);
        let (mut ops, mut done) = (Vec::new(), Vec::new());
        while !self.stop_engine.load(Ordering::Acquire) || !self.cache.is_at_rest(&self.volume) {
            let now = self.now.fetch_add(MILLISECOND, Ordering::Relaxed);
            self.cache.poll(&self.volume, &recorder, now, 8, &mut ops);
            ops.drain(..).for_each(|op| store.submit(now, self.cache.frames(), op));
            store.reap(now, self.cache.frames(), &mut done);
            for done in done.drain(..) {
                self.cache.complete(&self.volume, &recorder, now, done);
            }
            std::thread::yield_now();
        }
    }
}

/// The number that a block holds, or a part of one: the same everywhere.
fn number(bytes: &[u8]) -> u64 {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let first = word(&bytes[..8]);
    let torn = bytes.chunks_exact(8).find(|chunk| word(chunk) != first);
    assert!(torn.is_none(), "a block holds {first} and {torn:?}");
    first
}

fn writer(shared: &Shared, index: u64) -> Vec<u64> {
    let mut lane = shared.cache.open_lane(&shared.volume, Box::new(Silent));
    let mut written = vec![0; usize::try_from(BLOCKS).unwrap()];
    let mut state = index + 1;
    for version in 1.. {
        if shared.stop.load(Ordering::Relaxed) {
            break;
        }
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let block = (state >> 33) % (BLOCKS / WRITERS) * WRITERS + index;
        let data: Vec<u8> = u64::to_le_bytes(version).repeat(BLOCK_BYTES / 8);
        shared.write(&mut lane, version, block * BLOCK_BYTES_U64, &data, version % 64 == 0);
        written[usize::try_from(block).unwrap()] = version;
    }
    shared.cache.close_lane(lane);
    written
}

fn reader(shared: &Shared, index: usize) -> u64 {
    let mut lane = shared.cache.open_lane(&shared.volume, Box::new(Silent));
    let mut seen = vec![0; usize::try_from(BLOCKS).unwrap()];
    let mut bytes = vec![0; BLOCK_BYTES];
    let mut state = index as u64 + 77;
    let mut reads = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let block = (state >> 33) % BLOCKS;
        shared.read(&mut lane, reads, block * BLOCK_BYTES_U64, &mut bytes);
        let (now, before) = (number(&bytes), &mut seen[usize::try_from(block).unwrap()]);
        assert!(now >= *before, "block {block} held {before}, then {now}");
        *before = now;
        reads += 1;
    }
    shared.cache.close_lane(lane);
    reads
}

/// Changes what can be changed while the others go on, until they are told to stop.
fn changer(shared: &Shared) -> u64 {
    let (cache, volume) = (&shared.cache, &*shared.volume);
    let (mut state, mut changes) = (5u64, 0);
    while !shared.stop.load(Ordering::Relaxed) {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = state >> 33;
        match changes % 7 {
            0 | 4 => cache.set_memory(u32::try_from(48 + number % 200).unwrap()).unwrap(),
            1 => cache.set_page_blocks(volume, 1 << (number % 4)).unwrap(),
            2 => {
                let kinds = PolicyKind::ALL;
                let kind = kinds[usize::try_from(number).unwrap() % kinds.len()];
                cache.set_policy(volume, kind, shared.now());
            }
            3 => {
                let modes = [WriteMode::Back, WriteMode::Through, WriteMode::Around];
                volume.set_write_mode(modes[usize::try_from(number % 3).unwrap()]).unwrap();
            }
            5 => cache.freeze(volume, number % 4 == 0),
            _ => drop(cache.drop_clean(volume, shared.now())),
        }
        changes += 1;
        for _ in 0..20 {
            cache.tend(shared.now());
            std::thread::yield_now();
        }
    }
    cache.freeze(volume, false);
    changes
}

#[test]
fn threads_see_whole_blocks_that_never_go_back_while_everything_changes() {
    hammer(1, WriteMode::Back, PolicyKind::S3Fifo, true);
    hammer(4, WriteMode::Back, PolicyKind::Lru, true);
}

fn hammer(page_blocks: u32, mode: WriteMode, policy: PolicyKind, changing: bool) {
    let geometry = Geometry { length: BLOCKS * BLOCK_BYTES_U64, granule: 512, read_only: false };
    let mut options = VolumeOptions::new("v", geometry);
    (options.page_blocks, options.write_mode, options.policy) = (page_blocks, mode, policy);
    let cache = Cache::with_memory(PlainFrames::new(256), 48, 2);
    let volume = cache.add_volume(options, Box::new(Silent));
    let [stop, stop_engine] = [false, false].map(AtomicBool::new);
    let shared = Shared { cache, volume, now: AtomicU64::new(SECOND), stop, stop_engine };
    let mut store = MemoryStore::new(geometry);
    let (mut written, mut reads) = (Vec::new(), 0);
    std::thread::scope(|scope| {
        let shared = &shared;
        let engine = scope.spawn(|| shared.drive_store(&mut store));
        let writers: Vec<_> =
            (0..WRITERS).map(|i| scope.spawn(move || writer(shared, i))).collect();
        let readers: Vec<_> =
            (0..READERS).map(|i| scope.spawn(move || reader(shared, i))).collect();
        let changes = changing.then(|| scope.spawn(|| changer(shared)));
        std::thread::sleep(Duration::from_millis(800));
        shared.stop.store(true, Ordering::Release);
        written.extend(writers.into_iter().map(|thread| thread.join().unwrap()));
        if let Some(changes) = changes {
            assert!(changes.join().unwrap() > 20, "hardly anything was changed");
        }
        reads += readers.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>();
        shared.stop_engine.store(true, Ordering::Release);
        engine.join().unwrap();
    });
    shared.cache.check(shared.now());
    let frames = shared.cache.frames();
    for frame in 0..frames.count() {
        frames.disown(frames.try_own(frame).expect("nobody holds a frame any more"));
    }
    let mut bytes = vec![0; BLOCK_BYTES];
    for block in 0..BLOCKS {
        store.bytes().read(block * BLOCK_BYTES_U64, &mut bytes);
        let own = usize::try_from(block % WRITERS).unwrap();
        assert_eq!(number(&bytes), written[own][usize::try_from(block).unwrap()], "block {block}");
    }
    assert!(reads > 100, "only {reads} reads");
}

#[test]
fn threads_see_whole_blocks_that_never_go_back() {
    hammer(1, WriteMode::Back, PolicyKind::S3Fifo, false);
    hammer(4, WriteMode::Back, PolicyKind::Lru, false);
    hammer(4, WriteMode::Through, PolicyKind::S3Fifo, false);
    hammer(2, WriteMode::Around, PolicyKind::Lru, false);
    hammer(2, WriteMode::Back, PolicyKind::Lirs, false);
    hammer(1, WriteMode::Back, PolicyKind::WTinyLfu, false);
}
