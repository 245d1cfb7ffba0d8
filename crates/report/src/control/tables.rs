//! Tables of changed settings, files and retained data.

use crate::table::{Cell, Column, Field, Table};
use larder_schema::control::{
    ByteRange, Change, ChangeResponse, DropResponse, FileStats, Files, Pinned, VolumeDropped,
};
use larder_schema::share;

/// Returns the changed settings as a table.
#[must_use]
pub fn changes_table(changed: &ChangeResponse) -> Table {
    let fields = [
        Field::word("volume", "volume", |it: &Change| &it.volume),
        Field::word("name", "setting", |it| &it.name),
        Field::word("from", "from", |it| &it.from),
        Field::word("to", "to", |it| &it.to),
        Field::word("pending", "when", |it| if it.pending { "under way" } else { "now" }),
    ];
    Table::of("", &changed.changed, fields)
}

/// Returns the files of a directory as a table.
#[must_use]
pub fn files_table(files: &Files) -> Table {
    let fields = [
        Field::word("path", "file", |it: &FileStats| &it.path),
        Field::bytes("size_bytes", "size", |it| it.size_bytes),
        Field::bytes("resident_bytes", "resident", |it| it.resident_bytes),
        Field::bytes("dirty_bytes", "dirty", |it| it.dirty_bytes),
        Field::count("opens", "open", |it| it.opens),
        Field::count("reads", "reads", FileStats::reads),
        Field::percent("hit_ratio", "hits", |it| share(it.hits(), it.reads())),
        Field::count("writes", "writes", FileStats::writes),
    ];
    Table::of("", &files.files, fields)
}

/// Returns the result of a drop as a table.
#[must_use]
pub fn dropped_table(dropped: &DropResponse) -> Table {
    let fields = [
        Field::word("volume", "volume", |it: &VolumeDropped| &it.volume),
        Field::bytes("dropped_bytes", "dropped", |it| it.dropped_bytes),
        Field::bytes("resident_bytes", "cached still", |it| it.resident_bytes),
    ];
    Table::of("", &dropped.dropped, fields)
}

/// Returns the pinned ranges as a table.
#[must_use]
pub fn pinned_table(pinned: &Pinned) -> Table {
    let volume = pinned.volume.clone();
    let fields = [
        Field::of(Column::words("volume", "volume"), move |_: &ByteRange| Cell::word(&volume)),
        Field::count("offset_bytes", "from", |it| it.offset),
        Field::bytes("length_bytes", "pinned", |it| it.length),
    ];
    Table::of("", &pinned.ranges, fields)
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
        assert_eq!(files_table(&files).to_csv().lines().count(), 3);
    }

    #[test]
    fn tables_say_how_much_and_where() {
        let dropped =
            VolumeDropped { volume: "a".into(), dropped_bytes: 2 << 20, resident_bytes: 4096 };
        let text =
            dropped_table(&DropResponse { dropped: vec![dropped], ..DropResponse::default() })
                .to_text();
        assert!(text.lines().last().unwrap().contains("2 MiB         4 KiB"), "{text}");
        let ranges = vec![ByteRange { offset: 8192, length: 4096 }];
        let pinned = Pinned { volume: "a".into(), ranges, ..Pinned::default() };
        assert!(pinned_table(&pinned).to_csv().ends_with("\na,8192,4096\n"));
    }
}
