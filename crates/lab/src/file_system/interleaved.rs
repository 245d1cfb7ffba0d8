//! Fragmented files whose extents lie between each other, as programs leave them that append to
//! several files in turn on a device with little free space.

use super::FileMap;
use crate::random::Random;
use larder_core::units::BLOCK_BYTES_U64;
use std::ops::{Range, RangeInclusive};

/// A set of files of equal length.
#[derive(Clone, Debug)]
pub struct Interleaved {
    /// Number of files; at least 2.
    pub files: usize,
    /// Bytes of each, a multiple of 4 KiB.
    pub bytes: u64,
    /// Number of extents of each; at most a file's number of blocks of 4 KiB.
    pub extents: RangeInclusive<u64>,
}

impl Interleaved {
    /// Returns the files, which together take the bytes of the device from `start` on. The extents
    /// have lengths between equally distributed cuts at 4 KiB, and lie in random order, but no two
    /// of a file follow each other.
    #[must_use]
    pub fn place(&self, start: u64, seed: u64) -> Vec<FileMap> {
        assert!(self.files > 1, "files between which extents lie");
        let mut random = Random::from_seed(seed);
        let mut lengths: Vec<Vec<u64>> =
            (0..self.files).map(|_| self.lengths(&mut random)).collect();
        let mut maps = vec![FileMap::default(); self.files];
        let (mut at, mut last) = (start, None);
        while let Some(file) = next_file(&lengths, last, &mut random) {
            let len = lengths[file].pop().expect("a file with extents left");
            maps[file].append(at..at + len);
            (at, last) = (at + len, Some(file));
        }
        maps
    }

    /// Returns the lengths of the extents of a file.
    fn lengths(&self, random: &mut Random) -> Vec<u64> {
        let Range { start, end } = *self.extents.start()..*self.extents.end() + 1;
        let extents = start + random.below(end - start);
        let blocks = self.bytes / BLOCK_BYTES_U64;
        let mut cuts = std::collections::BTreeSet::from([blocks]);
        while (cuts.len() as u64) < extents {
            cuts.insert(1 + random.below(blocks - 1));
        }
        let starts = std::iter::once(&0).chain(&cuts);
        starts.zip(&cuts).map(|(start, end)| (end - start) * BLOCK_BYTES_U64).collect()
    }
}

/// Chooses the file of the next extent: by the number of extents that are left, but the one that
/// has so many that they would follow each other otherwise; not the last one if another is left.
fn next_file(lengths: &[Vec<u64>], last: Option<usize>, random: &mut Random) -> Option<usize> {
    let left = |file: usize| lengths[file].len() as u64;
    let files = || (0..lengths.len()).filter(|&file| left(file) > 0);
    let total: u64 = files().map(left).sum();
    let others = || files().filter(move |&file| Some(file) != last);
    if let Some(most) = others().find(|&file| 2 * left(file) > total) {
        return Some(most);
    }
    let weight: u64 = others().map(left).sum();
    if weight == 0 {
        return files().next();
    }
    let mut drawn = random.below(weight);
    others().find(|&file| {
        let found = drawn < left(file);
        drawn = drawn.wrapping_sub(left(file));
        found
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_of_all_files_fill_the_place_and_none_follows_its_own() {
        let set = Interleaved { files: 4, bytes: 100 << 20, extents: 394..=470 };
        for seed in 0..20 {
            let files = set.place(1 << 30, seed);
            let mut all: Vec<Range<u64>> =
                files.iter().flat_map(|file| file.extents().cloned()).collect();
            all.sort_by_key(|extent| extent.start);
            assert!(all.is_sorted_by(|before, after| before.end == after.start));
            let ends = all.first().unwrap().start..all.last().unwrap().end;
            assert_eq!(ends, 1 << 30..(1 << 30) + (400 << 20));
            for file in &files {
                assert_eq!(file.len(), 100 << 20);
                // Fewer only if extents of one file were left at the end.
                assert!(set.extents.contains(&(file.extents().len() as u64)), "seed {seed}");
            }
        }
        assert_eq!(set.place(0, 3), set.place(0, 3));
        assert_ne!(set.place(0, 3), set.place(0, 4));
    }
}
