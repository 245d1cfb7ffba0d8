//! Write order: changes that must be stable in the store before other changes are submitted to it.
//!
//! A write may belong to a group of its volume. `WriteOrder::order` puts the present changes of one
//! group before those of another group. The changes of a group up to such a call form a *stage*:
//! the stage gets no more blocks, and later changes of the group open the next stage. A stage
//! *waits* for other stages; one that waits for none is *free*. A stage is stable, and removed,
//! when all its blocks have been written and the store was flushed after that.
//!
//! A page is written as a whole, so stages that share a page are written together. Such stages are
//! *coupled*: each needs the stages for which the other waits.
//!
//! Invariants: no stage needs itself, directly or through coupled stages; no stage waits for an
//! open stage. So one of the remaining stages is always free.

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};
use crate::units::PAGE_BLOCKS_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

#[cfg(test)]
mod tests;

/// A group of writes to one volume, created by [`crate::cache::Cache::group`]. It uses no memory
/// while none of its changes is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId {
    pub(crate) volume: u16,
    pub(crate) number: u64,
}

/// The reason why two groups cannot be ordered. The order is unchanged then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// The groups belong to different volumes.
    #[error("order groups of different volumes: order holds within one store")]
    OtherVolume,
    /// The first group already waits for the second one, or changes of both are in one page.
    #[error(
        "order these groups: the first one may have to wait for the second one, because of an \
         earlier order or because changes of both lie in one page; flush, or use a new group"
    )]
    Cycle,
    /// The maximum number of groups wait.
    #[error("order these groups: {GROUPS_MAX} groups wait already; flush first")]
    TooMany,
}

/// Maximum number of unwritten blocks of all groups of a volume. Searches of the dirty list examine
/// more pages than that, so they find pages that are not held back.
const BLOCKS_MAX: usize = 8192;
/// Number of stages above which the store is flushed only to remove stages, and the maximum number
/// of stages.
const STAGES_FLUSH: usize = 128;
const STAGES_MAX: usize = 512;
/// Maximum number of groups that wait for others.
const GROUPS_MAX: usize = 1024;

type Stage = u64;

/// State of a block of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Dirty.
    Dirty,
    /// Being written.
    Writing,
    /// Being written, and changed since the write started.
    WritingAndDirty,
}

#[derive(Debug, Default)]
struct OrderedGroup {
    /// The stage that takes the next change.
    open: Option<Stage>,
    /// Stages for which its later stages must wait.
    waits: BTreeSet<Stage>,
}

#[derive(Debug, Default)]
struct StageState {
    group: u64,
    /// Number of blocks that have not been written.
    unwritten: usize,
    /// Number of the store flush that makes the written blocks stable.
    flush: u64,
    waits: BTreeSet<Stage>,
    coupled: BTreeSet<Stage>,
    /// True if a client waits for the stage, directly or through other stages.
    is_urgent: bool,
}

/// Groups of one volume that have unstable changes.
#[derive(Debug, Default)]
pub(crate) struct WriteOrder {
    last_group: u64,
    last_stage: Stage,
    active: BTreeMap<u64, OrderedGroup>,
    stages: BTreeMap<Stage, StageState>,
    blocks: BTreeMap<(u64, Stage), Phase>,
    by_stage: BTreeSet<(Stage, u64)>,
    /// Number of store flushes that have begun; one runs at a time.
    flushes: u64,
}

/// The write order of a volume behind a lock. Without groups the lock is not taken.
///
/// The lock is a leaf of the lock order: a caller may hold a shard and the volume's queue.
#[derive(Debug, Default)]
pub(crate) struct LockedWriteOrder {
    groups: Mutex<WriteOrder>,
    load: AtomicUsize,
}

impl LockedWriteOrder {
    /// Returns true if no group has unstable changes, so that every page may be written at any
    /// time.
    pub(crate) fn is_empty(&self) -> bool {
        self.load.load(Ordering::Acquire) == 0
    }

