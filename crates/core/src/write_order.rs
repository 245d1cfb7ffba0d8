//! Groups: which changes must be stable in the store before which others are given to it.
//!
//! A write may belong to a group of its volume. `WriteOrder::order` says that what is of one group
//! now comes before what is of another. What a group holds up to such a call is a *stage*: it gets
//! no more blocks, and later changes of the group open the next stage. A stage *waits* for other
//! stages; one that waits for none is *free*. A stage is stable, and forgotten, when all its blocks
//! have been written and the store was flushed after that.
//!
//! A page is written as a whole, so stages that share a page are written together: they are noted
//! to lie *beside* each other, and each needs what the other waits for.
//!
//! Invariants: no stage needs itself, directly or through stages beside those it waits for; nobody
//! waits for a stage that is still open. So among the stages that are left one is always free.

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};
use crate::units::PAGE_BLOCKS_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

#[cfg(test)]
mod tests;

/// A group of writes to one volume, made by [`crate::cache::Cache::group`]. Costs nothing while
/// nothing of it is on its way to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId {
    pub(crate) volume: u16,
    pub(crate) number: u64,
}

/// Why two groups cannot be ordered. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// The two are of different volumes.
    #[error("order groups of different volumes: order holds within one store")]
    OtherVolume,
    /// The first one waits for the second one already, or changes of both lie in one page.
    #[error(
        "order these groups: the first one may have to wait for the second one, because of an \
         earlier order or because changes of both lie in one page; flush, or use a new group"
    )]
    Cycle,
    /// So many groups wait that there is no room to remember one more.
    #[error("order these groups: {GROUPS_MAX} groups wait already; flush first")]
    TooMany,
}

/// Blocks of all groups of a volume that may be on their way to the store at a time. The dirty list
/// is searched further than this for a page that nothing holds back.
const BLOCKS_MAX: usize = 8192;
/// From so many stages on the store is flushed only to forget some; at the most there are so many.
const STAGES_FLUSH: usize = 128;
const STAGES_MAX: usize = 512;
/// Groups that wait for others.
const GROUPS_MAX: usize = 1024;

type Stage = u64;

/// Where a block of a stage is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Dirty.
    Dirty,
    /// Being written.
    Writing,
    /// Being written, and changed since.
    WritingAndDirty,
}

#[derive(Debug)]
struct OrderedGroup {
    /// The stage that takes the next change.
    open: Option<Stage>,
    /// What its later stages have to wait for.
    waits: BTreeSet<Stage>,
}

#[derive(Debug)]
struct StageState {
    group: u64,
    /// Blocks that have not been written.
    left: usize,
    /// The flush of the store that makes what has been written stable.
    flush: u64,
    waits: BTreeSet<Stage>,
    coupled: BTreeSet<Stage>,
    /// Whether somebody wants it to be stable.
    is_urgent: bool,
}

/// The groups of one volume that have something on its way.
#[derive(Debug, Default)]
pub(crate) struct WriteOrder {
    last_group: u64,
    last_stage: Stage,
    active: BTreeMap<u64, OrderedGroup>,
    stages: BTreeMap<Stage, StageState>,
    blocks: BTreeMap<(u64, Stage), Phase>,
    by_stage: BTreeSet<(Stage, u64)>,
    /// How many flushes of the store have begun; one runs at a time.
    flushes: u64,
}

/// The groups of a volume behind a lock, which nobody needs who has no groups.
///
/// The lock is a leaf: taken with a shard and the volume's queue held, or without.
#[derive(Debug, Default)]
pub(crate) struct LockedWriteOrder {
    groups: Mutex<WriteOrder>,
    load: AtomicUsize,
}

impl LockedWriteOrder {
    /// Whether nothing of any group is on its way, so that every page may be written at any time.
    pub(crate) fn is_empty(&self) -> bool {
        self.load.load(Ordering::Acquire) == 0
    }

    /// Looks at the groups, or changes them.
    pub(crate) fn with<R>(&self, what: impl FnOnce(&mut WriteOrder) -> R) -> R {
        let mut groups = lock(&self.groups);
        let result = what(&mut groups);
        self.load.store(groups.load(), Ordering::Release);
        result
    }

    /// Does the same unless there is nothing to look after.
    pub(crate) fn with_any(&self, what: impl FnOnce(&mut WriteOrder)) {
        if !self.is_empty() {
            self.with(what);
        }
    }

