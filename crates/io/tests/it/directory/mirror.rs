//! The same random operations, on several threads, on a mounted directory and on a plain directory
//! of the same file system: the results, errors included, and the final contents must be the same.

use super::{MIB, Rule, Service, Setting, can_mount};
use crate::common::Random;
use larder_core::mode::WriteMode;
use larder_io::front::fuse::{FileOptions, KernelPages};
use rustix::fs::{
    Access, AtFlags, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One operation, chosen before it is performed in either directory.
#[derive(Clone, Debug)]
enum Step {
    Open { name: String, flags: OFlags, mode: u32 },
    Close(usize),
    Read { file: usize, at: u64, len: usize },
    Write { file: usize, at: u64, len: usize, seed: u8 },
    Append { file: usize, len: usize, seed: u8 },
    Truncate { file: usize, size: u64 },
    TruncateName { name: String, size: u64 },
    Fallocate { file: usize, flags: FallocateFlags, at: u64, len: u64 },
    Seek { file: usize, hole: bool, at: u64 },
    Sync { file: usize, data: bool },
    Copy { from: usize, to: usize, at: u64, to_at: u64, len: usize },
    Unlink(String),
    Mkdir(String),
    Rmdir(String),
    Rename { old: String, new: String, flags: RenameFlags },
    Link { old: String, new: String },
    Symlink { target: String, name: String },
    Readlink(String),
    Chmod { name: String, mode: u32 },
    Times { name: String, seconds: i64, nanos: i64 },
    SetAttribute { name: String, value: Vec<u8> },
    GetAttribute(String),
    Access { name: String, rights: Access },
    Stat(String),
    List(String),
}

/// Result of an operation.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Nothing,
    Number(u64),
    Bytes(Vec<u8>),
    Text(String),
}

fn bytes_of(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| seed.wrapping_add(u8::try_from(i * 7 % 251).expect("small"))).collect()
}

const NAMES: [&str; 7] = ["a", "b", "c", "d/a", "d/b", "e/a", "missing/a"];
const DIRECTORIES: [&str; 3] = ["d", "e", "d/f"];

fn size(random: &mut Random) -> u64 {
    let bits = random.below(22);
    random.below(1 << bits) as u64
}

fn step(random: &mut Random, files: usize) -> Step {
    let name = |random: &mut Random| NAMES[random.below(NAMES.len())].to_owned();
    let directory = |random: &mut Random| DIRECTORIES[random.below(DIRECTORIES.len())].to_owned();
    let seed = |random: &mut Random| u8::try_from(random.below(256)).expect("a byte");
    let access = [OFlags::RDONLY, OFlags::RDWR, OFlags::RDWR, OFlags::WRONLY];
    if files == 0 || random.below(10) == 0 {
        let mut flags = access[random.below(4)];
        flags.set(OFlags::CREATE, random.below(3) > 0);
        flags.set(OFlags::EXCL, random.below(8) == 0 && flags.contains(OFlags::CREATE));
        flags.set(OFlags::TRUNC, random.below(6) == 0);
        flags.set(OFlags::APPEND, random.below(8) == 0);
        flags.set(OFlags::DSYNC, random.below(12) == 0);
        return Step::Open { name: name(random), flags, mode: 0o600 | u32::from(seed(random)) };
    }
    let file = random.below(files);
    match random.below(49) {
        0..2 => Step::Close(file),
        2..12 => {
            let bits = random.below(18);
            let len = 1 + random.below(1 << bits);
            Step::Write { file, at: size(random), len, seed: seed(random) }
        }
        12..20 => Step::Read { file, at: size(random), len: 1 + random.below(300_000) },
        20 => Step::Append { file, len: 1 + random.below(20_000), seed: seed(random) },
        21..24 => Step::Truncate { file, size: size(random) },
        24 => Step::TruncateName { name: name(random), size: size(random) },
        25..28 => {
            let kinds = [
                FallocateFlags::empty(),
                FallocateFlags::KEEP_SIZE,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                FallocateFlags::ZERO_RANGE,
                FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
            ];
            let flags = kinds[random.below(kinds.len())];
            Step::Fallocate { file, flags, at: size(random), len: size(random) }
        }
        28..30 => Step::Seek { file, hole: random.below(2) == 0, at: size(random) },
        30 => Step::Sync { file, data: random.below(2) == 0 },
        31 => {
            let (to, len) = (random.below(files), 1 + random.below(100_000));
            Step::Copy { from: file, to, at: size(random), to_at: size(random), len }
        }
        32..34 => Step::Unlink(name(random)),
        34 => Step::Mkdir(directory(random)),
        35 => Step::Rmdir(directory(random)),
        36..38 => {
            let kinds = [RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE];
            let flags = kinds[random.below(4).min(2) % 3];
            Step::Rename { old: name(random), new: name(random), flags }
        }
        38 => Step::Link { old: name(random), new: name(random) },
        39 => Step::Symlink { target: name(random), name: name(random) },
        40 => Step::Readlink(name(random)),
        41 => Step::Chmod { name: name(random), mode: 0o600 | u32::from(seed(random)) },
        42 => {
            let seconds = i64::try_from(random.below(1 << 30)).expect("small");
            let nanos = i64::try_from(random.below(1_000_000_000)).expect("small");
            Step::Times { name: name(random), seconds, nanos }
        }
        43 => Step::SetAttribute { name: name(random), value: bytes_of(seed(random), 40) },
        44 => Step::GetAttribute(name(random)),
        45..47 => Step::Stat(name(random)),
        47 => {
            let rights = [Access::EXEC_OK, Access::EXISTS, Access::READ_OK | Access::WRITE_OK];
            Step::Access { name: name(random), rights: rights[random.below(3)] }
        }
        _ => Step::List(directory(random)),
    }
}

