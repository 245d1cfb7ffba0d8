//! `larder bench postmark`: PostMark; docs/bench-postmark.md.
//!
//! With `--classic` it behaves exactly as the original. Otherwise a script is parsed completely
//! first, and flags override it.

mod settings;

use super::run_args::RunArgs;
use crate::args;
use crate::output;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use larder_lab::bench::Start;
use larder_lab::bench::postmark::{Data, Fsync, Options, PostmarkBench};
use larder_lab::workload::postmark::{Config, Location, Script, Session, Step, help, show};
use larder_schema::run::Part;
use settings::Settings;
use std::io::{self, BufWriter, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Maximum number of threads; more are assumed to be a mistake.
const THREADS_MAX: u32 = 4096;

#[derive(Debug, Args)]
pub(crate) struct PostmarkArgs {
    /// A script with commands of PostMark.
    ///
    /// The script is parsed completely before it is executed. With --classic `.pmrc` in the current
    /// directory, if not given.
    #[arg(value_name = "CONFIG")]
    config: Option<PathBuf>,

    /// Behave exactly as the original.
    ///
    /// Script, then prompt, whole seconds, errors ignored, one run for each command. Takes no other
    /// flags.
    #[arg(long, conflicts_with_all = [
        "number", "transactions", "size", "postmark_seed", "location", "subdirectories", "read",
        "write", "buffering", "bias_read", "bias_create", "threads", "fsync", "data", "start",
        "drop_all", "trials", "confidence", "budget", "seed", "format", "output", "hosts", "rank",
        "rendezvous",
    ])]
    classic: bool,

    /// Threads, each with its own files.
    ///
    /// Each thread has its own random numbers, and does the whole workload.
    #[arg(long, value_name = "NUMBER", default_value_t = NonZero::<u32>::MIN,
          value_parser = threads)]
    threads: NonZero<u32>,

    /// Time at which written data is made stable.
    ///
    /// none, close (of each file), transaction, or end (of each phase).
    #[arg(long, value_name = "WHEN", default_value = "none", value_parser = fsync,
          hide_short_help = true)]
    fsync: Fsync,

    /// Content of the files: random or classic.
    ///
    /// Random: incompressible, no duplicates. Classic: characters, the same in each file.
    #[arg(long, value_name = "KIND", default_value = "random", value_parser = data,
          hide_short_help = true)]
    data: Data,

    #[command(flatten)]
    run_args: RunArgs,

    #[command(flatten)]
    settings: Settings,
}

fn threads(text: &str) -> Result<NonZero<u32>, String> {
    let found = text.parse().ok().filter(|threads: &NonZero<u32>| threads.get() <= THREADS_MAX);
    found.ok_or_else(|| format!("\"{text}\" is no number of threads; write 1 to {THREADS_MAX}"))
}

/// Parses a value by its name.
fn parse_name<T: Copy>(kind: &str, text: &str, all: &[(T, &str)]) -> Result<T, String> {
    let names: Vec<_> = all.iter().map(|(_, name)| *name).collect();
    let found = all.iter().find(|(_, name)| *name == text).map(|(value, _)| *value);
    args::one_of(kind, text, found, &names)
}

fn fsync(text: &str) -> Result<Fsync, String> {
    parse_name("time of fsync", text, &Fsync::ALL)
}

fn data(text: &str) -> Result<Data, String> {
    parse_name("kind of data", text, &Data::ALL)
}

pub(crate) fn run(arguments: &PostmarkArgs) -> Result<ExitCode> {
    if arguments.classic {
        return classic(arguments);
    }
    if let Some(code) = arguments.run_args.lead_ranks("postmark")? {
        return Ok(code);
    }
    let steps = arguments.steps()?;
    if arguments.run_args.multi_host.is_enabled() {
        let is_one = matches!(steps[..], [Step::Run(..)]);
        ensure!(is_one, "run PostMark together: the script does more than one run");
    }
    let is_several = steps.iter().filter(|step| matches!(step, Step::Run(..))).count() > 1;
    let mut parts = is_several.then(Vec::new);
    let mut code = ExitCode::SUCCESS;
    for step in steps {
        match step {
            Step::Run(config, _) => code = arguments.run_config(config, parts.as_mut())?,
            Step::Show(config, _) => {
                let current = std::env::current_dir().context("find the current directory")?;
                let text = show(&arguments.settings.apply_to(config), &current);
                let mut out = output::stdout();
                for section in [text.before, text.locations, text.after] {
                    out.write_all(&section)?;
                }
            }
            Step::Help(prefix) => output::stdout().write_all(help(&prefix).as_bytes())?,
        }
    }
    Ok(code)
}

impl PostmarkArgs {
    /// Returns the steps of the script, with one run if it has none.
    fn steps(&self) -> Result<Vec<Step>> {
        let script = match &self.config {
            Some(path) => Script::read(path)?,
            None => Script::default(),
        };
        let mut steps = script.steps;
        if !steps.iter().any(|step| matches!(step, Step::Run(..))) {
            steps.push(Step::Run(script.config, None));
        }
        // Unsupported steps are refused before the first step is executed.
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
            ..Options::new(self.settings.apply_to(config))
        }
    }

    /// Returns the only run, with its files in the directory of the calling command.
    pub(super) fn in_directory(&self, directory: &Path) -> Result<PostmarkBench> {
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

    /// Executes a run; `parts` are the results of earlier ones, if the script has several.
    fn run_config(&self, config: Config, parts: Option<&mut Vec<Part>>) -> Result<ExitCode> {
        let mut bench = PostmarkBench::new(self.options(config));
        let result = match parts {
            Some(parts) => self.run_args.run_next(&mut bench, parts),
            None => self.run_args.run_here(&mut bench, Start::Cold),
        };
        for directory in bench.left_over() {
            eprintln!("larder: removed {}, left by a killed run", directory.display());
        }
        result
    }
}

fn classic(arguments: &PostmarkArgs) -> Result<ExitCode> {
    // Messages are printed at the points at which the original flushes its buffer.
    let mut out = BufWriter::new(output::stdout());
    let mut err = output::stderr();
    Session::new(&mut out, &mut err).run(arguments.config.as_deref(), &mut io::stdin().lock())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
