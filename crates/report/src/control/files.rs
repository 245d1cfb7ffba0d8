//! Cache contents by file of a mounted directory.

use crate::table::{Cell, Column, Table};
use larder_schema::control::Files;

/// Renders the files as a table.
#[must_use]
pub fn files_table(files: &Files) -> Table {
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
    for file in &files.files {
        let reads = file.reads();
        let ratio = larder_schema::share(file.hits(), reads);
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

#[cfg(test)]
mod tests {
    use larder_schema::control::{FileStats, Files};

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
        assert_eq!(super::files_table(&files).to_csv().lines().count(), 3);
    }
}