    /// Whether no block of any group is still to be written; if one is, it is wanted.
    pub(crate) fn is_written_or_expedite(&self) -> bool {
        self.is_empty() || self.with(WriteOrder::expedite_all)
    }

    /// Whether a page must not be written now.
    pub(crate) fn is_held(&self, page: &Range<u64>) -> bool {
        !self.is_empty() && self.with(|groups| groups.is_held(page))
    }

    /// The same for a page that somebody wants to be written: what it waits for is wanted then.
    pub(crate) fn expedite_if_held(&self, page: &Range<u64>) -> bool {
        let held = self.is_held(page);
        if held {
            self.with(|groups| groups.expedite(page));
        }
        held
    }
}

impl WriteOrder {
    /// The number of a new group.
    pub(crate) fn add(&mut self) -> u64 {
        self.last_group += 1;
        self.last_group
    }

    /// How much there is to look after; 0 if every page may be written at any time.
    pub(crate) fn load(&self) -> usize {
        self.blocks.len() + self.stages.len()
    }

    fn stage(&mut self, stage: Stage) -> &mut StageState {
        self.stages.get_mut(&stage).expect("a stage that is not stable yet")
    }

    /// What must be stable before stages that wait for `from` can be, `from` included.
    fn needs(&self, from: impl IntoIterator<Item = Stage>) -> BTreeSet<Stage> {
        let mut found = BTreeSet::new();
        let mut left: Vec<_> = from.into_iter().collect();
        while let Some(stage) = left.pop() {
            if !found.insert(stage) {
                continue;
            }
            let state = &self.stages[&stage];
            left.extend(&state.waits);
            for coupled in &state.coupled {
                left.extend(&self.stages[coupled].waits);
            }
        }
        found
    }

