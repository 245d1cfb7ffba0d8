//! Text rendering.

use super::disks;
use crate::table::{Cell, Column, Table};
use larder_schema::format;
use larder_schema::watch::{Counts, Interval, Row, Unattributed, Watch, WatchColumn};

/// Maximum number of characters of a path; its end is more informative than its start.
const PATH_MAX: usize = 44;

/// Shortens a path to its end.
fn shorten(path: &str) -> String {
    let length = path.chars().count();
    if length <= PATH_MAX {
        return path.to_owned();
    }
    let end: String = path.chars().skip(length - (PATH_MAX - 3)).collect();
    format!("...{end}")
}

fn ratio(counts: &Counts) -> Cell {
    counts.hit_ratio().map_or_else(Cell::missing, Cell::percent)
}

fn thread_cells(row: &Row) -> [Cell; 2] {
    let process =
        if row.pid == 0 { row.process.clone() } else { format!("{} {}", row.process, row.pid) };
    [Cell::word(shorten(&row.file)), Cell::word(process)]
}

fn table<const N: usize>(title: &str, columns: [(&str, &str); N]) -> Table {
    let names = [Column::words("file", "file"), Column::words("process", "process")];
    let numbers = columns.map(|(key, title)| Column::numbers(key, title));
    Table::new(title, names.into_iter().chain(numbers))
}

/// Rows of an interval, with the maximum number to show for each criterion.
struct IntervalRows<'a> {
    rows: &'a [Row],
    page_bytes: u64,
    rows_max: usize,
}

impl IntervalRows<'_> {
    /// Adds the first rows of a criterion to the table; returns the number of the other affected
    /// rows.
    fn put<const N: usize>(
        &self,
        table: &mut Table,
        criterion: WatchColumn,
        cells: impl Fn(&Counts) -> [Cell; N],
    ) -> usize {
        let order = criterion.order(self.rows, self.page_bytes);
        for row in order.iter().take(self.rows_max).map(|&index| &self.rows[index]) {
            table.push(thread_cells(row).into_iter().chain(cells(&row.counts)));
        }
        order.len().saturating_sub(self.rows_max)
    }
}

fn reads(selection: &IntervalRows<'_>) -> (Table, usize) {
    let columns = [
        ("read_pages", "pages read"),
        ("hit_pages", "hits"),
        ("read_ahead_hit_pages", "read-ahead"),
        ("miss_pages", "misses"),
        ("miss_bytes", "missed"),
        ("hit_ratio", "hit ratio"),
        ("map_touches", "map touches"),
        ("map_misses", "map misses"),
        ("disk_read_bytes", "from disk"),
    ];
    let mut table = table("reads, in pages", columns);
    let more = selection.put(&mut table, WatchColumn::Reads, |it| {
        [
            Cell::count(it.read_pages),
            Cell::count(it.hit_pages),
            Cell::count(it.read_ahead_hit_pages),
            Cell::count(it.miss_pages),
            Cell::bytes(it.miss_pages * selection.page_bytes),
            ratio(it),
            Cell::count(it.map_touches),
            Cell::count(it.map_misses),
            Cell::bytes(it.disk_read_bytes),
        ]
    });
    (table, more)
}

fn writes(selection: &IntervalRows<'_>) -> (Table, usize) {
    let columns = [
        ("write_bytes", "written"),
        ("write_new_pages", "new pages"),
        ("dirtied_pages", "dirtied"),
        ("overwritten_pages", "while dirty"),
        ("lazy_pages", "lazy pages"),
        ("lazy_flushes", "lazy flushes"),
        ("disk_lazy_write_bytes", "to disk, lazily"),
        ("disk_write_bytes", "to disk, itself"),
        ("throttled_ms", "throttled"),
    ];
    let mut table = table("writes", columns);
    let more = selection.put(&mut table, WatchColumn::Writes, |it| {
        [
            if it.write_requests > 0 { Cell::bytes(it.write_bytes) } else { Cell::missing() },
            Cell::count(it.write_new_pages),
            Cell::count(it.dirtied_pages),
            if it.write_requests > 0 {
                Cell::count(it.overwritten_pages())
            } else {
                Cell::missing()
            },
            Cell::count(it.lazy_pages()),
            Cell::count(it.lazy_flushes),
            Cell::bytes(it.disk_lazy_write_bytes),
            Cell::bytes(it.disk_write_bytes),
            Cell::duration(it.throttled_ms * 1_000_000),
        ]
    });
    (table, more)
}

fn evictions(selection: &IntervalRows<'_>) -> (Table, usize) {
    let columns = [
        ("evicted_pages", "evicted"),
        ("dropped_pages", "dropped"),
        ("refault_pages", "came back"),
        ("read_ahead_unused_pages", "read ahead unused"),
    ];
    let mut table = table("pages that left, and by whom", columns);
    let more = selection.put(&mut table, WatchColumn::Leaving, |it| {
        [
            Cell::count(it.evicted_pages),
            Cell::count(it.dropped_pages),
            Cell::count(it.refault_pages),
            Cell::count(it.read_ahead_unused_pages),
        ]
    });
    (table, more)
}

