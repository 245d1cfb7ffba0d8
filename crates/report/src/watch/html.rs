//! HTML report of a watch: the hit ratio, its course over time, and the files and processes that
//! read, wrote and missed.

use super::disks;
use super::text::{PATH_MAX, ShownRows, and_more, evictions, memory_line, not_kept, reads, writes};
use crate::chart::{Axis, Chart, Labels};
use crate::page::{self, Card, Confidence, Head, details, html_table, list, section};
use crate::run::capitalized;
use crate::table::{Field, Table};
use larder_schema::watch::{Counts, Interval, Watch};
use larder_schema::{as_f64, format};

/// Height of a chart, in pixels.
const HEIGHT: f64 = 260.0;
/// Maximum number of rows by file and process of each table.
const ROWS_MAX: usize = 50;

/// Renders the watch.
#[must_use]
pub fn to_html(watch: &Watch) -> String {
    let total = &watch.total;
    let head = Head {
        kind: "larder watch".to_owned(),
        verdict: verdict(watch),
        cards: cards(watch),
        subject: vec![format!(
            "Observed: {} for {} from {}, Linux {}.",
            watch.scope,
            format::duration(total.duration_ns),
            watch.started_at,
            watch.kernel
        )],
    };
    let mut body = page::doubts("Not observed", &watch.missing);
    body.push_str(&page::findings(&watch.findings));
    body.push_str(&time_section(watch));
    let rows = ShownRows {
        rows: &total.rows,
        page_bytes: watch.page_bytes,
        rows_max: Some(ROWS_MAX),
        path_max: PATH_MAX,
    };
    for (title, (table, more)) in [
        ("Reads by file and process, in pages", reads(rows)),
        ("Writes by file and process", writes(rows)),
        ("Evictions by file and process", evictions(rows)),
        ("Disks", (disks::table(&total.disks, total.duration_ns), 0)),
    ] {
        let is_cut = more > 0;
        let more = if is_cut { format!("<p>{}</p>\n", and_more(more)) } else { String::new() };
        if is_cut || !table.is_empty() {
            body.push_str(&section(title, &(html_table(&table) + &more)));
        }
    }
    if !total.uncounted.is_empty() {
        let sentences: Vec<String> =
            total.uncounted.iter().map(|disk| disks::not_counted(disk)).collect();
        body.push_str(&section("Disks that are not counted", &list(&sentences)));
    }
    if let Some(sentence) = not_kept(total) {
        put_line!(body, "<p>{}.</p>", capitalized(&sentence));
    }
    let notes = [
        capitalized(&memory_line(total)) + ".",
        format!(
            "Observation: {} events, {} lost, {} of processor time, {} of memory.",
            format::count(watch.events),
            format::count(total.lost_events),
            format::duration(watch.own_cpu_ns),
            format::bytes(watch.own_memory_bytes)
        ),
        watch.means.clone(),
    ];
    body.push_str(&details("Memory and method", &list(notes.iter().filter(|it| !it.is_empty()))));
    page::page(&head, &body, &serde_json::to_value(shown(watch)).unwrap_or_default())
}

/// Returns the data of the page: without the rows of single intervals, which can be many.
fn shown(watch: &Watch) -> Watch {
    let mut shown = watch.clone();
    shown.intervals.iter_mut().for_each(|interval| interval.rows.clear());
    shown.total.rows.truncate(ROWS_MAX);
    shown
}

fn verdict(watch: &Watch) -> String {
    let sum = &watch.total.sum;
    let missed = format::bytes(sum.miss_pages * watch.page_bytes);
    match sum.hit_ratio() {
        Some(ratio) => format!(
            "{} of {} pages read were hits; misses read {missed}",
            format::percent(ratio),
            format::count(sum.read_pages)
        ),
        None if sum.dirtied_pages > 0 => {
            let dirtied = format::bytes(sum.dirtied_pages * watch.page_bytes);
            format!("No reads were observed; {dirtied} were made dirty")
        }
        None if sum.overwritten_pages() > 0 => {
            let written = format::count(sum.overwritten_pages());
            format!("No reads were observed; {written} writes changed pages that were dirty")
        }
        None => "No reads and no writes were observed".to_owned(),
    }
}

