//! What the tests of curves share: random numbers, and reads of whole pages.

use crate::replace::Reference;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Random numbers from a seed.
#[derive(Debug)]
pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    pub(crate) fn from_seed(seed: u64) -> Self {
        Random(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end
    }
}

/// A read of a whole page.
pub(crate) fn reference(page: u64) -> Reference {
    Reference { page, bytes: 4096, write: false, partial: false, first: true }
}
