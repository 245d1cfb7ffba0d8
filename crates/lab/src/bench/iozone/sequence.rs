//! Several workloads on the same files, run one after the other and combined to one run.
//!
//! Invariant: however it ends, the directory with the files under test is removed; a directory that
//! existed before is never touched.

use crate::bench::held::Held;
use crate::bench::{
    BenchError, HostEnv, InParts, PartsProgress, Plan, Progress, RunResult, Workload, play_parts,
};
use larder_schema::run::trial::{Doubt, DoubtReason};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// One workload of a sequence.
pub(super) struct Part<'a> {
    /// The workload.
    pub(super) workload: Box<dyn Workload + 'a>,
    /// Bytes that it processes, which determine its time.
    pub(super) bytes: u64,
    /// Its description for progress reports.
    pub(super) what: String,
}

/// Workloads that run one after the other.
pub(super) struct Sequence<'a> {
    what: String,
    /// Each workload is taken out when it starts.
    workloads: Vec<Option<Box<dyn Workload + 'a>>>,
    /// Description and bytes of each workload.
    part_sizes: Vec<(String, u64)>,
    /// The directory with their files.
    directory: PathBuf,
}

/// Progress of a run of several parts.
#[derive(Clone, Copy, Debug)]
pub struct Progressed<'a> {
    /// Description of the current part.
    pub what: &'a str,
    /// Finished parts, and all parts.
    pub done: [usize; 2],
    /// Bytes processed by the finished parts, and bytes of all parts, which determine the time.
    pub bytes: [u64; 2],
    /// Progress of the current part.
    pub progress: Progress,
}

impl<'a> Sequence<'a> {
    /// Returns the sequence with this one-line description, and with the directory to create for
    /// its files.
    pub(super) fn new(what: String, parts: Vec<Part<'a>>, directory: PathBuf) -> Self {
        let (mut workloads, mut part_sizes) = (Vec::new(), Vec::new());
        for part in parts {
            workloads.push(Some(part.workload));
            part_sizes.push((part.what, part.bytes));
        }
        Sequence { what, workloads, part_sizes, directory }
    }

    /// Runs all parts; a stop after the first result returns the results so far.
    pub(super) fn run_sequence(
        mut self,
        plan: &Plan,
        host: &dyn HostEnv,
        stop: &AtomicBool,
        on_progress: &mut dyn FnMut(Progressed<'_>),
    ) -> Result<RunResult, BenchError> {
        if self.workloads.is_empty() {
            return Err(BenchError::Workload("measure: no cell or no test is left".to_owned()));
        }
        let made = Held::make(&self.directory, || std::fs::create_dir(&self.directory));
        let _held = made.map_err(BenchError::io(format!("make {}", self.directory.display())))?;
        let part_sizes = std::mem::take(&mut self.part_sizes);
        let sum = |part_sizes: &[(String, u64)]| -> u64 {
            part_sizes.iter().map(|(_, bytes)| bytes).sum()
        };
        let all = sum(&part_sizes);
        let mut report_part = |PartsProgress { part, parts, progress }| {
            let (what, before) = (&part_sizes[part - 1].0, &part_sizes[..part - 1]);
            let (done, bytes) = ([before.len(), parts], [sum(before), all]);
            on_progress(Progressed { what, done, bytes, progress });
        };
        let mut result = play_parts(&mut self, plan, host, stop, &mut report_part)?;
        result.run.doubts = merge_doubts(std::mem::take(&mut result.run.doubts));
        Ok(result)
    }
}

impl InParts for Sequence<'_> {
    fn description(&self) -> String {
        self.what.clone()
    }

    fn parts(&self) -> usize {
        self.workloads.len()
    }

    fn part(&mut self, number: usize) -> Box<dyn Workload + '_> {
        self.workloads[number].take().expect("each part is played once")
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        let failed = BenchError::io(format!("remove {}", self.directory.display()));
        std::fs::remove_dir_all(&self.directory).map_err(failed)
    }
}

/// Returns the path of this process's directory within `directory`.
pub(super) fn work_directory(directory: &Path) -> PathBuf {
    directory.join(format!("larder-iozone-{}", std::process::id()))
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
