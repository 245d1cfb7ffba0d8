//! Hints: what a client says about how it will ask.

use crate::mode::named;

/// How a volume, or a range of it, will be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Hint {
    /// Nothing is said: the cache finds streams by itself.
    #[default]
    Normal,
    /// In order, and once: the largest window is read ahead at once, and what lies behind the
    /// reader is the first to go.
    Sequential,
    /// Here and there: nothing is read ahead.
    Random,
    /// The caller has a cache of its own: reads of what is not resident go past this one, and
    /// writes do not enter it.
    NoBuffering,
}

named!(Hint:
    Normal = "normal", Sequential = "sequential", Random = "random", NoBuffering = "no-buffering");
