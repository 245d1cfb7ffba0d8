//! Responses of the server as text, JSON or CSV.

use crate::args::TableFormat;
use anyhow::Result;
use larder_report::table::Table;
use larder_report::{control, escape};
use larder_schema::control::{AtRisk, ChangeResponse, Files, Stats, VolumeAtRisk, Volumes};
use larder_schema::format;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;

/// A response in all formats.
pub(super) struct Answer {
    /// For people.
    pub(super) text: String,
    pub(super) json: Value,
    /// The table for CSV.
    pub(super) table: Table,
    /// True if the exit code is 1.
    pub(super) has_finding: bool,
}

impl Answer {
    pub(super) fn new(text: String, json: &impl Serialize, table: Table) -> Self {
        Answer { text, json: json!(json), table, has_finding: false }
    }

    /// Returns a response whose text is its table, or `if_empty`.
    pub(super) fn of_table(json: &impl Serialize, table: Table, if_empty: &str) -> Self {
        let text = if table.is_empty() { if_empty.to_owned() } else { table.to_text() };
        Answer::new(text, json, table)
    }

    pub(super) fn print(&self, format: TableFormat) -> Result<()> {
        match format {
            TableFormat::Text => text(&self.text),
            TableFormat::Json => text(&format!("{:#}\n", self.json)),
            TableFormat::Csv => text(&self.table.to_csv()),
        }
    }
}

pub(super) fn text(text: &str) -> Result<()> {
    let mut out = crate::output::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Returns the settings that a request changed.
pub(super) fn changed(changed: &ChangeResponse) -> Answer {
    for note in &changed.notes {
        eprintln!("larder: note: {}", escape::line(note));
    }
    Answer::of_table(changed, control::changes_table(changed), "nothing to change\n")
}

/// Returns the volumes that a request added.
pub(super) fn added(volumes: &Volumes) -> Answer {
    let mut text = String::new();
    for volume in &volumes.volumes {
        let size = volume.length_bytes.map_or_else(String::new, format::bytes);
        let mode = volume.settings.get("write-mode").map_or("", String::as_str);
        let (name, uri) = (&volume.name, &volume.uri);
        writeln!(text, "serving {name} ({size}, {mode}) at {uri}").expect("memory takes it");
    }
    Answer::new(text, volumes, control::volumes_table(volumes))
}

/// Returns the state of requests and stores, or all counters, gauges and latencies.
pub(super) fn stats(now: &Stats, all: bool) -> Answer {
    let (heading, table) = (control::heading(now), control::everything_table(now));
    let text = if all {
        format!("{heading}\n\n{}", table.to_text())
    } else {
        let [requests, stores] =
            [control::requests_table, control::stores_table].map(|it| it(now, None).to_text());
        format!("{heading}\n\n{requests}\n{stores}{}", control::failures_and_findings(now))
    };
    Answer::new(text, now, table)
}

/// Returns the rates since an earlier response, and the totals.
pub(super) fn rates(now: &Stats, earlier: &Stats) -> Answer {
    let (difference, seconds) = now.since(earlier);
    // A server that restarted since then has no previous interval.
    let seconds = seconds.max(0.001);
    let (requests, stores) = (
        control::requests_table(&difference, Some(seconds)),
        control::stores_table(&difference, Some(seconds)),
    );
    let text = format!(
        "{}\n\nthe last {seconds:.2} s\n{}\n{}\nin all\n{}{}",
        control::heading(now),
        requests.to_text(),
        stores.to_text(),
        control::requests_table(now, None).to_text(),
        control::failures_and_findings(now),
    );
    let json = json!({
        "interval_s": seconds,
        "requests": requests.to_json()["rows"],
        "stores": stores.to_json()["rows"],
        "totals": now,
    });
    Answer::new(text, &json, requests)
}

/// Returns the volumes with their settings, or with their locations.
pub(super) fn volumes(volumes: &Volumes, places: bool) -> Answer {
    if places {
        let table = control::places_table(volumes);
        return Answer::new(table.to_text(), volumes, table);
    }
    let table = control::volumes_table(volumes);
    let notes = control::notes(volumes)
        .into_iter()
        .flat_map(|note| ["\n".to_owned(), note, "\n".to_owned()]);
    Answer::new(table.to_text() + &notes.collect::<String>(), volumes, table)
}

/// Returns the first `top` files of a directory; the total is that of all files.
pub(super) fn files(mut files: Files, top: usize) -> Answer {
    files.files.truncate(top);
    let table = control::files_table(&files);
    let mut text = table.to_text();
    let more = files.total.saturating_sub(files.files.len() as u64);
    if more > 0 {
        writeln!(text, "... and {more} more").expect("memory takes it");
    }
    Answer::new(text, &files, table)
}

/// Returns the data that a crash would lose. Writes that fail are a finding.
pub(super) fn at_risk(risk: &AtRisk) -> Answer {
    let table = control::unwritten_table(risk);
    let mut text = table.to_text();
    for warning in control::warnings(risk) {
        text.extend(["\nWARNING: ", &warning]);
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let is_failing = |volume: &VolumeAtRisk| {
        volume.failing_bytes > 0 || volume.flush_failed.is_some() || volume.lost_path.is_some()
    };
    let has_finding = risk.volumes.iter().any(is_failing);
    Answer { has_finding, ..Answer::new(text, risk, table) }
}
