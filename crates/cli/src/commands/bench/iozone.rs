//! `larder bench iozone`: the grid of IOzone, file sizes by record sizes, and its throughput mode;
//! docs/bench-iozone.md.

mod cells;
mod opening;
mod quantity;
mod size;
mod threads;

use super::bar::{Bar, left};
use super::leftovers::clear_up;
use super::local_host::LocalHost;
use super::run_args::{Confidence, confidence, finish, start, trials, write_record};
use crate::output::{self, OutputFile};
use crate::signals::Stop;
use anyhow::{Result, ensure};
use cells::Cells;
use clap::Args;
use larder_lab::bench::{Plan, Start};
use larder_lab::workload::iozone::grid::{Cell, RECORD_MAX};
use larder_lab::workload::iozone::run::GridRun;
use larder_lab::workload::iozone::sequence::Progressed;
use larder_lab::workload::iozone::{DEFAULT_TESTS, LAST_TEST, MIX_TEST};
use larder_report::run::Run;
use opening::Opening;
use quantity::{Format, Shown};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use threads::Throughput;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The directory in which the files under test are made and removed.
    #[arg(value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,

    /// A test: 0 write, 1 read, 2 random, 3 backward, 4 record rewrite, 5 stride, 6 fwrite,
    /// 7 fread, 8 random mix (with -t, -l or -u only), 9 pwrite, 10 pread; 0 to 7, if none is
    /// named. May be repeated.
    #[arg(short = 'i', long = "test", value_name = "NUMBER", value_parser = test)]
    tests: Vec<u8>,

    #[command(flatten)]
    cells: Cells,

    #[command(flatten)]
    opening: Opening,

    #[command(flatten)]
    threads: Throughput,

    /// The rates of writes that are shown include the flush; the record has both.
    #[arg(short = 'e', long)]
    flush_counts: bool,

    /// From where each trial of a test that reads starts: cold, warm or as-is. The first two are
    /// made and read back. Warm, if not given; with --direct, which reads nothing from memory,
    /// cold.
    #[arg(long, value_name = "START", value_parser = start)]
    start: Option<Start>,

    /// Trials of each test in each cell; the fewest and the most, as in 6..30, or exactly so many.
    #[arg(long, value_name = "MIN..MAX", default_value = "3", value_parser = trials)]
    trials: RangeInclusive<u64>,

    /// Repeat each test in each cell until the 95 % interval of its first column is this small to
    /// both sides; off: do the fewest trials.
    #[arg(long, value_name = "PERCENT", default_value = "off", value_parser = confidence)]
    confidence: Confidence,

    /// Set short trials aside during which the machine was slower than in others of the same cell
    /// by more than this, and do them again; off: all count.
    #[arg(long, value_name = "PERCENT", default_value = "off", value_parser = confidence)]
    same_speed: Confidence,

    /// Where the bytes of records come from.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// How to print the result.
    #[arg(long, value_name = "FORMAT", default_value = "rows")]
    format: Format,

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

impl Arguments {
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

    /// Whether records of this size can be worked with.
    fn check(&self, cell: &Cell) -> Result<()> {
        let record = cell.record_bytes;
        ensure!(record > 0 && record <= RECORD_MAX, "use records of {record} bytes: 1 to 16MiB");
        let fits = !self.opening.direct || record.is_multiple_of(4096);
        ensure!(fits, "use records of {record} bytes with --direct: a multiple of 4KiB");
        Ok(())
    }

    /// What is to be done.
    fn wanted(&self) -> Result<Shown> {
        ensure!(
            self.directory.is_dir(),
            "work in {}: it is no directory",
            self.directory.display()
        );
        clear_up(&self.directory, "iozone");
        let (manner, directory) = (self.opening.manner(), self.directory.clone());
        if self.threads.is_wanted() {
            let cell = self.cells.one()?;
            self.check(&cell)?;
            return Ok(Shown::Throughput(self.threads.run(
                cell,
                &self.tests,
                manner,
                directory,
            )?));
        }
        let alone = "use --no-stonewall or --mix-readers: they are for threads (-t 4)";
        ensure!(!self.threads.is_meant(), alone);
        let mix = "run test 8: it mixes readers and writers, so it needs threads (-t 4)";
        ensure!(!self.tests.contains(&MIX_TEST), mix);
        let grid = self.cells.grid();
        grid.cells().iter().try_for_each(|cell| self.check(cell))?;
        let default = DEFAULT_TESTS.to_vec();
        let tests = if self.tests.is_empty() { default } else { self.tests.clone() };
        Ok(Shown::Grid(GridRun { grid, tests, manner, directory }))
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (wanted, plan) = (arguments.wanted()?, arguments.plan()?);
    let stop = Stop::listen()?;
    let (mut bar, begun) = (Bar::new("of {len} tests"), Instant::now());
    let here = LocalHost::new(false);
    let mut watch = |at: Progressed<'_>| show(&mut bar, begun, &at);
    let result = match &wanted {
        Shown::Grid(grid) => grid.run(&plan, &here, stop.flag(), &mut watch),
        Shown::Throughput(all) => all.run(&plan, &here, stop.flag(), &mut watch),
    };
    bar.end();
    let text = |run: &Run| wanted.show(run, arguments.format, arguments.flush_counts);
    let write = |run: &Run| {
        let record = write_record(run, arguments.output.as_deref());
        let page = arguments.page.as_ref();
        record.and(page.map_or(Ok(()), |page| output::write_whole(page, &run.to_html())))
    };
    finish("iozone", (stop, result), text, write)
}

/// Says how far it is. Time goes with the bytes.
fn show(bar: &mut Bar, begun: Instant, at: &Progressed<'_>) {
    let [bytes, all_bytes] = at.bytes;
    let time_left = begun.elapsed().as_nanos() * u128::from(all_bytes - bytes.min(all_bytes));
    let time_left = time_left.checked_div(u128::from(bytes));
    let rest = left(time_left.and_then(|left| u64::try_from(left).ok()));
    bar.show(at.done.map(|count| count as u64), at.what, &rest);
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
