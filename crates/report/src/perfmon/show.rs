//! Renderings of a log: as text, CSV, JSON and HTML.

use crate::chart::{Axis, Chart, Labels};
use crate::escape::html as escape;
use crate::findings;
use crate::page::{self, card, html_table};
use crate::table::{Cell, Column, Table};
use larder_schema::format;
use larder_schema::perfmon::Summary;

/// Minimum difference between two ratios for a warning: five percentage points.
const MISLEADING_MIN: f64 = 0.05;
/// Width and height of a chart in HTML.
const CHART: (u32, u32) = (760, 260);

/// Returns a cell for a number that may be missing.
fn number(value: Option<f64>) -> Cell {
    value.map_or_else(Cell::missing, Cell::number)
}

fn percent(value: Option<f64>) -> Cell {
    value.map_or_else(Cell::missing, Cell::percent)
}

fn bytes(value: Option<f64>) -> Cell {
    value.map_or_else(Cell::missing, |value| Cell::shown(value, format::bytes(rounded(value))))
}

/// Returns a cell for seconds, in a suitable unit.
fn seconds(value: Option<f64>) -> Cell {
    value.map_or_else(Cell::missing, |value| {
        Cell::shown(value, format::duration(rounded(value * 1e9)))
    })
}

fn rounded(value: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let whole = value.round() as u64;
    whole
}

/// Renders the summary for a terminal.
#[must_use]
pub fn to_text(summary: &Summary) -> String {
    let mut text = format!("{}\n", heading(summary));
    for table in tables(summary) {
        put!(text, "\n{}", table.to_text());
    }
    for sentence in sentences(summary) {
        put!(text, "\n{sentence}\n");
    }
    if !summary.findings.is_empty() {
        put!(text, "\nFindings\n\n{}", findings::to_text(&summary.findings));
    }
    if !summary.notes.is_empty() {
        text.push_str("\nNotes\n\n");
        for note in &summary.notes {
            put_line!(text, "  {note}");
        }
    }
    text
}

/// Renders each value as a CSV line: table, words of the row, value name, value.
#[must_use]
pub fn to_csv(summary: &Summary) -> String {
    let mut all = Table::new(
        "",
        [
            Column::words("table", "table"),
            Column::words("what", "what"),
            Column::words("name", "name"),
            Column::numbers("value", "value"),
        ],
    );
    for table in tables(summary) {
        let json = table.to_json();
        let rows = json["rows"].as_array().cloned().unwrap_or_default();
        for row in rows {
            let words: Vec<&str> =
                row.as_object().into_iter().flatten().filter_map(|(_, v)| v.as_str()).collect();
            let row_words = words.join(" ");
            for (name, value) in row.as_object().into_iter().flatten() {
                if let Some(value) = value.as_f64() {
                    let title = json["title"].as_str().unwrap_or_default();
                    all.push([
                        Cell::word(title),
                        Cell::word(&row_words),
                        Cell::word(name),
                        Cell::number(value),
                    ]);
                }
            }
        }
    }
    all.to_csv()
}

/// Renders the summary as a summary-contained HTML page.
#[must_use]
pub fn to_html(summary: &Summary) -> String {
    let title = if summary.host.is_empty() { "Log of Perfmon" } else { &summary.host };
    let mut body = format!(
        "<header>\n<p class=\"kind\">larder report, Perfmon</p>\n<h1>{}</h1>\n<p>{}</p>\n\
         </header>\n<div class=\"cards\">\n",
        escape(title),
        escape(&heading(summary))
    );
    for interface in &summary.interfaces {
        if let Some(ratio) = interface.hit_ratio {
            let note = interface.averaged_hit_ratio.map_or_else(String::new, |unweighted| {
                format!("averages say {}", format::percent(unweighted))
            });
            body.push_str(&card(
                &format!("Hits, {}", interface.interface),
                &format::percent(ratio),
                &note,
            ));
        }
    }
    body.push_str("</div>\n");
    for sentence in sentences(summary) {
        put_line!(body, "<p class=\"why\">{}</p>", escape(&sentence));
    }
    if !summary.findings.is_empty() {
        let found = escape(&findings::to_text(&summary.findings));
        put!(body, "<section>\n<h2>Findings</h2>\n<pre>{found}</pre>\n</section>\n");
    }
    for (unit, title) in [("ratio", "Hits"), ("per second", "Pages"), ("bytes", "Memory")] {
        body.push_str(&chart_section(summary, unit, title));
    }
    for table in tables(summary) {
        put!(
            body,
            "<section>\n<h2>{}</h2>\n{}</section>\n",
            escape(table.title()),
            html_table(&table)
        );
    }
    if !summary.notes.is_empty() {
        body.push_str("<section>\n<h2>Notes</h2>\n<ul>\n");
        for note in &summary.notes {
            put_line!(body, "<li>{}</li>", escape(note));
        }
        body.push_str("</ul>\n</section>\n");
    }
    page::page(title, &body, &summary.to_json())
}

