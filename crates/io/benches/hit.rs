//! The speed of an in-process hit: a bare copy, a hit with `Session::read_hit`, and a `pread` from
//! the page cache, each of 4 KiB at random offsets in 1 GiB, alternating in one run.
//!
//! A hit is measured twice: one at a time, where each waits for the table before the copy can
//! begin, and in batches of eight with `Session::read_hits`, as a front end receives them from a
//! client that keeps several requests in flight.
//!
//! All kinds of copies use the same eight buffers in rotation, and the same order of blocks. The
//! bare copy reads the memory of the cache's frames, from the frames of the same blocks, so that
//! pages, layout and state of the processor's caches are the same. Ratios are computed for each
//! pair within a round, then their median; times are in nanoseconds per 4 KiB.
//!
//! `cargo bench --package larder-io --bench hit -- [--quick]`. Without `--bench`, which
//! cargo adds, as in `cargo test --benches`, a short run on a few MiB checks that it works.

use larder_core::cache::HitRead;
use larder_core::completion::NoWaker;
use larder_core::counters::Counter;
use larder_core::policy::PolicyKind;
use larder_core::request::{Request, RequestOp, Session, SessionLimit, Submitted};
use larder_core::store::{Geometry, MemoryStore};
use larder_core::units::{BLOCK_BYTES, BLOCK_BYTES_U64};
use larder_core::volume::VolumeOptions;
use larder_io::engine::{ArenaCache, ArenaSession, ArenaVolume, Engine, EngineOptions};
use larder_io::store::TimedStore;
use larder_mem::Pin;
use larder_testing::claim;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rustix::io::ReadWriteFlags;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, IoSliceMut, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// The allocator that the programs use.
#[global_allocator]
static ALLOCATOR: larder_mem::HugeAllocator = larder_mem::HugeAllocator;

/// A large request: as large as the largest page.
const LARGE_BYTES: usize = 1 << 20;
const LARGE_BLOCKS: u32 = 256;
/// Hits per batch.
const BATCH_HITS: usize = 8;
/// Copies between two reads of the clock.
const BATCH: usize = 256;
/// Turns per round; each turn runs every kind of copy once.
const TURNS: u32 = 11;
/// Maximum number of times that a piece of the file is read again after it left the page cache.
const READINGS_MAX: u32 = 5;

/// Size and duration of the measurement.
#[derive(Clone, Copy)]
struct Scale {
    hot_bytes: u64,
    rounds: usize,
    each: Duration,
}

impl Scale {
    const FULL: Scale = Scale { hot_bytes: 1 << 30, rounds: 9, each: Duration::from_millis(300) };
    const QUICK: Scale = Scale { rounds: 3, each: Duration::from_millis(50), ..Scale::FULL };
    const TEST: Scale = Scale { hot_bytes: 8 << 20, rounds: 1, each: Duration::from_millis(1) };

    fn of(arguments: &[String]) -> Self {
        let has = |name: &str| arguments.iter().any(|argument| argument == name);
        match (has("--bench") && !has("--test"), has("--quick")) {
            (false, _) => Scale::TEST,
            (true, true) => Scale::QUICK,
            (true, false) => Scale::FULL,
        }
    }
}

/// Engine, data and file of the measurement.
struct Setup {
    engine: Engine,
    volume: Arc<ArenaVolume>,
    file: File,
    /// The pinned frame of each block, which the bare copy reads.
    pins: Vec<Pin>,
    /// Block numbers, and numbers of large requests, in the order in which they are read
    /// repeatedly.
    blocks: Vec<u32>,
    large_blocks: Vec<u32>,
}