    /// Calls `f` with the locked write order.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut WriteOrder) -> R) -> R {
        let mut groups = lock(&self.groups);
        let result = f(&mut groups);
        self.load.store(groups.load(), Ordering::Release);
        result
    }

    /// Calls `f` with the locked write order, unless it is empty.
    pub(crate) fn with_any(&self, f: impl FnOnce(&mut WriteOrder)) {
        if !self.is_empty() {
            self.with(f);
        }
    }

    /// Returns true if no block of any group is unwritten. Otherwise expedites all of them.
    pub(crate) fn is_written_or_expedite(&self) -> bool {
        self.is_empty() || self.with(WriteOrder::expedite_all)
    }

    /// Returns true if a page must not be written now.
    pub(crate) fn is_held(&self, page: &Range<u64>) -> bool {
        !self.is_empty() && self.with(|groups| groups.is_held(page))
    }

    /// Returns true if a page must not be written now, and expedites the stages for which it waits.
    pub(crate) fn expedite_if_held(&self, page: &Range<u64>) -> bool {
        let held = self.is_held(page);
        if held {
            self.with(|groups| groups.expedite(page));
        }
        held
    }
}

impl WriteOrder {
    /// Returns the number of a new group.
    pub(crate) fn add(&mut self) -> u64 {
        self.last_group += 1;
        self.last_group
    }

    /// Returns the number of tracked blocks and stages; 0 if every page may be written at any time.
    pub(crate) fn load(&self) -> usize {
        self.blocks.len() + self.stages.len()
    }

    fn stage(&mut self, stage: Stage) -> &mut StageState {
        self.stages.get_mut(&stage).expect("a stage that is not stable yet")
    }

    /// Returns `from` and all stages that must be stable before stages that wait for `from` can be
    /// written.
    fn needs(&self, from: impl IntoIterator<Item = Stage>) -> BTreeSet<Stage> {
        let mut found = BTreeSet::new();
        let mut pending: Vec<_> = from.into_iter().collect();
        while let Some(stage) = pending.pop() {
            if !found.insert(stage) {
                continue;
            }
            let state = &self.stages[&stage];
            pending.extend(&state.waits);
            for coupled in &state.coupled {
                pending.extend(&self.stages[coupled].waits);
            }
        }
        found
    }

    /// Orders two groups: no change of `after` is written to the store before all present changes
    /// of `before` are stable.
    pub(crate) fn order(&mut self, before: u64, after: u64) -> Result<(), OrderError> {
        if before == after {
            return Err(OrderError::Cycle);
        }
        let of = |group: u64| move |&(_, state): &(&Stage, &StageState)| state.group == group;
        let firsts: BTreeSet<_> = self.stages.iter().filter(of(before)).map(|(&s, _)| s).collect();
        if firsts.is_empty() {
            return Ok(());
        }
        if !self.active.contains_key(&after) && self.active.len() >= GROUPS_MAX {
            return Err(OrderError::TooMany);
        }
        let needed = self.needs(firsts.iter().copied());
        let waiting: Vec<_> = self.stages.iter().filter(of(after)).map(|(&s, _)| s).collect();
        let would_need_itself = |stage: &Stage| {
            needed.contains(stage) || self.stages[stage].coupled.iter().any(|b| needed.contains(b))
        };
        if waiting.iter().any(would_need_itself) {
            return Err(OrderError::Cycle);
        }
        for stage in waiting {
            self.stage(stage).waits.extend(&firsts);
        }
        self.active.entry(after).or_default().waits.extend(firsts);
        if let Some(group) = self.active.get_mut(&before) {
            group.open = None;
        }
        self.forget_groups();
        Ok(())
    }

    /// Adds `blocks`, all of one page, to the group, before they are changed. Returns false, and
    /// expedites the obstacle, if the page has changes that must be stable first or too many
    /// changes are unstable.
    pub(crate) fn join(
        &mut self,
        group: u64,
        page: &Range<u64>,
        blocks: impl Iterator<Item = u64>,
    ) -> bool {
        let stages_of_page = self.stages_in(page);
        let active = self.active.get(&group);
        let open = active.and_then(|active| active.open);
        let waits = match (open, active) {
            (Some(stage), _) => self.stages[&stage].waits.clone(),
            (None, Some(active)) => active.waits.clone(),
            (None, None) => BTreeSet::new(),
        };
        let needed = self.needs(waits.iter().copied());
        let before: Vec<_> = stages_of_page.intersection(&needed).copied().collect();
        if !before.is_empty() {
            self.expedite_stages(before);
            return false;
        }
        let is_full = self.blocks.len() + PAGE_BLOCKS_MAX as usize > BLOCKS_MAX
            || (open.is_none() && self.stages.len() >= STAGES_MAX);
        if is_full {
            self.expedite_stages(self.stages.keys().copied().collect::<Vec<_>>());
            return false;
        }
        let stage = open.unwrap_or_else(|| self.open(group, waits));
        for &other in stages_of_page.iter().filter(|&&other| other != stage) {
            self.stage(other).coupled.insert(stage);
            self.stage(stage).coupled.insert(other);
        }
        for block in blocks {
            match self.blocks.get_mut(&(block, stage)) {
                Some(phase @ Phase::Writing) => *phase = Phase::WritingAndDirty,
                Some(Phase::Dirty | Phase::WritingAndDirty) => {}
                None => {
                    self.blocks.insert((block, stage), Phase::Dirty);
                    self.by_stage.insert((stage, block));
                    self.stage(stage).unwritten += 1;
                }
            }
        }
        true
    }

