//! Renderings of a log: as text, CSV, JSON and HTML.

mod tables;

use super::counters::{Counter, Kind};
use crate::chart::{Axis, Chart, Labels};
use crate::findings;
use crate::page::{self, Card, Head, details, html_table, list, section};
use crate::table::{Cell, Column, Table};
use larder_schema::perfmon::{Interface, Line, Summary};
use larder_schema::{as_u64, format};
use tables::tables;

/// Counters of the table of bursts.
const BURST_COUNTERS: [Counter; 4] = [
    Counter::LazyWriteFlushes,
    Counter::LazyWritePages,
    Counter::DataFlushes,
    Counter::DataFlushPages,
];
/// Minimum difference between two ratios for a warning: five percentage points.
const MISLEADING_MIN: f64 = 0.05;
/// Height of a chart in HTML, in pixels.
const CHART_HEIGHT: f64 = 260.0;

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
    let columns = ["table", "what", "name", "value"].map(|key| Column::words(key, key));
    let mut all = Table::new("", columns);
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

/// Renders the summary as a self-contained HTML page.
#[must_use]
pub fn to_html(summary: &Summary) -> String {
    let mut subject = vec![heading(summary) + "."];
    subject.extend(sentences(summary));
    let head = Head {
        kind: "larder report, Perfmon".to_owned(),
        verdict: verdict(summary),
        cards: cards(summary),
        subject,
    };
    let mut body = page::findings(&summary.findings);
    for (unit, title) in [
        ("ratio", "Hit ratio"),
        ("misses per second", "Misses"),
        ("per second", "Pages"),
        ("bytes", "Memory"),
    ] {
        body.push_str(&chart_section(summary, unit, title));
    }
    for table in tables(summary) {
        body.push_str(&section(table.title(), &html_table(&table)));
    }
    body.push_str(&details("Notes", &list(&summary.notes)));
    page::page(&head, &body, &summary.to_json())
}

/// Returns the calls and the misses per second of all interfaces with both counters.
fn all_calls(summary: &Summary) -> (f64, f64) {
    let known = summary.interfaces.iter().filter_map(|it| it.calls_per_s.zip(it.misses_per_s));
    known.fold((0.0, 0.0), |sums, (calls, misses)| (sums.0 + calls, sums.1 + misses))
}

/// Returns the answer: the hit ratio of all calls, and the interface with the most misses.
fn verdict(summary: &Summary) -> String {
    let known: Vec<(&Interface, f64)> =
        summary.interfaces.iter().filter_map(|it| Some((it, it.hit_ratio?))).collect();
    let misses = |it: &Interface| it.misses_per_s.unwrap_or(0.0);
    let Some(main) = known.iter().max_by(|a, b| misses(a.0).total_cmp(&misses(b.0))) else {
        return "The log has no hit ratio of the file cache".to_owned();
    };
    let (calls, all_misses) = all_calls(summary);
    if known.len() == 1 || calls <= 0.0 {
        let (interface, ratio) = (main.0.interface, format::percent(main.1));
        return format!("{ratio} of the {interface} reads were hits");
    }
    let (ratio, rate) = (format::percent(1.0 - all_misses / calls), format::rate(calls, "calls"));
    let verdict = format!("{ratio} of {rate} were hits");
    if all_misses <= 0.0 {
        return verdict;
    }
    let share = format::percent(misses(main.0) / all_misses);
    format!("{verdict}; {share} of the misses came from {} reads", main.0.interface)
}

/// Returns the weighted hit ratio of each interface, with its lowest sample if that is much lower.
fn cards(summary: &Summary) -> Vec<Card> {
    let card = |it: &Interface| {
        let ratio = it.hit_ratio?;
        let average = it
            .averaged_hit_ratio
            .map(|unweighted| format!("the average of samples is {}", format::percent(unweighted)));
        let mut lines = summary.lines.iter().filter(|line| line.unit == "ratio");
        let points = lines.find(|line| line.name == it.interface).map(|line| &line.points);
        let lowest = points.into_iter().flatten().min_by(|a, b| a.1.total_cmp(&b.1));
        let lowest = lowest.filter(|(_, lowest)| *lowest < ratio - MISLEADING_MIN);
        let lowest = lowest.map(|(seconds, lowest)| {
            let (percent, after) = (format::percent(*lowest), format::number(*seconds));
            format!("the lowest sample is {percent}, after {after} s")
        });
        let notes: Vec<String> = average.into_iter().chain(lowest).collect();
        Some(Card::new(format!("Hits, {}", it.interface), format::percent(ratio), notes.join("; ")))
    };
    summary.interfaces.iter().filter_map(card).collect()
}

