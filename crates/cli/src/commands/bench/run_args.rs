//! The common arguments of all benchmarks, and the execution of one.

use super::bar::RunProgress;
use super::local_host::LocalHost;
use super::ranks::MultiHostArgs;
use crate::args;
use crate::args::FormatArgs;
use crate::commands::compare::percent;
use crate::commands::report::{self, Format};
use crate::output;
use crate::output_file::OutputFile;
use crate::signals::Stop;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use larder_lab::bench::{
    BenchError, Plan, RunResult, SpeedRequirement, Start, Workload, run_trials,
};
use larder_lab::ranks::{Communicator, RankError, RankResults, combine};
use larder_report::run::gathered;
use larder_schema::format;
use larder_schema::run::{Part, Run};
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

#[derive(Clone, Debug, Args)]
pub(super) struct RunArgs {
    /// Cache before each trial: cold, warm or as-is.
    ///
    /// Cold: no page of its files is resident. Warm: all pages are resident. Both are prepared and
    /// verified before each trial. Cold, if not given, unless the benchmark has another default.
    #[arg(long, value_name = "START", value_parser = start)]
    start: Option<Start>,

    /// Drop everything that is cached before a cold start.
    ///
    /// Everything that the machine has cached is dropped before each cold start. Needs root, and
    /// slows down other programs.
    #[arg(long, hide_short_help = true)]
    drop_all: bool,

    /// Number of trials, or a range.
    ///
    /// Minimum and maximum number of trials, as in 6..30, or an exact number.
    #[arg(long, value_name = "MIN..MAX", default_value = "6..30", value_parser = trials)]
    trials: RangeInclusive<u64>,

    /// Largest half of the 95 % interval, or off.
    ///
    /// Repeat until the 95 % interval of the first series is this small to both sides; off: do the
    /// minimum number of trials.
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = confidence,
          hide_short_help = true)]
    confidence: Confidence,

    /// Time limit.
    ///
    /// The current trial is completed, and at least one is done.
    #[arg(long = "for", value_name = "TIME", value_parser = args::time)]
    budget: Option<u64>,

    /// Seed of everything random.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, hide_short_help = true)]
    seed: u64,

    /// Largest loss of speed of the machine, or off.
    ///
    /// Repeat short trials during which the machine was slower than it can be by more than this;
    /// off: all count.
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = confidence,
          hide_short_help = true)]
    same_speed: Confidence,

    /// Count trials as fast as those of this record.
    ///
    /// Count only trials in which the machine was as fast as in this record, for larder compare.
    #[arg(long, value_name = "FILE", value_parser = speed_of, hide_short_help = true)]
    as_fast_as: Option<RecordedSpeed>,

    #[command(flatten)]
    format: FormatArgs<Format>,

    /// Write the record, for compare and report.
    ///
    /// The record is written in addition to the output, for larder compare and larder report; a
    /// page with charts if the name ends in .html.
    #[arg(short, long, value_name = "FILE", value_parser = report::any_format())]
    output: Option<OutputFile>,

    #[command(flatten)]
    pub(super) multi_host: MultiHostArgs,
}

/// Maximum relative half-width of a confidence interval; `None` for no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Confidence(pub(super) Option<f64>);

impl Confidence {
    /// Returns the same tolerance for the speed of the machine, relative to its maximum or to
    /// `as_fast_as`.
    pub(super) fn same_speed(self, as_fast_as: Option<f64>) -> Option<SpeedRequirement> {
        self.0.map(|tolerance| SpeedRequirement { tolerance, as_fast_as })
    }
}

pub(super) fn start(text: &str) -> Result<Start, String> {
    args::one_of("start", text, Start::from_name(text), &Start::ALL.map(Start::name))
}

pub(super) fn confidence(text: &str) -> Result<Confidence, String> {
    if text == "off" { Ok(Confidence(None)) } else { percent(text).map(|it| Confidence(Some(it))) }
}

/// Speed of the machine in a record.
#[derive(Clone, Debug)]
pub(crate) struct RecordedSpeed {
    pub(crate) file: PathBuf,
    speed: f64,
}

