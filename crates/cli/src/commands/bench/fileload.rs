//! `larder bench fileload`: files read in order, at random, or like a database.

use super::leftovers::remove_leftovers;
use super::places::length;
use super::run_args::RunArgs;
use crate::args;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use larder_core::hint::Hint;
use larder_host::extents;
use larder_host::residency::files_below;
use larder_lab::bench::Start;
use larder_lab::bench::fileload::{FileSet, FileloadBench, ReadPattern};
use larder_lab::bench::fragments::{CONTIGUOUS, FRAGMENTED};
use larder_lab::workload::fileload::{DATABASE_READ_BYTES, FILE_BYTES, Order, READ_BYTES};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Unit of unbuffered reads.
const SECTOR_BYTES: u64 = 512;

#[derive(Debug, Args)]
pub(super) struct FileloadArgs {
    /// A directory, or files, one for each user.
    ///
    /// In a directory, a file is created for each user and removed. Several directories are sets of
    /// files, measured one after the other; so are the two directories that larder bench fragments
    /// creates.
    #[arg(value_name = "TARGET", required = true)]
    targets: Vec<PathBuf>,

    /// sequential, random or database.
    ///
    /// Order of the reads.
    #[arg(long, value_name = "MODE", default_value = "sequential", hide_possible_values = true)]
    mode: Mode,

    /// Bytes of a read; several are measured in turn.
    ///
    /// Several sizes are separated by commas. 8KiB, or 64KiB in database mode, if not given.
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = args::bytes)]
    read: Vec<u64>,

    /// Bytes of each file that are read.
    ///
    /// 100MiB of created files, else all of them, if not given.
    #[arg(long, value_name = "SIZE", value_parser = args::bytes)]
    size: Option<u64>,

    /// Users, each with a file of its own.
    ///
    /// 1 for created files, else one for each file, if not given.
    #[arg(long, value_name = "NUMBER", value_parser = 1..=1024)]
    users: Option<i64>,

    /// Reads in flight of each user.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = 1..=1024)]
    in_flight: i64,

    /// Reads by each user in a trial.
    ///
    /// As many as the file has room for, if not given.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    reads: Option<u64>,

    /// Advice to the kernel.
    ///
    /// Advice on the expected reads: normal (none), sequential, random, or no-buffering, which
    /// bypasses the page cache.
    #[arg(long, value_name = "HINT", default_value = "normal", value_parser = args::named::<Hint>)]
    hint: Hint,

    #[command(flatten)]
    run_args: RunArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// From the start to the end, repeatedly.
    Sequential,
    /// Random, uniformly distributed.
    Random,
    /// Nine of ten reads in four of eight regions, which stand for indexes.
    Database,
}

impl Mode {
    fn order(self) -> Order {
        match self {
            Mode::Sequential => Order::Sequential,
            Mode::Random => Order::Random,
            Mode::Database => Order::Database,
        }
    }

    /// Returns the default start. The original flushed the cache before sequential tests, and
    /// primed it with each file before the others; priming has no effect on reads that bypass it.
    fn start(self, hint: Hint) -> Start {
        let is_warm = self != Mode::Sequential && hint != Hint::NoBuffering;
        if is_warm { Start::Warm } else { Start::Cold }
    }
}

impl FileloadArgs {
    fn pattern(&self) -> Result<ReadPattern> {
        let read_bytes = match (&self.read[..], self.mode) {
            ([], Mode::Database) => vec![DATABASE_READ_BYTES],
            ([], _) => vec![READ_BYTES],
            (sizes, _) => sizes.to_vec(),
        };
        for (number, bytes) in read_bytes.iter().enumerate() {
            ensure!(
                !read_bytes[..number].contains(bytes),
                "read {bytes} bytes at a time: it is named twice"
            );
            let fits = self.hint != Hint::NoBuffering || bytes % SECTOR_BYTES == 0;
            ensure!(fits, "read {bytes} bytes past the page cache: no multiple of {SECTOR_BYTES}");
        }
        let in_flight = usize::try_from(self.in_flight).context("count reads in flight")?;
        let (order, reads, hint) = (self.mode.order(), self.reads, self.hint);
        Ok(ReadPattern { order, read_bytes, reads, in_flight, hint })
    }

    /// Returns the second of several targets.
    pub(super) fn second_target(&self) -> Option<&Path> {
        self.targets.get(1).map(PathBuf::as_path)
    }

    fn users(&self) -> Result<Option<usize>> {
        self.users.map(|users| usize::try_from(users).context("count users")).transpose()
    }

    /// Returns the bytes of all files; `default` is the size of each without --size.
    pub(super) fn bytes_or(&self, default: u64) -> Result<u64> {
        let users = self.users()?.unwrap_or(1) as u64;
        Ok(self.size.unwrap_or(default) * users)
    }

