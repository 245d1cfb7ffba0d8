//! Several workloads on the same files, played one after the other and put together as one run.
//!
//! Invariant: whatever way it ends, the directory with the files under test is removed; and one that
//! was there before is never touched.

use crate::bench::held::Held;
use crate::bench::{
    BenchError, HostEnv, InParts, PartsProgress, Plan, Progress, RunResult, Workload, play_parts,
};
use larder_report::run::trial::{Doubt, DoubtReason};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// One of them.
pub(super) struct Part<'a> {
    /// What is played.
    pub(super) workload: Box<dyn Workload + 'a>,
    /// Bytes that it goes through: what the time depends on.
    pub(super) bytes: u64,
    /// What it is, for people who wait.
    pub(super) what: String,
}

/// All of them.
pub(super) struct Sequence<'a> {
    what: String,
    /// Each is taken out when its turn comes.
    workloads: Vec<Option<Box<dyn Workload + 'a>>>,
    /// What each is, and its bytes.
    known: Vec<(String, u64)>,
    /// Holds the files that they work on.
    directory: PathBuf,
}

/// How far a run of several parts is.
#[derive(Clone, Copy, Debug)]
pub struct Progressed<'a> {
    /// What is played.
    pub what: &'a str,
    /// Parts that are done, and all there are.
    pub done: [usize; 2],
    /// Bytes that were gone through for these, and for all: what the time depends on.
    pub bytes: [u64; 2],
    /// How far the player is with the part at hand.
    pub progress: Progress,
}

impl<'a> Sequence<'a> {
    /// What the parts are together, in one line, and the directory that is made for their files.
    pub(super) fn new(what: String, parts: Vec<Part<'a>>, directory: PathBuf) -> Self {
        let (mut workloads, mut known) = (Vec::new(), Vec::new());
        for part in parts {
            workloads.push(Some(part.workload));
            known.push((part.what, part.bytes));
        }
        Sequence { what, workloads, known, directory }
    }

    /// Plays; a stop after the first result gives what there is.
    pub(super) fn run_sequence(
        mut self,
        plan: &Plan,
        surroundings: &dyn HostEnv,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(Progressed<'_>),
    ) -> Result<RunResult, BenchError> {
        if self.workloads.is_empty() {
            return Err(BenchError::Workload("measure: no cell or no test is left".to_owned()));
        }
        let made = Held::make(&self.directory, || std::fs::create_dir(&self.directory));
        let _held = made.map_err(BenchError::io(format!("make {}", self.directory.display())))?;
        let known = std::mem::take(&mut self.known);
        let sum = |known: &[(String, u64)]| -> u64 { known.iter().map(|(_, bytes)| bytes).sum() };
        let all = sum(&known);
        let mut tell = |PartsProgress { part, parts, progress }| {
            let (what, before) = (&known[part - 1].0, &known[..part - 1]);
            let (done, bytes) = ([before.len(), parts], [sum(before), all]);
            watch(Progressed { what, done, bytes, progress });
        };
        let mut played = play_parts(&mut self, plan, surroundings, stop, &mut tell)?;
        played.run.doubts = once(std::mem::take(&mut played.run.doubts));
        Ok(played)
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

/// The directory of this process in the one that is named.
pub(super) fn own_directory(directory: &Path) -> PathBuf {
    directory.join(format!("larder-iozone-{}", std::process::id()))
}

/// Doubts of one kind said once: a thousand parts are not to say the same a thousand times in other
/// numbers.
fn once(doubts: Vec<Doubt>) -> Vec<Doubt> {
    let mut counted: BTreeMap<DoubtReason, (String, usize)> = BTreeMap::new();
    let mut plain = Vec::new();
    for doubt in doubts {
        // What a workload says and what is below the page cache differs in more than numbers.
        if matches!(doubt.why, DoubtReason::Below | DoubtReason::Workload) {
            plain.push(doubt);
        } else {
            let known = counted.entry(doubt.why);
            known.and_modify(|(_, more)| *more += 1).or_insert((doubt.text, 0));
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
        let said = once(vec![
            doubt(DoubtReason::Steal, "time was stolen in 1 of 3"),
            doubt(DoubtReason::Below, "a disk has a cache"),
            doubt(DoubtReason::Steal, "time was stolen in 2 of 3"),
            doubt(DoubtReason::Workload, "it was odd"),
            doubt(DoubtReason::Steal, "time was stolen in 3 of 3"),
        ]);
        let said: Vec<String> = said.into_iter().map(|it| it.text).collect();
        let known = [
            "time was stolen in 1 of 3; the same in other numbers for 2 more tests",
            "a disk has a cache",
            "it was odd",
        ];
        assert_eq!(said, known);
    }
}
