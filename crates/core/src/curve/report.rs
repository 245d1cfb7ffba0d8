//! Results for a volume's workload, as plain data for display.

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

/// A policy at the current size of the volume.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CandidateRatio {
    /// The policy.
    pub policy: PolicyKind,
    /// Its hit ratio, 0 to 1: that of the volume plus the gain of the policy.
    pub hit_ratio: f64,
    /// The standard deviation of the gain.
    pub deviation: f64,
}

/// A problem that the data of a volume show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Finding {
    /// The cache thrashes: with twice the memory the hit ratio would be far higher.
    TooSmall {
        /// The additional bytes with which it would reach nearly all possible hits.
        more_bytes: u64,
        /// The hit ratio at the current size.
        hit_ratio: f64,
        /// The hit ratio with the additional memory.
        hit_ratio_then: f64,
    },
    /// The volume has memory with almost no effect on hits.
    TooLarge {
        /// The bytes that could be removed.
        spare_bytes: u64,
        /// The hit ratio at the current size.
        hit_ratio: f64,
        /// The hit ratio without these bytes.
        hit_ratio_then: f64,
    },
    /// Another policy has a clearly higher hit ratio.
    BetterPolicy {
        /// The policy.
        policy: PolicyKind,
        /// Its additional hits, as a share of the references.
        gain: f64,
    },
    /// Most references are to pages that were not referenced recently: no cache size on the curve
    /// would make them hits.
    Scanned {
        /// Their share of the references.
        share: f64,
    },
    /// Many pages that are read ahead are not used.
    AheadWasted {
        /// The unused share of the last few thousand pages that were read ahead.
        share: f64,
    },
    /// Many blocks are written back because their frames are needed, in eviction order instead of
    /// disk order: there is too much dirty data for the memory.
    Stolen {
        /// The share of all blocks written back.
        share: f64,
    },
    /// The volume writes more to the store than clients write to the volume.
    WriteAmplification {
        /// Bytes written to the store per byte that clients wrote.
        factor: f64,
    },
}

/// Twice the memory gains at least this share of the references: the cache thrashes.
const THRASHING: f64 = 0.10;
/// The share of the possible hits that a sufficient size may lack.
const NEARLY: f64 = 0.05;
/// Threshold of [`Finding::Scanned`]: share of the references that no size can hit.
const SCANNED: f64 = 0.5;
/// Threshold of [`Finding::Stolen`]: share of the written blocks.
const STOLEN: f64 = 0.10;
/// Threshold of [`Finding::WriteAmplification`]: bytes written per byte.
const AMPLIFIED: f64 = 1.5;
/// Threshold of [`Finding::AheadWasted`]: unused share of the pages read ahead.
const WASTED: f64 = 0.5;

/// The analysis of a volume.
#[derive(Clone, Debug, PartialEq)]
pub struct CurveReport {
    /// The recent LRU curve, by rising size.
    pub points: Vec<CurvePoint>,
    /// The recent curve of the policy in use, with the read-ahead of the volume, by rising size;
    /// empty while there is no estimate.
    pub policy_points: Vec<CurvePoint>,
    /// The same since the policy or the size changed.
    pub lifetime_policy_points: Vec<CurvePoint>,
    /// The LRU curve since the volume was added.
    pub lifetime_points: Vec<CurvePoint>,
    /// The sampled share of the pages, 0 to 1.
    pub sample_rate: f64,
    /// References behind the curve, weighted by age.
    pub references: u64,
    /// References that are missing before misses show that pages are not used again. Until then
    /// there are no findings [`Finding::TooLarge`] and [`Finding::Scanned`].
    pub references_missing: u64,
    /// The measured hit ratio of the volume over them, under the policies it had.
    pub hit_ratio: f64,
    /// Current memory of the volume in bytes.
    pub bytes: u64,
    /// Its policy.
    pub policy: PolicyKind,
    /// True if the cache may change the policy automatically.
    pub policy_auto: bool,
    /// The policies that were compared.
    pub candidates: Vec<CandidateRatio>,
    /// The policy with the highest hit ratio, if it is clearly higher than that of the current one.
    pub recommended_policy: Option<PolicyKind>,
    /// The smallest size that reaches nearly all possible hits, in bytes; `None` if there are no
    /// hits.
    pub recommended_bytes: Option<u64>,
    /// Problems that the data show.
    pub findings: Vec<Finding>,
}

