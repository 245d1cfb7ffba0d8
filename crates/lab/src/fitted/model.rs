//! The distributions of a trace: runs of requests, operations and times, by phase of the trace.

use super::shapes::Shapes;
use super::streams::Continuation;
use crate::random::Random;

/// Maximum number of runs that a sample keeps.
const RUNS_MAX: usize = 1 << 13;
/// Classes of runs.
pub(super) const CLASSES: usize = 36;

/// The place of new pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Away from other pages.
    Far,
    /// After a recent request.
    Stream(Continuation),
    /// This number of pages after the begin of the previous request, which had new pages too.
    Step(i32),
    /// After the page with this stack distance.
    After(u32),
}

/// The pages of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Each request has new pages, after `old` others.
    New {
        start: Start,
        old: u64,
        /// Pages from the begin of a request to that of the next one; 0 if there is only one.
        step: i32,
    },
    /// All pages were referenced before.
    Old {
        /// Stack distance of the middle page of each request.
        distance: u32,
        /// Binary logarithm of the number of references to that page.
        popularity: u8,
        /// The recent request that the first one continues.
        continues: Option<Continuation>,
    },
}

impl Kind {
    /// Returns the class of most references.
    pub(super) fn distance_class(self) -> usize {
        match self {
            Kind::New { .. } => distance_class(None),
            Kind::Old { distance, .. } => distance_class(Some(distance)),
        }
    }

    /// Returns the class, which selects the distribution of the next run and of the operations.
    pub(super) fn class(self) -> usize {
        match self {
            Kind::New { start: Start::Far, .. } => 0,
            Kind::New { start: Start::Step(_), .. } => 1,
            Kind::New { start: Start::After(_), .. } => 2,
            Kind::New { start: Start::Stream(_), .. } => 3,
            Kind::Old { distance, continues, .. } => {
                let magnitude = (distance + 1).ilog2() as usize / 2;
                4 + 2 * magnitude + usize::from(continues.is_some())
            }
        }
    }
}

/// Requests one after the other, with the same stack distance or with new pages in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) kind: Kind,
    /// Class of the run before.
    pub(super) before: u8,
    /// Shape of the first request; of all requests with new pages.
    pub(super) shape: u16,
    pub(super) requests: u64,
    /// References to pages.
    pub(super) pages: u64,
}

/// Counts of requests by operation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OpCounts {
    pub(super) requests: u64,
    pub(super) writes: u64,
    /// Requests that a flush follows.
    pub(super) flushes: u64,
}

/// The context of an operation: class of its run, last operation on its first page, previous
/// operation.
pub(super) fn op_context(class: usize, page_before: PageOp, write_before: bool) -> usize {
    (class * 3 + page_before as usize) * 2 + usize::from(write_before)
}

/// The last operation on a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PageOp {
    #[default]
    None,
    Read,
    Write,
}

impl PageOp {
    pub(super) fn of(write: bool) -> Self {
        if write { PageOp::Write } else { PageOp::Read }
    }
}

/// Classes of references: by stack distance, eight for each power of two, and at last new pages.
pub(super) const DISTANCES: usize = 241;

/// Returns the class of a reference.
pub(super) fn distance_class(distance: Option<u32>) -> usize {
    match distance {
        None => DISTANCES - 1,
        Some(near @ 0..8) => near as usize,
        Some(distance) => {
            let exponent = distance.ilog2();
            ((exponent - 2) << 3 | distance >> (exponent - 3) & 7) as usize
        }
    }
}

const OP_CONTEXTS: usize = CLASSES * 6;
/// Intervals are counted by their exponent and the three bits after the first one.
const INTERVALS: usize = 64 << 3;

/// A sample of runs.
#[derive(Debug)]
struct RunSample {
    runs: Vec<Run>,
    /// The number of runs of which these are a sample.
    count: u64,
}

impl RunSample {
    /// Adds a run, or replaces another one of the sample (Vitter, "Random sampling with a
    /// reservoir", 1985).
    fn add(&mut self, run: Run, random: &mut Random) {
        self.count += 1;
        if self.runs.len() < RUNS_MAX {
            return self.runs.push(run);
        }
        let at = usize::try_from(random.below(self.count)).unwrap_or(usize::MAX);
        if let Some(place) = self.runs.get_mut(at) {
            *place = run;
        }
    }

