//! What a running server says of itself: the answers of its control interface, and how people read
//! them.
//!
//! The types are the schema `larder-control` of docs/control.md: the server writes them, `larder
//! ctl` reads them. A field that this version does not know is passed over, so a newer server can
//! be asked.

mod changes;
mod curves;
mod files;
mod findings;
mod retention;
mod stats;
mod unwritten;
mod volumes;

pub use changes::{
    AddRequest, ByteRange, Change, Changed, Progress, RangeRequest, RemoveRequest, SetRequest,
    VolumeRequest,
};
pub use curves::{Curves, REFERENCES_MIN, VolumeCurve, needed_memory};
pub use files::{FileStats, Files};
pub use findings::{AutomaticAction, FINDINGS, Finding, VolumeFinding};
pub use retention::{Dropped, Pinned, VolumeDropped};
pub use stats::{
    Budget, BudgetPool, GiveBack, LatencyStats, Pool, Stats, VolumeStats, WATCH_COLUMNS_MAX,
};
pub use unwritten::{AtRisk, FailingRange, FileAtRisk, VolumeAtRisk};
pub use volumes::{PolicyInForce, Switch, Volume, Volumes};

use serde::{Deserialize, Serialize};

/// Name of the schema.
pub const SCHEMA: &str = "larder-control";
/// Version of the schema; also the first part of each path, as in `/v1/stats`.
pub const VERSION: u32 = 1;

/// Why something was refused, as a sentence fragment that can follow "failed to".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The sentence.
    pub error: String,
}

/// The two fields that each whole answer begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`VERSION`].
    pub version: u32,
}

impl Default for Head {
    fn default() -> Self {
        Head { schema: SCHEMA.to_owned(), version: VERSION }
    }
}
