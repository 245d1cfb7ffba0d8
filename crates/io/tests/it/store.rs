//! Stores on files, with io_uring and with plain calls, through the trait that the cache uses.

use crate::common::{Random, TIMEOUT, spawn::starting};
use larder_core::clock::Clock;
use larder_core::frames::Frames;
use larder_core::store::{
    Buffer, Segment, StoreCompletion, StoreError, StoreErrorKind, StoreOp, StoreOpKind,
};
use larder_io::clock::MonotonicClock;
use larder_io::frames::ArenaFrames;
use larder_io::store::{
    AllocationMap, EngineStore, FileMap, OpenError, OpenOptions, OpenedStore, SolidMap, open,
    open_file,
};
use larder_io::waker::Waker;
use larder_mem::{Arena, ArenaOptions};
use larder_testing::skip;
use rustix::fs::{Mode, OFlags};
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const FRAMES: u32 = 2048;
const KEEP: StoreOpKind = StoreOpKind::Zero { keep_allocated: true };
const HOLE: StoreOpKind = StoreOpKind::Zero { keep_allocated: false };
const WRITE: StoreOpKind = StoreOpKind::Write { fua: false };

fn clock() -> Arc<dyn Clock> {
    Arc::new(MonotonicClock::new())
}

fn image(dir: &TempDir, length: u64) -> PathBuf {
    let path = dir.path().join(format!("image-{length}"));
    File::create_new(&path).expect("a new file").set_len(length).expect("room");
    path
}

/// A store that a test drives directly.
struct DrivenStore {
    store: Box<dyn EngineStore>,
    map: Arc<dyn AllocationMap>,
    frames: ArenaFrames,
    free: Vec<u32>,
    clock: Arc<dyn Clock>,
    waker: Waker,
    random: Random,
    next_tag: u64,
}

impl DrivenStore {
    fn new(opened: OpenedStore) -> Self {
        let options = ArenaOptions { frames: FRAMES, huge_pages: false, lock: false };
        DrivenStore {
            store: opened.store,
            map: opened.map,
            frames: ArenaFrames::new(Arena::new(options).expect("a few megabytes")),
            free: (0..FRAMES).rev().collect(),
            clock: clock(),
            waker: Waker::new().expect("a file descriptor"),
            random: Random::new(7),
            next_tag: 0,
        }
    }

    /// Splits a range into segments of random frames; those of a write get its bytes.
    fn segments(
        &mut self,
        kind: StoreOpKind,
        len: usize,
        data: &[u8],
    ) -> Vec<Segment<ArenaFrames>> {
        let granule = self.store.geometry().granule as usize;
        let (mut segments, mut at) = (Vec::new(), 0);
        while at < len {
            let offset = self.random.below(4096 / granule) * granule;
            let whole = self.random.below(2) == 0;
            let most = if whole { 4096 } else { granule * (1 + self.random.below(4096 / granule)) };
            let offset = if whole { 0 } else { offset };
            let part = most.min(4096 - offset).min(len - at);
            let frame = self.free.pop().expect("few operations in flight");
            let mut pin = self.frames.try_write_pin(frame).expect("a free frame");
            let buffer = if kind == StoreOpKind::Read {
                Buffer::Owned(pin)
            } else {
                self.frames.write(&mut pin, offset, &data[at..at + part]);
                Buffer::Pinned(self.frames.downgrade(pin))
            };
            let small = |n| u32::try_from(n).expect("below a frame");
            segments.push(Segment { buffer, offset: small(offset), len: small(part) });
            at += part;
        }
        segments
    }

    fn submit(&mut self, kind: StoreOpKind, offset: u64, len: usize, data: &[u8]) -> u64 {
        let carries = matches!(kind, StoreOpKind::Read | StoreOpKind::Write { .. });
        let segments = if carries { self.segments(kind, len, data) } else { Vec::new() };
        let (tag, now) = (self.next_tag, self.clock.now());
        self.next_tag += 1;
        let op = StoreOp { tag, kind, offset, len: len as u64, segments, queued_at: now };
        self.store.submit(now, &self.frames, op);
        tag
    }

