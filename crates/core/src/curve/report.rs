//! What is known of a volume's workload, as plain data for whoever shows it.

use super::estimate::Estimate;
use crate::policy::PolicyKind;

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// Size of the cache in bytes.
    pub bytes: u64,
    /// The hit ratio of an LRU cache of this size, 0 to 1, with its 95 % bar.
    pub estimate: Estimate,
}

/// A policy at the size that the volume has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CandidateRatio {
    /// The policy.
    pub policy: PolicyKind,
    /// Its hit ratio, 0 to 1: that of the volume, and what the policy would have hit more.
    pub hit_ratio: f64,
    /// The standard deviation of what it hits more.
    pub deviation: f64,
}

/// What a volume suffers from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Finding {
    /// It thrashes: twice the memory would hit far more.
    TooSmall {
        /// With so many bytes more it would reach nearly all hits that are in reach.
        more_bytes: u64,
        /// The hit ratio of LRU at the present size.
        hit_ratio: f64,
        /// The same with the memory that it needs.
        hit_ratio_then: f64,
    },
    /// It has memory that brings next to nothing.
    TooLarge {
        /// So many bytes could go.
        spare_bytes: u64,
        /// The hit ratio of LRU at the present size.
        hit_ratio: f64,
        /// The same without them.
        hit_ratio_then: f64,
    },
    /// Another policy hits more, clearly.
    BetterPolicy {
        /// Which.
        policy: PolicyKind,
        /// Hits more, as a share of the references.
        gain: f64,
    },
    /// Most references are to pages that were not referenced lately: no memory that the volume
    /// could have would hit them.
    Scanned {
        /// Their share of the references.
        share: f64,
    },
    /// Much of what is read ahead is not wanted.
    AheadWasted {
        /// The share of the pages that were read ahead and not touched, of the last few thousand.
        share: f64,
    },
    /// Much is written because its room is wanted, in the order in which it is met and not in that
    /// of the disk: too much is dirty for the memory.
    Stolen {
        /// The share of all blocks written back.
        share: f64,
    },
    /// The store is written more than clients write.
    WriteAmplification {
        /// Bytes that the store wrote for each byte of a client.
        factor: f64,
    },
}

/// Twice the memory gains this much of the references: thrashing.
const THRASHING: f64 = 0.10;
/// What may be missing of the hits in reach.
const NEARLY: f64 = 0.05;
/// More than this share of the references is out of reach.
const SCANNED: f64 = 0.5;
/// More than this share of what is written back is stolen.
const STOLEN: f64 = 0.10;
/// More than this is written for each byte.
const AMPLIFIED: f64 = 1.5;
/// More than this share of what is read ahead is not wanted.
const WASTED: f64 = 0.5;

/// What is known of a volume.
#[derive(Clone, Debug, PartialEq)]
pub struct CurveReport {
    /// The curve of LRU lately, by rising size.
    pub points: Vec<CurvePoint>,
    /// The same since the volume was added.
    pub lifetime_points: Vec<CurvePoint>,
    /// The part of the pages that are sampled, 0 to 1.
    pub sample_rate: f64,
    /// References that the curve stands on, older ones weighing less.
    pub references: u64,
    /// The hit ratio that the volume really had over them, under the policies it had.
    pub hit_ratio: f64,
    /// Memory that the volume has now, in bytes.
    pub bytes: u64,
    /// Its policy.
    pub policy: PolicyKind,
    /// Whether the cache may change the policy by itself.
    pub policy_auto: bool,
    /// The policies that were compared.
    pub candidates: Vec<CandidateRatio>,
    /// The policy that hits most, if it is clear that it hits more than the present one.
    pub recommended_policy: Option<PolicyKind>,
    /// The smallest size that reaches nearly all hits in reach, in bytes; nothing if there are
    /// none.
    pub recommended_bytes: Option<u64>,
    /// What it suffers from.
    pub findings: Vec<Finding>,
}

/// What a volume wrote and read ahead lately; older amounts weigh less.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Bytes that clients wrote.
    pub client_bytes: f64,
    /// Bytes that the store wrote.
    pub store_bytes: f64,
    /// Blocks written back, and those of them whose room was wanted.
    pub blocks: f64,
    /// See there.
    pub stolen_blocks: f64,
    /// The share of the pages that were read ahead and were not touched.
    pub ahead_wasted: f64,
}

/// The hit ratio of a curve at a size: a straight line between its points, from nothing on.
#[must_use]
pub fn hit_ratio(points: &[CurvePoint], bytes: u64) -> f64 {
    let points: Vec<_> = points.iter().map(|p| (p.bytes, p.estimate.hit_ratio)).collect();
    crate::share::gain(&points, bytes)
}

