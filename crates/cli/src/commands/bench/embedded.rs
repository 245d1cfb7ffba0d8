//! A benchmark inside another command, which determines its directory and repetitions: its own
//! arguments follow `--`.

use super::run_args::RunArgs;
use super::{postmark, probe};
use crate::args::allow_hyphens;
use crate::usage_errors::UsageError;
use anyhow::{Result, bail};
use clap::parser::ValueSource;
use clap::{Args, Command, FromArgMatches, ValueEnum};
use larder_lab::bench::Workload;
use std::ffi::OsString;
use std::path::Path;

/// A benchmark that works in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum InnerBenchmark {
    /// Many small files; see larder bench postmark.
    Postmark,
    /// Random records of a file; see larder bench probe.
    Probe,
}

impl InnerBenchmark {
    /// Returns the name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            InnerBenchmark::Postmark => "postmark",
            InnerBenchmark::Probe => "probe",
        }
    }

    /// Returns the benchmark with these arguments, in an existing directory.
    pub(super) fn workload(
        self,
        directory: &Path,
        arguments: &[String],
    ) -> Result<Box<dyn Workload>> {
        let arguments = arguments.iter().map(OsString::from);
        Ok(match self {
            InnerBenchmark::Postmark => {
                let arguments: postmark::PostmarkArgs = parse(self.name(), arguments)?;
                Box::new(arguments.in_directory(directory)?)
            }
            InnerBenchmark::Probe => {
                let target = [directory.as_os_str().to_owned()].into_iter();
                let arguments: probe::ProbeArgs = parse(self.name(), target.chain(arguments))?;
                Box::new(arguments.bench()?)
            }
        })
    }
}

/// Parses the arguments. Invalid ones, and a request for help, end the process as for the benchmark
/// itself.
pub(super) fn parse<A: Args + FromArgMatches>(
    name: &'static str,
    words: impl Iterator<Item = OsString>,
) -> Result<A> {
    let command = Command::new(name).bin_name(format!("larder bench {name}"));
    let command = command.no_binary_name(true);
    let command = allow_hyphens(A::augment_args(command));
    let matches = match command.clone().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) if error.use_stderr() => {
            bail!(UsageError::new(error, command, &format!("larder bench {name}")));
        }
        Err(error) => error.exit(),
    };
    // The outer command determines trials and their start.
    let run_args = RunArgs::augment_args(Command::new(name));
    for argument in run_args.get_arguments() {
        let source = matches.value_source(argument.get_id().as_str());
        if source == Some(ValueSource::CommandLine) {
            let flag = argument.get_long().unwrap_or_default();
            bail!("run {name} here: --{flag} belongs before the --");
        }
    }
    A::from_arg_matches(&matches).map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn its_words_are_read_as_outside() {
        let directory = tempfile::tempdir().unwrap();
        let workload =
            |inner: InnerBenchmark, line| inner.workload(directory.path(), &split_words(line));
        let postmark = workload(InnerBenchmark::Postmark, "--number 7 --transactions 20").unwrap();
        assert_eq!(postmark.settings()["number"], 7);
        assert_eq!(postmark.paths(), [directory.path()]);
        let probe = workload(InnerBenchmark::Probe, "--size 1MiB --pattern R").unwrap();
        assert_eq!(probe.settings()["file_bytes"], 1 << 20);
    }

    #[test]
    fn what_the_command_outside_says_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let error = |inner: InnerBenchmark, line: &str| {
            inner.workload(directory.path(), &split_words(line)).err().unwrap().to_string()
        };
        let message = error(InnerBenchmark::Postmark, "--trials 3");
        assert_eq!(message, "run postmark here: --trials belongs before the --");
        assert!(error(InnerBenchmark::Probe, "--start warm").contains("--start belongs before"));
        assert!(error(InnerBenchmark::Postmark, "--location x").contains("leave locations out"));
        assert!(error(InnerBenchmark::Postmark, "--classic").contains("--classic is one run"));
    }
}
