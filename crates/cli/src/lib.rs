//! `larder`: the command line. Glue between the library crates; the only crate that uses clap.
//!
//! It is a library, so that fuzz targets reach its parsers; the program calls only [`main`].
//!
//! Results go to standard output, progress and notes to standard error. Exit codes: 0 for success,
//! 1 for a finding, 2 for wrong use or failure. The text of an error is a verb phrase that follows
//! "cannot".

#[macro_use]
extern crate larder_server;

mod args;
mod colors;
mod commands;
mod connection;
mod free_space;
mod help_text;
mod live;
mod logging;
mod named_files;
mod old_spellings;
mod output_file;
mod own_program;
mod progress;
mod signals;
mod tui;
mod usage_errors;

pub(crate) use larder_server::output;

use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use named_files::NamedFiles;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Find the cache that storage needs, serve it, and measure its gain.
#[derive(Debug, Parser)]
#[command(name = "larder", bin_name = "larder", version, disable_help_subcommand = true)]
struct Cli {
    /// Print no progress and no notes.
    ///
    /// With `serve` and `mount`, no counters at the end either.
    #[arg(long, global = true, help_heading = "Output", hide_short_help = true)]
    quiet: bool,

    /// Colors of help, of messages and of live views.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        help_heading = "Output",
        hide_short_help = true
    )]
    color: ColorChoice,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve volumes with a cache: over NBD, as files, as block devices.
    Serve(Box<commands::serve::ServeArgs>),
    /// Mount a directory through a cache for the data of its files.
    Mount(Box<commands::mount::MountArgs>),
    /// Query and change a running server.
    Ctl(commands::ctl::CtlArgs),
    /// Check a configuration file of larder serve.
    CheckConfig(commands::check_config::CheckConfigArgs),
    /// Demonstrate a cache in a minute, without and with it.
    ///
    /// The demo makes an image of eight times --memory, runs the same random requests without and
    /// with a cache, on the disk of this machine and on a modeled one, and removes the image.
    /// --keep keeps it, with a trace and a record.
    Demo(commands::demo::DemoArgs),
    /// Convert, describe, filter, anonymize, generate and replay traces.
    Trace(commands::trace::TraceArgs),
    /// Recommend cache size, policy and page size for a trace.
    ///
    /// The report has the hit-ratio curve and its regions, the recommendation, and the effect of
    /// half and twice the size.
    Size(commands::size::SizeArgs),
    /// Simulate caches over traces: hit ratios and curves.
    Sim(commands::sim::SimArgs),
    /// Find the bottleneck of a host; choose an array for a trace.
    Advise(commands::advise::AdviseArgs),
    /// Show which files and processes load which disk, and plan moves.
    ///
    /// The plan has the fewest and smallest moves of files that minimize the highest utilization,
    /// with checks. --script writes it as a shell script; larder moves nothing.
    Balance(Box<commands::balance::BalanceArgs>),
    /// Show fragments of files and free space, and their cost.
    ///
    /// The cost is that of recorded requests on a model of the device, with the files as they lie
    /// and contiguous. Nothing is changed.
    Frag(Box<commands::frag::FragArgs>),
    /// Repeat published experiments on modeled machines.
    Lab(commands::lab::LabArgs),
    /// List models of devices, fit one to a device, and check it.
    Model(commands::model::ModelArgs),
    /// Show the activity of the host's page cache, by file and process.
    Watch(commands::watch::WatchArgs),
    /// Report the resident part of files and directories.
    Resident(commands::resident::ResidentArgs),
    /// Run a benchmark with reliable and comparable results.
    Bench(commands::bench::BenchArgs),
    /// Measure the gain of a cache in a directory.
    ///
    /// The same work runs natively and through a temporary cache, in alternating trials.
    Try(Box<commands::bench::try_run::TryArgs>),
    /// Compare two runs: better, worse, or cannot tell.
    Compare(commands::compare::CompareArgs),
    /// Show a run: text, CSV, JSON, or a page with charts.
    Report(commands::report::ReportArgs),
    /// Show files, processes, disks and caches of this machine, live.
    Top(commands::top::TopArgs),
    /// Explain a command or a topic, such as settings or exit-codes.
    Help(commands::help::HelpArgs),
    /// Print the version and the features of this program.
    Version(commands::version::VersionArgs),
    /// Print the completions of the command line for a shell.
    Completions(commands::docs::shell::CompletionsArgs),
    /// Print the manual page.
    Man,
    /// Print generated documentation.
    #[command(hide = true)]
    Docs(commands::docs::DocsArgs),
    /// Load an export with requests that can be verified after a crash.
    #[command(hide = true)]
    Load(commands::load::LoadArgs),
    /// Allocate memory until standard input ends.
    #[command(hide = true)]
    TakeMemory(commands::take_memory::TakeMemoryArgs),
}

/// Exit code for wrong use and failures.
const FAILURE: u8 = 2;

/// Runs the command line of this process; returns its exit code.
#[must_use]
pub fn main() -> ExitCode {
    if larder_host::inspector::serve_if_requested() {
        return ExitCode::SUCCESS;
    }
    logging::start();
    larder_io::fault::arm_from_environment();
    let (words, notes) = old_spellings::replace(std::env::args_os().collect());
    let (cli, files) = match parse(words.clone()) {
        Ok(parsed) => parsed,
        Err(error) => return usage_errors::refuse(&error, &words),
    };
    output::set_quiet(cli.quiet);
    colors::choose(cli.color);
    colors::fit_terminal();
    for note in notes {
        eprintln!("larder: note: {note}");
    }
    let result = files.check().and_then(|()| signals::outlive_file_size_limit());
    let result = result.and_then(|()| run(cli.command));
    // The buffer of standard output may hold unwritten text.
    finish(result.and_then(|code| output::raw_stdout().flush().map(|()| code).map_err(Into::into)))
}

