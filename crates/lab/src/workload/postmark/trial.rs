//! A modern run: threads, phases, times in nanoseconds, every result checked.
//!
//! Invariants: nothing is written before the run has determined that the files fit and do not run
//! out; all threads begin a phase together; however a run ends, its files are removed, or the error
//! says what is left. Times are nanoseconds, sizes are bytes, rates are per second.

use super::checked::{CheckedFiles, Operation};
use super::config::{Config, Location};
use super::counts::Counts;
use super::engine::Engine;
use super::error::PostmarkError;
use super::files::{Model, SpaceUse};
use super::options::{Control, Data, Fsync, Options, Phase};
use super::place::{WorkDirectory, check_space, remove_left_over};
use crate::random::Random;
use larder_core::counters::{Histogram, HistogramSnapshot};
use std::path::{Path, PathBuf};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The options of the run.
    pub options: Options,
    /// The counts of all threads together.
    pub counts: Counts,
    /// The duration of each phase, from the time when all threads began it to the end of the last
    /// one.
    pub phases: [(Phase, Duration); Phase::ALL.len()],
    /// The times of the operations.
    pub operations: Vec<(Operation, HistogramSnapshot)>,
    /// Maximum number of bytes of the files at a time, in blocks of 4 KiB.
    pub room_bytes_max: u64,
    /// Directories of killed runs, which this run removed before it began.
    pub left_over: Vec<PathBuf>,
}

impl Outcome {
    /// Returns the duration of a phase.
    #[must_use]
    pub fn duration(&self, phase: Phase) -> Duration {
        self.phases[phase as usize].1
    }

    /// Returns the duration of all phases together.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.phases.iter().map(|phase| phase.1).sum()
    }

    /// Transactions per second of their phase; 0 if it took no time.
    #[must_use]
    pub fn transactions_per_s(&self) -> f64 {
        per_s(self.counts.transactions, self.duration(Phase::Transactions))
    }
}

/// Returns a rate per second; 0 if `over` is zero.
#[must_use]
pub fn per_s(count: u64, over: Duration) -> f64 {
    let seconds = over.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let count = count as f64;
    if seconds > 0.0 { count / seconds } else { 0.0 }
}

/// Performs one run. All its files are removed when it returns.
///
/// # Errors
/// An operation was refused, failed or was stopped; all files are removed then, too.
pub fn run(options: &Options, control: &Control<'_>) -> Result<Outcome, PostmarkError> {
    let locations = locations(&options.config);
    let left_over = clear_up(&options.config);
    let mut work_directories = Vec::new();
    let created = locations.iter().try_for_each(|location| {
        work_directories.push(WorkDirectory::make(location)?);
        Ok(())
    });
    let outcome = created.and_then(|()| run_in(options, control, &work_directories));
    let mut removed = Ok(());
    for work_directory in work_directories {
        let path = work_directory.path().to_owned();
        if let Err(why) = work_directory.remove() {
            removed = Err((path, why));
        }
    }
    match (outcome, removed) {
        (outcome, Ok(())) => outcome.map(|outcome| Outcome { left_over, ..outcome }),
        (outcome, Err((path, why))) => {
            let first = outcome.map_or_else(|error| error.to_string(), |_| "clean up".to_owned());
            Err(PostmarkError::Left { first, path, why: why.to_string() })
        }
    }
}

fn locations(config: &Config) -> Vec<&Path> {
    let named: Vec<&Path> = config.locations.iter().map(Location::as_path).collect();
    if named.is_empty() { vec![Path::new(".")] } else { named }
}

/// Removes the directories that killed runs have left in the locations, and returns them.
pub fn clear_up(config: &Config) -> Vec<PathBuf> {
    locations(config).into_iter().flat_map(remove_left_over).collect()
}

/// Returns the maximum number of bytes of the files of a run at a time, in blocks of 4 KiB. Writes
/// nothing.
///
/// # Errors
/// The files would run out, or there is not enough memory for their table.
pub fn room_bytes(options: &Options) -> Result<u64, PostmarkError> {
    let mut sum = SpaceUse::default();
    for thread in 0..options.threads.get() {
        let engine = Engine::new(&options.of_thread(thread), None)?;
        let locations = locations(&options.config).len();
        for space_use in simulate(&engine, locations, &Control::default())? {
            sum.add(&space_use);
        }
    }
    Ok(sum.bytes_max())
}

/// The work of one thread.
struct Worker<'a> {
    engine: Engine,
    files: CheckedFiles<'a>,
    control: &'a Control<'a>,
    transactions: u32,
    number: u32,
}

impl Worker<'_> {
    fn run_phase(&mut self, phase: Phase) -> Result<(), PostmarkError> {
        let files = &mut self.files;
        match phase {
            Phase::Create => {
                for _ in 0..self.number {
                    self.engine.create(files)?;
                    files.end_transaction()?;
                    self.control.step();
                }
            }
            Phase::Transactions => {
                for _ in 0..self.transactions {
                    self.engine.transaction(files)?;
                    files.end_transaction()?;
                    self.control.step();
                }
            }
            Phase::Delete => {
                for index in 0..self.engine.places() {
                    self.engine.delete_at(index, files)?;
                    files.end_transaction()?;
                }
            }
        }
        Ok(())
    }
}

