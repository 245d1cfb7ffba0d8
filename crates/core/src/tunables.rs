//! Tunables: bounds, default, unit and meaning of each in one table, from which the command line,
//! the documentation and the checks are derived.

mod live;

pub(crate) use live::LiveTunables;

use crate::clock::{MILLISECOND, Nanos};

/// The definition of a tunable of a volume.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Its name on the command line and in files.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Its smallest value.
    pub min: u64,
    /// Its largest value.
    pub max: u64,
    /// Its value in the preset `larder`.
    pub default: u64,
    /// Its value in the preset `nt`: that of the Windows NT file cache.
    pub nt: u64,
    /// Its value in the preset `linux`: that of the page cache of Linux.
    pub linux: u64,
    /// Its meaning in one sentence.
    pub meaning: &'static str,
}

/// The tunables, in the order of [`TUNABLES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tunable {
    /// See the table.
    FirstDelay,
    /// See the table.
    IdleDelay,
    /// See the table.
    CollisionDelay,
    /// See the table.
    AgeMax,
    /// See the table.
    DirtyThreshold,
    /// See the table.
    DirtyTarget,
    /// See the table.
    DirtyLimit,
    /// See the table.
    BurstShare,
    /// See the table.
    BackgroundDepth,
    /// See the table.
    ForcedDepth,
    /// See the table.
    RetryDelay,
    /// See the table.
    RetryDelayMax,
    /// See the table.
    ReadAheadMax,
    /// See the table.
    ReadAheadMin,
    /// See the table.
    ReadAheadSteps,
    /// See the table.
    ReadAheadStreams,
    /// See the table.
    ReadAheadDepth,
    /// See the table.
    ReadAheadShare,
}

#[rustfmt::skip]
const fn bounds(
    name: &'static str,
    unit: &'static str,
    range: [u64; 2],
    [default, nt, linux]: [u64; 3],
    meaning: &'static str,
) -> Bounds {
    Bounds { name, unit, min: range[0], max: range[1], default, nt, linux, meaning }
}

/// The table of all tunables.
pub const TUNABLES: [Bounds; 18] = [
    bounds(
        "first-delay",
        "ms",
        [0, 60_000],
        [1000, 3000, 30_000],
        "Minimum time for which a page stays dirty before an idle volume writes it (CcFirstDelay).",
    ),
    bounds(
        "idle-delay",
        "ms",
        [0, 60_000],
        [500, 1000, 5000],
        "Time without requests after which a volume is idle (CcIdleDelay).",
    ),
    bounds(
        "collision-delay",
        "ms",
        [0, 10_000],
        [100, 100, 0],
        "Pause of the lazy writer when clients wait for the store (CcCollisionDelay).",
    ),
    bounds(
        "age-max",
        "ms",
        [10, 3_600_000],
        [5000, 8000, 30_000],
        "Maximum age of a dirty page: older pages are written even if the volume is busy. With \
         `--flush ignore` the store is also flushed at this interval; a crash then loses at most \
         the writes of twice this time plus the time that writing takes.",
    ),
    bounds(
        "dirty-threshold",
        "per mille of the memory",
        [1, 900],
        [375, 375, 100],
        "Amount of dirty data at which the lazy writer starts to write in bursts \
         (CcDirtyPageThreshold).",
    ),
    bounds(
        "dirty-target",
        "per mille of the threshold",
        [0, 1000],
        [750, 750, 1000],
        "Amount of dirty data at which a series of bursts ends (CcDirtyPageTarget).",
    ),
    bounds(
        "dirty-limit",
        "per mille of the memory",
        [2, 900],
        [800, 500, 200],
        "Maximum amount of dirty data: writes are slowed down near it, and wait at it.",
    ),
    bounds(
        "burst-share",
        "per mille of the dirty blocks",
        [1, 1000],
        [250, 250, 250],
        "Share of the dirty blocks that one burst writes: the oldest, in disk order.",
    ),
    bounds(
        "background-depth",
        "operations",
        [1, 256],
        [4, 1, 128],
        "Writes that the lazy writer keeps in flight in the store; one while clients wait.",
    ),
    bounds(
        "forced-depth",
        "operations",
        [1, 256],
        [32, 8, 128],
        "Writes in flight in the store when a client waits for them.",
    ),
    bounds(
        "retry-delay",
        "ms",
        [1, 60_000],
        [100, 100, 100],
        "Wait after a failed write; it doubles with each further failure.",
    ),
    bounds(
        "retry-delay-max",
        "ms",
        [1, 600_000],
        [10_000, 10_000, 10_000],
        "Maximum wait after a failed write.",
    ),
    bounds(
        "read-ahead-max",
        "bytes",
        [0, 16 << 20],
        [1 << 20, 64 << 10, 128 << 10],
        "Maximum size of a read-ahead window of a stream; 0 turns read-ahead off.",
    ),
    bounds(
        "read-ahead-min",
        "bytes",
        [4096, 16 << 20],
        [16 << 10, 4096, 16 << 10],
        "Minimum size of a read-ahead window of a stream, at most `read-ahead-max`.",
    ),
    bounds(
        "read-ahead-steps",
        "requests",
        [1, 64],
        [2, 2, 2],
        "Requests in sequence, or at an equal distance, that start read-ahead; more are needed \
         while much of the read-ahead is not used.",
    ),
    bounds(
        "read-ahead-streams",
        "streams",
        [1, 64],
        [8, 8, 64],
        "Streams that are recognized at a time on each connection, or in each file of a mount.",
    ),
    bounds(
        "read-ahead-depth",
        "operations",
        [1, 256],
        [8, 1, 64],
        "Read-ahead operations in flight in the store.",
    ),
    bounds(
        "read-ahead-share",
        "per mille of the memory",
        [1, 500],
        [125, 125, 500],
        "Memory for read-ahead in flight; a window is at most a 32nd of it.",
    ),
];

