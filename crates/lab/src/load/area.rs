//! The area that a connection writes: stripes of the export, assigned to the connections in
//! rotation.
//!
//! No two connections write the same sector, so the order of the writes to a sector is known. But
//! they share pages: a stripe is an odd number of granules, and starts anywhere in a page. All
//! numbers are sectors of 512 bytes, except the number of granules.

use super::LoadError;
use super::sector::SECTOR_BYTES;
use crate::random::Random;

/// Maximum length of a request: 256 KiB.
pub(super) const REQUEST_SECTORS_MAX: u64 = (256 << 10) / SECTOR_BYTES as u64;
/// Space for a request of maximum length; an odd number.
const STRIPE_GRANULES: u64 = REQUEST_SECTORS_MAX + 129;
/// Half of the requests go to one stripe in this many, so that pages are overwritten while they are
/// dirty, or under writeback.
const HOT_DIVISOR: u64 = 8;
/// Sectors of a frame of the cache: half of the requests are aligned to frames, if possible.
const FRAME_SECTORS: u64 = 8;

/// A range of sectors within one stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// Number of the stripe in the export.
    pub(super) stripe: u64,
    /// First sector, relative to the stripe.
    pub(super) at: u64,
    /// First sector, relative to the export.
    pub(super) first: u64,
    pub(super) sectors: u64,
}

impl Range {
    pub(super) fn overlaps(&self, other: &Range) -> bool {
        self.first < other.first + other.sectors && other.first < self.first + self.sectors
    }

    /// Returns the byte offset in the export.
    pub(super) fn offset(&self) -> u64 {
        self.first * SECTOR_BYTES as u64
    }

    pub(super) fn bytes(&self) -> usize {
        usize::try_from(self.sectors).expect("a request fits memory") * SECTOR_BYTES
    }
}

/// The stripes of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    /// Sectors of the smallest request.
    granule: u64,
    /// Granules of the export.
    granules: u64,
    /// Granules of a stripe.
    stripe: u64,
    connection: u64,
    connections: u64,
}

impl Area {
    /// Returns the stripes of a connection in an export of `bytes` bytes whose minimum request size
    /// is `min_bytes`.
    pub(super) fn new(
        bytes: u64,
        min_bytes: u32,
        connection: u64,
        connections: u64,
    ) -> Result<Self, LoadError> {
        let sector = SECTOR_BYTES as u64;
        let granule = u64::from(min_bytes).div_ceil(sector).max(1);
        let granules = bytes / sector / granule;
        if granules < connections {
            return Err(LoadError::Refused(format!(
                "load an export of {bytes} bytes with {connections} connections"
            )));
        }
        let stripe = STRIPE_GRANULES.min(granules / connections);
        Ok(Area { granule, granules, stripe, connection, connections })
    }

    /// Returns a random range in the area; short lengths are as likely as long ones.
    pub(super) fn draw(&self, random: &mut Random) -> Range {
        let stripes = self.granules.div_ceil(self.stripe);
        let own_stripes = (stripes - self.connection).div_ceil(self.connections);
        let hot = random.below(2) == 0;
        let index = random.below(if hot { own_stripes.div_ceil(HOT_DIVISOR) } else { own_stripes });
        let stripe = index * self.connections + self.connection;
        let begin = stripe * self.stripe;
        let available = self.stripe.min(self.granules - begin);

        let longest = available.min((REQUEST_SECTORS_MAX / self.granule).max(1));
        let doublings = random.below(u64::from(longest.ilog2()) + 1);
        let mut len = (1 + random.below(2 << doublings)).min(longest);
        let mut at = random.below(available - len + 1);
        let frame = FRAME_SECTORS.div_ceil(self.granule);
        let aligned = (begin + at).next_multiple_of(frame) - begin;
        let whole = len.next_multiple_of(frame);
        if random.below(2) == 0 && whole <= longest && aligned + whole <= available {
            (at, len) = (aligned, whole);
        }
        let at = at * self.granule;
        let first = begin * self.granule + at;
        Range { stripe, at, first, sectors: len * self.granule }
    }

    /// Returns the sectors of a stripe; the last one may have fewer.
    pub(super) fn stripe_sectors(&self) -> usize {
        usize::try_from(self.stripe * self.granule).expect("a stripe fits memory")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_never_meet_and_requests_have_every_shape() {
        for (bytes, min) in [(64 << 20, 1), (64 << 20, 4096), (9_000_000, 512), (4096, 512)] {
            let mut owner = vec![None; bytes / SECTOR_BYTES];
            let (mut short, mut long, mut aligned) = (0, 0, 0);
            for connection in 0..4 {
                let area = Area::new(bytes as u64, min, connection, 4).unwrap();
                let mut random = Random::from_seed(connection);
                for _ in 0..5_000 {
                    let range = area.draw(&mut random);
                    assert!(range.sectors > 0 && range.sectors <= REQUEST_SECTORS_MAX);
                    assert!(range.offset().is_multiple_of(u64::from(min)));
                    assert!(range.at + range.sectors <= area.stripe_sectors() as u64);
                    short += u32::from(range.sectors == 1);
                    long += u32::from(range.sectors == REQUEST_SECTORS_MAX);
                    aligned += u32::from((range.first | range.sectors).is_multiple_of(8));
                    let first = usize::try_from(range.first).unwrap();
                    for owner in &mut owner[first..first + range.bytes() / SECTOR_BYTES] {
                        assert_eq!(*owner.get_or_insert(connection), connection);
                    }
                }
            }
            if bytes == 64 << 20 {
                assert!(aligned > 5_000 && long > 100, "{aligned} {long}");
                assert_eq!(short > 500, min == 1, "{short}");
            }
        }
        assert!(Area::new(1024, 512, 0, 4).is_err());
    }
}
