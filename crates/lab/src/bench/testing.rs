//! Fakes for the tests of benchmarks: a host with given readings, and a workload with given values.

use super::*;
use larder_core::clock::Nanos;
use larder_schema::run::Machine;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A host whose clock advances by 10 with each reading, or by `step`.
#[derive(Debug, Default)]
pub(crate) struct FakeHost {
    pub(crate) clock: AtomicU64,
    pub(crate) step: Nanos,
    pub(crate) resolution: Nanos,
    pub(crate) memory_bytes: u64,
    pub(crate) free_bytes: u64,
    /// Residency after each start, in order; the last one is repeated.
    pub(crate) found: Mutex<VecDeque<WorkloadResidency>>,
    /// Readings of the counters, in order; the last one is repeated.
    pub(crate) counted: Mutex<VecDeque<CounterReadings>>,
    pub(crate) settings: Mutex<VecDeque<(&'static str, &'static str)>>,
    pub(crate) below: Vec<String>,
    pub(crate) ranks: Option<Arc<dyn Ranks>>,
    /// Speeds, in order; the last one is repeated.
    pub(crate) speeds: Mutex<VecDeque<Option<f64>>>,
    /// The calls to this host.
    pub(crate) call_log: Mutex<Vec<&'static str>>,
}

/// Takes the next element of a queue; the last one is not removed.
fn next<T: Clone + Default>(queue: &Mutex<VecDeque<T>>) -> T {
    let mut queue = queue.lock().unwrap();
    if queue.len() > 1 {
        queue.pop_front().unwrap()
    } else {
        queue.front().cloned().unwrap_or_default()
    }
}

impl FakeHost {
    pub(crate) fn calls(&self) -> Vec<&'static str> {
        self.call_log.lock().unwrap().clone()
    }

    fn record_call(&self, what: &'static str) {
        self.call_log.lock().unwrap().push(what);
    }
}

impl HostEnv for FakeHost {
    fn now(&self) -> Nanos {
        let step = if self.step == 0 { 10 } else { self.step };
        self.clock.fetch_add(step, Ordering::Relaxed)
    }

    fn clock_resolution(&self) -> Nanos {
        self.resolution
    }

    fn time_of_day(&self) -> String {
        "2026-11-21T03:22:11Z".to_owned()
    }

    fn machine(&self) -> Machine {
        Machine { memory_bytes: self.memory_bytes, ..Machine::default() }
    }

    fn settings(&self, _: &[PathBuf]) -> BTreeMap<String, String> {
        let (name, value) = next(&self.settings);
        [(name.to_owned(), value.to_owned())].into()
    }

    fn count(&self, _: &[PathBuf]) -> CounterReadings {
        next(&self.counted)
    }

    fn speed(&self) -> Option<f64> {
        next(&self.speeds)
    }

    fn free_bytes(&self, _: &Path) -> Result<u64, BenchError> {
        Ok(self.free_bytes)
    }

    fn make_cold(
        &self,
        _: &[PathBuf],
        _: &mut dyn FnMut() -> bool,
    ) -> Result<WorkloadResidency, BenchError> {
        self.record_call("cold");
        Ok(next(&self.found))
    }

    fn make_warm(
        &self,
        _: &[PathBuf],
        _: &mut dyn FnMut() -> bool,
    ) -> Result<WorkloadResidency, BenchError> {
        self.record_call("warm");
        Ok(next(&self.found))
    }

    fn find_cached(&self, _: &[PathBuf]) -> Result<WorkloadResidency, BenchError> {
        self.record_call("look");
        Ok(next(&self.found))
    }

    fn caches_below(&self, _: &[PathBuf]) -> Vec<String> {
        self.below.clone()
    }

    fn ranks(&self) -> Option<&dyn Ranks> {
        self.ranks.as_deref()
    }
}

