//! Random operations on contents, mappings included, on several threads: the results must match a
//! plain model, on a mounted directory and on a plain directory of the same file system.
//!
//! A mapping may be accessed only where its file has bytes, so steps are generated from the model.
//! The content of a private mapping is compared right after a write to it: POSIX does not define
//! whether it shows later writes of others to the file. All of this runs in a separate process,
//! since a process that accesses a mapping of a file that it serves can deadlock.

use super::{MIB, Service, Setting, can_mount, elsewhere};
use crate::common::Random;
use larder_core::mode::WriteMode;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

const FILES: usize = 3;
const MAPS_MAX: usize = 4;
const PAGE: usize = 4096;
/// Maximum length of a file.
const LENGTH_MAX: usize = 600_000;

#[derive(Clone, Debug)]
enum Step {
    Write {
        file: usize,
        at: usize,
        len: usize,
        seed: u8,
    },
    Read {
        file: usize,
        at: usize,
        len: usize,
    },
    Truncate {
        file: usize,
        size: usize,
    },
    Fallocate {
        file: usize,
        flags: FallocateFlags,
        at: usize,
        len: usize,
    },
    Copy {
        from: usize,
        to: usize,
        at: usize,
        to_at: usize,
        len: usize,
    },
    Sync {
        file: usize,
        data: bool,
    },
    Reopen {
        file: usize,
        synchronous: bool,
    },
    Map {
        file: usize,
    },
    Unmap(usize),
    MapWrite {
        map: usize,
        at: usize,
        len: usize,
        seed: u8,
    },
    MapRead {
        map: usize,
        at: usize,
        len: usize,
    },
    MapSync {
        map: usize,
        wait: bool,
    },
    /// Maps a file privately, writes, and returns the whole content of the mapping.
    MapPrivate {
        file: usize,
        at: usize,
        len: usize,
        seed: u8,
    },
    /// Attempts an invalid mapping.
    MapInvalid {
        file: usize,
        case: usize,
    },
}

fn bytes_of(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| seed.wrapping_add(u8::try_from(i * 11 % 251).expect("small"))).collect()
}

/// The expected contents.
#[derive(Default)]
struct Model {
    files: [Vec<u8>; FILES],
    /// The file, and its length when it was mapped.
    maps: Vec<(usize, usize)>,
}

impl Model {
    /// Returns the length of the part of a mapping that may be accessed.
    fn reach(&self, map: usize) -> usize {
        let (file, len) = self.maps[map];
        len.min(self.files[file].len())
    }