    fn open(&mut self, group: u64, waits: BTreeSet<Stage>) -> Stage {
        self.last_stage += 1;
        let stage = self.last_stage;
        self.stages.insert(stage, StageState { group, waits, ..StageState::default() });
        self.active.entry(group).or_default().open = Some(stage);
        stage
    }

    fn tags(&self, blocks: &Range<u64>) -> impl Iterator<Item = (u64, Stage, Phase)> {
        let range = (blocks.start, 0)..(blocks.end, 0);
        self.blocks.range(range).map(|(&(block, stage), &phase)| (block, stage, phase))
    }

    fn stages_in(&self, blocks: &Range<u64>) -> BTreeSet<Stage> {
        self.tags(blocks).map(|(_, stage, _)| stage).collect()
    }

    /// Returns true if a page must not be written now.
    pub(crate) fn is_held(&self, page: &Range<u64>) -> bool {
        self.tags(page).any(|(_, stage, phase)| {
            phase != Phase::Writing && !self.stages[&stage].waits.is_empty()
        })
    }

    /// Expedites the stages that hold back a page.
    pub(crate) fn expedite(&mut self, page: &Range<u64>) {
        self.expedite_stages(self.stages_in(page));
    }

    fn expedite_stages(&mut self, stages: impl IntoIterator<Item = Stage>) {
        for stage in self.needs(stages) {
            self.stage(stage).is_urgent = true;
        }
    }

    /// Expedites all stages. Returns true if no block is unwritten.
    fn expedite_all(&mut self) -> bool {
        self.expedite_stages(self.stages.keys().copied().collect::<Vec<_>>());
        self.blocks.is_empty()
    }

    /// Returns true if a block is held back.
    pub(crate) fn has_waiting(&self) -> bool {
        self.stages.values().any(|state| state.unwritten > 0 && !state.waits.is_empty())
    }

    /// Returns the number of blocks that are held back.
    pub(crate) fn held_blocks(&self) -> u64 {
        self.blocks.keys().filter(|(_, stage)| !self.stages[stage].waits.is_empty()).count() as u64
    }

    /// Returns at most `count` expedited blocks that may be written; `page_of` returns the page of
    /// a block.
    pub(crate) fn due(&self, count: usize, page_of: impl Fn(u64) -> Range<u64>) -> Vec<u64> {
        let free = |&(_, state): &(&Stage, &StageState)| state.is_urgent && state.waits.is_empty();
        let mut due = Vec::new();
        for (&stage, _) in self.stages.iter().filter(free) {
            let range = (stage, 0)..(stage + 1, 0);
            let dirty = self.by_stage.range(range).filter(|&&(stage, block)| {
                self.blocks[&(block, stage)] == Phase::Dirty && !self.is_held(&page_of(block))
            });
            due.extend(dirty.take(count - due.len()).map(|&(_, block)| block));
            if due.len() >= count {
                break;
            }
        }
        due
    }

    /// Marks the dirty blocks of a page as being written.
    pub(crate) fn start_write(&mut self, page: &Range<u64>) {
        for (_, phase) in self.blocks.range_mut((page.start, 0)..(page.end, 0)) {
            debug_assert_eq!(*phase, Phase::Dirty, "a page has one round at a time");
            *phase = Phase::Writing;
        }
    }

    /// Ends the write of a page; `written` is false if it has failed.
    pub(crate) fn end_write(&mut self, page: &Range<u64>, written: bool) {
        for (block, stage, phase) in self.tags(page).collect::<Vec<_>>() {
            match phase {
                Phase::Dirty => {}
                Phase::Writing if written => self.untag(block, stage),
                Phase::Writing | Phase::WritingAndDirty => {
                    self.blocks.insert((block, stage), Phase::Dirty);
                }
            }
            if written && phase == Phase::WritingAndDirty {
                self.note_written(stage);
            }
        }
    }

