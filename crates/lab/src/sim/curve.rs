//! The exact hit-ratio curve of LRU: hit ratio as a function of cache size, every size in one pass.
//!
//! A reference with stack distance `d` (`d` other pages were referenced since the last reference to
//! this page) hits in an LRU cache of more than `d` pages (Mattson, Gecsei, Slutz, Traiger,
//! "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2), 1970).
//!
//! Memory is proportional to the footprint, about 40 bytes per page: the numbers of the pages,
//! their stack, and a counter for each distance.

use crate::sim::interner::Interner;
use crate::sim::references::Reference;
use larder_core::curve::stack::Stack;

/// A counter of stack distances.
#[derive(Clone, Debug, Default)]
pub struct Exact {
    interner: Interner,
    stack: Stack,
    /// Number of references of each distance.
    histogram: Vec<u64>,
    references: u64,
    numbers: Vec<u32>,
}

impl Exact {
    /// Creates a counter without references.
    #[must_use]
    pub fn new() -> Self {
        Exact::default()
    }

    /// Creates a counter for [`Exact::number_at`].
    pub(crate) fn with_numbers() -> Self {
        Exact { stack: Stack::with_numbers(), ..Exact::default() }
    }

    /// Counts the next references of the trace.
    pub fn run(&mut self, references: &[Reference]) {
        let mut numbers = std::mem::take(&mut self.numbers);
        self.interner.numbers(references, &mut numbers);
        for &number in &numbers {
            self.count(number);
        }
        self.numbers = numbers;
    }

    fn count(&mut self, number: u32) -> Option<u32> {
        let distance = self.stack.reference(number);
        match distance {
            Some(distance) => self.histogram[distance as usize] += 1,
            // One more page makes one more distance possible.
            None => self.histogram.push(0),
        }
        self.references += 1;
        distance
    }

    /// Counts the next reference; returns the number of its page, from 0 in the order of first
    /// references, and its stack distance, or `None` if the page is new.
    pub(crate) fn reference(&mut self, page: u64) -> (u32, Option<u32>) {
        let number = self.interner.number(page);
        (number, self.count(number))
    }

    /// Returns the number of a page and the stack distance that a reference to it would have, or
    /// `None` if the page is new.
    pub(crate) fn find(&self, page: u64) -> Option<(u32, u32)> {
        let number = self.interner.find(page)?;
        Some((number, self.stack.distance(number)?))
    }

    /// Returns the number of the page at a stack distance, which is below the footprint.
    pub(crate) fn number_at(&self, distance: u32) -> u32 {
        self.stack.page_at(distance).expect("the distance is below the footprint")
    }

    /// Returns the page with this number, which is below the footprint.
    pub(crate) fn page(&self, number: u32) -> u64 {
        self.interner.page(number)
    }

    /// Returns the number of pages referenced so far.
    #[must_use]
    pub fn footprint(&self) -> u64 {
        self.stack.len() as u64
    }

    /// Returns the number of references so far.
    #[must_use]
    pub fn references(&self) -> u64 {
        self.references
    }

    /// Returns the curve of the references so far.
    #[must_use]
    pub fn curve(&self) -> ExactCurve {
        let sum = |sum: &mut u64, &count: &u64| {
            *sum += count;
            Some(*sum)
        };
        let hits = std::iter::once(0).chain(self.histogram.iter().scan(0, sum)).collect();
        ExactCurve { hits, references: self.references }
    }
}

/// Hits of an LRU cache of every size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExactCurve {
    /// Hits by cache size in pages, from 0 up to the footprint.
    hits: Vec<u64>,
    references: u64,
}

impl ExactCurve {
    /// Returns the hits of a cache of `pages`.
    #[must_use]
    pub fn hits(&self, pages: u64) -> u64 {
        let last = self.hits.len() - 1;
        self.hits[usize::try_from(pages).unwrap_or(last).min(last)]
    }

    /// Returns the number of references of the trace.
    #[must_use]
    pub fn references(&self) -> u64 {
        self.references
    }

    /// Returns the number of pages of the trace: in a cache of this size only first references
    /// miss.
    #[must_use]
    pub fn footprint(&self) -> u64 {
        self.hits.len() as u64 - 1
    }

    /// Returns the hit ratio of a cache of `pages`; `None` if there are no references.
    #[must_use]
    pub fn hit_ratio(&self, pages: u64) -> Option<f64> {
        larder_schema::share(self.hits(pages), self.references)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::sim::testing::random_references;
    use larder_core::policy::PolicyKind;
    use larder_core::replace::{IndexKind, cache};

    #[test]
    fn it_is_what_a_simulated_lru_hits_at_every_size() {
        for seed in 0..5 {
            let mut random = Random::from_seed(seed);
            let references = random_references(&mut random, 12_000, 120);
            let mut exact = Exact::new();
            references.chunks(999).for_each(|batch| exact.run(batch));
            let curve = exact.curve();
            assert_eq!(curve.hits(0), 0);
            for capacity in 1..=u32::try_from(curve.footprint()).unwrap() + 2 {
                let mut simulated = cache(PolicyKind::Lru, capacity, IndexKind::Page);
                simulated.run(&references, &[]);
                let hits = simulated.counts().hits().references;
                assert_eq!(curve.hits(capacity.into()), hits, "seed {seed}, {capacity} pages");
            }
            assert_eq!(curve.hits(u64::MAX), curve.references() - curve.footprint());
        }
    }

    #[test]
    fn a_trace_without_references_has_no_hit_ratio() {
        assert_eq!(Exact::new().curve().hit_ratio(10), None);
    }
}
