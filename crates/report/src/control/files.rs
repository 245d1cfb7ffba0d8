//! Cache contents by file of a mounted directory.

use super::Head;
use crate::table::{Cell, Column, Table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The answer to `GET /v1/files`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// Schema and version.
    #[serde(flatten)]
    pub head: Head,
    /// Number of files that have data in the cache or had it recently.
    pub total: u64,
    /// Files with the most cached data, in descending order; truncated if there are very many.
    pub files: Vec<FileStats>,
}

/// Cached data of a file, and the results of requests to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStats {
    /// Path relative to the directory.
    pub path: String,
    /// Size as programs see it.
    pub size_bytes: u64,
    /// Bytes in the cache.
    pub resident_bytes: u64,
    /// Cached bytes that are not written to the directory yet.
    pub dirty_bytes: u64,
    /// Number of open handles.
    pub opens: u64,
    /// Requests by the worst class of their pages, named like the counters of these classes.
    pub requests: BTreeMap<String, u64>,
}

impl FileStats {
    fn sum_of(&self, names: &[&str]) -> u64 {
        names.iter().filter_map(|name| self.requests.get(*name)).sum()
    }

    /// Returns the number of reads whose pages were all in the cache.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.sum_of(&["read_hit_pages", "read_ahead_hit_pages"])
    }

    /// Returns the number of reads.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.sum_prefix("read_")
    }

    /// Returns the number of writes.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.sum_prefix("write_")
    }

    fn sum_prefix(&self, prefix: &str) -> u64 {
        let matching = self.requests.iter().filter(|(name, _)| name.starts_with(prefix));
        matching.map(|(_, count)| count).sum()
    }
}

impl Files {
    /// Renders the files as a table.
    #[must_use]
    pub fn table(&self) -> Table {
        let columns = [
            Column::words("path", "file"),
            Column::numbers("size_bytes", "size"),
            Column::numbers("resident_bytes", "resident"),
            Column::numbers("dirty_bytes", "dirty"),
            Column::numbers("opens", "open"),
            Column::numbers("reads", "reads"),
            Column::numbers("hit_ratio", "hits"),
            Column::numbers("writes", "writes"),
        ];
        let mut table = Table::new("", columns);
        for file in &self.files {
            let reads = file.reads();
            #[expect(clippy::cast_precision_loss, reason = "a ratio that is shown")]
            let ratio = (reads > 0).then(|| file.hits() as f64 / reads as f64);
            table.push([
                Cell::word(&file.path),
                Cell::bytes(file.size_bytes),
                Cell::bytes(file.resident_bytes),
                Cell::bytes(file.dirty_bytes),
                Cell::count(file.opens),
                Cell::count(reads),
                ratio.map_or_else(Cell::missing, Cell::percent),
                Cell::count(file.writes()),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_hits_are_told_from_classes() {
        let counts = [
            ("read_hit_pages", 6),
            ("read_ahead_hit_pages", 1),
            ("read_miss_pages", 3),
            ("write_absorbed_pages", 2),
        ];
        let requests = counts.map(|(name, count)| (name.to_owned(), count)).into();
        let one = FileStats { path: "d/f".into(), requests, ..FileStats::default() };
        assert_eq!((one.hits(), one.reads(), one.writes()), (7, 10, 2));
        let two = FileStats { path: "idle".into(), ..FileStats::default() };
        let files = Files { total: 2, files: vec![one, two], ..Files::default() };
        assert_eq!(files.table().to_csv().lines().count(), 3);
    }
}
