//! Random requests through sessions, compared with a plain model: each request completes once,
//! reads return the bytes of the model, and nothing stays pinned. `LARDER_BUDGET=long` runs a
//! thousand seeds.

use larder_core::cache::Cache;
use larder_core::clock::{MILLISECOND, Nanos, SECOND};
use larder_core::completion::{NoWaker, Wake};
use larder_core::counters::{Counter, Recorder};
use larder_core::frames::{Frames, PlainFrames};
use larder_core::hint::Hint;
use larder_core::mode::WriteMode;
use larder_core::request::{
    Budget, Event, Park, Payload, Prefetch, ReadRequest, Request, RequestOp, Session, SessionLimit,
    Submitted, Then,
};
use larder_core::store::{DelayStore, Geometry, MemoryStore, Store};
use larder_core::units::BLOCK_BYTES_U64 as BLOCK;
use larder_core::volume::{Volume, VolumeOptions};
use larder_testing::budget;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const BLOCKS: u64 = 1536;
const FRAMES: u32 = 512;
const SESSIONS: usize = 3;
const IN_FLIGHT_MAX: usize = 5;
const STEPS: usize = 1500;
/// The number of steps after which every request in flight must have completed.
const DRAIN_STEPS: usize = 100_000;

type Plain = PlainFrames;
type TestSession = Session<Plain, Bytes, u64>;

/// The payload of a write.
#[derive(Clone)]
enum Bytes {
    Own(Vec<u8>),
    Guest(Arc<Mutex<GuestMemory>>),
}

/// Memory of a guest: scattered segments, which the guest changes after each copy.
struct GuestMemory {
    segments: Vec<Vec<u8>>,
    /// The last copied value of each byte.
    copied: Vec<u8>,
}

impl GuestMemory {
    /// Splits `bytes` into segments of odd lengths.
    fn new(bytes: &[u8]) -> Self {
        let (mut segments, mut rest, mut len) = (Vec::new(), bytes, 100);
        while !rest.is_empty() {
            let (segment, others) = rest.split_at(rest.len().min(len));
            segments.push(segment.to_vec());
            (rest, len) = (others, len * 7 % 5000 + 1);
        }
        GuestMemory { segments, copied: bytes.to_vec() }
    }
}

impl Payload for Bytes {
    fn len(&self) -> usize {
        match self {
            Bytes::Own(bytes) => bytes.len(),
            Bytes::Guest(memory) => memory.lock().unwrap().copied.len(),
        }
    }

    fn copy_to(&self, at: usize, to: &mut [u8]) {
        match self {
            Bytes::Own(bytes) => to.copy_from_slice(&bytes[at..at + to.len()]),
            Bytes::Guest(memory) => {
                let GuestMemory { segments, copied } = &mut *memory.lock().unwrap();
                let bytes = segments.iter().flatten().skip(at);
                to.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
                copied[at..at + to.len()].copy_from_slice(to);
                segments
                    .iter_mut()
                    .flatten()
                    .for_each(|byte| *byte = byte.wrapping_mul(5).wrapping_add(1));
            }
        }
    }
}

impl Park for Bytes {
    type Parked = Bytes;

    fn park(self) -> Bytes {
        self
    }
}

/// `SplitMix64` (Steele, Lea, Flood 2014).
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn range(&mut self, bytes_max: u64) -> Range<u64> {
        let start = self.below(BLOCKS * BLOCK);
        let len = 1 + self.below(bytes_max);
        start..(start + len).min(BLOCKS * BLOCK)
    }
}

/// Returns the limit of a session: the first session has its own, like a blocking session; the
/// others share a budget, like the connections of a server.
fn limit(at: usize, budget: &Arc<Budget>) -> SessionLimit {
    if at == 0 { SessionLimit::Own(0) } else { SessionLimit::Shared(Arc::clone(budget)) }
}

/// A request in flight.
struct Pending {
    range: Range<u64>,
    changes: bool,
    /// The bytes that a read must return, and those returned so far.
    expected: Option<Vec<u8>>,
    returned: Vec<u8>,
    /// The source of a write from guest memory.
    guest: Option<Arc<Mutex<GuestMemory>>>,
}

struct World {
    cache: Cache<Plain>,
    volume: Arc<Volume<Plain>>,
    recorder: Arc<Recorder>,
    store: DelayStore<Plain, MemoryStore<Plain>>,
    sessions: Vec<TestSession>,
    /// Sessions that submit requests.
    active: Range<usize>,
    /// Requests by token, for each session.
    pending: Vec<HashMap<u64, Pending>>,
    ids: Vec<HashMap<usize, u64>>,
    model: Vec<u8>,
    now: Nanos,
    token: u64,
    completed: usize,
}