    /// Returns the same workload twice: on files that are created in one directory, and on the same
    /// files in a mount of it.
    pub(super) fn native_and_cached(
        &self,
        [native, mount]: [&Path; 2],
        default: u64,
    ) -> Result<[FileloadBench; 2]> {
        let pattern = self.pattern()?;
        ensure!(pattern.read_bytes.len() == 1, "run fileload here: name one --read");
        let (users, bytes) = (self.users()?.unwrap_or(1), self.size.unwrap_or(default));
        let set = FileSet::new(native, users, bytes, self.hint);
        let names =
            set.paths().into_iter().filter_map(|path| path.file_name().map(ToOwned::to_owned));
        let others: Vec<_> = names.map(|name| (mount.join(name), bytes)).collect();
        let other = FileSet::existing("", &others, Vec::new(), self.hint);
        Ok([
            FileloadBench::new(pattern.clone(), vec![set])?,
            FileloadBench::new(pattern, vec![other])?,
        ])
    }

    fn sets(&self) -> Result<Vec<FileSet>> {
        let kinds = self.targets.iter().map(|target| {
            let metadata = std::fs::metadata(target);
            metadata
                .map(|metadata| metadata.is_dir())
                .with_context(|| format!("find {}", target.display()))
        });
        let are_directories = kinds.collect::<Result<Vec<_>>>()?;
        if are_directories.iter().all(|is_directory| !is_directory) {
            return Ok(vec![self.set("", self.targets.clone(), None)?]);
        }
        if !are_directories.iter().all(|is_directory| *is_directory) {
            bail!("work on files and directories at once: name files, or directories");
        }
        if let [directory] = &self.targets[..] {
            let kinds = [FRAGMENTED, CONTIGUOUS].map(|kind| directory.join(kind));
            if kinds.iter().all(|kind| kind.is_dir()) {
                return self.directories(&kinds);
            }
            remove_leftovers(directory, "fileload");
            let users = self.users()?.unwrap_or(1);
            let bytes = self.size.unwrap_or(FILE_BYTES);
            return Ok(vec![FileSet::new(directory, users, bytes, self.hint)]);
        }
        self.directories(&self.targets)
    }

    /// Returns a set for each directory, named after the directory, all with the same number of
    /// users.
    fn directories(&self, directories: &[PathBuf]) -> Result<Vec<FileSet>> {
        let sets = directories.iter().map(|directory| {
            let files = files_below(directory)?;
            let name = directory.file_name().map(|name| name.to_string_lossy().into_owned());
            let shown = directory.display();
            ensure!(!files.is_empty(), "work on {shown}: there is no file in it");
            Ok((name.unwrap_or_else(|| shown.to_string()), files))
        });
        let sets = sets.collect::<Result<Vec<_>>>()?;
        let names: Vec<&str> = sets.iter().map(|(name, _)| name.as_str()).collect();
        for (number, name) in names.iter().enumerate() {
            ensure!(
                !names[..number].contains(name),
                "work on two directories that are called {name}"
            );
        }
        let fewest = sets.iter().map(|(_, files)| files.len()).min();
        let users = self.users()?.or(fewest);
        sets.into_iter().map(|(name, files)| self.set(&name, files, users)).collect()
    }

    /// Returns a set of existing files.
    fn set(&self, name: &str, mut paths: Vec<PathBuf>, users: Option<usize>) -> Result<FileSet> {
        if let Some(users) = self.users()?.or(users) {
            let available = paths.len();
            ensure!(users <= available, "work with {users} users: there are {available} files");
            paths.truncate(users);
        }
        let mut files = Vec::with_capacity(paths.len());
        for path in &paths {
            let file_bytes = length(path)?;
            let bytes = self.size.unwrap_or(file_bytes);
            ensure!(
                bytes <= file_bytes,
                "work on {bytes} bytes of {}: it has {file_bytes}",
                path.display()
            );
            files.push((path.clone(), bytes));
        }
        // If the count is unknown for one file, it is omitted for all: the counts are for
        // comparison.
        let piece_counts = paths.iter().map(|path| piece_count(path)).collect::<Option<_>>();
        Ok(FileSet::existing(name, &files, piece_counts.unwrap_or_default(), self.hint))
    }
}

/// Returns the number of pieces of a file on its disk, if it is known.
fn piece_count(path: &Path) -> Option<u64> {
    let file = File::open(path).ok()?;
    extents::of(&file).ok().map(|extents| extents::pieces(&extents))
}

pub(super) fn run(arguments: &FileloadArgs) -> Result<ExitCode> {
    let default_start = arguments.mode.start(arguments.hint);
    arguments.run_args.run("fileload", default_start, || {
        Ok(FileloadBench::new(arguments.pattern()?, arguments.sets()?)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_page_cache_answers_is_primed() {
        for mode in [Mode::Sequential, Mode::Random, Mode::Database] {
            assert_eq!(mode.start(Hint::NoBuffering), Start::Cold, "{mode:?}");
        }
        assert_eq!(Mode::Sequential.start(Hint::Random), Start::Cold);
        assert_eq!(Mode::Random.start(Hint::Normal), Start::Warm);
        assert_eq!(Mode::Database.start(Hint::Sequential), Start::Warm);
    }
}
