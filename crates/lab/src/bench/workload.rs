//! Workloads, and the interface to the run of their trials.

use super::error::BenchError;
use super::host_env::{HostEnv, WorkloadResidency};
use larder_core::clock::{MILLISECOND, Nanos};
use larder_core::counters::HistogramSnapshot;
use larder_schema::run::Direction;
use larder_schema::run::trial::{Phase, Start};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Maximum time between two checks of the stop flag.
const SLEEP_MAX: Nanos = 50 * MILLISECOND;

/// A series of values: one for each trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name, unique in the workload.
    pub name: String,
    /// Unit of the values.
    pub unit: String,
    /// The better direction of the values; `None` for neutral values such as counts.
    pub better: Option<Direction>,
    /// The name without the coordinates; `None` for a series without a group.
    pub group: Option<String>,
    /// The coordinates within the group, as `clients: 4`.
    pub at: BTreeMap<String, f64>,
}

impl Series {
    /// Returns a series without a group.
    pub fn new(
        name: impl Into<String>,
        unit: impl Into<String>,
        better: Option<Direction>,
    ) -> Self {
        let (name, unit) = (name.into(), unit.into());
        Series { name, unit, better, group: None, at: BTreeMap::new() }
    }

    /// Turns the series into one of a group: its name becomes `GROUP at NAME VALUE, ...`.
    #[must_use]
    pub fn at(mut self, coordinates: &[(&str, f64)]) -> Self {
        let labels: Vec<String> =
            coordinates.iter().map(|(name, value)| format!("{name} {value}")).collect();
        self.group = Some(self.name.clone());
        self.name = format!("{} at {}", self.name, labels.join(", "));
        self.at = coordinates.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        self
    }
}

/// A part of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkPart {
    /// Its description for progress reports; empty if it has no name.
    pub what: String,
    /// Bytes that it processes, if they determine its time.
    pub bytes: u64,
}

/// Returns the parameters of a workload, stated as a JSON object.
pub(super) fn parameters(object: Value) -> BTreeMap<String, Value> {
    let Value::Object(entries) = object else { unreachable!("parameters have names") };
    entries.into_iter().collect()
}

/// Free space that a workload needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// An existing directory.
    pub directory: PathBuf,
    /// Maximum number of bytes at any time.
    pub bytes: u64,
}

/// Cache state at the start of a trial, and how it is verified.
#[derive(Debug)]
pub enum StartState<'a> {
    /// Files behind the page cache, whose residency the run sets and verifies. Files that do not
    /// exist yet are not included.
    Files(Vec<PathBuf>),
    /// A target with its own cache, which sets its state and counts.
    Own(&'a mut dyn OwnCache),
    /// The state cannot be known, with the reason, such as a server with a cache of its own. Only
    /// the start `as-is` is allowed.
    Unknown(String),
}

/// A target with its own cache.
pub trait OwnCache: std::fmt::Debug {
    /// Makes the cache cold or warm, and returns the number of its target's blocks and of those
    /// that are cached.
    ///
    /// # Errors
    /// The state cannot be reached.
    fn start(&mut self, start: Start) -> Result<WorkloadResidency, BenchError>;
}

/// The environment of a trial.
#[derive(Clone, Copy)]
pub struct TrialContext<'a> {
    /// The trial, from 1; 0 during the preparation.
    pub trial: u64,
    /// The seed of all random numbers: the same in each trial, so that each does the same work.
    pub seed: u64,
    pub(super) stop: &'a AtomicBool,
    pub(super) host: &'a dyn HostEnv,
}

impl std::fmt::Debug for TrialContext<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Stage").field("trial", &self.trial).field("seed", &self.seed).finish()
    }
}

impl TrialContext<'_> {
    /// Returns nanoseconds of the host's clock.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.host.now()
    }

    /// Waits for all ranks before a phase begins in any of them; returns immediately if there is
    /// only one. All ranks reach the same barriers in the same order.
    ///
    /// # Errors
    /// [`BenchError::Stopped`] if a rank is gone or the user stops the run.
    pub fn wait_at_barrier(&self, place: &str) -> Result<(), BenchError> {
        let ranks = self.host.ranks();
        ranks.map_or(Ok(()), |ranks| ranks.wait_at_barrier(place, Value::Null).map(drop))
    }

    /// Returns true if there are other ranks.
    pub(super) fn has_ranks(&self) -> bool {
        self.host.ranks().is_some()
    }

    /// Sleeps for `time` nanoseconds, and checks the stop flag repeatedly.
    ///
    /// # Errors
    /// [`BenchError::Stopped`] if the user stops the run.
    pub fn sleep(&self, time: Nanos) -> Result<(), BenchError> {
        let until = self.now().saturating_add(time);
        loop {
            self.check()?;
            let left = until.saturating_sub(self.now());
            if left == 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_nanos(left.min(SLEEP_MAX)));
        }
    }

    /// Returns an error if the user stops the run. Call it often, at least once a second.
    ///
    /// # Errors
    /// [`BenchError::Stopped`] if the user stops the run.
    pub fn check(&self) -> Result<(), BenchError> {
        if self.stop.load(Ordering::Relaxed) { Err(BenchError::Stopped) } else { Ok(()) }
    }
}

/// Results of a trial.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// A value for each series, by name.
    pub values: BTreeMap<String, f64>,
    /// Phases in their order, as returned by [`super::worker_pool::run`].
    pub phases: Vec<Phase>,
    /// Response times by kind of request.
    pub latencies: Vec<(String, HistogramSnapshot)>,
    /// Doubts about this trial, as sentences that can follow "doubtful because".
    pub doubts: Vec<String>,
}

/// A workload that can be measured. Calls have this order: for each part `select_part`, `space`,
/// `prepare`, then for each trial `start_state` and `trial`; then, however the run ends,
/// `clean_up`.
pub trait Workload {
    /// Returns the name, as on the command line.
    fn name(&self) -> &str;

    /// Returns the parts, at least one. They run one after the other and share their files; each
    /// has its own series and its own cold or warm starts. The result is one run.
    fn parts(&self) -> Vec<WorkPart> {
        vec![WorkPart::default()]
    }

    /// Selects the part that the other methods are about; the first one is selected initially.
    ///
    /// # Errors
    /// The files of an earlier part cannot be removed.
    fn select_part(&mut self, _number: usize) -> Result<(), BenchError> {
        Ok(())
    }

    /// Returns a one-line description.
    fn description(&self) -> String;

    /// Returns the parameters, by name with the unit at the end.
    fn settings(&self) -> BTreeMap<String, Value>;

    /// Returns the series, the main one first; known before the first trial.
    fn series(&self) -> Vec<Series>;

    /// Returns the space needed in addition to what exists before `prepare`.
    fn space(&self) -> Vec<Space>;

    /// Returns the paths whose disks and settings matter.
    fn paths(&self) -> Vec<PathBuf>;

    /// Creates what the trials need. Not timed.
    ///
    /// # Errors
    /// It cannot be created.
    fn prepare(&mut self, context: &TrialContext<'_>) -> Result<(), BenchError>;

    /// Returns what must be cold or warm before the next trial.
    fn start_state(&mut self) -> StartState<'_>;

    /// Runs one trial: the same work each time.
    ///
    /// # Errors
    /// Anything that makes its values meaningless, such as a request that failed.
    fn trial(&mut self, context: &TrialContext<'_>) -> Result<Outcome, BenchError>;

    /// Removes what the workload made, and nothing else. Called once, also after an error or a
    /// stop.
    ///
    /// # Errors
    /// Something cannot be removed.
    fn clean_up(&mut self) -> Result<(), BenchError>;
}