fn bytes_of(token: u64, len: u64) -> Vec<u8> {
    (0..len).map(|at| (token * 31 + at % 251).to_le_bytes()[0]).collect()
}

fn byte_range(range: &Range<u64>) -> Range<usize> {
    usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()
}

impl World {
    fn new(rng: &mut Rng) -> Self {
        let cache = Cache::new(PlainFrames::new(FRAMES), 2);
        let geometry = Geometry { length: BLOCKS * BLOCK, granule: 512, read_only: false };
        let write_mode = [WriteMode::Back, WriteMode::Through, WriteMode::Around]
            [usize::try_from(rng.below(3)).unwrap()];
        let page_blocks = [1, 2, 4, 8][usize::try_from(rng.below(4)).unwrap()];
        let options =
            VolumeOptions { write_mode, page_blocks, ..VolumeOptions::new("v", geometry) };
        let volume = cache.add_volume(options, Box::new(NoWaker));
        let recorder = cache.recorder(&volume);
        let store = DelayStore::new(MemoryStore::new(geometry), rng.below(3) * MILLISECOND);
        let budget = Arc::new(Budget::new(SESSIONS));
        let open =
            |at| Session::open(&cache, &volume, Box::new(NoWaker), limit(at, &budget)).unwrap();
        let sessions = (0..SESSIONS).map(open).collect();
        World {
            sessions,
            active: 0..SESSIONS,
            cache,
            volume,
            recorder,
            store,
            pending: (0..SESSIONS).map(|_| HashMap::new()).collect(),
            ids: (0..SESSIONS).map(|_| HashMap::new()).collect(),
            model: vec![0; usize::try_from(BLOCKS * BLOCK).unwrap()],
            now: SECOND,
            token: 0,
            completed: 0,
        }
    }

    /// Returns true if a request to a range would overlap one in flight, in which case the order of
    /// the two is undefined.
    fn conflicts(&self, range: &Range<u64>, changes: bool) -> bool {
        self.pending.iter().flat_map(HashMap::values).any(|other| {
            (changes || other.changes)
                && other.range.start < range.end
                && range.start < other.range.end
        })
    }

    fn submit(&mut self, rng: &mut Rng) {
        let at = self.active.start + usize::try_from(rng.below(self.active.len() as u64)).unwrap();
        if self.pending[at].len() >= IN_FLIGHT_MAX || self.sessions[at].is_stalled() {
            return;
        }
        let (op, bytes_max) = match rng.below(12) {
            0..5 => (RequestOp::Read, 64 << 10),
            5 => (RequestOp::Read, 2 << 20),
            6..9 => (RequestOp::Write, 96 << 10),
            9 => (RequestOp::Zero { keep_allocated: rng.below(2) == 0 }, 256 << 10),
            10 => (RequestOp::Populate, 1 << 20),
            _ => (RequestOp::Flush, 1),
        };
        let range = rng.range(bytes_max);
        let changes = matches!(op, RequestOp::Write | RequestOp::Zero { .. });
        if self.conflicts(&range, changes) {
            return;
        }
        self.token += 1;
        let token = self.token;
        let bytes = bytes_of(token, range.end - range.start);
        let expected = (op == RequestOp::Read).then(|| self.model[byte_range(&range)].to_vec());
        if changes {
            let new = &mut self.model[byte_range(&range)];
            if op == RequestOp::Write { new.copy_from_slice(&bytes) } else { new.fill(0) }
        }
        let is_guest = op == RequestOp::Write && rng.below(3) == 0;
        let guest = is_guest.then(|| Arc::new(Mutex::new(GuestMemory::new(&bytes))));
        let payload = match &guest {
            Some(memory) => Bytes::Guest(Arc::clone(memory)),
            None => Bytes::Own(bytes.clone()),
        };
        let returned = Vec::new();
        let pending = Pending { range: range.clone(), changes, expected, returned, guest };
        self.pending[at].insert(token, pending);
        let mut request = Request::new(op, range.clone());
        request.fua = rng.below(4) == 0;
        if changes && rng.below(4) == 0 {
            request.then = Then::Flush;
        }
        let session = &mut self.sessions[at];
        if op == RequestOp::Write && !is_guest && rng.below(3) == 0 {
            let id = session.begin(self.now, request, token);
            self.ids[at].insert(id.index(), token);
            let middle = bytes.len() / 2;
            for (part, from) in [(&bytes[..middle], 0), (&bytes[middle..], middle)] {
                if !part.is_empty() {
                    let part = Bytes::Own(part.to_vec());
                    session.push(&self.cache, self.now, id, range.start + from as u64, part);
                }
            }
            session.finish(&self.cache, self.now, id);
            return;
        }
        match session.submit(&self.cache, self.now, request, payload, || token) {
            Submitted::Done(done) => self.complete_request(at, token, done.data),
            Submitted::Queued(id) => {
                self.ids[at].insert(id.index(), token);
            }
        }
    }

