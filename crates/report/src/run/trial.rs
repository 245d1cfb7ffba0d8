//! What is kept of each trial: how it started, how long its phases took, what else the machine did
//! meanwhile, and the answer times.
//!
//! Times are nanoseconds, sizes are bytes, shares are from 0 to 1.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// How a trial was meant to start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// Nothing of its files is in memory.
    Cold,
    /// All of its files is in memory.
    Warm,
    /// As it happened to be.
    #[default]
    AsIs,
}

impl Start {
    /// All of them.
    pub const ALL: [Start; 3] = [Start::Cold, Start::Warm, Start::AsIs];

    /// Its name on the command line and in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Start::Cold => "cold",
            Start::Warm => "warm",
            Start::AsIs => "as-is",
        }
    }

    /// The one with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Start> {
        Start::ALL.into_iter().find(|start| start.name() == name)
    }
}

/// How a trial started, as read back right before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// How it was meant to start. With `cold` and `warm` the share of resident pages was 0 or 1,
    /// or there would be no trial.
    pub start: Start,
    /// Files of the workload that were there.
    pub files: u64,
    /// Pages that these have; none where it cannot be known.
    pub pages: Option<u64>,
    /// Those of them that were resident.
    pub resident: Option<u64>,
}

impl Started {
    /// The share of pages that was resident; nothing where there were none, or it is not known.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        let (pages, resident) = (self.pages?, self.resident?);
        (pages > 0).then(|| crate::advise::as_f64(resident) / crate::advise::as_f64(pages))
    }
}

/// A part of a trial with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// From the moment when all threads may begin to the one when the last is done, nanoseconds.
    pub duration_ns: u64,
}

/// One repetition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Counted from 1.
    pub number: u64,
    /// How long it took, all phases and what is between them, nanoseconds.
    pub duration_ns: u64,
    /// How it started.
    pub started: Started,
    /// Its phases in their order.
    pub phases: Vec<Phase>,
    /// The share of processor time that the hypervisor gave to others; none where the kernel does
    /// not tell.
    pub steal: Option<f64>,
    /// Bytes that the disks of the workload moved; none where there are none.
    pub disk_bytes: Option<u64>,
    /// Those that this process asked its disks to move.
    pub own_bytes: Option<u64>,
    /// Answer times by what was asked.
    pub latencies: Vec<Latency>,
    /// How fast the machine was: small reads per second that memory answers, before or after the
    /// trial, whichever was slower; none where nobody measured it.
    #[serde(default)]
    pub speed: Option<f64>,
}

/// Bytes on the disks below which their shares mean nothing.
const FOREIGN_MIN_BYTES: u64 = 1 << 20;

impl Trial {
    /// The share of what the disks moved that this process did not ask for. Nothing where there
    /// are no disks, or where all of it is less than 1 MiB.
    #[must_use]
    pub fn foreign(&self) -> Option<f64> {
        let (disk, own) = (self.disk_bytes?, self.own_bytes?);
        let foreign = disk.saturating_sub(own);
        (foreign >= FOREIGN_MIN_BYTES)
            .then(|| crate::advise::as_f64(foreign) / crate::advise::as_f64(disk))
            .or(Some(0.0))
    }
}

/// Answer times as a histogram.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// What was answered.
    pub what: String,
    /// The sum of all times, nanoseconds.
    pub sum_ns: u64,
    /// The longest, nanoseconds; exact.
    pub max_ns: u64,
    /// Middle of a bucket in nanoseconds, and how many times fell into it; in order, without empty
    /// ones. A middle is within 1/16 of every time of its bucket.
    pub buckets: Vec<(u64, u64)>,
}

impl Latency {
    /// How many times there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// The mean, nanoseconds.
    #[must_use]
    pub fn mean_ns(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.count())
    }

    /// The time that the share `part` (0 to 1) of all times does not exceed, nanoseconds.
    #[must_use]
    pub fn quantile_ns(&self, part: f64) -> Option<u64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = crate::advise::as_u64((crate::advise::as_f64(count) * part).ceil());
        let rank = rank.clamp(1, count);
        let mut seen = 0;
        let found = self.buckets.iter().find(|(_, count)| {
            seen += count;
            seen >= rank
        });
        found.map(|(middle, _)| (*middle).min(self.max_ns))
    }

    /// Adds the times of another histogram of the same kind.
    pub fn add(&mut self, other: &Latency) {
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        for (middle, count) in &other.buckets {
            match self.buckets.binary_search_by_key(middle, |(middle, _)| *middle) {
                Ok(place) => self.buckets[place].1 += count,
                Err(place) => self.buckets.insert(place, (*middle, *count)),
            }
        }
    }
}

/// Why a result may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DoubtReason {
    /// The hypervisor gave processor time to others.
    Steal,
    /// The machine was slower during some trials than during others.
    Speed,
    /// The disks did work for others.
    ForeignIo,
    /// The interval of the main series is wider than was asked for.
    Interval,
    /// The page cache can have answered.
    FitsMemory,
    /// Settings of the machine changed during the run.
    SettingsChanged,
    /// The clock is too coarse for a phase.
    Clock,
    /// It was stopped before it was done.
    Stopped,
    /// What is below the page cache may hold data that nobody can look at.
    Below,
    /// Something that the workload itself found.
    Workload,
}

/// A doubt, in a sentence that can follow "doubtful because".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// Of which kind.
    pub why: DoubtReason,
    /// The sentence.
    pub text: String,
}

/// A setting of the machine that changed during the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingChange {
    /// Its name.
    pub name: String,
    /// What it was; none if it was not there.
    pub before: Option<String>,
    /// What it became.
    pub after: Option<String>,
}

impl SettingChange {
    /// What differs between two sets of settings, by name.
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
