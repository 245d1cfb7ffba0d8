//! Retention of cached data: dropped pages and pinned ranges.

use crate::table::{Cell, Column, Table};
use larder_schema::control::{ByteRange, Dropped, Pinned, VolumeDropped};

/// Renders the result as a table.
#[must_use]
pub fn dropped_table(dropped: &Dropped) -> Table {
    let columns = [
        Column::words("volume", "volume"),
        Column::numbers("dropped_bytes", "dropped"),
        Column::numbers("resident_bytes", "cached still"),
    ];
    let mut table = Table::new("", columns);
    for VolumeDropped { volume, dropped_bytes, resident_bytes } in &dropped.dropped {
        let bytes = [*dropped_bytes, *resident_bytes].map(Cell::bytes);
        table.push([Cell::word(volume)].into_iter().chain(bytes));
    }
    table
}

/// Renders the ranges as a table.
#[must_use]
pub fn pinned_table(pinned: &Pinned) -> Table {
    let columns = [
        Column::words("volume", "volume"),
        Column::numbers("offset_bytes", "from"),
        Column::numbers("length_bytes", "pinned"),
    ];
    let mut table = Table::new("", columns);
    for ByteRange { offset, length } in &pinned.ranges {
        table.push([Cell::word(&pinned.volume), Cell::count(*offset), Cell::bytes(*length)]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_say_how_much_and_where() {
        let dropped =
            VolumeDropped { volume: "a".into(), dropped_bytes: 2 << 20, resident_bytes: 4096 };
        let text = super::dropped_table(&Dropped { dropped: vec![dropped], ..Dropped::default() })
            .to_text();
        assert!(text.lines().last().unwrap().contains("2 MiB         4 KiB"), "{text}");
        let ranges = vec![ByteRange { offset: 8192, length: 4096 }];
        let pinned = Pinned { volume: "a".into(), ranges, ..Pinned::default() };
        assert!(super::pinned_table(&pinned).to_csv().ends_with("\na,8192,4096\n"));
    }
}