    fn collect_read(&mut self, at: usize, token: u64, read: Box<ReadRequest<Plain>>) {
        let mut bytes = vec![0; read.len as usize];
        read.copy_to(self.cache.frames(), &mut bytes);
        self.pending[at].get_mut(&token).expect("it is in flight").returned.extend(bytes);
        self.sessions[at].release(&self.cache, self.now, read);
    }

    fn complete_request(&mut self, at: usize, token: u64, data: Option<Box<ReadRequest<Plain>>>) {
        if let Some(read) = data {
            self.collect_read(at, token, read);
        }
        let pending = self.pending[at].remove(&token).expect("a request ends once");
        if let Some(expected) = pending.expected {
            assert!(pending.returned == expected, "request {token} read {:?}", pending.range);
        }
        if let Some(guest) = pending.guest {
            let byte_range = byte_range(&pending.range);
            self.model[byte_range].copy_from_slice(&guest.lock().unwrap().copied);
        }
        self.completed += 1;
    }

    /// Submits pending operations to the store, and passes completed ones to the cache.
    fn drive_store(&mut self) {
        let (mut ops, mut done) = (Vec::new(), Vec::new());
        self.cache.poll(&self.volume, &self.recorder, self.now, 16, &mut ops);
        for op in ops {
            self.store.submit(self.now, self.cache.frames(), op);
        }
        self.store.reap(self.now, self.cache.frames(), &mut done);
        for done in done {
            self.cache.complete(&self.volume, &self.recorder, self.now, done);
        }
    }

    /// Drives the store and then the sessions.
    fn step(&mut self) {
        self.drive_store();
        for at in 0..SESSIONS {
            self.sessions[at].advance(&self.cache, self.now);
            if self.sessions[at].is_stalled() {
                self.sessions[at].retry(&self.cache, self.now);
            }
            while let Some(event) = self.sessions[at].poll_event() {
                match event {
                    Event::Piece(id, read) => {
                        let token = self.ids[at][&id.index()];
                        self.collect_read(at, token, read);
                    }
                    Event::End(reply) => {
                        assert!(reply.error.is_none(), "{:?}", reply.error);
                        self.complete_request(at, reply.context, reply.data);
                    }
                }
            }
        }
    }

    fn run(seed: u64) -> usize {
        let mut rng = Rng(seed);
        let mut world = World::new(&mut rng);
        let ceiling = [16, 128, 256, FRAMES][usize::try_from(rng.below(4)).unwrap()];
        world.cache.set_bounds(&world.volume, 0, ceiling).unwrap();
        // The reads of a session with its own limit may exceed a ceiling below 2 MiB.
        world.active = if ceiling < FRAMES { 1..SESSIONS } else { 0..SESSIONS };
        for _ in 0..STEPS {
            match rng.below(4) {
                0 | 1 => world.submit(&mut rng),
                2 => world.now += rng.below(2 * MILLISECOND),
                _ => world.step(),
            }
        }
        for _ in 0..DRAIN_STEPS {
            if world.pending.iter().all(HashMap::is_empty) {
                break;
            }
            world.now += MILLISECOND;
            world.step();
        }
        assert!(world.pending.iter().all(HashMap::is_empty), "a request does not end");
        for session in world.sessions {
            assert_eq!((session.in_flight(), session.parked_bytes()), (0, 0));
            assert_eq!(session.pinned_bytes(), 0, "nothing stays pinned");
            assert!(session.close(&world.cache).is_empty());
        }
        world.cache.check(world.now);
        world.completed
    }
}

#[test]
fn each_request_ends_once_and_reads_return_what_was_written() {
    let seeds = budget(20, 1000);
    let completed: usize = (0..seeds).map(World::run).sum();
    assert!(completed > 100 * usize::try_from(seeds).unwrap(), "{completed} requests");
}

