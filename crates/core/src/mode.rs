//! Write modes, flush modes and bypass reasons, with the rules that select the mode in effect.

use crate::counters::Counter;
use crate::hint::Hint;
use crate::named::named;

/// The place that holds the data of a write when the cache acknowledges it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum WriteMode {
    /// Write-back: the cache. The lazy writer writes the data to the store later.
    Back,
    /// Write-through: the cache and the store.
    Through,
    /// Write-around: the store. Resident blocks are updated; other blocks are not cached.
    Around,
    /// The cache refuses writes.
    ReadOnly,
}

/// The guarantee of a flush when the cache acknowledges it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum FlushMode {
    /// All data written before the flush is on stable storage.
    Keep,
    /// None, as in the lazy-write caches of the 1990s. Data reaches the store within `age-max` plus
    /// the time of the write; a crash before that loses it.
    Ignore,
}

named!(WriteMode: Back = "write-back", Through = "write-through", Around = "write-around",
    ReadOnly = "read-only");
named!(FlushMode: Keep = "keep", Ignore = "ignore");

/// The reason why a reference bypassed the cache. The reasons are checked in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BypassReason {
    /// The client has its own cache (hint `no-buffering`), and the block is not resident.
    NoBuffering,
    /// The volume is in write-around mode, and the block is not resident.
    WriteAround,
    /// The volume is frozen, and the block is not resident.
    Frozen,
    /// The store could not read the whole page, so only the requested blocks were read.
    FillFailed,
    /// There are no frames for the whole page: all other pages are dirty, pinned or being filled.
    Pressure,
}

impl BypassReason {
    pub(crate) fn counter(self) -> Counter {
        match self {
            BypassReason::NoBuffering => Counter::BypassNoBuffering,
            BypassReason::WriteAround => Counter::BypassWriteAround,
            BypassReason::Frozen => Counter::BypassFrozen,
            BypassReason::FillFailed => Counter::BypassFillFailed,
            BypassReason::Pressure => Counter::BypassPressure,
        }
    }
}

/// Returns the mode of a write with this hint: a write of a client with its own cache is a
/// write-around.
pub(crate) fn mode_with(mode: WriteMode, hint: Hint) -> WriteMode {
    match (mode, hint) {
        (WriteMode::Back | WriteMode::Through, Hint::NoBuffering) => WriteMode::Around,
        (other, _) => other,
    }
}

/// Returns the mode in effect. While a volume stops, write-back becomes write-through, so that the
/// number of dirty blocks only falls and the stop ends.
#[must_use]
pub fn effective(mode: WriteMode, stopping: bool) -> WriteMode {
    match mode {
        WriteMode::Back if stopping => WriteMode::Through,
        other => other,
    }
}