impl Setup {
    fn new(scale: Scale) -> Self {
        let policy = PolicyKind::S3Fifo;
        let engine = Engine::new(EngineOptions {
            // The tables of the cache take about a twentieth.
            memory_bytes: scale.hot_bytes / 8 * 9 + (16 << 20),
            huge_pages: true,
            lock: false,
            threads: 2,
            policy_bytes: policy.bytes_per_page(),
        })
        .expect("there is memory for the bench");
        let geometry = Geometry { length: scale.hot_bytes, granule: 512, read_only: false };
        let options = VolumeOptions { policy, ..VolumeOptions::new("bench", geometry) };
        let store = TimedStore::new(MemoryStore::new(geometry), engine.clock());
        let volume = engine.add_volume(options, Box::new(store)).expect("a thread for the volume");
        let pins = fill(&engine, &volume);
        let blocks = u32::try_from(pins.len()).expect("as many as frames");
        Setup {
            engine,
            volume,
            file: cached_file(scale.hot_bytes),
            pins,
            blocks: shuffled(blocks),
            large_blocks: shuffled(blocks / LARGE_BLOCKS),
        }
    }

    fn cache(&self) -> &ArenaCache {
        self.engine.cache()
    }

    fn session(&self) -> ArenaSession<()> {
        let limit = SessionLimit::Own(u64::MAX);
        let session = Session::open(self.cache(), &self.volume, Box::new(NoWaker), limit);
        session.expect("the volume is open")
    }

    /// Returns the memory that the bare copy reads, in the order of the blocks.
    fn sources(&self) -> Vec<&[u8]> {
        let arena = self.cache().frames().arena();
        self.blocks.iter().map(|&block| arena.bytes(&self.pins[block as usize])).collect()
    }

    fn close(self) {
        for pin in self.pins {
            self.engine.cache().frames().arena().unpin(pin);
        }
        self.engine.shut_down();
    }
}

/// Reads the whole volume once, and keeps the frames of its blocks pinned.
fn fill(engine: &Engine, volume: &Arc<ArenaVolume>) -> Vec<Pin> {
    let mut session = engine.blocking_session(volume).expect("the volume is open");
    let mut pins = Vec::new();
    for offset in (0..volume.geometry().length).step_by(LARGE_BYTES) {
        let request = Request::new(RequestOp::Read, offset..offset + LARGE_BYTES as u64);
        let mut read = session.pin(request).expect("a store in memory works");
        pins.extend(read.take_pieces().map(|(pin, _)| pin));
    }
    pins
}

/// Creates a file of this length whose pages are all in the page cache.
fn cached_file(len: u64) -> File {
    let mut file = tempfile::tempfile().expect("a directory for temporary files");
    let piece = vec![1; LARGE_BYTES];
    for _ in 0..len / LARGE_BYTES as u64 {
        file.write_all(&piece).expect("room for a temporary file");
    }
    // No writeback may run during the measurement.
    file.sync_data().expect("a disk that works");
    let mut piece = vec![0; LARGE_BYTES];
    for offset in (0..len).step_by(LARGE_BYTES) {
        let mut readings = 0;
        while !is_cached(&file, &mut piece, offset) {
            // Some kernels reclaim pages that have not been accessed for a while (DAMON), even
            // here.
            assert!(readings < READINGS_MAX, "the kernel does not keep the file in its cache");
            readings += 1;
            file.read_exact_at(&mut piece, offset).expect("what was written");
        }
    }
    file
}

/// Returns true if a read of this piece needs no disk access.
fn is_cached(file: &File, piece: &mut [u8], offset: u64) -> bool {
    let vectors = &mut [IoSliceMut::new(piece)];
    match rustix::io::preadv2(file, vectors, offset, ReadWriteFlags::NOWAIT) {
        Ok(bytes) => bytes == LARGE_BYTES,
        // Some file systems do not support this flag; the pages that were just written are cached.
        Err(rustix::io::Errno::OPNOTSUPP) => true,
        Err(rustix::io::Errno::AGAIN) => false,
        Err(error) => panic!("read the file that was just written: {error}"),
    }
}

/// Returns the numbers below `end`, each once, shuffled from a fixed seed.
fn shuffled(end: u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..end).collect();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    for i in (1..numbers.len()).rev() {
        let other = random.next_u64() % (i as u64 + 1);
        numbers.swap(i, usize::try_from(other).expect("an index"));
    }
    numbers
}

