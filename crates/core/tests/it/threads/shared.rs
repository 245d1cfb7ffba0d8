//! The threads for both schedulers: clients, and one that drives the store.

use larder_core::cache::Cache;
use larder_core::clock::{MILLISECOND, SECOND};
use larder_core::completion::NoWaker;
use larder_core::frames::{Frames, PlainFrames};
use larder_core::mode::WriteMode;
use larder_core::policy::PolicyKind;
use larder_core::request::{
    Event, ReadRequest, Request, RequestOp, Session, SessionLimit, Submitted,
};
use larder_core::store::{Geometry, MemoryStore, Store};
use larder_core::units::{BLOCK_BYTES, BLOCK_BYTES_U64};
use larder_core::volume::{Volume, VolumeOptions};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[cfg(larder_shuttle)]
use shuttle::{sync::Arc, thread};
#[cfg(not(larder_shuttle))]
use std::{sync::Arc, thread};

type Plain = PlainFrames;
type PlainSession = Session<Plain, Vec<u8>, ()>;
const WRITERS: u64 = 2;
const READERS: usize = 2;
/// The minimum number of reads in a run with a time limit, even if the run takes longer.
pub(crate) const READS_MIN: u64 = 100;
/// The time limit of a run, sufficient on a machine under other load.
const TIME_MAX: Duration = Duration::from_mins(4);
/// The number of changes while clients read and write.
const CHANGES: u64 = 50;
/// The low bits of a block's number identify the block, those above identify the write.
const BLOCK_BITS: u32 = 8;

/// Blocks per page, write mode, policy.
pub(crate) const CASES: [(u32, WriteMode, PolicyKind); 6] = [
    (1, WriteMode::Back, PolicyKind::S3Fifo),
    (4, WriteMode::Back, PolicyKind::Lru),
    (4, WriteMode::Through, PolicyKind::S3Fifo),
    (2, WriteMode::Around, PolicyKind::Lru),
    (2, WriteMode::Back, PolicyKind::Lirs),
    (1, WriteMode::Back, PolicyKind::WTinyLfu),
];

/// The size of the world.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) blocks: u64,
    pub(crate) frames: u32,
    pub(crate) shards: usize,
    /// The number of writes or reads after which each client stops, if it is not stopped earlier.
    pub(crate) steps: u64,
    /// The number of polls for a completion before a client retries.
    pub(crate) polls: u32,
}

/// The state that the threads share.
pub(crate) struct Shared {
    cache: Cache<Plain>,
    volume: Arc<Volume<Plain>>,
    scale: Scale,
    now: AtomicU64,
    reads: AtomicU64,
    stop: AtomicBool,
    stop_engine: AtomicBool,
}

impl Shared {
    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    fn open(&self) -> PlainSession {
        let limit = SessionLimit::Own(u64::MAX);
        Session::open(&self.cache, &self.volume, Box::new(NoWaker), limit).unwrap()
    }

    /// Submits a request and runs it to completion without waiting for a delayed reply. Returns the
    /// blocks that a read has pinned.
    fn request(
        &self,
        session: &mut PlainSession,
        request: Request,
        payload: &[u8],
    ) -> Option<Box<ReadRequest<Plain>>> {
        let submitted = session.submit(&self.cache, self.now(), request, payload, || ());
        if let Submitted::Done(done) = submitted {
            return done.data;
        }
        loop {
            for _ in 0..self.scale.polls {
                if !session.has_completions() {
                    thread::yield_now();
                }
            }
            let now = self.now().max(session.next_reply_at().unwrap_or(0));
            session.advance(&self.cache, now);
            if session.is_stalled() {
                session.retry(&self.cache, now);
            }
            if let Some(Event::End(reply)) = session.poll_event() {
                assert!(reply.error.is_none(), "{:?}", reply.error);
                return reply.data;
            }
        }
    }

    fn write(&self, session: &mut PlainSession, offset: u64, data: &[u8], fua: bool) {
        let range = offset..offset + data.len() as u64;
        self.request(session, Request { fua, ..Request::new(RequestOp::Write, range) }, data);
    }

    fn read(&self, session: &mut PlainSession, offset: u64, to: &mut [u8]) {
        if session.read_hit(&self.cache, offset, to) {
            return;
        }
        let request = Request::new(RequestOp::Read, offset..offset + to.len() as u64);
        let read = self.request(session, request, &[]).expect("the blocks of a read");
        read.copy_to(self.cache.frames(), to);
        session.release(&self.cache, self.now(), read);
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
            thread::yield_now();
        }
    }
}

/// Returns the number that fills a block or a part of one, and checks that all words are equal.
fn number(bytes: &[u8]) -> u64 {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let first = word(&bytes[..8]);
    let torn = bytes.chunks_exact(8).find(|chunk| word(chunk) != first);
    assert!(torn.is_none(), "a block holds {first} and {torn:?}");
    first
}

