//! Required cache size of a workload: `larder-size`, version 1, the result of `larder size`.
//!
//! Sizes are bytes of data, without the tables of the cache, unless a name says memory; hit ratios
//! are shares of references from 0 to 1; times are nanoseconds.

use crate::advice::{Attainment, Region, Regions, SizingGoal};
use crate::curve::{Curve, Point};
use serde::{Deserialize, Serialize};

/// Schema name of the JSON form.
pub const SCHEMA: &str = "larder-size";
/// Schema version of the JSON form.
pub const VERSION: u32 = 1;
/// Replacement policy of the server unless another is set; it is preferred among equal ones.
pub const DEFAULT_POLICY: &str = "s3fifo";

/// Summary of the trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Name given by the user.
    pub trace: String,
    /// Page size in which references and hit ratios are counted.
    pub page_bytes: u32,
    /// Number of reads and writes.
    pub requests: u64,
    /// Number of page references: each request touches each of its pages once.
    pub references: u64,
    /// Requested bytes.
    pub bytes: u64,
    /// Time from the first to the last request; `None` if the trace has no times.
    pub duration_ns: Option<u64>,
    /// Number of distinct pages.
    pub footprint_pages: u64,
    /// True if this number is exact, false if it is an estimate.
    pub footprint_exact: bool,
    /// First references to pages: misses in any cache.
    pub compulsory_misses: u64,
    /// Hit ratio of a cache that holds all data.
    pub ceiling: f64,
}

impl Workload {
    /// Returns the footprint: all distinct pages, in bytes.
    #[must_use]
    pub fn footprint_bytes(&self) -> u64 {
        self.footprint_pages.saturating_mul(self.page_bytes.into())
    }
}

/// The curve of one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyCurve {
    /// Policy name.
    pub policy: String,
    /// Points of the curve.
    pub points: Curve,
}

/// A point of the main curve: of a server that of the recommended policy, of replacement alone that
/// of the best policy at each size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestPoint {
    /// The policy of this point.
    pub policy: String,
    /// Its hit ratio.
    #[serde(flatten)]
    pub point: Point,
}

/// Recommended cache configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// Size of the cache, bytes of data.
    pub bytes: u64,
    /// Size including the tables of the cache: the value for `larder serve --memory`.
    pub memory_bytes: u64,
    /// Policy name.
    pub policy: String,
    /// Page size in bytes.
    pub page_bytes: u32,
    /// The limit that determined the size.
    pub reach: Attainment,
    /// Target hit ratio.
    pub wanted_hit_ratio: f64,
    /// The smallest size that reaches it, without a budget.
    pub target_bytes: Option<u64>,
    /// Region of the size.
    pub region: Option<Region>,
}

/// Effect of a cache of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Label: `half`, `recommended`, `twice`.
    pub what: String,
    /// Size and hit ratio with the recommended policy.
    #[serde(flatten)]
    pub point: Point,
    /// True if the hit ratio was counted over the whole trace, false if it is an estimate.
    pub counted: bool,
    /// Misses per hour of the trace; `None` if the trace has no times.
    pub misses_per_hour: Option<f64>,
    /// Bytes fetched from the store over the whole trace.
    pub store_bytes: u64,
    /// The work of a server with this size, and the recommended policy and page size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerRun>,
    /// Hit ratios of all policies at this size, best first.
    pub policies: Vec<PolicyRatio>,
}

/// The server of a prediction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerModel {
    /// Name of the write mode.
    pub write_mode: String,
    /// The store model, as the user may write it.
    pub store: String,
    /// True if the size was searched in simulations of the server, so that all hit ratios of the
    /// curve and of the effects are those of its reads; false if it was searched by replacement
    /// alone.
    pub is_searched: bool,
}

/// The work of a server for the whole trace, with one request in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerRun {
    /// Share of the pages of reads that did not wait for the store, read-ahead included.
    pub read_hit_ratio: f64,
    /// Share of the read requests that did not wait for the store.
    pub request_hit_ratio: f64,
    /// Pages of reads that waited for the store.
    pub waiting_pages: u64,
    /// Bytes read from the store, read-ahead included.
    pub read_bytes: u64,
    /// Bytes written to the store.
    pub written_bytes: u64,
    /// Response times of reads: median.
    pub read_p50_ns: Option<u64>,
    /// 99 of 100 reads take no longer.
    pub read_p99_ns: Option<u64>,
    /// 999 of 1000 reads take no longer.
    pub read_p999_ns: Option<u64>,
    /// 99 of 100 writes take no longer.
    pub write_p99_ns: Option<u64>,
    /// Time from the first request to the last reply.
    pub elapsed_ns: u64,
}

/// Hit ratio of a policy at one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyRatio {
    /// Policy name.
    pub policy: String,
    /// Hit ratio.
    pub hit_ratio: f64,
    /// Lower bound of the confidence interval.
    pub low: f64,
    /// Upper bound of the confidence interval.
    pub high: f64,
}

