//! Fileload on a machine: users that each read a file in order, at random, or like a database;
//! several sets of files and several read sizes, one after the other.
//!
//! [`crate::workload::fileload`] chooses the offsets; this module performs the reads. A user has
//! one open file and keeps a fixed number of reads of it in flight, which complete in any order. A
//! trial is the same number of reads for each user, and ends when the last one completes. Each set
//! with each read size is a part of the run with its own starts. Sizes are bytes, times are
//! nanoseconds.

use super::error::BenchError;
use super::target::{Buffering, OpenTarget, Target, TargetPath, TargetSource};
use super::worker_pool;
use super::workload::{
    Outcome, Series, Space, StartState, TrialContext, WorkPart, Workload, parameters,
};
use crate::workload::fileload::{FileTooSmall, Fileload, Order};
use larder_core::counters::{Histogram, HistogramSnapshot};
use larder_core::hint::Hint;
use larder_schema::format;
use larder_schema::run::Direction;
use rustix::fs::Advice;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The way in which the files are read.
#[derive(Clone, Debug)]
pub struct ReadPattern {
    /// The order of the reads.
    pub order: Order,
    /// Bytes of a read; each makes a part of the run. Not empty.
    pub read_bytes: Vec<u64>,
    /// Reads of a trial by each user; `None` for as many as the file has room for.
    pub reads: Option<u64>,
    /// Reads that each user has in flight; at least 1.
    pub in_flight: usize,
    /// The hint given to the kernel when a file is opened; `NoBuffering` bypasses the page cache.
    pub hint: Hint,
}

/// Files that are measured together: one for each user.
#[derive(Debug)]
pub struct FileSet {
    /// The name in results; empty if there is only one set.
    name: String,
    files: Vec<TargetPath>,
    /// Extents of each file on the disk; empty if unknown.
    pieces: Vec<u64>,
}

fn buffering(hint: Hint) -> Buffering {
    if hint == Hint::NoBuffering { Buffering::Unbuffered } else { Buffering::Buffered }
}

impl FileSet {
    /// Returns a set of existing files and their sizes, which are only read. `pieces` has the
    /// number of extents of each file on the disk, and is empty if that is unknown.
    #[must_use]
    pub fn existing(name: &str, files: &[(PathBuf, u64)], pieces: Vec<u64>, hint: Hint) -> Self {
        let file = |(path, bytes): &(PathBuf, u64)| {
            TargetPath::existing(path, *bytes, buffering(hint), false)
        };
        FileSet { name: name.to_owned(), files: files.iter().map(file).collect(), pieces }
    }

    /// Returns a set with one file of `bytes` bytes for each user, created in this directory and
    /// removed at the end.
    #[must_use]
    pub fn new(directory: &Path, users: usize, bytes: u64, hint: Hint) -> Self {
        let process = std::process::id();
        let file = |user| {
            let path = directory.join(format!("larder-fileload-{process}-{user}"));
            TargetPath::new(&path, bytes, buffering(hint))
        };
        let files = (1..=users).map(file).collect();
        FileSet { name: String::new(), files, pieces: Vec::new() }
    }

    /// Returns the paths of its files, which may not exist yet.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.files.iter().flat_map(TargetSource::paths).collect()
    }
}

/// A Fileload run over all its sets.
#[derive(Debug)]
pub struct FileloadBench {
    pattern: ReadPattern,
    sets: Vec<FileSet>,
    /// The set and the read size of the selected part.
    set: usize,
    read_bytes: u64,
}

impl FileloadBench {
    /// Returns a run over these sets, one after the other.
    ///
    /// # Errors
    /// A file is too small for its reads.
    ///
    /// # Panics
    /// Without files, read sizes, or reads in flight.
    pub fn new(pattern: ReadPattern, sets: Vec<FileSet>) -> Result<Self, FileTooSmall> {
        assert!(!sets.is_empty() && sets.iter().all(|set| !set.files.is_empty()), "files");
        assert!(!pattern.read_bytes.is_empty() && pattern.in_flight > 0, "a pattern without reads");
        for file in sets.iter().flat_map(|set| &set.files) {
            for &read_bytes in &pattern.read_bytes {
                Fileload::new(pattern.order, file.bytes(), read_bytes)?;
            }
        }
        let read_bytes = pattern.read_bytes[0];
        Ok(FileloadBench { pattern, sets, set: 0, read_bytes })
    }

