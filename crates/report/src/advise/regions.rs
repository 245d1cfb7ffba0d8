//! The three regions of a hit-ratio curve: too small and unstable, useful, wasted.
//!
//! The classical method to size a file cache divides the curve into three regions by eye. The rule
//! here is Larder's own. It measures the gain from doubling the memory, since sizes are chosen by
//! factors and curves have logarithmic axes, and expresses it as a share of the reachable hits, so
//! that it applies equally to workloads with few of them:
//!
//! * region 1 ends at the size from which on no doubling gains more than [`STEEP`] of them: below
//!   it, a little more or less memory decides if the cache works at all;
//! * region 3 starts at the smallest size that lacks at most [`FLAT`] of them: no additional memory
//!   can gain more than that;
//! * region 2 lies between. If region 1 extends to region 3, region 2 is empty: the data fits or it
//!   does not, as with a loop.

use larder_schema::advice::{FLAT, Region, Regions};
use larder_schema::curve::Curve;
use larder_schema::format;
use larder_schema::{as_f64, as_u64};

/// Region 1: doubling gains more than this share of the reachable hits.
pub const STEEP: f64 = 0.10;
/// Evaluated sizes per octave.
const STEPS: f64 = 16.0;

/// Returns number and name.
#[must_use]
pub fn title(region: Region) -> &'static str {
    match region {
        Region::Steep => "region 1, steep",
        Region::Useful => "region 2, useful",
        Region::Flat => "region 3, flat",
    }
}

/// Returns the regions of a curve with the reachable hit ratio `ceiling`, or `None` if no size
/// hits.
#[must_use]
pub fn find(curve: &Curve, ceiling: f64) -> Option<Regions> {
    let curve = curve.rising();
    let highest = curve.points().last()?.hit_ratio;
    if ceiling <= 0.0 || highest <= 0.0 {
        return None;
    }
    // The last point of an estimated curve may lie slightly below the ceiling.
    let flat_begin_bytes = curve.reaching((ceiling * (1.0 - FLAT)).min(highest))?;
    let ratio = |bytes: u64| curve.at(bytes).map_or(0.0, |point| point.hit_ratio);
    let gain = |bytes: u64| ratio(bytes.saturating_mul(2)) - ratio(bytes);
    let first = curve.points()[0].bytes.min(flat_begin_bytes);
    // Start of each step, from region 3 down to the first point; below the first point the
    // curve is not measured.
    let step = |number: u32| as_u64(as_f64(flat_begin_bytes) * (-f64::from(number) / STEPS).exp2());
    let steps = (0_u32..).map(step).take_while(|&bytes| bytes >= first && bytes > 1);
    let (mut steep_end_bytes, mut most_gain) = (flat_begin_bytes, 0.0_f64);
    let mut steep_found = false;
    for bytes in steps.skip(1) {
        if gain(bytes) > STEEP * ceiling {
            steep_found = true;
            break;
        }
        steep_end_bytes = bytes;
        most_gain = most_gain.max(gain(bytes));
    }
    if !steep_found {
        steep_end_bytes = first;
    }
    Some(Regions {
        steep_end_bytes,
        steep_seen: steep_found,
        flat_begin_bytes,
        ceiling,
        steep_end_hit_ratio: ratio(steep_end_bytes),
        gain_of_doubling: most_gain,
        flat_begin_hit_ratio: ratio(flat_begin_bytes),
    })
}

/// Returns the region of a size. A boundary is accurate to one step, so a size within one step
/// after the start of region 3 still belongs to region 2: it wastes no memory.
#[must_use]
pub fn region(regions: &Regions, bytes: u64) -> Region {
    let step = (1.0 / STEPS).exp2();
    if as_f64(bytes) > as_f64(regions.flat_begin_bytes) * step {
        Region::Flat
    } else if as_f64(bytes) * step >= as_f64(regions.steep_end_bytes) {
        Region::Useful
    } else {
        Region::Steep
    }
}

