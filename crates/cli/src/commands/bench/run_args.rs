//! The common arguments of all benchmarks, and the execution of one.

use super::bar::{Bar, remaining_time};
use super::local_host::LocalHost;
use super::ranks::MultiHostArgs;
use crate::args;
use crate::args::FormatArgs;
use crate::commands::compare::percent;
use crate::commands::report::{self, Format};
use crate::output;
use crate::output_file::OutputFile;
use crate::signals::Stop;
use anyhow::{Context, Result};
use clap::Args;
use larder_lab::bench::{
    BenchError, InParts, PartsProgress, Plan, Progress, RunResult, SameSpeed, Start, Step,
    Workload, play_parts, run_trials,
};
use larder_schema::format;
use larder_schema::run::Run;
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Clone, Debug, Args)]
pub(super) struct RunArgs {
    /// State of the cache before each trial: cold (no page of its files is resident), warm (all
    /// are) or as-is. The first two are prepared and verified before each trial. Default: cold,
    /// unless the benchmark has another one.
    #[arg(long, value_name = "START", value_parser = start)]
    start: Option<Start>,

    /// Drop everything that the machine has cached before each cold start. Needs root, and slows
    /// down other programs.
    #[arg(long)]
    drop_all: bool,

    /// Minimum and maximum number of trials, as in 6..30, or an exact number.
    #[arg(long, value_name = "MIN..MAX", default_value = "6..30", value_parser = trials)]
    trials: RangeInclusive<u64>,

    /// Repeat until the 95 % interval of the first series is this small to both sides; off: do the
    /// minimum number of trials.
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = confidence)]
    confidence: Confidence,

    /// Time limit; the current trial is completed, and at least one is done.
    #[arg(long = "for", value_name = "TIME", value_parser = args::time)]
    budget: Option<u64>,

    /// Seed of everything random.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Repeat short trials during which the machine was slower than it can be by more than this;
    /// off: all count.
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = confidence)]
    same_speed: Confidence,

    /// Count only trials in which the machine was as fast as in this record, for larder compare.
    #[arg(long, value_name = "FILE", value_parser = speed_of)]
    as_fast_as: Option<RecordedSpeed>,

    #[command(flatten)]
    format: FormatArgs<Format>,

    /// Write the record as well, for larder compare and larder report.
    #[arg(short, long, value_name = "FILE")]
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
    pub(super) fn same_speed(self, as_fast_as: Option<f64>) -> Option<SameSpeed> {
        self.0.map(|tolerance| SameSpeed { tolerance, as_fast_as })
    }
}

