//! The bottleneck as text and as a page.

use super::evidence::utilization;
use crate::escape;
use crate::host_counters::{disks_table, metadata_table, processes_table, whole_table};
use crate::page::{self, Card, Head, all_rows, list, section};
use crate::share_bars::share_bars;
use crate::table::Table;
use crate::watch::not_counted;
use larder_schema::as_u64;
use larder_schema::bottleneck::{Bottleneck, BottleneckKind};
use larder_schema::format;
use larder_schema::host_counters::HostDisk;

/// Number of disks in the chart.
const BARS: usize = 12;
/// Number of processes in the text.
const PROCESSES: usize = 10;

/// Renders the bottleneck as sentences and tables.
#[must_use]
pub fn to_text(bottleneck: &Bottleneck) -> String {
    let counters = &bottleneck.counters;
    let mut text = format!("{}.\n", bottleneck.verdict);
    for sentence in sentences(bottleneck) {
        put_line!(text, "{sentence}");
    }
    for table in tables(bottleneck, PROCESSES) {
        put!(text, "\n{}", table.to_text());
    }
    if !bottleneck.next.is_empty() {
        put!(text, "\nNext steps\n");
        for step in &bottleneck.next {
            put_line!(text, "  {step}");
        }
    }
    if !counters.notes.is_empty() {
        put!(text, "\n");
        for note in &counters.notes {
            put_line!(text, "{}", escape::line(note));
        }
    }
    text
}

/// Renders the page.
#[must_use]
pub fn to_html(bottleneck: &Bottleneck) -> String {
    let counters = &bottleneck.counters;
    let head = Head {
        kind: "larder advise".to_owned(),
        verdict: bottleneck.verdict.clone(),
        cards: cards(bottleneck),
        subject: sentences(bottleneck),
    };
    let mut body = section("Use", &bars(bottleneck));
    if !bottleneck.next.is_empty() {
        body.push_str(&section("Next steps", &list(&bottleneck.next)));
    }
    for table in tables(bottleneck, counters.processes.len()) {
        let rows = all_rows(&table);
        body.push_str(&section(table.title(), &rows));
    }
    if !counters.notes.is_empty() {
        body.push_str(&section("Notes", &list(&counters.notes)));
    }
    page::page(&head, &body, &bottleneck.to_json())
}

/// Draws the use of disks and processors.
fn bars(bottleneck: &Bottleneck) -> String {
    let counters = &bottleneck.counters;
    let busy = |disk: &HostDisk| Some((disk.disk.clone(), vec![("bar", utilization(disk)?)]));
    let mut rows: Vec<_> = counters.disks.iter().take(BARS).filter_map(busy).collect();
    rows.extend(counters.cpu.busy.map(|busy| ("processors".to_owned(), vec![("bar", busy)])));
    let waiting = counters.memory.io_pressure;
    rows.extend(waiting.map(|share| ("waiting".to_owned(), vec![("without", share)])));
    let caption = match waiting {
        Some(_) => "Share of the time: busy, or with a task that waited for I/O.",
        None => "Share of the time: busy.",
    };
    page::figure(|width| share_bars(&bottleneck.verdict, &rows, width), caption, None)
}

fn tables(bottleneck: &Bottleneck, processes: usize) -> Vec<Table> {
    let counters = &bottleneck.counters;
    let all = [
        disks_table(&counters.disks),
        whole_table(counters),
        metadata_table(&counters.metadata),
        processes_table(&counters.processes, processes),
    ];
    all.into_iter().filter(|table| !table.is_empty()).collect()
}

fn sentences(bottleneck: &Bottleneck) -> Vec<String> {
    let counters = &bottleneck.counters;
    let mut facts = vec![escape::text(&counters.source).into_owned()];
    facts.extend(counters.seconds.map(self::seconds));
    facts.push(format::counted(counters.samples, "sample"));
    let mut sentences = bottleneck.reasons.clone();
    sentences.push(format!("Source: {} ({}).", bottleneck.subject, facts.join(", ")));
    sentences.extend(counters.uncounted_disks.iter().map(|disk| not_counted(disk)));
    sentences
}

fn cards(bottleneck: &Bottleneck) -> Vec<Card> {
    let counters = &bottleneck.counters;
    let disk = bottleneck.disk.as_ref().and_then(|name| {
        counters.disks.iter().find(|disk| disk.disk == *name).or(counters.disks.first())
    });
    let share = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), format::percent);
    let of_disk = |disk: &HostDisk| {
        let latency = disk.seconds_per_request().map_or_else(|| "-".to_owned(), seconds);
        let queue = disk.queue.map_or_else(|| "-".to_owned(), format::number);
        [
            Card::new("Busy", share(disk.busy), disk.disk.clone()),
            Card::new("Queue", queue, "requests".to_owned()),
            Card::new("Request", latency, "mean response time".to_owned()),
        ]
    };
    let mut cards: Vec<Card> = disk.map(of_disk).into_iter().flatten().collect();
    cards.push(Card::new("Processors", share(counters.cpu.busy), "busy".to_owned()));
    cards
}

/// Formats seconds in a suitable unit.
pub(super) fn seconds(seconds: f64) -> String {
    format::duration(as_u64(seconds * 1e9))
}

/// Returns the next steps for a kind of bottleneck.
pub(super) fn next_steps(kind: BottleneckKind) -> &'static [&'static str] {
    match kind {
        BottleneckKind::Nothing => &[],
        BottleneckKind::Processor => &[
            "Find the function that takes the time: perf top",
            "Faster disks and larger caches will not help.",
        ],
        BottleneckKind::SmallCache => &[
            "Find out how much cache is enough: larder size --live --for 10m",
            "Put such a cache in front of the directory or disk: larder mount, larder serve",
        ],
        BottleneckKind::SlowDisk => &[
            "Compare the disk with its model: larder model check MODEL DEVICE",
            "Look for errors, a rebuild or a limit of the provider: smartctl -a, /proc/mdstat",
            "Reduce requests with a cache: larder size --live --for 10m",
        ],
        BottleneckKind::OneWriter => &[
            "Limit the I/O of that process (ionice, io.max), or the dirty memory of the host \
             (vm.dirty_bytes).",
            "Move its files to another disk: larder balance",
        ],
        BottleneckKind::SaturatedDisk => &[
            "Find the files and move some to other disks: larder watch, larder balance",
            "Choose an array for the load: larder trace record, larder advise TRACE",
            "Reduce requests with a cache: larder size --live --for 10m",
        ],
        BottleneckKind::SerialRequests => &[
            "Reduce requests with a cache: larder size --live --for 10m",
            "More requests in flight, read-ahead or a disk with shorter response times help; more \
             disks of the same kind do not.",
        ],
        BottleneckKind::Unknown => &["Find the files and processes: larder watch --for 1m"],
    }
}