/// Reads the speed of the machine from a record.
fn speed_of(file: &str) -> Result<RecordedSpeed, String> {
    let file = PathBuf::from(file);
    let run = report::open(&file).map_err(|error| output::sentence(&error))?;
    match larder_report::compare::speed(&run) {
        Some(speed) => Ok(RecordedSpeed { file, speed }),
        None => Err("it contains no measurement of the machine's speed".to_owned()),
    }
}

/// Parses a range of trials: `6..30`, or `10` for exactly ten.
pub(super) fn trials(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    match (least.parse(), most.parse()) {
        (Ok(least), Ok(most)) if (1..=most).contains(&least) && most <= 10_000 => Ok(least..=most),
        _ => Err(format!("\"{text}\" is no number of trials; write 6..30 or 10, up to 10000")),
    }
}

impl RunArgs {
    /// Returns the plan, with the default start of the benchmark unless the user gave one.
    pub(super) fn plan(&self, default_start: Start) -> Plan {
        Plan {
            start: self.start.unwrap_or(default_start),
            trials: self.trials.clone(),
            confidence: self.confidence.0,
            budget: self.budget,
            seed: self.seed,
            same_speed: self.same_speed.same_speed(self.as_fast_as.as_ref().map(|it| it.speed)),
        }
    }

    /// Leads ranks on other hosts, if `--hosts` is given; returns `None` otherwise. It is called
    /// before any file of the benchmark is examined, as those are on the hosts.
    pub(super) fn lead_ranks(&self, name: &str) -> Result<Option<ExitCode>> {
        if self.multi_host.hosts().is_empty() {
            return Ok(None);
        }
        let stop = Stop::listen()?;
        match self.multi_host.lead(stop.flag()) {
            // The repetitions are as in this process; the parts contain the start.
            Ok(results) => self.finish_ranks(name, &stop, results).map(Some),
            Err(error) => {
                stop.reraise_signal()?;
                Err(anyhow!("run {name} together: {error}"))
            }
        }
    }

    fn finish_ranks(&self, name: &str, stop: &Stop, results: RankResults) -> Result<ExitCode> {
        let run = combine(results, &self.plan(Start::default())).map_err(anyhow::Error::msg)?;
        self.finish(name, stop, Ok(RunResult { run, stopped: false }))
    }

    /// Runs the workload that `make` returns, or leads ranks on other hosts that do, and prints the
    /// result.
    pub(super) fn run<W: Workload>(
        &self,
        name: &str,
        default_start: Start,
        make: impl FnOnce() -> Result<W>,
    ) -> Result<ExitCode> {
        match self.lead_ranks(name)? {
            Some(code) => Ok(code),
            None => self.run_here(&mut make()?, default_start),
        }
    }

    /// Runs a workload on this machine alone or as one of several ranks, and prints the result.
    pub(super) fn run_here(
        &self,
        workload: &mut dyn Workload,
        default_start: Start,
    ) -> Result<ExitCode> {
        let plan = self.plan(default_start);
        let name = workload.name().to_owned();
        let stop = Stop::listen()?;
        let what = format!("{name}: {}", workload.description());
        let (communicator, leader) = self.multi_host.join(what, &stop)?.unzip();
        let communicator = communicator.map(Arc::new);
        let mut progress = RunProgress::new("", workload.parts());
        let mut host = LocalHost::new(self.drop_all);
        if let Some(communicator) = &communicator {
            host = host.with(Arc::<Communicator>::clone(communicator));
            if !communicator.is_rank_0() {
                progress = progress.hidden();
            }
        }
        let mut show = |step| progress.show(step);
        let result = run_trials(workload, &plan, &host, stop.flag(), &mut show);
        progress.end();
        let Some(communicator) = communicator else { return self.finish(&name, &stop, result) };
        let result = communicator.finish(result);
        // The leader waits until the other ranks have cleaned up.
        let leader =
            leader.flatten().map(|leader| leader.join().expect("the leader does not panic"));
        match result {
            Ok(()) => match leader {
                Some(results) => {
                    let together = |error| anyhow!("run {name} together: {error}");
                    self.finish_ranks(&name, &stop, results.map_err(together)?)
                }
                None => Ok(ExitCode::SUCCESS),
            },
            Err(RankError::Others(reason)) => {
                bail!("run {name} together: {reason}; what was made here is removed")
            }
            Err(RankError::Own(error)) => {
                if error.is_stop() {
                    eprintln!("larder: stopped; its test files are removed");
                    stop.reraise_signal()?;
                }
                Err(error).context(format!("run {name}"))
            }
        }
    }