/// A directory with open files.
struct OpenFiles {
    root: PathBuf,
    files: Vec<OwnedFd>,
}

impl OpenFiles {
    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    #[expect(clippy::too_many_lines, reason = "an arm for each operation")]
    fn perform(&mut self, step: &Step) -> Result<Outcome, Errno> {
        let done = |result: Result<(), Errno>| result.map(|()| Outcome::Nothing);
        let number = |n: u64| Outcome::Number(n);
        match step {
            Step::Open { name, flags, mode } => {
                let mode = Mode::from_raw_mode(*mode);
                let file = rustix::fs::open(self.path(name), *flags | OFlags::CLOEXEC, mode)?;
                self.files.push(file);
                Ok(Outcome::Nothing)
            }
            Step::Close(file) => {
                // close(2) may report errors of writes; here there are none.
                drop(self.files.swap_remove(*file));
                Ok(Outcome::Nothing)
            }
            Step::Read { file, at, len } => {
                let mut bytes = vec![0xee; *len];
                let n = rustix::io::pread(&self.files[*file], &mut bytes, *at)?;
                bytes.truncate(n);
                Ok(Outcome::Bytes(bytes))
            }
            Step::Write { file, at, len, seed } => {
                let n = rustix::io::pwrite(&self.files[*file], &bytes_of(*seed, *len), *at)?;
                Ok(number(n as u64))
            }
            Step::Append { file, len, seed } => {
                rustix::fs::seek(&self.files[*file], SeekFrom::End(0))?;
                let n = rustix::io::write(&self.files[*file], &bytes_of(*seed, *len))?;
                Ok(number(n as u64))
            }
            Step::Truncate { file, size } => done(rustix::fs::ftruncate(&self.files[*file], *size)),
            Step::TruncateName { name, size } => {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                let file = rustix::fs::open(self.path(name), flags, Mode::empty())?;
                done(rustix::fs::ftruncate(file, *size))
            }
            Step::Fallocate { file, flags, at, len } => {
                done(rustix::fs::fallocate(&self.files[*file], *flags, *at, *len))
            }
            Step::Seek { file, hole, at } => {
                let to = if *hole { SeekFrom::Hole(*at) } else { SeekFrom::Data(*at) };
                // The file system chooses the positions of holes.
                match rustix::fs::seek(&self.files[*file], to) {
                    Ok(_) => Ok(Outcome::Nothing),
                    Err(Errno::NXIO) if !*hole => Ok(Outcome::Nothing),
                    Err(error) => Err(error),
                }
            }
            Step::Sync { file, data } => {
                let file = &self.files[*file];
                done(if *data { rustix::fs::fdatasync(file) } else { rustix::fs::fsync(file) })
            }
            Step::Copy { from, to, at, to_at, len } => {
                let (mut at, mut to_at) = (*at, *to_at);
                let (from, to) = (&self.files[*from], &self.files[*to]);
                let n =
                    rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut to_at), *len);
                n.map(|n| number(n as u64))
            }
            Step::Unlink(name) => done(rustix::fs::unlink(self.path(name))),
            Step::Mkdir(name) => done(rustix::fs::mkdir(self.path(name), Mode::RWXU)),
            Step::Rmdir(name) => done(rustix::fs::rmdir(self.path(name))),
            Step::Rename { old, new, flags } => {
                let (old, new, here) = (self.path(old), self.path(new), rustix::fs::CWD);
                done(rustix::fs::renameat_with(here, old, here, new, *flags))
            }
            Step::Link { old, new } => done(rustix::fs::link(self.path(old), self.path(new))),
            Step::Symlink { target, name } => done(rustix::fs::symlink(target, self.path(name))),
            Step::Readlink(name) => {
                let target = rustix::fs::readlink(self.path(name), Vec::new())?;
                Ok(Outcome::Bytes(target.into_bytes()))
            }
            Step::Chmod { name, mode } => {
                done(rustix::fs::chmod(self.path(name), Mode::from_raw_mode(*mode)))
            }
            Step::Times { name, seconds, nanos } => {
                let time = Timespec { tv_sec: *seconds, tv_nsec: *nanos };
                let times = Timestamps { last_access: time, last_modification: time };
                let (here, path) = (rustix::fs::CWD, self.path(name));
                done(rustix::fs::utimensat(here, path, &times, AtFlags::empty()))
            }
            Step::SetAttribute { name, value } => {
                let flags = rustix::fs::XattrFlags::empty();
                done(rustix::fs::setxattr(self.path(name), "user.test", value, flags))
            }
            Step::GetAttribute(name) => {
                let mut value = vec![0; 100];
                let n = rustix::fs::getxattr(self.path(name), "user.test", &mut value[..])?;
                value.truncate(n);
                Ok(Outcome::Bytes(value))
            }
            Step::Access { name, rights } => done(rustix::fs::access(self.path(name), *rights)),
            Step::Stat(name) => {
                let stat = rustix::fs::lstat(self.path(name))?;
                // The size of a directory depends on the file system and its history.
                let size = if stat.st_mode & 0o170_000 == 0o040_000 { 0 } else { stat.st_size };
                let attributes = (stat.st_mode, stat.st_nlink, size, stat.st_uid, stat.st_gid);
                Ok(Outcome::Text(format!("{attributes:?}")))
            }
            Step::List(name) => {
                let entries = fs::read_dir(self.path(name));
                let entries = entries.map_err(|e| Errno::from_io_error(&e).expect("an errno"))?;
                let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("it").file_name();
                let mut names: Vec<_> = entries.map(name).collect();
                names.sort();
                Ok(Outcome::Text(format!("{names:?}")))
            }
        }
    }
}

