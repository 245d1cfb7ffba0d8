//! Regions of a measured curve by the scatter of repeated runs.
//!
//! The classical method ran the same work several times with each size. If the times of the runs
//! differed much, the cache was in region 1: chance decided if the data was still in it. If they
//! differed little, it was in region 3. The scatter is the difference between the longest and the
//! shortest time, divided by the median.

use larder_schema::advice::Region;

/// Region 1: the scatter is above this share of the median time.
pub const MUCH: f64 = 0.25;
/// Region 3: the scatter is below this share of the median time.
pub const LITTLE: f64 = 0.10;

/// Returns the region of a size with this scatter.
#[must_use]
pub fn region(scatter: f64) -> Region {
    if scatter > MUCH {
        Region::Steep
    } else if scatter < LITTLE {
        Region::Flat
    } else {
        Region::Useful
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_scatter_is_steep_and_little_is_flat() {
        assert_eq!([0.0, 0.099].map(region), [Region::Flat; 2]);
        assert_eq!([0.10, 0.25].map(region), [Region::Useful; 2]);
        assert_eq!([0.251, 3.0].map(region), [Region::Steep; 2]);
    }
}