    /// Waits for completed operations; returns their tags, results, and the bytes of reads.
    fn wait(&mut self) -> Vec<(u64, Result<Vec<u8>, StoreError>)> {
        let (mut done, started) = (Vec::new(), Instant::now());
        loop {
            self.store.reap(self.clock.now(), &self.frames, &mut done);
            if !done.is_empty() {
                return done.into_iter().map(|done| self.settle(done)).collect();
            }
            assert!(started.elapsed() < TIMEOUT, "an operation does not end");
            self.store.wait(&self.waker, Some(Duration::from_secs(1))).expect("waiting works");
        }
    }

    fn settle(&mut self, done: StoreCompletion<ArenaFrames>) -> (u64, Result<Vec<u8>, StoreError>) {
        let mut bytes = Vec::new();
        for Segment { buffer, offset, len } in done.op.segments {
            let pin = match buffer {
                Buffer::Pinned(pin) => pin,
                Buffer::Owned(pin) => self.frames.downgrade(pin),
            };
            if done.op.kind == StoreOpKind::Read {
                let at = bytes.len();
                bytes.resize(at + len as usize, 0);
                self.frames.read(&pin, offset as usize, &mut bytes[at..]);
            }
            self.free.push(self.frames.pinned(&pin));
            self.frames.unpin(pin);
        }
        (done.op.tag, done.result.map(|()| bytes))
    }

    fn call(
        &mut self,
        kind: StoreOpKind,
        offset: u64,
        len: usize,
        data: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        assert_eq!(self.store.in_flight(), 0, "one at a time");
        let tag = self.submit(kind, offset, len, data);
        let (done, result) = self.wait().pop().expect("it was waited for");
        assert_eq!((done, self.store.in_flight()), (tag, 0));
        result
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.call(WRITE, offset, data.len(), data).map(drop)
    }

    fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        self.call(StoreOpKind::Read, offset, len, &[])
    }
}

/// Runs a test on each kind of store that the kernel allows.
fn on_each_kind(path: &Path, test: impl Fn(&mut DrivenStore)) {
    for plain in [false, true] {
        let options = OpenOptions { plain, ..OpenOptions::default() };
        let opened = open(path, options, clock()).expect("the image opens");
        if opened.notes.iter().any(|note| note.contains("io_uring")) {
            skip(opened.notes.join("; "));
            continue;
        }
        let mut driven = DrivenStore::new(opened);
        test(&mut driven);
        assert_eq!(driven.store.in_flight(), 0);
        assert_eq!(driven.frames.arena().frames_held(), 0, "all frames came back");
    }
}

/// A random range in whole granules, which may end at a shorter tail.
fn range(random: &mut Random, granule: usize, length: usize) -> Range<usize> {
    let granules = length.div_ceil(granule);
    let start = random.below(granules);
    let count = 1 + random.below((granules - start).min(100));
    start * granule..((start + count) * granule).min(length)
}

/// Processes completed operations, and compares reads with the expected bytes.
fn process_completions(
    driven: &mut DrivenStore,
    in_flight: &mut HashMap<u64, (Range<usize>, Option<Vec<u8>>)>,
) {
    for (tag, result) in driven.wait() {
        let (_, expected) = in_flight.remove(&tag).expect("done once");
        let bytes = result.expect("nothing fails here");
        if let Some(expected) = expected {
            assert!(bytes == expected, "a read brought other bytes");
        }
    }
}

