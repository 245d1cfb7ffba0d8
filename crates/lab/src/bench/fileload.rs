//! Fileload on a machine: users who read files of their own in order, at random, or as a database
//! would; several sets of files and several read sizes, one after the other.
//!
//! Which places are read comes from [`crate::workload::fileload`]; this file only does it. A user
//! has one open file and keeps so many reads of it in flight; they are completed in whatever order
//! the system answers. A trial is the same number of reads for each user, and ends when the last
//! one is answered. Each set with each read size is a part of the run with starts of its own.
//! Sizes are bytes, times are nanoseconds.

use super::error::BenchError;
use super::parts::InParts;
use super::target::{AtFile, AtPath, Buffering, Place, Target};
use super::worker_pool;
use super::workload::{Outcome, Series, Space, StartState, TrialContext, Workload};
use crate::workload::fileload::{FileTooSmall, Fileload, Order};
use larder_core::counters::{Histogram, HistogramSnapshot};
use larder_core::hint::Hint;
use larder_report::format;
use larder_report::run::Direction;
use rustix::fs::Advice;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const THROUGHPUT: &str = "throughput";
const READS: &str = "reads";
const ANSWER: &str = "answer time";

/// How the files are read.
#[derive(Clone, Debug)]
pub struct ReadPattern {
    /// In which order.
    pub order: Order,
    /// Bytes of a read; each makes a part of the run. Not empty.
    pub read_bytes: Vec<u64>,
    /// Reads of a trial by each user; none for as many as the file has room for.
    pub reads: Option<u64>,
    /// Reads that each user has in flight; at least 1.
    pub in_flight: usize,
    /// What the kernel is told when a file is opened; `NoBuffering` reads past the page cache.
    pub hint: Hint,
}

/// Files that are measured together: one for each user.
#[derive(Debug)]
pub struct FileSet {
    /// What it is called in results; empty if there is only one.
    name: String,
    files: Vec<AtPath>,
    /// Pieces on the disk of each file, where they are known.
    pieces: Vec<u64>,
}

fn buffering(hint: Hint) -> Buffering {
    if hint == Hint::NoBuffering { Buffering::Unbuffered } else { Buffering::Buffered }
}

impl FileSet {
    /// Files of so many bytes that are there; they are only read. `pieces` says of how many pieces
    /// each is made on the disk; empty where that is not known.
    #[must_use]
    pub fn existing(name: &str, files: &[(PathBuf, u64)], pieces: Vec<u64>, hint: Hint) -> Self {
        let place =
            |(path, bytes): &(PathBuf, u64)| AtPath::existing(path, *bytes, buffering(hint), false);
        FileSet { name: name.to_owned(), files: files.iter().map(place).collect(), pieces }
    }

    /// A file of so many bytes for each user, made in this directory and removed at the end.
    #[must_use]
    pub fn new(directory: &Path, users: usize, bytes: u64, hint: Hint) -> Self {
        let process = std::process::id();
        let place = |user| {
            let path = directory.join(format!("larder-fileload-{process}-{user}"));
            AtPath::new(&path, bytes, buffering(hint))
        };
        let files = (1..=users).map(place).collect();
        FileSet { name: String::new(), files, pieces: Vec::new() }
    }

    /// Where its files are, or will be.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.files.iter().flat_map(Place::paths).collect()
    }
}

/// The whole run.
#[derive(Debug)]
pub struct FileloadBench {
    manner: ReadPattern,
    sets: Vec<FileSet>,
}

impl FileloadBench {
    /// These sets, one after the other.
    ///
    /// # Errors
    /// A file is too small for its reads.
    ///
    /// # Panics
    /// Without files, read sizes, or reads in flight.
    pub fn new(manner: ReadPattern, sets: Vec<FileSet>) -> Result<Self, FileTooSmall> {
        assert!(!sets.is_empty() && sets.iter().all(|set| !set.files.is_empty()), "files");
        assert!(!manner.read_bytes.is_empty() && manner.in_flight > 0, "somebody reads");
        for file in sets.iter().flat_map(|set| &set.files) {
            for &read_bytes in &manner.read_bytes {
                Fileload::new(manner.order, file.bytes(), read_bytes)?;
            }
        }
        Ok(FileloadBench { manner, sets })
    }

