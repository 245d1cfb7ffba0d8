//! Disk activity, in the measures of Perfmon, and the disks whose activity is unknown.

use crate::escape;
use crate::table::{Cell, Column, Field, Table};
use larder_schema::as_f64;
use larder_schema::watch::Disk;

fn ratio(part: u64, whole: u64) -> f64 {
    as_f64(part) / as_f64(whole)
}

/// Formats a mean number of requests; the digits of a negligible one are meaningless.
fn queue(mean: f64) -> Cell {
    if mean > 0.0 && mean < 0.01 { Cell::shown(mean, "< 0.01") } else { Cell::number(mean) }
}

/// Returns the sentence about a disk whose requests the kernel does not count: its activity is
/// unknown, not 0.
#[must_use]
pub fn not_counted(disk: &str) -> String {
    let file = format!("/sys/block/{disk}/queue/iostats");
    let is_plain = disk.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_".contains(&it));
    let command = if is_plain { file } else { escape::shell_word(&file) };
    format!("{}: not counted (queue/iostats is 0; echo 1 > {command})", escape::text(disk))
}

/// Returns the disks as a table; `duration_ns` is the length of the interval.
pub(super) fn table(disks: &[Disk], duration_ns: u64) -> Table {
    let ms = (duration_ns / 1_000_000).max(1);
    let rate = |key: &str, title: &str, count: fn(&Disk) -> u64| {
        let cell = move |disk: &Disk| Cell::number(1000.0 * ratio(count(disk), ms));
        Field::of(Column::numbers(key, title), cell)
    };
    // Several requests may be in flight at once, so that only the busy time has a limit.
    let time = |key: &str, title: &str, max: f64, busy_ms: fn(&Disk) -> u64| {
        let cell = move |disk: &Disk| Cell::percent(ratio(busy_ms(disk), ms).min(max));
        Field::of(Column::numbers(key, title), cell)
    };
    let queue_length = move |disk: &Disk| queue(ratio(disk.queue_ms, ms));
    let fields = [
        Field::word("disk", "disk", |it: &Disk| &it.name),
        rate("reads_per_s", "reads/s", |it| it.reads),
        Field::duration("read_ns", "sec/read", |it| (it.read_ms * 1_000_000).checked_div(it.reads)),
        Field::bytes("read_bytes_each", "bytes/read", |it| it.read_bytes().checked_div(it.reads)),
        time("read_time", "% read time", f64::INFINITY, |it| it.read_ms),
        rate("writes_per_s", "writes/s", |it| it.writes),
        Field::duration("write_ns", "sec/write", |it| {
            (it.write_ms * 1_000_000).checked_div(it.writes)
        }),
        Field::bytes("write_bytes_each", "bytes/write", |it| {
            it.write_bytes().checked_div(it.writes)
        }),
        time("write_time", "% write time", f64::INFINITY, |it| it.write_ms),
        time("busy", "busy", 1.0, |it| it.busy_ms),
        Field::of(Column::numbers("queue", "queue"), queue_length),
        rate("splits_per_s", "splits/s", |it| it.splits),
        rate("merges_per_s", "merges/s", |it| it.read_merges + it.write_merges),
    ];
    Table::of("disks", disks, fields)
}
