//! Tests of input logs: a replay of random operations ends with equal counters, and no log makes a
//! replay panic.

use super::replay::{ReplayError, ReplayResult, replay};
use super::*;
use crate::model::NullStore;
use crate::random::Random;
use larder_core::cache::Cache;
use larder_core::clock::{MILLISECOND, Nanos};
use larder_core::completion::NoWaker;
use larder_core::counters::Recorder;
use larder_core::frames::NoFrames;
use larder_core::input::{LoggedLimit, Query};
use larder_core::policy::PolicyKind;
use larder_core::request::{
    self, Budget, Event, Request, RequestOp, SessionLimit, Submitted, Then, ZeroPayload,
};
use larder_core::store::{Geometry, Store, StoreError, StoreErrorKind};
use larder_core::volume::VolumeOptions;
use std::io::Write;

const FRAMES: u32 = 2048;
const LENGTH: u64 = 64 << 20;

type Session = request::Session<NoFrames, ZeroPayload, ()>;
type Read = Box<request::ReadRequest<NoFrames>>;

/// A file in memory.
#[derive(Clone, Default)]
struct File(Arc<Mutex<Vec<u8>>>);

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A client that releases some reads immediately, keeps others, and moves the pins out of a third.
struct Client {
    session: Session,
    kept: Vec<Read>,
    pins: Vec<<NoFrames as Frames>::Pin>,
}

impl Client {
    fn take(&mut self, cache: &Cache<NoFrames>, now: Nanos, random: &mut Random, mut read: Read) {
        match random.below(3) {
            0 => self.session.release(cache, now, read),
            1 => self.kept.push(read),
            _ => {
                self.pins.extend(read.take_pieces().map(|(pin, _)| pin));
                self.session.recycle(read);
            }
        }
    }

    fn close(self, cache: &Cache<NoFrames>) {
        let Client { session, kept, pins } = self;
        session.close_and_release(cache, pins.into_iter());
        for mut read in kept {
            read.release(cache.frames());
        }
    }

    fn give_back(&mut self, cache: &Cache<NoFrames>, now: Nanos) {
        for read in self.kept.drain(..) {
            self.session.release(cache, now, read);
        }
        self.session.release_pins(cache, now, self.pins.drain(..));
    }
}

struct TestCache {
    cache: Cache<NoFrames>,
    volume: Arc<Volume<NoFrames>>,
    recorder: Arc<Recorder>,
    store: NullStore<NoFrames>,
    now: Nanos,
    random: Random,
}

impl TestCache {
    fn request(&mut self) -> Request {
        let offset = self.random.below(LENGTH / 512) * 512;
        let len_max = (LENGTH - offset).min(3 << 20);
        let len = self.random.below(len_max / 512).max(1) * 512;
        let len = if self.random.below(4) > 0 { len.min(16384) } else { len };
        let op = match self.random.below(20) {
            0 => RequestOp::Flush,
            1 => RequestOp::Discard,
            2 => RequestOp::Zero { keep_allocated: false },
            3 => RequestOp::Populate,
            4..=11 => RequestOp::Write,
            _ => RequestOp::Read,
        };
        let len = if op == RequestOp::Write { len.min(128 << 10) } else { len };
        let range = if op == RequestOp::Flush { 0..0 } else { offset..offset + len };
        let then = if self.random.below(9) == 0 { Then::Flush } else { Then::Nothing };
        Request { then, fua: self.random.below(9) == 0, ..Request::new(op, range) }
    }

    fn drive(&mut self) {
        let (mut ops, mut done) = (Vec::new(), Vec::new());
        let TestCache { cache, volume, recorder, store, now, random } = self;
        cache.poll(volume, recorder, *now, 8, &mut ops);
        for op in ops {
            store.submit(*now, cache.frames(), op);
        }
        store.reap(*now, cache.frames(), &mut done);
        for mut done in done {
            if random.below(50) == 0 {
                done.result = Err(StoreError::new(StoreErrorKind::Io, "read it: a bad day"));
            }
            cache.complete(volume, recorder, *now, done);
        }
    }