/// Returns a sentence for each region with the reason for its boundaries.
#[must_use]
pub fn reasons(regions: &Regions) -> [String; 3] {
    let points = |share: f64| format!("{:.1} points", share * 100.0);
    let (steep_end, flat_begin) =
        (format::bytes(regions.steep_end_bytes), format::bytes(regions.flat_begin_bytes));
    let steep = points(STEEP * regions.ceiling);
    let ceiling = format::percent(regions.ceiling);
    let at_end = format::percent(regions.steep_end_hit_ratio);
    let at_flat = format::percent(regions.flat_begin_hit_ratio);
    [
        if regions.steep_seen {
            format!(
                "1, steep, below {steep_end} ({at_end} hits): doubling the memory can gain more \
                 than {steep}, a tenth of the reachable {ceiling}."
            )
        } else {
            format!("1, steep: not measured; the smallest evaluated size is {steep_end}.")
        },
        if regions.is_cliff() {
            format!(
                "2, useful: empty. Below {flat_begin} too little fits, from there on nearly \
                 everything."
            )
        } else {
            format!(
                "2, useful, from {steep_end} to {flat_begin} ({at_end} to {at_flat}): a \
                 doubling gains {} at most.",
                points(regions.gain_of_doubling)
            )
        },
        format!(
            "3, flat, from {flat_begin} ({at_flat}): all further memory together gains {}, \
             at most a twentieth of the reachable hits.",
            points((regions.ceiling - regions.flat_begin_hit_ratio).max(0.0))
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_schema::curve::Point;

    const MIB: u64 = 1 << 20;

    fn sampled(last: u64, ratio: impl Fn(f64) -> f64) -> Curve {
        let sizes = (0..40).map(|k| as_u64(as_f64(last) * (-f64::from(k) / 4.0).exp2()));
        Curve::new(sizes.map(|bytes| Point::exact(bytes, ratio(as_f64(bytes)))))
    }

    #[test]
    fn a_bend_has_three_regions() {
        // The hit ratio is 1 - exp(-size / 64 MiB).
        let scale = as_f64(64 * MIB);
        let curve = sampled(2048 * MIB, |bytes| 1.0 - (-bytes / scale).exp());
        let found = find(&curve, 1.0).unwrap();
        // exp(-x) = 0.05 at x = 3.0; exp(-x) - exp(-2 x) = 0.1 at x = 2.18.
        let near = |bytes: u64, factor: f64| (as_f64(bytes) / scale / factor - 1.0).abs() < 0.1;
        assert!(near(found.flat_begin_bytes, 3.0), "{found:?}");
        assert!(near(found.steep_end_bytes, 2.18), "{found:?}");
        assert_eq!(region(&found, 64 * MIB), Region::Steep);
        assert_eq!(region(&found, 170 * MIB), Region::Useful);
        assert_eq!(region(&found, 512 * MIB), Region::Flat);
        assert!(!found.is_cliff() && found.gain_of_doubling <= STEEP);
    }

    #[test]
    fn a_loop_is_a_cliff_without_a_useful_region() {
        let edge = 100 * MIB;
        let points = [(MIB, 0.0), (edge - 1, 0.0), (edge, 0.9), (4 * edge, 0.9)];
        let curve = Curve::new(points.map(|(bytes, ratio)| Point::exact(bytes, ratio)));
        let found = find(&curve, 0.9).unwrap();
        assert!(found.is_cliff(), "{found:?}");
        assert_eq!(found.flat_begin_bytes, edge);
        assert!(reasons(&found)[1].contains("empty"), "{:?}", reasons(&found));
    }

    #[test]
    fn a_plateau_below_a_rise_is_too_small_as_well() {
        let points = [(MIB, 0.3), (2 * MIB, 0.3), (64 * MIB, 0.31), (128 * MIB, 0.9)];
        let curve = Curve::new(points.map(|(bytes, ratio)| Point::exact(bytes, ratio)));
        let found = find(&curve, 0.9).unwrap();
        assert_eq!(region(&found, 32 * MIB), Region::Steep, "{found:?}");
    }

    #[test]
    fn a_curve_that_is_flat_from_its_first_point_has_only_region_3() {
        let curve = sampled(1024 * MIB, |_| 0.5);
        let found = find(&curve, 0.5).unwrap();
        let first = curve.points()[0].bytes;
        assert!(found.flat_begin_bytes <= first, "{found:?}");
        assert!(!found.steep_seen && reasons(&found)[0].contains("not measured"));
        assert_eq!(region(&found, first * 2), Region::Flat);
    }

    #[test]
    fn what_never_hits_has_no_regions() {
        assert_eq!(find(&Curve::default(), 0.5), None);
        assert_eq!(find(&sampled(MIB, |_| 0.0), 0.0), None);
    }
}