    fn order_name(&self) -> &'static str {
        match self.manner.order {
            Order::Sequential => "sequential",
            Order::Random => "random",
            Order::Database => "database",
        }
    }
}

impl InParts for FileloadBench {
    fn description(&self) -> String {
        let sizes = self.manner.read_bytes.iter().map(|bytes| format::bytes(*bytes));
        let sizes: Vec<String> = sizes.collect();
        let users = self.sets[0].files.len();
        let hint = match self.manner.hint {
            Hint::Normal => "no hint".to_owned(),
            hint => format!("hint {}", hint.name()),
        };
        format!(
            "Fileload: {}, reads of {}, {} in flight by each of {users} user{}, {hint}",
            self.order_name(),
            sizes.join(", "),
            self.manner.in_flight,
            if users == 1 { "" } else { "s" },
        )
    }

    fn parts(&self) -> usize {
        self.sets.len() * self.manner.read_bytes.len()
    }

    fn part(&mut self, number: usize) -> Box<dyn Workload + '_> {
        let sizes = self.manner.read_bytes.len();
        Box::new(Part {
            set: number / sizes,
            read_bytes: self.manner.read_bytes[number % sizes],
            whole: self,
        })
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        let files = self.sets.iter_mut().flat_map(|set| &mut set.files);
        // All of them are tried; the first error is told.
        files.map(Place::clean_up).fold(Ok(()), Result::and)
    }
}

/// One set with one read size.
struct Part<'a> {
    whole: &'a mut FileloadBench,
    set: usize,
    read_bytes: u64,
}

impl Part<'_> {
    fn set(&self) -> &FileSet {
        &self.whole.sets[self.set]
    }

    /// A name with what tells this part from the others.
    fn named(&self, name: &str) -> String {
        let set = &self.set().name;
        if set.is_empty() { name.to_owned() } else { format!("{name}, {set}") }
    }

    fn one(&self, name: &str, unit: &str, better: Direction) -> Series {
        let series = Series::new(self.named(name), unit, Some(better));
        if self.whole.manner.read_bytes.len() == 1 {
            return series;
        }
        #[expect(clippy::cast_precision_loss, reason = "a read is shorter than 2^53 bytes")]
        let read_bytes = self.read_bytes as f64;
        series.at(&[("read_bytes", read_bytes)])
    }
}