/// The trial of a fake workload.
pub(crate) type Trial = Box<dyn FnMut(&TrialContext<'_>) -> Result<Outcome, BenchError>>;

/// A workload with one series, `rate`.
pub(crate) struct FakeWorkload {
    pub(crate) trial: Trial,
    pub(crate) prepared: bool,
    pub(crate) cleaned: u32,
    pub(crate) fails_to_clean: bool,
    pub(crate) start_unknown: bool,
    pub(crate) own_cache: Option<Counts>,
    pub(crate) parts: usize,
    /// The part that was selected last.
    pub(crate) part: Rc<Cell<usize>>,
}

/// A target with its own cache, which has these blocks whatever start is requested.
#[derive(Debug)]
pub(crate) struct Counts(pub(super) WorkloadResidency);

impl OwnCache for Counts {
    fn start(&mut self, _: Start) -> Result<WorkloadResidency, BenchError> {
        Ok(self.0.clone())
    }
}

impl FakeWorkload {
    pub(crate) fn doing(
        trial: impl FnMut(&TrialContext<'_>) -> Result<Outcome, BenchError> + 'static,
    ) -> Self {
        FakeWorkload {
            trial: Box::new(trial),
            prepared: false,
            cleaned: 0,
            fails_to_clean: false,
            start_unknown: false,
            own_cache: None,
            parts: 1,
            part: Rc::default(),
        }
    }

    /// Returns a workload whose trials have these values in turn, repeated.
    pub(crate) fn values(values: &'static [f64]) -> Self {
        let mut values = values.iter().cycle();
        FakeWorkload::doing(move |_| Ok(rate(*values.next().unwrap())))
    }
}

/// Returns an outcome with one phase of a second.
pub(crate) fn rate(value: f64) -> Outcome {
    let phases = vec![Phase { name: "work".to_owned(), duration_ns: 1_000_000_000 }];
    Outcome { values: [("rate".to_owned(), value)].into(), phases, ..Outcome::default() }
}

impl Workload for FakeWorkload {
    fn name(&self) -> &'static str {
        "given"
    }

    fn parts(&self) -> Vec<WorkPart> {
        vec![WorkPart::default(); self.parts]
    }

    fn select_part(&mut self, number: usize) -> Result<(), BenchError> {
        self.part.set(number);
        Ok(())
    }

    fn description(&self) -> String {
        "values that are given".to_owned()
    }

    fn settings(&self) -> BTreeMap<String, serde_json::Value> {
        [("threads".to_owned(), 1.into())].into()
    }

    fn series(&self) -> Vec<Series> {
        vec![Series::new("rate", "1/s", Some(Direction::Higher))]
    }

    fn space(&self) -> Vec<Space> {
        vec![Space { directory: "/given".into(), bytes: 1000 }]
    }

    fn paths(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn prepare(&mut self, context: &TrialContext<'_>) -> Result<(), BenchError> {
        self.prepared = true;
        context.check()
    }

    fn start_state(&mut self) -> StartState<'_> {
        match &mut self.own_cache {
            Some(own_cache) => StartState::Own(own_cache),
            None if self.start_unknown => {
                StartState::Unknown("the server has a cache of its own".to_owned())
            }
            None => StartState::Files(vec!["/given/file".into()]),
        }
    }

    fn trial(&mut self, context: &TrialContext<'_>) -> Result<Outcome, BenchError> {
        (self.trial)(context)
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        self.cleaned += 1;
        let error = || BenchError::Failed("remove /given: it is busy".to_owned());
        if self.fails_to_clean { Err(error()) } else { Ok(()) }
    }
}

/// Returns a flag that is never set.
pub(crate) fn no_stop() -> AtomicBool {
    AtomicBool::new(false)
}

/// Returns the context of a workload that runs without [`super::run_trials`].
pub(crate) fn trial_context<'a>(host: &'a FakeHost, stop: &'a AtomicBool) -> TrialContext<'a> {
    TrialContext { trial: 1, seed: 1, stop, host }
}
