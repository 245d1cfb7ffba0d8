//! The cache size that a trace needs: the measurements of `larder size`.
//!
//! The trace is read several times, each time in one pass with bounded memory:
//!
//! 1. `survey`: duration, number of references and pages, extent of the volumes;
//! 2. `working_set`: the working set over time and the heat map, now that both axes are known;
//! 3. `caches`: all policies at sizes half an octave apart, in miniature;
//! 4. `search`: the size that reaches the goal, with the best policies around it; in simulations of
//!    a `server`, if the trace is short enough;
//! 5. `recommend`, and the other measurements at that size: half and twice the size, other page
//!    sizes, `windows`, `volumes`, MIN.
//!
//! Caches are simulated in full where that costs no more than [`COUNTED_MAX`] references, else in
//! miniature, and every result states the method. The result depends only on the seed. Sizes are
//! pages unless a name says bytes. If the trace is itself a sample of the pages, sizes are those of
//! the sample; the final result is scaled.

mod caches;
mod compose;
mod recommend;
mod search;
mod server;
mod survey;
mod volumes;
mod windows;
mod working_set;

pub use server::{SEARCH_REFERENCES_MAX, ServerOptions};

use crate::sim::engine::CacheSimulationError;
use crate::sim::references::{ReferenceError, References, Split};
use crate::trace::{Addressing, BoxedSource, TraceError};
use larder_core::cache::{METADATA_BYTES_PER_FRAME, TRACKER_BYTES};
use larder_core::curve::choice::PolicyChoice;
use larder_core::curve::miniature::{NOT_ESTIMATED, PASSES, SAMPLE_PAGES};
use larder_core::policy::PolicyKind;
use larder_core::units::BLOCK_BYTES_U64;
use larder_schema::advice::SizingGoal;
use larder_schema::format;
use larder_schema::sizing::Sizing;
use std::num::NonZero;

/// Maximum references that a step runs through caches of full size, over all of its caches: some
/// seconds of work.
pub const COUNTED_MAX: u64 = 100_000_000;
/// Maximum memory of MIN, equal to the limit for the tables of caches that run together.
const MIN_BYTES_MAX: u64 = if cfg!(test) { 1 << 20 } else { caches::TABLES_BYTES_MAX };
/// Page sizes to compare; references count pages of the first one.
pub const PAGE_SIZES: [u32; 3] = [4096, 16_384, 65_536];

/// Memory of the curve tracker of a volume, whatever the size of the volume.
const TRACKER: u64 = TRACKER_BYTES as u64;

/// Options of the measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// The trace as the user named it.
    pub name: String,
    /// Goal of the cache; its budget limits data and tables together.
    pub goal: SizingGoal,
    /// Policies to choose from, at least one.
    pub policies: Vec<PolicyKind>,
    /// True if page sizes are compared.
    pub page_sizes: bool,
    /// True if only caches that are as cheap as a sample are simulated in full.
    pub sampled: bool,
    /// The server whose work is predicted; `None` for replacement alone.
    pub server: Option<ServerOptions>,
    /// Seed of the random choices of samples.
    pub seed: u64,
    /// Number of threads; the result does not depend on it.
    pub threads: NonZero<usize>,
}

/// Opens the trace from its beginning.
pub type Open<'a> = dyn Fn() -> Result<BoxedSource, TraceError> + Sync + 'a;

/// Progress of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Name of the step, such as `simulating`.
    pub step: &'static str,
    /// References done.
    pub done: u64,
    /// References to do; 0 if unknown.
    pub total: u64,
}

/// Callback that receives the progress from time to time.
pub type ProgressCallback<'a> = dyn FnMut(Progress) + 'a;

/// A trace that cannot be sized, as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum SizingError {
    /// The trace is bad, cannot be read, or exceeds a limit.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The trace cannot run through the whole cache.
    #[error(transparent)]
    Whole(#[from] CacheSimulationError),
    /// The trace has objects instead of pages.
    #[error(
        "size a cache for {name}: it is a trace of objects, which have no pages; use larder sim"
    )]
    Objects {
        /// The trace.
        name: String,
    },
    /// The trace has no reads and no writes.
    #[error("size a cache for {name}: it has no read and no write")]
    Empty {
        /// The trace.
        name: String,
    },
    /// The budget holds no page.
    #[error(
        "size a cache of at most {}: that is less than one page with its tables; raise the budget",
        format::bytes(*budget_bytes)
    )]
    Budget {
        /// The requested budget.
        budget_bytes: u64,
    },
    /// The only policy cannot be estimated from a sample, and the trace is too long to do without.
    #[error(
        "size a cache for {name} under {}: the trace is too long for caches of full size, and \
         small caches under this policy do not behave like large ones; add another policy, or \
         shorten the trace with larder trace filter",
        NOT_ESTIMATED.name()
    )]
    NotEstimated {
        /// The trace.
        name: String,
    },
    /// The trace has more pages than a cache supports.
    #[error("size a cache for {name}: it touches 2^32 pages or more; filter it first")]
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

/// A surveyed trace and the options of its measurement.
struct SizingContext<'a> {
    open: &'a Open<'a>,
    options: &'a Options,
    survey: survey::TraceProperties,
    /// The server that is simulated, if one can be.
    server: Option<server::Server>,
}

