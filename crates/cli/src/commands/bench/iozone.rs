//! `larder bench iozone`: the grid of IOzone, file sizes by record sizes; docs/bench-iozone.md.

use super::playing::{finish, start, trials};
use super::surroundings::Here;
use crate::signals::Stop;
use crate::{args, progress};
use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use larder_lab::bench::{Plan, Start};
use larder_lab::workload::iozone::grid::{Grid, RECORD_MAX, Sizes};
use larder_lab::workload::iozone::passes::{Manner, Sync};
use larder_lab::workload::iozone::run::{GridProgress, GridRun};
use larder_lab::workload::iozone::{DEFAULT_TESTS, LAST_TEST, columns, order};
use larder_report::format;
use larder_report::run::Run;
use std::io::IsTerminal;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The folder in which the file under test is made and removed.
    #[arg(value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,

    /// A test: 0 write, 1 read, 2 random, 3 backward, 4 record rewrite, 5 stride, 6 fwrite,
    /// 7 fread, 9 pwrite, 10 pread; 0 to 7, if none is named.
    #[arg(short = 'i', long = "test", value_name = "NUMBER", value_parser = test)]
    tests: Vec<u8>,

    /// A file size, instead of the range.
    #[arg(short = 's', long = "file", value_name = "SIZE", value_parser = args::bytes)]
    files: Vec<u64>,

    /// A record size, instead of the range.
    #[arg(short = 'r', long = "record", value_name = "SIZE", value_parser = args::bytes)]
    records: Vec<u64>,

    /// The smallest file.
    #[arg(short = 'n', long, value_name = "SIZE", default_value = "64KiB",
          value_parser = args::bytes)]
    min_file: u64,

    /// The largest file.
    #[arg(short = 'g', long, value_name = "SIZE", default_value = "512MiB",
          value_parser = args::bytes)]
    max_file: u64,

    /// The smallest record.
    #[arg(short = 'y', long, value_name = "SIZE", default_value = "4KiB",
          value_parser = args::bytes)]
    min_record: u64,

    /// The largest record.
    #[arg(short = 'q', long, value_name = "SIZE", default_value = "16MiB",
          value_parser = args::bytes)]
    max_record: u64,

    /// Measure small records of large files too.
    #[arg(short = 'z', long)]
    no_cross_over: bool,

    /// Past the page cache (O_DIRECT).
    #[arg(short = 'I', long)]
    direct: bool,

    /// Every write waits until it is stable (O_SYNC).
    #[arg(short = 'o', long)]
    sync: bool,

    /// The same for data alone (O_DSYNC).
    #[arg(long, conflicts_with = "sync")]
    dsync: bool,

    /// Closing the file counts.
    #[arg(short = 'c', long)]
    close_counts: bool,

    /// The rates of writes in tables include the flush; records always have both.
    #[arg(short = 'e', long)]
    flush_counts: bool,

    /// Records from one to the next of the stride test.
    #[arg(short = 'j', long, value_name = "RECORDS", default_value_t = order::STRIDE,
          value_parser = clap::value_parser!(u64).range(1..))]
    stride: u64,

    /// From where each trial of a test that reads starts: cold, warm or as-is. The first two are
    /// made and read back.
    #[arg(long, value_name = "START", default_value = "warm", value_parser = start)]
    start: Start,

    /// Trials of each test in each cell.
    #[arg(long, value_name = "NUMBER", default_value = "3", value_parser = trials)]
    trials: RangeInclusive<u64>,

    /// Where the bytes of records come from.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// How to print the result.
    #[arg(long, value_name = "FORMAT", default_value = "tables")]
    format: Format,

    /// Write the record as well, for larder compare and larder report.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One table for each column, as for a spreadsheet: file sizes down, record sizes across, kB/s.
    Tables,
    /// Tables and sentences of all runs.
    Text,
    /// Every value, one line each.
    Csv,
    /// One page with charts that needs nothing else.
    Html,
    /// The record.
    Json,
}

fn test(text: &str) -> Result<u8, String> {
    let known = |test: &u8| *test <= LAST_TEST && !columns(&[*test]).is_empty();
    let found = text.parse().ok().filter(known);
    found.ok_or_else(|| format!("there is no test \"{text}\" in the grid; 0 to 7, 9 and 10"))
}