fn run_in(
    options: &Options,
    control: &Control<'_>,
    work_directories: &[WorkDirectory],
) -> Result<Outcome, PostmarkError> {
    let halt = AtomicBool::new(false);
    let mut workers = Vec::new();
    let mut space_uses = vec![SpaceUse::default(); work_directories.len()];
    for thread in 0..options.threads.get() {
        let config = options.of_thread(thread);
        let directories: Vec<_> = work_directories
            .iter()
            .map(|work_directory| work_directory.path().join(format!("t{thread}")))
            .collect();
        let mut engine = Engine::new(&config, Some(&directories))?;
        for (sum, space_use) in
            space_uses.iter_mut().zip(simulate(&engine, work_directories.len(), control)?)
        {
            sum.add(&space_use);
        }
        if options.data == Data::Random {
            let mut random = Random::from_seed(u64::from(config.seed));
            for part in engine.data_mut().chunks_mut(size_of::<u64>()) {
                part.copy_from_slice(&random.bits().to_le_bytes()[..part.len()]);
            }
        }
        let files = CheckedFiles::new(options, thread, control, &halt);
        let (number, transactions) = (config.number, config.transactions);
        workers.push(Worker { engine, files, control, transactions, number });
    }
    check_space(work_directories, &space_uses)?;
    for thread in 0..options.threads.get() {
        for work_directory in work_directories {
            work_directory.create_subdirectory(&format!("t{thread}"))?;
            for directory in 0..options.config.directories() {
                work_directory.create_subdirectory(&format!("t{thread}/s{directory}"))?;
            }
        }
    }
    let each = u64::from(options.config.number) + u64::from(options.config.transactions);
    control.begin(each * u64::from(options.threads.get()));
    let syncs = Histogram::default();
    let mut phases = Phase::ALL.map(|phase| (phase, Duration::ZERO));
    for (phase, duration) in &mut phases {
        *duration = run_phase(*phase, &mut workers, control, &halt)?;
        if options.fsync == Fsync::End {
            let start = Instant::now();
            work_directories.iter().try_for_each(WorkDirectory::sync)?;
            let elapsed = start.elapsed();
            syncs.record(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX));
            *duration += elapsed;
        }
    }
    let mut counts = Counts::default();
    for worker in &workers {
        counts.add(worker.engine.counts());
    }
    let operations = Operation::ALL.map(|operation| {
        let mut sum = HistogramSnapshot::default();
        for worker in &workers {
            worker.files.times(operation).add_to(&mut sum);
        }
        if operation == Operation::Sync {
            syncs.add_to(&mut sum);
        }
        (operation, sum)
    });
    Ok(Outcome {
        options: options.clone(),
        counts,
        phases,
        operations: operations.into_iter().filter(|(_, times)| times.count() > 0).collect(),
        room_bytes_max: space_uses.iter().map(SpaceUse::bytes_max).sum(),
        left_over: Vec::new(),
    })
}

/// Simulates all operations without I/O. Returns the space that the files will use in each
/// location, or an error if they run out.
fn simulate(
    engine: &Engine,
    locations: usize,
    control: &Control<'_>,
) -> Result<Vec<SpaceUse>, PostmarkError> {
    let (mut engine, mut model) = (engine.clone(), Model::new(locations));
    let (number, all) = (engine.config().number, engine.config().transactions);
    for _ in 0..number {
        let Ok(()) = engine.create(&mut model);
    }
    for done in 0..all {
        if engine.is_out_of_files() {
            let (done, all) = (u64::from(done), u64::from(all));
            return Err(PostmarkError::OutOfFiles { done, all });
        }
        if control.is_stopped() {
            return Err(PostmarkError::Stopped);
        }
        let Ok(()) = engine.transaction(&mut model);
    }
    Ok(model.space_uses)
}

/// Runs one phase in all threads, which begin it together, and returns its duration.
fn run_phase(
    phase: Phase,
    workers: &mut [Worker<'_>],
    control: &Control<'_>,
    halt: &AtomicBool,
) -> Result<Duration, PostmarkError> {
    // Holds all threads back until all of them have started.
    let start_lock = RwLock::new(());
    let set_halt = || halt.store(true, Ordering::Relaxed);
    let mut results = Vec::new();
    std::thread::scope(|scope| {
        let start_guard = start_lock.write().expect("nobody panics with it");
        let mut threads = Vec::new();
        for (number, worker) in workers.iter_mut().enumerate() {
            let (start_lock, set_halt) = (&start_lock, &set_halt);
            let body = move || {
                drop(start_lock.read());
                let start = Instant::now();
                let result = worker.run_phase(phase);
                if result.is_err() {
                    set_halt();
                }
                result.map(|()| (start, Instant::now()))
            };
            let name = format!("postmark {number}");
            match std::thread::Builder::new().name(name).spawn_scoped(scope, body) {
                Ok(thread) => threads.push(thread),
                Err(source) => {
                    set_halt();
                    let number = u32::try_from(number).unwrap_or(u32::MAX);
                    results.push(Err(PostmarkError::Thread { number, source }));
                    break;
                }
            }
        }
        if !control.may_begin(phase) {
            set_halt();
            results.push(Err(PostmarkError::Stopped));
        }
        drop(start_guard);
        let joined = threads.into_iter().map(ScopedJoinHandle::join);
        results.extend(joined.map(|result| result.unwrap_or(Err(PostmarkError::Panicked))));
    });
    let (mut spans, mut errors) = (Vec::new(), Vec::new());
    for end in results {
        match end {
            Ok(span) => spans.push(span),
            Err(error) => errors.push(error),
        }
    }
    // A thread that was stopped because of another one is not the cause.
    let reason = errors.iter().position(|error| !matches!(error, PostmarkError::Stopped));
    if !errors.is_empty() {
        return Err(errors.swap_remove(reason.unwrap_or(0)));
    }
    let start = spans.iter().map(|span| span.0).min();
    let end = spans.iter().map(|span| span.1).max();
    Ok(start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start))
}

#[cfg(test)]
mod tests;
