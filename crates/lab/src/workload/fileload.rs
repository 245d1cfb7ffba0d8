//! Fileload: reads of one container file in order, at random, or like a database.
//!
//! The program of that name (February 1999) was never published; this definition follows its
//! reports. In database mode the file is divided into eight regions, which alternately represent
//! indexes and data; nine of ten requests go to the index regions, the tenth is spread evenly over
//! the data regions. The file was 100 MB, reads 8 KiB, or 64 KiB for the database.
//!
//! Invariants: every request lies inside the file, at a multiple of the read size, and is one read
//! long; a remainder at the end of the file is not read; the same seed gives the same requests.
//! Sizes and offsets are bytes.

use crate::random::Random;

/// Bytes of the container file by default.
pub const FILE_BYTES: u64 = 100 << 20;
/// Bytes of a read by default.
pub const READ_BYTES: u64 = 8 << 10;
/// Bytes of a read of a database by default.
pub const DATABASE_READ_BYTES: u64 = 64 << 10;
/// Regions of a database; every second one is an index.
pub const REGIONS: u64 = 8;
/// Requests of a database in a group ...
const OF_REQUESTS: u64 = 10;
/// ... and those of them that go to the indexes.
const INDEX_REQUESTS: u64 = 9;

/// The order in which the file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From the start to the end, repeatedly.
    Sequential,
    /// All reads with the same probability.
    Random,
    /// Mostly in the regions that represent indexes.
    Database,
}

/// A description of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fileload {
    /// The order.
    pub order: Order,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of each read.
    pub read_bytes: u64,
}

/// A file that cannot be read in this way. The message can follow "cannot".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "read a file of {file_bytes} bytes in parts of {read_bytes} bytes: the least size is {} bytes",
    .reads * .read_bytes
)]
pub struct FileTooSmall {
    file_bytes: u64,
    read_bytes: u64,
    reads: u64,
}

impl Fileload {
    /// Checks the sizes.
    ///
    /// # Errors
    /// The file is shorter than a read, or than one for each region of a database.
    pub fn new(order: Order, file_bytes: u64, read_bytes: u64) -> Result<Self, FileTooSmall> {
        let reads = if order == Order::Database { REGIONS } else { 1 };
        if read_bytes == 0 || file_bytes / read_bytes < reads {
            return Err(FileTooSmall { file_bytes, read_bytes, reads });
        }
        Ok(Fileload { order, file_bytes, read_bytes })
    }

    /// Returns the number of reads that the file has room for.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.file_bytes / self.read_bytes
    }

    /// Returns the first read and the number of reads of a region of a database.
    #[must_use]
    pub fn region(&self, region: u64) -> (u64, u64) {
        let start = |region| u128::from(self.reads()) * u128::from(region) / u128::from(REGIONS);
        let [start, end] = [start(region), start(region + 1)]
            .map(|read| u64::try_from(read).expect("a place in the file"));
        (start, end - start)
    }

    /// Returns the endless sequence of offsets for `seed`.
    pub fn offsets(self, seed: u64) -> impl Iterator<Item = u64> {
        let mut random = Random::from_seed(seed);
        let mut next = 0;
        std::iter::repeat_with(move || {
            let read = match self.order {
                Order::Sequential => {
                    let read = next;
                    next = (next + 1) % self.reads();
                    read
                }
                Order::Random => random.below(self.reads()),
                Order::Database => {
                    let is_index = random.below(OF_REQUESTS) < INDEX_REQUESTS;
                    let pair = random.below(REGIONS / 2);
                    let (first, count) = self.region(2 * pair + u64::from(!is_index));
                    first + random.below(count)
                }
            };
            read * self.read_bytes
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order_it_reads_all_and_begins_again() {
        let load = Fileload::new(Order::Sequential, 3 * 8192 + 100, 8192).unwrap();
        assert!(load.offsets(1).take(4).eq([0, 8192, 16384, 0]));
    }

    #[test]
    fn nine_of_ten_requests_of_a_database_go_to_the_indexes_and_all_regions_are_used_evenly() {
        let load = Fileload::new(Order::Database, FILE_BYTES, DATABASE_READ_BYTES).unwrap();
        assert_eq!(load.reads(), 1600);
        let mut counts = [0_u32; 8];
        for offset in load.offsets(7).take(80_000) {
            assert!(offset.is_multiple_of(load.read_bytes) && offset < load.file_bytes);
            let read = offset / load.read_bytes;
            let region = (0..REGIONS).find(|&region| {
                let (first, count) = load.region(region);
                (first..first + count).contains(&read)
            });
            counts[usize::try_from(region.unwrap()).unwrap()] += 1;
        }
        for (region, count) in counts.into_iter().enumerate() {
            let expected = if region % 2 == 0 { 18_000 } else { 2_000 };
            assert!(count.abs_diff(expected) < expected / 20 + 100, "{counts:?}");
        }
    }

    #[test]
    fn the_same_seed_reads_the_same_and_another_does_not() {
        let load = Fileload::new(Order::Random, FILE_BYTES, READ_BYTES).unwrap();
        let first_reads = |seed| load.offsets(seed).take(100).collect::<Vec<_>>();
        assert_eq!(first_reads(1), first_reads(1));
        assert_ne!(first_reads(1), first_reads(2));
        assert!(first_reads(1).iter().all(|offset| offset + READ_BYTES <= FILE_BYTES));
    }

    #[test]
    fn regions_meet_and_cover_the_file_however_it_divides() {
        for reads in [8, 9, 15, 1601] {
            let load = Fileload::new(Order::Database, reads * 512, 512).unwrap();
            let mut end = 0;
            for region in 0..REGIONS {
                let (first, count) = load.region(region);
                assert!(first == end && count > 0, "{reads} reads");
                end = first + count;
            }
            assert_eq!(end, reads);
        }
    }

    #[test]
    fn a_file_that_is_too_small_is_refused() {
        assert!(Fileload::new(Order::Random, 100, 512).is_err());
        assert!(Fileload::new(Order::Random, 512, 0).is_err());
        let error = Fileload::new(Order::Database, 7 * 512, 512).unwrap_err();
        assert_eq!(
            error.to_string(),
            "read a file of 3584 bytes in parts of 512 bytes: the least size is 4096 bytes"
        );
    }
}
