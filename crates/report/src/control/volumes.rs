//! The volumes of a server and their settings.

use super::Head;
use super::changes::ByteRange;
use super::findings::Finding;
use crate::format;
use crate::table::{Cell, Column, Table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The answer to `GET /v1/volumes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Volumes {
    /// Schema and version.
    #[serde(flatten)]
    pub head: Head,
    /// Division of memory among volumes, as in `--share`.
    #[serde(default)]
    pub share: String,
    /// One entry per volume.
    pub volumes: Vec<Volume>,
}

/// A volume and its settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// Name of the volume and of its export.
    pub name: String,
    /// Path of its store.
    pub path: String,
    /// Address for NBD clients.
    pub uri: String,
    /// Length; null for a mounted directory, which has none.
    pub length_bytes: Option<u64>,
    /// Memory that holds its blocks.
    pub resident_bytes: u64,
    /// Bytes that a warm restart has not read back yet.
    #[serde(default)]
    pub warming_bytes: u64,
    /// Target size, if the cache divides the memory; otherwise null.
    #[serde(default)]
    pub target_bytes: Option<u64>,
    /// Current policy; not a setting if the cache chooses it.
    #[serde(default)]
    pub policy: PolicyInForce,
    /// True if the volume is frozen: its requests neither add data to the cache nor evict any.
    #[serde(default)]
    pub frozen: bool,
    /// Pinned bytes.
    #[serde(default)]
    pub pinned_bytes: u64,
    /// Pinned ranges, in order.
    #[serde(default)]
    pub pinned: Vec<ByteRange>,
    /// Problems of the volume.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Settings, named and written like the options of `larder serve`.
    pub settings: BTreeMap<String, String>,
    /// Tunables by name, each in its own unit.
    pub tunables: BTreeMap<String, u64>,
}

/// The policy of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicyInForce {
    /// Policy name.
    pub name: String,
    /// True if the cache may change the policy.
    pub auto: bool,
    /// Changes by the cache with their reasons, oldest first; the latest 16.
    pub switches: Vec<Switch>,
}

/// A change of policy by the cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Switch {
    /// Time since the change, in nanoseconds.
    pub age_ns: u64,
    /// The previous policy.
    pub from: String,
    /// The new policy.
    pub to: String,
    /// Reduction of misses in the scaled-down simulation, as a share of the references.
    pub gain: f64,
}

impl Volumes {
    /// Returns a line for each exceptional condition: automatic changes, frozen volumes, pinned
    /// ranges, problems.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.volumes.iter().flat_map(Volume::notes).collect()
    }

    /// Renders the volumes as a table.
    #[must_use]
    pub fn table(&self) -> Table {
        let columns = [
            Column::words("name", "volume"),
            Column::numbers("length_bytes", "length"),
            Column::numbers("resident_bytes", "cached"),
            Column::numbers("target_bytes", "target"),
            Column::numbers("min", "min"),
            Column::numbers("max", "max"),
            Column::numbers("page_size", "page"),
            Column::words("policy", "policy"),
            Column::words("write_mode", "writes"),
            Column::words("flush", "flush"),
        ];
        let mut table = Table::new("", columns);
        for volume in &self.volumes {
            let setting =
                |name: &str| volume.settings.get(name).map_or_else(Cell::missing, Cell::word);
            table.push([
                Cell::word(&volume.name),
                volume.length_bytes.map_or_else(Cell::missing, Cell::bytes),
                Cell::bytes(volume.resident_bytes),
                volume.target_bytes.map_or_else(Cell::missing, Cell::bytes),
                setting("min"),
                setting("max"),
                setting("page-size"),
                policy(volume),
                setting("write-mode"),
                setting("flush"),
            ]);
        }
        table
    }

    /// Returns the locations of the volumes as a table.
    #[must_use]
    pub fn places(&self) -> Table {
        let columns = [
            Column::words("name", "volume"),
            Column::words("path", "store"),
            Column::words("uri", "address"),
        ];
        let mut table = Table::new("", columns);
        for volume in &self.volumes {
            table.push([
                Cell::word(&volume.name),
                Cell::word(&volume.path),
                Cell::word(&volume.uri),
            ]);
        }
        table
    }
}

impl Volume {
    fn notes(&self) -> Vec<String> {
        let (name, mut notes) = (&self.name, Vec::new());
        if let Some(last) = self.policy.switches.last() {
            notes.push(format!(
                "{name}: {} has taken the place of {} {} ago: it missed {:.1} of 100 references \
                 less",
                last.to,
                last.from,
                format::duration(last.age_ns),
                last.gain * 100.0,
            ));
        }
        if self.frozen {
            notes.push(format!("{name}: frozen: misses go past the cache; larder ctl unfreeze"));
        }
        if self.pinned_bytes > 0 {
            let (bytes, ranges) = (format::bytes(self.pinned_bytes), self.pinned.len());
            notes.push(format!("{name}: {bytes} pinned, number of ranges: {ranges}"));
        }
        notes.extend(self.findings.iter().map(|finding| finding.line(name)));
        notes
    }
}

/// Returns the current policy, marked if the cache chose it.
fn policy(volume: &Volume) -> Cell {
    let PolicyInForce { name, auto, .. } = &volume.policy;
    if *auto { Cell::word(format!("{name} (auto)")) } else { Cell::word(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_chose_the_policy_and_why_is_said() {
        let switch = |to: &str, age_ns| Switch {
            age_ns,
            from: "s3fifo".to_owned(),
            to: to.to_owned(),
            gain: 0.123,
        };
        let policy = PolicyInForce {
            name: "2q".to_owned(),
            auto: true,
            switches: vec![switch("lirs", 9_000_000_000), switch("2q", 3_000_000_000)],
        };
        let chosen = Volume {
            name: "a".to_owned(),
            policy,
            target_bytes: Some(8 << 20),
            ..Volume::default()
        };
        let pinned = Volume {
            frozen: true,
            pinned_bytes: 8192,
            pinned: vec![ByteRange { offset: 0, length: 8192 }],
            ..chosen.clone()
        };
        let notes = pinned.notes();
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(notes[1].starts_with("a: frozen") && notes[2].starts_with("a: 8 KiB pinned"));
        let fixed = PolicyInForce { name: "lru".to_owned(), ..PolicyInForce::default() };
        let plain = Volume { name: "b".to_owned(), policy: fixed, ..Volume::default() };
        let volumes = Volumes { volumes: vec![chosen, plain], ..Volumes::default() };
        assert_eq!(
            volumes.notes(),
            ["a: 2q has taken the place of s3fifo 3.00 s ago: it missed 12.3 of 100 references \
              less"]
        );
        let text = volumes.table().to_text();
        assert!(text.contains("2q (auto)") && text.contains("8 MiB"), "{text}");
        assert!(text.lines().last().unwrap().contains("lru "), "{text}");
    }

    #[test]
    fn an_answer_of_an_older_server_can_be_read() {
        let old = r#"{"schema": "larder-control", "version": 1, "volumes": [{"name": "a",
            "path": "", "uri": "", "length_bytes": 1, "resident_bytes": 0, "settings": {},
            "tunables": {}}]}"#;
        let read: Volumes = serde_json::from_str(old).unwrap();
        assert_eq!((read.volumes[0].target_bytes, read.notes().len()), (None, 0));
    }
}