    fn change_a_setting(&mut self) {
        let (cache, volume) = (&self.cache, &self.volume);
        match self.random.below(8) {
            0 => cache.set_policy(volume, PolicyKind::Arc, self.now),
            1 => cache.set_page_blocks(volume, 4).unwrap(),
            2 => cache.set_memory(FRAMES / 2).unwrap(),
            3 => cache.set_memory(FRAMES * 2).unwrap(),
            4 => drop(cache.drop_clean(volume, self.now)),
            5 => cache.pin_range(volume, 0..40960, self.now).unwrap(),
            6 => drop(cache.curve(volume, self.now)),
            _ => cache.warm(volume, std::iter::once(100..200)),
        }
    }
}

impl TestCache {
    fn advance(&mut self, client: &mut Client) {
        client.session.advance(&self.cache, self.now);
        while let Some(event) = client.session.poll_event() {
            let data = match event {
                Event::Piece(_, read) => Some(read),
                Event::End(reply) => reply.data,
            };
            if let Some(read) = data {
                client.take(&self.cache, self.now, &mut self.random, read);
            }
        }
    }

    fn write_in_parts(&mut self, client: &mut Client) {
        let request = self.request();
        let (session, cache, now) = (&mut client.session, &self.cache, self.now);
        let bytes = request.offset..request.offset + request.len;
        let id = session.begin(now, Request::new(RequestOp::Write, bytes.clone()), ());
        for offset in bytes.step_by(4096).take(3).filter(|at| at + 512 <= LENGTH) {
            session.push(cache, now, id, offset, ZeroPayload(512));
        }
        session.push_flush(cache, now, id, 0..4096);
        session.finish(cache, now, id);
    }

    fn submit(&mut self, client: &mut Client) {
        let request = self.request();
        if client.session.operations() > 64 {
            return;
        }
        let is_write = request.op == RequestOp::Write;
        let zeros = ZeroPayload(if is_write { usize::try_from(request.len).unwrap() } else { 0 });
        client.session.grant_piece(&self.cache, request.len);
        let submitted = client.session.submit(&self.cache, self.now, request, zeros, || ());
        if let Submitted::Done(done) = submitted
            && let Some(read) = done.data
        {
            client.take(&self.cache, self.now, &mut self.random, read);
        }
    }
}

/// Returns the log of random work, and the counters at its end.
fn log(seed: u64, steps: u32) -> (Vec<u8>, Counters) {
    let file = File::default();
    let writer = InputLogWriter::new(Box::new(file.clone()));
    let cache = Cache::with_memory(NoFrames::new(2 * FRAMES), FRAMES, 2).with_log(writer.log());
    let geometry = Geometry { length: LENGTH, granule: 512, read_only: false };
    let volume = cache.add_volume(VolumeOptions::new("v", geometry), Box::new(NoWaker));
    let recorder = cache.recorder(&volume);
    let (store, random) = (NullStore::new(geometry), Random::from_seed(seed));
    let now = 1000 * MILLISECOND;
    let mut cache_state = TestCache { cache, volume, recorder, store, now, random };
    let budget = Arc::new(Budget::new(4));
    let open = |cache_state: &TestCache| {
        let limit = SessionLimit::Shared(Arc::clone(&budget));
        let session =
            Session::open(&cache_state.cache, &cache_state.volume, Box::new(NoWaker), limit);
        Client { session: session.unwrap(), kept: Vec::new(), pins: Vec::new() }
    };
    let mut clients = [open(&cache_state), open(&cache_state), open(&cache_state)];
    for _ in 0..steps {
        cache_state.now += cache_state.random.below(MILLISECOND);
        let client = usize::try_from(cache_state.random.below(3)).unwrap();
        match cache_state.random.below(100) {
            0 => cache_state.change_a_setting(),
            1 => drop(cache_state.cache.run_maintenance(cache_state.now)),
            2 => std::mem::replace(&mut clients[client], open(&cache_state))
                .close(&cache_state.cache),
            3..=20 => cache_state.drive(),
            21..=30 => clients[client].give_back(&cache_state.cache, cache_state.now),
            31..=60 => cache_state.advance(&mut clients[client]),
            61..=65 => cache_state.write_in_parts(&mut clients[client]),
            _ => cache_state.submit(&mut clients[client]),
        }
    }
    let totals = counters(&cache_state.volume.totals());
    writer.finish(&[Arc::clone(&cache_state.volume)]).unwrap();
    let bytes = file.0.lock().unwrap().clone();
    (bytes, totals)
}

