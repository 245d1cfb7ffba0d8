//! Disk activity, in the measures of Perfmon.

use crate::table::{Cell, Column, Table};
use larder_schema::share;
use larder_schema::watch::Disk;

fn ratio(part: u64, whole: u64) -> f64 {
    share(part, whole).unwrap_or(f64::NAN)
}

/// Formats a mean number of requests; the digits of a negligible one are meaningless.
fn queue(mean: f64) -> Cell {
    if mean > 0.0 && mean < 0.01 { Cell::shown(mean, "< 0.01") } else { Cell::number(mean) }
}

/// Returns the disks as a table; `duration_ns` is the length of the interval.
pub(super) fn table(disks: &[Disk], duration_ns: u64) -> Table {
    let columns = [
        Column::words("disk", "disk"),
        Column::numbers("reads_per_s", "reads/s"),
        Column::numbers("read_ns", "sec/read"),
        Column::numbers("read_bytes_each", "bytes/read"),
        Column::numbers("read_time", "% read time"),
        Column::numbers("writes_per_s", "writes/s"),
        Column::numbers("write_ns", "sec/write"),
        Column::numbers("write_bytes_each", "bytes/write"),
        Column::numbers("write_time", "% write time"),
        Column::numbers("busy", "busy"),
        Column::numbers("queue", "queue"),
        Column::numbers("splits_per_s", "splits/s"),
        Column::numbers("merges_per_s", "merges/s"),
    ];
    let ms = (duration_ns / 1_000_000).max(1);
    let rate = |count: u64| Cell::number(1000.0 * ratio(count, ms));
    let each = |sum: u64, count: u64| sum.checked_div(count);
    let time = |sum, count| each(sum * 1_000_000, count).map_or_else(Cell::missing, Cell::duration);
    let size = |sum, count| each(sum, count).map_or_else(Cell::missing, Cell::bytes);
    let mut table = Table::new("disks", columns);
    for disk in disks {
        table.push([
            Cell::word(&disk.name),
            rate(disk.reads),
            time(disk.read_ms, disk.reads),
            size(disk.read_bytes(), disk.reads),
            Cell::percent(ratio(disk.read_ms, ms)),
            rate(disk.writes),
            time(disk.write_ms, disk.writes),
            size(disk.write_bytes(), disk.writes),
            Cell::percent(ratio(disk.write_ms, ms)),
            Cell::percent(ratio(disk.busy_ms, ms).min(1.0)),
            queue(ratio(disk.queue_ms, ms)),
            rate(disk.splits),
            rate(disk.read_merges + disk.write_merges),
        ]);
    }
    table
}