/// Random operations, up to eight in flight that do not overlap, against a vector of bytes.
fn against_a_model(driven: &mut DrivenStore, model: &mut [u8], seed: u64) {
    let mut random = Random::new(seed);
    let mut in_flight: HashMap<u64, (Range<usize>, Option<Vec<u8>>)> = HashMap::new();
    let granule = driven.store.geometry().granule as usize;
    for _ in 0..400 {
        let range = range(&mut random, granule, model.len());
        let overlaps =
            |(other, _): &(Range<usize>, _)| other.start < range.end && range.start < other.end;
        while in_flight.len() >= 8 || in_flight.values().any(overlaps) {
            process_completions(driven, &mut in_flight);
        }
        let (offset, len) = (range.start as u64, range.len());
        let (kind, data) = match random.below(16) {
            0 => (StoreOpKind::Flush, Vec::new()),
            1 => (StoreOpKind::Discard, Vec::new()),
            2 => (KEEP, Vec::new()),
            3 => (HOLE, Vec::new()),
            n @ 4..10 => (StoreOpKind::Write { fua: n == 4 }, random.bytes(len)),
            _ => (StoreOpKind::Read, Vec::new()),
        };
        let mut expected = None;
        match kind {
            StoreOpKind::Read => expected = Some(model[range.clone()].to_vec()),
            StoreOpKind::Write { .. } => model[range.clone()].copy_from_slice(&data),
            StoreOpKind::Discard | StoreOpKind::Zero { .. } => model[range.clone()].fill(0),
            StoreOpKind::Flush => {}
        }
        let tag = if kind == StoreOpKind::Flush {
            driven.submit(kind, 0, 0, &[])
        } else {
            driven.submit(kind, offset, len, &data)
        };
        in_flight.insert(tag, (range, expected));
    }
    while !in_flight.is_empty() {
        process_completions(driven, &mut in_flight);
    }
}

#[test]
fn random_operations_match_a_model_up_to_a_ragged_end() {
    let dir = TempDir::new().unwrap();
    for length in [1 << 20, 512 * 2047, 512 * 3, 512] {
        let path = image(&dir, length);
        on_each_kind(&path, |driven| {
            let mut model = std::fs::read(&path).unwrap();
            against_a_model(driven, &mut model, length);
            assert!(std::fs::read(&path).unwrap() == model, "the file is what was written");
        });
    }
}

#[test]
fn the_last_sector_of_a_ragged_file_is_written_and_read() {
    let dir = TempDir::new().unwrap();
    let length = 4096 * 5 + 512;
    let path = image(&dir, length);
    on_each_kind(&path, |driven| {
        let data = Random::new(1).bytes(4096 + 512);
        driven.write(length - 4608, &data).unwrap();
        assert_eq!(driven.read(length - 4608, 4608).unwrap(), data);
        driven.call(StoreOpKind::Write { fua: true }, length - 512, 512, &[9; 512]).unwrap();
        assert_eq!(driven.read(length - 512, 512).unwrap(), [9; 512]);
        let file = std::fs::read(&path).unwrap();
        assert_eq!(file.len() as u64, length);
        assert_eq!(file[file.len() - 512..], [9; 512]);
    });
}

#[test]
fn discard_and_zero_make_holes_that_read_as_zeros() {
    let dir = TempDir::new().unwrap();
    let path = image(&dir, 1 << 20);
    on_each_kind(&path, |driven| {
        for (kind, is_hole) in [(StoreOpKind::Discard, true), (HOLE, true), (KEEP, false)] {
            driven.write(0, &vec![7; 1 << 20]).unwrap();
            driven.call(StoreOpKind::Flush, 0, 0, &[]).unwrap();
            let blocks = || {
                use std::os::unix::fs::MetadataExt;
                std::fs::metadata(&path).unwrap().blocks()
            };
            let before = blocks();
            driven.call(kind, 64 << 10, 128 << 10, &[]).unwrap();
            assert_eq!(driven.read(64 << 10, 128 << 10).unwrap(), vec![0; 128 << 10]);
            assert_eq!(driven.read(0, 64 << 10).unwrap(), vec![7; 64 << 10]);
            assert_eq!(driven.read(192 << 10, 4096).unwrap(), vec![7; 4096]);
            assert_eq!(blocks() < before, is_hole, "{kind:?}: {before} sectors, then {}", blocks());
            if is_hole {
                let extent = driven.map.extent(64 << 10, 1 << 20);
                assert!(extent.hole && extent.len == 128 << 10, "{kind:?}: {extent:?}");
            }
        }
    });
}

