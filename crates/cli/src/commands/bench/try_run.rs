//! `larder try`: the same workload natively and through a temporary cache, from cold and warm
//! starts, alternating; one table, one verdict, one page. docs/try.md.
//!
//! Invariants: nothing is created before all checks have passed, and nothing remains, however the
//! command ends: the next start removes the files of a killed run. Results that are not better are
//! reported as prominently as others.

mod sides;
mod work;

use super::bar::{Bar, remaining_time, task};
use super::run_args::finish;
use crate::args;
use crate::commands::report::{Format, any_format};
use crate::commands::temporary_cache::scratch::{self, Scratch};
use crate::commands::temporary_cache::{Cache, MountConfig};
use crate::free_space;
use crate::output;
use crate::output_file::OutputFile;
use crate::signals::Stop;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use larder_core::mode::FlushMode;
use larder_host::mounts::Mount;
use larder_lab::bench::{
    AlternatingTrials, BenchError, Plan, Progress, RunResult, Start, Step, Variant, alternate,
};
use larder_report::escape;
use larder_report::try_verdict::{self, LARDER, NATIVE, SIDE};
use larder_schema::format;
use larder_schema::run::Part;
use larder_schema::run::Run;
use larder_server::runtime_directory::runtime_directory;
use sides::{CachedWorkload, SideHost};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;
use work::{Benchmark, Work};

/// Divisor of the free space that may be used without confirmation.
const FREE_DIVISOR: u64 = 10;
/// Expected duration of a round on a fast disk.
const EXPECTED_DURATION: &str = "less than a minute";

#[derive(Debug, Args)]
pub(crate) struct TryArgs {
    /// A directory on the file system to test.
    ///
    /// Files are created in a new subdirectory, and removed.
    path: PathBuf,

    /// Memory of the cache.
    ///
    /// The metadata of the cache is included.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = args::bytes)]
    memory: u64,

    /// probe, fileload or postmark.
    ///
    /// The benchmark. Its own arguments may follow --. Without any, probe bypasses the page cache,
    /// as databases do.
    #[arg(long, value_name = "BENCHMARK", default_value = "probe", hide_possible_values = true)]
    workload: Benchmark,

    /// Mode of fsync: keep or ignore.
    ///
    /// Mode of fsync in the cache: keep its guarantee, or ignore it, which loses unwritten data in
    /// a crash.
    #[arg(long, value_name = "MODE", default_value = "keep",
          value_parser = args::named::<FlushMode>)]
    flush: FlushMode,

    /// Trials of each side from each start.
    ///
    /// A verdict needs 4.
    #[arg(long, value_name = "NUMBER", default_value_t = 6,
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    trials: u64,

    /// Use more than a tenth of the free space.
    ///
    /// No confirmation is requested.
    #[arg(long)]
    yes: bool,

    /// Result page or data.
    ///
    /// File for the result, replacing it: the page with the charts, or another format if the name
    /// ends in .json, .csv or .txt.
    #[arg(short, long, value_name = "FILE", default_value = "larder-try.html",
          value_parser = any_format())]
    output: OutputFile,

    /// Arguments of the benchmark, as larder bench takes them.
    #[arg(value_name = "WORD", last = true)]
    words: Vec<String>,
}

