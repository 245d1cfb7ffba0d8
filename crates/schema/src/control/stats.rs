//! Counters, gauges and latencies of a server at one time, and their differences between two times.

use super::{Finding, ResponseHead};
use crate::{as_f64, share};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The answer to `GET /v1/stats`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Schema and version.
    #[serde(flatten)]
    pub head: ResponseHead,
    /// Time since the server started, in nanoseconds.
    pub uptime_ns: u64,
    /// True if the server is writing back dirty data in order to stop.
    pub stopping: bool,
    /// Gauges of the pool that all volumes share.
    pub pool: Pool,
    /// State of the return of memory to the system under memory pressure; null if it is not
    /// enabled.
    #[serde(default)]
    pub give_back: Option<GiveBack>,
    /// A sentence for each component of the server that has stopped after an error, until the next
    /// start.
    #[serde(default)]
    pub failed_parts: Vec<String>,
    /// One entry per volume.
    pub volumes: Vec<VolumeStats>,
    /// Sessions of the NBD server, and the pools from which they lease memory for requests; null
    /// for a mounted directory.
    #[serde(default)]
    pub budget: Option<Budget>,
}

/// The sessions of the NBD server, and the pools from which they lease memory for requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Number of open sessions.
    pub sessions: u64,
    /// Maximum number of open sessions.
    pub sessions_max: u64,
    /// Pool for payloads of writes that wait for free memory, and for requests in flight.
    pub payloads: BudgetPool,
    /// Frames that are pinned until the client has received the reply.
    pub frames: BudgetPool,
}

/// A pool of a [`Budget`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetPool {
    /// Size of the pool.
    pub size_bytes: u64,
    /// Bytes that sessions have leased now, in addition to their own shares.
    pub leased_bytes: u64,
    /// Maximum of the leased bytes since the server started.
    pub peak_bytes: u64,
    /// Number of refused leases since the server started. Repeated attempts of a session count once
    /// until it gets a lease or holds nothing.
    pub refusals: u64,
}

/// Return of memory to the system under memory pressure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GiveBack {
    /// Configured memory, in use without memory pressure.
    pub full_bytes: u64,
    /// Memory currently kept.
    pub kept_bytes: u64,
    /// Minimum memory to keep.
    pub floor_bytes: u64,
    /// Number of memory pressure events since the server started; each caused one step.
    pub pressures: u64,
    /// Time since the last such event, in nanoseconds; null if there was none.
    pub last_pressure_age_ns: Option<u64>,
    /// Watched source of pressure events; empty if there is none.
    pub watched: Vec<String>,
    /// The error that prevents watching, if any.
    pub error: Option<String>,
}

/// Gauges of the pool, by name.
pub type Pool = BTreeMap<String, u64>;

/// Counters, gauges and latencies of one volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeStats {
    /// Volume name.
    pub name: String,
    /// Pages touched by reads; each page counts once per request.
    pub read_pages: u64,
    /// Those pages served without the store.
    pub read_hits: u64,
    /// Hit ratio: `read_hits` over `read_pages`; null without reads.
    pub read_hit_ratio: Option<f64>,
    /// Counters by name.
    pub counters: BTreeMap<String, u64>,
    /// Gauges by name.
    pub gauges: BTreeMap<String, u64>,
    /// Latencies by name.
    pub latencies: BTreeMap<String, LatencyStats>,
    /// Problems of the volume.
    #[serde(default)]
    pub findings: Vec<Finding>,
}

/// A latency in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyStats {
    /// Number of measurements.
    pub count: u64,
    /// Sum of the measurements.
    pub sum: u64,
    /// Median, with an error of at most a sixteenth; null without measurements.
    pub p50: Option<u64>,
    /// 99th percentile.
    pub p99: Option<u64>,
    /// Exact maximum.
    pub max: u64,
}

impl VolumeStats {
    /// Returns a counter; 0 if the server does not have it.
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// Returns a gauge; 0 if the server does not have it.
    #[must_use]
    pub fn gauge(&self, name: &str) -> u64 {
        self.gauges.get(name).copied().unwrap_or(0)
    }

    /// Returns the mean of a latency, or `None` without measurements.
    #[must_use]
    pub fn mean(&self, latency: &str) -> Option<u64> {
        let latency = self.latencies.get(latency)?;
        latency.sum.checked_div(latency.count)
    }

    fn set_ratio(&mut self) {
        self.read_hit_ratio = share(self.read_hits, self.read_pages);
    }

    /// Returns the differences since `earlier`. Gauges, medians and maxima keep their current
    /// values.
    fn since(&self, earlier: &VolumeStats) -> VolumeStats {
        let mut difference = self.clone();
        // The counters of a volume restart if it was removed and added again under its name.
        for (name, count) in &mut difference.counters {
            *count = count.saturating_sub(earlier.counter(name));
        }
        for (name, latency) in &mut difference.latencies {
            if let Some(before) = earlier.latencies.get(name) {
                latency.count = latency.count.saturating_sub(before.count);
                latency.sum = latency.sum.saturating_sub(before.sum);
            }
        }
        difference.read_pages = self.read_pages.saturating_sub(earlier.read_pages);
        difference.read_hits = self.read_hits.saturating_sub(earlier.read_hits);
        difference.set_ratio();
        difference
    }

    /// Adds the values of another volume; medians and maxima are left out.
    pub fn add(&mut self, other: &VolumeStats) {
        for (name, count) in &other.counters {
            *self.counters.entry(name.clone()).or_default() += count;
        }
        for (name, value) in &other.gauges {
            *self.gauges.entry(name.clone()).or_default() += value;
        }
        for (name, latency) in &other.latencies {
            let sum = self.latencies.entry(name.clone()).or_default();
            sum.count += latency.count;
            sum.sum += latency.sum;
        }
        self.read_pages += other.read_pages;
        self.read_hits += other.read_hits;
        self.set_ratio();
    }
}

impl Stats {
    /// Returns the differences since `earlier`, and the seconds between the two.
    #[must_use]
    pub fn since(&self, earlier: &Stats) -> (Stats, f64) {
        let mut difference = self.clone();
        for volume in &mut difference.volumes {
            if let Some(before) = earlier.volumes.iter().find(|other| other.name == volume.name) {
                *volume = volume.since(before);
            }
        }
        let seconds = as_f64(self.uptime_ns.saturating_sub(earlier.uptime_ns)) / 1e9;
        (difference, seconds)
    }
}