impl Workload for Part<'_> {
    fn name(&self) -> &'static str {
        "fileload"
    }

    fn description(&self) -> String {
        self.whole.description()
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        let manner = &self.whole.manner;
        let bytes = |set: &FileSet| json!(set.files.iter().map(Place::bytes).collect::<Vec<_>>());
        let pieces = |set: &FileSet| json!(set.pieces);
        let by_set = |what: &dyn Fn(&FileSet) -> Value| match &self.whole.sets[..] {
            [set] => what(set),
            sets => sets.iter().map(|set| (set.name.clone(), what(set))).collect(),
        };
        let mut settings = vec![
            ("order", json!(self.whole.order_name())),
            ("users", json!(self.set().files.len())),
            ("file_bytes", by_set(&bytes)),
            ("read_bytes", json!(manner.read_bytes)),
            ("reads", json!(manner.reads)),
            ("in_flight", json!(manner.in_flight)),
            ("hint", json!(manner.hint.name())),
        ];
        if self.whole.sets.iter().any(|set| !set.pieces.is_empty()) {
            settings.push(("extents", by_set(&pieces)));
        }
        settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn series(&self) -> Vec<Series> {
        vec![
            self.one(THROUGHPUT, "bytes/s", Direction::Higher),
            self.one(READS, "reads/s", Direction::Higher),
            self.one(ANSWER, "ns", Direction::Lower),
        ]
    }

    fn space(&self) -> Vec<Space> {
        // They lie in one directory, so what they need is needed together.
        let mut spaces: Vec<Space> = Vec::new();
        for space in self.set().files.iter().flat_map(Place::space) {
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

    fn prepare(&mut self, stage: &TrialContext<'_>) -> Result<(), BenchError> {
        let files = &mut self.whole.sets[self.set].files;
        files.iter_mut().try_for_each(|file| file.prepare(stage))
    }

    fn start_state(&mut self) -> StartState<'_> {
        StartState::Files(self.paths())
    }

    fn trial(&mut self, stage: &TrialContext<'_>) -> Result<Outcome, BenchError> {
        let manner = &self.whole.manner;
        let (files, in_flight) = (self.set().files.iter(), manner.in_flight);
        let users = files
            .zip(stage.seed..)
            .map(|(file, seed)| User::new(manner, file, self.read_bytes, seed))
            .collect::<Result<Vec<_>, _>>()?;
        let reads: u64 = users.iter().map(|user| user.reads).sum();
        let mut readers = Vec::with_capacity(users.len() * in_flight);
        for user in &users {
            for _ in 0..in_flight {
                readers.push(user.reader()?);
            }
        }
        let phases =
            worker_pool::run(stage, &["read"], &mut readers, |reader, _| reader.work(stage))?;
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
        let what = match manner.read_bytes.len() {
            1 => self.named("reads"),
            _ => format!("{} of {}", self.named("reads"), format::bytes(self.read_bytes)),
        };
        outcome.latencies.push((what, times));
        Ok(outcome)
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        // The files are for all parts, and the whole removes them.
        Ok(())
    }
}

/// A user of a trial: an open file and the places that are still to be read.
struct User {
    file: File,
    buffering: Buffering,
    read_len: usize,
    /// Reads of the trial.
    reads: u64,
    places: Mutex<RemainingReads>,
}

/// What is left to be read by all readers of a user.
struct RemainingReads {
    offsets: Box<dyn Iterator<Item = u64> + Send>,
    left: u64,
}

/// One read in flight, again and again.
struct Reader<'a> {
    user: &'a User,
    target: AtFile,
    buffer: Vec<u8>,
    times: Histogram,
}

impl User {
    fn new(
        manner: &ReadPattern,
        place: &AtPath,
        read_bytes: u64,
        seed: u64,
    ) -> Result<Self, BenchError> {
        let file = place.open_file()?;
        let advice = match manner.hint {
            Hint::Normal | Hint::NoBuffering => Advice::Normal,
            Hint::Sequential => Advice::Sequential,
            Hint::Random => Advice::Random,
        };
        let what = || format!("tell the kernel how {} will be read", place.path().display());
        rustix::fs::fadvise(&file, 0, None, advice)
            .map_err(|error| BenchError::io(what())(error.into()))?;
        let load = Fileload::new(manner.order, place.bytes(), read_bytes)
            .map_err(|error| BenchError::Workload(error.to_string()))?;
        let reads = manner.reads.unwrap_or(load.reads());
        let read_len = usize::try_from(read_bytes)
            .map_err(|error| BenchError::Workload(format!("make room for a read: {error}")))?;
        let places = RemainingReads { offsets: Box::new(load.offsets(seed)), left: reads };
        let places = Mutex::new(places);
        Ok(User { file, buffering: buffering(manner.hint), read_len, reads, places })
    }

    /// A reader with the same open file, so that the kernel sees one stream for each user.
    fn reader(&self) -> Result<Reader<'_>, BenchError> {
        let file = self.file.try_clone().map_err(BenchError::io("open a file once more"))?;
        Ok(Reader {
            user: self,
            target: AtFile::over(file, self.buffering),
            buffer: vec![0; self.read_len],
            times: Histogram::default(),
        })
    }

    /// The place of the next read, or nothing when all were begun.
    fn next(&self) -> Option<u64> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.left = places.left.checked_sub(1)?;
        places.offsets.next()
    }
}

impl Reader<'_> {
    fn work(&mut self, stage: &TrialContext<'_>) -> Result<(), BenchError> {
        while let Some(offset) = self.user.next() {
            stage.check()?;
            let begun_at = stage.now();
            if let Err(error) = self.target.read_at(offset, &mut self.buffer) {
                let what = format!("read {} bytes at {offset}", self.buffer.len());
                return Err(BenchError::io(what)(error));
            }
            self.times.record(stage.now() - begun_at);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