impl SizingContext<'_> {
    /// Returns true if caches are sampled wherever that is cheaper: a sample of a trace of few
    /// pages would hold nearly all of it.
    fn uses_samples(&self) -> bool {
        self.options.sampled && self.survey.footprints[0].pages > PASSES * SAMPLE_PAGES
    }

    /// Returns the server in whose simulation the size is searched; `None` for replacement alone.
    fn search_server(&self) -> Option<&server::Server> {
        let fits = self.pages_max() >= server::PAGES_MIN;
        self.server.as_ref().filter(|server| fits && server.search.is_some())
    }

    /// Returns the page size of the search, an index in [`PAGE_SIZES`].
    fn page_size(&self) -> usize {
        self.search_server().map_or(0, |server| server.page_size)
    }

    /// Returns the memory of all pages of the trace, in pages of 4 KiB.
    fn footprint(&self) -> u32 {
        let page_size = self.server.as_ref().map_or(0, |server| server.page_size);
        let blocks = u64::from(PAGE_SIZES[page_size] / PAGE_SIZES[0]);
        let pages = self.survey.footprints[page_size].pages.saturating_mul(blocks);
        u32::try_from(pages).unwrap_or(u32::MAX)
    }

    /// Returns the options without the policy that cannot be estimated from a sample, if there are
    /// samples and it is one of the policies.
    fn estimated_options(&self) -> Option<Options> {
        let policies = &self.options.policies;
        if !policies.contains(&NOT_ESTIMATED) || compose::counts_all_policies(self) {
            return None;
        }
        let policies = policies.iter().copied().filter(|&kind| kind != NOT_ESTIMATED).collect();
        Some(Options { policies, ..self.options.clone() })
    }

    /// Returns all references from the beginning, in pages of one of [`PAGE_SIZES`].
    fn references(&self, page_bytes: u32) -> Result<References, SizingError> {
        Ok(References::new((self.open)()?, Split::Pages(page_bytes)))
    }

    /// Returns the maximum pages of a cache: those of the trace, or as many as the budget allows.
    fn pages_max(&self) -> u32 {
        let footprint = u64::from(self.footprint());
        let budget = self.options.goal.budget_bytes.map_or(u64::MAX, |bytes| {
            let bytes = bytes.saturating_sub(TRACKER);
            let of_page = self.options.policies.iter().map(|&kind| page_memory(kind.into()));
            bytes / of_page.max().unwrap_or(1)
        });
        u32::try_from(footprint.min(budget)).unwrap_or(u32::MAX)
    }
}

/// Returns the bytes of a page of 4 KiB with its metadata.
fn page_memory(policy: PolicyChoice) -> u64 {
    BLOCK_BYTES_U64 + (METADATA_BYTES_PER_FRAME + policy.bytes_per_page()) as u64
}

/// Returns the memory of a server whose cache has this many pages of 4 KiB: data, metadata and
/// ghosts, the value of `larder serve --memory`.
#[must_use]
pub fn memory_bytes(policy: impl Into<PolicyChoice>, pages: u64) -> u64 {
    page_memory(policy.into()) * pages + TRACKER
}

/// Returns the bytes of a number of pages of 4 KiB.
fn page_bytes(pages: u64) -> u64 {
    pages * BLOCK_BYTES_U64
}

/// Measures the trace and recommends a cache.
///
/// # Errors
/// The trace cannot be used, or the budget holds no page.
pub fn measure(
    open: &Open<'_>,
    options: &Options,
    progress: &mut ProgressCallback<'_>,
) -> Result<Sizing, SizingError> {
    let name = || options.name.clone();
    if open()?.addressing() == Addressing::Objects {
        return Err(SizingError::Objects { name: name() });
    }
    let mut survey = survey::survey(open()?, progress)?;
    if survey.references[0] == 0 {
        return Err(SizingError::Empty { name: name() });
    }
    if survey.footprints[0].pages >= u64::from(u32::MAX) {
        return Err(SizingError::TooLarge { name: name() });
    }
    let sample = survey.sample;
    let budget_bytes = options.goal.budget_bytes;
    // The budget is scaled to the sample; the tracker has the same size for the sample and the
    // whole trace.
    let scale_budget = |bytes: u64| bytes.saturating_sub(TRACKER) / u64::from(sample) + TRACKER;
    let goal = SizingGoal { budget_bytes: budget_bytes.map(scale_budget), ..options.goal };
    let server = match server::Server::of(open, options, &survey)? {
        Some(Ok(server)) => Some(server),
        Some(Err(reason)) => {
            survey.notes.push(format!("the prediction is of replacement alone: {reason}"));
            None
        }
        None => None,
    };
    let scaled = &Options { goal, ..options.clone() };
    let estimated: Options;
    let mut context = SizingContext { open, options: scaled, survey, server };
    if let Some(without) = context.estimated_options() {
        estimated = without;
        if estimated.policies.is_empty() {
            return Err(SizingError::NotEstimated { name: name() });
        }
        context.options = &estimated;
        context.survey.notes.push(format!(
            "{} was left out: the caches are sampled, and small caches under it do not behave like \
             large ones",
            NOT_ESTIMATED.name()
        ));
    }
    if context.pages_max() == 0 {
        let budget_bytes = budget_bytes.unwrap_or(0);
        return Err(SizingError::Budget { budget_bytes });
    }
    let sizing = compose::compose(&mut context, progress)?;
    if sample == 1 {
        return Ok(sizing);
    }
    let mut sizing = Sizing { goal: options.goal, ..larder_report::sizing::scaled(sizing, sample) };
    if let Some(advice) = &mut sizing.recommendation {
        advice.memory_bytes -= u64::from(sample - 1) * TRACKER;
    }
    Ok(sizing)
}

#[cfg(test)]
mod tests;
