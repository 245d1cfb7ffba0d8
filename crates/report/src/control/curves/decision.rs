//! The decision that a curve supports: more memory, less, or none of them.
//!
//! Findings and advice follow from [`decide`] alone, so they cannot contradict each other.

use crate::advise::{goal, regions};
use larder_schema::advice::{Choice, Region, Regions, SizingGoal};
use larder_schema::control::VolumeCurve;
use larder_schema::curve::{Curve, Point};

/// Minimum number of references for a meaningful curve.
pub const REFERENCES_MIN: u64 = 1_000;
/// Denominator of the share of the current memory below which missing memory is ignored.
const IGNORED_FRACTION: u64 = 16;

/// The advice on the memory of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryAdvice {
    /// There are too few references for a curve.
    Unknown,
    /// Hits do not depend on memory so far, and most pages may still be used again.
    TooEarly,
    /// No size has hits.
    NothingHits,
    /// More memory is needed.
    More {
        /// Additional memory, bytes.
        bytes: u64,
    },
    /// Some memory gains almost nothing.
    Spare {
        /// This memory, bytes.
        bytes: u64,
    },
    /// The memory is sufficient, and used.
    Enough,
}

/// Returns the curve that decides: of the current policy if it has an estimate, otherwise of LRU.
/// Between the few sizes of the estimate, and beyond them, it has the shape of the LRU curve.
#[must_use]
pub fn advising_curve(volume: &VolumeCurve) -> Curve {
    let (policy, lru) = (volume.policy_points.points(), &volume.points);
    let of_lru = |bytes| lru.at(bytes).map_or(0.0, |point| point.hit_ratio);
    let lead = |point: &Point| Point::exact(point.bytes, point.hit_ratio - of_lru(point.bytes));
    let leads = Curve::new(policy.iter().map(lead));
    let with_lead = |point: &Point| {
        let lead = leads.at(point.bytes).map_or(0.0, |point| point.hit_ratio);
        let add = |ratio: f64| (ratio + lead).clamp(0.0, 1.0);
        let Point { bytes, hit_ratio, low, high } = *point;
        Point { bytes, hit_ratio: add(hit_ratio), low: add(low), high: add(high) }
    };
    Curve::new(lru.points().iter().map(with_lead).chain(policy.iter().copied()))
}

/// Returns the name of the policy of [`advising_curve`].
#[must_use]
pub fn advising_policy(volume: &VolumeCurve) -> &str {
    if volume.policy_points.points().is_empty() { "LRU" } else { &volume.policy }
}

/// Returns the required size of a volume with this curve.
#[must_use]
pub fn needed_memory(points: &Curve) -> Option<Choice> {
    let ceiling = points.rising().points().last()?.hit_ratio;
    goal::choose(points, ceiling, &SizingGoal { target: SizingGoal::TARGET, budget_bytes: None })
}

/// Returns the highest hit ratio of the curve.
pub(super) fn ceiling(volume: &VolumeCurve) -> f64 {
    advising_curve(volume).rising().points().last().map_or(0.0, |point| point.hit_ratio)
}

pub(super) fn hit_ratio_at(volume: &VolumeCurve, bytes: u64) -> f64 {
    advising_curve(volume).rising().at(bytes).map_or(0.0, |point| point.hit_ratio)
}

/// Returns the memory that the volume has, or can have on demand.
pub(super) fn available_memory(volume: &VolumeCurve) -> u64 {
    volume.bytes.max(volume.room_bytes)
}

pub(super) fn is_known(volume: &VolumeCurve) -> bool {
    volume.references >= REFERENCES_MIN && advising_curve(volume).last_bytes() > 0
}

/// The regions of a volume's curve, the region of its memory, and the required size.
type Analysis = (Option<Regions>, Option<Region>, Option<Choice>);

fn analysis(volume: &VolumeCurve) -> Analysis {
    let curve = advising_curve(volume);
    let regions = regions::find(&curve, ceiling(volume));
    let region = regions.as_ref().map(|found| regions::region(found, available_memory(volume)));
    (regions, region, needed_memory(&curve))
}

