//! `larder bench iozone`: the grid of IOzone, file sizes by record sizes, and its throughput mode;
//! docs/bench-iozone.md.

mod cells;
mod threads;

use super::bar::RunProgress;
use super::leftovers::remove_leftovers;
use super::local_host::LocalHost;
use super::run_args::{Confidence, confidence, finish, start, trials, write_record};
use crate::args::FormatArgs;
use crate::commands::report::any_format;
use crate::free_space::check_directory;
use crate::output;
use crate::output_file::OutputFile;
use crate::signals::Stop;
use anyhow::{Result, ensure};
use cells::GridArgs;
use clap::{Args, ValueEnum};
use larder_lab::bench::iozone::grid::{Cell, RECORD_MAX};
use larder_lab::bench::iozone::show::notes;
use larder_lab::bench::iozone::{
    self, AccessPattern, DEFAULT_TESTS, GridRun, LAST_TEST, MIX_TEST, Mode, STRIDE, Sync,
};
use larder_lab::bench::{Plan, Start};
use larder_report::run as report;
use larder_schema::run::Run;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use threads::ThroughputArgs;

#[derive(Debug, Args)]
pub(super) struct IozoneArgs {
    /// Directory of the files under test.
    ///
    /// The files are created and removed.
    #[arg(value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,

    /// 0 write, 1 read, 2 random, and up to 10; repeatable.
    ///
    /// The tests: 0 write, 1 read, 2 random, 3 backward, 4 record rewrite, 5 stride, 6 fwrite, 7
    /// fread, 8 random mix (with -t, -l or -u only), 9 pwrite, 10 pread; 0 to 7, if none is named.
    #[arg(short = 'i', long = "test", value_name = "NUMBER", value_parser = test)]
    tests: Vec<u8>,

    #[command(flatten)]
    cells: GridArgs,

    #[command(flatten)]
    opening: OpenArgs,

    #[command(flatten)]
    threads: ThroughputArgs,

    /// Include the flush in the rates of writes.
    ///
    /// The record has both rates.
    #[arg(short = 'e', long, hide_short_help = true)]
    flush_counts: bool,

    /// Cache before each reading trial: cold, warm, as-is.
    ///
    /// Cold and warm are prepared and verified. Warm, if not given; with --direct, which reads
    /// nothing from memory, cold.
    #[arg(long, value_name = "START", value_parser = start)]
    start: Option<Start>,

    /// Trials in each cell, or a range.
    ///
    /// Trials of each test in each cell: the minimum and the maximum, as in 6..30, or an exact
    /// number.
    #[arg(long, value_name = "MIN..MAX", default_value = "3", value_parser = trials)]
    trials: RangeInclusive<u64>,

    /// Largest half of the 95 % interval, or off.
    ///
    /// Repeat each test in each cell until the 95 % interval of its first column is this small to
    /// both sides; off: do the minimum number of trials.
    #[arg(long, value_name = "PERCENT", default_value = "off", value_parser = confidence,
          hide_short_help = true)]
    confidence: Confidence,

    /// Largest loss of speed of the machine, or off.
    ///
    /// Repeat short trials during which the machine was slower than in others of the same cell by
    /// more than this; off: all count.
    #[arg(long, value_name = "PERCENT", default_value = "off", value_parser = confidence,
          hide_short_help = true)]
    same_speed: Confidence,

    /// Seed of the bytes of records.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, hide_short_help = true)]
    seed: u64,

    #[command(flatten)]
    format: FormatArgs<Format>,

    /// Write the record, for compare and report.
    ///
    /// The record is written in addition to the output, for larder compare and larder report.
    #[arg(long, value_name = "FILE", value_parser = any_format())]
    output: Option<OutputFile>,

    /// Write the page with the charts as well.
    #[arg(long, value_name = "FILE")]
    page: Option<OutputFile>,
}

#[derive(Debug, Args)]
struct OpenArgs {
    /// Bypass the page cache (`O_DIRECT`).
    #[arg(short = 'I', long)]
    direct: bool,

    /// Make every write wait until it is stable.
    ///
    /// All of it (`O_SYNC`), or its data alone (`O_DSYNC`).
    #[arg(short = 'o', long, value_name = "WHAT", num_args = 0..=1, require_equals = true,
          default_missing_value = "all", hide_short_help = true)]
    sync: Option<SyncMode>,

    /// Include closing the file in the time of each pass.
    #[arg(short = 'c', long, hide_short_help = true)]
    close_counts: bool,

    /// Distance of records in the stride test, in records.
    #[arg(short = 'j', long, value_name = "RECORDS", default_value_t = STRIDE,
          value_parser = clap::value_parser!(u64).range(1..=1 << 40), hide_short_help = true)]
    stride: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SyncMode {
    /// `O_SYNC`.
    All,
    /// `O_DSYNC`.
    Data,
}

