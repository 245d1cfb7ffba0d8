//! Hints: the access pattern that a client declares.

use crate::named::named;

/// Access pattern of a volume or of a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Hint {
    /// Not declared: the cache detects streams.
    #[default]
    Normal,
    /// Sequential, each byte once: read-ahead starts with the largest window, and pages behind the
    /// reader are evicted first.
    Sequential,
    /// Random: no read-ahead.
    Random,
    /// The client has its own cache: reads of blocks that are not resident bypass this cache, and
    /// writes do not enter it.
    NoBuffering,
}

named!(Hint:
    Normal = "normal", Sequential = "sequential", Random = "random", NoBuffering = "no-buffering");
