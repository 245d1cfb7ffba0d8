//! Measured curve of a command: `larder-size-measured`, version 1, the result of `larder size
//! --measure`.
//!
//! Hit ratios are shares of the pages of reads from 0 to 1; times are nanoseconds.

use crate::advice::{Region, Regions};
use serde::{Deserialize, Serialize};

/// Schema name of the JSON form.
pub const SCHEMA: &str = "larder-size-measured";
/// Schema version of the JSON form.
pub const VERSION: u32 = 1;

/// Median and range of several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Median; the mean of the middle two of an even number.
    pub median: f64,
    /// The smallest value.
    pub low: f64,
    /// The largest value.
    pub high: f64,
}

/// One run of the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredRun {
    /// Position of the run among the runs of all sizes, from 1.
    pub number: u64,
    /// Time from the start of the command to its end.
    pub elapsed_ns: u64,
    /// Pages touched by reads; each page counts once per request.
    pub read_pages: u64,
    /// Those pages that did not wait for the store, read-ahead included.
    pub read_hit_pages: u64,
    /// `read_hit_pages` over `read_pages`.
    pub read_hit_ratio: f64,
    /// Bytes read from the directory.
    pub read_bytes: u64,
    /// Bytes written to the directory, with those that were dirty at the end of the command.
    pub written_bytes: u64,
}

/// The simulated work of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictedRun {
    /// Share of the pages of reads that do not wait for the store.
    pub read_hit_ratio: f64,
    /// Bytes read from the store.
    pub read_bytes: u64,
    /// True if the hit ratio is inside the range of the runs, or within a point of their median.
    pub is_inside: bool,
}

/// The runs of the command with one cache size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredSize {
    /// Memory of the cache with its tables: the value of `larder mount --memory`.
    pub memory_bytes: u64,
    /// Bytes of data that the cache can hold.
    pub data_bytes: u64,
    /// The runs, in the order in which they were made.
    pub runs: Vec<MeasuredRun>,
    /// Hit ratios of the runs.
    pub read_hit_ratio: Spread,
    /// Times of the runs.
    pub elapsed_ns: Spread,
    /// The prediction.
    pub predicted: Option<PredictedRun>,
    /// Difference between the longest and the shortest time, divided by the median; `None` for a
    /// single run.
    pub scatter: Option<f64>,
    /// Region by the curve; `None` if nothing hits.
    pub region: Option<Region>,
    /// Region by the scatter.
    pub scatter_region: Option<Region>,
}

/// The measured curve of a command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredSizing {
    /// The directory.
    pub directory: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Replacement policy of the cache.
    pub policy: String,
    /// Page size in bytes.
    pub page_bytes: u32,
    /// Write mode of the cache.
    pub write_mode: String,
    /// Requests of the recorded run.
    pub requests: u64,
    /// Maximum memory that the pages of the recorded run take at a time, bytes.
    pub footprint_bytes: u64,
    /// Store model of the prediction, from the times of the store during the runs.
    pub store: String,
    /// The sizes, in ascending order.
    pub sizes: Vec<MeasuredSize>,
    /// Regions of the curve of the medians; `None` if nothing hits.
    pub regions: Option<Regions>,
    /// Reasons for the boundaries of the regions.
    pub regions_why: Vec<String>,
    /// Limits of the results, and differences between curve, scatter and prediction.
    pub notes: Vec<String>,
}

impl MeasuredSizing {
    /// Returns the JSON object, with schema and version.
    ///
    /// # Panics
    /// If a number is infinite or not a number, which the caller must prevent.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        crate::with_head(SCHEMA, VERSION, self)
    }
}
