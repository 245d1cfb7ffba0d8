//! A volume that was used for long: files are created and removed at random until the free space is
//! in pieces.

use super::{Allocator, FileMap};
use crate::random::Random;
use larder_core::units::as_f64;
use larder_schema::as_u64;

/// The shortest file, bytes, and the powers of two up to the longest.
const FILE_BYTES: u64 = 4096;
const FILE_POWERS: f64 = 8.0;

/// Returns the length of a file: 4 KiB to 1 MiB, with equally distributed logarithms.
#[must_use]
pub fn file_bytes(random: &mut Random) -> u64 {
    as_u64(as_f64(FILE_BYTES) * (random.unit() * FILE_POWERS).exp2())
}

/// The use of a volume.
#[derive(Clone, Copy, Debug)]
pub struct Ageing {
    /// Bytes of the volume.
    pub bytes: u64,
    /// Bytes of a unit of allocation.
    pub unit: u64,
    /// Free share of the volume, percent: files are removed at random until it is reached.
    pub free_percent: u64,
    /// Number of times that files of as many bytes as the volume were created.
    pub replaced: u64,
}

/// A volume whose files are created and removed at random.
#[derive(Clone, Debug)]
pub struct AgedVolume<F> {
    allocator: Allocator,
    ageing: Ageing,
    /// Returns the length of a file.
    len: F,
    files: Vec<FileMap>,
    random: Random,
}

impl<F: FnMut(&mut Random) -> u64> AgedVolume<F> {
    /// Creates a volume, and replaces its content. `len` returns the length of each file, at most
    /// the free share of the volume.
    #[must_use]
    pub fn new(ageing: Ageing, len: F, seed: u64) -> Self {
        let allocator = Allocator::new(ageing.bytes, ageing.unit);
        let (files, random) = (Vec::new(), Random::from_seed(seed));
        let mut volume = AgedVolume { allocator, ageing, len, files, random };
        let mut created = 0;
        while created < ageing.replaced * ageing.bytes {
            let bytes = (volume.len)(&mut volume.random);
            created += bytes;
            let file = volume.create(bytes);
            volume.files.push(file);
        }
        volume
    }

    /// Creates a file that is never removed, after removing as many others as needed.
    ///
    /// # Panics
    /// If the file is larger than the free share, or no file is left to remove.
    pub fn create(&mut self, bytes: u64) -> FileMap {
        self.make_room();
        self.allocator.create(bytes).expect("a part of the volume is free")
    }

    /// Returns the free space: at least the free share of the volume.
    #[must_use]
    pub fn into_allocator(mut self) -> Allocator {
        self.make_room();
        self.allocator
    }

    fn make_room(&mut self) {
        let Ageing { bytes, free_percent, .. } = self.ageing;
        while self.allocator.free_bytes() < bytes * free_percent / 100 {
            let number = self.random.below(self.files.len() as u64);
            let file = self.files.swap_remove(usize::try_from(number).expect("a number of files"));
            self.allocator.remove(&file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aged_volume_has_its_free_share_in_pieces() {
        let ageing = Ageing { bytes: 64 << 20, unit: 4096, free_percent: 30, replaced: 3 };
        let mut space = AgedVolume::new(ageing, file_bytes, 1).into_allocator();
        assert!((19 << 20..22 << 20).contains(&space.free_bytes()), "{}", space.free_bytes());
        let file = space.create(16 << 20).unwrap();
        assert!(file.extents().len() > 20, "{} extents", file.extents().len());
    }
}
