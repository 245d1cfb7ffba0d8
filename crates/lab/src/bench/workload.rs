//! What is measured, as the player sees it.

use super::error::BenchError;
use super::host_env::{Found, HostEnv};
use larder_core::clock::{MILLISECOND, Nanos};
use larder_core::counters::HistogramSnapshot;
use larder_report::run::Direction;
use larder_report::run::trial::{Phase, Start};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The longest nap between two looks at the flag that stops a run.
const NAP_MAX: Nanos = 50 * MILLISECOND;

/// A series of values: one for each trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name, unique in the workload.
    pub name: String,
    /// Unit of the values.
    pub unit: String,
    /// Which values are better; none for what is neither, as a count.
    pub better: Option<Direction>,
    /// What it measures without `at`; none where it stands alone.
    pub group: Option<String>,
    /// Where in its group it lies, as `clients: 4`.
    pub at: BTreeMap<String, f64>,
}

impl Series {
    /// A series that stands alone.
    pub fn new(
        name: impl Into<String>,
        unit: impl Into<String>,
        better: Option<Direction>,
    ) -> Self {
        let (name, unit) = (name.into(), unit.into());
        Series { name, unit, better, group: None, at: BTreeMap::new() }
    }

    /// The same as part of a group: its name becomes `GROUP at WHAT VALUE, ...`.
    #[must_use]
    pub fn at(mut self, places: &[(&str, f64)]) -> Self {
        let said: Vec<String> = places.iter().map(|(what, at)| format!("{what} {at}")).collect();
        self.group = Some(self.name.clone());
        self.name = format!("{} at {}", self.name, said.join(", "));
        self.at = places.iter().map(|(what, at)| ((*what).to_owned(), *at)).collect();
        self
    }
}

/// Room that a workload needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// A directory that is there.
    pub directory: PathBuf,
    /// Bytes at the most at any moment.
    pub bytes: u64,
}

/// What is cold or warm when a trial begins, and who can tell.
#[derive(Debug)]
pub enum StartState<'a> {
    /// Files behind the page cache: the player makes and reads back. Files that are not there yet
    /// are not named.
    Files(Vec<PathBuf>),
    /// Something with a cache of its own, which makes and counts.
    Own(&'a mut dyn OwnCache),
    /// Nobody can tell, with why: a server with a cache of its own. Only `as-is` is allowed.
    Unknown(String),
}

/// Something with a cache of its own.
pub trait OwnCache: std::fmt::Debug {
    /// Makes it cold or warm, and counts: blocks that it is about, and those that are cached.
    ///
    /// # Errors
    /// It cannot be made so.
    fn start(&mut self, start: Start) -> Result<Found, BenchError>;
}

/// What a trial is given.
#[derive(Clone, Copy)]
pub struct TrialContext<'a> {
    /// Counted from 1; 0 while preparing.
    pub trial: u64,
    /// The seed of everything random: the same in each trial, so that each does the same.
    pub seed: u64,
    pub(super) stop: &'a AtomicBool,
    pub(super) surroundings: &'a dyn HostEnv,
}

impl std::fmt::Debug for TrialContext<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Stage").field("trial", &self.trial).field("seed", &self.seed).finish()
    }
}

impl TrialContext<'_> {
    /// Nanoseconds of the player's clock.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.surroundings.now()
    }

    /// Waits for all ranks, before a phase begins in any of them; at once where there is only one.
    /// All ranks come to the same places in the same order.
    ///
    /// # Errors
    /// [`BenchError::Stopped`] if a rank is gone, or somebody wants to stop.
    pub fn wait_at_barrier(&self, place: &str) -> Result<(), BenchError> {
        let ranks = self.surroundings.ranks();
        ranks.map_or(Ok(()), |ranks| ranks.wait_at_barrier(place, Value::Null).map(drop))
    }

    /// Whether there are others to wait for.
    pub(super) fn is_in_company(&self) -> bool {
        self.surroundings.ranks().is_some()
    }

    /// Sleeps for so many nanoseconds, and looks up now and then whether somebody wants to stop.
    ///
    /// # Errors
    /// [`BenchError::Stopped`] in that case.
    pub fn sleep(&self, time: Nanos) -> Result<(), BenchError> {
        let until = self.now().saturating_add(time);
        loop {
            self.check()?;
            let left = until.saturating_sub(self.now());
            if left == 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_nanos(left.min(NAP_MAX)));
        }
    }

    /// To be asked often, at least once a second: an error if somebody wants to stop.
    ///
    /// # Errors
    /// [`BenchError::Stopped`] in that case.
    pub fn check(&self) -> Result<(), BenchError> {
        if self.stop.load(Ordering::Relaxed) { Err(BenchError::Stopped) } else { Ok(()) }
    }
}

/// What a trial showed.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// A value for each series, by name.
    pub values: BTreeMap<String, f64>,
    /// Phases in their order; [`super::crew::run`] makes them.
    pub phases: Vec<Phase>,
    /// Answer times by what was asked.
    pub latencies: Vec<(String, HistogramSnapshot)>,
    /// What makes this trial doubtful, as sentences that can follow "doubtful because".
    pub doubts: Vec<String>,
}

/// What is measured. Calls come in this order: `space`, `prepare`, then for each trial `footing`
/// and `trial`, then `clean_up`, which is called however the run ends.
pub trait Workload {
    /// Its name, as on the command line.
    fn name(&self) -> &str;

    /// What is measured, in one line.
    fn description(&self) -> String;

    /// Its parameters, by name with the unit at the end.
    fn settings(&self) -> BTreeMap<String, Value>;

    /// Its series, the main one first; known before the first trial.
    fn series(&self) -> Vec<Series>;

    /// The room it needs, on top of what is there before `prepare`.
    fn space(&self) -> Vec<Space>;

    /// The paths whose disks and settings matter.
    fn paths(&self) -> Vec<PathBuf>;

    /// Makes what the trials need. Not timed.
    ///
    /// # Errors
    /// It cannot be made.
    fn prepare(&mut self, stage: &TrialContext<'_>) -> Result<(), BenchError>;

    /// What must be cold or warm before the next trial.
    fn start_state(&mut self) -> StartState<'_>;

    /// One trial: the same work each time.
    ///
    /// # Errors
    /// Anything that makes its values meaningless; a request that failed, for one.
    fn trial(&mut self, stage: &TrialContext<'_>) -> Result<Outcome, BenchError>;

    /// Removes what it made, and nothing else. Called once, also after an error or a stop.
    ///
    /// # Errors
    /// Something cannot be removed.
    fn clean_up(&mut self) -> Result<(), BenchError>;
}