/// Returns everything in a directory: names with the results of stat(2) and of reads.
fn everything(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let metadata = fs::symlink_metadata(&path).expect("it is there");
            let is_directory = metadata.is_dir();
            let size = if is_directory { 0 } else { metadata.size() };
            let mut line = format!("{:o} {} links, {size}", metadata.mode(), metadata.nlink());
            if metadata.is_file() {
                let bytes = fs::read(&path).expect("a file");
                assert_eq!(bytes.len() as u64, size, "{} as stat(2) has it", path.display());
                let sum = bytes.iter().fold(0_u64, |sum, byte| {
                    sum.wrapping_mul(1_000_003).wrapping_add(u64::from(*byte))
                });
                write!(line, ", {sum:x}").expect("a string takes it");
            } else if metadata.is_symlink() {
                let target = fs::read_link(&path).expect("it");
                write!(line, ", to {}", target.display()).expect("a string takes it");
            }
            if is_directory {
                directories.push(path.clone());
            }
            all.insert(path.strip_prefix(root).expect("inside").to_owned(), line);
        }
    }
    all
}

/// Runs the steps of one thread in both directories.
fn run_thread(cached: PathBuf, plain: PathBuf, seed: u64, steps: usize) {
    let mut random = Random::new(seed);
    let mut directories = [cached, plain].map(|root| OpenFiles { root, files: Vec::new() });
    let mut log = Vec::new();
    for number in 0..steps {
        if directories[0].files.len() > 12 {
            let file = random.below(directories[0].files.len());
            for directory in &mut directories {
                drop(directory.files.swap_remove(file));
            }
        }
        let step = step(&mut random, directories[0].files.len());
        let [cached, plain] = directories.each_mut().map(|directory| directory.perform(&step));
        log.push(format!("{number}: {step:?} {:?}", plain.as_ref().map(|_| ())));
        let same = match (&cached, &plain) {
            (Ok(Outcome::Bytes(one)), Ok(Outcome::Bytes(other))) => one == other,
            (one, other) => one == other,
        };
        if !same {
            let head = log.len().saturating_sub(25);
            let text = log[head..].join("\n");
            let short = |outcome: &Result<Outcome, Errno>| match outcome {
                Ok(Outcome::Bytes(bytes)) => format!("{} bytes", bytes.len()),
                other => format!("{other:?}"),
            };
            if let (Ok(Outcome::Bytes(one)), Ok(Outcome::Bytes(other))) = (&cached, &plain) {
                let at = one.iter().zip(other).position(|(a, b)| a != b);
                eprintln!("seed {seed}: they differ at {at:?}");
            }
            let (cached, plain) = (short(&cached), short(&plain));
            panic!("seed {seed}: cached {cached}, plain {plain}\n{text}");
        }
    }
}

