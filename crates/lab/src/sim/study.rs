//! The simulations of `larder sim`: hit ratios of a trace by policy and cache size, as rows of one
//! table; of replacement alone, or from curves, or of the whole cache.
//!
//! A trace is read twice: first for its footprint, which determines sizes in per cent and the
//! memory of the simulation, then for the caches. Every trace and every page size is simulated on
//! its own.

mod case;
mod curves;
mod sizes;
mod table;
mod whole;

pub use case::Case;
pub use curves::CurveKind;
pub use sizes::Size;
pub use table::{Row, from_rows, json};
pub use whole::{Run, WholeStudy, full_table, run_whole, short_table};

use super::engine::CacheSimulationError;
use super::interner::Interner;
use super::min::{self, Future, TraceTooLong};
use super::references::{ReferenceError, ReferenceKey};
use super::sizing::{Progress, ProgressCallback};
use super::sweep::{self, SweepItem};
use larder_core::curve::choice::PolicyChoice;
use larder_schema::format;
use std::num::NonZero;

/// The name of the bound among the policies.
pub const MIN: &str = "min";
/// The name of the step in which caches run.
const STEP: &str = "simulating";

/// A simulation that failed, as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// The trace is bad, cannot be read, or exceeds a limit.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The trace cannot run through the whole cache.
    #[error(transparent)]
    Whole(#[from] CacheSimulationError),
    /// The trace is too long for the bound.
    #[error(transparent)]
    Bound(#[from] TraceTooLong),
    /// The options do not fit each other or the trace.
    #[error("{0}")]
    Refused(String),
}

fn refused(text: impl Into<String>) -> StudyError {
    StudyError::Refused(text.into())
}

/// Options of simulated replacement.
#[derive(Clone, Debug)]
pub struct StudyOptions {
    /// The policies, each once.
    pub policies: Vec<PolicyChoice>,
    /// True if the policies are all of them because the user named none.
    pub is_default: bool,
    /// True if the bound is computed as well.
    pub min: bool,
    /// Sizes of the caches.
    pub sizes: Vec<Size>,
    /// Method of a hit-ratio curve; `None` to simulate caches of the sizes.
    pub curve: Option<CurveKind>,
    /// Grouping of the curves.
    pub by: Option<ReferenceKey>,
    /// Seed of the random choices of a sample.
    pub seed: u64,
    /// Number of threads; the result does not depend on it.
    pub threads: NonZero<usize>,
    /// Available memory of the machine; the bound takes at most half of it.
    pub available_bytes: u64,
}

/// Simulates every policy at every size. `note` receives notes for the user, one sentence each.
///
/// # Errors
/// The trace cannot be simulated with these options.
pub fn run(
    case: &Case<'_>,
    options: &StudyOptions,
    progress: &mut ProgressCallback<'_>,
    note: &mut dyn FnMut(String),
) -> Result<Vec<Row>, StudyError> {
    if let Some(curve) = options.curve {
        return curves::run(case, curve, options, note);
    }
    let (mut references, mut footprint) = (0, Interner::new());
    let mut numbers = Vec::new();
    let read = case.for_each_batch(None, |batch| {
        references += batch.references.len() as u64;
        footprint.numbers(&batch.references, &mut numbers);
        Ok(())
    })?;
    case.notes(&read).into_iter().for_each(&mut *note);
    let pages = footprint.len() as u64;
    drop(footprint);
    if references == 0 {
        return Err(case.is_empty());
    }
    let capacities = case.capacities(&options.sizes, pages)?;
    let policies = options.policies.iter();
    let plan: Vec<SweepItem> = policies
        .flat_map(|&policy| capacities.iter().map(move |&capacity| SweepItem { policy, capacity }))
        .collect();
    let mut rows = Vec::new();
    if !plan.is_empty() {
        let counts = sweep::run(case.references()?, &plan, Some(pages), options.threads, |done| {
            progress(Progress { step: STEP, done, total: references });
        })?;
        let counted = plan.iter().zip(counts).map(|(planned, counts)| {
            let row = Row::counted(case, planned.policy.name(), planned.capacity, counts);
            Row { compulsory: Some(pages), ..row }
        });
        rows.extend(counted);
    }
    if options.min {
        let bytes = min::memory_bytes(references, pages);
        match check_memory(&case.name, bytes, options.available_bytes) {
            Ok(()) => rows.extend(bound(case, &capacities, pages)?),
            Err(error) if rows.is_empty() => return Err(error),
            Err(error) => note(format!("note: {error}")),
        }
    }
    Ok(rows)
}

/// Refuses the bound if it would take more than half of the available memory.
fn check_memory(name: &str, bytes: u64, available: u64) -> Result<(), StudyError> {
    if bytes <= available / 2 {
        return Ok(());
    }
    Err(StudyError::Refused(format!(
        "simulate {name} with min: it takes {} of memory, and half of what is available is {}; \
         leave out min, or shorten the trace with larder trace filter",
        format::bytes(bytes),
        format::bytes(available / 2)
    )))
}

/// Computes MIN at every size, over a trace of `pages` pages.
fn bound(case: &Case<'_>, capacities: &[u32], pages: u64) -> Result<Vec<Row>, StudyError> {
    let mut future = Future::new();
    case.for_each_batch(None, |batch| Ok(future.add(&batch.references)?))?;
    let known = future.known();
    let row = |&capacity: &u32| {
        let found = known.run(capacity);
        let row = Row::counted(case, MIN, capacity, found.counts);
        Row { compulsory: Some(pages), write_backs: Some(found.write_backs), ..row }
    };
    Ok(capacities.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_takes_at_most_half_of_the_available_memory() {
        assert!(check_memory("t.csv", 100, 200).is_ok());
        let error = check_memory("t.csv", 101 << 20, 200 << 20).unwrap_err().to_string();
        assert!(error.starts_with("simulate t.csv with min: it takes 101 MiB"), "{error}");
    }
}