#[test]
fn a_file_that_was_cut_is_short_and_stays_as_it_is() {
    let dir = TempDir::new().unwrap();
    let path = image(&dir, 1 << 20);
    on_each_kind(&path, |driven| {
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(100 << 10).unwrap();
        let is_short = |error: StoreError| {
            assert_eq!(error.kind, StoreErrorKind::Short, "{error}");
            for part in [path.to_str().unwrap(), "1048576", "102400"] {
                assert!(error.message.contains(part), "{part} in: {error}");
            }
        };
        is_short(driven.read(512 << 10, 8192).unwrap_err());
        is_short(driven.read(96 << 10, 8192).unwrap_err());
        is_short(driven.write(512 << 10, &[1; 8192]).unwrap_err());
        is_short(driven.call(KEEP, 512 << 10, 8192, &[]).unwrap_err());
        assert_eq!(driven.read(0, 4096).unwrap(), [0; 4096], "what is there can be read");
        assert_eq!(file.metadata().unwrap().len(), 100 << 10, "it is not made longer");
        file.set_len(1 << 20).unwrap();
        driven.write(512 << 10, &[1; 8192]).unwrap();
        file.write_all_at(&[0; 8192], 512 << 10).unwrap();
    });
}

#[test]
fn a_store_has_one_writer_under_all_its_names() {
    let dir = TempDir::new().unwrap();
    let path = image(&dir, 1 << 20);
    let (hard, soft) = (dir.path().join("hard"), dir.path().join("soft"));
    std::fs::hard_link(&path, &hard).unwrap();
    std::os::unix::fs::symlink(&path, &soft).unwrap();
    let writer = open(&path, OpenOptions::default(), clock()).unwrap();
    for name in [&path, &hard, &soft] {
        for read_only in [false, true] {
            match open_file(name, read_only) {
                Err(error @ OpenError::Claimed(_)) => {
                    assert!(error.to_string().contains(name.to_str().unwrap()), "{error}");
                }
                other => panic!("{} was opened twice: {other:?}", name.display()),
            }
        }
    }
    drop(writer);
    let one = open_file(&path, true).unwrap();
    let other = open_file(&hard, true).unwrap();
    assert!(one.geometry.read_only && other.geometry.read_only);
    assert!(matches!(open_file(&soft, false), Err(OpenError::Claimed(_))));
    drop((one, other));
    let locked = std::fs::File::open(&path).unwrap();
    locked.lock().unwrap();
    let busy = open_file(&soft, true).unwrap_err().to_string();
    assert!(busy.contains("this process uses it"), "by a program that is no Larder: {busy}");
    locked.unlock().unwrap();
    open_file(&soft, false).unwrap();
}

#[test]
fn what_cannot_be_served_is_refused_by_name() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str, length| {
        let path = dir.path().join(name);
        File::create_new(&path).unwrap().set_len(length).unwrap();
        path
    };
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let cases = [
        (dir.path().join("missing"), "No such file"),
        (dir.path().to_owned(), "it is a directory"),
        (file("empty", 0), "it is empty"),
        (file("odd", 1000), "1000 bytes, is not a multiple of 512"),
        (PathBuf::from("/dev/null"), "it is a character device"),
        (socket, "it is a socket"),
    ];
    for (path, reason) in cases {
        let error = open(&path, OpenOptions::default(), clock()).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()) && error.contains(reason), "{error}");
    }
}

#[test]
fn a_read_only_store_reads_and_refuses_to_write() {
    let dir = TempDir::new().unwrap();
    let path = image(&dir, 1 << 20);
    for plain in [false, true] {
        let options = OpenOptions { read_only: true, plain };
        let mut driven = DrivenStore::new(open(&path, options, clock()).unwrap());
        assert_eq!(driven.read(4096, 8192).unwrap(), [0; 8192]);
        for kind in [WRITE, KEEP, StoreOpKind::Discard] {
            let error = driven.call(kind, 0, 4096, &[1; 4096]).unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::ReadOnly, "{error}");
        }
    }
}

