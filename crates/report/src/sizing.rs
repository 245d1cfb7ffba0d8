//! How much cache a workload needs: everything that `larder size` found out about a trace, and its
//! three forms: JSON (this structure as it is), text and a page of HTML.
//!
//! Invariants: whoever measures fills this in; the forms only write down what is here, so that all
//! of them say the same. Sizes are bytes of data, without the tables of the cache, unless a name
//! says memory; hit ratios are shares of references from 0 to 1; times are nanoseconds.

mod html;
mod scale;
mod text;

use crate::advise::curve::{Curve, Point};
use crate::advise::divide::Share;
use crate::advise::goal::{Attainment, Goal};
use crate::advise::page_size::PageSize;
use crate::advise::regions::{Region, Regions};
use crate::advise::stability::{Stability, Window};
use serde::{Deserialize, Serialize};

/// The name of the JSON form.
pub const SCHEMA: &str = "larder-size";
/// Its version.
pub const VERSION: u32 = 1;

/// The trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Workload {
    /// As the user named it.
    pub trace: String,
    /// Bytes of the pages that references and hit ratios count.
    pub page_bytes: u32,
    /// Reads and writes.
    pub requests: u64,
    /// Pages touched, each by one request.
    pub references: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// From the first request to the latest; nothing if the trace has no times.
    pub duration_ns: Option<u64>,
    /// Different pages.
    pub footprint_pages: u64,
    /// Whether they were counted and not estimated.
    pub footprint_exact: bool,
    /// First references: misses that no cache removes.
    pub compulsory_misses: u64,
    /// The hit ratio of a cache that holds everything.
    pub ceiling: f64,
}

impl Workload {
    /// All different pages, bytes.
    #[must_use]
    pub fn footprint_bytes(&self) -> u64 {
        self.footprint_pages.saturating_mul(self.page_bytes.into())
    }
}

/// The curve of one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyCurve {
    /// The policy.
    pub policy: String,
    /// Its points.
    pub points: Curve,
}

/// A point of the curve of the best policies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BestPoint {
    /// The best policy there.
    pub policy: String,
    /// Its hit ratio.
    #[serde(flatten)]
    pub point: Point,
}

/// What is recommended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// Size of the cache, bytes of data.
    pub bytes: u64,
    /// The same with the tables of the cache: what `larder serve --memory` is given.
    pub memory_bytes: u64,
    /// The policy.
    pub policy: String,
    /// The page size, bytes.
    pub page_bytes: u32,
    /// How the size came about.
    pub reach: Attainment,
    /// The hit ratio that was wanted.
    pub wanted_hit_ratio: f64,
    /// The smallest size that reaches it, whatever the budget.
    pub target_bytes: Option<u64>,
    /// The region that the size lies in.
    pub region: Option<Region>,
}

/// What a cache of one size would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// `half`, `recommended`, `twice`.
    pub what: String,
    /// Size and hit ratio with the recommended policy.
    #[serde(flatten)]
    pub point: Point,
    /// Whether it was counted over the whole trace and not estimated.
    pub counted: bool,
    /// Misses in an hour of the trace; nothing if the trace has no times.
    pub misses_per_hour: Option<f64>,
    /// Bytes that the store has to deliver over the whole trace.
    pub store_bytes: u64,
    /// The hit ratios of all policies at this size, best first.
    pub policies: Vec<PolicyRatio>,
}

/// A policy at one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyRatio {
    /// The policy.
    pub policy: String,
    /// Its hit ratio.
    pub hit_ratio: f64,
    /// Lower end of the bar.
    pub low: f64,
    /// Upper end of the bar.
    pub high: f64,
}

/// One part of the trace, for the working set over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Slice {
    /// When it begins, or how many requests came before where the trace has no times.
    pub begin: u64,
    /// References in it.
    pub references: u64,
    /// Different pages in it.
    pub pages: u64,
}

/// How often each part of the address space was touched in each part of the time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Heat {
    /// Volumes, one above the other.
    pub volumes: Vec<HeatVolume>,
    /// References: for each row from address 0 upwards, each slice of the time.
    pub rows: Vec<Vec<u64>>,
}

/// Rows of one volume in the heat map.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HeatVolume {
    /// What it is called.
    pub volume: String,
    /// Rows that it has.
    pub rows: usize,
    /// Its first touched byte.
    pub begin_bytes: u64,
    /// Behind its last touched byte.
    pub end_bytes: u64,
}

/// Everything that was found out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sizing {
    /// The trace.
    pub workload: Workload,
    /// What was wanted.
    pub goal: Goal,
    /// Whether the curve was counted at all of its sizes and not estimated from samples.
    pub exact: bool,
    /// The seed of the samples.
    pub seed: u64,
    /// The best policy at each size.
    pub curve: Vec<BestPoint>,
    /// The curves of all policies, best first.
    pub policies: Vec<PolicyCurve>,
    /// The regions of the curve; nothing if nothing hits.
    pub regions: Option<Regions>,
    /// Why the regions end where they do.
    pub regions_why: Vec<String>,
    /// What is recommended; nothing if no cache helps.
    pub recommendation: Option<Recommendation>,
    /// Half of it, it, twice of it.
    pub effects: Vec<Effect>,
    /// The hit ratio of MIN at the recommended size: no policy has a higher one.
    pub min_hit_ratio: Option<f64>,
    /// The parts of the trace.
    pub windows: Vec<Window>,
    /// How much they differ.
    pub stability: Option<Stability>,
    /// How to divide the memory among the volumes, if there are several.
    pub volumes: Vec<Share>,
    /// Page sizes at the recommended memory.
    pub page_sizes: Vec<PageSize>,
    /// References and different pages over time.
    pub slices: Vec<Slice>,
    /// Addresses over time.
    pub heat: Heat,
    /// What the reader of the trace had to say, and what could not be found out.
    pub notes: Vec<String>,
}

impl Sizing {
    /// The JSON object, with schema and version.
    ///
    /// # Panics
    /// A number is infinite or none, which breaks an invariant of whoever filled it in.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let mut made = serde_json::json!({ "schema": SCHEMA, "version": VERSION });
        let body = serde_json::to_value(self).expect("plain numbers and words");
        if let (Some(made), serde_json::Value::Object(body)) = (made.as_object_mut(), body) {
            made.extend(body);
        }
        made
    }

    /// The curve of the best policies without their names.
    #[must_use]
    pub fn best_curve(&self) -> Curve {
        Curve::new(self.curve.iter().map(|best| best.point))
    }

    /// The effect of the recommended size.
    #[must_use]
    pub fn recommended(&self) -> Option<&Effect> {
        self.effects.iter().find(|effect| effect.what == "recommended")
    }
}

#[cfg(test)]
mod tests;
