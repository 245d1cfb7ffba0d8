//! Helpers for the tests of curves: random numbers, and reads of whole pages.

use crate::replace::Reference;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A seeded random number generator.
#[derive(Debug)]
pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    pub(crate) fn from_seed(seed: u64) -> Self {
        Random(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end
    }
}

/// Returns a read of a whole page.
pub(crate) fn reference(page: u64) -> Reference {
    Reference { page, bytes: 4096, write: false, partial: false, first: true }
}
