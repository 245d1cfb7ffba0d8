//! The runs of a phase, which are drawn without replacement, and the references that it lacks.

use super::model::{CLASSES, DISTANCES, Kind, Phase, Run, distance_class};
use crate::random::Random;

/// Runs that are compared before one is chosen.
pub(super) const CANDIDATES: u32 = 24;
/// Distances are similar if less than one part in so many of the phase's references are between
/// them.
const SIMILAR_PARTS: u64 = 64;
/// Also, they differ by at most one part in so many.
const NEAR_PARTS: u32 = 8;

/// The runs of a phase that were not yet drawn.
#[derive(Debug)]
pub(super) struct RunPool {
    /// The runs, by the class of the run before.
    by_class: Vec<Vec<Run>>,
    pub(super) distances: Distances,
    /// Number of times that the runs of the phase can be put back.
    rounds: u64,
}

/// The stack distances of a phase.
#[derive(Debug)]
pub(super) struct Distances {
    /// References that the trace up to the end of the phase still lacks, by class of distances;
    /// less than 0 if it has too many.
    quotas: Vec<i64>,
    /// The distances of runs in order, each with the number of references up to it.
    sorted: Vec<(u32, u64)>,
}

impl RunPool {
    pub(super) fn new() -> Self {
        let (by_class, quotas) = (vec![Vec::new(); CLASSES], vec![0; DISTANCES]);
        RunPool { by_class, distances: Distances { quotas, sorted: Vec::new() }, rounds: 0 }
    }

    /// Begins a phase; references that the one before lacked are made up for.
    pub(super) fn begin(&mut self, phase: &Phase) {
        self.distances.begin(phase);
        self.rounds = phase.rounds();
    }

    /// Returns true if a run is left; puts the runs of the phase back if it has too few references.
    pub(super) fn fill(&mut self, phase: &Phase) -> bool {
        if self.by_class.iter().any(|runs| !runs.is_empty()) {
            return true;
        }
        let quotas = self.distances.quotas.iter();
        if self.rounds == 0 || quotas.fold(0, |sum: i64, it| sum.saturating_add(*it)) <= 0 {
            return false;
        }
        self.rounds -= 1;
        for run in phase.runs() {
            if self.distances.lacks(run.kind.distance_class()) {
                self.by_class[usize::from(run.before)].push(*run);
            }
        }
        self.by_class.iter().any(|runs| !runs.is_empty())
    }

    /// Draws a run that follows one of this class if there is one, else any run. Of several with
    /// one class, it is the one with the least mismatch. A run is left.
    pub(super) fn draw(
        &mut self,
        class: usize,
        random: &mut Random,
        mismatch: impl Fn(&Run, &Distances) -> u32,
    ) -> Run {
        let mut before = class;
        if self.by_class[before].is_empty() {
            let mut at = random.below(self.by_class.iter().map(|runs| runs.len() as u64).sum());
            let is_here = |runs: &Vec<Run>| {
                let len = runs.len() as u64;
                let is_here = at < len;
                at = at.saturating_sub(len);
                is_here
            };
            before = self.by_class.iter().position(is_here).expect("a run is left");
        }
        let runs = &mut self.by_class[before];
        let mut index = || usize::try_from(random.below(runs.len() as u64)).expect("a valid index");
        let mut best = index();
        let class = runs[best].kind.class();
        let mut least = mismatch(&runs[best], &self.distances);
        for _ in 1..CANDIDATES {
            if least == 0 {
                break;
            }
            let other = index();
            if runs[other].kind.class() == class {
                let found = mismatch(&runs[other], &self.distances);
                if found < least {
                    (best, least) = (other, found);
                }
            }
        }
        runs.swap_remove(best)
    }
}

impl Distances {
    fn begin(&mut self, phase: &Phase) {
        for (quota, &count) in self.quotas.iter_mut().zip(&phase.distances) {
            *quota = quota.saturating_add(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let of_run = |run: &Run| match run.kind {
            Kind::Old { distance, .. } => Some((distance, run.pages)),
            Kind::New { .. } => None,
        };
        self.sorted = phase.runs().filter_map(of_run).collect();
        self.sorted.sort_unstable();
        let mut sum = 0_u64;
        for (_, pages) in &mut self.sorted {
            sum = sum.saturating_add(*pages);
            *pages = sum;
        }
    }

    /// Returns true if the trace lacks references of this class.
    pub(super) fn lacks(&self, distance_class: usize) -> bool {
        self.quotas[distance_class] > 0
    }

    /// Counts a reference of this class.
    pub(super) fn count(&mut self, distance_class: usize) {
        self.quotas[distance_class] -= 1;
    }

    /// Returns the references of the phase up to the middle of those with this distance.
    fn rank(&self, distance: u32) -> u64 {
        let up_to = |at: usize| at.checked_sub(1).map_or(0, |at| self.sorted[at].1);
        let begin = up_to(self.sorted.partition_point(|it| it.0 < distance));
        let end = up_to(self.sorted.partition_point(|it| it.0 <= distance));
        begin + (end - begin) / 2
    }

    fn reach(&self) -> u64 {
        self.sorted.last().map_or(0, |it| it.1) / SIMILAR_PARTS
    }

    /// Returns true if a reference at the distance `found` can take the place of one at `wanted`.
    pub(super) fn is_similar(&self, wanted: u32, found: u32) -> bool {
        wanted.abs_diff(found) <= wanted / NEAR_PARTS
            && self.lacks(distance_class(Some(found)))
            && self.rank(wanted).abs_diff(self.rank(found)) <= self.reach()
    }

    /// Draws a distance that is similar to this one.
    pub(super) fn similar(&self, distance: u32, random: &mut Random) -> Option<u32> {
        let reach = self.reach();
        let at = self.rank(distance).saturating_add(random.below(2 * reach + 1));
        let at = at.saturating_sub(reach);
        let found = self.sorted.partition_point(|it| it.1 <= at);
        let found = self.sorted.get(found)?.0;
        self.is_similar(distance, found).then_some(found)
    }
}