/// The values of all tunables for one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Tunables {
    values: [u64; TUNABLES.len()],
}

/// The reason why a tunable was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TunableError {
    /// There is no tunable of this name.
    #[error("there is no tunable \"{0}\"")]
    Unknown(String),
    /// The value is out of range.
    #[error("{name} is {value}, must be {min} to {max} ({unit})")]
    OutOfRange {
        /// The tunable.
        name: &'static str,
        /// The given value.
        value: u64,
        /// The smallest value.
        min: u64,
        /// The largest value.
        max: u64,
        /// The unit.
        unit: &'static str,
    },
}

impl Default for Tunables {
    fn default() -> Self {
        Tunables { values: TUNABLES.map(|t| t.default) }
    }
}

impl Tunables {
    /// Returns the preset `nt`: the constants of the Windows NT file cache.
    #[must_use]
    pub fn nt() -> Self {
        Tunables { values: TUNABLES.map(|t| t.nt) }
    }

    /// Returns the preset `linux`: the constants of the page cache of Linux 6, of
    /// Documentation/admin-guide/sysctl/vm.rst (`dirty_background_ratio` 10, `dirty_ratio` 20,
    /// `dirty_expire_centisecs` 3000, `dirty_writeback_centisecs` 500), mm/readahead.c (windows of
    /// 16 to 128 KiB from the second request on) and of a request queue (`nr_requests` 128). What
    /// has no counterpart there has the value of `larder`, or does not limit.
    #[must_use]
    pub fn linux() -> Self {
        Tunables { values: TUNABLES.map(|t| t.linux) }
    }

    /// Returns the preset of this name: `larder`, `nt` or `linux`.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "larder" => Some(Tunables::default()),
            "nt" => Some(Tunables::nt()),
            "linux" => Some(Tunables::linux()),
            _ => None,
        }
    }

    /// Sets a tunable by name.
    ///
    /// # Errors
    /// There is no tunable of this name, or the value is out of range.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), TunableError> {
        self.values[check(name, value)?] = value;
        Ok(())
    }

    /// Returns all values, each in its own unit, in the order of [`TUNABLES`].
    #[must_use]
    pub fn values(&self) -> &[u64; TUNABLES.len()] {
        &self.values
    }

    /// Returns the value in the tunable's own unit.
    #[must_use]
    pub fn get(&self, tunable: Tunable) -> u64 {
        self.values[tunable as usize]
    }

    /// Returns a tunable in milliseconds, as nanoseconds.
    pub(crate) fn nanos(&self, tunable: Tunable) -> Nanos {
        self.get(tunable) * MILLISECOND
    }

    /// Returns the share of `whole` given by a tunable in per mille.
    pub(crate) fn share(&self, tunable: Tunable, whole: u64) -> u64 {
        share_of(whole, self.get(tunable))
    }
}

/// Returns `per_mille` thousandths of `whole`; at most 1000.
fn share_of(whole: u64, per_mille: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(per_mille) / 1000).expect("a share of a u64")
}

/// Returns the index of the tunable of this name, if `value` is within its range.
fn check(name: &str, value: u64) -> Result<usize, TunableError> {
    let index = TUNABLES
        .iter()
        .position(|t| t.name == name)
        .ok_or_else(|| TunableError::Unknown(name.to_owned()))?;
    let Bounds { name, min, max, unit, .. } = TUNABLES[index];
    if !(min..=max).contains(&value) {
        return Err(TunableError::OutOfRange { name, value, min, max, unit });
    }
    Ok(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_presets_are_in_range() {
        for t in TUNABLES {
            for value in [t.default, t.nt, t.linux] {
                let mut tunables = Tunables::default();
                tunables.set(t.name, value).unwrap();
            }
            assert!(Tunables::default().set(t.name, t.max + 1).is_err());
        }
        assert_eq!(Tunables::nt().get(Tunable::FirstDelay), 3000);
        assert_eq!(Tunables::nt().get(Tunable::RetryDelayMax), 10_000);
        assert_eq!(Tunables::linux().get(Tunable::ReadAheadMax), 128 << 10);
        assert_eq!(Tunables::default().share(Tunable::DirtyThreshold, 65_536), 24_576);
    }
}