/// Formats one line for an interval that has just ended.
#[must_use]
pub fn to_line(interval: &Interval, page_bytes: u64) -> String {
    let sum = &interval.sum;
    let ratio = sum.hit_ratio().map_or_else(|| "no reads".to_owned(), format::percent);
    let mut line = format!(
        "{:>9}  hits {ratio} of {} pages, {} by read-ahead; {} missed; {} dirtied; lazily {}; \
         evicted {}",
        format::duration(interval.begin_ns + interval.duration_ns),
        format::short_count(sum.read_pages),
        format::short_count(sum.read_ahead_hit_pages),
        format::bytes(sum.miss_pages * page_bytes),
        format::bytes(sum.dirtied_pages * page_bytes),
        format::bytes(sum.disk_lazy_write_bytes),
        format::bytes(sum.evicted_pages * page_bytes),
    );
    if sum.throttles > 0 {
        put!(line, "; writers waited {}", format::duration(sum.throttled_ms * 1_000_000));
    }
    if interval.lost_events > 0 {
        put!(line, "; {} events LOST", format::count(interval.lost_events));
    }
    line
}

/// Renders all tables with rows, each with at most `rows_max` rows by file and process.
#[must_use]
pub fn interval_to_text(interval: &Interval, page_bytes: u64, rows_max: usize) -> String {
    let mut text = String::new();
    let selection = IntervalRows { rows: &interval.rows, page_bytes, rows_max };
    let disks = disks::table(&interval.disks, interval.duration_ns);
    for (table, more) in [reads(&selection), writes(&selection), evictions(&selection), (disks, 0)]
    {
        if table.is_empty() && more == 0 {
            continue;
        }
        put!(text, "{}", table.to_text());
        if more > 0 {
            put_line!(text, "and {} more", format::count(more as u64));
        }
        text.push('\n');
    }
    let not_kept = interval.rows_all.saturating_sub(interval.rows.len() as u64);
    if not_kept > 0 {
        let count = format::count(not_kept);
        put_line!(text, "{count} more files by processes did less, and were not kept\n");
    }
    let sum = &interval.sum;
    put_line!(
        text,
        "lazy write: background {}, periodic {}, sync {}, reclaim {}, other {} pages in {} \
         flushes",
        format::count(sum.lazy_background_pages),
        format::count(sum.lazy_periodic_pages),
        format::count(sum.lazy_sync_pages),
        format::count(sum.lazy_reclaim_pages),
        format::count(sum.lazy_other_pages),
        format::count(sum.lazy_flushes),
    );
    put_line!(text, "{}", memory_line(interval));
    let Unattributed { metadata_bytes, read_bytes, write_bytes } = interval.unattributed;
    if metadata_bytes + read_bytes + write_bytes > 0 {
        put_line!(
            text,
            "disk I/O that belongs to no file: metadata {}, read {}, written {}",
            format::bytes(metadata_bytes),
            format::bytes(read_bytes),
            format::bytes(write_bytes),
        );
    }
    text
}

fn memory_line(interval: &Interval) -> String {
    let memory = &interval.memory;
    let mut line = format!(
        "memory: {} resident, {} dirty (lazy write from {}, writers wait near {}), {} in \
         write-back, {} of {} available",
        format::bytes(memory.resident_bytes),
        format::bytes(memory.dirty_bytes),
        format::bytes(memory.background_threshold_bytes),
        format::bytes(memory.dirty_threshold_bytes),
        format::bytes(memory.write_back_bytes),
        format::bytes(memory.available_bytes),
        format::bytes(memory.total_bytes),
    );
    for (what, pressure) in [("memory", memory.memory_pressure), ("I/O", memory.io_pressure)] {
        if let Some(share) = pressure {
            put!(line, ", waiting for {what} {} of the time", format::percent(share));
        }
    }
    put!(
        line,
        "; {} pages reclaimed, {} came back",
        format::count(memory.reclaimed_pages),
        format::count(memory.refault_pages),
    );
    line
}

/// Renders the total, with at most `rows_max` rows by file and process in each table.
#[must_use]
pub fn to_text(watch: &Watch, rows_max: usize) -> String {
    let mut text = String::new();
    let total = &watch.total;
    put_line!(
        text,
        "{} for {}: {}\n",
        crate::escape::text(&watch.scope),
        format::duration(total.duration_ns),
        match total.sum.hit_ratio() {
            Some(ratio) => format!(
                "{} of {} pages read were resident, {} of them by read-ahead",
                format::percent(ratio),
                format::count(total.sum.read_pages),
                format::count(total.sum.read_ahead_hit_pages),
            ),
            None => "nothing was read that could be seen".to_owned(),
        }
    );
    put!(text, "{}", interval_to_text(total, watch.page_bytes, rows_max));
    put_line!(
        text,
        "watching: {} events, {} lost, {} of processor time, {} of memory",
        format::count(watch.events),
        format::count(total.lost_events),
        format::duration(watch.own_cpu_ns),
        format::bytes(watch.own_memory_bytes),
    );
    if !watch.means.is_empty() {
        put_line!(text, "{}", watch.means);
    }
    if !watch.findings.is_empty() {
        put!(text, "\n{}", crate::findings::to_text(&watch.findings));
    }
    for sentence in &watch.missing {
        put_line!(text, "missing: {}", crate::escape::line(sentence));
    }
    text
}
