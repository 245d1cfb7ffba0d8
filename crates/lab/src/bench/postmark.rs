//! PostMark as a workload: each trial creates its files and removes them.
//!
//! [`crate::workload::postmark`] draws the operations; a trial performs them in any number of
//! threads, each timed, with every result checked. Invariants: nothing is written before the trial
//! has determined that the files fit and do not run out; all threads begin a phase together;
//! however a trial ends, its files are removed, or the error says that they are left. There are no
//! files before a trial, so a cold start has nothing to drop; PostMark reads only files that it has
//! just written. Units are those of the series.

mod checked;
mod directory;
mod options;

pub use options::{Data, Fsync, Options};

use super::error::BenchError;
use super::worker_pool::{self, PhaseContext};
use super::workload::{Outcome, Series, Space, StartState, TrialContext, Workload, parameters};
use crate::random::Random;
use crate::workload::postmark::{Counts, Engine, Location, Model, SpaceUse};
use checked::{CheckedFiles, OPERATIONS, Operation};
use directory::{WorkDirectory, check_space, remove_left_over};
use larder_core::counters::HistogramSnapshot;
use larder_schema::format;
use larder_schema::run::Direction;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const HIGHER: Option<Direction> = Some(Direction::Higher);

/// The series with their units, the main one first. A configuration and its seed determine the
/// counts, which have no better direction: they are equal in every trial and in every
/// implementation.
const SERIES: [(&str, &str, Option<Direction>); 14] = [
    ("transactions", "transactions/s", HIGHER),
    ("all phases", "s", Some(Direction::Lower)),
    ("creation alone", "files/s", HIGHER),
    ("deletion alone", "files/s", HIGHER),
    ("read in transactions", "files/s", HIGHER),
    ("appended in transactions", "files/s", HIGHER),
    ("read, over all phases", "bytes/s", HIGHER),
    ("written, over all phases", "bytes/s", HIGHER),
    ("created", "files", None),
    ("read", "files", None),
    ("appended", "files", None),
    ("deleted", "files", None),
    ("bytes read", "bytes", None),
    ("bytes written", "bytes", None),
];

/// The phases of a trial: creation of the initial files, the transactions, and deletion of the
/// remaining files.
const PHASES: [&str; 3] = ["create", "transactions", "delete"];

/// PostMark with its options.
#[derive(Clone, Debug)]
pub struct PostmarkBench {
    options: Options,
    left_over: Vec<PathBuf>,
}

impl PostmarkBench {
    /// Returns the workload whose trials run with these options.
    #[must_use]
    pub fn new(options: Options) -> Self {
        PostmarkBench { options, left_over: Vec::new() }
    }

    /// Returns the directories of killed runs that the trials have removed.
    #[must_use]
    pub fn left_over(&self) -> &[PathBuf] {
        &self.left_over
    }

    /// Returns the maximum number of bytes that its files take at a time, in blocks of 4 KiB.
    /// Writes nothing.
    ///
    /// # Errors
    /// The files would run out, or there is not enough memory for their table.
    pub fn room_bytes(&self) -> Result<u64, BenchError> {
        let mut sum = SpaceUse::default();
        for thread in 0..self.options.threads.get() {
            let engine = engine(&self.options, thread, None)?;
            let uses = simulate(&engine, self.locations().len(), &|| Ok(()))?;
            for space_use in &uses {
                sum.add(space_use);
            }
        }
        Ok(sum.bytes_max())
    }

    fn locations(&self) -> Vec<&Path> {
        let current = Path::new(".");
        let named = self.options.config.locations.iter().map(Location::as_path);
        let mut paths: Vec<&Path> =
            named.map(|path| if path.as_os_str().is_empty() { current } else { path }).collect();
        if paths.is_empty() {
            paths.push(current);
        }
        paths
    }

    /// Removes the directories that killed runs have left in the locations.
    fn remove_left_over(&mut self) {
        let removed: Vec<_> = self.locations().into_iter().flat_map(remove_left_over).collect();
        self.left_over.extend(removed);
    }