fn mirrored(setting: Setting, threads: u64, steps: usize, seed: u64) {
    let plain = tempfile::tempdir().expect("a directory");
    let service = Service::new(setting);
    std::thread::scope(|scope| {
        for i in 0..threads {
            let name = format!("t{i}");
            let (cached, plain) = (service.path(&name), plain.path().join(&name));
            fs::create_dir(&cached).expect("a directory");
            fs::create_dir(&plain).expect("a directory");
            scope.spawn(move || run_thread(cached, plain, seed + i, steps));
        }
    });
    let expected = everything(plain.path());
    let compare = |place: &str, found: BTreeMap<PathBuf, String>| {
        for (name, line) in &expected {
            let found_line = found.get(name);
            assert_eq!(found_line, Some(line), "{place}: {} differs", name.display());
        }
        assert_eq!(found.len(), expected.len(), "{place}: more names than there should be");
    };
    compare("through the mount", everything(service.at.path()));
    let source = service.end();
    compare("in the directory at the end", everything(source.path()));
}

#[test]
fn random_operations_of_threads_do_what_they_do_without_a_cache() {
    if !can_mount() {
        return;
    }
    for seed in [1000, 2000] {
        mirrored(Setting { memory: 32 * MIB, ..Setting::default() }, 8, 400, seed);
    }
}

#[test]
fn a_small_cache_changes_nothing() {
    if !can_mount() {
        return;
    }
    mirrored(Setting { memory: 8 * MIB, ..Setting::default() }, 4, 400, 3000);
}

#[test]
fn writing_through_changes_nothing() {
    if !can_mount() {
        return;
    }
    mirrored(Setting { mode: WriteMode::Through, ..Setting::default() }, 4, 300, 4000);
}

#[test]
fn nobody_else_being_let_in_changes_nothing() {
    if !can_mount() {
        return;
    }
    mirrored(Setting { private: true, ..Setting::default() }, 6, 400, 8000);
}

#[test]
fn plain_calls_and_no_time_to_live_change_nothing() {
    if !can_mount() {
        return;
    }
    let ttl = std::time::Duration::ZERO;
    mirrored(Setting { plain: true, ttl, ..Setting::default() }, 4, 300, 5000);
}

/// Rules for most of the names.
const RULES: [Rule; 3] = [
    Rule {
        glob: "a",
        files: FileOptions {
            uncached: true,
            kernel_pages: KernelPages::Off,
            pin: false,
            read_only: false,
        },
        mode: WriteMode::Back,
        page_blocks: 1,
    },
    Rule {
        glob: "t*/d/b",
        files: FileOptions {
            uncached: false,
            kernel_pages: KernelPages::Open,
            pin: false,
            read_only: false,
        },
        mode: WriteMode::Back,
        page_blocks: 4,
    },
    Rule {
        glob: "b",
        files: FileOptions {
            uncached: false,
            kernel_pages: KernelPages::Keep,
            pin: true,
            read_only: false,
        },
        mode: WriteMode::Through,
        page_blocks: 16,
    },
];

#[test]
fn rules_change_nothing_whatever_is_renamed_to_what() {
    if !can_mount() {
        return;
    }
    for seed in [6000, 7000] {
        mirrored(Setting { memory: 32 * MIB, rules: &RULES, ..Setting::default() }, 6, 400, seed);
    }
}
