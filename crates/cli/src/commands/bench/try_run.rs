//! `larder try`: the same work natively and through a temporary cache, from cold and warm starts,
//! by turns; one table, one verdict, one page. docs/try.md.
//!
//! Invariants: nothing is made before it is known that it may be, and nothing is left, whatever way
//! it ends: what a kill leaves the next start removes. What is not better is said as openly as what
//! is.

mod cache;
mod scratch;
mod sides;
mod work;

use super::bar::{Bar, left};
use super::run_args::finish;
use crate::args;
use crate::commands::report::Format;
use crate::free_space;
use crate::output::{self, OutputFile};
use crate::runtime_directory::runtime_directory;
use crate::signals::Stop;
use anyhow::{Context, Result, bail, ensure};
use cache::{Cache, Mounting};
use clap::Args;
use larder_core::mode::FlushMode;
use larder_host::mounts::Mount;
use larder_lab::bench::{
    AlternatingTrials, BenchError, Plan, RunResult, Start, Step, TrialVariant, TurnsProgress,
    play_by_turns,
};
use larder_report::run::Run;
use larder_report::run::parts::Part;
use larder_report::try_verdict::{self, LARDER, NATIVE, SIDE};
use larder_report::{escape, format};
use scratch::Scratch;
use sides::{Side, Through};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;
use work::{Both, Kind, Work};

/// More than this part of what is free is used only if somebody says so.
const FREE_PART: u64 = 10;
/// On a fast disk.
const USUAL: &str = "less than a minute";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A directory of the file system that is meant. Files are made in a directory of their own in it,
    /// and removed.
    path: PathBuf,

    /// Memory of the cache, with everything that goes with it.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = args::bytes)]
    memory: u64,

    /// What is done. Its own words may stand behind --.
    #[arg(long, value_name = "BENCHMARK", default_value = "fileload")]
    workload: Kind,

    /// What fsync does in the cache: keep its promise, or ignore it, which loses what a crash finds
    /// unwritten.
    #[arg(long, value_name = "MODE", default_value = "keep", value_parser = args::flush_mode)]
    flush: FlushMode,

    /// Trials of each side from each start; a verdict needs four.
    #[arg(long, value_name = "NUMBER", default_value_t = 6,
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    trials: u64,

    /// Use more than a tenth of the free space without being asked.
    #[arg(long)]
    yes: bool,

    /// Where the page with the charts goes, replacing what is there; JSON if the name ends so.
    #[arg(short, long, value_name = "FILE", default_value = "larder-try.html")]
    output: OutputFile,

    /// Words for the benchmark, as larder bench takes them.
    #[arg(value_name = "WORD", last = true)]
    words: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    // What is wrong is said before anything is made.
    let work = Work::parse(arguments.workload, &arguments.words)?;
    let (starts, why_one) = work.starts(arguments.memory)?;
    arguments.check_path()?;
    arguments.check_output()?;
    let sockets = runtime_directory()?;
    scratch::clear_up(&arguments.path, &sockets);
    arguments.may_use(work.room_bytes(arguments.memory)?)?;
    let stop = Stop::listen()?;
    let scratch = Scratch::make(&arguments.path, &sockets)?;
    let played = arguments.run_trials(&work, &starts, &scratch, &stop);
    // Nothing is mounted any more; an error of the work is worth more than one here.
    let removed = scratch.remove();
    let turns = match played {
        Ok(turns) => turns,
        Err(error) => {
            if let Err(more) = removed {
                eprintln!("larder: note: failed to {more:#}");
            }
            return match error.downcast::<BenchError>() {
                Ok(error) => {
                    finish("the trial", (stop, Err(error)), |_| Ok(String::new()), |_| Ok(()))
                }
                Err(error) => Err(error),
            };
        }
    };
    removed?;
    let stopped = turns.stopped;
    let run = arguments.gather(turns, why_one)?;
    let write = |run: &Run| arguments.write(run);
    finish("the trial", (stop, Ok(RunResult { run, stopped })), |run| Ok(run.to_text()), write)
}