fn cards(watch: &Watch) -> Vec<Card> {
    let (total, sum) = (&watch.total, &watch.total.sum);
    let bytes = |pages: u64| format::bytes(pages * watch.page_bytes);
    let ratio = sum.hit_ratio().map_or_else(|| "-".to_owned(), format::percent);
    let ahead = format!("{} of them by read-ahead", bytes(sum.read_ahead_hit_pages));
    let lazily = format!("{} written back lazily", format::bytes(sum.disk_lazy_write_bytes));
    let confidence = match (total.lost_events, watch.missing.len()) {
        (0, 0) if sum.read_pages + sum.dirtied_pages + sum.overwritten_pages() == 0 => {
            Confidence::Unknown("nothing was observed".to_owned())
        }
        (0, 0) => Confidence::Good("no event was lost"),
        (0, count) => Confidence::of_doubts(count),
        (lost, _) => Confidence::Doubtful(format!("{} events were lost", format::count(lost))),
    };
    vec![
        Card::new("Hit ratio", ratio, ahead),
        Card::new("Missed", bytes(sum.miss_pages), "read while a program waited"),
        Card::new("Made dirty", bytes(sum.dirtied_pages), lazily),
        Card::confidence(confidence),
    ]
}

fn time_section(watch: &Watch) -> String {
    let sum = &watch.total.sum;
    let is_empty = sum.read_pages + sum.dirtied_pages + sum.evicted_pages == 0;
    if watch.intervals.len() < 2 || is_empty {
        return String::new();
    }
    let reads = chart(
        watch,
        ("read", Some(sum.read_pages)),
        &[
            ("hits", "line hit", |it| it.hit_pages),
            ("read-ahead hits", "line ahead", |it| it.read_ahead_hit_pages),
            ("misses", "line miss", |it| it.miss_pages),
        ],
    );
    let writes = (sum.dirtied_pages + sum.lazy_pages() + sum.evicted_pages > 0).then(|| {
        chart(
            watch,
            ("written or evicted", None),
            &[
                ("made dirty", "line c2", |it| it.dirtied_pages),
                ("written back lazily", "line c3", Counts::lazy_pages),
                ("evicted", "line bypass", |it| it.evicted_pages),
            ],
        )
    });
    let table = intervals_table(watch);
    let reads = reads.to_figure(
        HEIGHT,
        "Reads in each interval, as bytes per second",
        "In each interval; the totals are in the key.",
        Some(&table),
    );
    let description =
        "Pages made dirty, written back and evicted in each interval, as bytes per second";
    let writes = writes.and_then(|writes| writes.to_figure(HEIGHT, description, "", None));
    section(
        "Reads and writes over time",
        &(reads.unwrap_or_default() + &writes.unwrap_or_default()),
    )
}

/// A line of a chart over time: name, class and pages of an interval.
type Line = (&'static str, &'static str, fn(&Counts) -> u64);

/// Draws pages of each interval as bytes per second, as steps, since an interval can be long. The
/// key has the totals, and their shares of `whole` pages.
fn chart(watch: &Watch, (title, whole): (&str, Option<u64>), lines: &[Line]) -> Chart {
    let y = Axis::new(title, "").labels(Labels::ByteRate).from_zero();
    let mut chart = Chart::new("", Axis::new("time", "s"), y);
    for (name, class, pages) in lines {
        let points = watch.intervals.iter().flat_map(|it| {
            let rate = rate(watch, it, pages(&it.sum));
            [it.begin_ns, it.begin_ns + it.duration_ns].map(|ns| (as_f64(ns) / 1e9, rate))
        });
        let sum = pages(&watch.total.sum);
        let total = format::bytes(sum * watch.page_bytes);
        let share = whole.map_or_else(String::new, |whole| {
            format!(", {}", format::percent(as_f64(sum) / as_f64(whole.max(1))))
        });
        chart.line_as(format!("{name} {total}{share}"), *class, points);
    }
    chart
}

/// Returns a number of pages as bytes per second.
fn rate(watch: &Watch, interval: &Interval, pages: u64) -> f64 {
    as_f64(pages * watch.page_bytes) / (as_f64(interval.duration_ns.max(1)) / 1e9)
}

fn intervals_table(watch: &Watch) -> Table {
    let fields = [
        Field::duration("begin_ns", "from", |it: &Interval| it.begin_ns),
        Field::count("read_pages", "pages read", |it| it.sum.read_pages),
        Field::count("hit_pages", "hits", |it| it.sum.hit_pages),
        Field::count("read_ahead_hit_pages", "read-ahead", |it| it.sum.read_ahead_hit_pages),
        Field::count("miss_pages", "misses", |it| it.sum.miss_pages),
        Field::count("dirtied_pages", "dirtied", |it| it.sum.dirtied_pages),
        Field::count("evicted_pages", "evicted", |it| it.sum.evicted_pages),
        Field::bytes("dirty_bytes", "dirty at the end", |it| it.memory.dirty_bytes),
    ];
    Table::of("", &watch.intervals, fields)
}