/// The smallest size that reaches nearly all that the largest one hits.
#[must_use]
pub fn enough_bytes(points: &[CurvePoint]) -> Option<u64> {
    let most = points.iter().map(|point| point.estimate.hit_ratio).fold(0.0, f64::max);
    let wanted = most * (1.0 - NEARLY);
    let reaches = |point: &&CurvePoint| point.estimate.hit_ratio >= wanted;
    (most > 0.0).then(|| points.iter().find(reaches).map(|point| point.bytes)).flatten()
}

/// The share of the references that are out of reach of any memory, if these are most; `end` is
/// the last point of the curve.
#[must_use]
pub fn scanned_share(end: Option<&CurvePoint>) -> Option<f64> {
    let unreached = end.map_or(0.0, |last| 1.0 - last.estimate.hit_ratio);
    (unreached > SCANNED).then_some(unreached)
}

/// What follows from a curve for a volume of `bytes`, and from what it wrote
/// and read ahead.
#[must_use]
pub fn findings(points: &[CurvePoint], bytes: u64, traffic: Traffic) -> Vec<Finding> {
    let mut found = Vec::new();
    let now = hit_ratio(points, bytes);
    let enough = enough_bytes(points);
    if hit_ratio(points, bytes.saturating_mul(2)) - now >= THRASHING {
        let needed = enough.unwrap_or(bytes).max(bytes);
        found.push(Finding::TooSmall {
            more_bytes: needed - bytes,
            hit_ratio: now,
            hit_ratio_then: hit_ratio(points, needed),
        });
    }
    if let Some(enough) = enough.filter(|enough| enough.saturating_mul(2) <= bytes) {
        found.push(Finding::TooLarge {
            spare_bytes: bytes - enough,
            hit_ratio: now,
            hit_ratio_then: hit_ratio(points, enough),
        });
    }
    if let Some(share) = scanned_share(points.last()) {
        found.push(Finding::Scanned { share });
    }
    if traffic.ahead_wasted > WASTED {
        found.push(Finding::AheadWasted { share: traffic.ahead_wasted });
    }
    let stolen = traffic.stolen_blocks / traffic.blocks.max(1.0);
    if stolen > STOLEN {
        found.push(Finding::Stolen { share: stolen });
    }
    let factor = traffic.store_bytes / traffic.client_bytes.max(1.0);
    if traffic.client_bytes > 0.0 && factor > AMPLIFIED {
        found.push(Finding::WriteAmplification { factor });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u64, f64)]) -> Vec<CurvePoint> {
        let point = |&(bytes, ratio)| CurvePoint { bytes, estimate: Estimate::around(ratio, 0.0) };
        points.iter().map(point).collect()
    }

    #[test]
    fn a_loop_larger_than_the_cache_needs_the_rest_of_it() {
        let points = curve(&[(10, 0.0), (100, 0.0), (120, 0.9), (800, 0.9)]);
        let found = findings(&points, 100, Traffic::default());
        let [Finding::TooSmall { more_bytes, hit_ratio, hit_ratio_then }] = found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(more_bytes, 20);
        assert!(hit_ratio < 1e-9 && (hit_ratio_then - 0.9).abs() < 1e-9);
        assert_eq!(findings(&points, 150, Traffic::default()), []);
    }

    #[test]
    fn memory_behind_the_last_hit_is_spare() {
        let points = curve(&[(10, 0.5), (100, 0.9), (800, 0.9)]);
        let found = findings(&points, 400, Traffic::default());
        assert!(matches!(found[..], [Finding::TooLarge { spare_bytes: 300, .. }]), "{found:?}");
    }

    #[test]
    fn a_scan_is_out_of_reach() {
        let points = curve(&[(10, 0.05), (800, 0.1)]);
        let found = findings(&points, 800, Traffic::default());
        assert!(matches!(found[..], [Finding::Scanned { share }] if share > 0.89), "{found:?}");
        assert_eq!(enough_bytes(&curve(&[(10, 0.0)])), None);
    }

    #[test]
    fn what_is_written_too_often_or_too_early_is_said() {
        let traffic = Traffic {
            client_bytes: 100.0,
            store_bytes: 200.0,
            blocks: 10.0,
            stolen_blocks: 5.0,
            ahead_wasted: 0.6,
        };
        let found = findings(&[], 100, traffic);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(matches!(found[0], Finding::AheadWasted { share } if share > 0.5));
        assert!(matches!(found[1], Finding::Stolen { share } if (share - 0.5).abs() < 1e-9));
        let factor =
            |f: &Finding| matches!(f, Finding::WriteAmplification { factor } if *factor > 1.9);
        assert!(factor(&found[2]));
        assert_eq!(findings(&[], 100, Traffic::default()), []);
    }
}
