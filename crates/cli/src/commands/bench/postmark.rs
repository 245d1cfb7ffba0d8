//! `larder bench postmark`: PostMark; docs/bench-postmark.md.
//!
//! With `--classic` it is the original, word by word. Else a script is read as a whole first, and
//! flags win over it.

mod settings;

use super::run_args::RunArgs;
use crate::output;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use larder_lab::bench::postmark::PostmarkBench;
use larder_lab::workload::postmark::{
    Config, Data, Fsync, Location, Options, Script, Session, Step, help, show,
};
use settings::Settings;
use std::io::{self, BufWriter, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// More threads than this are a mistake.
const THREADS_MAX: u32 = 4096;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A script with commands of PostMark, which is read before anything begins. With --classic
    /// `.pmrc` in the current directory, if not given.
    #[arg(value_name = "CONFIG")]
    config: Option<PathBuf>,

    /// Behave exactly as the original: script, then prompt, whole seconds, errors passed over, one
    /// run for each command. Takes no other flags.
    #[arg(long, conflicts_with_all = [
        "number", "transactions", "size", "postmark_seed", "location", "subdirectories", "read",
        "write", "buffering", "bias_read", "bias_create", "threads", "fsync", "data", "start",
        "drop_all", "trials", "confidence", "budget", "seed", "format", "output", "hosts", "rank",
        "rendezvous",
    ])]
    classic: bool,

    #[command(flatten)]
    settings: Settings,

    /// Threads, each with its own files and random numbers, and each doing all of it.
    #[arg(long, value_name = "NUMBER", default_value_t = NonZero::<u32>::MIN,
          value_parser = threads)]
    threads: NonZero<u32>,

    /// When what was written is made stable: none, close (each file), transaction, or end (of each
    /// phase).
    #[arg(long, value_name = "WHEN", default_value = "none", value_parser = fsync)]
    fsync: Fsync,

    /// What is in the files: random (cannot be compressed, nothing twice) or classic (characters,
    /// the same in each).
    #[arg(long, value_name = "KIND", default_value = "random", value_parser = data)]
    data: Data,

    #[command(flatten)]
    playing: RunArgs,
}

fn threads(text: &str) -> Result<NonZero<u32>, String> {
    let found = text.parse().ok().filter(|threads: &NonZero<u32>| threads.get() <= THREADS_MAX);
    found.ok_or_else(|| format!("\"{text}\" is no number of threads; write 1 to {THREADS_MAX}"))
}

/// A value by its name.
fn named<T: Copy>(text: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T, String> {
    let names: Vec<_> = all.iter().map(|each| name(*each)).collect();
    let found = all.iter().copied().find(|each| name(*each) == text);
    found.ok_or_else(|| format!("\"{text}\" is none of {}", names.join(", ")))
}

fn fsync(text: &str) -> Result<Fsync, String> {
    named(text, &Fsync::ALL, Fsync::name)
}

fn data(text: &str) -> Result<Data, String> {
    named(text, &Data::ALL, Data::name)
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.classic {
        return classic(arguments);
    }
    if let Some(code) = arguments.playing.lead("postmark")? {
        return Ok(code);
    }
    let steps = arguments.steps()?;
    if arguments.playing.together.is_asked() {
        let is_one = matches!(steps[..], [Step::Run(..)]);
        ensure!(is_one, "run PostMark together: the script does more than one run");
    }
    let mut code = ExitCode::SUCCESS;
    for step in steps {
        match step {
            Step::Run(config, _) => code = arguments.run_config(config)?,
            Step::Show(config, _) => {
                let current = std::env::current_dir().context("find the current directory")?;
                let shown = show(&arguments.settings.over(config), &current);
                let mut out = output::stdout();
                for part in [shown.before, shown.locations, shown.after] {
                    out.write_all(&part)?;
                }
            }
            Step::Help(prefix) => output::stdout().write_all(help(&prefix).as_bytes())?,
        }
    }
    Ok(code)
}

impl Arguments {
    /// What the script says, or one run without any.
    fn steps(&self) -> Result<Vec<Step>> {
        let script = match &self.config {
            Some(path) => Script::read(path)?,
            None => Script::default(),
        };
        let mut steps = script.steps;
        if !steps.iter().any(|step| matches!(step, Step::Run(..))) {
            steps.push(Step::Run(script.config, None));
        }
        // What cannot be done is said before anything is done.
        for step in &steps {
            if let Step::Run(_, Some(file)) | Step::Show(_, Some(file)) = step {
                let file = file.display();
                bail!("add to {file} as the script says: only --classic does; see --output");
            }
        }
        Ok(steps)
    }

    fn options(&self, config: Config) -> Options {
        Options {
            threads: self.threads,
            fsync: self.fsync,
            data: self.data,
            ..Options::new(self.settings.over(config))
        }
    }

    /// The only run of it, with its files in a directory that somebody else chose.
    pub(super) fn inside(&self, directory: &Path) -> Result<PostmarkBench> {
        ensure!(!self.classic, "run PostMark here: --classic is one run with a prompt");
        let mut configs = self.steps()?.into_iter().filter_map(|step| match step {
            Step::Run(config, _) => Some(config),
            Step::Show(..) | Step::Help(_) => None,
        });
        let (Some(config), None) = (configs.next(), configs.next()) else {
            bail!("run PostMark here: the script has several runs");
        };
        let mut options = self.options(config);
        ensure!(
            options.config.locations.is_empty(),
            "run PostMark here: its files go where this command puts them; leave locations out"
        );
        options.config.locations = vec![Location { path: directory.into(), weight: 1 }];
        Ok(PostmarkBench::new(options))
    }

    fn run_config(&self, config: Config) -> Result<ExitCode> {
        let mut bench = PostmarkBench::new(self.options(config));
        let played = self.playing.run(&mut bench);
        for directory in bench.left_over() {
            eprintln!(
                "larder: removed {}, which a run that was killed had left",
                directory.display()
            );
        }
        played
    }
}

fn classic(arguments: &Arguments) -> Result<ExitCode> {
    // What is said comes out where the original empties its buffer.
    let mut out = BufWriter::new(output::stdout());
    let mut err = output::stderr();
    Session::new(&mut out, &mut err).run(arguments.config.as_deref(), &mut io::stdin().lock())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