/// Recent writes and read-ahead of a volume; older amounts weigh less.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RecentTraffic {
    /// Bytes written by clients.
    pub client_bytes: f64,
    /// Bytes written to the store.
    pub store_bytes: f64,
    /// Blocks written back.
    pub blocks: f64,
    /// Blocks among them that were written because their frames were needed.
    pub stolen_blocks: f64,
    /// The unused share of the pages that were read ahead.
    pub ahead_wasted: f64,
}

/// Returns the hit ratio of a curve at a size, by linear interpolation between its points and from
/// zero to the first one.
#[must_use]
pub fn hit_ratio(points: &[CurvePoint], bytes: u64) -> f64 {
    let points: Vec<_> = points.iter().map(|p| (p.bytes, p.estimate.hit_ratio)).collect();
    crate::share::gain(&points, bytes)
}

/// Returns the smallest size that reaches nearly all hits of the largest size.
#[must_use]
pub fn enough_bytes(points: &[CurvePoint]) -> Option<u64> {
    let most = points.iter().map(|point| point.estimate.hit_ratio).fold(0.0, f64::max);
    let wanted = most * (1.0 - NEARLY);
    let reaches = |point: &&CurvePoint| point.estimate.hit_ratio >= wanted;
    (most > 0.0).then(|| points.iter().find(reaches).map(|point| point.bytes)).flatten()
}

/// Returns the share of the references that no size can hit, if it is more than half; `end` is the
/// last point of the curve.
#[must_use]
pub fn scanned_share(end: Option<&CurvePoint>) -> Option<f64> {
    let unreached = end.map_or(0.0, |last| 1.0 - last.estimate.hit_ratio);
    (unreached > SCANNED).then_some(unreached)
}

/// Returns the findings for a volume of `bytes` with this curve and this traffic. `end` is the last
/// point of the curve without read-ahead.
#[must_use]
pub fn findings(
    points: &[CurvePoint],
    end: Option<&CurvePoint>,
    bytes: u64,
    traffic: RecentTraffic,
) -> Vec<Finding> {
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
    if let Some(share) = scanned_share(end) {
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
        let found = findings(&points, points.last(), 100, RecentTraffic::default());
        let [Finding::TooSmall { more_bytes, hit_ratio, hit_ratio_then }] = found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(more_bytes, 20);
        assert!(hit_ratio < 1e-9 && (hit_ratio_then - 0.9).abs() < 1e-9);
        assert_eq!(findings(&points, points.last(), 150, RecentTraffic::default()), []);
    }

    #[test]
    fn memory_behind_the_last_hit_is_spare() {
        let points = curve(&[(10, 0.5), (100, 0.9), (800, 0.9)]);
        let found = findings(&points, points.last(), 400, RecentTraffic::default());
        assert!(matches!(found[..], [Finding::TooLarge { spare_bytes: 300, .. }]), "{found:?}");
    }

    #[test]
    fn a_scan_is_out_of_reach() {
        let points = curve(&[(10, 0.05), (800, 0.1)]);
        let found = findings(&points, points.last(), 800, RecentTraffic::default());
        assert!(matches!(found[..], [Finding::Scanned { share }] if share > 0.89), "{found:?}");
        assert_eq!(enough_bytes(&curve(&[(10, 0.0)])), None);
    }

    #[test]
    fn what_is_written_too_often_or_too_early_is_said() {
        let traffic = RecentTraffic {
            client_bytes: 100.0,
            store_bytes: 200.0,
            blocks: 10.0,
            stolen_blocks: 5.0,
            ahead_wasted: 0.6,
        };
        let found = findings(&[], None, 100, traffic);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(matches!(found[0], Finding::AheadWasted { share } if share > 0.5));
        assert!(matches!(found[1], Finding::Stolen { share } if (share - 0.5).abs() < 1e-9));
        let factor =
            |f: &Finding| matches!(f, Finding::WriteAmplification { factor } if *factor > 1.9);
        assert!(factor(&found[2]));
        assert_eq!(findings(&[], None, 100, RecentTraffic::default()), []);
    }
}
