//! Writes of journals and metadata, which the counters of a disk have beyond all files: they move
//! with the files that cause them.

use super::inventory::Inventory;
use super::items::{PlacedLoad, disk_sums};
use larder_lab::balance::DiskLoad;

/// Maximum number of these writes for one that causes them: descriptor, inode, bitmaps, group,
/// extents and commit. Others have another cause, such as swap space.
const FOR_EACH_MAX: f64 = 8.0;

/// Divides the writes that no file has among the files of their disk. They are in proportion to
/// the writes of the processes themselves, which are those of fsync(2) and direct I/O; on a file
/// system without these to all writes. All numbers are those of the whole record.
pub(super) fn add_journal_writes(loads: &mut [PlacedLoad], inventory: &Inventory) {
    let causes = causes(loads, inventory);
    let for_each = writes_for_each(loads, &causes, inventory);
    for (load, causes) in loads.iter_mut().zip(causes) {
        let shares = &inventory.places[load.place].balanced.shares;
        // A file on several disks gets the least, so that no disk has more than it counted.
        let least = |of: fn(&DiskLoad) -> f64| {
            shares.iter().map(|share| of(&for_each[share.0])).reduce(f64::min).unwrap_or(0.0)
        };
        load.recorded.load.writes += causes * least(|it| it.writes);
        load.recorded.load.write_bytes += causes * least(|it| it.write_bytes);
    }
}

/// Returns for each load the number of writes that cause others.
fn causes(loads: &[PlacedLoad], inventory: &Inventory) -> Vec<f64> {
    let mut has_own = vec![false; inventory.places.len()];
    for load in loads {
        has_own[load.place] |= load.recorded.own_writes > 0.0;
    }
    let of = |load: &PlacedLoad| {
        let all = load.recorded.load.writes;
        if has_own[load.place] { load.recorded.own_writes.min(all) } else { all }
    };
    loads.iter().map(of).collect()
}

/// Returns for each disk the writes and bytes without a file, for each write that causes them.
fn writes_for_each(loads: &[PlacedLoad], causes: &[f64], inventory: &Inventory) -> Vec<DiskLoad> {
    let mut causes_of = vec![0.0; inventory.disks.len()];
    for (load, causes) in loads.iter().zip(causes) {
        for &(disk, _, write) in &inventory.places[load.place].balanced.shares {
            causes_of[disk] += causes * write;
        }
    }
    let sums = disk_sums(loads, inventory);
    let disks = inventory.disks.iter().zip(sums).zip(causes_of);
    disks
        .map(|((disk, sum), causes)| beyond(disk.counted.unwrap_or_default(), sum, causes))
        .collect()
}

/// Returns the writes and bytes of the counters beyond the files, for each of `causes` writes.
fn beyond(counted: DiskLoad, files: DiskLoad, causes: f64) -> DiskLoad {
    let writes = (counted.writes - files.writes).max(0.0);
    let bytes = (counted.write_bytes - files.write_bytes).max(0.0);
    if causes <= 0.0 || writes <= 0.0 {
        return DiskLoad::default();
    }
    let for_each = (writes / causes).min(FOR_EACH_MAX);
    DiskLoad { writes: for_each, write_bytes: bytes * for_each / writes, ..DiskLoad::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_beyond_the_files_are_divided_up_to_a_maximum() {
        let writes = |writes, write_bytes| DiskLoad { writes, write_bytes, ..DiskLoad::default() };
        let files = writes(10.0, 40_960.0);
        let journal = beyond(writes(30.0, 122_880.0), files, 10.0);
        assert_eq!(journal, writes(2.0, 8192.0));
        let swap = beyond(writes(1010.0, 4_136_960.0), files, 10.0);
        assert_eq!(swap, writes(FOR_EACH_MAX, FOR_EACH_MAX * 4096.0));
        assert_eq!(beyond(files, files, 10.0), DiskLoad::default());
        assert_eq!(beyond(DiskLoad::default(), files, 10.0), DiskLoad::default(), "no counters");
        assert_eq!(beyond(writes(30.0, 0.0), DiskLoad::default(), 0.0), DiskLoad::default());
    }
}