impl Arguments {
    /// Whether there is a directory that a cache could do something for.
    fn check_path(&self) -> Result<()> {
        let shown = self.path.display();
        let found = std::fs::metadata(&self.path).with_context(|| format!("find {shown}"))?;
        ensure!(found.is_dir(), "work in {shown}: it is no directory; name the one that it is in");
        let mount = Mount::of(&self.path).with_context(|| format!("find what {shown} is on"))?;
        ensure!(
            !mount.is_memory(),
            "try a cache for {shown}: it is in memory already ({}), so a cache in memory gains \
             nothing; name a directory on a disk",
            mount.fs_type
        );
        Ok(())
    }

    /// Refuses a page of unknown format, or one that cannot be written: at the end of the trials
    /// it would be too late.
    fn check_output(&self) -> Result<()> {
        self.output_format()?;
        output::check(&self.output)
    }

    /// Returns the format that the name of the page asks for: HTML if it has no ending.
    fn output_format(&self) -> Result<Format> {
        if let Some(format) = Format::of_name(&self.output) {
            return Ok(format);
        }
        if let Some(ending) = self.output.extension() {
            let (path, ending) = (self.output.display(), ending.display());
            bail!("write {path}: no format has the ending .{ending}; use .html, .json or .csv");
        }
        Ok(Format::Html)
    }

    /// Asks, if it is much.
    fn may_use(&self, bytes: u64) -> Result<()> {
        let shown = self.path.display();
        let free = free_space::check(&self.path, bytes)?;
        if self.yes || bytes <= free / FREE_PART {
            return Ok(());
        }
        let (bytes, free) = (format::bytes(bytes), format::bytes(free));
        let what = format!("use {bytes} of the {free} that are free in {shown}");
        if !std::io::stdin().is_terminal() {
            bail!("{what}: that is more than a tenth, and nobody is there to ask; say --yes");
        }
        eprint!("larder: {what} for as long as it takes? [y/N] ");
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).context("hear the answer")?;
        ensure!(matches!(answer.trim(), "y" | "Y" | "yes"), "{what}: the answer was no");
        Ok(())
    }

    fn run_trials(
        &self,
        work: &Work,
        starts: &[Start],
        scratch: &Scratch,
        stop: &Stop,
    ) -> Result<AlternatingTrials> {
        let (files, mount) = (scratch.files(), scratch.mount());
        let mut cache = Cache::new(Mounting::new(self.memory, self.flush, scratch));
        // What keeps it from being mounted is said before anything is made that takes time.
        cache.start()?;
        cache.stop()?;
        let cache = Mutex::new(cache);
        let (native_side, larder_side) =
            (Side::native(&cache, &files), Side::through(&cache, &files, &mount));
        let plan = Plan {
            trials: self.trials..=self.trials,
            confidence: None,
            same_speed: None,
            ..Plan::default()
        };
        let ways = 2 * starts.len() as u64;
        let mut shown = Shown::new(ways, self.trials * ways);
        let played = work.on_both_sides([&files, &mount], self.memory, |both| {
            let Both { native, larder } = both;
            let mut larder = Through::new(larder, &cache, work.writes());
            let mut ways = [
                TrialVariant { workload: native, surroundings: &native_side },
                TrialVariant { workload: &mut larder, surroundings: &larder_side },
            ];
            play_by_turns(&mut ways, starts, &plan, stop.flag(), &mut |at| shown.show(at))
        });
        shown.bar.end();
        Ok(played??)
    }

    /// All runs as one, with the verdict.
    fn gather(&self, turns: AlternatingTrials, why_one: Option<String>) -> Result<Run> {
        let starts = turns.runs.len() / 2;
        let sides = [NATIVE, LARDER].into_iter().flat_map(|side| std::iter::repeat_n(side, starts));
        let part = |(run, side): (Run, &str)| {
            let start = run.trials.first().map_or("", |trial| trial.started.start.name());
            let name = if starts == 1 { side.to_owned() } else { format!("{side}, {start}") };
            let labels = [(SIDE, side), ("start", start)];
            let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            Part { name, labels, run }
        };
        let parts: Vec<Part> = turns.runs.into_iter().zip(sides).map(part).collect();
        let memory = format::bytes(self.memory);
        let what = format!("{}, natively and through {memory} of larder", parts[0].run.what);
        let verdict = try_verdict::verdict(&parts)?;
        let mut run = Run::gathered(what, parts);
        run.verdict = verdict;
        run.settings.insert("memory_bytes".to_owned(), self.memory.into());
        run.settings.insert("flush".to_owned(), self.flush.name().into());
        if let Some(why) = why_one {
            run.settings.insert("starts".to_owned(), why.into());
        }
        "try".clone_into(&mut run.workload);
        Ok(run)
    }

    /// Writes the page, and prints where it is.
    fn write(&self, run: &Run) -> Result<()> {
        output::write_whole(&self.output, &self.output_format()?.write(run)?)?;
        Ok(writeln!(output::stdout(), "\nWritten to {}", escape::path(&self.output))?)
    }
}

