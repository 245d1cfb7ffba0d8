//! Write modes, flush modes, and the one place that says which applies now and why the cache is
//! bypassed.

use crate::counters::Counter;
use crate::hint::Hint;

/// What a write does before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum WriteMode {
    /// Lazy: it is in the cache; the store gets it later.
    Back,
    /// It is in the cache and in the store.
    Through,
    /// It is in the store; blocks that were resident are brought up to date, others do not enter.
    Around,
    /// Writes are refused.
    ReadOnly,
}

/// What a flush does before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum FlushMode {
    /// Everything written before it is on stable storage.
    Keep,
    /// Nothing: what the lazy-write caches of the 1990s did. Data reaches the store within
    /// `age-max` and the time that writing takes; a crash before that loses it.
    Ignore,
}

macro_rules! named {
    ($enum:ident: $($variant:ident = $name:literal),*) => {
        impl $enum {
            /// All of them.
            pub const ALL: &'static [$enum] = &[$($enum::$variant),*];

            /// Its name on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $($enum::$variant => $name),* }
            }

            /// The one of this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<$enum> {
                $enum::ALL.iter().copied().find(|one| one.name() == name)
            }

            pub(crate) fn from_index(index: u8) -> $enum {
                $enum::ALL[usize::from(index)]
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub(crate) use named;

named!(WriteMode: Back = "back", Through = "through", Around = "around", ReadOnly = "read-only");
named!(FlushMode: Keep = "keep", Ignore = "ignore");

/// Why a reference went past the cache, in the order in which the reasons are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BypassReason {
    /// The client said that it needs no cache, and the block is not resident.
    NoBuffering,
    /// The volume is in write-around mode, and the block is not resident.
    WriteAround,
    /// The volume is frozen, and the block is not resident.
    Frozen,
    /// The page as a whole could not be read, so only what was asked for is.
    FillFailed,
    /// There is no room for the whole page: everything else is dirty, pinned or being filled.
    Pressure,
}

impl BypassReason {
    /// Where it is counted.
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

/// The mode of a write with this hint: a client that needs no cache writes around it.
pub(crate) fn mode_with(mode: WriteMode, hint: Hint) -> WriteMode {
    match (mode, hint) {
        (WriteMode::Back | WriteMode::Through, Hint::NoBuffering) => WriteMode::Around,
        (other, _) => other,
    }
}

/// The mode that a write meets now: while a volume stops, lazy becomes write-through, so that
/// stopping comes to an end.
#[must_use]
pub fn effective(mode: WriteMode, stopping: bool) -> WriteMode {
    match mode {
        WriteMode::Back if stopping => WriteMode::Through,
        other => other,
    }
}
