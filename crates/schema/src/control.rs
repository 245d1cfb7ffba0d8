//! State of a running server: `larder-control`, version 1, the requests and responses of its
//! control interface (docs/control.md). The server writes the responses, `larder ctl` reads them.
//! Readers ignore unknown fields, so this version can query newer servers.

mod requests;
mod stats;
mod volumes;

pub use requests::{
    AddRequest, ByteRange, Change, ChangeResponse, JobResult, PathUser, PathUsers, Progress,
    RangeRequest, RemoveRequest, SetRequest, UNINSPECTED, VolumeRequest,
};
pub use stats::{Budget, BudgetPool, GiveBack, LatencyStats, Pool, Stats, VolumeStats};
pub use volumes::{
    AtRisk, Curves, DropResponse, FailingRange, FileAtRisk, FileStats, Files, Pinned,
    PolicyInForce, Switch, Volume, VolumeAtRisk, VolumeCurve, VolumeDropped, Volumes,
};

use serde::{Deserialize, Serialize};

/// Name of the schema.
pub const SCHEMA: &str = "larder-control";
/// Version of the schema; also the first part of each path, as in `/v1/stats`.
pub const VERSION: u32 = 1;

/// The reason for a refused request, as a sentence fragment that can follow "cannot".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason.
    pub error: String,
}

/// The first two fields of each complete response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseHead {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`VERSION`].
    pub version: u32,
}

impl Default for ResponseHead {
    fn default() -> Self {
        ResponseHead { schema: SCHEMA.to_owned(), version: VERSION }
    }
}

/// A finding as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Name, such as `thrashing`.
    pub finding: String,
    /// Observation.
    pub seen: String,
    /// Automatic or recommended action.
    pub answer: String,
}

impl Finding {
    /// Formats the finding as a line: observation and action.
    #[must_use]
    pub fn line(&self, volume: &str) -> String {
        format!("{volume}: {}; {}", self.seen, self.answer)
    }
}