impl OpenArgs {
    fn access_pattern(&self) -> AccessPattern {
        let sync = match self.sync {
            None => Sync::None,
            Some(SyncMode::Data) => Sync::Data,
            Some(SyncMode::All) => Sync::All,
        };
        let (direct, close_counts, stride) = (self.direct, self.close_counts, self.stride);
        AccessPattern { direct, sync, close_counts, stride }
    }
}

fn test(text: &str) -> Result<u8, String> {
    let found = text.parse().ok().filter(|test: &u8| *test <= LAST_TEST);
    found.ok_or_else(|| format!("there is no test \"{text}\"; write 0 to {LAST_TEST}"))
}

impl IozoneArgs {
    fn plan(&self) -> Result<Plan> {
        let direct = self.opening.direct;
        let start = self.start.unwrap_or(if direct { Start::Cold } else { Start::Warm });
        ensure!(
            !(direct && start == Start::Warm),
            "start warm with --direct: nothing is read from memory then; leave --start out"
        );
        Ok(Plan {
            start,
            trials: self.trials.clone(),
            confidence: self.confidence.0,
            budget: None,
            seed: self.seed,
            same_speed: self.same_speed.same_speed(None),
        })
    }

    /// Refuses record sizes that cannot be used.
    fn check(&self, cell: &Cell) -> Result<()> {
        let record = cell.record_bytes;
        ensure!(record > 0 && record <= RECORD_MAX, "use records of {record} bytes: 1 to 16MiB");
        let fits = !self.opening.direct || record.is_multiple_of(4096);
        ensure!(fits, "use records of {record} bytes with --direct: a multiple of 4KiB");
        Ok(())
    }

    /// Returns the mode of the arguments.
    fn mode(&self) -> Result<Box<dyn Mode>> {
        check_directory(&self.directory)?;
        remove_leftovers(&self.directory, "iozone");
        let (access, directory) = (self.opening.access_pattern(), self.directory.clone());
        if self.threads.is_enabled() {
            let cell = self.cells.single_cell()?;
            self.check(&cell)?;
            return Ok(Box::new(self.threads.run(cell, &self.tests, access, directory)?));
        }
        let thread_options = "use --no-stonewall or --mix-readers: they are for threads (-t 4)";
        ensure!(!self.threads.has_options(), thread_options);
        let mix = "run test 8: it mixes readers and writers, so it needs threads (-t 4)";
        ensure!(!self.tests.contains(&MIX_TEST), mix);
        let grid = self.cells.grid();
        grid.cells().iter().try_for_each(|cell| self.check(cell))?;
        let default = DEFAULT_TESTS.to_vec();
        let tests = if self.tests.is_empty() { default } else { self.tests.clone() };
        Ok(Box::new(GridRun { grid, tests, access, directory }))
    }

    /// Formats a result.
    fn show(&self, mode: &dyn Mode, run: &Run) -> Result<String> {
        let flushed = self.flush_counts;
        let body = match self.format.get() {
            Format::Text => return Ok(report::to_text(run)),
            Format::Csv => return Ok(report::to_csv(run)),
            Format::Html => return Ok(report::to_html(run)),
            Format::Json => return Ok(run.to_json()?),
            Format::Rows => mode.rows(run, flushed),
            Format::Tables => mode.tables(run, flushed),
        };
        Ok(body + &notes(run, flushed))
    }
}

/// The output formats of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
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

pub(super) fn run(arguments: &IozoneArgs) -> Result<ExitCode> {
    let (mode, plan) = (arguments.mode()?, arguments.plan()?);
    let stop = Stop::listen()?;
    let mut progress = RunProgress::new("", mode.work_parts());
    let mut watch = |step| progress.show(step);
    let result = iozone::run(&*mode, &plan, &LocalHost::new(false), stop.flag(), &mut watch);
    progress.end();
    let write = |run: &Run| {
        let record = write_record(run, arguments.output.as_deref());
        let page = arguments.page.as_ref();
        record
            .and(page.map_or(Ok(()), |page| output::write_atomically(page, &report::to_html(run))))
    };
    finish("iozone", &stop, result, |run| arguments.show(&*mode, run), write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_known_by_number_and_others_are_not() {
        assert_eq!((test("0"), test("8"), test("10")), (Ok(0), Ok(8), Ok(10)));
        for wrong in ["11", "-1", "write", ""] {
            assert!(test(wrong).unwrap_err().contains("no test"), "{wrong}");
        }
    }
}