    fn order_name(&self) -> &'static str {
        match self.pattern.order {
            Order::Sequential => "sequential",
            Order::Random => "random",
            Order::Database => "database",
        }
    }

    fn set(&self) -> &FileSet {
        &self.sets[self.set]
    }

    /// Returns `name` with the name of the set, if there are several.
    fn named(&self, name: &str) -> String {
        let set = &self.set().name;
        if set.is_empty() { name.to_owned() } else { format!("{name}, {set}") }
    }
}

impl Workload for FileloadBench {
    fn name(&self) -> &'static str {
        "fileload"
    }

    fn parts(&self) -> Vec<WorkPart> {
        vec![WorkPart::default(); self.sets.len() * self.pattern.read_bytes.len()]
    }

    fn select_part(&mut self, number: usize) -> Result<(), BenchError> {
        let sizes = self.pattern.read_bytes.len();
        (self.set, self.read_bytes) = (number / sizes, self.pattern.read_bytes[number % sizes]);
        Ok(())
    }

    fn description(&self) -> String {
        let sizes = self.pattern.read_bytes.iter().map(|bytes| format::bytes(*bytes));
        let users = self.sets[0].files.len();
        let hint = match self.pattern.hint {
            Hint::Normal => "no hint".to_owned(),
            hint => format!("hint {}", hint.name()),
        };
        format!(
            "Fileload: {}, reads of {}, {} in flight by each of {users} user{}, {hint}",
            self.order_name(),
            sizes.collect::<Vec<_>>().join(", "),
            self.pattern.in_flight,
            if users == 1 { "" } else { "s" },
        )
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        let by_set = |value: &dyn Fn(&FileSet) -> Value| match &self.sets[..] {
            [set] => value(set),
            sets => sets.iter().map(|set| (set.name.clone(), value(set))).collect(),
        };
        let bytes = |set: &FileSet| set.files.iter().map(TargetSource::bytes).collect();
        let mut settings = parameters(json!({
            "order": self.order_name(),
            "users": self.set().files.len(),
            "file_bytes": by_set(&bytes),
            "read_bytes": self.pattern.read_bytes,
            "reads": self.pattern.reads,
            "in_flight": self.pattern.in_flight,
            "hint": self.pattern.hint.name(),
        }));
        if self.sets.iter().any(|set| !set.pieces.is_empty()) {
            settings.insert("extents".to_owned(), by_set(&|set| json!(set.pieces)));
        }
        settings
    }

    fn series(&self) -> Vec<Series> {
        let series = |(name, unit, better): (&str, &str, Direction)| {
            let series = Series::new(self.named(name), unit, Some(better));
            #[expect(clippy::cast_precision_loss, reason = "a read is shorter than 2^53 bytes")]
            let read_bytes = self.read_bytes as f64;
            if self.pattern.read_bytes.len() == 1 {
                series
            } else {
                series.at(&[("read_bytes", read_bytes)])
            }
        };
        [
            ("throughput", "bytes/s", Direction::Higher),
            ("reads", "reads/s", Direction::Higher),
            ("response time", "ns", Direction::Lower),
        ]
        .map(series)
        .into()
    }

    fn space(&self) -> Vec<Space> {
        // The files are in one directory, so their space is needed at the same time.
        let mut spaces: Vec<Space> = Vec::new();
        for space in self.set().files.iter().flat_map(TargetSource::space) {
            match spaces.iter_mut().find(|known| known.directory == space.directory) {
                Some(known) => known.bytes += space.bytes,
                None => spaces.push(space),
            }
        }
        spaces
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.set().paths()
    }

    fn prepare(&mut self, context: &TrialContext<'_>) -> Result<(), BenchError> {
        let files = &mut self.sets[self.set].files;
        files.iter_mut().try_for_each(|file| file.prepare(context))
    }

    fn start_state(&mut self) -> StartState<'_> {
        StartState::Files(self.paths())
    }

    fn trial(&mut self, context: &TrialContext<'_>) -> Result<Outcome, BenchError> {
        let pattern = &self.pattern;
        let (files, in_flight) = (self.set().files.iter(), pattern.in_flight);
        let users = files
            .zip(context.seed..)
            .map(|(file, seed)| User::new(pattern, file, self.read_bytes, seed))
            .collect::<Result<Vec<_>, _>>()?;
        let reads: u64 = users.iter().map(|user| user.reads).sum();
        let mut readers = Vec::with_capacity(users.len() * in_flight);
        for user in &users {
            for _ in 0..in_flight {
                readers.push(user.reader()?);
            }
        }
        let phases =
            worker_pool::run(context, &["read"], &mut readers, |reader, _| reader.work(context))?;
        let mut times = HistogramSnapshot::default();
        for reader in &readers {
            reader.times.add_to(&mut times);
        }
        assert_eq!(times.count(), reads, "every read is answered once");
        let took = phases[0].duration_ns.max(1);
        let mut outcome = Outcome { phases, ..Outcome::default() };
        #[expect(clippy::cast_precision_loss, reason = "counts and times stay below 2^53")]
        let values = [
            (reads * self.read_bytes) as f64 * 1e9 / took as f64,
            reads as f64 * 1e9 / took as f64,
            times.sum() as f64 / reads as f64,
        ];
        let names = self.series().into_iter().map(|series| series.name);
        outcome.values = names.zip(values).collect();
        let what = match pattern.read_bytes.len() {
            1 => self.named("reads"),
            _ => format!("{} of {}", self.named("reads"), format::bytes(self.read_bytes)),
        };
        outcome.latencies.push((what, times));
        Ok(outcome)
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        let files = self.sets.iter_mut().flat_map(|set| &mut set.files);
        // All files are removed if possible; the first error is returned.
        files.map(TargetSource::clean_up).fold(Ok(()), Result::and)
    }
}