fn heading(summary: &Summary) -> String {
    let host = if summary.host.is_empty() { String::new() } else { format!("{}: ", summary.host) };
    let samples = match summary.interval_s {
        Some(interval) => format!(
            "{} samples from {} to {}, one in {}",
            format::count(summary.samples),
            summary.begin,
            summary.end,
            format::duration(rounded(interval * 1e9))
        ),
        None => format!("one sample at {}", summary.begin),
    };
    format!("{host}{samples}; names of counters: {}", summary.language)
}

fn chart_section(summary: &Summary, unit: &str, title: &str) -> String {
    let labels = match unit {
        "ratio" => Labels::Percent,
        "bytes" => Labels::Bytes,
        _ => Labels::Number,
    };
    let y_axis = Axis::new(title, if unit == "per second" { "1/s" } else { "" }).labels(labels);
    let y_axis = if unit == "ratio" { y_axis.range(0.0, 1.0) } else { y_axis };
    let mut chart = Chart::new("", Axis::new("time", "s"), y_axis);
    for line in summary.lines.iter().filter(|line| line.unit == unit) {
        chart.line(line.name, line.points.iter().copied());
    }
    // A log without these counters has no chart of them.
    let Ok(svg) = chart.to_svg(CHART.0, CHART.1) else { return String::new() };
    format!("<section>\n<h2>{title} over time</h2>\n<figure>\n{svg}</figure>\n</section>\n")
}

/// Returns notes on the tables.
fn sentences(summary: &Summary) -> Vec<String> {
    let mut sentences = Vec::new();
    for interface in &summary.interfaces {
        let (Some(ratio), Some(unweighted)) = (interface.hit_ratio, interface.averaged_hit_ratio)
        else {
            continue;
        };
        if (ratio - unweighted).abs() > MISLEADING_MIN {
            sentences.push(format!(
                "The average of the samples misleads for {}: it says {}, but of all calls {} \
                 hit. Intervals with few calls count there as much as those with many.",
                interface.interface,
                format::percent(unweighted),
                format::percent(ratio)
            ));
        }
    }
    let uncounted: Vec<&str> = summary
        .interfaces
        .iter()
        .filter(|interface| interface.calls_per_s.is_none())
        .map(|interface| interface.interface)
        .collect();
    if !uncounted.is_empty() {
        sentences.push(format!(
            "The log has hits but no calls of {}, so only the average of the samples can be \
             told; record the calls per second as well.",
            uncounted.join(", ")
        ));
    }
    if !summary.absent.is_empty() {
        sentences.push(format!("The log has nothing of {}.", summary.absent.join(", ")));
    }
    if !summary.missing.is_empty() {
        sentences.push(format!(
            "Not in the log, or under a name that is not known: {}.",
            summary.missing.join(", ")
        ));
    }
    if let (false, [first, others @ ..]) = (summary.missing.is_empty(), summary.unknown.as_slice())
    {
        let others = match others.len() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        sentences.push(format!(
            "Passed over: {first}{others}. Names are known in English and German, and of \
             memory and disks in French and Spanish; --names takes a list of the names of \
             that machine."
        ));
    }
    sentences
}

fn tables(summary: &Summary) -> Vec<Table> {
    let tables = [
        interface_table(summary),
        burst_table(summary),
        disk_table(summary),
        memory_table(summary),
    ];
    let all = tables.into_iter().chain([process_table(summary)]);
    all.filter(|table| !table.is_empty()).collect()
}

