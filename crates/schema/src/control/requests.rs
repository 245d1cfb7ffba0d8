//! Requests that change the server, and their responses.

use super::ResponseHead;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// The body of `POST /v1/set`; the server applies all of it or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetRequest {
    /// Values by name, in the syntax of the command line. A name is that of an option of `larder
    /// serve` or of a tunable, for all volumes; a prefix `VOLUME.` restricts it to one volume. A
    /// setting of one volume takes precedence over the same setting of all volumes.
    #[serde(deserialize_with = "unique")]
    pub set: BTreeMap<String, String>,
}

/// Change of one setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Volume name; empty for the server.
    pub volume: String,
    /// Setting name.
    pub name: String,
    /// Previous value.
    pub from: String,
    /// New value.
    pub to: String,
    /// True if the change continues in the background; gauges report its progress.
    pub pending: bool,
}

/// The response to a request that changes settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeResponse {
    /// Schema and version.
    #[serde(flatten)]
    pub head: ResponseHead,
    /// Changed settings; settings that already had the value are left out.
    pub changed: Vec<Change>,
    /// Notes on the changes, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The body of a request for one volume or all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeRequest {
    /// Volume name; all volumes if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
}

/// A byte range of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

impl From<Range<u64>> for ByteRange {
    fn from(bytes: Range<u64>) -> Self {
        ByteRange { offset: bytes.start, length: bytes.end - bytes.start }
    }
}

/// The body of a request for ranges of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RangeRequest {
    /// Volume name.
    pub volume: String,
    /// The ranges.
    pub ranges: Vec<ByteRange>,
}

/// The body of `POST /v1/add`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddRequest {
    /// The volume in the syntax of the command line: `[NAME=]PATH`. The server opens the path.
    pub volume: String,
    /// Settings of the volume, named after the options of `larder serve`.
    #[serde(default, deserialize_with = "unique")]
    pub set: BTreeMap<String, String>,
}

/// The body of `POST /v1/remove`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveRequest {
    /// Volume name.
    pub volume: String,
    /// True if the server disconnects clients of the volume; otherwise the volume remains until
    /// they disconnect.
    #[serde(default)]
    pub disconnect: bool,
    /// True if the volume is removed without writing its dirty data, which is lost.
    #[serde(default)]
    pub give_up: bool,
}

/// A line of a streaming response: one JSON object each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Progress {
    /// Progress of one volume.
    Volume {
        /// Volume name.
        volume: String,
        /// Bytes completed.
        done_bytes: u64,
        /// Total bytes.
        total_bytes: u64,
        /// The error of the last attempt, if it failed and the server retries.
        error: Option<String>,
    },
    /// All data is written, and a stop waits; of `POST /v1/stop` only.
    Waiting {
        /// Path that is in use.
        path: String,
        /// Its users, as far as the server can see them.
        users: PathUsers,
    },
    /// The last line: the operation has ended.
    Done(JobResult),
}

/// The users of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathUsers {
    /// The first few of them.
    pub first: Vec<PathUser>,
    /// Number of the others.
    pub others: u64,
}

/// Beginning of the description that is no user, but a sentence on processes that may be users.
pub const UNINSPECTED: &str = "Larder cannot completely inspect ";

/// A process or device that uses a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathUser {
    /// Number of the process; `None` for a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The user with the path that it uses, as a clause.
    pub description: String,
}

impl PathUser {
    /// Returns true if this is no user, but the sentence on processes that may be users.
    #[must_use]
    pub fn is_note(&self) -> bool {
        self.description.starts_with(UNINSPECTED)
    }
}

/// The result of a long-running request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobResult {
    /// Bytes completed, over all volumes.
    pub done_bytes: u64,
    /// Bytes of the ranges that are in the cache at the end; only of `POST /v1/warm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_bytes: Option<u64>,
    /// Bytes that were discarded instead of written, since a volume was given up; of a stop.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub discarded_bytes: u64,
    /// True if a stop disconnected programs from the mount: writes that they had not sent are lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disconnected: bool,
    /// Failures, one sentence each; empty on success.
    pub failures: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// Reads a map in which each name occurs once: of several values for a name, client and server
/// could choose different ones.
fn unique<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Unique;

    impl<'de> Visitor<'de> for Unique {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
            let mut map = BTreeMap::new();
            while let Some(name) = access.next_key::<String>()? {
                if map.contains_key(&name) {
                    return Err(Error::custom(format_args!("the name \"{name}\" occurs twice")));
                }
                map.insert(name, access.next_value()?);
            }
            Ok(map)
        }
    }

    from.deserialize_map(Unique)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_occurs_twice_is_refused() {
        let parse = |text: &str| serde_json::from_str::<SetRequest>(text);
        let accepted = parse(r#"{"set": {"a": "1", "b": "2"}}"#).unwrap();
        assert_eq!(accepted.set.len(), 2);
        for twice in
            [r#"{"set": {"x": "1", "y": "2", "x": "3"}}"#, r#"{"set": {"a": "1", "\u0061": "2"}}"#]
        {
            assert!(parse(twice).unwrap_err().to_string().contains("occurs twice"), "{twice}");
        }
        for wrong in [r#"{"set": {}, "set": {}}"#, r#"{"set": []}"#, r#"{"set": {"a": 1}}"#] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let ranges = r#"{"volume": "a", "ranges": [{"offset": 1, "offset": 2, "length": 3}]}"#;
        assert!(serde_json::from_str::<RangeRequest>(ranges).is_err());
    }
}