/// A user of a trial: an open file, and the offsets that remain to be read.
struct User {
    file: File,
    buffering: Buffering,
    read_len: usize,
    /// Reads of the trial.
    reads: u64,
    remaining: Mutex<RemainingReads>,
}

/// Reads that remain for all readers of a user.
struct RemainingReads {
    offsets: Box<dyn Iterator<Item = u64> + Send>,
    count: u64,
}

/// A reader that has one read in flight at a time.
struct Reader<'a> {
    user: &'a User,
    target: OpenTarget,
    buffer: Vec<u8>,
    times: Histogram,
}

impl User {
    fn new(
        pattern: &ReadPattern,
        source: &TargetPath,
        read_bytes: u64,
        seed: u64,
    ) -> Result<Self, BenchError> {
        let file = source.open_file()?;
        let advice = match pattern.hint {
            Hint::Normal | Hint::NoBuffering => Advice::Normal,
            Hint::Sequential => Advice::Sequential,
            Hint::Random => Advice::Random,
        };
        let what = || format!("tell the kernel how {} will be read", source.path().display());
        rustix::fs::fadvise(&file, 0, None, advice)
            .map_err(|error| BenchError::io(what())(error.into()))?;
        let load = Fileload::new(pattern.order, source.bytes(), read_bytes)
            .map_err(|error| BenchError::Failed(error.to_string()))?;
        let reads = pattern.reads.unwrap_or(load.reads());
        let read_len = usize::try_from(read_bytes)
            .map_err(|error| BenchError::Failed(format!("make room for a read: {error}")))?;
        let remaining = RemainingReads { offsets: Box::new(load.offsets(seed)), count: reads };
        let remaining = Mutex::new(remaining);
        Ok(User { file, buffering: buffering(pattern.hint), read_len, reads, remaining })
    }

    /// Returns a reader with the same open file, so that the kernel sees one stream per user.
    fn reader(&self) -> Result<Reader<'_>, BenchError> {
        let file = self.file.try_clone().map_err(BenchError::io("open a file once more"))?;
        Ok(Reader {
            user: self,
            target: OpenTarget::over(file, self.buffering),
            buffer: vec![0; self.read_len],
            times: Histogram::default(),
        })
    }

    /// Returns the offset of the next read, or `None` when all have been started.
    fn next(&self) -> Option<u64> {
        let mut remaining = self.remaining.lock().unwrap_or_else(PoisonError::into_inner);
        remaining.count = remaining.count.checked_sub(1)?;
        remaining.offsets.next()
    }
}

impl Reader<'_> {
    fn work(&mut self, context: &TrialContext<'_>) -> Result<(), BenchError> {
        while let Some(offset) = self.user.next() {
            context.check()?;
            let begun_at = context.now();
            if let Err(error) = self.target.read_at(offset, &mut self.buffer) {
                let what = format!("read {} bytes at {offset}", self.buffer.len());
                return Err(BenchError::io(what)(error));
            }
            self.times.record(context.now() - begun_at);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