    /// Returns how often the runs have to be drawn at most: once for each run of which they are a
    /// sample, and twice more because some requests become shorter than in the trace.
    fn rounds(&self) -> u64 {
        self.count.div_ceil(self.runs.len().max(1) as u64) + 2
    }

    /// Adds the sample of other runs.
    fn merge(&mut self, other: RunSample, random: &mut Random) {
        let all = self.count + other.count;
        let sampled = (self.runs.len() + other.runs.len()) as u64;
        let kept = sampled.min(RUNS_MAX as u64);
        let ours = u128::from(kept) * u128::from(self.count) / u128::from(all.max(1));
        let ours = usize::try_from(ours).expect("at most all").min(self.runs.len());
        keep(&mut self.runs, ours, random);
        let mut theirs = other.runs;
        keep(&mut theirs, usize::try_from(kept).expect("few") - ours, random);
        self.runs.append(&mut theirs);
        self.count = all;
    }
}

/// The distributions of a part of the trace.
#[derive(Debug)]
pub(super) struct Phase {
    /// Runs with new pages, and the other runs: without the former there would be no pages.
    new_runs: RunSample,
    old_runs: RunSample,
    /// References by class.
    pub(super) distances: Vec<u64>,
    pub(super) requests: u64,
    pub(super) writes: u64,
    pub(super) ops: Vec<OpCounts>,
    /// Times between requests.
    intervals: Vec<u64>,
}

impl Default for Phase {
    fn default() -> Self {
        let (ops, intervals) = (vec![OpCounts::default(); OP_CONTEXTS], vec![0; INTERVALS]);
        let distances = vec![0; DISTANCES];
        let [new_runs, old_runs] = [const { RunSample { runs: Vec::new(), count: 0 } }; 2];
        Phase { new_runs, old_runs, distances, requests: 0, writes: 0, ops, intervals }
    }
}

impl Phase {
    pub(super) fn add_run(&mut self, run: Run, random: &mut Random) {
        match run.kind {
            Kind::New { .. } => self.new_runs.add(run, random),
            Kind::Old { .. } => self.old_runs.add(run, random),
        }
    }

    /// Returns the runs that begin here, or a sample of them.
    pub(super) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.new_runs.runs.iter().chain(&self.old_runs.runs)
    }

    /// Returns how often the runs have to be drawn at most.
    pub(super) fn rounds(&self) -> u64 {
        self.new_runs.rounds().max(self.old_runs.rounds())
    }

    pub(super) fn add_interval(&mut self, interval_ns: u64) {
        let class = if interval_ns < 8 {
            interval_ns
        } else {
            let exponent = interval_ns.ilog2();
            u64::from(exponent) << 3 | interval_ns >> (exponent - 3) & 7
        };
        self.intervals[usize::try_from(class).expect("less than 512")] += 1;
    }

    /// Draws a time between requests.
    pub(super) fn interval_ns(&self, random: &mut Random) -> u64 {
        let all: u64 = self.intervals.iter().sum();
        let mut at = random.below(all.max(1));
        for (interval, &count) in (0..).zip(&self.intervals) {
            if at < count && interval < 8 {
                return interval;
            }
            if at < count {
                let shift = (interval >> 3) - 3;
                return ((8 | interval & 7) << shift) + random.below(1 << shift);
            }
            at -= count;
        }
        0
    }

    /// Appends the next phase.
    pub(super) fn merge(&mut self, next: Phase, random: &mut Random) {
        self.new_runs.merge(next.new_runs, random);
        self.old_runs.merge(next.old_runs, random);
        self.requests += next.requests;
        self.writes += next.writes;
        for (ours, theirs) in self.ops.iter_mut().zip(next.ops) {
            ours.requests += theirs.requests;
            ours.writes += theirs.writes;
            ours.flushes += theirs.flushes;
        }
        self.distances.iter_mut().zip(next.distances).for_each(|(ours, theirs)| *ours += theirs);
        self.intervals.iter_mut().zip(next.intervals).for_each(|(ours, theirs)| *ours += theirs);
    }
}

/// Keeps this number of elements, drawn at random.
fn keep(runs: &mut Vec<Run>, count: usize, random: &mut Random) {
    while runs.len() > count {
        let at = random.below(runs.len() as u64);
        runs.swap_remove(usize::try_from(at).expect("an index"));
    }
}

/// The distributions of a trace.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) phases: Vec<Phase>,
    pub(super) shapes: Shapes,
    /// Pages of all volumes, with the unused ones.
    pub(super) span: u64,
}
