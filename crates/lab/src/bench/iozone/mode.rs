//! The modes of IOzone as workloads: the tests of a mode run one after the other on the same files,
//! each as a part with its own cold or warm starts, and are combined to one run.
//!
//! Invariant: however it ends, the directory with the files under test is removed; a directory that
//! existed before is never touched.

use super::grid::Cell;
use super::passes::passes;
use super::subject::{AccessPattern, TestFile};
use crate::bench::{
    BenchError, HostEnv, Outcome, Plan, Progress, RunResult, Series, Space, StartState,
    TrialContext, WorkPart, Workload, run_trials,
};
use crate::locked_path::LockedPath;
use larder_schema::run::Run;
use larder_schema::run::trial::{Doubt, DoubtReason};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// The unit of rates.
pub(super) const RATE: &str = "B/s";
/// Suffix of the name of a series whose time includes the flush.
pub(super) const FLUSHED: &str = ", flushed";

/// A test of `-i` on files of one size, with records of one size.
#[derive(Clone, Debug)]
pub struct TestPart {
    /// The number of the test.
    pub test: u8,
    /// The size of each file, and of its records.
    pub cell: Cell,
    /// Threads, each with its own file.
    pub threads: usize,
    /// Description for progress reports.
    pub what: String,
}

impl TestPart {
    /// Returns the bytes of all files.
    fn bytes(&self) -> u64 {
        self.cell.file_bytes * self.threads as u64
    }

    fn to_work_part(&self) -> WorkPart {
        WorkPart { what: self.what.clone(), bytes: self.bytes() }
    }

    /// Returns true if the test begins without files.
    fn makes(&self) -> bool {
        passes(self.test).first().is_some_and(|pass| pass.makes)
    }
}

/// A mode of IOzone with its parameters.
pub trait Mode {
    /// Returns a one-line description.
    fn description(&self) -> String;

    /// Returns the parameters, by name with the unit at the end.
    fn settings(&self) -> BTreeMap<String, Value>;

    /// Returns the existing, writable directory in which the files under test are created.
    fn directory(&self) -> &Path;

    /// Returns the way in which files are opened.
    fn access(&self) -> AccessPattern;

    /// Returns the tests, in their order.
    fn parts(&self) -> Vec<TestPart>;

    /// Returns the tests as parts of a workload.
    fn work_parts(&self) -> Vec<WorkPart> {
        self.parts().iter().map(TestPart::to_work_part).collect()
    }

    /// Returns the series of a test.
    fn series(&self, part: &TestPart) -> Vec<Series>;

    /// Runs a test once, on one file for each thread.
    ///
    /// # Errors
    /// The system reported an error, or the user stopped the run.
    fn trial(&self, part: &TestPart, files: Vec<TestFile<'_>>) -> Result<Outcome, BenchError>;

    /// Returns the rates as text; with `flushed` those of writes include the flush.
    fn rows(&self, run: &Run, flushed: bool) -> String;

    /// Returns tables for spreadsheets.
    fn tables(&self, run: &Run, flushed: bool) -> String;
}

/// Runs all tests of a mode; a stop after the first result returns the results so far.
///
/// # Errors
/// There is no test, the directory for the files cannot be created, or the first error of a test.
pub fn run(
    mode: &dyn Mode,
    plan: &Plan,
    host: &dyn HostEnv,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<RunResult, BenchError> {
    let mut bench = IozoneBench::new(mode);
    if bench.parts.is_empty() {
        let none = "no test, file size or record size is left; a record must not exceed its file";
        return Err(BenchError::Failed(none.to_owned()));
    }
    let mut result = run_trials(&mut bench, plan, host, stop, on_progress)?;
    result.run.doubts = merge_doubts(result.run.doubts);
    Ok(result)
}

/// The workload of a mode.
pub(super) struct IozoneBench<'a> {
    mode: &'a dyn Mode,
    parts: Vec<TestPart>,
    /// The selected part.
    current: usize,
    /// The directory with the files under test, and its lock once it exists.
    work_directory: PathBuf,
    held: Option<LockedPath>,
}

impl<'a> IozoneBench<'a> {
    pub(super) fn new(mode: &'a dyn Mode) -> Self {
        let (parts, work_directory) = (mode.parts(), work_directory(mode.directory()));
        IozoneBench { mode, parts, current: 0, work_directory, held: None }
    }

    fn part(&self) -> &TestPart {
        &self.parts[self.current]
    }

    /// Returns the files of the current part, one for each thread.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let file = |thread| self.work_directory.join(format!("file.{thread}"));
        (0..self.part().threads).map(file).collect()
    }

    fn test_file<'f>(
        &self,
        context: &'f TrialContext<'f>,
        thread: usize,
        path: &Path,
    ) -> TestFile<'f> {
        TestFile::new(context, path, self.part().cell, self.mode.access(), thread as u64)
    }
}

