//! Data of one trial: start state, durations of its phases, concurrent activity of the machine, and
//! response times.
//!
//! Times are nanoseconds, sizes are bytes, shares are from 0 to 1.

use crate::{as_f64, as_u64, share};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Requested start state of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// None of the files' data is in memory.
    Cold,
    /// All of the files' data is in memory.
    Warm,
    /// The state is left as it is.
    #[default]
    AsIs,
}

impl Start {
    /// All start states.
    pub const ALL: [Start; 3] = [Start::Cold, Start::Warm, Start::AsIs];

    /// Returns the name on the command line and in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Start::Cold => "cold",
            Start::Warm => "warm",
            Start::AsIs => "as-is",
        }
    }

    /// Returns the start state with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Start> {
        Start::ALL.into_iter().find(|start| start.name() == name)
    }
}

/// Actual start state of a trial, measured directly before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredStart {
    /// Requested start state. With `cold` and `warm` the share of resident pages was 0 or 1, or the
    /// trial would not have run.
    pub start: Start,
    /// Number of existing files of the workload.
    pub files: u64,
    /// Number of their pages; `None` if unknown.
    pub pages: Option<u64>,
    /// Number of resident pages.
    pub resident: Option<u64>,
}

impl MeasuredStart {
    /// Returns the share of resident pages, or `None` if there are no pages or it is unknown.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        share(self.resident?, self.pages?)
    }
}

/// A named part of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Phase name.
    pub name: String,
    /// Time from the release of all threads to the end of the last one, nanoseconds.
    pub duration_ns: u64,
}

/// One repetition of a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Number, counting from 1.
    pub number: u64,
    /// Duration of all phases and the time between them, nanoseconds.
    pub duration_ns: u64,
    /// Actual start state.
    pub started: MeasuredStart,
    /// Phases in order.
    pub phases: Vec<Phase>,
    /// Share of processor time that the hypervisor gave to other guests; `None` if the kernel does
    /// not report it.
    pub steal: Option<f64>,
    /// Bytes transferred by the disks of the workload; `None` without disks.
    pub disk_bytes: Option<u64>,
    /// Bytes that this process requested from the disks.
    pub own_bytes: Option<u64>,
    /// Response times by request type.
    pub latencies: Vec<Latency>,
    /// Speed of the machine: small reads per second from memory, the lower value of before and
    /// after the trial; `None` if not measured.
    #[serde(default)]
    pub speed: Option<f64>,
}

/// Foreign bytes below which the share counts as 0.
const FOREIGN_MIN_BYTES: u64 = 1 << 20;

impl Trial {
    /// Returns the share of the disks' transfers that this process did not request. Returns `None`
    /// without disks, and 0 if the foreign bytes are less than 1 MiB.
    #[must_use]
    pub fn foreign(&self) -> Option<f64> {
        let (disk, own) = (self.disk_bytes?, self.own_bytes?);
        let foreign = disk.saturating_sub(own);
        if foreign >= FOREIGN_MIN_BYTES { share(foreign, disk) } else { Some(0.0) }
    }
}

/// A histogram of response times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Request type.
    pub what: String,
    /// Sum of all times, nanoseconds.
    pub sum_ns: u64,
    /// Exact maximum, nanoseconds.
    pub max_ns: u64,
    /// Midpoint of a bucket in nanoseconds, and number of times in it; in order, without empty
    /// buckets. A midpoint is within 1/16 of every time of its bucket.
    pub buckets: Vec<(u64, u64)>,
}

impl Latency {
    /// Returns the number of times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// Returns the mean, nanoseconds.
    #[must_use]
    pub fn mean_ns(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.count())
    }

    /// Returns the quantile `part` (0 to 1) of the times, nanoseconds.
    #[must_use]
    pub fn quantile_ns(&self, part: f64) -> Option<u64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = as_u64((as_f64(count) * part).ceil());
        let rank = rank.clamp(1, count);
        if rank == count {
            return Some(self.max_ns);
        }
        let mut seen = 0;
        let found = self.buckets.iter().find(|(_, count)| {
            seen += count;
            seen >= rank
        });
        found.map(|(middle, _)| (*middle).min(self.max_ns))
    }

    /// Adds the times of another histogram of the same type.
    pub fn add(&mut self, other: &Latency) {
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        for (middle, count) in &other.buckets {
            match self.buckets.binary_search_by_key(middle, |(middle, _)| *middle) {
                Ok(index) => self.buckets[index].1 += count,
                Err(index) => self.buckets.insert(index, (*middle, *count)),
            }
        }
    }
}

/// Reason to doubt a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DoubtReason {
    /// The hypervisor gave processor time to other guests.
    Steal,
    /// The speed of the machine differed between trials.
    Speed,
    /// The disks served other processes.
    ForeignIo,
    /// The confidence interval of the main series is wider than requested.
    Interval,
    /// The page cache may have served the requests.
    FitsMemory,
    /// Settings of the machine changed during the run.
    SettingsChanged,
    /// The clock is too coarse for a phase.
    Clock,
    /// The run was stopped early.
    Stopped,
    /// A cache below the page cache may hold data, and cannot be inspected.
    Below,
    /// A problem that the workload itself detected.
    Workload,
}

/// A doubt, in a sentence that can follow "doubtful because".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// Reason.
    pub why: DoubtReason,
    /// The sentence.
    pub text: String,
}

/// A setting of the machine that changed during the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingChange {
    /// Setting name.
    pub name: String,
    /// Previous value; `None` if the setting did not exist.
    pub before: Option<String>,
    /// New value; `None` if the setting no longer exists.
    pub after: Option<String>,
}

impl SettingChange {
    /// Returns the differences between two sets of settings, by name.
    #[must_use]
    pub fn between(
        before: &BTreeMap<String, String>,
        after: &BTreeMap<String, String>,
    ) -> Vec<SettingChange> {
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let changed = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
        changed
            .map(|name| SettingChange {
                name: name.clone(),
                before: before.get(name).cloned(),
                after: after.get(name).cloned(),
            })
            .collect()
    }
}
