//! The volumes of a server: settings, hit-ratio curves, files, unwritten data, retention.

use super::{ByteRange, Finding, ResponseHead};
use crate::advice::{Choice, Region, Regions};
use crate::curve::Curve;
use crate::sizing::PolicyRatio;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The answer to `GET /v1/volumes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Volumes {
    /// Schema and version.
    #[serde(flatten)]
    pub head: ResponseHead,
    /// Division of memory among volumes, as in `--share`.
    #[serde(default)]
    pub share: String,
    /// One entry per volume.
    pub volumes: Vec<Volume>,
}

/// A volume and its settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// Name of the volume and of its export.
    pub name: String,
    /// Path of its store.
    pub path: String,
    /// Address for NBD clients.
    pub uri: String,
    /// Length; null for a mounted directory, which has none.
    pub length_bytes: Option<u64>,
    /// Memory that holds its blocks.
    pub resident_bytes: u64,
    /// Bytes that a warm restart has not read back yet.
    #[serde(default)]
    pub warming_bytes: u64,
    /// Target size, if the cache divides the memory; otherwise null.
    #[serde(default)]
    pub target_bytes: Option<u64>,
    /// Current policy; not a setting if the cache chooses it.
    #[serde(default)]
    pub policy: PolicyInForce,
    /// True if the volume is frozen: its requests neither add data to the cache nor evict any.
    #[serde(default)]
    pub frozen: bool,
    /// Pinned bytes.
    #[serde(default)]
    pub pinned_bytes: u64,
    /// Pinned ranges, in order.
    #[serde(default)]
    pub pinned: Vec<ByteRange>,
    /// Problems of the volume.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Settings, named and written like the options of `larder serve`.
    pub settings: BTreeMap<String, String>,
    /// Tunables by name, each in its own unit.
    pub tunables: BTreeMap<String, u64>,
}

/// The policy of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicyInForce {
    /// Policy name.
    pub name: String,
    /// True if the cache may change the policy.
    pub auto: bool,
    /// Changes by the cache with their reasons, oldest first; the latest 16.
    pub switches: Vec<Switch>,
}

/// A change of policy by the cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Switch {
    /// Time since the change, in nanoseconds.
    pub age_ns: u64,
    /// The previous policy.
    pub from: String,
    /// The new policy.
    pub to: String,
    /// Reduction of misses in the scaled-down simulation, as a share of the references.
    pub gain: f64,
}

/// The answer to `GET /v1/curve`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curves {
    /// Schema and version.
    #[serde(flatten)]
    pub head: ResponseHead,
    /// Division of memory among volumes, as in `--share`.
    pub share: String,
    /// One entry per volume.
    pub volumes: Vec<VolumeCurve>,
}

/// Observed workload of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeCurve {
    /// Volume name.
    pub name: String,
    /// Memory that holds its blocks, bytes.
    pub bytes: u64,
    /// Memory that it can have without taking any from other volumes, bytes.
    pub room_bytes: u64,
    /// Maximum memory, bytes; null without a limit.
    pub max_bytes: Option<u64>,
    /// Share of its pages in the sample, 0 to 1; 0 without a sample.
    pub sample_rate: f64,
    /// References that the curve is based on, with lower weight for older ones.
    pub references: u64,
    /// References since the server added the volume; the weight of the volume among others.
    pub references_ever: u64,
    /// References that are missing before the curve shows that memory has no effect: twice the
    /// pages of its largest size, or of the volume. 0 if there were enough.
    pub references_missing: u64,
    /// Observed hit ratio of these references.
    pub hit_ratio: f64,
    /// Current policy.
    pub policy: String,
    /// True if the cache chooses the policy.
    pub auto: bool,
    /// Hit ratio of LRU by size, without read-ahead: the first use of a page misses.
    pub points: Curve,
    /// Hit ratio of the current policy at multiples of the current size, with the read-ahead of the
    /// volume; empty while there is no estimate.
    #[serde(default)]
    pub policy_points: Curve,
    /// Estimated hit ratio of each policy with the current memory, from scaled-down simulations.
    pub policies: Vec<PolicyRatio>,
    /// Regions of the curve; null if nothing hits.
    pub regions: Option<Regions>,
    /// Reasons for the boundaries of the regions.
    pub regions_why: Vec<String>,
    /// Region of the current memory.
    pub region: Option<Region>,
    /// Required size; null if nothing hits.
    pub needed: Option<Choice>,
    /// Problems of the volume.
    pub findings: Vec<Finding>,
    /// Recommendations, one sentence each.
    pub advice: Vec<String>,
}

/// The answer to `GET /v1/files`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// Schema and version.
    #[serde(flatten)]
    pub head: ResponseHead,
    /// Number of files that have data in the cache or had it recently.
    pub total: u64,
    /// Files with the most cached data, in descending order; truncated if there are very many.
    pub files: Vec<FileStats>,
}

/// Cached data of a file, and the results of requests to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStats {
    /// Path relative to the directory.
    pub path: String,
    /// Size as programs see it.
    pub size_bytes: u64,
    /// Bytes in the cache.
    pub resident_bytes: u64,
    /// Cached bytes that are not written to the directory yet.
    pub dirty_bytes: u64,
    /// Number of open handles.
    pub opens: u64,
    /// Requests by the worst class of their pages, named like the counters of these classes.
    pub requests: BTreeMap<String, u64>,
}

impl FileStats {
    fn sum_of(&self, names: &[&str]) -> u64 {
        names.iter().filter_map(|name| self.requests.get(*name)).sum()
    }

    /// Returns the number of reads whose pages were all in the cache.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.sum_of(&["read_hit_pages", "read_ahead_hit_pages"])
    }

    /// Returns the number of reads.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.sum_prefix("read_")
    }

    /// Returns the number of writes.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.sum_prefix("write_")
    }

    fn sum_prefix(&self, prefix: &str) -> u64 {
        let matching = self.requests.iter().filter(|(name, _)| name.starts_with(prefix));
        matching.map(|(_, count)| count).sum()
    }
}

/// The answer to `GET /v1/at-risk`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtRisk {
    /// Schema and version.
    #[serde(flatten)]
    pub head: ResponseHead,
    /// One entry per volume.
    pub volumes: Vec<VolumeAtRisk>,
}

/// Unwritten data of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeAtRisk {
    /// Volume name.
    pub name: String,
    /// Treatment of flushes: `keep` or `ignore`.
    pub flush: String,
    /// Bytes that only memory holds, which a kill would lose now.
    pub lost_by_kill_bytes: u64,
    /// Those bytes that are being written now.
    pub writing_bytes: u64,
    /// Upper limit of these bytes.
    pub lost_by_kill_bytes_max: u64,
    /// Age of the oldest of them, in nanoseconds; null if there are none.
    pub oldest_age_ns: Option<u64>,
    /// Age at which the cache starts writeback, regardless of the load from clients.
    pub age_max_ns: u64,
    /// Bytes whose last write failed.
    pub failing_bytes: u64,
    /// Ranges of these bytes, in whole pages; truncated if there are very many.
    pub failing: Vec<FailingRange>,
    /// Files of a mounted directory that contain these ranges; empty for other volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileAtRisk>,
    /// The last error of a write or flush while writes fail.
    pub error: Option<String>,
    /// The error after which the store cannot be flushed any more, if any.
    pub flush_failed: Option<String>,
    /// Path of the image if the path no longer refers to the open file, so that all writes are lost
    /// when the server stops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_path: Option<String>,
}

/// A file of a mounted directory with data that could not be written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileAtRisk {
    /// Path relative to the directory; the former path of a deleted file.
    pub path: String,
    /// Bytes of pages whose last write failed.
    pub failing_bytes: u64,
    /// The error of the file's last write.
    pub error: Option<String>,
}

/// A range that could not be written.
pub type FailingRange = ByteRange;

/// The answer to `POST /v1/drop`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropResponse {
    /// Schema and version.
    #[serde(flatten)]
    pub head: ResponseHead,
    /// One entry per requested volume.
    pub dropped: Vec<VolumeDropped>,
}

/// Result of a drop for one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeDropped {
    /// Volume name.
    pub volume: String,
    /// Clean bytes that were removed from the cache.
    pub dropped_bytes: u64,
    /// Bytes that remain cached: dirty, in use, or added meanwhile.
    pub resident_bytes: u64,
}

/// The response to `POST /v1/pin` and `POST /v1/unpin`: the pinned ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinned {
    /// Schema and version.
    #[serde(flatten)]
    pub head: ResponseHead,
    /// Volume name.
    pub volume: String,
    /// Bytes in all ranges.
    pub pinned_bytes: u64,
    /// The ranges in whole pages, in order.
    pub ranges: Vec<ByteRange>,
}
