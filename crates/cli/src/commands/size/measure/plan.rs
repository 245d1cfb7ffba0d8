//! The sizes of a measured curve, and the order of the runs.

use larder_core::policy::PolicyKind;
use larder_core::units::BLOCK_BYTES_U64;
use larder_io::engine::MEMORY_BYTES_MIN;
use larder_lab::sim::sizing;

/// Number of sizes, if the user names none.
const SIZES: u32 = 6;
/// Sizes are multiples of this.
const STEP: u64 = 1 << 20;

/// Returns the memory of a cache that holds data of this many bytes with its tables.
pub(super) fn memory_for(policy: PolicyKind, data_bytes: u64) -> u64 {
    sizing::memory_bytes(policy, data_bytes.div_ceil(BLOCK_BYTES_U64)).next_multiple_of(STEP)
}

/// Returns sizes from the minimum of a cache to `last_bytes`, each larger than the one before by
/// about the same factor; only the minimum, if it holds everything.
pub(super) fn grid(last_bytes: u64) -> Vec<u64> {
    let last = last_bytes.max(MEMORY_BYTES_MIN);
    let ratio = larder_schema::as_f64(last) / larder_schema::as_f64(MEMORY_BYTES_MIN);
    let size = |number: u32| {
        let factor = ratio.powf(f64::from(number) / f64::from(SIZES - 1));
        let bytes = larder_schema::as_u64(larder_schema::as_f64(MEMORY_BYTES_MIN) * factor);
        bytes.next_multiple_of(STEP).min(last)
    };
    let mut sizes: Vec<u64> = (0..SIZES).map(size).collect();
    sizes.dedup();
    sizes
}

/// Returns the index of the size of each run: every second round is in descending order, so that a
/// machine that becomes slower or faster affects small and large sizes equally.
pub(super) fn order(sizes: usize, trials: usize) -> Vec<usize> {
    let round = |trial: usize| {
        (0..sizes).map(move |size| if trial.is_multiple_of(2) { size } else { sizes - 1 - size })
    };
    (0..trials).flat_map(round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn sizes_rise_by_the_same_factor_from_the_minimum_to_the_footprint() {
        assert_eq!(
            grid(256 * MIB).iter().map(|size| size / MIB).collect::<Vec<_>>(),
            [8, 16, 32, 64, 128, 256]
        );
        assert_eq!(grid(8 * MIB), [8 * MIB]);
        assert_eq!(grid(100), [8 * MIB]);
        assert_eq!(grid(10 * MIB).iter().map(|size| size / MIB).collect::<Vec<_>>(), [8, 9, 10]);
    }

    #[test]
    fn rounds_alternate_between_ascending_and_descending_sizes() {
        assert_eq!(order(3, 3), [0, 1, 2, 2, 1, 0, 0, 1, 2]);
        assert_eq!(order(1, 2), [0, 0]);
        let order = order(4, 2);
        let sum = |size| (0..order.len()).filter(|&at| order[at] == size).sum::<usize>();
        assert_eq!([0, 1, 2, 3].map(sum), [7; 4], "the mean position of each size is the same");
    }

    #[test]
    fn the_memory_for_data_includes_the_tables() {
        let memory = memory_for(PolicyKind::S3Fifo, 64 * MIB);
        assert!((65 * MIB..72 * MIB).contains(&memory), "{memory}");
    }
}
