//! A benchmark inside of another command, which says where it works and how often: its own words
//! stand behind `--`.

use super::run_args::RunArgs;
use super::{postmark, probe};
use crate::args::allow_hyphens;
use anyhow::{Result, bail};
use clap::parser::ValueSource;
use clap::{Args, Command, FromArgMatches, ValueEnum};
use larder_lab::bench::Workload;
use std::ffi::OsString;
use std::path::Path;

/// A benchmark that works in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Inner {
    /// Many small files; see larder bench postmark.
    Postmark,
    /// Random records of a file; see larder bench probe.
    Probe,
}

impl Inner {
    /// Its name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Inner::Postmark => "postmark",
            Inner::Probe => "probe",
        }
    }

    /// The benchmark with its words, to work in a directory that is there.
    pub(super) fn workload(self, directory: &Path, words: &[String]) -> Result<Box<dyn Workload>> {
        let words = words.iter().map(OsString::from);
        Ok(match self {
            Inner::Postmark => {
                let arguments: postmark::Arguments = parse(self.name(), words)?;
                Box::new(arguments.inside(directory)?)
            }
            Inner::Probe => {
                let target = [directory.as_os_str().to_owned()].into_iter();
                let arguments: probe::Arguments = parse(self.name(), target.chain(words))?;
                Box::new(arguments.bench()?)
            }
        })
    }
}

/// Reads the words. Wrong ones, and a wish for help, end the process as they do outside.
pub(super) fn parse<A: Args + FromArgMatches>(
    name: &'static str,
    words: impl Iterator<Item = OsString>,
) -> Result<A> {
    let command = Command::new(name).bin_name(format!("larder bench {name}"));
    let command = command.no_binary_name(true);
    let command = allow_hyphens(A::augment_args(command));
    let matches = command.try_get_matches_from(words);
    let matches = matches.unwrap_or_else(|error| error.exit());
    // How it is played is the business of the command outside.
    let playing = RunArgs::augment_args(Command::new(name));
    for argument in playing.get_arguments() {
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
        let workload = |inner: Inner, line| inner.workload(directory.path(), &split_words(line));
        let postmark = workload(Inner::Postmark, "--number 7 --transactions 20").unwrap();
        assert_eq!(postmark.settings()["number"], 7);
        assert_eq!(postmark.paths(), [directory.path()]);
        let probe = workload(Inner::Probe, "--size 1MiB --pattern R").unwrap();
        assert_eq!(probe.settings()["file_bytes"], 1 << 20);
    }

    #[test]
    fn what_the_command_outside_says_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let refused = |inner: Inner, line: &str| {
            inner.workload(directory.path(), &split_words(line)).err().unwrap().to_string()
        };
        let said = refused(Inner::Postmark, "--trials 3");
        assert_eq!(said, "run postmark here: --trials belongs before the --");
        assert!(refused(Inner::Probe, "--start warm").contains("--start belongs before"));
        assert!(refused(Inner::Postmark, "--location x").contains("leave locations out"));
        assert!(refused(Inner::Postmark, "--classic").contains("--classic is one run"));
    }
}
