//! One seed of the experiment: the aged volume of its files, and the places of its paging.

use super::WITHOUT_S;
use super::assumptions::{Assumptions, FREE_PERCENT, REPLACED, USED_BYTES};
use super::machine::Machine;
use super::paging::Paging;
use crate::file_system::{AgedVolume, Ageing, Allocator, file_bytes};
use crate::workload::postmark::Engine;
use larder_core::clock::SECOND;
use larder_core::units::{BLOCK_BYTES_U64, as_f64};

/// Difference of a fitted time that is left, seconds.
const TOLERANCE_S: f64 = 0.25;
/// Maximum number of runs of a fit after the first ones.
const RUNS_MAX: usize = 24;
/// First and maximum page-ins per transaction of a fit.
const FIRST_RATE: f64 = 0.125;
const RATE_MAX: f64 = 256.0;
/// Operations on files of a transaction.
const OPERATIONS: f64 = 2.0;

/// The paging with which the run without the cache takes the published time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fit {
    /// Page-ins per transaction; 0 if the run takes longer even without any.
    pub(super) page_ins: f64,
    /// The time of that run, seconds.
    pub(super) without_s: f64,
}

/// One seed of the experiment.
pub(super) struct Trial<'a> {
    assumptions: &'a Assumptions,
    seed: u64,
    clusters: Allocator,
    engine: Engine,
}

impl<'a> Trial<'a> {
    pub(super) fn new(assumptions: &'a Assumptions, seed: u64) -> Self {
        let ageing = Ageing {
            bytes: USED_BYTES,
            unit: BLOCK_BYTES_U64,
            free_percent: FREE_PERCENT,
            replaced: REPLACED,
        };
        let clusters = AgedVolume::new(ageing, file_bytes, seed).into_allocator();
        let engine = Engine::new(&assumptions.config, None).expect("memory for PostMark's data");
        Trial { assumptions, seed, clusters, engine }
    }

    /// Returns the seconds of a run with this many page-ins per transaction, and with or without
    /// a cache for the page file.
    pub(super) fn seconds(&self, page_ins: f64, cache_bytes: Option<u64>) -> f64 {
        let rates = (page_ins / OPERATIONS, self.assumptions.page_outs);
        let paging = Paging::new(rates, self.assumptions.working_set_bytes, !self.seed);
        let machine = Machine::new(self.assumptions, self.clusters.clone(), paging, cache_bytes);
        as_f64(machine.run(self.engine.clone())) / as_f64(SECOND)
    }

    /// Finds the rate of page-ins with which the run without the cache takes the published time.
    pub(super) fn fit(&self) -> Fit {
        fit(|page_ins| self.seconds(page_ins, None))
    }
}

/// Finds the rate at which a time that increases with it is the published one: between two rates
/// around it, at the place where a line through both has that time, until the difference is small.
fn fit(seconds: impl Fn(f64) -> f64) -> Fit {
    let at = |page_ins: f64| Fit { page_ins, without_s: seconds(page_ins) };
    let mut low = at(0.0);
    if low.without_s >= WITHOUT_S {
        return low;
    }
    let mut high = at(FIRST_RATE);
    while high.without_s < WITHOUT_S && high.page_ins < RATE_MAX {
        low = high;
        high = at(2.0 * high.page_ins);
    }
    if high.without_s < WITHOUT_S {
        return high;
    }
    let mut found = high;
    for _ in 0..RUNS_MAX {
        let slope = (high.page_ins - low.page_ins) / (high.without_s - low.without_s);
        found = at(low.page_ins + slope * (WITHOUT_S - low.without_s));
        if (found.without_s - WITHOUT_S).abs() <= TOLERANCE_S {
            break;
        }
        *(if found.without_s < WITHOUT_S { &mut low } else { &mut high }) = found;
    }
    found
}

/// Returns the sentence about the fit of all seeds.
pub(super) fn sentence(fits: &[Fit]) -> String {
    let range = |of: fn(&Fit) -> f64| {
        let values = fits.iter().map(of);
        values.fold((f64::INFINITY, 0.0_f64), |(low, high), it| (low.min(it), high.max(it)))
    };
    let (low, high) = range(|fit| fit.page_ins);
    let (shortest, longest) = range(|fit| fit.without_s);
    format!(
        "Fitted: {low:.3} to {high:.3} page-ins per transaction, with which the run without the \
         added cache takes {shortest:.1} to {longest:.1} s (published: 124 s). Predicted: the run \
         with it, at the same rate."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_finds_the_rate_of_a_curved_line_and_gives_up_at_the_ends() {
        let curved = |rate: f64| 50.0 + 20.0 * rate.powf(1.3);
        let found = fit(curved);
        assert!((found.without_s - WITHOUT_S).abs() <= TOLERANCE_S, "{found:?}");
        assert!((curved(found.page_ins) - found.without_s).abs() < 1e-9);
        assert_eq!(fit(|_| 130.0), Fit { page_ins: 0.0, without_s: 130.0 });
        // It never becomes long enough.
        let found = fit(|rate| 100.0 + rate / 1_000.0);
        assert!(found.page_ins >= RATE_MAX && found.without_s < WITHOUT_S, "{found:?}");
    }
}
