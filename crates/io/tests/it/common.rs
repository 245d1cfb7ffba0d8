//! Helpers of the tests: engines with in-memory stores, seeded random numbers, and a timeout.

pub(crate) mod certificates;
pub(crate) mod lazy;
pub(crate) mod rig;
pub(crate) mod spawn;
pub(crate) mod stalled;
pub(crate) mod user;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::time::Duration;

/// Longer than any test takes, even on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(4);

/// Random numbers from a seed.
pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.next_u64() % end as u64).expect("below a usize")
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}
