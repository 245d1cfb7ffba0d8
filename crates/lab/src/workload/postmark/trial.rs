//! One run of today: threads, phases, times in nanoseconds, every result looked at.
//!
//! Invariants: nothing is written before it is known that the files fit and that they do not run
//! out; all threads begin a phase together; whatever way a run ends, what it made is removed, or
//! the error says what is left. Times are nanoseconds, sizes are bytes, rates are per second.

use super::checked::{Checked, Operation};
use super::config::{Config, Location};
use super::counts::Counts;
use super::engine::Engine;
use super::error::PostmarkError;
use super::files::{Model, SpaceUse};
use super::options::{Control, Data, Fsync, Options, Phase};
use super::place::{Place, check_room, remove_left_over};
use crate::random::Random;
use larder_core::counters::{Histogram, HistogramSnapshot};
use std::path::{Path, PathBuf};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was asked for.
    pub options: Options,
    /// What was done, all threads together.
    pub counts: Counts,
    /// How long each phase took, from the moment when all threads began it to the last one's end.
    pub phases: [(Phase, Duration); Phase::ALL.len()],
    /// How long operations took.
    pub operations: Vec<(Operation, HistogramSnapshot)>,
    /// The most bytes that the files took at a time, in blocks of 4 KiB.
    pub room_bytes_max: u64,
    /// Directories of runs that were killed, which this one has removed before it began.
    pub left_over: Vec<PathBuf>,
}

impl Outcome {
    /// How long a phase took.
    #[must_use]
    pub fn duration(&self, phase: Phase) -> Duration {
        self.phases[phase as usize].1
    }

