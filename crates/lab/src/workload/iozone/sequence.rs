//! Several workloads played one after the other, and put together as one run.
//!
//! Invariant: whatever way it ends, the files under test are removed; and one that was there before
//! is never touched.

use super::cell::remove;
use crate::bench::{BenchError, Plan, Played, Progress, Surroundings, Workload, play};
use larder_report::run::Run;
use larder_report::run::trial::{Doubt, Trial, Why};
use std::collections::BTreeMap;
use std::path::PathBuf;
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
    /// What they are together, in one line.
    pub(super) what: &'a str,
    /// In their order.
    pub(super) parts: Vec<Part<'a>>,
    /// The files under test.
    pub(super) files: &'a [PathBuf],
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

impl Sequence<'_> {
    /// Plays; a stop after the first result gives what there is.
    pub(super) fn play(
        self,
        plan: &Plan,
        surroundings: &dyn Surroundings,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(Progressed<'_>),
    ) -> Result<Played, BenchError> {
        if let Some(path) = self.files.iter().find(|path| path.symlink_metadata().is_ok()) {
            let why = "it is there already; remove it or name another folder";
            return Err(BenchError::Workload(format!("make {}: {why}", path.display())));
        }
        let files = self.files;
        let played = self.play_all(plan, surroundings, stop, watch);
        let removed = files.iter().map(|path| remove(path)).fold(Ok(()), Result::and);
        match (played, removed) {
            (Err(first), Err(second)) => {
                Err(BenchError::LeftBehind { first: Box::new(first), second: Box::new(second) })
            }
            (Err(error), Ok(())) | (Ok(_), Err(error)) => Err(error),
            (Ok(played), Ok(())) => Ok(played),
        }
    }

    fn play_all(
        self,
        plan: &Plan,
        surroundings: &dyn Surroundings,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(Progressed<'_>),
    ) -> Result<Played, BenchError> {
        let (all, all_bytes) = (self.parts.len(), self.parts.iter().map(|part| part.bytes).sum());
        let (mut whole, mut doubts): (Option<Run>, Doubts) = (None, Doubts::default());
        let (mut done, mut bytes) = (0, 0);
        for Part { mut workload, bytes: of_part, what } in self.parts {
            let (done_before, bytes_before) = ([done, all], [bytes, all_bytes]);
            let mut tell = |progress| {
                watch(Progressed { what: &what, done: done_before, bytes: bytes_before, progress });
            };
            let played = match play(&mut *workload, plan, surroundings, stop, &mut tell) {
                Err(error) if error.is_stop() && whole.is_some() => break,
                played => played?,
            };
            let mut run = played.run;
            doubts.add(&what, std::mem::take(&mut run.doubts));
            match &mut whole {
                None => whole = Some(run),
                Some(whole) => join(whole, run),
            }
            if played.stopped {
                break;
            }
            done += 1;
            bytes += of_part;
        }
        let nothing = || BenchError::Workload("measure: no cell or no test is left".to_owned());
        let mut run = whole.ok_or_else(nothing)?;
        self.what.clone_into(&mut run.what);
        run.doubts = doubts.into_sentences();
        Ok(Played { run, stopped: done < all })
    }
}

/// What is doubtful in any part: a thousand parts are not to say the same a thousand times.
#[derive(Default)]
struct Doubts {
    /// By kind: what the first part says, which that is, and how many others say the same.
    counted: BTreeMap<Why, (String, String, usize)>,
    /// What does not differ from part to part.
    plain: Vec<Doubt>,
}

impl Doubts {
    fn add(&mut self, part: &str, doubts: Vec<Doubt>) {
        for doubt in doubts {
            if !matches!(doubt.why, Why::Below | Why::Workload) {
                let first = || (doubt.text.clone(), part.to_owned(), 0);
                let known = self.counted.entry(doubt.why);
                known.and_modify(|(.., more)| *more += 1).or_insert_with(first);
            } else if !self.plain.contains(&doubt) {
                self.plain.push(doubt);
            }
        }
    }

    fn into_sentences(self) -> Vec<Doubt> {
        let sentence = |(why, (text, part, more)): (Why, (String, String, usize))| {
            let others = match more {
                0 => String::new(),
                1 => ", and 1 more part is like that".to_owned(),
                more => format!(", and {more} more parts are like that"),
            };
            Doubt { why, text: format!("in {part}: {text}{others}") }
        };
        self.counted.into_iter().map(sentence).chain(self.plain).collect()
    }
}

/// Puts what another part showed to what there is.
fn join(whole: &mut Run, part: Run) {
    whole.samples.extend(part.samples);
    for (place, trial) in part.trials.into_iter().enumerate() {
        match whole.trials.get_mut(place) {
            Some(sum) => add(sum, trial),
            None => whole.trials.push(trial),
        }
    }
    for change in part.environment_changes {
        if !whole.environment_changes.contains(&change) {
            whole.environment_changes.push(change);
        }
    }
}

/// Trial `i` of all is trial `i` of each part.
fn add(sum: &mut Trial, more: Trial) {
    sum.duration_ns += more.duration_ns;
    sum.started.files += more.started.files;
    let add = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
    sum.started.pages = add(sum.started.pages, more.started.pages);
    sum.started.resident = add(sum.started.resident, more.started.resident);
    sum.steal = sum.steal.zip(more.steal).map(|(one, other)| one.max(other));
    sum.disk_bytes = add(sum.disk_bytes, more.disk_bytes);
    sum.own_bytes = add(sum.own_bytes, more.own_bytes);
    for phase in more.phases {
        match sum.phases.iter_mut().find(|one| one.name == phase.name) {
            Some(one) => one.duration_ns += phase.duration_ns,
            None => sum.phases.push(phase),
        }
    }
    for latency in more.latencies {
        match sum.latencies.iter_mut().find(|one| one.what == latency.what) {
            Some(one) => one.add(&latency),
            None => sum.latencies.push(latency),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubt(why: Why, text: &str) -> Doubt {
        Doubt { why, text: text.to_owned() }
    }

    #[test]
    fn doubts_of_one_kind_are_said_once_with_their_number() {
        let mut doubts = Doubts::default();
        for part in ["one", "two", "three"] {
            let steal = doubt(Why::Steal, &format!("time of {part} was stolen"));
            doubts.add(part, vec![steal, doubt(Why::Below, "a disk has a cache")]);
        }
        doubts.add("four", vec![doubt(Why::Workload, "it was odd")]);
        let said: Vec<String> = doubts.into_sentences().into_iter().map(|it| it.text).collect();
        let known = [
            "in one: time of one was stolen, and 2 more parts are like that",
            "a disk has a cache",
            "it was odd",
        ];
        assert_eq!(said, known);
    }
}
