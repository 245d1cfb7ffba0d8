//! How much cache a trace needs: the measurements behind `larder size`.
//!
//! The trace is read several times, each time in one pass with bounded memory:
//!
//! 1. `survey`: how long, how many references and pages, where the volumes end;
//! 2. `picture`: the working set over time and the heat map, now that both axes are known;
//! 3. `caches`: all policies at sizes half an octave apart, in miniature;
//! 4. `search`: the size that reaches the goal, with the best policies around it;
//! 5. the rest at that size: half and twice, other pages, `windows`, `volumes`, MIN.
//!
//! Caches are simulated in full where that costs no more than [`COUNTED_MAX`] references run, else
//! in miniature, and every result says which. The outcome depends on the seed and on nothing else.
//! Sizes are pages unless a name says bytes. Of a trace that is itself a sample of the pages, they
//! are those of the sample up to the end, where all is scaled.

mod caches;
mod compose;
mod search;
mod survey;
mod volumes;
mod windows;
mod working_set;

use crate::sim::curve::miniature::SAMPLE_PAGES;
use crate::sim::references::{ReferenceError, References, Split};
use crate::trace::{Addressing, BoxedSource, TraceError};
use larder_core::cache::{METADATA_BYTES_PER_FRAME, TRACKER_BYTES};
use larder_core::policy::PolicyKind;
use larder_core::units::BLOCK_BYTES_U64;
use larder_report::advise::goal::Goal;
use larder_report::sizing::Sizing;
use std::num::NonZero;

/// References that a step may run through caches of full size, over all of its caches: some
/// seconds.
pub const COUNTED_MAX: u64 = 100_000_000;
/// Maximum memory of MIN, as much as the tables of caches that run together may take.
const MIN_BYTES_MAX: u64 = if cfg!(test) { 1 << 20 } else { caches::TABLES_BYTES_MAX };
/// Page sizes that are compared; the first one is what references count.
pub const PAGE_SIZES: [u32; 3] = [4096, 16_384, 65_536];

/// What the curve of a volume takes, whatever its size.
const TRACKER: u64 = TRACKER_BYTES as u64;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The trace as the user named it.
    pub name: String,
    /// What is wanted of the cache; its budget bounds data and tables together.
    pub goal: Goal,
    /// Policies to choose from, at least one.
    pub policies: Vec<PolicyKind>,
    /// Whether nothing is to be simulated in full but what is as cheap as a sample.
    pub sampled: bool,
    /// Where the random choices of samples come from.
    pub seed: u64,
    /// Threads; the result does not depend on it.
    pub threads: NonZero<usize>,
}

/// Opens the trace from its beginning.
pub type Open<'a> = dyn Fn() -> Result<BoxedSource, TraceError> + Sync + 'a;

/// How far a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is done, as in `simulating`.
    pub step: &'static str,
    /// References done.
    pub done: u64,
    /// References to do; 0 if that is not known.
    pub total: u64,
}

/// Is told of progress now and then.
pub type Tell<'a> = dyn FnMut(Progress) + 'a;

/// Why nothing can be said about a trace, in one sentence.
#[derive(Debug, thiserror::Error)]
pub enum SizingError {
    /// The trace is bad, cannot be read, or reaches too far.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// There are no pages to size a cache in.
    #[error(
        "{name}: it is a trace of objects, which have no pages; `larder sim` counts their hits"
    )]
    Objects {
        /// The trace.
        name: String,
    },
    /// There is nothing to size a cache for.
    #[error("{name}: it has no read and no write")]
    Empty {
        /// The trace.
        name: String,
    },
    /// The budget holds no page.
    #[error("a budget of {budget_bytes} bytes is less than one page with its tables")]
    Budget {
        /// What was asked for.
        budget_bytes: u64,
    },
    /// The trace has more pages than a cache can.
    #[error("{name}: it touches 2^32 pages or more; filter it first")]
    TooLarge {
        /// The trace.
        name: String,
    },
}

impl From<TraceError> for SizingError {
    fn from(error: TraceError) -> Self {
        SizingError::Reference(error.into())
    }
}

/// A trace on the table.
struct Case<'a> {
    open: &'a Open<'a>,
    options: &'a Options,
    survey: survey::Survey,
}

impl Case<'_> {
    /// Whether caches are to be sampled wherever that is cheaper: samples of a trace of few pages
    /// hold nearly all of it.
    fn samples(&self) -> bool {
        self.options.sampled && self.survey.footprints[0].pages > 2 * SAMPLE_PAGES
    }

    /// All references from the beginning, in pages of one of [`PAGE_SIZES`].
    fn references(&self, page_bytes: u32) -> Result<References<BoxedSource>, SizingError> {
        Ok(References::new((self.open)()?, Split::Pages(page_bytes)))
    }

    /// The most pages that a cache may have: those of the trace, or what the budget leaves.
    fn pages_max(&self) -> u32 {
        let footprint = self.survey.footprints[0].pages;
        let budget = self.options.goal.budget_bytes.map_or(u64::MAX, |bytes| {
            let bytes = bytes.saturating_sub(TRACKER);
            bytes / self.options.policies.iter().map(|&kind| page_memory(kind)).max().unwrap_or(1)
        });
        u32::try_from(footprint.min(budget)).unwrap_or(u32::MAX)
    }
}

/// Bytes that a page of 4 KiB takes with everything that belongs to it.
fn page_memory(policy: PolicyKind) -> u64 {
    BLOCK_BYTES_U64 + (METADATA_BYTES_PER_FRAME + policy.bytes_per_page()) as u64
}

/// Bytes of a number of pages of 4 KiB.
fn page_bytes(pages: u64) -> u64 {
    pages * BLOCK_BYTES_U64
}

/// Finds out everything.
///
/// # Errors
/// The trace cannot be used, or the budget holds no page.
pub fn measure(
    open: &Open<'_>,
    options: &Options,
    tell: &mut Tell<'_>,
) -> Result<Sizing, SizingError> {
    let name = || options.name.clone();
    if open()?.addressing() == Addressing::Objects {
        return Err(SizingError::Objects { name: name() });
    }
    let survey = survey::survey(open()?, tell)?;
    if survey.references[0] == 0 {
        return Err(SizingError::Empty { name: name() });
    }
    if survey.footprints[0].pages >= u64::from(u32::MAX) {
        return Err(SizingError::TooLarge { name: name() });
    }
    let sample = survey.sample;
    let budget_bytes = options.goal.budget_bytes;
    // Its part of the budget for what is in the trace; the tracker is as large for all.
    let part = |bytes: u64| bytes.saturating_sub(TRACKER) / u64::from(sample) + TRACKER;
    let goal = Goal { budget_bytes: budget_bytes.map(part), ..options.goal };
    let case = Case { open, options: &Options { goal, ..options.clone() }, survey };
    if case.pages_max() == 0 {
        let budget_bytes = budget_bytes.unwrap_or(0);
        return Err(SizingError::Budget { budget_bytes });
    }
    let made = compose::compose(&case, tell)?;
    if sample == 1 {
        return Ok(made);
    }
    let mut made = Sizing { goal: options.goal, ..made.scaled(sample) };
    if let Some(advice) = &mut made.recommendation {
        advice.memory_bytes -= u64::from(sample - 1) * TRACKER;
    }
    Ok(made)
}

#[cfg(test)]
mod tests;