    /// Runs a trial in new directories, which the caller removes.
    fn run(
        &self,
        context: &TrialContext<'_>,
        directories: &mut Vec<WorkDirectory>,
    ) -> Result<Outcome, BenchError> {
        let options = &self.options;
        for location in self.locations() {
            directories.push(WorkDirectory::make(location)?);
        }
        let mut space_uses = vec![SpaceUse::default(); directories.len()];
        let mut workers = Vec::new();
        for thread in 0..options.threads.get() {
            let worker = Worker::new(options, thread, directories, context)?;
            let uses = simulate(&worker.engine, directories.len(), &|| context.check())?;
            space_uses.iter_mut().zip(&uses).for_each(|(sum, space_use)| sum.add(space_use));
            workers.push(worker);
        }
        check_space(directories, &space_uses)?;
        for (thread, directory) in (0..options.threads.get())
            .flat_map(|thread| directories.iter().map(move |directory| (thread, directory)))
        {
            directory.create_subdirectory(&format!("t{thread}"))?;
            for number in 0..options.config.directories() {
                directory.create_subdirectory(&format!("t{thread}/s{number}"))?;
            }
        }
        let mut outcome = Outcome::default();
        for name in PHASES {
            let mut phases =
                worker_pool::run(context, &[name], &mut workers, |worker, current| {
                    worker.run_phase(name, context, current)
                })?;
            if options.fsync == Fsync::End {
                let begun_at = context.now();
                directories.iter().try_for_each(WorkDirectory::sync)?;
                phases[0].duration_ns += workers[0].files.end_operation(Operation::Sync, begun_at);
            }
            outcome.phases.append(&mut phases);
        }
        let mut counts = Counts::default();
        for worker in &workers {
            counts.add(&worker.engine.counts);
        }
        let durations = [0, 1, 2].map(|phase| outcome.phases[phase].duration_ns);
        outcome.values = self.values(&counts, durations);
        for (operation, name) in OPERATIONS {
            let mut times = HistogramSnapshot::default();
            for worker in &workers {
                worker.files.times[operation as usize].add_to(&mut times);
            }
            outcome.latencies.extend((times.count() > 0).then(|| (name.to_owned(), times)));
        }
        if options.fsync == Fsync::None {
            let unstable =
                "nothing is made stable (--fsync none), so that writes may end in memory";
            outcome.doubts.push(unstable.to_owned());
        }
        Ok(outcome)
    }

    /// Returns the values of the series from the counts of all threads and the nanoseconds of the
    /// phases.
    #[expect(clippy::cast_precision_loss, reason = "counts are exact below 2^53")]
    fn values(
        &self,
        counts: &Counts,
        [create, transactions, delete]: [u64; 3],
    ) -> BTreeMap<String, f64> {
        let total = create + transactions + delete;
        let per_s = |count: u64, over: u64| {
            if over == 0 { 0.0 } else { count as f64 * 1e9 / over as f64 }
        };
        let number = u64::from(self.options.config.number);
        let (read, written) = (counts.bytes_read.bytes, counts.bytes_written.bytes);
        let values = [
            per_s(counts.transactions, transactions),
            total as f64 / 1e9,
            per_s(number * u64::from(self.options.threads.get()), create),
            per_s(counts.deleted_at_end, delete),
            per_s(counts.read, transactions),
            per_s(counts.appended, transactions),
            per_s(read, total),
            per_s(written, total),
            counts.created as f64,
            counts.read as f64,
            counts.appended as f64,
            counts.deleted as f64,
            read as f64,
            written as f64,
        ];
        SERIES.iter().map(|(name, ..)| (*name).to_owned()).zip(values).collect()
    }
}

/// Returns the operations of a thread, in these directories or in the locations.
fn engine(
    options: &Options,
    thread: u32,
    directories: Option<&[PathBuf]>,
) -> Result<Engine, BenchError> {
    Engine::new(&options.of_thread(thread), directories).map_err(BenchError::Failed)
}

/// Simulates all operations without I/O. Returns the space that the files will use in each
/// location, or an error if they run out.
fn simulate(
    engine: &Engine,
    locations: usize,
    check: &dyn Fn() -> Result<(), BenchError>,
) -> Result<Vec<SpaceUse>, BenchError> {
    let (mut engine, mut model) = (engine.clone(), Model::new(locations));
    let (number, all) = (engine.config.number, engine.config.transactions);
    for _ in 0..number {
        let Ok(()) = engine.create(&mut model);
    }
    for done in 0..all {
        if engine.is_out_of_files() {
            return Err(BenchError::Failed(format!(
                "do all transactions: after {done} of {all} no file is left; begin with more \
                 files, do fewer transactions, or create more often than delete"
            )));
        }
        check()?;
        let Ok(()) = engine.transaction(&mut model);
    }
    Ok(model.space_uses)
}