/// Runs `copy` for `items`, cyclically from `start`, until the time is up. Returns nanoseconds per
/// item.
fn time<T: Copy>(each: Duration, items: &[T], start: &mut usize, mut copy: impl FnMut(T)) -> f64 {
    let begin = Instant::now();
    let mut count = 0.0;
    loop {
        let batch = &items[*start..items.len().min(*start + BATCH)];
        *start = if *start + BATCH >= items.len() { 0 } else { *start + BATCH };
        for &item in batch {
            copy(item);
        }
        count += f64::from(u32::try_from(batch.len()).expect("at most a batch"));
        let elapsed = begin.elapsed();
        if elapsed >= each {
            return elapsed.as_secs_f64() * 1e9 / count;
        }
    }
}

/// Block buffers that are used in rotation.
struct Buffers<'a> {
    all: &'a mut [[u8; BLOCK_BYTES]],
    turn: usize,
}

impl<'a> Buffers<'a> {
    fn new(bytes: &'a mut [u8]) -> Self {
        Buffers { all: &mut bytes.as_chunks_mut().0[..BATCH_HITS], turn: 0 }
    }

    #[inline]
    fn next(&mut self) -> &mut [u8] {
        self.turn = (self.turn + 1) % BATCH_HITS;
        &mut self.all[self.turn]
    }
}

/// Buffer and read positions of one thread.
struct Worker<'a> {
    setup: &'a Setup,
    sources: &'a [&'a [u8]],
    session: ArenaSession<()>,
    buffer: Vec<u8>,
    next: [usize; 6],
}