fn replayed(log: &[u8]) -> Result<ReplayResult, ReplayError> {
    replay(log)
}

#[test]
fn a_replay_has_the_counters_of_the_cache_that_was_logged() {
    for seed in 0..larder_testing::budget(8, 200) {
        let (log, expected) = log(seed, 4000);
        let replayed = replayed(&log).unwrap();
        assert_eq!(replayed.volumes["v"].0, expected, "seed {seed}");
        assert_eq!(replayed.volumes["v"].1, expected, "seed {seed}");
        assert_eq!(replayed.count_differences(), 0, "seed {seed}");
        assert!(expected["evicted_pages"] > 0 && expected["read_miss_pages"] > 0, "{expected:?}");
    }
}

#[test]
fn a_volume_that_is_removed_is_not_compared() {
    let file = File::default();
    let writer = InputLogWriter::new(Box::new(file.clone()));
    let cache = Cache::new(NoFrames::new(FRAMES), 1).with_log(writer.log());
    let geometry = Geometry { length: LENGTH, granule: 512, read_only: false };
    let add = |name: &str| cache.add_volume(VolumeOptions::new(name, geometry), Box::new(NoWaker));
    let (kept, removed) = (add("kept"), add("removed"));
    cache.close_volume(&removed).unwrap();
    cache.remove_volume(&removed, 1000 * MILLISECOND);
    writer.finish(&[kept]).unwrap();
    let log = file.0.lock().unwrap().clone();
    let replayed = replayed(&log).unwrap();
    assert_eq!(replayed.volumes.keys().collect::<Vec<_>>(), ["kept"]);
    assert_eq!(replayed.count_differences(), 0);
    // A volume that is in only one of the two is a difference.
    let renamed = String::from_utf8(log).unwrap().replace("{\"kept\":", "{\"other\":");
    assert!(self::replayed(renamed.as_bytes()).unwrap().count_differences() > 0);
}

#[test]
fn a_log_that_is_cut_short_has_no_end() {
    let (log, _) = log(1, 300);
    let cut = log[..log.len() - 1].iter().rposition(|&byte| byte == b'\n').unwrap();
    let error = replayed(&log[..=cut]).unwrap_err();
    assert!(matches!(error, ReplayError::NoEnd), "{error}");
    for within_a_line in [cut - 1, cut + 2, log.len() - 3] {
        let error = replayed(&log[..within_a_line]).unwrap_err();
        assert!(matches!(error, ReplayError::NoEnd), "{error}");
    }
    assert!(matches!(replayed(b"").unwrap_err(), ReplayError::NoEnd));
    for other in [&b"{\"input\":{\"poll_event\":{\"session\":1}}}\n"[..], b"LTR1\n", b"{}\n"] {
        assert_eq!(
            replayed(other).unwrap_err().to_string(),
            "it is no recording of inputs (larder serve --record-inputs makes one)"
        );
    }
}

/// Replays inputs for a volume of 8 GiB, number 0, and session 1 on it.
fn replay_inputs(inputs: &[Input]) -> ReplayError {
    let geometry = Geometry { length: 8 << 30, granule: 512, read_only: false };
    let start = [
        Input::Cache { frames: 64, frames_max: 64, shards: 1 },
        Input::AddVolume { options: VolumeOptions::new("v", geometry) },
        Input::Open { session: 1, volume: 0, limit: LoggedLimit::Own(1 << 20) },
    ];
    let inputs = start.iter().chain(inputs).cloned().map(LogRecord::Input);
    let records = std::iter::once(LogRecord::LarderInputs { version: VERSION }).chain(inputs);
    let lines: Vec<_> = records.map(|record| serde_json::to_string(&record).unwrap()).collect();
    replayed(lines.join("\n").as_bytes()).unwrap_err()
}

