//! Retention of cached data: dropped pages and pinned ranges.

use super::Head;
use super::changes::ByteRange;
use crate::table::{Cell, Column, Table};
use serde::{Deserialize, Serialize};

/// The answer to `POST /v1/drop`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Schema and version.
    #[serde(flatten)]
    pub head: Head,
    /// One entry per requested volume.
    pub dropped: Vec<VolumeDropped>,
}

/// Result of a drop for one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeDropped {
    /// Volume name.
    pub volume: String,
    /// Clean bytes that were removed from the cache.
    pub dropped_bytes: u64,
    /// Bytes that remain cached: dirty, in use, or added meanwhile.
    pub resident_bytes: u64,
}

impl Dropped {
    /// Renders the result as a table.
    #[must_use]
    pub fn table(&self) -> Table {
        let columns = [
            Column::words("volume", "volume"),
            Column::numbers("dropped_bytes", "dropped"),
            Column::numbers("resident_bytes", "cached still"),
        ];
        let mut table = Table::new("", columns);
        for VolumeDropped { volume, dropped_bytes, resident_bytes } in &self.dropped {
            let bytes = [*dropped_bytes, *resident_bytes].map(Cell::bytes);
            table.push([Cell::word(volume)].into_iter().chain(bytes));
        }
        table
    }
}

/// The response to `POST /v1/pin` and `POST /v1/unpin`: the pinned ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinned {
    /// Schema and version.
    #[serde(flatten)]
    pub head: Head,
    /// Volume name.
    pub volume: String,
    /// Bytes in all ranges.
    pub pinned_bytes: u64,
    /// The ranges in whole pages, in order.
    pub ranges: Vec<ByteRange>,
}

impl Pinned {
    /// Renders the ranges as a table.
    #[must_use]
    pub fn table(&self) -> Table {
        let columns = [
            Column::words("volume", "volume"),
            Column::numbers("offset_bytes", "from"),
            Column::numbers("length_bytes", "pinned"),
        ];
        let mut table = Table::new("", columns);
        for ByteRange { offset, length } in &self.ranges {
            table.push([Cell::word(&self.volume), Cell::count(*offset), Cell::bytes(*length)]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_say_how_much_and_where() {
        let dropped =
            VolumeDropped { volume: "a".into(), dropped_bytes: 2 << 20, resident_bytes: 4096 };
        let text = Dropped { dropped: vec![dropped], ..Dropped::default() }.table().to_text();
        assert!(text.lines().last().unwrap().contains("2 MiB         4 KiB"), "{text}");
        let ranges = vec![ByteRange { offset: 8192, length: 4096 }];
        let pinned = Pinned { volume: "a".into(), ranges, ..Pinned::default() };
        assert!(pinned.table().to_csv().ends_with("\na,8192,4096\n"));
    }
}
