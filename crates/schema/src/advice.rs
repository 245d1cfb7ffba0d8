//! Recommendations from a hit-ratio curve: regions, goals and chosen sizes. Sizes are bytes; hit
//! ratios are from 0 to 1.

use crate::curve::Point;
use serde::{Deserialize, Serialize};

/// Region 3: at most this share of the reachable hits is missing.
pub const FLAT: f64 = 0.05;

/// A region of a hit-ratio curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Region {
    /// Region 1: too small and unstable.
    Steep,
    /// Region 2: useful.
    Useful,
    /// Region 3: wasted memory.
    Flat,
}

/// Boundaries of a curve's regions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Regions {
    /// The smallest size of region 2, or of region 3 if region 2 is empty; bytes.
    pub steep_end_bytes: u64,
    /// True if the curve includes sizes in region 1; if not, `steep_end_bytes` is an upper bound.
    pub steep_seen: bool,
    /// The smallest size of region 3, bytes.
    pub flat_begin_bytes: u64,
    /// The reachable hit ratio, 0 to 1.
    pub ceiling: f64,
    /// The hit ratio at the end of region 1.
    pub steep_end_hit_ratio: f64,
    /// The largest gain from doubling after region 1, as a difference of hit ratios.
    pub gain_of_doubling: f64,
    /// The hit ratio at the start of region 3.
    pub flat_begin_hit_ratio: f64,
}

impl Regions {
    /// Returns true if region 1 extends to region 3.
    #[must_use]
    pub fn is_cliff(&self) -> bool {
        self.steep_end_bytes >= self.flat_begin_bytes
    }
}

/// Target and budget of a recommendation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizingGoal {
    /// Target share of the reachable hits, above 0 and up to 1.
    pub target: f64,
    /// Maximum size in bytes.
    pub budget_bytes: Option<u64>,
}

impl SizingGoal {
    /// The default target: the start of the flat region.
    pub const TARGET: f64 = 1.0 - FLAT;

    /// Returns the target hit ratio if the reachable one is `ceiling`.
    #[must_use]
    pub fn hit_ratio(&self, ceiling: f64) -> f64 {
        self.target * ceiling
    }
}

/// The limit that determined a chosen size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attainment {
    /// The target is reached.
    Reached,
    /// The budget is too small for the target.
    Budget,
    /// The estimated curve ends below the target: the choice is the largest size.
    End,
}

/// A chosen size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Size and hit ratio.
    pub point: Point,
    /// Attainment of the target.
    pub reach: Attainment,
    /// The smallest size that reaches the target without a budget, in bytes.
    pub target_bytes: Option<u64>,
}