    /// Removes blocks that the store has discarded or zeroed: they need no write.
    pub(crate) fn discard_blocks(&mut self, blocks: &Range<u64>) {
        for (block, stage, _) in self.tags(blocks).collect::<Vec<_>>() {
            self.untag(block, stage);
        }
    }

    fn untag(&mut self, block: u64, stage: Stage) {
        self.blocks.remove(&(block, stage));
        self.by_stage.remove(&(stage, block));
        self.stage(stage).unwritten -= 1;
        self.note_written(stage);
    }

    /// Records that the next flush that begins makes the written blocks stable.
    fn note_written(&mut self, stage: Stage) {
        let next = self.flushes + 1;
        self.stage(stage).flush = next;
    }

    /// Returns true if the store should be flushed so that groups advance.
    pub(crate) fn is_flush_due(&self) -> bool {
        let is_written_or_expedite = |&(_, state): &(&Stage, &StageState)| {
            state.unwritten == 0 && state.flush > self.flushes
        };
        let is_waited_for = |stage: &Stage| {
            self.stages.values().any(|other| other.is_urgent && other.waits.contains(stage))
        };
        let mut written = self.stages.iter().filter(is_written_or_expedite);
        written.any(|(stage, _)| self.stages.len() > STAGES_FLUSH || is_waited_for(stage))
    }

    /// Records that a flush of the store was queued.
    pub(crate) fn begin_flush(&mut self) {
        self.flushes += 1;
    }

    /// Records that the last queued flush has made nothing stable: the next one must.
    pub(crate) fn fail_flush(&mut self) {
        let next = self.flushes + 1;
        for state in self.stages.values_mut().filter(|state| state.unwritten == 0) {
            state.flush = next;
        }
    }

    /// Records that the last queued flush has succeeded.
    pub(crate) fn complete_flush(&mut self) {
        let is_stable = |&(_, state): &(&Stage, &StageState)| {
            state.unwritten == 0 && state.flush <= self.flushes
        };
        let stable: Vec<_> = self.stages.iter().filter(is_stable).map(|(&s, _)| s).collect();
        for stage in stable {
            let StageState { group, coupled, .. } =
                self.stages.remove(&stage).expect("found above");
            for other in coupled {
                if let Some(other) = self.stages.get_mut(&other) {
                    other.coupled.remove(&stage);
                }
            }
            for other in self.stages.values_mut() {
                other.waits.remove(&stage);
            }
            for group in self.active.values_mut() {
                group.waits.remove(&stage);
            }
            if let Some(group) = self.active.get_mut(&group)
                && group.open == Some(stage)
            {
                group.open = None;
            }
        }
        self.forget_groups();
    }

    fn forget_groups(&mut self) {
        self.active.retain(|_, group| group.open.is_some() || !group.waits.is_empty());
    }

    /// Asserts the invariants; `is_unclean` returns true for a block that is dirty or being
    /// written.
    pub(crate) fn check(&self, is_unclean: impl Fn(u64) -> bool) {
        for (&stage, state) in &self.stages {
            let of_beside = state.coupled.iter().flat_map(|coupled| &self.stages[coupled].waits);
            let needed = self.needs(state.waits.iter().chain(of_beside).copied());
            assert!(!needed.contains(&stage), "stage {stage} needs itself");
            let tagged = self.by_stage.range((stage, 0)..(stage + 1, 0)).count();
            assert_eq!(tagged, state.unwritten, "blocks of stage {stage}");
            assert!(state.unwritten > 0 || state.flush > 0, "stage {stage} never had a block");
            for wait in &state.waits {
                let open = self.active.get(&self.stages[wait].group).and_then(|group| group.open);
                assert_ne!(open, Some(*wait), "stage {stage} waits for one that is open");
            }
        }
        assert_eq!(self.blocks.len(), self.by_stage.len(), "blocks by number and by stage");
        for &(stage, block) in &self.by_stage {
            assert!(self.blocks.contains_key(&(block, stage)), "block {block} of stage {stage}");
            assert!(is_unclean(block), "block {block} of stage {stage} is clean");
        }
    }
}