/// Returns the advice on the memory of a volume.
#[must_use]
pub fn decide(volume: &VolumeCurve) -> MemoryAdvice {
    if !is_known(volume) {
        return MemoryAdvice::Unknown;
    }
    let (regions, region, needed) = analysis(volume);
    if volume.references_missing > 0 && region.is_none_or(|region| region == Region::Flat) {
        return MemoryAdvice::TooEarly;
    }
    let (Some(regions), Some(region), Some(needed)) = (regions, region, needed) else {
        return MemoryAdvice::NothingHits;
    };
    let memory = available_memory(volume);
    let more = needed.point.bytes.saturating_sub(memory);
    let spare = memory.saturating_sub(regions.flat_begin_bytes);
    if more > memory / IGNORED_FRACTION {
        MemoryAdvice::More { bytes: more }
    } else if region == Region::Flat && spare > 0 {
        MemoryAdvice::Spare { bytes: spare }
    } else {
        MemoryAdvice::Enough
    }
}

/// Sets the regions and the required size, where [`decide`] has used them.
pub(super) fn analyze(volume: &mut VolumeCurve) {
    if matches!(decide(volume), MemoryAdvice::Unknown | MemoryAdvice::TooEarly) {
        return;
    }
    let (regions, region, needed) = analysis(volume);
    volume.regions_why = regions.as_ref().map_or_else(Vec::new, |it| regions::reasons(it).to_vec());
    (volume.regions, volume.region, volume.needed) = (regions, region, needed);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn curve(points: &[(u64, f64)]) -> Curve {
        Curve::new(points.iter().map(|&(mib, ratio)| Point::exact(mib * MIB, ratio)))
    }

    type Is = fn(MemoryAdvice) -> bool;

    #[test]
    fn between_the_sizes_of_the_estimate_lru_gives_the_shape() {
        let volume = VolumeCurve {
            points: curve(&[(8, 0.0), (10, 0.8), (16, 0.8), (32, 0.9)]),
            policy_points: curve(&[(8, 0.1), (16, 0.9)]),
            ..VolumeCurve::default()
        };
        let found = advising_curve(&volume);
        let at = |mib| found.at(mib * MIB).unwrap().hit_ratio;
        for (mib, ratio) in [(4, 0.05), (8, 0.1), (10, 0.9), (16, 0.9), (32, 1.0)] {
            assert!((at(mib) - ratio).abs() < 1e-9, "{mib}: {}", at(mib));
        }
    }

    #[test]
    fn the_curve_of_the_policy_decides_where_it_is_known() {
        let steep = &[(8, 0.1), (16, 0.2), (32, 0.5), (64, 0.9), (128, 0.9)][..];
        let flat = &[(4, 0.8), (8, 0.9), (16, 0.9), (32, 0.9), (64, 0.9)][..];
        let useful = &[(4, 0.5), (8, 0.7), (16, 0.854), (32, 0.9), (64, 0.9)][..];
        let none = &[(16, 0.0), (64, 0.0)][..];
        let more: Is = |it| matches!(it, MemoryAdvice::More { .. });
        let spare: Is = |it| matches!(it, MemoryAdvice::Spare { .. });
        // The policy's curve, LRU's curve, references, references that are missing, the advice.
        let cases: [(&[_], &[_], u64, u64, Is); 11] = [
            (&[], steep, 100_000, 0, more),
            (&[], flat, 100_000, 0, spare),
            (&[], useful, 100_000, 0, |it| it == MemoryAdvice::Enough),
            (&[], none, 100_000, 0, |it| it == MemoryAdvice::NothingHits),
            (&[], &[], 100_000, 0, |it| it == MemoryAdvice::Unknown),
            (steep, flat, 100_000, 0, more),
            (flat, steep, 100_000, 0, spare),
            (flat, steep, 100_000, 1, |it| it == MemoryAdvice::TooEarly),
            (steep, flat, 100_000, 1, more),
            (none, none, 100_000, 0, |it| it == MemoryAdvice::NothingHits),
            (steep, steep, 999, 0, |it| it == MemoryAdvice::Unknown),
        ];
        for (number, (policy, lru, references, references_missing, expected)) in
            cases.into_iter().enumerate()
        {
            let volume = VolumeCurve {
                bytes: 16 * MIB,
                references,
                references_missing,
                points: curve(lru),
                policy_points: curve(policy),
                ..VolumeCurve::default()
            };
            let decision = decide(&volume);
            assert!(expected(decision), "case {number}: {decision:?}");
        }
    }
}