/// The work of one thread.
struct Worker<'a> {
    engine: Engine,
    files: CheckedFiles<'a>,
}

impl<'a> Worker<'a> {
    fn new(
        options: &Options,
        thread: u32,
        directories: &[WorkDirectory],
        context: &'a TrialContext<'a>,
    ) -> Result<Self, BenchError> {
        let path = |directory: &WorkDirectory| directory.path.join(format!("t{thread}"));
        let paths: Vec<PathBuf> = directories.iter().map(path).collect();
        let mut engine = engine(options, thread, Some(&paths))?;
        if options.data == Data::Random {
            Random::from_seed(engine.config.seed.into()).fill(&mut engine.data);
        }
        Ok(Worker { engine, files: CheckedFiles::new(options, thread, context) })
    }

    fn run_phase(
        &mut self,
        phase: &str,
        context: &TrialContext<'_>,
        current: PhaseContext<'_>,
    ) -> Result<(), BenchError> {
        let Worker { engine, files } = self;
        let count = match phase {
            "create" => engine.config.number as usize,
            "transactions" => engine.config.transactions as usize,
            _ => engine.places(),
        };
        for index in 0..count {
            context.check()?;
            current.check_others()?;
            match phase {
                "create" => engine.create(files)?,
                "transactions" => engine.transaction(files)?,
                _ => engine.delete_at(index, files)?,
            }
            files.end_transaction()?;
        }
        Ok(())
    }
}

impl Workload for PostmarkBench {
    fn name(&self) -> &'static str {
        "postmark"
    }

    fn description(&self) -> String {
        let config = &self.options.config;
        let threads = match self.options.threads.get() {
            1 => String::new(),
            threads => format!(", by each of {threads} threads"),
        };
        let [number, low, high, transactions] =
            [config.number, config.size_low, config.size_high, config.transactions]
                .map(|count| format::count(count.into()));
        format!(
            "PostMark: {number} files of {low} to {high} bytes, {transactions} \
             transactions{threads}, fsync {}",
            self.options.fsync.name(),
        )
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        let config = &self.options.config;
        let bias = |bias: Option<u32>| bias.map_or(Value::from(-1), Value::from);
        let locations = config.locations.iter().map(|location| {
            let path = location.path.to_string_lossy();
            Value::from(format!("{path} {}", location.weight))
        });
        parameters(json!({
            "number": config.number,
            "transactions": config.transactions,
            "size_low_bytes": config.size_low,
            "size_high_bytes": config.size_high,
            "postmark_seed": config.seed,
            "locations": locations.collect::<Value>(),
            "subdirectories": config.subdirectories,
            "read_bytes": config.read_block,
            "write_bytes": config.write_block,
            "buffering": config.buffered,
            "bias_read": bias(config.bias_read),
            "bias_create": bias(config.bias_create),
            "threads": self.options.threads,
            "fsync": self.options.fsync.name(),
            "data": self.options.data.name(),
        }))
    }

    fn series(&self) -> Vec<Series> {
        SERIES.map(|(name, unit, better)| Series::new(name, unit, better)).into()
    }

    fn space(&self) -> Vec<Space> {
        // Each trial checks its space itself, with inodes, before it writes anything.
        Vec::new()
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.locations().into_iter().map(Path::to_owned).collect()
    }

    fn prepare(&mut self, _: &TrialContext<'_>) -> Result<(), BenchError> {
        Ok(())
    }

    fn start_state(&mut self) -> StartState<'_> {
        StartState::Files(Vec::new())
    }

    fn trial(&mut self, context: &TrialContext<'_>) -> Result<Outcome, BenchError> {
        self.remove_left_over();
        let mut directories = Vec::new();
        let outcome = self.run(context, &mut directories);
        // All of them are removed if possible; the first error is returned.
        let removed = directories.iter().map(WorkDirectory::remove).fold(Ok(()), Result::and);
        BenchError::first_of(outcome, removed)
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        // Each trial removes its files itself. Another rank may have been killed.
        self.remove_left_over();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