    /// Writes bytes to a file, and extends it if needed.
    fn put(&mut self, file: usize, at: usize, bytes: &[u8]) {
        let whole = &mut self.files[file];
        whole.resize(whole.len().max(at + bytes.len()), 0);
        whole[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Returns the result of a read of a file.
    fn get(&self, file: usize, at: usize, len: usize) -> Vec<u8> {
        let whole = &self.files[file];
        let start = at.min(whole.len());
        whole[start..(at + len).clamp(start, whole.len())].to_vec()
    }

    fn step(&self, random: &mut Random) -> Step {
        let (file, seed) = (random.below(FILES), u8::try_from(random.below(256)).expect("a byte"));
        let place = |random: &mut Random| {
            let bits = random.below(20);
            random.below(1 << bits).min(LENGTH_MAX - 1)
        };
        let size = self.files[file].len();
        let range = |random: &mut Random, end: usize| {
            let at = random.below(end);
            (at, 1 + random.below((end - at).min(50_000)))
        };
        let map = if self.maps.is_empty() { None } else { Some(random.below(self.maps.len())) };
        let mapped = map.filter(|&map| self.reach(map) > 0);
        match (random.below(40), mapped) {
            (0..6, Some(map)) => {
                let (at, len) = range(random, self.reach(map));
                Step::MapWrite { map, at, len, seed }
            }
            (6..12, Some(map)) => {
                let (at, len) = range(random, self.reach(map));
                Step::MapRead { map, at, len }
            }
            (12, Some(map)) => Step::MapSync { map, wait: random.below(2) == 0 },
            (13, Some(map)) => Step::Unmap(map),
            (0..4 | 14..17, _) if size > 0 && self.maps.len() < MAPS_MAX => Step::Map { file },
            (17..19, _) if size > 0 => {
                let (at, len) = range(random, size);
                Step::MapPrivate { file, at, len, seed }
            }
            (19, _) => Step::MapInvalid { file, case: random.below(4) },
            (20..27, _) => {
                let (at, bits) = (place(random), random.below(17));
                let len = (1 + random.below(1 << bits)).min(LENGTH_MAX - at);
                Step::Write { file, at, len, seed }
            }
            (27..31, _) => Step::Read { file, at: place(random), len: 1 + random.below(200_000) },
            (31..33, _) => Step::Truncate { file, size: place(random) },
            (33..35, _) => {
                let kinds = [
                    FallocateFlags::empty(),
                    FallocateFlags::KEEP_SIZE,
                    FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    FallocateFlags::ZERO_RANGE,
                    FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
                ];
                let (flags, at) = (kinds[random.below(kinds.len())], place(random));
                let len = (1 + place(random)).min(LENGTH_MAX - at);
                Step::Fallocate { file, flags, at, len }
            }
            (35, _) => {
                let (to, to_at) = ((file + 1 + random.below(FILES - 1)) % FILES, place(random));
                let len = (1 + random.below(60_000)).min(LENGTH_MAX - to_at);
                Step::Copy { from: file, to, at: place(random), to_at, len }
            }
            (36, _) => Step::Reopen { file, synchronous: random.below(3) == 0 },
            _ => Step::Sync { file, data: random.below(2) == 0 },
        }
    }

    /// Performs a step; returns its expected result.
    fn perform(&mut self, step: &Step) -> Result<Vec<u8>, Errno> {
        match *step {
            Step::Write { file, at, len, seed } => self.put(file, at, &bytes_of(seed, len)),
            Step::Read { file, at, len } => return Ok(self.get(file, at, len)),
            Step::Truncate { file, size } => self.files[file].resize(size, 0),
            Step::Fallocate { file, flags, at, len } => {
                let whole = &mut self.files[file];
                if !flags.contains(FallocateFlags::KEEP_SIZE) {
                    whole.resize(whole.len().max(at + len), 0);
                }
                if flags.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
                    let end = (at + len).min(whole.len());
                    whole[at.min(end)..end].fill(0);
                }
            }
            Step::Copy { from, to, at, to_at, len } => {
                let bytes = self.get(from, at, len);
                if !bytes.is_empty() {
                    self.put(to, to_at, &bytes);
                }
            }
            Step::Map { file } => self.maps.push((file, self.files[file].len())),
            Step::Unmap(map) => {
                self.maps.swap_remove(map);
            }
            Step::MapWrite { map, at, len, seed } => {
                self.put(self.maps[map].0, at, &bytes_of(seed, len));
            }
            Step::MapRead { map, at, len } => return Ok(self.get(self.maps[map].0, at, len)),
            Step::MapPrivate { file, at, len, seed } => {
                let mut whole = self.files[file].clone();
                whole[at..at + len].copy_from_slice(&bytes_of(seed, len));
                return Ok(whole);
            }
            Step::MapInvalid { case: 0 | 1, .. } => return Err(Errno::ACCESS),
            Step::MapInvalid { .. } => return Err(Errno::INVAL),
            Step::MapSync { .. } | Step::Sync { .. } | Step::Reopen { .. } => {}
        }
        Ok(Vec::new())
    }
}

/// A mapping, which is removed when this is dropped.
struct Map {
    start: *mut u8,
    len: usize,
}

impl Map {
    fn new(file: &OwnedFd, len: usize, flags: MapFlags, writes: bool) -> Result<Map, Errno> {
        let protection = if writes { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, file, 0) }?;
        Ok(Map { start: start.cast(), len })
    }

    /// Returns the first `len` bytes, which the file must have.
    fn bytes(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.len.next_multiple_of(PAGE), "inside of the mapping");
        // SAFETY: that many bytes are mapped, and only this thread uses the mapping.
        unsafe { std::slice::from_raw_parts_mut(self.start, len) }
    }

    fn sync(&self, wait: bool) -> Result<(), Errno> {
        let flags = if wait { MsyncFlags::SYNC } else { MsyncFlags::ASYNC };
        // SAFETY: the range is exactly the mapping; the call changes nothing in it.
        unsafe { rustix::mm::msync(self.start.cast(), self.len, flags) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping, and no reference into it is left.
        unsafe { rustix::mm::munmap(self.start.cast(), self.len) }.expect("it is mapped");
    }
}

