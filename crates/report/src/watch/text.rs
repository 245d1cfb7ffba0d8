//! Text rendering.

use super::disks;
use crate::table::{Cell, Column, Field, Table, line_width};
use larder_schema::format;
use larder_schema::watch::{Interval, Row, UnattributedIo, Watch, WatchColumn};

/// Maximum number of characters of a path; its end is more informative than its start.
pub(super) const PATH_MAX: usize = 44;

/// Minimum number of characters of a shortened path.
const SHORT_PATH_MIN: usize = 16;
/// Default number of rows of a table.
const ROWS_DEFAULT: usize = 20;

/// The rows of an interval, and how much of them tables show.
#[derive(Clone, Copy)]
pub(super) struct ShownRows<'a> {
    pub(super) rows: &'a [Row],
    pub(super) page_bytes: u64,
    /// Number of rows; `None` for the default, without rows that hardly matter.
    pub(super) rows_max: Option<usize>,
    /// Number of characters of a path.
    pub(super) path_max: usize,
}

impl ShownRows<'_> {
    /// Returns the indices of the rows that a table of a criterion shows, and the number of others.
    fn select(&self, criterion: WatchColumn) -> (Vec<usize>, usize) {
        let mut order = criterion.order(self.rows, self.page_bytes);
        let all = order.len();
        order.truncate(self.rows_max.unwrap_or_else(|| {
            criterion.leading(&order, self.rows, self.page_bytes).min(ROWS_DEFAULT)
        }));
        let others = all - order.len();
        (order, others)
    }
}

/// Shortens a path to its end.
fn shorten(path: &str, path_max: usize) -> String {
    let length = path.chars().count();
    if length <= path_max {
        return path.to_owned();
    }
    let end: String = path.chars().skip(length - (path_max - 3)).collect();
    format!("...{end}")
}

fn process(row: &Row) -> String {
    if row.pid == 0 { row.process.clone() } else { format!("{} {}", row.process, row.pid) }
}

/// Returns the table of some rows, selected by [`ShownRows::select`], and the number of the others.
fn table(
    title: &str,
    rows: ShownRows<'_>,
    (selected, others): (Vec<usize>, usize),
    fields: impl IntoIterator<Item = Field<Row>>,
) -> (Table, usize) {
    let shown = selected.iter().map(|&index| &rows.rows[index]);
    let path_max = rows.path_max;
    let file = move |row: &Row| Cell::word(shorten(&row.file, path_max));
    let names = [
        Field::of(Column::words("file", "file"), file),
        Field::text("process", "process", process),
    ];
    (Table::of(title, shown, names.into_iter().chain(fields)), others)
}

pub(super) fn reads(rows: ShownRows<'_>) -> (Table, usize) {
    let page_bytes = rows.page_bytes;
    let missed = move |it: &Row| Cell::bytes(it.counts.miss_pages * page_bytes);
    let fields = [
        Field::count("read_pages", "pages read", |it: &Row| it.counts.read_pages),
        Field::count("hit_pages", "hits", |it| it.counts.hit_pages),
        Field::count("read_ahead_hit_pages", "read-ahead", |it| it.counts.read_ahead_hit_pages),
        Field::count("miss_pages", "misses", |it| it.counts.miss_pages),
        Field::of(Column::numbers("miss_bytes", "missed"), missed),
        Field::percent("hit_ratio", "hit ratio", |it| it.counts.hit_ratio()),
        Field::bytes("disk_read_bytes", "from disk", |it| it.counts.disk_read_bytes),
    ];
    let of_maps = [
        Field::count("map_touches", "map touches", |it: &Row| it.counts.map_touches),
        Field::count("map_misses", "map misses", |it| it.counts.map_misses),
    ];
    // Few programs map files of data, and most programs map their libraries.
    let selected = rows.select(WatchColumn::Reads);
    let has_maps = selected.0.iter().any(|&index| {
        let counts = &rows.rows[index].counts;
        counts.map_touches + counts.map_misses > 0
    });
    let fields = fields.into_iter().chain(of_maps.into_iter().filter(|_| has_maps));
    table("reads, in pages", rows, selected, fields)
}

pub(super) fn writes(rows: ShownRows<'_>) -> (Table, usize) {
    // File systems that do not report write requests show neither bytes nor overwritten pages.
    let fields = [
        Field::bytes("write_bytes", "written", |it: &Row| {
            (it.counts.write_requests > 0).then_some(it.counts.write_bytes)
        }),
        Field::count("write_new_pages", "new pages", |it| it.counts.write_new_pages),
        Field::count("dirtied_pages", "dirtied", |it| it.counts.dirtied_pages),
        Field::count("overwritten_pages", "while dirty", |it| {
            (it.counts.write_requests > 0).then(|| it.counts.overwritten_pages())
        }),
        Field::count("lazy_pages", "lazy pages", |it| it.counts.lazy_pages()),
        Field::count("lazy_flushes", "lazy flushes", |it| it.counts.lazy_flushes),
        Field::bytes("disk_lazy_write_bytes", "to disk, lazily", |it| {
            it.counts.disk_lazy_write_bytes
        }),
        Field::bytes("disk_write_bytes", "to disk, itself", |it| it.counts.disk_write_bytes),
        Field::duration("throttled_ms", "throttled", |it| it.counts.throttled_ms * 1_000_000),
    ];
    table("writes", rows, rows.select(WatchColumn::Writes), fields)
}

