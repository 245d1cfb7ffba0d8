//! Throughput mode: the number of threads, and the end of a pass.

use super::cells::GridArgs;
use crate::commands::compare::percent;
use anyhow::{Result, ensure};
use clap::Args;
use larder_lab::bench::iozone::grid::Cell;
use larder_lab::bench::iozone::throughput::{READERS, THREADS_MAX, ThroughputRun, kinds};
use larder_lab::bench::iozone::{AccessPattern, DEFAULT_TESTS, MIX_TEST, RECORD_REWRITE_TEST};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct ThroughputArgs {
    /// Throughput mode with this many threads.
    ///
    /// The threads run at once, each on a file of its own.
    #[arg(short = 't', long, value_name = "NUMBER", value_parser = threads,
          conflicts_with_all = GridArgs::RANGE_OPTIONS)]
    threads: Option<u64>,

    /// Throughput mode from this number of threads on.
    ///
    /// Each number of threads is measured, up to this one if -u is not given.
    #[arg(short = 'l', long, value_name = "NUMBER", value_parser = threads,
          conflicts_with_all = GridArgs::RANGE_OPTIONS, conflicts_with = "threads",
          hide_short_help = true)]
    min_threads: Option<u64>,

    /// Maximum number of threads; from 1 on, if -l is not given.
    #[arg(short = 'u', long, value_name = "NUMBER", value_parser = threads,
          conflicts_with_all = GridArgs::RANGE_OPTIONS, conflicts_with = "threads",
          hide_short_help = true)]
    max_threads: Option<u64>,

    /// Let each thread process its whole file.
    ///
    /// Otherwise all threads end with the first one that finishes, as in IOzone.
    #[arg(short = 'x', long, hide_short_help = true)]
    no_stonewall: bool,

    /// Percentage of reading threads in test 8.
    ///
    /// Every other thread reads, if not given.
    #[arg(long, value_name = "PERCENT", value_parser = percent, hide_short_help = true)]
    mix_readers: Option<f64>,
}

fn threads(text: &str) -> Result<u64, String> {
    let found = text.parse().ok().filter(|number| (1..=THREADS_MAX).contains(number));
    found.ok_or_else(|| format!("\"{text}\" is no number of threads; write 1 to {THREADS_MAX}"))
}

impl ThroughputArgs {
    /// Returns true if throughput mode is selected.
    pub(super) fn is_enabled(&self) -> bool {
        self.threads.or(self.min_threads).or(self.max_threads).is_some()
    }

    /// Returns true if an option is given that only throughput mode has.
    pub(super) fn has_options(&self) -> bool {
        self.no_stonewall || self.mix_readers.is_some()
    }

    fn numbers(&self) -> Result<Vec<u64>> {
        if let Some(number) = self.threads {
            return Ok(vec![number]);
        }
        let least = self.min_threads.unwrap_or(1);
        let most = self.max_threads.unwrap_or(least);
        ensure!(least <= most, "use {least} to {most} threads: -l is above -u");
        Ok((least..=most).collect())
    }

    /// Returns the run.
    pub(super) fn run(
        &self,
        cell: Cell,
        tests: &[u8],
        access: AccessPattern,
        directory: PathBuf,
    ) -> Result<ThroughputRun> {
        let all = || DEFAULT_TESTS.into_iter().chain([MIX_TEST]);
        let tests = if tests.is_empty() {
            all().filter(|test| *test != RECORD_REWRITE_TEST).collect()
        } else {
            tests.to_vec()
        };
        for test in &tests {
            let reason = "throughput mode has none; it is of the grid only";
            ensure!(!kinds(&[*test]).is_empty(), "run test {test} with threads: {reason}");
        }
        let readers = self.mix_readers.unwrap_or(READERS);
        let (threads, stonewall) = (self.numbers()?, !self.no_stonewall);
        Ok(ThroughputRun { threads, cell, tests, access, stonewall, readers, directory })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(threads: [Option<u64>; 3]) -> Result<Vec<u64>> {
        let [threads, min_threads, max_threads] = threads;
        let mode = ThroughputArgs {
            threads,
            min_threads,
            max_threads,
            no_stonewall: false,
            mix_readers: None,
        };
        assert!(mode.is_enabled());
        mode.numbers()
    }

    #[test]
    fn numbers_of_threads_are_those_of_iozone() {
        assert_eq!(numbers([Some(4), None, None]).unwrap(), [4]);
        assert_eq!(numbers([None, Some(2), Some(4)]).unwrap(), [2, 3, 4]);
        assert_eq!(numbers([None, Some(3), None]).unwrap(), [3]);
        assert_eq!(numbers([None, None, Some(3)]).unwrap(), [1, 2, 3]);
        assert!(numbers([None, Some(3), Some(2)]).is_err());
        assert_eq!(threads("1024"), Ok(1024));
        for wrong in ["0", "1025", "two", ""] {
            assert!(threads(wrong).unwrap_err().contains("no number of threads"), "{wrong}");
        }
    }
}
