//! What all benchmarks have in common on the command line, and playing one.

use super::bar::{Bar, left};
use super::local_host::LocalHost;
use super::ranks::MultiHostArgs;
use crate::args;
use crate::commands::compare::percent;
use crate::commands::report::{self, Format};
use crate::output::{self, OutputFile};
use crate::signals::Stop;
use anyhow::{Context, Result};
use clap::Args;
use larder_lab::bench::{
    BenchError, InParts, PartsProgress, Plan, Progress, RunResult, SameSpeed, Start, Step,
    Workload, play_parts, run_trials,
};
use larder_report::format;
use larder_report::run::Run;
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Clone, Debug, Args)]
pub(super) struct RunArgs {
    /// From where each trial starts: cold (nothing of its files in memory), warm (all of them) or
    /// as-is. The first two are made and read back before each trial. Cold, if nothing else is the
    /// custom of the benchmark.
    #[arg(long, value_name = "START", value_parser = start)]
    start: Option<Start>,

    /// Before each cold start drop everything that the machine has cached. Needs root, and slows
    /// down whatever else runs.
    #[arg(long)]
    drop_all: bool,

    /// The fewest and the most trials, as in 6..30, or exactly so many.
    #[arg(long, value_name = "MIN..MAX", default_value = "6..30", value_parser = trials)]
    trials: RangeInclusive<u64>,

    /// Repeat until the 95 % interval of the first series is this small to both sides; off: do the
    /// fewest trials.
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = confidence)]
    confidence: Confidence,

    /// The time that may be spent; the trial at hand is not cut short, and one is always done.
    #[arg(long = "for", value_name = "TIME", value_parser = args::time)]
    budget: Option<u64>,

    /// Where everything random comes from.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Set short trials aside during which the machine was slower than it can be by more than this,
    /// and do them again; off: all count.
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = confidence)]
    same_speed: Confidence,

    /// Trials count while the machine is as fast as it was in this record, for larder compare.
    #[arg(long, value_name = "FILE", value_parser = speed_of)]
    as_fast_as: Option<RecordedSpeed>,

    /// How to print the result.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,

    /// Write the record as well, for larder compare and larder report.
    #[arg(short, long, value_name = "FILE")]
    output: Option<OutputFile>,

    #[command(flatten)]
    pub(super) together: MultiHostArgs,
}

/// How small an interval is to be; none for any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Confidence(pub(super) Option<f64>);

impl Confidence {
    /// The same as how much slower than it can be, or than `as_fast_as`, the machine may be.
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
    match run.speed() {
        Some(speed) => Ok(RecordedSpeed { file, speed }),
        None => Err("nobody measured in it how fast the machine was".to_owned()),
    }
}

/// `6..30`, or `10` for exactly ten.
pub(super) fn trials(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    match (least.parse(), most.parse()) {
        (Ok(least), Ok(most)) if (1..=most).contains(&least) && most <= 10_000 => Ok(least..=most),
        _ => Err(format!("\"{text}\" is no number of trials; write 6..30 or 10, up to 10000")),
    }
}

impl RunArgs {
    /// The plan, with the start that is the custom where none was said.
    pub(super) fn plan(&self, custom: Start) -> Plan {
        Plan {
            start: self.start.unwrap_or(custom),
            trials: self.trials.clone(),
            confidence: self.confidence.0,
            budget: self.budget,
            seed: self.seed,
            same_speed: self.same_speed.same_speed(self.as_fast_as.as_ref().map(|it| it.speed)),
        }
    }

    /// Plays a workload on this machine and prints what came out.
    pub(super) fn run(&self, workload: &mut dyn Workload) -> Result<ExitCode> {
        self.play_from(workload, Start::Cold)
    }

    /// The same from another start than cold, if that is the custom.
    pub(super) fn play_from(&self, workload: &mut dyn Workload, custom: Start) -> Result<ExitCode> {
        let plan = self.plan(custom);
        let (name, what) = (workload.name().to_owned(), workload.description());
        self.play_seated(&name, &what, |here, stop, bar| {
            run_trials(workload, &plan, here, stop, &mut |progress| bar.show(progress))
        })
    }

