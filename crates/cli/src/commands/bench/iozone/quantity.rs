//! The modes of `larder bench iozone`, and the output of their results.

use anyhow::Result;
use clap::ValueEnum;
use larder_lab::bench::iozone::columns;
use larder_lab::bench::iozone::run::{GridRun, widest};
use larder_lab::bench::iozone::throughput::{ThroughputRun, kinds};
use larder_report::run as report;
use larder_schema::format;
use larder_schema::run::Run;

/// The output formats of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// A row for each cell with the rates of all tests, in kB/s; in throughput mode the rates of
    /// parent and children.
    #[default]
    Rows,
    /// As for a spreadsheet: a table for each column, file sizes down, record sizes across, kB/s.
    Tables,
    /// Tables and sentences of all runs.
    Text,
    /// Every value, one line each.
    Csv,
    /// One self-contained page with charts.
    Html,
    /// The record.
    Json,
}

/// A run in one of the two modes.
#[derive(Debug)]
pub(super) enum IozoneRun {
    Grid(GridRun),
    Throughput(ThroughputRun),
}

impl IozoneRun {
    /// Formats a result; with `flushed` the rates of writes include the flush.
    pub(super) fn show(&self, run: &Run, format: Format, flushed: bool) -> Result<String> {
        let body = match format {
            Format::Text => return Ok(report::to_text(run)),
            Format::Csv => return Ok(report::to_csv(run)),
            Format::Html => return Ok(report::to_html(run)),
            Format::Json => return Ok(run.to_json()?),
            Format::Rows => self.rows(run, flushed),
            Format::Tables => self.tables(run, flushed),
        };
        Ok(body + &notes(run, flushed))
    }

    fn rows(&self, run: &Run, flushed: bool) -> String {
        match self {
            IozoneRun::Grid(grid) => grid.rows(run, flushed).to_text(),
            IozoneRun::Throughput(all) => {
                let seen = all.threads.iter().flat_map(|&threads| {
                    let seen = move |kind| Some(all.seen(run, &kind, threads)?.to_text());
                    kinds(&all.tests).into_iter().filter_map(seen)
                });
                seen.collect::<Vec<_>>().join("\n")
            }
        }
    }

    fn tables(&self, run: &Run, flushed: bool) -> String {
        match self {
            IozoneRun::Grid(grid) => {
                let tables = columns(&grid.tests).into_iter();
                tables.map(|it| grid.table(run, &it, flushed && it.writes()).to_text()).collect()
            }
            IozoneRun::Throughput(all) => all.table(run, flushed).to_text(),
        }
    }
}

/// Describes the measurement, the spread of the trials, and the doubts.
fn notes(run: &Run, flushed: bool) -> String {
    let trials = run.trials.len();
    let start = run.trials.first().map_or("as-is", |trial| trial.started.start.name());
    let flush = if flushed { "with" } else { "without" };
    let count = if trials == 1 { "one trial".to_owned() } else { format!("median of {trials}") };
    let mut text = format!("\nkB per second, {count}, start {start}, {flush} the flush of writes");
    if let Some((series, half)) = widest(run, flushed) {
        let half = format::percent(half);
        text.push_str(&["; half the range is at most ", &half, " of it (", series, ")"].concat());
    }
    text.push_str(".\n");
    for doubt in &run.doubts {
        text.push_str(&["\nDoubtful because ", &doubt.text, ".\n"].concat());
    }
    text
}