    /// Runs one of several workloads; `part` names it in the progress display.
    pub(super) fn run_one(
        &self,
        workload: &mut dyn Workload,
        stop: &Stop,
        part: &str,
    ) -> Result<RunResult, BenchError> {
        let mut progress = RunProgress::new(part, workload.parts());
        let (plan, host) = (self.plan(Start::Cold), LocalHost::new(self.drop_all));
        let result =
            run_trials(workload, &plan, &host, stop.flag(), &mut |step| progress.show(step));
        progress.end();
        result
    }

    /// Runs one of several workloads after each other, and prints its result. The record contains
    /// the results so far, which are `parts`.
    pub(super) fn run_next(
        &self,
        workload: &mut dyn Workload,
        parts: &mut Vec<Part>,
    ) -> Result<ExitCode> {
        let stop = Stop::listen()?;
        let (workload_name, number) = (workload.name().to_owned(), parts.len() + 1);
        let name = format!("run {number}");
        let result = self.run_one(workload, &stop, &name);
        let write = |run: &Run| {
            let labels = [("run".to_owned(), number.to_string())].into();
            parts.push(Part { name, labels, run: run.clone() });
            let what = format!("{workload_name} in {}", format::counted(number as u64, "run"));
            write_record(&gathered(what, parts.clone()), self.output.as_deref())
        };
        finish(&workload_name, &stop, result, |run| self.format.get().write(run), write)
    }

    /// Prints and writes a result, with the format and the file of these arguments; see [`finish`].
    pub(super) fn finish(
        &self,
        name: &str,
        stop: &Stop,
        result: Result<RunResult, BenchError>,
    ) -> Result<ExitCode> {
        let write = |run: &Run| write_record(run, self.output.as_deref());
        finish(name, stop, result, |run| self.format.get().write(run), write)
    }
}

/// Writes the record of a run into the output file, if there is one.
pub(super) fn write_record(run: &Run, output: Option<&Path>) -> Result<()> {
    output.map_or(Ok(()), |file| {
        let format = Format::from_extension(file).unwrap_or(Format::Json);
        output::write_atomically(file, &format.write(run)?)
    })
}

/// Prints and writes the results: the text also if a file cannot be written, and the files also if
/// the text cannot be printed. A run that a signal stopped prints and writes its results so far,
/// and then ends with the default action of the signal.
pub(super) fn finish(
    name: &str,
    stop: &Stop,
    result: Result<RunResult, BenchError>,
    show: impl FnOnce(&Run) -> Result<String>,
    write: impl FnOnce(&Run) -> Result<()>,
) -> Result<ExitCode> {
    let operation = format!("run {name}");
    let RunResult { mut run, stopped } = match result {
        Err(error) if error.is_stop() => {
            eprintln!("larder: stopped before there was a result; its test files are removed");
            stop.reraise_signal()?;
            return Err(error).context(operation);
        }
        result => result.context(operation)?,
    };
    run.software.insert("larder".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    let text = show(&run)?;
    let printed = crate::output::stdout().write_all(text.as_bytes());
    write(&run)?;
    // A closed pipe is not a failure, so the error must reach main without context.
    printed?;
    if stopped {
        eprintln!("larder: stopped; its test files are removed");
        stop.reraise_signal()?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_are_a_range_or_a_number() {
        assert_eq!(trials("6..30"), Ok(6..=30));
        assert_eq!(trials("10"), Ok(10..=10));
        for wrong in ["", "0", "3..2", "a..b", "..", "-1", "1..20000"] {
            assert!(trials(wrong).unwrap_err().contains("no number of trials"), "{wrong}");
        }
    }

    #[test]
    fn starts_and_confidence_are_named() {
        assert_eq!(start("warm"), Ok(Start::Warm));
        assert_eq!(
            start("hot").unwrap_err(),
            "there is no start \"hot\"; write one of cold, warm, as-is"
        );
        assert_eq!(confidence("off"), Ok(Confidence(None)));
        assert_eq!(confidence("5%"), Ok(Confidence(Some(0.05))));
        for wrong in ["5", "100%", "-1%", "nan%"] {
            assert!(confidence(wrong).is_err(), "{wrong}");
        }
    }
}