fn writer(shared: &Shared, index: u64) -> Vec<u64> {
    let mut session = shared.open();
    let blocks = shared.scale.blocks;
    let mut written = vec![0; usize::try_from(blocks).unwrap()];
    let mut state = index + 1;
    for version in 1..=shared.scale.steps {
        if shared.stop.load(Ordering::Relaxed) {
            break;
        }
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let block = (state >> 33) % (blocks / WRITERS) * WRITERS + index;
        let number = version << BLOCK_BITS | block;
        let data: Vec<u8> = u64::to_le_bytes(number).repeat(BLOCK_BYTES / 8);
        shared.write(&mut session, block * BLOCK_BYTES_U64, &data, version % 8 == 0);
        written[usize::try_from(block).unwrap()] = number;
    }
    session.close(&shared.cache);
    written
}

fn reader(shared: &Shared, index: usize) {
    let mut session = shared.open();
    let blocks = shared.scale.blocks;
    let mut seen = vec![0; usize::try_from(blocks).unwrap()];
    let mut bytes = vec![0; BLOCK_BYTES];
    let mut state = index as u64 + 77;
    let mut reads = 0;
    while reads < shared.scale.steps && !shared.stop.load(Ordering::Relaxed) {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let block = (state >> 33) % blocks;
        shared.read(&mut session, block * BLOCK_BYTES_U64, &mut bytes);
        let (now, before) = (number(&bytes), &mut seen[usize::try_from(block).unwrap()]);
        assert!(now >= *before, "block {block} held {before}, then {now}");
        assert!(now == 0 || now % (1 << BLOCK_BITS) == block, "block {block} holds {now}");
        *before = now;
        reads += 1;
        shared.reads.fetch_add(1, Ordering::Relaxed);
    }
    session.close(&shared.cache);
}

/// Changes settings while the other threads run, [`CHANGES`] times.
fn changer(shared: &Shared) {
    let (cache, volume) = (&shared.cache, &*shared.volume);
    let least = shared.scale.frames;
    let mut state = 5u64;
    for change in 0..CHANGES {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = state >> 33;
        match change % 7 {
            0 | 4 => {
                cache.set_memory(least + u32::try_from(number).unwrap() % (3 * least)).unwrap();
            }
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
            5 => cache.freeze(volume, number.is_multiple_of(4)),
            _ => drop(cache.drop_clean(volume, shared.now())),
        }
        for _ in 0..20 {
            cache.run_maintenance(shared.now());
            thread::yield_now();
        }
    }
    cache.freeze(volume, false);
}

/// Runs all threads on one cache, for `time` or until all have made their steps. Returns the number
/// of reads. With `with_changes`, one more thread changes settings.
pub(crate) fn run_threads(
    scale: Scale,
    (page_blocks, mode, policy): (u32, WriteMode, PolicyKind),
    time: Option<Duration>,
    with_changes: bool,
) -> u64 {
    let length = scale.blocks * BLOCK_BYTES_U64;
    let geometry = Geometry { length, granule: 512, read_only: false };
    let mut options = VolumeOptions::new("v", geometry);
    (options.page_blocks, options.write_mode, options.policy) = (page_blocks, mode, policy);
    let frames = PlainFrames::new(4 * scale.frames);
    let cache = Cache::with_memory(frames, scale.frames, scale.shards);
    let volume = cache.add_volume(options, Box::new(NoWaker));
    let [stop, stop_engine] = [false, false].map(AtomicBool::new);
    let [now, reads] = [SECOND, 0].map(AtomicU64::new);
    let shared = Shared { cache, volume, scale, now, reads, stop, stop_engine };
    let (mut store, mut written) = (MemoryStore::new(geometry), Vec::new());
    thread::scope(|scope| {
        let shared = &shared;
        let engine = scope.spawn(|| shared.drive_store(&mut store));
        let writers: Vec<_> =
            (0..WRITERS).map(|i| scope.spawn(move || writer(shared, i))).collect();
        let readers: Vec<_> =
            (0..READERS).map(|i| scope.spawn(move || reader(shared, i))).collect();
        let changes = with_changes.then(|| scope.spawn(|| changer(shared)));
        if let Some(time) = time {
            let begun = Instant::now();
            std::thread::sleep(time);
            while shared.reads() <= READS_MIN && begun.elapsed() < TIME_MAX {
                std::thread::sleep(Duration::from_millis(10));
            }
            if let Some(changes) = changes {
                changes.join().unwrap();
            }
            shared.stop.store(true, Ordering::Release);
        }
        written.extend(writers.into_iter().map(|thread| thread.join().unwrap()));
        for reader in readers {
            reader.join().unwrap();
        }
        shared.stop_engine.store(true, Ordering::Release);
        engine.join().unwrap();
    });
    shared.cache.check(shared.now());
    let frames = shared.cache.frames();
    for frame in 0..frames.count() {
        frames.release_write_pin(frames.try_write_pin(frame).expect("all frames are free"));
    }
    let mut bytes = vec![0; BLOCK_BYTES];
    for block in 0..scale.blocks {
        store.bytes().read(block * BLOCK_BYTES_U64, &mut bytes);
        let writer_index = usize::try_from(block % WRITERS).unwrap();
        assert_eq!(
            number(&bytes),
            written[writer_index][usize::try_from(block).unwrap()],
            "block {block}"
        );
    }
    shared.reads()
}