/// The open files of a directory, and mappings of them.
struct OpenFiles {
    root: PathBuf,
    files: Vec<OwnedFd>,
    maps: Vec<Map>,
}

impl OpenFiles {
    fn new(root: PathBuf) -> Self {
        fs::create_dir(&root).expect("a directory");
        let mut directory = OpenFiles { root, files: Vec::new(), maps: Vec::new() };
        directory.files = (0..FILES)
            .map(|file| directory.open(file, OFlags::RDWR | OFlags::CREATE).expect("a file"))
            .collect();
        directory
    }

    fn open(&self, file: usize, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = self.root.join(file.to_string());
        rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)
    }

    fn size(&self, file: usize) -> usize {
        let size = rustix::fs::fstat(&self.files[file]).expect("it is open").st_size;
        usize::try_from(size).expect("no file is longer")
    }

    /// Performs a step; `reach` is the accessible length of its mapping.
    fn perform(&mut self, step: &Step, reach: usize) -> Result<Vec<u8>, Errno> {
        match *step {
            Step::Write { file, at, len, seed } => {
                let n = rustix::io::pwrite(&self.files[file], &bytes_of(seed, len), at as u64)?;
                assert_eq!(n, len, "all of it is written");
            }
            Step::Read { file, at, len } => {
                let mut bytes = vec![0xee; len];
                let n = rustix::io::pread(&self.files[file], &mut bytes, at as u64)?;
                bytes.truncate(n);
                return Ok(bytes);
            }
            Step::Truncate { file, size } => {
                rustix::fs::ftruncate(&self.files[file], size as u64)?;
            }
            Step::Fallocate { file, flags, at, len } => {
                rustix::fs::fallocate(&self.files[file], flags, at as u64, len as u64)?;
            }
            Step::Copy { from, to, at, to_at, len } => {
                let (mut at, mut to_at) = (at as u64, to_at as u64);
                let (from, to) = (&self.files[from], &self.files[to]);
                rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut to_at), len)?;
            }
            Step::Sync { file, data: true } => rustix::fs::fdatasync(&self.files[file])?,
            Step::Sync { file, data: false } => rustix::fs::fsync(&self.files[file])?,
            Step::Reopen { file, synchronous } => {
                let mut flags = OFlags::RDWR;
                flags.set(OFlags::DSYNC, synchronous);
                self.files[file] = self.open(file, flags)?;
            }
            Step::Map { file } => {
                let map = Map::new(&self.files[file], self.size(file), MapFlags::SHARED, true)?;
                self.maps.push(map);
            }
            Step::Unmap(map) => drop(self.maps.swap_remove(map)),
            Step::MapWrite { map, at, len, seed } => {
                self.maps[map].bytes(reach)[at..at + len].copy_from_slice(&bytes_of(seed, len));
            }
            Step::MapRead { map, at, len } => {
                return Ok(self.maps[map].bytes(reach)[at..at + len].to_vec());
            }
            Step::MapSync { map, wait } => self.maps[map].sync(wait)?,
            Step::MapPrivate { file, at, len, seed } => {
                let size = self.size(file);
                let mut map = Map::new(&self.files[file], size, MapFlags::PRIVATE, true)?;
                let bytes = map.bytes(size);
                bytes[at..at + len].copy_from_slice(&bytes_of(seed, len));
                return Ok(bytes.to_vec());
            }
            Step::MapInvalid { file, case } => {
                let (flags, len, writes, shared) = match case {
                    0 => (OFlags::RDONLY, PAGE, true, MapFlags::SHARED),
                    1 => (OFlags::WRONLY, PAGE, false, MapFlags::PRIVATE),
                    2 => (OFlags::RDWR, 0, true, MapFlags::SHARED),
                    _ => (OFlags::RDWR, 0, false, MapFlags::PRIVATE),
                };
                Map::new(&self.open(file, flags)?, len, shared, writes)?;
            }
        }
        Ok(Vec::new())
    }

    /// Returns the first file that differs from the model.
    fn differs(root: &Path, model: &Model) -> Option<usize> {
        let content = |file: &usize| fs::read(root.join(file.to_string())).expect("a file");
        (0..FILES).find(|file| content(file) != model.files[*file])
    }
}

