//! A volume whose files are created and removed at random, as in long use.

use super::{Allocator, FileMap};
use crate::random::Random;

/// A volume with files, part of which stays free.
#[derive(Debug)]
pub struct AgedVolume<F> {
    allocator: Allocator,
    bytes: u64,
    /// Bytes that are free before a file is created.
    free_min: u64,
    /// Returns the length of a new file.
    len: F,
    files: Vec<FileMap>,
    random: Random,
}

impl<F: FnMut(&mut Random) -> u64> AgedVolume<F> {
    /// Creates an empty volume of `bytes` bytes with an allocation unit, of which `free_percent`
    /// stay free. `len` returns the length of each file, at most this part.
    #[must_use]
    pub fn new((bytes, unit): (u64, u64), free_percent: u64, len: F, seed: u64) -> Self {
        let (free_min, random) = (bytes / 100 * free_percent, Random::from_seed(seed));
        let allocator = Allocator::new(bytes, unit);
        AgedVolume { allocator, bytes, free_min, len, files: Vec::new(), random }
    }

    /// Creates and removes files until as many bytes have been created as the volume has, `times`
    /// times.
    pub fn replace_content(&mut self, times: u64) {
        let mut created = 0;
        while created < times * self.bytes {
            let bytes = (self.len)(&mut self.random);
            created += bytes;
            let file = self.create(bytes);
            self.files.push(file);
        }
    }

    /// Creates a file, after removing as many as needed.
    ///
    /// # Panics
    /// If it is longer than the part that stays free.
    pub fn create(&mut self, bytes: u64) -> FileMap {
        while self.allocator.free_bytes() < self.free_min {
            let number = self.random.below(self.files.len() as u64);
            let file = self.files.swap_remove(usize::try_from(number).expect("a number of files"));
            self.allocator.remove(&file);
        }
        self.allocator.create(bytes).expect("a part of the volume is free")
    }
}