/// Returns the exit code of a result; prints its error.
fn finish(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(error) = error.downcast_ref::<usage_errors::UsageError>() {
                eprint!("{error}");
                return ExitCode::from(FAILURE);
            }
            let operation = if is_of_output(&error) { "write to standard output: " } else { "" };
            eprintln!("larder: cannot {operation}{}", output::sentence(&error));
            ExitCode::from(FAILURE)
        }
    }
}

/// Returns the command line with all of its help.
fn command() -> clap::Command {
    help_text::complete(Cli::command())
}

/// Parses a command line.
fn parse<T>(words: impl IntoIterator<Item = T>) -> Result<(Cli, NamedFiles), clap::Error>
where
    T: Into<OsString> + Clone,
{
    let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
    let command = args::allow_hyphens(command()).color(color(&words));
    let matches = command.try_get_matches_from(words)?;
    let files = NamedFiles::of(&matches);
    Ok((Cli::from_arg_matches(&matches)?, files))
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(arguments) => succeed(commands::serve::run(&arguments)),
        Command::Mount(arguments) => succeed(commands::mount::run(&arguments)),
        Command::Ctl(arguments) => commands::ctl::run(&arguments),
        Command::CheckConfig(arguments) => succeed(commands::check_config::run(&arguments)),
        Command::Demo(arguments) => succeed(commands::demo::run(&arguments)),
        Command::Trace(arguments) => succeed(commands::trace::run(&arguments)),
        Command::Sim(arguments) => succeed(commands::sim::run(&arguments)),
        Command::Size(arguments) => succeed(commands::size::run(&arguments)),
        Command::Advise(arguments) => succeed(commands::advise::run(&arguments)),
        Command::Balance(arguments) => succeed(commands::balance::run(&arguments)),
        Command::Frag(arguments) => succeed(commands::frag::run(&arguments)),
        Command::Lab(arguments) => succeed(commands::lab::run(&arguments)),
        Command::Model(arguments) => succeed(commands::model::run(&arguments)),
        Command::Watch(arguments) => succeed(commands::watch::run(&arguments)),
        Command::Resident(arguments) => succeed(commands::resident::run(&arguments)),
        Command::Bench(arguments) => commands::bench::run(&arguments),
        Command::Try(arguments) => commands::bench::try_run::run(&arguments),
        Command::Compare(arguments) => commands::compare::run(&arguments),
        Command::Report(arguments) => succeed(commands::report::run(&arguments)),
        Command::Top(arguments) => succeed(commands::top::run(&arguments)),
        Command::Help(arguments) => succeed(commands::help::run(&arguments)),
        Command::Version(arguments) => succeed(commands::version::run(&arguments)),
        Command::Completions(arguments) => succeed(commands::docs::shell::completions(&arguments)),
        Command::Man => succeed(commands::docs::shell::manual()),
        Command::Docs(arguments) => succeed(commands::docs::run(&arguments)),
        Command::Load(arguments) => commands::load::run(&arguments),
        Command::TakeMemory(arguments) => succeed(commands::take_memory::run(&arguments)),
    }
}

/// Returns the colors that a command line selects, before it is parsed: errors have colors too.
fn color(words: &[OsString]) -> ColorChoice {
    let mut words = words.iter().filter_map(|word| word.to_str());
    let mut choice = ColorChoice::Auto;
    while let Some(word) = words.next() {
        let value = match word.strip_prefix("--color") {
            Some("") => words.next(),
            Some(value) => value.strip_prefix('='),
            None => continue,
        };
        let parsed = value.and_then(|value| ColorChoice::from_str(value, true).ok());
        choice = parsed.unwrap_or(choice);
    }
    choice
}

/// Returns the exit code of a command that reports no findings.
fn succeed(result: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    result.map(|()| ExitCode::SUCCESS)
}

/// Returns true for an error of standard output: all other errors name the failed operation.
fn is_of_output(error: &anyhow::Error) -> bool {
    error.chain().count() == 1 && error.is::<std::io::Error>()
}

/// Returns true if the reader of standard output has closed it, which is not a failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_output_is_one_that_says_nothing_else() {
        let full = || anyhow::Error::new(std::io::Error::from(std::io::ErrorKind::StorageFull));
        assert!(is_of_output(&full()) && !is_of_output(&full().context("write x")));
        assert!(!is_of_output(&anyhow::anyhow!("find the volume")));
    }

    #[test]
    fn what_findings_say_to_try_are_commands_that_exist() {
        for rule in larder_report::findings::RULES {
            for command in rule.attempt {
                let filled = command
                    .replace("TRACE", "a.ltr")
                    .replace("IMAGE", "a.img")
                    .replace("DIRECTORY", "directory")
                    .replace("SIZE", "64MiB")
                    .replace("SOCKET", "a.sock");
                let parsed = parse(filled.split(' '));
                assert!(parsed.is_ok(), "{}: {command}: {:?}", rule.name, parsed.err());
            }
        }
    }
}
