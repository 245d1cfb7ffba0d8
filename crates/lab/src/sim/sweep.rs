//! Simulation of many caches in one pass over a trace, on a given number of threads.
//!
//! The trace is read and its pages are numbered once, in long batches: a cache whose tables do not
//! fit in the processor's cache together with those of the others loads them once per batch. While
//! the other threads run the caches over one batch, the first thread reads the next batch and then
//! helps.
//!
//! Invariant: each cache sees all references in the order of the trace, so the counts do not depend
//! on the number of threads.
//!
//! Memory in addition to the caches: two batches of 10 MiB; and the memory of the [`Interner`], if
//! any cache finds its pages by number.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use larder_core::curve::choice::PolicyChoice;

use super::auto_cache::AutoCache;
use super::interner::Interner;
use super::references::{Batch, Reference, ReferenceError, References};
use larder_core::replace::{self, Counts, IndexKind, Replace};

/// References of a batch.
const SWEEP_BATCH_REFERENCES: usize = if cfg!(test) { 32 << 10 } else { 512 << 10 };
/// Bytes that the numbers may take for each page of the caches: less than half of the other memory
/// of a cache per page (its key, its entry in a table, the links and ghosts of the policy).
const NUMBERS_BYTES_PER_PAGE: u64 = 24;
/// Bytes that the numbers may take in any case.
const NUMBERS_BYTES_MIN: u64 = 16 << 20;

/// One cache of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepItem {
    /// Its policy.
    pub policy: PolicyChoice,
    /// Its size in pages, at least 1.
    pub capacity: u32,
}

impl SweepItem {
    fn cache(self, find_by: IndexKind) -> Box<dyn Replace> {
        match self.policy {
            PolicyChoice::Fixed(kind) => replace::cache(kind, self.capacity, find_by),
            PolicyChoice::Auto => Box::new(AutoCache::new(self.capacity)),
        }
    }
}

/// Selects the lookup method of each cache, given the number of pages of the trace if it is known:
/// by number, the largest cache first, as long as the numbers take little memory compared with the
/// caches.
fn find_by(plan: &[SweepItem], footprint: Option<u64>) -> Vec<IndexKind> {
    let mut found = vec![IndexKind::Page; plan.len()];
    let Some(footprint) = footprint.filter(|_| plan.len() > 1) else { return found };
    let mut order: Vec<usize> = (0..plan.len()).collect();
    order.sort_by_key(|&cache| std::cmp::Reverse(plan[cache].capacity));
    let (mut numbers, mut allowed) = (0, NUMBERS_BYTES_MIN);
    for cache in order {
        numbers += footprint * size_of::<u32>() as u64;
        allowed += u64::from(plan[cache].capacity).min(footprint) * NUMBERS_BYTES_PER_PAGE;
        if numbers > allowed {
            break;
        }
        found[cache] = IndexKind::Number;
    }
    found
}

/// A batch of references for all caches.
#[derive(Debug, Default)]
struct SweepBatch {
    references: Vec<Reference>,
    numbers: Vec<u32>,
}

impl SweepBatch {
    /// Replaces the contents with the next references; none at the end.
    fn fill(
        &mut self,
        from: &mut References,
        interner: Option<&mut Interner>,
    ) -> Result<(), ReferenceError> {
        self.references.clear();
        self.numbers.clear();
        let mut batch = Batch::default();
        while self.references.len() < SWEEP_BATCH_REFERENCES {
            from.read_batch(&mut batch)?;
            if batch.references.is_empty() {
                break;
            }
            self.references.append(&mut batch.references);
        }
        if let Some(interner) = interner {
            interner.numbers(&self.references, &mut self.numbers);
        }
        Ok(())
    }
}