impl Workload for IozoneBench<'_> {
    fn name(&self) -> &'static str {
        "iozone"
    }

    fn parts(&self) -> Vec<WorkPart> {
        self.mode.work_parts()
    }

    fn select_part(&mut self, number: usize) -> Result<(), BenchError> {
        // Tests of the same cell share their files.
        if self.parts[number].cell != self.part().cell {
            self.files().iter().try_for_each(|file| remove(file))?;
        }
        self.current = number;
        Ok(())
    }

    fn description(&self) -> String {
        self.mode.description()
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        self.mode.settings()
    }

    fn series(&self) -> Vec<Series> {
        self.mode.series(self.part())
    }

    fn space(&self) -> Vec<Space> {
        let lengths = self.files().into_iter().filter_map(|file| Some(file.metadata().ok()?.len()));
        let bytes = self.part().bytes().saturating_sub(lengths.sum());
        vec![Space { directory: self.mode.directory().to_owned(), bytes }]
    }

    fn paths(&self) -> Vec<PathBuf> {
        vec![self.mode.directory().to_owned()]
    }

    fn prepare(&mut self, context: &TrialContext<'_>) -> Result<(), BenchError> {
        if self.held.is_none() {
            let made = LockedPath::make(&self.work_directory, || {
                std::fs::create_dir(&self.work_directory)
            });
            let failed = BenchError::io(format!("make {}", self.work_directory.display()));
            self.held = Some(made.map_err(failed)?);
        }
        if self.part().makes() {
            return Ok(());
        }
        let length = self.part().cell.records() * self.part().cell.record_bytes;
        for (thread, file) in self.files().iter().enumerate() {
            if !file.metadata().is_ok_and(|metadata| metadata.len() == length) {
                self.test_file(context, thread, file).make()?;
            }
        }
        Ok(())
    }

    fn start_state(&mut self) -> StartState<'_> {
        StartState::Files(if self.part().makes() { Vec::new() } else { self.files() })
    }

    fn trial(&mut self, context: &TrialContext<'_>) -> Result<Outcome, BenchError> {
        let files = self.files();
        if self.part().makes() {
            files.iter().try_for_each(|file| remove(file))?;
        }
        let files = files.iter().enumerate();
        let files = files.map(|(thread, file)| self.test_file(context, thread, file)).collect();
        self.mode.trial(self.part(), files)
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        if self.held.take().is_none() {
            return Ok(());
        }
        let failed = BenchError::io(format!("remove {}", self.work_directory.display()));
        std::fs::remove_dir_all(&self.work_directory).map_err(failed)
    }
}

/// Returns the path of this process's directory within `directory`.
pub(super) fn work_directory(directory: &Path) -> PathBuf {
    directory.join(format!("larder-iozone-{}", std::process::id()))
}

/// Removes a file, if it exists.
fn remove(path: &Path) -> Result<(), BenchError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(BenchError::io(format!("remove {}", path.display()))(error))
        }
        _ => Ok(()),
    }
}

/// Returns bytes per second.
pub(super) fn rate(bytes: u64, took: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "bytes and times stay below 2^53")]
    let rate = bytes as f64 * 1e9 / took.max(1) as f64;
    rate
}

/// Merges the doubts of one kind into one, since many parts have the same doubt with other numbers.
fn merge_doubts(doubts: Vec<Doubt>) -> Vec<Doubt> {
    let mut counted: BTreeMap<DoubtReason, (String, usize)> = BTreeMap::new();
    let mut plain = Vec::new();
    for doubt in doubts {
        // Doubts of workloads and about caches below the page cache differ in more than numbers.
        if matches!(doubt.why, DoubtReason::Below | DoubtReason::Workload) {
            plain.push(doubt);
        } else {
            let entry = counted.entry(doubt.why);
            entry.and_modify(|(_, more)| *more += 1).or_insert((doubt.text, 0));
        }
    }
    let sentence = |(why, (text, more)): (DoubtReason, (String, usize))| {
        let others = match more {
            0 => String::new(),
            1 => "; the same in other numbers for 1 more test".to_owned(),
            more => format!("; the same in other numbers for {more} more tests"),
        };
        Doubt { why, text: text + &others }
    };
    counted.into_iter().map(sentence).chain(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubts_of_one_kind_are_said_once_with_their_number() {
        let doubt = |why, text: &str| Doubt { why, text: text.to_owned() };
        let merged = merge_doubts(vec![
            doubt(DoubtReason::Steal, "time was stolen in 1 of 3"),
            doubt(DoubtReason::Below, "a disk has a cache"),
            doubt(DoubtReason::Steal, "time was stolen in 2 of 3"),
            doubt(DoubtReason::Workload, "it was odd"),
            doubt(DoubtReason::Steal, "time was stolen in 3 of 3"),
        ]);
        let merged: Vec<String> = merged.into_iter().map(|it| it.text).collect();
        let expected = [
            "time was stolen in 1 of 3; the same in other numbers for 2 more tests",
            "a disk has a cache",
            "it was odd",
        ];
        assert_eq!(merged, expected);
    }
}
