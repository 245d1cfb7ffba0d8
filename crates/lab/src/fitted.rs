//! Synthetic traces that are fitted to another trace, to be given away in its place.
//!
//! The model is that of LRU stack distances (Mattson, Gecsei, Slutz, Traiger, "Evaluation
//! techniques for storage hierarchies", IBM Systems Journal 9(2), 1970): the curve of LRU depends
//! only on how often each distance occurs. Requests form runs: with new pages in order, or with one
//! distance, which repeat earlier requests in their order. The runs of each of at most 128 phases
//! of the trace are drawn without replacement, given the class of the previous run, until the phase
//! has the number of references of each distance that the trace has. A run may move to a similar
//! distance, where the page is as popular, and its last request as long, as in the trace.
//!
//! Memory: at most 1 GiB for [`PAGES_MAX`] pages, and 256 MiB for the runs.

mod fit;
mod generate;
mod history;
mod model;
mod report;
mod run_pool;
mod shapes;
mod streams;

pub use generate::FittedTrace;
pub use report::{CurveError, TraceSize};

use crate::random::Random;
use crate::sim::references::Split;
use crate::trace::{BoxedSource, Source, TraceError};
use fit::Fitter;
use generate::Form;
use larder_schema::format;

/// Maximum number of pages of a trace, and of the one that is generated.
pub const PAGES_MAX: u64 = if cfg!(test) { 1 << 18 } else { 8 << 20 };

/// A fit that failed, as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace has no reads and writes.
    #[error("fit a trace without reads and writes")]
    Empty,
    /// The trace has too many pages, or volumes and pages beyond the limits of a simulation.
    #[error(
        "fit a trace of more than {} pages, or with a page beyond 65,536 volumes of 2^48 pages; \
         shorten it with larder trace filter",
        format::count(PAGES_MAX)
    )]
    TooLarge,
    /// The generated trace would have too many pages.
    #[error(
        "make a trace of about {}: the limit is {}; ask for fewer --requests",
        format::counted(*pages, "page"),
        format::count(PAGES_MAX)
    )]
    TooLong {
        /// Its pages.
        pages: u64,
    },
}

/// The options of a generated trace.
#[derive(Clone, Copy, Debug)]
pub struct FitOptions {
    /// Number of requests; about as many as in the other trace if `None`.
    pub requests: Option<u64>,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Reads a trace to its end, and returns one that is fitted to it.
///
/// # Errors
/// The trace cannot be read, has no reads and writes, or exceeds a limit.
pub fn fit(mut source: BoxedSource, options: &FitOptions) -> Result<FittedTrace, FitError> {
    let addressing = source.addressing();
    let split = Split::native(addressing);
    let mut fitter = Fitter::new(split, options.seed);
    let mut batch = Vec::new();
    while source.next_batch(&mut batch)? {
        batch.iter().try_for_each(|record| fitter.add(record))?;
    }
    let sample = source.sample();
    // The memory of the reader is free for the generator.
    drop(source);
    let (model, curve, size) = fitter.finish()?;
    let requests = options.requests;
    let repetitions = requests.unwrap_or(0).div_ceil(size.requests);
    let pages = repetitions.saturating_mul(size.pages);
    if pages > PAGES_MAX {
        return Err(FitError::TooLong { pages });
    }
    let random = Random::from_seed(options.seed);
    Ok(FittedTrace::new(model, random, Form { addressing, sample, requests }, (curve, size)))
}

#[cfg(test)]
mod tests;
