//! Number of distinct pages in a trace, in bounded memory.
//!
//! Pages are marked in bitmaps of 64. While all bitmaps fit, the count is exact. Beyond that, only
//! the bitmaps whose position hashes below a threshold are kept, and the threshold is halved until
//! they fit (a spatial sample of fixed size): the count is then an estimate, whose standard error
//! is about one over the square root of the number of bitmaps kept, below 0.2 %.

use super::bytes;
use std::collections::HashMap;

/// Pages of a bitmap.
const GROUP_PAGES: u64 = 64;
/// Maximum number of bitmaps: about 128 MiB.
const GROUPS_MAX: usize = 1 << 22;

/// A counter of the distinct pages of volumes.
#[derive(Debug)]
pub(crate) struct Footprint {
    groups: HashMap<(u32, u64), u64>,
    groups_max: usize,
    /// One bitmap in 2^`halvings` is kept.
    halvings: u32,
}

impl Default for Footprint {
    fn default() -> Self {
        Footprint::with_limit(GROUPS_MAX)
    }
}

impl Footprint {
    fn with_limit(groups_max: usize) -> Self {
        Footprint { groups: HashMap::new(), groups_max, halvings: 0 }
    }

    /// Marks the pages from `first` to `last`.
    pub(crate) fn add(&mut self, volume: u32, first: u64, last: u64) {
        for group in first / GROUP_PAGES..=last / GROUP_PAGES {
            if !self.is_kept(volume, group) {
                continue;
            }
            let base = group * GROUP_PAGES;
            let from = first.saturating_sub(base).min(GROUP_PAGES - 1);
            let to = (last - base).min(GROUP_PAGES - 1);
            let mask = (u64::MAX >> (63 - (to - from))) << from;
            *self.groups.entry((volume, group)).or_default() |= mask;
            while self.groups.len() > self.groups_max {
                self.halve();
            }
        }
    }

    fn is_kept(&self, volume: u32, group: u64) -> bool {
        self.halvings == 0 || hash(volume, group).leading_zeros() >= self.halvings
    }

    fn halve(&mut self) {
        self.halvings += 1;
        let halvings = self.halvings;
        self.groups.retain(|&(volume, group), _| hash(volume, group).leading_zeros() >= halvings);
    }

    /// Returns the number of distinct pages: exact, or an estimate from a sample.
    pub(crate) fn pages(&self) -> u64 {
        let marked: u64 = self.groups.values().map(|mask| u64::from(mask.count_ones())).sum();
        marked.checked_shl(self.halvings).unwrap_or(u64::MAX)
    }

    /// Returns true if [`Self::pages`] is exact.
    pub(crate) fn is_exact(&self) -> bool {
        self.halvings == 0
    }
}

fn hash(volume: u32, group: u64) -> u64 {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&volume.to_le_bytes());
    key[4..].copy_from_slice(&group.to_le_bytes());
    bytes::hash(&key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::collections::HashSet;

    #[test]
    fn it_counts_as_a_set_does() {
        let mut random = Random::from_seed(1);
        let (mut footprint, mut set) = (Footprint::default(), HashSet::new());
        for _ in 0..2_000 {
            let volume = u32::try_from(random.below(3)).unwrap();
            let first = random.below(5_000);
            let last = first + random.below(200);
            footprint.add(volume, first, last);
            set.extend((first..=last).map(|page| (volume, page)));
        }
        assert_eq!(footprint.pages(), set.len() as u64);
        assert!(footprint.is_exact());
        footprint.add(9, u64::MAX - 1, u64::MAX);
        assert_eq!(footprint.pages(), set.len() as u64 + 2);
    }

    #[test]
    fn beyond_its_limit_it_estimates_in_bounded_memory() {
        let mut footprint = Footprint::with_limit(4_096);
        for page in (0..3_000_000).step_by(3) {
            footprint.add(0, page * 10, page * 10 + 9);
        }
        assert!(!footprint.is_exact() && footprint.groups.len() <= 4_096);
        let error = (footprint.pages().abs_diff(10_000_000)) * 100 / 10_000_000;
        assert!(error <= 6, "{} is {error} % away from 10,000,000", footprint.pages());
    }
}