/// How far it is, for people who wait.
struct Shown {
    bar: Bar,
    /// Trials of a round, and of all rounds.
    round: u64,
    all: u64,
    /// When the first trial was about to start.
    begun: Option<Instant>,
    is_said: bool,
}

impl Shown {
    fn new(round: u64, all: u64) -> Self {
        let times = match all / round {
            1 => "once".to_owned(),
            times => format!("{times} times"),
        };
        eprintln!(
            "larder: {round} ways by turns, {times}: {USUAL} on a fast disk, longer on a slow one"
        );
        Shown { bar: Bar::new("of {len} trials"), round, all, begun: None, is_said: false }
    }

    fn show(&mut self, at: TurnsProgress) {
        let doing = match at.progress.step {
            Step::Preparing => "making files",
            Step::Starting => "making the start",
            Step::Waiting => "waiting until the machine is as fast again",
            Step::Running => "running",
            Step::CleaningUp => "removing what was made",
        };
        let begun = *self.begun.get_or_insert_with(Instant::now);
        if at.progress.step == Step::Preparing {
            self.begun = None;
        }
        let spent = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let more = self.all.saturating_sub(at.done);
        let rest = (at.done >= self.round && more > 0).then(|| spent / at.done * more);
        if let Some(rest) = rest
            && !std::mem::replace(&mut self.is_said, true)
        {
            eprintln!("larder: about {} more on this one", format::duration(rest));
        }
        let side = if at.way == 0 { NATIVE } else { LARDER };
        let doing = format!("{side}, {}: {doing}", at.start.name());
        self.bar.show([at.done, self.all], &doing, &left(rest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::path::Path;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn arguments(path: &Path, words: &[&str]) -> Arguments {
        let always = ["try", path.to_str().unwrap()];
        Line::try_parse_from(always.iter().chain(words)).unwrap().arguments
    }

    #[test]
    fn the_page_has_a_known_format() {
        let directory = tempfile::tempdir().unwrap();
        let page = |name: &str| {
            let path = directory.path().join(name);
            let arguments = arguments(directory.path(), &["-o", path.to_str().unwrap()]);
            arguments.check_output().map_err(|error| error.to_string())
        };
        for name in ["page", "page.html", "page.json", "page.csv"] {
            page(name).unwrap();
        }
        let refused = page("page.foo").unwrap_err();
        let reason = "page.foo: no format has the ending .foo; use .html, .json or .csv";
        assert!(refused.ends_with(reason), "{refused}");
    }

    #[test]
    fn more_than_a_tenth_of_what_is_free_has_to_be_allowed() {
        let directory = tempfile::tempdir().unwrap();
        let free = larder_host::space::free_bytes(directory.path()).unwrap();
        let plain = arguments(directory.path(), &[]);
        plain.may_use(free / 20).unwrap();
        if !std::io::stdin().is_terminal() {
            let error = plain.may_use(free / 2).unwrap_err().to_string();
            assert!(error.ends_with("and nobody is there to ask; say --yes"), "{error}");
        }
        let allowed = arguments(directory.path(), &["--yes"]);
        allowed.may_use(free / 2).unwrap();
        assert!(allowed.may_use(free * 2).unwrap_err().to_string().contains(" are free"));
    }
}