impl<'a> Worker<'a> {
    /// Creates a worker that begins `part` halves into each order.
    fn new(setup: &'a Setup, sources: &'a [&'a [u8]], part: usize) -> Self {
        let block = setup.blocks.len() / 2 * part;
        let large = setup.large_blocks.len() / 2 * part;
        let next = [block, block, block, large, large, block / BATCH_HITS];
        Worker { setup, sources, session: setup.session(), buffer: vec![0; LARGE_BYTES], next }
    }

    fn memcpy(&mut self, each: Duration) -> f64 {
        let mut buffers = Buffers::new(&mut self.buffer);
        time(each, self.sources, &mut self.next[0], |from| {
            black_box(buffers.next()).copy_from_slice(from);
        })
    }

    fn hit(&mut self, each: Duration) -> f64 {
        let (cache, session) = (self.setup.cache(), &mut self.session);
        let mut buffers = Buffers::new(&mut self.buffer);
        time(each, &self.setup.blocks, &mut self.next[1], |block| {
            let offset = u64::from(block) * BLOCK_BYTES_U64;
            let to = black_box(buffers.next());
            assert!(session.read_hit(cache, offset, to), "all blocks are resident");
        })
    }

    /// Returns the time per hit of 4 KiB in batches.
    fn hits(&mut self, each: Duration) -> f64 {
        let (cache, session) = (self.setup.cache(), &mut self.session);
        let buffers = &mut self.buffer[..BATCH_HITS * BLOCK_BYTES];
        let batches = self.setup.blocks.as_chunks::<BATCH_HITS>().0;
        let batch = time(each, batches, &mut self.next[5], |blocks| {
            let to = black_box(&mut *buffers).chunks_exact_mut(BLOCK_BYTES);
            let mut to = blocks.iter().zip(to).map(|(&block, to)| HitRead {
                offset: u64::from(block) * BLOCK_BYTES_U64,
                to,
                hit: false,
            });
            let mut reads: [HitRead<'_>; BATCH_HITS] =
                std::array::from_fn(|_| to.next().expect("a buffer for each"));
            let hits = session.read_hits(cache, &mut reads);
            assert_eq!(hits, BATCH_HITS, "all blocks are resident");
        });
        batch / f64::from(u32::try_from(BATCH_HITS).expect("a few"))
    }

    fn pread(&mut self, each: Duration) -> f64 {
        let mut buffers = Buffers::new(&mut self.buffer);
        time(each, &self.setup.blocks, &mut self.next[2], |block| {
            let offset = u64::from(block) * BLOCK_BYTES_U64;
            let to = black_box(buffers.next());
            self.setup.file.read_exact_at(to, offset).expect("a whole block");
        })
    }

    /// Returns the time per 4 KiB of a copy of 1 MiB, frame by frame.
    fn memcpy_large(&mut self, each: Duration) -> f64 {
        let arena = self.setup.cache().frames().arena();
        let to = &mut self.buffer;
        let large = time(each, &self.setup.large_blocks, &mut self.next[3], |large| {
            let first = (large * LARGE_BLOCKS) as usize;
            let pins = &self.setup.pins[first..first + LARGE_BLOCKS as usize];
            for (to, pin) in black_box(&mut *to).chunks_exact_mut(BLOCK_BYTES).zip(pins) {
                to.copy_from_slice(arena.bytes(pin));
            }
        });
        large / f64::from(LARGE_BLOCKS)
    }

    /// Returns the time per 4 KiB of a 1 MiB read that is submitted as a request.
    fn hit_large(&mut self, each: Duration) -> f64 {
        let (cache, session) = (self.setup.cache(), &mut self.session);
        let (to, now) = (&mut self.buffer, self.setup.engine.now());
        let large = time(each, &self.setup.large_blocks, &mut self.next[4], |large| {
            let offset = u64::from(large) * LARGE_BYTES as u64;
            let request = Request::new(RequestOp::Read, offset..offset + LARGE_BYTES as u64);
            let submitted = session.submit(cache, now, request, &[][..], || ());
            let Submitted::Done(done) = submitted else { panic!("all blocks are resident") };
            let read = done.data.expect("the blocks of a read");
            read.copy_to(cache.frames(), black_box(&mut *to));
            session.release(cache, now, read);
        });
        large / f64::from(LARGE_BLOCKS)
    }
}

/// Runs each kind of copy in turns, for `each` in total, so that other load on the machine affects
/// all of them. Returns nanoseconds per 4 KiB, as the median of the turns.
fn turns(workers: &mut [Worker<'_>; 2], each: Duration) -> [f64; 8] {
    let mut series = [const { Series(Vec::new()) }; 8];
    let turn = each / TURNS;
    for _ in 0..TURNS {
        let one = &mut workers[0];
        let alone = [
            one.memcpy(turn),
            one.hit(turn),
            one.hits(turn),
            one.pread(turn),
            one.memcpy_large(turn),
            one.hit_large(turn),
        ];
        let both = [run_both(workers, turn, Worker::hits), run_both(workers, turn, Worker::memcpy)];
        for (series, ns) in series.iter_mut().zip(alone.into_iter().chain(both)) {
            series.0.push(ns);
        }
    }
    series.map(|series| series.median())
}

/// Runs two workers at the same time. Returns nanoseconds per copy at the sum of their rates.
fn run_both<'a>(
    workers: &mut [Worker<'a>; 2],
    each: Duration,
    copy: impl Fn(&mut Worker<'a>, Duration) -> f64 + Sync,
) -> f64 {
    let (barrier, copy) = (&Barrier::new(2), &copy);
    std::thread::scope(|scope| {
        let threads = workers.each_mut().map(|worker| {
            scope.spawn(move || {
                barrier.wait();
                1.0 / copy(worker, each)
            })
        });
        let rates = threads.map(|thread| thread.join().expect("a worker does not panic"));
        1.0 / rates.iter().sum::<f64>()
    })
}

/// One number per round.
#[derive(Default)]
struct Series(Vec<f64>);

impl Series {
    /// Returns the median, the minimum and the maximum.
    fn spread(&self) -> [f64; 3] {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        [sorted[sorted.len() / 2], sorted[0], sorted[sorted.len() - 1]]
    }

    fn median(&self) -> f64 {
        self.spread()[0]
    }
}

/// The results: a series for each name.
#[derive(Default)]
struct Results {
    memcpy_ns: Series,
    hit_ns: Series,
    pread_ns: Series,
    hit_over_memcpy: Series,
    hits_ns: Series,
    hits_over_memcpy: Series,
    pread_over_hits: Series,
    scaling: Series,
    memcpy_scaling: Series,
    large_ns: Series,
    large_over_memcpy: Series,
}

impl Results {
    fn measure(setup: &Setup, scale: Scale) -> Self {
        let sources = setup.sources();
        let mut workers = [0, 1].map(|part| Worker::new(setup, &sources, part));
        let mut results = Results::default();
        let each = scale.each;
        for round in 0..=scale.rounds {
            let [memcpy, hit, hits, pread, large_memcpy, large, two_hits, two_memcpy] =
                turns(&mut workers, each);
            // The first round warms up.
            if round == 0 && scale.rounds > 1 {
                continue;
            }
            results.memcpy_ns.0.push(memcpy);
            results.hit_ns.0.push(hit);
            results.pread_ns.0.push(pread);
            results.hit_over_memcpy.0.push(hit / memcpy);
            results.hits_ns.0.push(hits);
            results.hits_over_memcpy.0.push(hits / memcpy);
            results.pread_over_hits.0.push(pread / hits);
            results.scaling.0.push(hits / two_hits);
            results.memcpy_scaling.0.push(memcpy / two_memcpy);
            results.large_ns.0.push(large);
            results.large_over_memcpy.0.push(large / large_memcpy);
        }
        let hits = setup.volume.totals().get(Counter::ReadHit);
        assert!(hits > setup.blocks.len() as u64, "hits are counted");
        for worker in workers {
            worker.session.close(setup.cache());
        }
        results
    }

    /// Prints the claims for `cargo xtask prove in-process`.
    fn claims(&self) {
        let [copy, alone, batch, pread, over_copy, pread_over, scaling, copy_scaling] = [
            &self.memcpy_ns,
            &self.hit_ns,
            &self.hits_ns,
            &self.pread_ns,
            &self.hits_over_memcpy,
            &self.pread_over_hits,
            &self.scaling,
            &self.memcpy_scaling,
        ]
        .map(Series::median);
        claim(
            "a hit, in batches of eight, takes at most 1.25 times as long as memcpy",
            format!("{batch:.0} ns, {over_copy:.2} times ({alone:.0} ns one at a time)"),
            format!("memcpy {copy:.0} ns"),
            over_copy <= 1.25,
        );
        claim(
            "a hit is at least 2 times as fast as pread from the page cache",
            format!("{batch:.0} ns, {pread_over:.2} times"),
            format!("pread {pread:.0} ns"),
            pread_over >= 2.0,
        );
        claim(
            "two threads reach 1.8 times the rate of one, or 0.9 of the scaling of memcpy",
            format!("{scaling:.2} times"),
            format!("memcpy {copy_scaling:.2} times"),
            scaling >= 1.8 || scaling >= 0.9 * copy_scaling,
        );
    }

    fn table(&self) -> String {
        let rows = [
            ("memcpy of 4 KiB, ns", &self.memcpy_ns),
            ("hit of 4 KiB alone, ns", &self.hit_ns),
            ("hit of 4 KiB in a batch, ns", &self.hits_ns),
            ("pread of 4 KiB, ns", &self.pread_ns),
            ("read of 1 MiB, ns for 4 KiB", &self.large_ns),
            ("hit alone / memcpy", &self.hit_over_memcpy),
            ("hit in a batch / memcpy", &self.hits_over_memcpy),
            ("pread / hit in a batch", &self.pread_over_hits),
            ("read of 1 MiB / memcpy", &self.large_over_memcpy),
            ("2 threads / 1, hit in a batch", &self.scaling),
            ("2 threads / 1, memcpy", &self.memcpy_scaling),
        ];
        let lines = rows.map(|(name, series)| {
            let [median, min, max] = series.spread();
            format!("{name:<30} {median:>8.2} {min:>8.2} {max:>8.2}\n")
        });
        format!("{:<30} {:>8} {:>8} {:>8}\n{}", "", "median", "min", "max", lines.concat())
    }
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let scale = Scale::of(&arguments);
    let setup = Setup::new(scale);
    let results = Results::measure(&setup, scale);
    setup.close();
    write!(io::stdout(), "{}", results.table())?;
    results.claims();
    Ok(())
}