fn heading(summary: &Summary) -> String {
    let host = if summary.host.is_empty() { String::new() } else { format!("{}: ", summary.host) };
    let samples = match summary.interval_s {
        Some(interval) => format!(
            "{} samples from {} to {}, one in {}",
            format::count(summary.samples),
            summary.begin,
            summary.end,
            format::duration(as_u64(interval * 1e9))
        ),
        None => format!("one sample at {}", summary.begin),
    };
    format!("{host}{samples}; names of counters: {}", summary.language)
}

/// Returns the chart of all lines with a unit; the key has the values of the whole log. A log
/// without these counters has no chart of them.
fn chart_section(summary: &Summary, unit: &str, title: &str) -> String {
    let lines: Vec<&Line> = summary.lines.iter().filter(|line| line.unit == unit).collect();
    // A single line has no key.
    let name = match lines.as_slice() {
        [line] if unit != "misses per second" => line.name,
        _ => title,
    };
    let axis = Axis::new(name, if unit.ends_with("per second") { "1/s" } else { "" });
    let y_axis = match unit {
        "ratio" => axis.labels(Labels::Percent).range(0.0, 1.0),
        "bytes" => axis.labels(Labels::Bytes).from_zero(),
        _ => axis.from_zero(),
    };
    let mut chart = Chart::new("", Axis::new("time", "s"), y_axis);
    for line in &lines {
        chart.line(key(summary, line), line.points.iter().copied());
    }
    let caption = match unit {
        "ratio" if lines.len() > 1 => "The key has the ratio of all calls of the log.",
        _ => "",
    };
    let description = format!("{title} by time since the start of the log");
    let figure = chart.to_figure(CHART_HEIGHT, &description, caption, None);
    figure.map_or_else(String::new, |figure| section(&format!("{title} over time"), &figure))
}

/// Returns the name of a line, with the hit ratio of the whole log or the share of all misses.
fn key(summary: &Summary, line: &Line) -> String {
    let interface = summary.interfaces.iter().find(|it| it.interface == line.name);
    let (calls, misses) = all_calls(summary);
    let value = match (line.unit, interface) {
        ("ratio", Some(it)) => it.hit_ratio.map(format::percent),
        ("ratio", None) => (calls > 0.0).then(|| format::percent(1.0 - misses / calls)),
        ("misses per second", Some(it)) => {
            it.misses_per_s.filter(|_| misses > 0.0).map(|of_interface| {
                format!("{} of all misses", format::percent(of_interface / misses))
            })
        }
        _ => None,
    };
    value.map_or_else(|| line.name.to_owned(), |value| format!("{}, {value}", line.name))
}

/// Returns notes on the tables.
fn sentences(summary: &Summary) -> Vec<String> {
    let mut sentences = Vec::new();
    let misleading = summary.interfaces.iter().filter_map(|interface| {
        let (ratio, unweighted) = interface.hit_ratio.zip(interface.averaged_hit_ratio)?;
        ((ratio - unweighted).abs() > MISLEADING_MIN).then(|| {
            format!(
                "for {}: it is {}, but of all calls {} hit",
                interface.interface,
                format::percent(unweighted),
                format::percent(ratio)
            )
        })
    });
    let misleading: Vec<String> = misleading.collect();
    if !misleading.is_empty() {
        sentences.push(format!(
            "The average of the samples misleads {}. Intervals with few calls count there as much \
             as those with many.",
            misleading.join("; ")
        ));
    }
    let uncounted: Vec<&str> = summary
        .interfaces
        .iter()
        .filter(|interface| interface.calls_per_s.is_none())
        .map(|interface| interface.interface)
        .collect();
    if !uncounted.is_empty() {
        sentences.push(format!(
            "The log has hits but no calls of {}, so the hit ratio is an average of samples; \
             record the calls per second as well.",
            uncounted.join(", ")
        ));
    }
    if !summary.absent.is_empty() {
        sentences.push(format!("The log has nothing of {}.", summary.absent.join(", ")));
    }
    let missing: Vec<&str> =
        summary.missing.iter().copied().filter(|it| has_table(summary, it)).collect();
    if !missing.is_empty() {
        sentences.push(format!(
            "Not in the log, or under a name that is not known: {}.",
            missing.join(", ")
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

/// Returns true if the table to which a counter belongs is shown.
fn has_table(summary: &Summary, counter: &str) -> bool {
    let is_of = |kind| Counter::of(kind).any(|it| it.english() == counter);
    if BURST_COUNTERS.iter().any(|it| it.english() == counter) {
        !summary.bursts.is_empty()
    } else if is_of(Kind::Cache) {
        !summary.interfaces.is_empty()
    } else if is_of(Kind::Memory) {
        summary.memory.is_some()
    } else {
        !summary.disks.is_empty()
    }
}