    /// From now on nothing of group `after` goes to the store before all that is of group `before`
    /// now is stable.
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
        let group =
            self.active.entry(after).or_insert(OrderedGroup { open: None, waits: BTreeSet::new() });
        group.waits.extend(firsts);
        if let Some(group) = self.active.get_mut(&before) {
            group.open = None;
        }
        self.forget_groups();
        Ok(())
    }

    /// Takes `blocks`, blocks of one page, into the group, before they are changed;
    /// false if the page holds something that must be stable before, or too much is on its way.
    /// Then that is wanted now.
    pub(crate) fn join(
        &mut self,
        group: u64,
        page: &Range<u64>,
        blocks: impl Iterator<Item = u64>,
    ) -> bool {
        let here = self.stages_in(page);
        let (open, waits) = match self.active.get(&group) {
            Some(OrderedGroup { open: Some(stage), .. }) => {
                (Some(*stage), self.stages[stage].waits.clone())
            }
            Some(OrderedGroup { open: None, waits }) => (None, waits.clone()),
            None => (None, BTreeSet::new()),
        };
        let needed = self.needs(waits.iter().copied());
        let before: Vec<_> = here.intersection(&needed).copied().collect();
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
        for &other in here.iter().filter(|&&other| other != stage) {
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
                    self.stage(stage).left += 1;
                }
            }
        }
        true
    }

    fn open(&mut self, group: u64, waits: BTreeSet<Stage>) -> Stage {
        self.last_stage += 1;
        let stage = self.last_stage;
        let (left, flush, coupled, is_urgent) = (0, 0, BTreeSet::new(), false);
        self.stages.insert(stage, StageState { group, left, flush, waits, coupled, is_urgent });
        let entry =
            self.active.entry(group).or_insert(OrderedGroup { open: None, waits: BTreeSet::new() });
        entry.open = Some(stage);
        stage
    }

    fn tags(&self, blocks: &Range<u64>) -> impl Iterator<Item = (u64, Stage, Phase)> {
        let range = (blocks.start, 0)..(blocks.end, 0);
        self.blocks.range(range).map(|(&(block, stage), &phase)| (block, stage, phase))
    }

    fn stages_in(&self, blocks: &Range<u64>) -> BTreeSet<Stage> {
        self.tags(blocks).map(|(_, stage, _)| stage).collect()
    }

    /// Whether a page must not be written now.
    pub(crate) fn is_held(&self, page: &Range<u64>) -> bool {
        self.tags(page).any(|(_, stage, phase)| {
            phase != Phase::Writing && !self.stages[&stage].waits.is_empty()
        })
    }

    /// Somebody wants a page to be written that is held back.
    pub(crate) fn expedite(&mut self, page: &Range<u64>) {
        self.expedite_stages(self.stages_in(page));
    }

    fn expedite_stages(&mut self, stages: impl IntoIterator<Item = Stage>) {
        for stage in self.needs(stages) {
            self.stage(stage).is_urgent = true;
        }
    }

    /// Wants all there is; whether there is none that is still to be written.
    fn expedite_all(&mut self) -> bool {
        self.expedite_stages(self.stages.keys().copied().collect::<Vec<_>>());
        self.blocks.is_empty()
    }

    /// Whether something is held back.
    pub(crate) fn has_waiting(&self) -> bool {
        self.stages.values().any(|state| state.left > 0 && !state.waits.is_empty())
    }

    /// Blocks that are held back.
    pub(crate) fn held_blocks(&self) -> u64 {
        self.blocks.keys().filter(|(_, stage)| !self.stages[stage].waits.is_empty()).count() as u64
    }

    /// At most `count` blocks that are wanted and may be written, by the pages that they lie in.
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

    /// The blocks of a page that are dirty are being written from now on.
    pub(crate) fn start_write(&mut self, page: &Range<u64>) {
        for (_, phase) in self.blocks.range_mut((page.start, 0)..(page.end, 0)) {
            debug_assert_eq!(*phase, Phase::Dirty, "a page has one round at a time");
            *phase = Phase::Writing;
        }
    }

    /// The blocks of a page have been written, or not.
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

    /// The store has discarded or zeroed blocks: what was to be written there is no more.
    pub(crate) fn discard_blocks(&mut self, blocks: &Range<u64>) {
        for (block, stage, _) in self.tags(blocks).collect::<Vec<_>>() {
            self.untag(block, stage);
        }
    }

    fn untag(&mut self, block: u64, stage: Stage) {
        self.blocks.remove(&(block, stage));
        self.by_stage.remove(&(stage, block));
        self.stage(stage).left -= 1;
        self.note_written(stage);
    }

    /// What has been written now is stable after the next flush that begins.
    fn note_written(&mut self, stage: Stage) {
        let next = self.flushes + 1;
        self.stage(stage).flush = next;
    }

    /// Whether the store should be flushed for the sake of groups.
    pub(crate) fn is_flush_due(&self) -> bool {
        let is_written_or_expedite =
            |&(_, state): &(&Stage, &StageState)| state.left == 0 && state.flush > self.flushes;
        let is_waited_for = |stage: &Stage| {
            self.stages.values().any(|other| other.is_urgent && other.waits.contains(stage))
        };
        let mut written = self.stages.iter().filter(is_written_or_expedite);
        written.any(|(stage, _)| self.stages.len() > STAGES_FLUSH || is_waited_for(stage))
    }

    /// A flush of the store has been queued.
    pub(crate) fn begin_flush(&mut self) {
        self.flushes += 1;
    }

    /// The flush that was queued last has made nothing stable: the next one is to.
    pub(crate) fn fail_flush(&mut self) {
        let next = self.flushes + 1;
        for state in self.stages.values_mut().filter(|state| state.left == 0) {
            state.flush = next;
        }
    }

    /// The flush that was queued last went well.
    pub(crate) fn complete_flush(&mut self) {
        let is_stable =
            |&(_, state): &(&Stage, &StageState)| state.left == 0 && state.flush <= self.flushes;
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

    /// Asserts the invariants; `is_unclean` says whether a block is dirty or being written.
    pub(crate) fn check(&self, is_unclean: impl Fn(u64) -> bool) {
        for (&stage, state) in &self.stages {
            let of_beside = state.coupled.iter().flat_map(|coupled| &self.stages[coupled].waits);
            let needed = self.needs(state.waits.iter().chain(of_beside).copied());
            assert!(!needed.contains(&stage), "stage {stage} needs itself");
            let tagged = self.by_stage.range((stage, 0)..(stage + 1, 0)).count();
            assert_eq!(tagged, state.left, "blocks of stage {stage}");
            assert!(state.left > 0 || state.flush > 0, "stage {stage} never had a block");
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