pub(crate) fn run(arguments: &TryArgs) -> Result<ExitCode> {
    // Errors in the arguments are reported before any file is created.
    let work = Work::parse(arguments.workload, &arguments.words)?;
    let (starts, single_start_reason) = work.starts(arguments.memory)?;
    arguments.check_path()?;
    let sockets = runtime_directory()?;
    scratch::remove_leftovers(&arguments.path, &sockets);
    arguments.confirm_use(work.needed_bytes(arguments.memory)?)?;
    let stop = Stop::listen_only()?;
    let scratch = Scratch::make(&arguments.path, &sockets)?;
    let result = arguments.run_trials(&work, &starts, &scratch, &stop);
    // Nothing is mounted any more; an error of the workload takes precedence over one here.
    let removed = scratch.remove();
    let trial_results = match result {
        Ok(trial_results) => trial_results,
        Err(error) => {
            if let Err(more) = removed {
                eprintln!("larder: note: cannot {more:#}");
            }
            let error = error.downcast::<BenchError>()?;
            return finish("the trial", &stop, Err(error), |_| Ok(String::new()), |_| Ok(()));
        }
    };
    removed?;
    let stopped = trial_results.stopped;
    let run = arguments.combine(trial_results, single_start_reason)?;
    let write = |run: &Run| arguments.write(run);
    finish(
        "the trial",
        &stop,
        Ok(RunResult { run, stopped }),
        |run| Ok(larder_report::run::to_text(run)),
        write,
    )
}

impl TryArgs {
    /// Checks that there is a directory that can gain from a cache.
    fn check_path(&self) -> Result<()> {
        let shown = self.path.display();
        free_space::check_directory(&self.path)?;
        let mount = Mount::of(&self.path).with_context(|| format!("find what {shown} is on"))?;
        ensure!(
            !mount.is_memory(),
            "try a cache for {shown}: it is in memory already ({}), so a cache in memory gains \
             nothing; name a directory on a disk",
            mount.fs_type
        );
        Ok(())
    }

    /// Asks for confirmation if the workload needs much of the free space.
    fn confirm_use(&self, bytes: u64) -> Result<()> {
        let shown = self.path.display();
        let free = free_space::check(&self.path, bytes)?;
        if self.yes || bytes <= free / FREE_DIVISOR {
            return Ok(());
        }
        let (bytes, free) = (format::bytes(bytes), format::bytes(free));
        let request = format!("use {bytes} of the {free} that are free in {shown}");
        if !std::io::stdin().is_terminal() {
            bail!(
                "{request}: that is more than a tenth, and there is no terminal for a \
                 question; add --yes"
            );
        }
        eprint!("larder: {request} for as long as it takes? [y/N] ");
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).context("read the answer")?;
        ensure!(matches!(answer.trim(), "y" | "Y" | "yes"), "{request}: the answer was no");
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
        let options = ["--flush", self.flush.name()].map(OsString::from).into();
        let config =
            MountConfig { source: files.clone(), memory: self.memory, options, keeps_data: false };
        let mut cache = Cache::new(config, scratch);
        // Errors of the mount are reported before files are created, which takes time.
        cache.start()?;
        cache.stop()?;
        let cache = Mutex::new(cache);
        let (native_host, larder_host) =
            (SideHost::native(&cache, &files), SideHost::through(&cache, &files, &mount));
        let plan = Plan {
            trials: self.trials..=self.trials,
            confidence: None,
            same_speed: None,
            ..Plan::default()
        };
        let trials_per_round = 2 * starts.len() as u64;
        let mut progress_display =
            TrialProgress::new(trials_per_round, self.trials * trials_per_round);
        let [mut native, mut larder] = work.both_sides([&files, &mount], self.memory)?;
        let mut larder = CachedWorkload::new(&mut *larder, &cache, work.writes());
        let mut variants = [
            Variant { workload: &mut *native, host: &native_host },
            Variant { workload: &mut larder, host: &larder_host },
        ];
        let mut show = |progress| progress_display.show(progress);
        let result = alternate(&mut variants, starts, &plan, stop.flag(), &mut show);
        progress_display.bar.end();
        Ok(result?)
    }

    /// Combines all runs into one, with the verdict.
    fn combine(
        &self,
        trial_results: AlternatingTrials,
        single_start_reason: Option<String>,
    ) -> Result<Run> {
        let starts = trial_results.runs.len() / 2;
        let sides = [NATIVE, LARDER].into_iter().flat_map(|side| std::iter::repeat_n(side, starts));
        let part = |(run, side): (Run, &str)| {
            let start = run.trials.first().map_or("", |trial| trial.started.start.name());
            let name = if starts == 1 { side.to_owned() } else { format!("{side}, {start}") };
            let labels = [(SIDE, side), ("start", start)];
            let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            Part { name, labels, run }
        };
        let parts: Vec<Part> = trial_results.runs.into_iter().zip(sides).map(part).collect();
        let memory = format::bytes(self.memory);
        let description = format!("{}, natively and through {memory} of larder", parts[0].run.what);
        let verdict = try_verdict::verdict(&parts).context("compare both sides")?;
        let mut run = larder_report::run::gathered(description, parts);
        run.verdict = verdict;
        run.settings.insert("memory_bytes".to_owned(), self.memory.into());
        run.settings.insert("flush".to_owned(), self.flush.name().into());
        if let Some(reason) = single_start_reason {
            run.settings.insert("starts".to_owned(), reason.into());
        }
        "try".clone_into(&mut run.workload);
        Ok(run)
    }

    /// Writes the page, and prints its path.
    fn write(&self, run: &Run) -> Result<()> {
        let format = Format::from_extension(&self.output).unwrap_or(Format::Html);
        output::write_atomically(&self.output, &format.write(run)?)?;
        Ok(writeln!(output::stdout(), "\nWritten to {}", escape::path(&self.output))?)
    }
}

