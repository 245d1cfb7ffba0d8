//! Requests that change something, and what comes back.

use super::Head;
use crate::table::{Cell, Column, Table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The body of `POST /v1/set`: all of it is applied, or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetRequest {
    /// Values by name, written as on the command line. A name is that of a flag of `larder serve`
    /// or of a tunable, for all volumes, or for one with its name and a point before. A setting of
    /// one volume takes precedence over the same setting of all volumes.
    pub set: BTreeMap<String, String>,
}

/// What a setting was and is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The volume; empty for the server.
    pub volume: String,
    /// The setting.
    pub name: String,
    /// Before.
    pub from: String,
    /// Now, or soon.
    pub to: String,
    /// Whether it goes on in the background; the gauges tell how far it is.
    pub pending: bool,
}

/// The answer to a request that changes something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// Schema and version.
    #[serde(flatten)]
    pub head: Head,
    /// What was changed; what was so already is left out.
    pub changed: Vec<Change>,
}

impl Changed {
    /// As a table.
    #[must_use]
    pub fn table(&self) -> Table {
        let columns = [
            Column::words("volume", "volume"),
            Column::words("name", "setting"),
            Column::words("from", "from"),
            Column::words("to", "to"),
            Column::words("pending", "when"),
        ];
        let mut table = Table::new("", columns);
        for change in &self.changed {
            table.push([
                Cell::word(&change.volume),
                Cell::word(&change.name),
                Cell::word(&change.from),
                Cell::word(&change.to),
                Cell::word(if change.pending { "under way" } else { "now" }),
            ]);
        }
        table
    }
}

/// The body of a request about one volume or all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeRequest {
    /// The volume; all of them if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
}

/// Bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// How many.
    pub length: u64,
}

/// The body of a request about ranges of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RangeRequest {
    /// The volume.
    pub volume: String,
    /// The ranges.
    pub ranges: Vec<ByteRange>,
}

/// The body of `POST /v1/add`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddRequest {
    /// The volume as on the command line: `[NAME=]PATH`. The path is the server's.
    pub volume: String,
    /// Settings of it, by the names of the flags of `larder serve`.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
}

/// The body of `POST /v1/remove`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveRequest {
    /// The volume.
    pub volume: String,
    /// Whether clients that use it are let go of; otherwise it stays as long as there are such.
    #[serde(default)]
    pub disconnect: bool,
    /// True if the volume is removed without writing its dirty data, which is lost.
    #[serde(default)]
    pub give_up: bool,
}

/// A line of an answer that comes bit by bit: one JSON object each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Progress {
    /// How far a volume is.
    Volume {
        /// The volume.
        volume: String,
        /// Bytes that are done.
        done_bytes: u64,
        /// All of them.
        total_bytes: u64,
        /// Why the last try failed, if it did and goes on.
        error: Option<String>,
    },
    /// The last line: it has come to its end.
    Done {
        /// Bytes that were done, of all volumes together.
        done_bytes: u64,
        /// What went wrong, one sentence each; empty if nothing did.
        failures: Vec<String>,
    },
}
