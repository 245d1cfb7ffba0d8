//! Allocation of files on a volume: in whole units, each file from the first free units after the
//! last allocation. Files that are created and removed leave free space in pieces, so that later
//! files have more extents, the smaller the unit is.

use super::FileMap;
use std::collections::BTreeMap;

/// The free space of a volume.
#[derive(Clone, Debug)]
pub struct Allocator {
    /// Bytes of a unit.
    unit: u64,
    /// Number of units.
    units: u64,
    /// Free runs: first unit, and number of units. No two touch.
    free: BTreeMap<u64, u64>,
    /// Number of units in them.
    free_units: u64,
    /// The unit after the last allocation.
    cursor: u64,
}

impl Allocator {
    /// Creates an empty volume of `bytes` bytes with units of `unit` bytes.
    ///
    /// # Panics
    /// If the volume has no unit.
    #[must_use]
    pub fn new(bytes: u64, unit: u64) -> Self {
        let units = bytes / unit;
        assert!(units > 0, "a volume with units");
        let free = BTreeMap::from([(0, units)]);
        Allocator { unit, units, free, free_units: units, cursor: 0 }
    }

    /// Returns the bytes of a unit.
    #[must_use]
    pub fn unit_bytes(&self) -> u64 {
        self.unit
    }

    /// Returns the bytes of all units.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.units * self.unit
    }

    /// Returns the free bytes.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.free_units * self.unit
    }

    /// Allocates a file of at least `bytes` bytes; `None` if too little is free.
    pub fn create(&mut self, bytes: u64) -> Option<FileMap> {
        let mut left = bytes.div_ceil(self.unit);
        if left > self.free_units {
            return None;
        }
        self.free_units -= left;
        let mut map = FileMap::default();
        while left > 0 {
            let (start, len) = self.next_run().expect("enough is free");
            let taken = len.min(left);
            self.free.remove(&start);
            if taken < len {
                self.free.insert(start + taken, len - taken);
            }
            map.append(start * self.unit..(start + taken) * self.unit);
            self.cursor = (start + taken) % self.units;
            left -= taken;
        }
        Some(map)
    }

    /// Frees the units of a file.
    pub fn remove(&mut self, map: &FileMap) {
        for extent in map.extents() {
            let (mut start, mut end) = (extent.start / self.unit, extent.end / self.unit);
            if let Some((&before, &len)) = self.free.range(..start).next_back()
                && before + len == start
            {
                self.free.remove(&before);
                start = before;
            }
            if let Some(len) = self.free.remove(&end) {
                end += len;
            }
            self.free.insert(start, end - start);
        }
        self.free_units += map.len() / self.unit;
    }

    /// Returns the next free run from the cursor on, without the part before it.
    fn next_run(&mut self) -> Option<(u64, u64)> {
        if let Some((&start, &len)) = self.free.range(..self.cursor).next_back()
            && start + len > self.cursor
        {
            // The run is divided at the cursor; `remove` joins what is free again.
            self.free.insert(start, self.cursor - start);
            self.free.insert(self.cursor, start + len - self.cursor);
        }
        let after = self.free.range(self.cursor..).next();
        after.or_else(|| self.free.iter().next()).map(|(&start, &len)| (start, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::collections::BTreeSet;

    #[test]
    fn no_unit_belongs_to_two_files_and_all_are_found_again() {
        let (unit, units) = (4096, 1_000);
        let mut volume = Allocator::new(units * unit, unit);
        let (mut files, mut random) = (Vec::<FileMap>::new(), Random::from_seed(2));
        for _ in 0..5_000 {
            let number = usize::try_from(random.below(files.len() as u64 + 1)).unwrap();
            if number < files.len() && random.below(2) == 0 {
                volume.remove(&files.swap_remove(number));
            } else if let Some(file) = volume.create(1 + random.below(40 * unit)) {
                files.push(file);
            }
            let mut used = BTreeSet::new();
            for extent in files.iter().flat_map(FileMap::extents) {
                for start in (extent.start..extent.end).step_by(4096) {
                    assert!(start % unit == 0 && used.insert(start) && start < units * unit);
                }
            }
            assert_eq!(volume.free_bytes(), (units - used.len() as u64) * unit);
        }
        assert!(volume.create(volume.free_bytes() + 1).is_none());
        for file in &files {
            volume.remove(file);
        }
        assert_eq!(volume.create(units * unit).unwrap().len(), units * unit);
    }

    #[test]
    fn large_units_leave_fewer_extents_after_much_use() {
        let extents = |unit: u64| {
            let (bytes, mut random) = (256_u64 << 20, Random::from_seed(1));
            let (mut volume, mut files) = (Allocator::new(bytes, unit), Vec::new());
            for _ in 0..8_000 {
                while volume.free_bytes() < bytes / 5 {
                    let number = usize::try_from(random.below(files.len() as u64)).unwrap();
                    volume.remove(&files.swap_remove(number));
                }
                files.extend(volume.create(4096 + random.below(512 << 10)));
            }
            let all: usize = files.iter().map(|file| file.extents().len()).sum();
            all / files.len()
        };
        let [small, large] = [4 << 10, 64 << 10].map(extents);
        assert!(small >= 2 * large, "{small} and {large} extents");
    }
}