pub(super) fn evictions(rows: ShownRows<'_>) -> (Table, usize) {
    let fields = [
        Field::count("evicted_pages", "evicted", |it: &Row| it.counts.evicted_pages),
        Field::count("dropped_pages", "dropped", |it| it.counts.dropped_pages),
        Field::count("refault_pages", "came back", |it| it.counts.refault_pages),
        Field::count("read_ahead_unused_pages", "read ahead unused", |it| {
            it.counts.read_ahead_unused_pages
        }),
    ];
    table("pages that left, and by whom", rows, rows.select(WatchColumn::Leaving), fields)
}

/// Headings and widths of the columns of [`line_cells`]; with separators 69 characters, so that a
/// trend of ten fits a terminal of 80 columns.
const LINE_COLUMNS: [(&str, usize); 8] = [
    ("time", 10),
    ("hits", 8),
    ("pages", 6),
    ("ahead", 6),
    ("missed", 8),
    ("dirtied", 8),
    ("lazily", 8),
    ("evicted", 8),
];

/// Returns the headings of the columns of [`line_cells`].
#[must_use]
pub fn line_header() -> String {
    LINE_COLUMNS.map(|(heading, width)| format!("{heading:>width$}")).join(" ")
}

/// Returns the cells of the line of an interval that has just ended, right-aligned: its end, hit
/// ratio, pages read, pages hit by read-ahead, and bytes missed, dirtied, written lazily and
/// evicted.
#[must_use]
pub fn line_cells(interval: &Interval, page_bytes: u64) -> [String; 8] {
    let sum = &interval.sum;
    let cells = [
        format::duration(interval.begin_ns + interval.duration_ns),
        sum.hit_ratio().map_or_else(|| "-".to_owned(), format::percent),
        format::short_count(sum.read_pages),
        format::short_count(sum.read_ahead_hit_pages),
        format::bytes(sum.miss_pages * page_bytes),
        format::bytes(sum.dirtied_pages * page_bytes),
        format::bytes(sum.disk_lazy_write_bytes),
        format::bytes(sum.evicted_pages * page_bytes),
    ];
    let mut widths = LINE_COLUMNS.iter().map(|(_, width)| *width);
    cells.map(|cell| format!("{cell:>width$}", width = widths.next().unwrap_or_default()))
}

/// Returns what follows the cells of an interval's line: waits and losses; empty in most cases.
#[must_use]
pub fn line_notes(interval: &Interval) -> String {
    let mut notes = String::new();
    if interval.sum.throttles > 0 {
        let waited = format::duration(interval.sum.throttled_ms * 1_000_000);
        put!(notes, "; writers waited {waited}");
    }
    if interval.lost_events > 0 {
        put!(notes, "; {} events LOST", format::count(interval.lost_events));
    }
    notes
}

/// Returns the line below a table that leaves out this many rows.
pub(super) fn and_more(rows: usize) -> String {
    format!("and {} more", format::count(rows as u64))
}

/// Returns the sentence about the rows that were not kept, if there are some.
pub(super) fn not_kept(interval: &Interval) -> Option<String> {
    let count = interval.rows_all.saturating_sub(interval.rows.len() as u64);
    let count = (count > 0).then(|| format::count(count))?;
    Some(format!("{count} more files by processes did less, and were not kept"))
}

/// Renders all tables with rows: `rows_max` rows by file and process each; by default up to 20,
/// without the last ones, which together did at most 1 %. On a terminal paths take a third of the
/// line.
#[must_use]
pub fn interval_to_text(interval: &Interval, page_bytes: u64, rows_max: Option<usize>) -> String {
    let mut text = String::new();
    let third = line_width().map_or(PATH_MAX, |characters| characters / 3);
    let path_max = third.clamp(SHORT_PATH_MIN, PATH_MAX);
    let rows = ShownRows { rows: &interval.rows, page_bytes, rows_max, path_max };
    let disks = disks::table(&interval.disks, interval.duration_ns);
    for (table, more) in [reads(rows), writes(rows), evictions(rows), (disks, 0)] {
        if table.is_empty() && more == 0 {
            continue;
        }
        put!(text, "{}", table.to_text());
        if more > 0 {
            put_line!(text, "{}", and_more(more));
        }
        text.push('\n');
    }
    if let Some(sentence) = not_kept(interval) {
        put_line!(text, "{sentence}\n");
    }
    for disk in &interval.uncounted {
        put_line!(text, "{}", crate::escape::line(&disks::not_counted(disk)));
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
    let UnattributedIo { metadata_bytes, read_bytes, write_bytes } = interval.unattributed;
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

pub(super) fn memory_line(interval: &Interval) -> String {
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
            put!(line, ", {what} pressure {} of the time (PSI)", format::percent(share));
        }
    }
    put!(
        line,
        "; {} pages reclaimed, {} read again after an earlier eviction",
        format::count(memory.reclaimed_pages),
        format::count(memory.refault_pages),
    );
    line
}

/// Renders the total, with `rows_max` rows by file and process in each table, as in
/// [`interval_to_text`].
#[must_use]
pub fn to_text(watch: &Watch, rows_max: Option<usize>) -> String {
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
            None if watch.events == 0 && !watch.missing.is_empty() => {
                "reads could not be observed; the end says what is missing".to_owned()
            }
            None => "no reads were observed".to_owned(),
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
