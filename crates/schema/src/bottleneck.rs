//! Bottleneck of a host: `larder-bottleneck`, version 1, the result of `larder advise` for
//! counters.

use crate::host_counters::HostCounters;
use serde::Serialize;

/// Schema name of the JSON form.
pub const SCHEMA: &str = "larder-bottleneck";
/// Schema version of the JSON form.
pub const VERSION: u32 = 1;

/// Kind of a bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BottleneckKind {
    /// Neither disks nor processors hold programs up.
    Nothing,
    /// Programs wait for the processors.
    Processor,
    /// A disk reads again data that the cache had to evict.
    SmallCache,
    /// A request takes longer than the kind of disk suggests, without a queue.
    SlowDisk,
    /// The writes of one process fill the queue of a disk.
    OneWriter,
    /// A disk has more requests than it can serve.
    SaturatedDisk,
    /// Programs wait for a disk with one request at a time, which takes its usual time.
    SerialRequests,
    /// The counters do not suffice.
    Unknown,
}

/// Expected service times of a disk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExpectedDisk {
    /// Disk; `None` for all.
    pub disk: Option<String>,
    /// The model, or the kind of disk.
    pub model: String,
    /// Seconds of a single read of the length at hand.
    pub read_s: f64,
    /// Seconds of a single write.
    pub write_s: f64,
}

/// Bottleneck of a host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bottleneck {
    /// The source as the user named it.
    pub subject: String,
    /// Kind.
    pub kind: BottleneckKind,
    /// The disk, if one is the bottleneck.
    pub disk: Option<String>,
    /// The process, if one is the cause.
    pub process: Option<String>,
    /// Answer in one sentence, without a period.
    pub verdict: String,
    /// Figures that led to it, as sentences.
    pub reasons: Vec<String>,
    /// Next steps, as sentences.
    pub next: Vec<String>,
    /// Expected service times of that disk.
    pub expected: Option<ExpectedDisk>,
    /// The counters.
    pub counters: HostCounters,
}

impl Bottleneck {
    /// Returns the JSON form.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        crate::with_head(SCHEMA, VERSION, self)
    }
}