/// Progress of the trials.
struct TrialProgress {
    bar: Bar,
    /// Trials of a round.
    round: u64,
    /// Trials of all rounds.
    total: u64,
    /// Start of the first trial.
    started_at: Option<Instant>,
    is_estimate_shown: bool,
}

impl TrialProgress {
    fn new(round: u64, total: u64) -> Self {
        let times = match total / round {
            1 => "once".to_owned(),
            times => format!("{times} times"),
        };
        eprintln!(
            "larder: note: {round} kinds of trials in turn, {times}: {EXPECTED_DURATION} on a fast \
             disk, longer on a slow one"
        );
        TrialProgress {
            bar: Bar::new("of {len} trials"),
            round,
            total,
            started_at: None,
            is_estimate_shown: false,
        }
    }

    fn show(&mut self, progress: Progress) {
        let started_at = *self.started_at.get_or_insert_with(Instant::now);
        if progress.step == Step::Preparing {
            self.started_at = None;
        }
        let spent = u64::try_from(started_at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let remaining_trials = self.total.saturating_sub(progress.done);
        let left_ns = (progress.done >= self.round && remaining_trials > 0)
            .then(|| spent / progress.done * remaining_trials);
        if let Some(left_ns) = left_ns
            && !std::mem::replace(&mut self.is_estimate_shown, true)
        {
            eprintln!("larder: note: about {} left on this disk", format::duration(left_ns));
        }
        let side = if progress.variant == 0 { NATIVE } else { LARDER };
        let task = format!("{side}, {}: {}", progress.start.name(), task(progress.step));
        self.bar.show([progress.done, self.total], &task, &remaining_time(left_ns));
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
        arguments: TryArgs,
    }

    fn arguments(path: &Path, words: &[&str]) -> TryArgs {
        let always = ["try", path.to_str().unwrap()];
        Line::try_parse_from(always.iter().chain(words)).unwrap().arguments
    }

    #[test]
    fn more_than_a_tenth_of_what_is_free_has_to_be_allowed() {
        let directory = tempfile::tempdir().unwrap();
        let free = larder_host::space::free_bytes(directory.path()).unwrap();
        let plain = arguments(directory.path(), &[]);
        plain.confirm_use(free / 20).unwrap();
        if !std::io::stdin().is_terminal() {
            let error = plain.confirm_use(free / 2).unwrap_err().to_string();
            assert!(
                error.ends_with("and there is no terminal for a question; add --yes"),
                "{error}"
            );
        }
        let allowed = arguments(directory.path(), &["--yes"]);
        allowed.confirm_use(free / 2).unwrap();
        assert!(allowed.confirm_use(free * 2).unwrap_err().to_string().contains(" are free"));
    }
}