    /// How long all phases took together.
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

/// A number per second; 0 in no time.
#[must_use]
pub fn per_s(count: u64, over: Duration) -> f64 {
    let seconds = over.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let count = count as f64;
    if seconds > 0.0 { count / seconds } else { 0.0 }
}

/// Runs once. It returns when everything that it made is gone again.
///
/// # Errors
/// Something was refused, did not work or was stopped; everything is removed then, too.
pub fn run(options: &Options, control: &Control<'_>) -> Result<Outcome, PostmarkError> {
    let locations = locations(&options.config);
    let left_over = clear_up(&options.config);
    let mut places = Vec::new();
    let made = locations.iter().try_for_each(|location| {
        places.push(Place::make(location)?);
        Ok(())
    });
    let outcome = made.and_then(|()| run_in(options, control, &places));
    let mut removed = Ok(());
    for place in places {
        let path = place.path().to_owned();
        if let Err(why) = place.remove() {
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

/// Removes what runs that were killed have left in the locations; which directories.
pub fn clear_up(config: &Config) -> Vec<PathBuf> {
    locations(config).into_iter().flat_map(remove_left_over).collect()
}

/// The most bytes that the files of a run take at a time, in blocks of 4 KiB. Nothing is written.
///
/// # Errors
/// The files would run out, or there is no memory for their table.
pub fn room_bytes(options: &Options) -> Result<u64, PostmarkError> {
    let mut sum = SpaceUse::default();
    for thread in 0..options.threads.get() {
        let engine = Engine::new(&options.of_thread(thread), None)?;
        let locations = locations(&options.config).len();
        for room in rehearse(&engine, locations, &Control::default())? {
            sum.add(&room);
        }
    }
    Ok(sum.bytes_max())
}

/// One thread's share.
struct Worker<'a> {
    engine: Engine,
    files: Checked<'a>,
    control: &'a Control<'a>,
    transactions: u32,
    number: u32,
}

impl Worker<'_> {
    fn go_through(&mut self, phase: Phase) -> Result<(), PostmarkError> {
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
                for place in 0..self.engine.places() {
                    self.engine.delete_at(place, files)?;
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
    places: &[Place],
) -> Result<Outcome, PostmarkError> {
    let halt = AtomicBool::new(false);
    let mut workers = Vec::new();
    let mut rooms = vec![SpaceUse::default(); places.len()];
    for thread in 0..options.threads.get() {
        let config = options.of_thread(thread);
        let directories: Vec<_> =
            places.iter().map(|place| place.path().join(format!("t{thread}"))).collect();
        let mut engine = Engine::new(&config, Some(&directories))?;
        for (sum, room) in rooms.iter_mut().zip(rehearse(&engine, places.len(), control)?) {
            sum.add(&room);
        }
        if options.data == Data::Random {
            let mut random = Random::from_seed(u64::from(config.seed));
            for part in engine.data_mut().chunks_mut(size_of::<u64>()) {
                part.copy_from_slice(&random.bits().to_le_bytes()[..part.len()]);
            }
        }
        let files = Checked::new(options, thread, control, &halt);
        let (number, transactions) = (config.number, config.transactions);
        workers.push(Worker { engine, files, control, transactions, number });
    }
    check_room(places, &rooms)?;
    for thread in 0..options.threads.get() {
        for place in places {
            place.make_inside(&format!("t{thread}"))?;
            for directory in 0..options.config.directories() {
                place.make_inside(&format!("t{thread}/s{directory}"))?;
            }
        }
    }
    let each = u64::from(options.config.number) + u64::from(options.config.transactions);
    control.begin(each * u64::from(options.threads.get()));
    let syncs = Histogram::default();
    let mut phases = Phase::ALL.map(|phase| (phase, Duration::ZERO));
    for (phase, duration) in &mut phases {
        *duration = go_through(*phase, &mut workers, control, &halt)?;
        if options.fsync == Fsync::End {
            let begun = Instant::now();
            places.iter().try_for_each(Place::sync)?;
            let passed = begun.elapsed();
            syncs.record(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX));
            *duration += passed;
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
        room_bytes_max: rooms.iter().map(SpaceUse::bytes_max).sum(),
        left_over: Vec::new(),
    })
}

/// Goes through all operations without carrying them out: how much room the files will take in each
/// location, and whether they run out.
fn rehearse(
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
    Ok(model.rooms)
}

/// One phase in all threads, which begin it together; how long it took.
fn go_through(
    phase: Phase,
    workers: &mut [Worker<'_>],
    control: &Control<'_>,
    halt: &AtomicBool,
) -> Result<Duration, PostmarkError> {
    // Nobody gets past it before all threads are there.
    let gate = RwLock::new(());
    let halted = || halt.store(true, Ordering::Relaxed);
    let mut ended = Vec::new();
    std::thread::scope(|scope| {
        let closed = gate.write().expect("nobody panics with it");
        let mut threads = Vec::new();
        for (number, worker) in workers.iter_mut().enumerate() {
            let (gate, halted) = (&gate, &halted);
            let body = move || {
                drop(gate.read());
                let begun = Instant::now();
                let result = worker.go_through(phase);
                if result.is_err() {
                    halted();
                }
                result.map(|()| (begun, Instant::now()))
            };
            let name = format!("postmark {number}");
            match std::thread::Builder::new().name(name).spawn_scoped(scope, body) {
                Ok(thread) => threads.push(thread),
                Err(source) => {
                    halted();
                    let number = u32::try_from(number).unwrap_or(u32::MAX);
                    ended.push(Err(PostmarkError::Thread { number, source }));
                    break;
                }
            }
        }
        if !control.may_begin(phase) {
            halted();
            ended.push(Err(PostmarkError::Stopped));
        }
        drop(closed);
        let joined = threads.into_iter().map(ScopedJoinHandle::join);
        ended.extend(joined.map(|result| result.unwrap_or(Err(PostmarkError::Panicked))));
    });
    let (mut spans, mut errors) = (Vec::new(), Vec::new());
    for end in ended {
        match end {
            Ok(span) => spans.push(span),
            Err(error) => errors.push(error),
        }
    }
    // Those who were stopped because of another one are not the reason.
    let reason = errors.iter().position(|error| !matches!(error, PostmarkError::Stopped));
    if !errors.is_empty() {
        return Err(errors.swap_remove(reason.unwrap_or(0)));
    }
    let begun = spans.iter().map(|span| span.0).min();
    let ended = spans.iter().map(|span| span.1).max();
    Ok(begun.zip(ended).map_or(Duration::ZERO, |(begun, ended)| ended - begun))
}

#[cfg(test)]
mod tests;