#[test]
fn inputs_that_the_engine_cannot_take_are_refused() {
    let submit = |request: Request, payload: usize| {
        vec![Input::Submit { session: 1, now: 1, request, payload }]
    };
    let begin = Input::Begin { session: 1, now: 1, request: Request::new(RequestOp::Write, 0..0) };
    let flush = Request::new(RequestOp::Flush, 0..0);
    let read = Request::new(RequestOp::Read, 0..4096);
    for inputs in [
        submit(Request::new(RequestOp::Write, 0..4 << 30), 4 << 30),
        submit(Request::new(RequestOp::FlushRange { durable: true }, 0..0), 0),
        submit(Request { then: Then::FlushRange(0..0), ..flush }, 0),
        submit(Request { bound: Some(0..0), ..read.clone() }, 0),
        vec![begin, Input::PushFlush { session: 1, now: 1, id: 0, bytes: 0..0 }],
        vec![Input::Submit { session: 1, now: Nanos::MAX, request: read, payload: 0 }],
        vec![Input::RemoveVolume { volume: 0, now: 1 }],
    ] {
        let error = replay_inputs(&inputs);
        assert!(matches!(error, ReplayError::Refused { .. }), "{inputs:?}: {error}");
    }
}

#[test]
fn queries_and_removals_of_any_kind_are_replayed() {
    let read = Input::Submit {
        session: 1,
        now: 1,
        request: Request::new(RequestOp::Read, 0..4096),
        payload: 0,
    };
    let poll = |now| Input::Poll { volume: 0, now, depth: 4 };
    let done = |tag| Input::Complete {
        volume: 0,
        now: 2,
        tag,
        error: None,
        started_at: 1,
        finished_at: 2,
    };
    let query = |most| Input::Query { volume: 0, query: Query::Residents(most), now: 3 };
    let close = Input::CloseVolume { volume: 0 };
    let pin = Input::PinRange { volume: 0, bytes: 0..65536, pin: true, now: 4 };
    for inputs in [
        vec![read.clone(), poll(1), done(0), query(usize::MAX)],
        // The sum of this limit and a quarter of it overflows to 0.
        vec![read, poll(1), done(0), query(14_757_395_258_967_641_293)],
        vec![
            pin,
            Input::Close { session: 1 },
            close.clone(),
            close,
            poll(5),
            Input::RemoveVolume { volume: 0, now: 6 },
        ],
    ] {
        let error = replay_inputs(&inputs);
        assert!(matches!(error, ReplayError::NoEnd), "{inputs:?}: {error}");
    }
}

#[test]
fn no_log_makes_a_replay_panic() {
    let (log, _) = log(2, 1500);
    let text = String::from_utf8(log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for seed in 0..larder_testing::budget(100, 20_000) {
        let mut random = Random::from_seed(seed);
        let mut below = |end: usize| usize::try_from(random.below(end as u64)).unwrap();
        let mut changed: Vec<String> = lines.iter().map(ToString::to_string).collect();
        for _ in 0..=below(4) {
            let (at, other) = (1 + below(changed.len() - 1), 1 + below(changed.len() - 1));
            match below(4) {
                0 => drop(changed.remove(at)),
                1 => changed.swap(at, other),
                2 => {
                    let line = changed[other].clone();
                    changed.insert(at, line);
                }
                _ => {
                    // Replaces one digit by another number.
                    let digits: Vec<_> =
                        changed[at].match_indices(|c: char| c.is_ascii_digit()).collect();
                    if digits.is_empty() {
                        continue;
                    }
                    let (start, _) = digits[below(digits.len())];
                    let numbers = ["0", "1", "4095", "67108864", "18446744073709551615"];
                    let number = numbers[below(numbers.len())];
                    changed[at].replace_range(start..=start, number);
                }
            }
        }
        // Both success and an error are allowed.
        drop(replayed(changed.join("\n").as_bytes()));
    }
}