    /// The same in parts that share what is made for them.
    pub(super) fn play_parts(
        &self,
        name: &str,
        whole: &mut dyn InParts,
        custom: Start,
    ) -> Result<ExitCode> {
        let plan = self.plan(custom);
        let what = whole.description();
        self.play_seated(name, &what, |here, stop, bar| {
            let mut show = |at: PartsProgress| {
                if at.parts > 1 {
                    bar.part = format!("part {} of {}: ", at.part, at.parts);
                }
                bar.show(at.progress);
            };
            play_parts(whole, &plan, here, stop, &mut show)
        })
    }

    /// The machine for the player.
    pub(super) fn here(&self) -> LocalHost {
        LocalHost::new(self.drop_all)
    }

    /// Plays one of several workloads; `part` says which, for people who wait.
    pub(super) fn play_part(
        &self,
        workload: &mut dyn Workload,
        stop: &Stop,
        part: &str,
    ) -> Result<RunResult, BenchError> {
        let mut bar = Trials::new(part);
        let mut show = |progress| bar.show(progress);
        let plan = self.plan(Start::Cold);
        let result = run_trials(workload, &plan, &self.here(), stop.flag(), &mut show);
        bar.end();
        result
    }

    /// As the function of this name, with the format and the file that were asked for.
    pub(super) fn finish(
        &self,
        name: &str,
        played: (Stop, Result<RunResult, BenchError>),
    ) -> Result<ExitCode> {
        let write = |run: &Run| write_record(run, self.output.as_deref());
        finish(name, played, |run| self.format.write(run), write)
    }
}

/// Writes the record of a run into the file that was asked for, if any.
pub(super) fn write_record(run: &Run, output: Option<&Path>) -> Result<()> {
    output.map_or(Ok(()), |file| output::write_whole(file, &run.to_json()?))
}

/// Prints and writes the results: the text also if a file cannot be written, and the files also if
/// the text cannot be printed. A run that a signal stopped prints and writes what it has, and
/// then ends as the signal asks.
pub(super) fn finish(
    name: &str,
    (stop, result): (Stop, Result<RunResult, BenchError>),
    show: impl FnOnce(&Run) -> Result<String>,
    write: impl FnOnce(&Run) -> Result<()>,
) -> Result<ExitCode> {
    let what = format!("run {name}");
    let RunResult { mut run, stopped } = match result {
        Err(error) if error.is_stop() => {
            eprintln!("larder: stopped before the first trial; what it made is removed");
            stop.end()?;
            return Err(error).context(what);
        }
        result => result.context(what)?,
    };
    run.software.insert("larder".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    let text = show(&run)?;
    let printed = crate::output::stdout().write_all(text.as_bytes());
    write(&run)?;
    // A reader that has had enough is no failure, so the error must reach main as it is.
    printed?;
    if stopped {
        eprintln!("larder: stopped; what it made is removed");
        stop.end()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How far a workload is, trial by trial.
pub(super) struct Trials {
    bar: Bar,
    /// Stands before everything else; may be empty.
    part: String,
}

impl Trials {
    pub(super) fn new(part: &str) -> Self {
        let part = if part.is_empty() { String::new() } else { format!("{part}: ") };
        Trials { bar: Bar::new("of up to {len} trials"), part }
    }

    /// Nothing is shown.
    pub(super) fn hidden() -> Self {
        Trials { bar: Bar::hidden(), part: String::new() }
    }

    fn show(&mut self, progress: Progress) {
        let doing = match progress.step {
            Step::Preparing => "preparing",
            Step::Starting => "making the start",
            Step::Waiting => "waiting until the machine is as fast again",
            Step::Running => "running",
            Step::CleaningUp => "removing what was made",
        };
        let half = progress.half_width.map(|half| format!(", +-{}", format::percent(half)));
        let rest = half.unwrap_or_default() + &left(progress.left);
        self.bar.show([progress.done, progress.most], &format!("{}{doing}", self.part), &rest);
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
