//! The volumes of a server and their settings.

use super::Head;
use crate::table::{Cell, Column, Table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The answer to `GET /v1/volumes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volumes {
    /// Schema and version.
    #[serde(flatten)]
    pub head: Head,
    /// One for each volume.
    pub volumes: Vec<Volume>,
}

/// A volume and its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Its name, which is also that of the export.
    pub name: String,
    /// Where its store is.
    pub path: String,
    /// Its address for NBD clients.
    pub uri: String,
    /// Its length.
    pub length_bytes: u64,
    /// Memory that holds its blocks now.
    pub resident_bytes: u64,
    /// What a warm restart has still to read back.
    #[serde(default)]
    pub warming_bytes: u64,
    /// Settings by the names of the flags of `larder serve`, as they would be written there.
    pub settings: BTreeMap<String, String>,
    /// Tunables by name, each in its own unit.
    pub tunables: BTreeMap<String, u64>,
}

impl Volumes {
    /// As a table.
    #[must_use]
    pub fn table(&self) -> Table {
        let columns = [
            Column::words("name", "volume"),
            Column::numbers("length_bytes", "length"),
            Column::numbers("resident_bytes", "cached"),
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
                Cell::bytes(volume.length_bytes),
                Cell::bytes(volume.resident_bytes),
                setting("min"),
                setting("max"),
                setting("page-size"),
                setting("policy"),
                setting("write-mode"),
                setting("flush"),
            ]);
        }
        table
    }

    /// Where they are.
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