pub(super) fn start(text: &str) -> Result<Start, String> {
    let known = Start::ALL.map(Start::name).join(", ");
    Start::from_name(text).ok_or_else(|| format!("there is no start \"{text}\"; one of {known}"))
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
    let run = report::open(&file).map_err(|error| format!("{error:#}"))?;
    match larder_report::run::speed(&run) {
        Some(speed) => Ok(RecordedSpeed { file, speed }),
        None => Err("nobody measured in it how fast the machine was".to_owned()),
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

    /// Runs a workload on this machine and prints the result.
    pub(super) fn run(&self, workload: &mut dyn Workload) -> Result<ExitCode> {
        self.run_from(workload, Start::Cold)
    }

    /// Runs a workload with another default start than cold, and prints the result.
    pub(super) fn run_from(
        &self,
        workload: &mut dyn Workload,
        default_start: Start,
    ) -> Result<ExitCode> {
        let plan = self.plan(default_start);
        let (name, description) = (workload.name().to_owned(), workload.description());
        self.run_ranked(&name, &description, |host, stop, bar| {
            run_trials(workload, &plan, host, stop, &mut |progress| bar.show(progress))
        })
    }

    /// Runs a workload in parts that share their setup, and prints the result.
    pub(super) fn run_parts(
        &self,
        name: &str,
        bench: &mut dyn InParts,
        default_start: Start,
    ) -> Result<ExitCode> {
        let plan = self.plan(default_start);
        let description = bench.description();
        self.run_ranked(name, &description, |host, stop, bar| {
            let mut show = |progress: PartsProgress| {
                if progress.parts > 1 {
                    bar.part = format!("part {} of {}: ", progress.part, progress.parts);
                }
                bar.show(progress.progress);
            };
            play_parts(bench, &plan, host, stop, &mut show)
        })
    }

    /// Returns this machine as the environment of a benchmark.
    pub(super) fn host(&self) -> LocalHost {
        LocalHost::new(self.drop_all)
    }

    /// Runs one of several workloads; `part` names it in the progress display.
    pub(super) fn run_one(
        &self,
        workload: &mut dyn Workload,
        stop: &Stop,
        part: &str,
    ) -> Result<RunResult, BenchError> {
        let mut bar = Trials::new(part);
        let mut show = |progress| bar.show(progress);
        let plan = self.plan(Start::Cold);
        let result = run_trials(workload, &plan, &self.host(), stop.flag(), &mut show);
        bar.end();
        result
    }

    /// Prints and writes a result, with the format and the file of these arguments; see [`finish`].
    pub(super) fn finish(
        &self,
        name: &str,
        result: (Stop, Result<RunResult, BenchError>),
    ) -> Result<ExitCode> {
        let write = |run: &Run| write_record(run, self.output.as_deref());
        finish(name, result, |run| self.format.get().write(run), write)
    }
}

/// Writes the record of a run into the output file, if there is one.
pub(super) fn write_record(run: &Run, output: Option<&Path>) -> Result<()> {
    output.map_or(Ok(()), |file| output::write_atomically(file, &run.to_json()?))
}

/// Prints and writes the results: the text also if a file cannot be written, and the files also if
/// the text cannot be printed. A run that a signal stopped prints and writes its results so far,
/// and then ends with the default action of the signal.
pub(super) fn finish(
    name: &str,
    (stop, result): (Stop, Result<RunResult, BenchError>),
    show: impl FnOnce(&Run) -> Result<String>,
    write: impl FnOnce(&Run) -> Result<()>,
) -> Result<ExitCode> {
    let operation = format!("run {name}");
    let RunResult { mut run, stopped } = match result {
        Err(error) if error.is_stop() => {
            eprintln!("larder: stopped before the first trial; what it made is removed");
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
        eprintln!("larder: stopped; what it made is removed");
        stop.reraise_signal()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Progress of a workload, trial by trial.
pub(super) struct Trials {
    bar: Bar,
    /// Prefix of the task; may be empty.
    part: String,
}

impl Trials {
    pub(super) fn new(part: &str) -> Self {
        let part = if part.is_empty() { String::new() } else { format!("{part}: ") };
        Trials { bar: Bar::new("of up to {len} trials"), part }
    }

    /// Returns a display without output.
    pub(super) fn hidden() -> Self {
        Trials { bar: Bar::hidden(), part: String::new() }
    }

    fn show(&mut self, progress: Progress) {
        let task = match progress.step {
            Step::Preparing => "preparing",
            Step::Starting => "making the start",
            Step::Waiting => "waiting until the machine is as fast again",
            Step::Running => "running",
            Step::CleaningUp => "removing what was made",
        };
        let half = progress.half_width.map(|half| format!(", +-{}", format::percent(half)));
        let suffix = half.unwrap_or_default() + &remaining_time(progress.left);
        self.bar.show([progress.done, progress.most], &format!("{}{task}", self.part), &suffix);
    }

    pub(super) fn end(&mut self) {
        self.bar.end();
    }
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
            "there is no start \"hot\"; one of cold, warm, as-is"
        );
        assert_eq!(confidence("off"), Ok(Confidence(None)));
        assert_eq!(confidence("5%"), Ok(Confidence(Some(0.05))));
        for wrong in ["5", "100%", "-1%", "nan%"] {
            assert!(confidence(wrong).is_err(), "{wrong}");
        }
    }
}
