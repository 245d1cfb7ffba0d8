//! `larder bench fileload`: files read in order, at random, or as a database would.

use super::leftovers::clear_up;
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
use larder_lab::workload::fileload::{DATABASE_READ_BYTES, FILE_BYTES, Order, READ_BYTES};
use larder_lab::workload::fragments::{CONTIGUOUS, FRAGMENTED};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Past the page cache a read is a multiple of this.
const SECTOR_BYTES: u64 = 512;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// A directory, where a file is made for each user and removed; or files that are there, one for
    /// each user. Several directories are sets of files, measured one after the other; so are the two
    /// that larder bench fragments made in a directory.
    #[arg(value_name = "TARGET", required = true)]
    targets: Vec<PathBuf>,

    /// In which order the files are read.
    #[arg(long, value_name = "MODE", default_value = "sequential")]
    mode: Mode,

    /// Bytes of a read; several, separated by commas, are measured one after the other. 8KiB, or
    /// 64KiB in database mode, if not given.
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = args::bytes)]
    read: Vec<u64>,

    /// Bytes of each file that are read; 100MiB for files that are made, else all of them.
    #[arg(long, value_name = "SIZE", value_parser = args::bytes)]
    size: Option<u64>,

    /// Users, each with a file of its own; 1 where files are made, else one for each file.
    #[arg(long, value_name = "NUMBER", value_parser = 1..=1024)]
    users: Option<i64>,

    /// Reads that each user has in flight.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = 1..=1024)]
    in_flight: i64,

    /// Reads by each user in a trial; as many as the file has room for, if not given.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    reads: Option<u64>,

    /// What the kernel is told about the reads to come: normal (nothing), sequential, random, or
    /// no-buffering, which reads past the page cache.
    #[arg(long, value_name = "HINT", default_value = "normal", value_parser = args::hint)]
    hint: Hint,

    #[command(flatten)]
    playing: RunArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// From the start to the end, again and again.
    Sequential,
    /// Every read as likely as the other.
    Random,
    /// Nine of ten reads in the four of eight regions that stand for indexes.
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

    /// The cache was flushed before sequential tests, and primed with each file before the others,
    /// which makes no sense for those that go past it.
    fn start(self, hint: Hint) -> Start {
        let is_primed = self != Mode::Sequential && hint != Hint::NoBuffering;
        if is_primed { Start::Warm } else { Start::Cold }
    }
}

impl Arguments {
    fn manner(&self) -> Result<ReadPattern> {
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

    /// Bytes of all files, where `unsaid` holds for each if nothing was said.
    pub(super) fn bytes_or(&self, unsaid: u64) -> Result<u64> {
        let users = self.users()?.unwrap_or(1) as u64;
        Ok(self.size.unwrap_or(unsaid) * users)
    }

    /// The same work twice: on files that are made in one directory, and on those as they are seen in
    /// another.
    pub(super) fn twice(
        &self,
        [made, seen]: [&Path; 2],
        unsaid: u64,
    ) -> Result<[FileloadBench; 2]> {
        let manner = self.manner()?;
        ensure!(manner.read_bytes.len() == 1, "run fileload here: name one --read");
        let (users, bytes) = (self.users()?.unwrap_or(1), self.size.unwrap_or(unsaid));
        let set = FileSet::new(made, users, bytes, self.hint);
        let names =
            set.paths().into_iter().filter_map(|path| path.file_name().map(ToOwned::to_owned));
        let others: Vec<_> = names.map(|name| (seen.join(name), bytes)).collect();
        let other = FileSet::existing("", &others, Vec::new(), self.hint);
        Ok([
            FileloadBench::new(manner.clone(), vec![set])?,
            FileloadBench::new(manner, vec![other])?,
        ])
    }

    fn sets(&self) -> Result<Vec<FileSet>> {
        let kinds = self.targets.iter().map(|target| {
            let found = std::fs::metadata(target);
            found.map(|found| found.is_dir()).with_context(|| format!("find {}", target.display()))
        });
        let are_directories = kinds.collect::<Result<Vec<_>>>()?;
        if are_directories.iter().all(|is_directory| !is_directory) {
            return Ok(vec![self.set("", self.targets.clone(), None)?]);
        }
        if !are_directories.iter().all(|is_directory| *is_directory) {
            bail!("work on files and directories at once: name files, or directories");
        }
        if let [directory] = &self.targets[..] {
            let made = [FRAGMENTED, CONTIGUOUS].map(|kind| directory.join(kind));
            if made.iter().all(|kind| kind.is_dir()) {
                return self.directories(&made);
            }
            clear_up(directory, "fileload");
            let users = self.users()?.unwrap_or(1);
            let bytes = self.size.unwrap_or(FILE_BYTES);
            return Ok(vec![FileSet::new(directory, users, bytes, self.hint)]);
        }
        self.directories(&self.targets)
    }

    /// A set for each directory, called as the directory is, all with the same number of users.
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
        let least = sets.iter().map(|(_, files)| files.len()).min();
        let users = self.users()?.or(least);
        sets.into_iter().map(|(name, files)| self.set(&name, files, users)).collect()
    }

    /// A set of files that are there.
    fn set(&self, name: &str, mut paths: Vec<PathBuf>, users: Option<usize>) -> Result<FileSet> {
        if let Some(users) = self.users()?.or(users) {
            let found = paths.len();
            ensure!(users <= found, "work with {users} users: there are {found} files");
            paths.truncate(users);
        }
        let mut files = Vec::with_capacity(paths.len());
        for path in &paths {
            let has = length(path)?;
            let bytes = self.size.unwrap_or(has);
            ensure!(bytes <= has, "work on {bytes} bytes of {}: it has {has}", path.display());
            files.push((path.clone(), bytes));
        }
        // Where one cannot be told, none is: the numbers are for looking at them side by side.
        let pieces = paths.iter().map(|path| pieces(path)).collect::<Option<_>>();
        Ok(FileSet::existing(name, &files, pieces.unwrap_or_default(), self.hint))
    }
}

/// Of how many pieces a file is made on its disk, where that can be told.
fn pieces(path: &Path) -> Option<u64> {
    let file = File::open(path).ok()?;
    extents::of(&file).ok().map(|extents| extents::pieces(&extents))
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(code) = arguments.playing.lead("fileload")? {
        return Ok(code);
    }
    let mut bench = FileloadBench::new(arguments.manner()?, arguments.sets()?)?;
    let custom = arguments.mode.start(arguments.hint);
    arguments.playing.play_parts("fileload", &mut bench, custom)
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