#[test]
fn a_session_that_is_closed_returns_the_requests_without_a_reply() {
    let mut rng = Rng(7);
    let mut world = World::new(&mut rng);
    for _ in 0..200 {
        world.submit(&mut rng);
    }
    assert!(world.pending.iter().any(|pending| !pending.is_empty()), "the store has done nothing");
    for (session, pending) in world.sessions.into_iter().zip(&world.pending) {
        let mut contexts = session.close(&world.cache);
        contexts.sort_unstable();
        let mut tokens: Vec<u64> = pending.keys().copied().collect();
        tokens.sort_unstable();
        assert_eq!(contexts, tokens);
    }
}

#[test]
fn a_long_read_waits_until_its_pins_are_released() {
    let mut rng = Rng(1);
    let mut world = World::new(&mut rng);
    let request = Request::new(RequestOp::Read, 0..4 << 20);
    let session = &mut world.sessions[0];
    let none = Bytes::Own(Vec::new());
    let submitted = session.submit(&world.cache, world.now, request, none, || 1);
    let Submitted::Queued(id) = submitted else { panic!("a long read is queued") };
    let mut pieces = 0;
    loop {
        world.drive_store();
        world.now += MILLISECOND;
        world.sessions[0].advance(&world.cache, world.now);
        let Some(event) = world.sessions[0].poll_event() else { continue };
        assert!(world.sessions[0].poll_event().is_none(), "one piece is pinned at a time");
        match event {
            Event::Piece(of, read) => {
                assert_eq!(of, id);
                pieces += 1;
                world.sessions[0].release(&world.cache, world.now, read);
            }
            Event::End(reply) => {
                let read = reply.data.expect("the last piece");
                world.sessions[0].release(&world.cache, world.now, read);
                break;
            }
        }
    }
    assert_eq!(pieces, 3);
}

#[test]
fn a_read_that_is_granted_and_not_submitted_keeps_no_memory_from_others() {
    let cache = Cache::new(PlainFrames::new(FRAMES), 1);
    let geometry = Geometry { length: BLOCKS * BLOCK, granule: 512, read_only: false };
    let volume = cache.add_volume(VolumeOptions::new("v", geometry), Box::new(NoWaker));
    let budget = Arc::new(Budget::new(64));
    let open = || -> TestSession {
        let limit = SessionLimit::Shared(Arc::clone(&budget));
        Session::open(&cache, &volume, Box::new(NoWaker), limit).unwrap()
    };
    let (mut one, mut other) = (open(), open());
    // The budget is a quarter of the cache.
    let large = u64::from(FRAMES) * BLOCK / 4;
    assert_eq!(one.grant_piece(&cache, large - 2 * BLOCK), large - 2 * BLOCK);
    assert!(other.grant_piece(&cache, large - 2 * BLOCK) < large - 2 * BLOCK);
    one.settle_share(&cache);
    assert_eq!(other.grant_piece(&cache, large - 2 * BLOCK), large - 2 * BLOCK);
    for session in [one, other] {
        session.close(&cache);
    }
}

#[test]
fn reads_lease_at_most_a_quarter_of_the_ceiling_of_their_volume() {
    let cache = Cache::new(PlainFrames::new(16 * FRAMES), 1);
    let geometry = Geometry { length: BLOCKS * BLOCK, granule: 512, read_only: false };
    let options = VolumeOptions { max_frames: FRAMES, ..VolumeOptions::new("v", geometry) };
    let volume = cache.add_volume(options, Box::new(NoWaker));
    let budget = Arc::new(Budget::new(64));
    let open = |_| -> TestSession {
        let limit = SessionLimit::Shared(Arc::clone(&budget));
        Session::open(&cache, &volume, Box::new(NoWaker), limit).unwrap()
    };
    let mut sessions: Vec<_> = (0..8).map(open).collect();
    let granted = sessions.iter_mut().map(|session| session.grant_piece(&cache, 1 << 20));
    assert!(granted.min().unwrap() >= BLOCK, "each can continue");
    let leased = budget.usage(u64::from(cache.frame_count()) * BLOCK).pinned.leased_bytes;
    let ceiling = u64::from(FRAMES) * BLOCK;
    assert!(leased > 0 && leased <= ceiling / 4, "{leased} of {ceiling} bytes");
    for session in sessions {
        session.close(&cache);
    }
}

