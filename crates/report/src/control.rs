//! State of a running server: the responses of its control interface, and their rendering as text.
//!
//! The types define the schema `larder-control` of docs/control.md: the server writes them, `larder
//! ctl` reads them. Readers ignore unknown fields, so this version can query newer servers.

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

/// The reason for a refused request, as a sentence fragment that can follow "failed to".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason.
    pub error: String,
}

/// The first two fields of each complete response.
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