/// Runs all caches over the trace and returns their counts in the order of the plan. `footprint` is
/// the number of pages of the trace, if it is known: it determines the lookup method and nothing
/// else. `progress` receives the number of processed references from time to time.
///
/// # Errors
/// The trace is bad, cannot be read, or exceeds a limit.
pub fn run(
    mut references: References,
    plan: &[SweepItem],
    footprint: Option<u64>,
    threads: NonZero<usize>,
    mut progress: impl FnMut(u64),
) -> Result<Vec<Counts>, ReferenceError> {
    let find_by = find_by(plan, footprint);
    let mut interner = find_by.contains(&IndexKind::Number).then(Interner::new);
    let caches: Vec<Mutex<Box<dyn Replace>>> =
        plan.iter().zip(find_by).map(|(planned, by)| Mutex::new(planned.cache(by))).collect();
    let (mut current, mut next) = (SweepBatch::default(), SweepBatch::default());
    let mut done = 0;
    current.fill(&mut references, interner.as_mut())?;
    while !current.references.is_empty() {
        let next_cache = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 1..threads.get().min(plan.len().max(1)) {
                scope.spawn(|| run_all(&caches, &next_cache, &current));
            }
            let filled = next.fill(&mut references, interner.as_mut());
            run_all(&caches, &next_cache, &current);
            filled
        })?;
        done += current.references.len() as u64;
        progress(done);
        std::mem::swap(&mut current, &mut next);
    }
    Ok(caches.iter().map(|cache| lock(cache).counts()).collect())
}

/// Runs caches until another thread has taken the last one.
fn run_all(caches: &[Mutex<Box<dyn Replace>>], next_cache: &AtomicUsize, batch: &SweepBatch) {
    while let Some(cache) = caches.get(next_cache.fetch_add(1, Ordering::Relaxed)) {
        lock(cache).run(&batch.references, &batch.numbers);
    }
}

fn lock(cache: &Mutex<Box<dyn Replace>>) -> std::sync::MutexGuard<'_, Box<dyn Replace>> {
    cache.lock().expect("a cache whose thread did not panic")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::sim::references::Split;
    use crate::sim::testing::{Memory, random_references};
    use larder_core::policy::PolicyKind;

    fn sweep(references: &[Reference], footprint: Option<u64>, threads: usize) -> Vec<Counts> {
        let stream = References::new(Box::new(Memory::of(references)), Split::Pages(4096));
        let threads = NonZero::new(threads).unwrap();
        run(stream, &plan(), footprint, threads, |_| ()).unwrap()
    }

    fn plan() -> Vec<SweepItem> {
        PolicyKind::ALL
            .into_iter()
            .map(PolicyChoice::Fixed)
            .chain([PolicyChoice::Auto])
            .flat_map(|policy| [1, 7, 50, 400].map(|capacity| SweepItem { policy, capacity }))
            .collect()
    }

    #[test]
    fn a_sweep_is_the_same_as_separate_passes_whatever_the_threads() {
        let mut random = Random::from_seed(3);
        let references = random_references(&mut random, SWEEP_BATCH_REFERENCES + 9_000, 900);
        let separate: Vec<Counts> = plan()
            .iter()
            .map(|planned| {
                let mut cache = planned.cache(IndexKind::Page);
                cache.run(&references, &[]);
                cache.check();
                cache.counts()
            })
            .collect();
        for (footprint, threads) in [(None, 1), (Some(900), 1), (Some(900), 2), (None, 5)] {
            assert!(sweep(&references, footprint, threads) == separate, "{footprint:?} {threads}");
        }
    }

    #[test]
    fn numbers_are_used_where_they_take_little_beside_the_caches() {
        let plan = plan();
        assert!(find_by(&plan, None).iter().all(|&by| by == IndexKind::Page));
        assert!(find_by(&plan, Some(1_600)).iter().all(|&by| by == IndexKind::Number));
        let mut large = plan.clone();
        large.push(SweepItem { policy: PolicyKind::Lru.into(), capacity: 30_000_000 });
        let chosen = find_by(&large, Some(100_000_000));
        assert_eq!(chosen[plan.len()], IndexKind::Number);
        assert_eq!(chosen[..plan.len()].iter().filter(|&&by| by == IndexKind::Number).count(), 0);
        assert_eq!(find_by(&plan[..1], Some(4)), [IndexKind::Page], "there is nothing to share");
    }
}