#[test]
fn a_prefetch_reaches_the_frame_of_a_read_counts_nothing_and_ignores_hostile_ranges() {
    let cache = Cache::new(PlainFrames::new(FRAMES), 1);
    let geometry = Geometry { length: BLOCKS * BLOCK - 512, granule: 512, read_only: false };
    let volume = cache.add_volume(VolumeOptions::new("v", geometry), Box::new(NoWaker));
    let mut session: TestSession =
        Session::open(&cache, &volume, Box::new(NoWaker), SessionLimit::Own(u64::MAX)).unwrap();
    let written = [0, 5, 6];
    for block in written {
        let range = block * BLOCK..(block + 1) * BLOCK;
        let request = Request::new(RequestOp::Write, range);
        let data = Bytes::Own(vec![7; usize::try_from(BLOCK).unwrap()]);
        assert!(matches!(session.submit(&cache, 1, request, data, || 0), Submitted::Done(_)));
    }
    let counters = || Counter::ALL.map(|counter| volume.totals().get(counter));
    let before = counters();
    let prefetch = |offset, len| {
        session.prefetch(&cache, offset, len, Prefetch::Table);
        session.prefetch(&cache, offset, len, Prefetch::Frames);
        cache.frames().prefetched()
    };
    let end = BLOCKS * BLOCK - 512;
    let hostile =
        [(end, 1), (0, end + 1), (u64::MAX, 1), (u64::MAX, u64::MAX), (5 * BLOCK, u64::MAX)];
    for (offset, len) in hostile {
        assert_eq!(prefetch(offset, len), None, "{len} bytes at {offset}");
    }
    for nothing in [(end, 0), (0, 0), (7 * BLOCK, BLOCK)] {
        assert_eq!(prefetch(nothing.0, nothing.1), None, "{nothing:?}");
    }
    let frames = written.map(|block| prefetch(block * BLOCK + 100, 10).expect("it is cached"));
    assert_eq!(prefetch(5 * BLOCK, 2 * BLOCK), Some(frames[2]), "both blocks, in order");
    assert_eq!(prefetch(0, end), Some(frames[0]), "only the first blocks of a large read");
    assert_eq!(counters(), before);
    for (block, frame) in written.into_iter().zip(frames) {
        let request = Request::new(RequestOp::Read, block * BLOCK..block * BLOCK + 10);
        let nothing = Bytes::Own(Vec::new());
        let Submitted::Done(done) = session.submit(&cache, 1, request, nothing, || 0) else {
            panic!("block {block} is cached")
        };
        let mut read = done.data.unwrap();
        for (pin, _) in read.take_pieces() {
            assert_eq!(cache.frames().pinned(&pin), frame);
            cache.frames().unpin(pin);
        }
        session.recycle(read);
    }
    session.close(&cache);
}

/// Counts its wakes.
struct WakeCounter(Arc<AtomicUsize>);

impl Wake for WakeCounter {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn the_store_thread_is_woken_when_all_pages_of_a_read_are_queued() {
    let cache = Cache::new(PlainFrames::new(FRAMES), 1);
    let geometry = Geometry { length: BLOCKS * BLOCK, granule: 512, read_only: false };
    let options = VolumeOptions { hint: Hint::Random, ..VolumeOptions::new("v", geometry) };
    let wakes = Arc::new(AtomicUsize::new(0));
    let volume = cache.add_volume(options, Box::new(WakeCounter(Arc::clone(&wakes))));
    let mut session: TestSession =
        Session::open(&cache, &volume, Box::new(NoWaker), SessionLimit::Own(u64::MAX)).unwrap();
    let recorder = cache.recorder(&volume);
    let before = wakes.load(Ordering::Relaxed);
    let request = Request::new(RequestOp::Read, 5 * BLOCK..21 * BLOCK);
    let submitted = session.submit(&cache, 1, request, Bytes::Own(Vec::new()), || 0);
    assert!(!matches!(submitted, Submitted::Done(_)));
    assert_eq!(wakes.load(Ordering::Relaxed) - before, 1);
    let mut ops = Vec::new();
    cache.poll(&volume, &recorder, 0, 32, &mut ops);
    let ranges: Vec<_> = ops.iter().map(|op| (op.offset, op.len)).collect();
    assert_eq!(ranges, [(5 * BLOCK, 16 * BLOCK)], "adjacent pages are one operation");
    session.close(&cache);
    cache.abandon(&volume);
}
