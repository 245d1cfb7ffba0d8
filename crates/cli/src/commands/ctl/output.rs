//! Responses of the server as text, JSON or CSV.

use crate::args::TableFormat;
use anyhow::Result;
use larder_report::control;
use larder_report::table::Table;
use larder_schema::control::{AtRisk, Changed, Curves, Files, Stats, Volumes};
use larder_schema::format;
use serde_json::{Value, json};
use std::any::Any;
use std::io::Write;
use std::process::ExitCode;

/// A response that can be printed, once or repeatedly.
pub(super) trait Answer {
    /// Formats the response for people.
    fn to_text(&self) -> String;
    /// Returns the JSON of the server.
    fn to_json(&self) -> Value;
    /// Returns the table for CSV.
    fn table(&self) -> Table;
    /// Returns the difference from an earlier response: text for people, JSON, and the table for
    /// CSV. By default returns the response itself, for responses without rates.
    fn since(&self, _earlier: &dyn Answer) -> (String, Value, Table) {
        (self.to_text(), self.to_json(), self.table())
    }
    /// Returns the response itself, for comparison with a later one.
    fn as_any(&self) -> &dyn Any;

    /// Prints the response.
    fn print(&self, format: TableFormat) -> Result<()> {
        match format {
            TableFormat::Text => text(&self.to_text()),
            TableFormat::Json => text(&format!("{:#}\n", self.to_json())),
            TableFormat::Csv => text(&self.table().to_csv()),
        }
    }
}

/// Prints a text.
pub(super) fn text(text: &str) -> Result<()> {
    let mut out = crate::output::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Settings that a request changed.
pub(super) struct Changes(pub(super) Changed);

impl Changes {
    pub(super) fn print(&self, format: TableFormat) -> Result<()> {
        print(&json!(self.0), &control::changes_table(&self.0), "nothing to change\n", format)
    }
}

/// Volumes that a request added.
pub(super) struct AddedVolumes(pub(super) Volumes);

impl AddedVolumes {
    pub(super) fn print(&self, format: TableFormat) -> Result<()> {
        match format {
            TableFormat::Text => self.0.volumes.iter().try_for_each(|volume| {
                let size = volume.length_bytes.map_or_else(String::new, format::bytes);
                let mode = volume.settings.get("write-mode").map_or("", String::as_str);
                text(&format!("serving {} ({size}, {mode}) at {}\n", volume.name, volume.uri))
            }),
            TableFormat::Json => text(&format!("{:#}\n", json!(self.0))),
            TableFormat::Csv => text(&control::volumes_table(&self.0).to_csv()),
        }
    }
}

/// Counters, gauges and latencies.
pub(super) struct Statistics {
    pub(super) now: Stats,
    /// True if text lists all of them too.
    pub(super) all: bool,
}

impl Answer for Statistics {
    fn to_text(&self) -> String {
        if self.all {
            return format!(
                "{}\n\n{}",
                control::heading(&self.now),
                control::everything_table(&self.now).to_text()
            );
        }
        let (requests, stores) =
            (control::requests_table(&self.now, None), control::stores_table(&self.now, None));
        let findings = control::failures_and_findings(&self.now);
        let heading = control::heading(&self.now);
        format!("{heading}\n\n{}\n{}{findings}", requests.to_text(), stores.to_text())
    }

    fn to_json(&self) -> Value {
        json!(self.now)
    }

    fn table(&self) -> Table {
        control::everything_table(&self.now)
    }

    fn since(&self, earlier: &dyn Answer) -> (String, Value, Table) {
        let earlier = earlier.as_any().downcast_ref::<Statistics>().expect("of the same kind");
        let (difference, seconds) = self.now.since(&earlier.now);
        // A server that restarted since then has no previous interval.
        let seconds = seconds.max(0.001);
        let (requests, stores) = (
            control::requests_table(&difference, Some(seconds)),
            control::stores_table(&difference, Some(seconds)),
        );
        let text = format!(
            "{}\n\nthe last {seconds:.2} s\n{}\n{}\nin all\n{}{}",
            control::heading(&self.now),
            requests.to_text(),
            stores.to_text(),
            control::requests_table(&self.now, None).to_text(),
            control::failures_and_findings(&self.now),
        );
        let json = json!({
            "interval_s": seconds,
            "requests": requests.to_json()["rows"],
            "stores": stores.to_json()["rows"],
            "totals": self.now,
        });
        (text, json, requests)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Volumes and their settings.
pub(super) struct VolumeList {
    pub(super) volumes: Volumes,
    pub(super) places: bool,
}

impl Answer for VolumeList {
    fn to_text(&self) -> String {
        let mut text = self.table().to_text();
        for note in control::notes(&self.volumes).iter().filter(|_| !self.places) {
            for part in ["\n", note, "\n"] {
                text.push_str(part);
            }
        }
        text
    }

    fn to_json(&self) -> Value {
        json!(self.volumes)
    }

    fn table(&self) -> Table {
        if self.places {
            control::places_table(&self.volumes)
        } else {
            control::volumes_table(&self.volumes)
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Curves and recommendations.
pub(super) struct CurveTable(pub(super) Curves);

impl Answer for CurveTable {
    fn to_text(&self) -> String {
        control::curves_to_text(&self.0)
    }

    fn to_json(&self) -> Value {
        json!(self.0)
    }

    fn table(&self) -> Table {
        control::curves_table(&self.0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Prints a response that needs no repetition.
pub(super) fn print(
    json: &Value,
    table: &Table,
    if_empty: &str,
    format: TableFormat,
) -> Result<()> {
    match format {
        TableFormat::Text if table.is_empty() => text(if_empty),
        TableFormat::Text => text(&table.to_text()),
        TableFormat::Json => text(&format!("{json:#}\n")),
        TableFormat::Csv => text(&table.to_csv()),
    }
}

/// Files of a directory.
pub(super) struct CachedFiles(Files);

impl CachedFiles {
    /// Limits the list to `top` files in every format; the total is that of all files.
    pub(super) fn first(mut files: Files, top: usize) -> CachedFiles {
        files.files.truncate(top);
        CachedFiles(files)
    }
}

impl Answer for CachedFiles {
    fn to_text(&self) -> String {
        let shown = self.0.files.len() as u64;
        let mut text = self.table().to_text();
        if shown < self.0.total {
            let more = self.0.total - shown;
            text = format!("{text}... and {more} more\n");
        }
        text
    }

    fn to_json(&self) -> Value {
        json!(self.0)
    }

    fn table(&self) -> Table {
        control::files_table(&self.0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Data that a crash would lose.
pub(super) struct AtRiskAnswer(pub(super) AtRisk);

impl AtRiskAnswer {
    /// Returns exit code 1 for writes that fail, which are a finding.
    pub(super) fn exit_code(&self) -> ExitCode {
        let is_failing = |volume: &larder_schema::control::VolumeAtRisk| {
            volume.failing_bytes > 0 || volume.flush_failed.is_some() || volume.lost_path.is_some()
        };
        ExitCode::from(u8::from(self.0.volumes.iter().any(is_failing)))
    }
}

impl Answer for AtRiskAnswer {
    fn to_text(&self) -> String {
        let mut text = self.table().to_text();
        for warning in control::warnings(&self.0) {
            text.push_str("\nWARNING: ");
            text.push_str(&warning);
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text
    }

    fn to_json(&self) -> Value {
        json!(self.0)
    }

    fn table(&self) -> Table {
        control::unwritten_table(&self.0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
