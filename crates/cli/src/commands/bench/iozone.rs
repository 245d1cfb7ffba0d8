//! `larder bench iozone`: the grid of IOzone, file sizes by record sizes, and its throughput mode;
//! docs/bench-iozone.md.

mod cells;
mod opening;
mod quantity;
mod size;
mod threads;

use super::bar::{Bar, remaining_time};
use super::leftovers::remove_leftovers;
use super::local_host::LocalHost;
use super::run_args::{Confidence, confidence, finish, start, trials, write_record};
use crate::args::FormatArgs;
use crate::output;
use crate::output_file::OutputFile;
use crate::signals::Stop;
use anyhow::{Result, ensure};
use cells::GridArgs;
use clap::Args;
use larder_lab::bench::iozone::grid::{Cell, RECORD_MAX};
use larder_lab::bench::iozone::run::GridRun;
use larder_lab::bench::iozone::sequence::Progressed;
use larder_lab::bench::iozone::{DEFAULT_TESTS, LAST_TEST, MIX_TEST};
use larder_lab::bench::{Plan, Start};
use larder_schema::run::Run;
use opening::OpenArgs;
use quantity::{Format, IozoneRun};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use threads::ThroughputArgs;

#[derive(Debug, Args)]
pub(super) struct IozoneArgs {
    /// The directory in which the files under test are created and removed.
    #[arg(value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,

    /// A test: 0 write, 1 read, 2 random, 3 backward, 4 record rewrite, 5 stride, 6 fwrite,
    /// 7 fread, 8 random mix (with -t, -l or -u only), 9 pwrite, 10 pread; 0 to 7, if none is
    /// named. May be repeated.
    #[arg(short = 'i', long = "test", value_name = "NUMBER", value_parser = test)]
    tests: Vec<u8>,

    #[command(flatten)]
    cells: GridArgs,

    #[command(flatten)]
    opening: OpenArgs,

    #[command(flatten)]
    threads: ThroughputArgs,

    /// Show rates of writes that include the flush; the record has both.
    #[arg(short = 'e', long)]
    flush_counts: bool,

    /// State of the cache before each trial of a test that reads: cold, warm or as-is. The first
    /// two are prepared and verified. Warm, if not given; with --direct, which reads nothing from
    /// memory, cold.
    #[arg(long, value_name = "START", value_parser = start)]
    start: Option<Start>,

    /// Trials of each test in each cell: the minimum and the maximum, as in 6..30, or an exact
    /// number.
    #[arg(long, value_name = "MIN..MAX", default_value = "3", value_parser = trials)]
    trials: RangeInclusive<u64>,

    /// Repeat each test in each cell until the 95 % interval of its first column is this small to
    /// both sides; off: do the minimum number of trials.
    #[arg(long, value_name = "PERCENT", default_value = "off", value_parser = confidence)]
    confidence: Confidence,

    /// Repeat short trials during which the machine was slower than in others of the same cell by
    /// more than this; off: all count.
    #[arg(long, value_name = "PERCENT", default_value = "off", value_parser = confidence)]
    same_speed: Confidence,

    /// Seed of the bytes of records.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    format: FormatArgs<Format>,

    /// Write the record as well, for larder compare and larder report.
    #[arg(long, value_name = "FILE")]
    output: Option<OutputFile>,

    /// Write the page with the charts as well.
    #[arg(long, value_name = "FILE")]
    page: Option<OutputFile>,
}

fn test(text: &str) -> Result<u8, String> {
    let found = text.parse().ok().filter(|test: &u8| *test <= LAST_TEST);
    found.ok_or_else(|| format!("there is no test \"{text}\"; 0 to {LAST_TEST}"))
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

    /// Returns the run of the arguments.
    fn iozone_run(&self) -> Result<IozoneRun> {
        ensure!(
            self.directory.is_dir(),
            "work in {}: it is no directory",
            self.directory.display()
        );
        remove_leftovers(&self.directory, "iozone");
        let (manner, directory) = (self.opening.access_pattern(), self.directory.clone());
        if self.threads.is_enabled() {
            let cell = self.cells.single_cell()?;
            self.check(&cell)?;
            return Ok(IozoneRun::Throughput(self.threads.run(
                cell,
                &self.tests,
                manner,
                directory,
            )?));
        }
        let thread_options = "use --no-stonewall or --mix-readers: they are for threads (-t 4)";
        ensure!(!self.threads.has_options(), thread_options);
        let mix = "run test 8: it mixes readers and writers, so it needs threads (-t 4)";
        ensure!(!self.tests.contains(&MIX_TEST), mix);
        let grid = self.cells.grid();
        grid.cells().iter().try_for_each(|cell| self.check(cell))?;
        let default = DEFAULT_TESTS.to_vec();
        let tests = if self.tests.is_empty() { default } else { self.tests.clone() };
        Ok(IozoneRun::Grid(GridRun { grid, tests, manner, directory }))
    }
}

pub(super) fn run(arguments: &IozoneArgs) -> Result<ExitCode> {
    let (iozone_run, plan) = (arguments.iozone_run()?, arguments.plan()?);
    let stop = Stop::listen()?;
    let (mut bar, started_at) = (Bar::new("of {len} tests"), Instant::now());
    let host = LocalHost::new(false);
    let mut watch = |progress: Progressed<'_>| show(&mut bar, started_at, &progress);
    let result = match &iozone_run {
        IozoneRun::Grid(grid) => grid.run(&plan, &host, stop.flag(), &mut watch),
        IozoneRun::Throughput(all) => all.run(&plan, &host, stop.flag(), &mut watch),
    };
    bar.end();
    let text = |run: &Run| iozone_run.show(run, arguments.format.get(), arguments.flush_counts);
    let write = |run: &Run| {
        let record = write_record(run, arguments.output.as_deref());
        let page = arguments.page.as_ref();
        record.and(page.map_or(Ok(()), |page| {
            output::write_atomically(page, &larder_report::run::to_html(run))
        }))
    };
    finish("iozone", (stop, result), text, write)
}

/// Updates the progress bar; the remaining time is estimated from the bytes.
fn show(bar: &mut Bar, started_at: Instant, progress: &Progressed<'_>) {
    let [bytes, all_bytes] = progress.bytes;
    let left_ns = started_at.elapsed().as_nanos() * u128::from(all_bytes - bytes.min(all_bytes));
    let left_ns = left_ns.checked_div(u128::from(bytes));
    let suffix = remaining_time(left_ns.and_then(|left| u64::try_from(left).ok()));
    bar.show(progress.done.map(|count| count as u64), progress.what, &suffix);
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