impl Arguments {
    fn grid(&self) -> Result<GridRun> {
        let sizes = |list: &[u64], least, most| match list {
            [] => Sizes::Range { least, most },
            list => Sizes::List(list.to_vec()),
        };
        let grid = Grid {
            files: sizes(&self.files, self.min_file, self.max_file),
            records: sizes(&self.records, self.min_record, self.max_record),
            // Sizes that are named are all meant.
            cross_over: !self.no_cross_over && self.files.is_empty() && self.records.is_empty(),
            ..Grid::default()
        };
        for cell in grid.cells() {
            let record = cell.record_bytes;
            ensure!(
                record > 0 && record <= RECORD_MAX,
                "use records of {record} bytes: 1 to 16MiB"
            );
            let fits = !self.direct || record % 4096 == 0;
            ensure!(fits, "use records of {record} bytes with --direct: a multiple of 4KiB");
        }
        let sync = match (self.sync, self.dsync) {
            (true, _) => Sync::All,
            (false, true) => Sync::Data,
            (false, false) => Sync::None,
        };
        let (direct, close_counts, stride) = (self.direct, self.close_counts, self.stride);
        let manner = Manner { direct, sync, close_counts, stride };
        let tests = if self.tests.is_empty() { DEFAULT_TESTS.to_vec() } else { self.tests.clone() };
        ensure!(self.folder.is_dir(), "work in {}: it is no folder", self.folder.display());
        Ok(GridRun { grid, tests, manner, folder: self.folder.clone() })
    }

    fn show(&self, grid: &GridRun, run: &Run) -> Result<String> {
        Ok(match self.format {
            Format::Text => run.to_text(),
            Format::Csv => run.to_csv(),
            Format::Html => run.to_html(),
            Format::Json => run.to_json()?,
            Format::Tables => {
                let tables = columns(&grid.tests).into_iter().map(|column| {
                    let flushed = self.flush_counts && column.name.contains("write");
                    grid.table(run, &column, flushed).to_text()
                });
                let doubts = run.doubts.iter().map(|doubt| format!("doubtful: {}\n", doubt.text));
                tables.chain(["\n".to_owned()]).chain(doubts).collect()
            }
        })
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let grid = arguments.grid()?;
    let plan = Plan {
        start: arguments.start,
        trials: arguments.trials.clone(),
        confidence: None,
        budget: None,
        seed: arguments.seed,
        ..Plan::default()
    };
    let stop = Stop::listen()?;
    let mut bar = Bar::new();
    let here = Here::new(false);
    let result = grid.run(&plan, &here, stop.flag(), &mut |at| bar.show(&at));
    bar.end();
    let show = |run: &Run| arguments.show(&grid, run);
    finish("iozone", (stop, result), show, arguments.output.as_deref())
}

/// How far the grid is: a bar on a terminal, a line now and then elsewhere.
struct Bar {
    bar: Option<ProgressBar>,
    begun: Instant,
    last_line: Instant,
}

impl Bar {
    fn new() -> Self {
        let template = "{msg} [{bar:30}] {pos} of {len}{prefix}";
        let bar = std::io::stderr().is_terminal().then(|| progress::bar(1, template));
        Bar { bar, begun: Instant::now(), last_line: Instant::now() }
    }

    fn show(&mut self, at: &GridProgress) {
        let [done, all] = at.done.map(|count| count as u64);
        let [bytes, all_bytes] = at.bytes;
        let cell = format!(
            "test {} of {} in records of {}",
            at.test,
            format::bytes(at.cell.file_bytes),
            format::bytes(at.cell.record_bytes)
        );
        // Time goes with the bytes.
        let left = self.begun.elapsed().as_nanos() * u128::from(all_bytes - bytes.min(all_bytes));
        let left = left.checked_div(u128::from(bytes)).and_then(|left| u64::try_from(left).ok());
        let left = left.map_or(String::new(), |left| format!(", {} left", format::duration(left)));
        if let Some(bar) = &self.bar {
            bar.set_length(all);
            bar.set_position(done);
            bar.set_message(cell);
            bar.set_prefix(left);
        } else if self.last_line.elapsed() > LINE_EVERY {
            self.last_line = Instant::now();
            eprintln!("{cell}: {done} of {all}{left}");
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_the_grid_are_known_and_others_are_not() {
        assert_eq!((test("0"), test("10")), (Ok(0), Ok(10)));
        for wrong in ["8", "11", "-1", "write", ""] {
            assert!(test(wrong).unwrap_err().contains("no test"), "{wrong}");
        }
    }
}