fn interface_table(summary: &Summary) -> Table {
    let mut table = Table::new(
        "Reads of the cache",
        [
            Column::words("interface", "interface"),
            Column::numbers("calls_per_s", "calls/s"),
            Column::numbers("hit_ratio", "hits"),
            Column::numbers("averaged_hit_ratio", "as averaged"),
            Column::numbers("misses_per_s", "misses/s"),
        ],
    );
    for interface in &summary.interfaces {
        table.push([
            Cell::word(interface.interface),
            number(interface.calls_per_s),
            percent(interface.hit_ratio),
            percent(interface.averaged_hit_ratio),
            number(interface.misses_per_s),
        ]);
    }
    let others = [
        ("of copy: fast", summary.fast_reads_per_s),
        ("of data map: pinned", summary.data_map_pins_per_s),
        ("read-ahead", summary.read_aheads_per_s),
    ];
    for (name, rate) in others.into_iter().filter(|(_, rate)| rate.is_some()) {
        let missing = Cell::missing;
        table.push([Cell::word(name), number(rate), missing(), missing(), missing()]);
    }
    table
}

fn burst_table(summary: &Summary) -> Table {
    let mut table = Table::new(
        "Writes of the cache",
        [
            Column::words("what", "what"),
            Column::numbers("bursts_per_s", "bursts/s"),
            Column::numbers("pages_per_s", "pages/s"),
            Column::numbers("pages_per_burst", "pages/burst"),
            Column::numbers("pages_per_s_max", "most pages/s"),
        ],
    );
    for bursts in &summary.bursts {
        table.push([
            Cell::word(bursts.what),
            Cell::number(bursts.bursts_per_s),
            Cell::number(bursts.pages_per_s),
            number(bursts.pages_per_burst),
            Cell::number(bursts.pages_per_s_max),
        ]);
    }
    table
}

fn disk_table(summary: &Summary) -> Table {
    let mut table = Table::new(
        "Disks",
        [
            Column::words("disk", "disk"),
            Column::numbers("reads_per_s", "reads/s"),
            Column::numbers("seconds_per_read", "a read"),
            Column::numbers("bytes_per_read", "bytes"),
            Column::numbers("read_time", "% time"),
            Column::numbers("writes_per_s", "writes/s"),
            Column::numbers("seconds_per_write", "a write"),
            Column::numbers("bytes_per_write", "bytes"),
            Column::numbers("write_time", "% time"),
            Column::numbers("queue", "queue"),
            Column::numbers("splits_per_s", "splits/s"),
        ],
    );
    for disk in &summary.disks {
        table.push([
            Cell::word(format!("{} {}", disk.object, disk.disk)),
            number(disk.reads_per_s),
            seconds(disk.seconds_per_read),
            bytes(disk.bytes_per_read),
            percent(disk.read_time),
            number(disk.writes_per_s),
            seconds(disk.seconds_per_write),
            bytes(disk.bytes_per_write),
            percent(disk.write_time),
            number(disk.queue),
            number(disk.splits_per_s),
        ]);
    }
    table
}

fn memory_table(summary: &Summary) -> Table {
    let columns = [
        Column::words("memory", "memory"),
        Column::numbers("first", "first"),
        Column::numbers("least", "least"),
        Column::numbers("mean", "mean"),
        Column::numbers("most", "most"),
        Column::numbers("last", "last"),
    ];
    let mut table = Table::new("Memory", columns);
    let Some(memory) = &summary.memory else { return table };
    let missing = Cell::missing;
    table.push([
        Cell::word("available"),
        missing(),
        bytes(memory.available_min_bytes),
        bytes(memory.available_mean_bytes),
        missing(),
        missing(),
    ]);
    table.push([
        Cell::word("cache"),
        bytes(memory.cache_first_bytes),
        bytes(memory.cache_min_bytes),
        missing(),
        bytes(memory.cache_max_bytes),
        bytes(memory.cache_last_bytes),
    ]);
    table.push([
        Cell::word("paging, pages/s"),
        missing(),
        missing(),
        number(memory.pages_per_s),
        number(memory.pages_per_s_max),
        missing(),
    ]);
    table
}

fn process_table(summary: &Summary) -> Table {
    let mut table = Table::new(
        "Processes",
        [
            Column::words("process", "process"),
            Column::numbers("read_bytes_per_s", "read/s"),
            Column::numbers("write_bytes_per_s", "written/s"),
            Column::numbers("private_first_bytes", "own memory, first"),
            Column::numbers("private_last_bytes", "last"),
        ],
    );
    for process in &summary.processes {
        table.push([
            Cell::word(&process.process),
            bytes(process.read_bytes_per_s),
            bytes(process.write_bytes_per_s),
            bytes(process.private_first_bytes),
            bytes(process.private_last_bytes),
        ]);
    }
    table
}