/// One part of the trace, for the working set over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// Start time, or the number of preceding requests if the trace has no times.
    pub begin: u64,
    /// Number of references.
    pub references: u64,
    /// Number of distinct pages.
    pub pages: u64,
}

/// Number of references by address range and time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AccessHeat {
    /// Volumes, stacked.
    pub volumes: Vec<HeatVolume>,
    /// References: for each row from address 0 upwards, a value per time slice.
    pub rows: Vec<Vec<u64>>,
}

/// Rows of one volume in the heat map.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeatVolume {
    /// Volume name.
    pub volume: String,
    /// Number of rows.
    pub rows: usize,
    /// First referenced byte.
    pub begin_bytes: u64,
    /// End of the last referenced byte.
    pub end_bytes: u64,
}

/// All results for a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sizing {
    /// The trace.
    pub workload: Workload,
    /// Target and budget.
    pub goal: SizingGoal,
    /// True if the curve was counted at all of its sizes, false if it is estimated from samples.
    pub exact: bool,
    /// The server whose work is predicted; `None` for a prediction of replacement alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerModel>,
    /// Seed of the samples.
    pub seed: u64,
    /// The main curve.
    pub curve: Vec<BestPoint>,
    /// Curves of all policies, best first.
    pub policies: Vec<PolicyCurve>,
    /// Regions of the curve; `None` if nothing hits.
    pub regions: Option<Regions>,
    /// Reasons for the boundaries of the regions.
    pub regions_why: Vec<String>,
    /// Recommendation; `None` if no cache helps.
    pub recommendation: Option<Recommendation>,
    /// Effects of half, exactly and twice the recommended size.
    pub effects: Vec<Effect>,
    /// Hit ratio of MIN at the recommended size: the maximum of all policies.
    pub min_hit_ratio: Option<f64>,
    /// Windows of the trace.
    pub windows: Vec<Window>,
    /// Spread of the windows' required sizes.
    pub stability: Option<Stability>,
    /// Division of the memory among the volumes, if there are several.
    pub volumes: Vec<Share>,
    /// Page sizes with the recommended memory.
    pub page_sizes: Vec<PageSize>,
    /// References and distinct pages over time.
    pub slices: Vec<Slice>,
    /// Addresses over time.
    pub heat: AccessHeat,
    /// Notes of the trace reader, and limits of the results.
    pub notes: Vec<String>,
}

impl Sizing {
    /// Returns the JSON object, with schema and version.
    ///
    /// # Panics
    /// If a number is infinite or not a number, which the caller must prevent.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        crate::with_head(SCHEMA, VERSION, self)
    }

    /// Returns the main curve without the names of the policies.
    #[must_use]
    pub fn best_curve(&self) -> Curve {
        Curve::new(self.curve.iter().map(|best| best.point))
    }

    /// Returns the effect of the recommended size.
    #[must_use]
    pub fn recommended(&self) -> Option<&Effect> {
        self.effects.iter().find(|effect| effect.what == "recommended")
    }
}

/// The memory assigned to a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Volume name.
    pub volume: String,
    /// Number of references.
    pub references: u64,
    /// Footprint: all pages of the volume, bytes.
    pub footprint_bytes: u64,
    /// Assigned memory in bytes.
    pub bytes: u64,
    /// Hit ratio with that memory.
    pub hit_ratio: f64,
    /// Lower bound of the hit ratio's confidence interval.
    pub low: f64,
    /// Upper bound of the hit ratio's confidence interval.
    pub high: f64,
}

/// A cache with one page size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageSize {
    /// Page size in bytes.
    pub page_bytes: u32,
    /// Share of the requested bytes that hit.
    pub byte_hit_ratio: f64,
    /// Lower bound of its confidence interval.
    pub low: f64,
    /// Upper bound of its confidence interval.
    pub high: f64,
    /// Bytes fetched from the store over the whole trace.
    pub store_bytes: u64,
    /// Read misses in pages: an upper bound for the reads from the store, which are fewer if
    /// missing pages of a request are adjacent.
    pub read_misses: u64,
    /// Footprint: all pages of the trace, bytes.
    pub footprint_bytes: u64,
    /// The work of a server with this page size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerRun>,
}

/// One part of the trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Start, in nanoseconds from the start of the trace.
    pub begin_ns: u64,
    /// Number of references.
    pub references: u64,
    /// The smallest size that reaches the target in the window, bytes; `None` if no reference hits.
    pub needed_bytes: Option<u64>,
    /// The reachable hit ratio of the window: all except first references, 0 to 1.
    pub ceiling: f64,
    /// The hit ratio with the recommended size.
    pub hit_ratio: f64,
}

/// Spread of the windows' required sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stability {
    /// The smallest required size, bytes.
    pub least_bytes: u64,
    /// The median required size.
    pub median_bytes: u64,
    /// The largest required size.
    pub most_bytes: u64,
    /// Number of windows for which the recommended size is sufficient.
    pub covered: usize,
    /// Number of windows with a required size.
    pub windows: usize,
    /// The assessment, a sentence.
    pub judgment: String,
}