/// Runs the steps of one thread.
fn run_thread(cached: PathBuf, plain: PathBuf, seed: u64, steps: usize) {
    let mut random = Random::new(seed);
    let mut directories = [("cached", OpenFiles::new(cached)), ("plain", OpenFiles::new(plain))];
    let mut model = Model::default();
    let mut log = Vec::new();
    for number in 0..steps {
        let step = model.step(&mut random);
        log.push(format!("{number}: {step:?}"));
        let reach = match step {
            Step::MapWrite { map, .. } | Step::MapRead { map, .. } => model.reach(map),
            _ => 0,
        };
        let expected = model.perform(&step);
        for (name, directory) in &mut directories {
            let found = directory.perform(&step, reach);
            let sizes: Vec<_> = (0..FILES).map(|file| directory.size(file)).collect();
            let right = model.files.iter().map(Vec::len).eq(sizes.iter().copied());
            if found != expected || !right {
                let mut places = found.iter().flatten().zip(expected.iter().flatten());
                let place = places.position(|(a, b)| a != b);
                let short = |of: &Result<Vec<u8>, Errno>| of.as_ref().map(Vec::len).map_err(|e| *e);
                let (found, expected) = (short(&found), short(&expected));
                let head = log.len().saturating_sub(30);
                let text = log[head..].join("\n");
                panic!(
                    "seed {seed}, {name}: {found:?} instead of {expected:?}, first at {place:?}, \
                     sizes {sizes:?}\n{text}"
                );
            }
        }
    }
    for (name, directory) in directories {
        let OpenFiles { root, files, maps } = directory;
        drop((files, maps));
        assert_eq!(OpenFiles::differs(&root, &model), None, "seed {seed}, {name} in the end");
    }
}

/// The part of the test that another process runs: threads, each in its own directory.
#[test]
fn part_of_another_process() {
    let Some(words) = elsewhere::arguments("mapped") else { return };
    let [cached, plain, threads, steps, seed] = words.as_slice() else { panic!("{words:?}") };
    let number = |word: &str| word.parse::<u64>().expect("a number");
    let steps = usize::try_from(number(steps)).expect("few");
    std::thread::scope(|scope| {
        for i in 0..number(threads) {
            let [cached, plain] = [cached, plain].map(|root| Path::new(root).join(i.to_string()));
            let seed = number(seed) + i;
            scope.spawn(move || run_thread(cached, plain, seed, steps));
        }
    });
}

fn mirrored(setting: Setting, threads: u64, steps: usize, seed: u64) {
    let plain = tempfile::tempdir().expect("a directory");
    let service = Service::new(setting);
    let [cached, other] = [service.at.path(), plain.path()].map(|path| path.display().to_string());
    let numbers = [threads, steps as u64, seed].map(|number| number.to_string());
    let words = [vec![cached, other], numbers.to_vec()].concat();
    elsewhere::run("mapped", "directory::mapped::part_of_another_process", &words);
    let source = service.end();
    for (thread, file) in (0..threads).flat_map(|i| (0..FILES).map(move |file| (i, file))) {
        let name = format!("{thread}/{file}");
        let [behind, expected] = [source.path(), plain.path()].map(|root| root.join(&name));
        let [behind, expected] = [behind, expected].map(|path| fs::read(path).expect("a file"));
        let place = behind.iter().zip(&expected).position(|(a, b)| a != b);
        let same = behind == expected;
        let sizes = (behind.len(), expected.len());
        assert!(same, "{name} in the directory behind, seed {seed}: {place:?} of {sizes:?}");
    }
}

#[test]
fn mappings_of_threads_hold_what_a_plain_model_has() {
    if !can_mount() {
        return;
    }
    for seed in [10_000, 20_000] {
        mirrored(Setting { memory: 32 * MIB, ..Setting::default() }, 8, 400, seed);
    }
}

#[test]
fn mappings_in_a_small_cache_hold_the_same() {
    if !can_mount() {
        return;
    }
    mirrored(Setting { memory: 8 * MIB, ..Setting::default() }, 8, 300, 30_000);
}

#[test]
fn mappings_of_what_is_written_through_hold_the_same() {
    if !can_mount() {
        return;
    }
    mirrored(Setting { mode: WriteMode::Through, ..Setting::default() }, 4, 200, 40_000);
}