/// A small file system in memory, unmounted at the end.
struct Mounted(TempDir);

impl Mounted {
    fn new(bytes: u64) -> Option<Self> {
        let dir = TempDir::new().expect("a directory");
        let _guard = starting();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(dir.path())
            .output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Mounted(dir));
        }
        skip("cannot mount a tmpfs");
        None
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _guard = starting();
        let unmounted = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "the tmpfs is unmounted");
    }
}

#[test]
fn a_full_file_system_is_told_as_such() {
    let Some(mounted) = Mounted::new(256 << 10) else { return };
    let path = image(&mounted.0, 1 << 20);
    on_each_kind(&path, |driven| {
        driven.write(0, &vec![1; 64 << 10]).unwrap();
        let error = driven.write(64 << 10, &vec![2; 512 << 10]).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::NoSpace, "{error}");
        assert!(error.message.contains(path.to_str().unwrap()), "{error}");
        assert_eq!(driven.read(0, 64 << 10).unwrap(), vec![1; 64 << 10]);
        driven.call(StoreOpKind::Discard, 0, 1 << 20, &[]).unwrap();
        driven.write(0, &vec![3; 64 << 10]).unwrap();
    });
}

#[test]
fn without_direct_io_a_store_says_so_and_works() {
    let Some(mounted) = Mounted::new(8 << 20) else { return };
    let path = image(&mounted.0, 512 * 2047);
    let direct = rustix::fs::open(&path, OFlags::RDWR | OFlags::DIRECT, Mode::empty()).is_ok();
    let opened = open_file(&path, false).unwrap();
    let noted = opened.notes.iter().any(|note| note.contains("does not do direct I/O"));
    assert_eq!(noted, !direct, "{:?}", opened.notes);
    drop(opened);
    on_each_kind(&path, |driven| {
        let mut model = std::fs::read(&path).unwrap();
        against_a_model(driven, &mut model, 3);
        assert!(std::fs::read(&path).unwrap() == model, "the file is what was written");
    });
}

#[test]
fn the_map_tells_data_from_holes() {
    let dir = TempDir::new().unwrap();
    let path = image(&dir, 4 << 20);
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&vec![1; 65536], 1 << 20).unwrap();
    let map = FileMap::new(&open_file(&path, true).unwrap()).unwrap();
    let runs = |map: &dyn AllocationMap| {
        let (mut at, mut runs) = (0, Vec::new());
        while at < 4 << 20 {
            let extent = map.extent(at, (4 << 20) - at);
            assert!(extent.len > 0, "a run at {at}");
            runs.push((extent.len, extent.hole));
            at += extent.len;
        }
        runs
    };
    let rest = (3 << 20) - 65536;
    assert_eq!(runs(&map), [(1 << 20, true), (65536, false), (rest, true)]);
    assert_eq!(map.extent(512, 1024).len, 1024, "no more than was asked for");
    assert!(!map.extent((1 << 20) + 100, 10).hole);
    assert_eq!(runs(&SolidMap), [(4 << 20, false)]);
}

#[test]
fn a_store_that_is_dropped_waits_for_the_kernel() {
    let dir = TempDir::new().unwrap();
    let path = image(&dir, 4 << 20);
    let opened = open(&path, OpenOptions::default(), clock()).unwrap();
    if opened.notes.iter().any(|note| note.contains("io_uring")) {
        skip(opened.notes.join("; "));
        return;
    }
    let mut driven = DrivenStore::new(opened);
    for i in 0..32 {
        driven.submit(StoreOpKind::Read, i * 65536, 65536, &[]);
        let mut done = Vec::new();
        driven.store.reap(driven.clock.now(), &driven.frames, &mut done);
        for done in done {
            driven.settle(done).1.unwrap();
        }
    }
    let DrivenStore { store, frames, map, .. } = driven;
    drop(store);
    drop(frames);
    open_file(&path, false).expect("the lock is free, though the map lives");
    assert_eq!(map.extent(0, 512).len, 512);
}
