//! Tests of the write order against a plain list of all changes and orders.

use super::*;

fn random(state: &mut u64) -> impl FnMut(u64) -> u64 + '_ {
    |below| {
        *state = crate::page::mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
        *state % below
    }
}

fn page(number: u64) -> Range<u64> {
    number * 2..number * 2 + 2
}

/// Writes a page if it may be written. Returns true if it was.
fn write_out(groups: &mut WriteOrder, number: u64) -> bool {
    if groups.is_held(&page(number)) {
        return false;
    }
    groups.start_write(&page(number));
    groups.end_write(&page(number), true);
    true
}

fn flush(groups: &mut WriteOrder) {
    groups.begin_flush();
    groups.complete_flush();
}

#[test]
fn the_second_group_waits_until_the_first_one_is_flushed() {
    let mut groups = WriteOrder::default();
    let (a, b) = (groups.add(), groups.add());
    assert!(groups.join(a, &page(0), 0..1));
    groups.order(a, b).unwrap();
    assert!(groups.join(b, &page(1), 2..3));
    assert!(!write_out(&mut groups, 1), "a is not written");
    assert!(write_out(&mut groups, 0));
    assert!(!write_out(&mut groups, 1), "a is not stable");
    flush(&mut groups);
    assert!(write_out(&mut groups, 1));
    flush(&mut groups);
    assert_eq!(groups.load(), 0, "nothing is remembered of what is stable");
    assert!(groups.active.is_empty());
}

#[test]
fn what_was_written_and_not_flushed_still_comes_first() {
    let mut groups = WriteOrder::default();
    let (a, b) = (groups.add(), groups.add());
    assert!(groups.join(a, &page(0), 0..2));
    assert!(write_out(&mut groups, 0));
    groups.order(a, b).unwrap();
    assert!(groups.join(b, &page(1), 2..3));
    assert!(!write_out(&mut groups, 1));
    groups.expedite(&page(1));
    assert!(groups.is_flush_due());
    flush(&mut groups);
    assert!(write_out(&mut groups, 1));
}

#[test]
fn later_changes_of_the_first_group_are_not_waited_for() {
    let mut groups = WriteOrder::default();
    let (a, b) = (groups.add(), groups.add());
    assert!(groups.join(a, &page(0), 0..1));
    groups.order(a, b).unwrap();
    assert!(groups.join(a, &page(2), 4..5));
    assert!(groups.join(b, &page(1), 2..3));
    assert!(write_out(&mut groups, 0));
    flush(&mut groups);
    assert!(write_out(&mut groups, 1), "page 2 came after the call");
}

#[test]
fn an_order_that_could_wait_for_itself_is_refused() {
    let mut groups = WriteOrder::default();
    let [a, b, c] = [groups.add(), groups.add(), groups.add()];
    assert_eq!(groups.order(a, a), Err(OrderError::Cycle));
    for (group, number) in [(a, 0), (b, 1), (c, 2)] {
        assert!(groups.join(group, &page(number), std::iter::once(number * 2)));
    }
    groups.order(a, b).unwrap();
    groups.order(b, c).unwrap();
    assert_eq!(groups.order(c, a), Err(OrderError::Cycle));
    assert!(groups.join(a, &page(3), 6..7));
    assert_eq!(groups.order(b, a), Err(OrderError::Cycle), "what a held before comes first");
    groups.check(|_| true);
}

#[test]
fn groups_that_share_a_page_cannot_be_ordered_and_one_that_waits_keeps_off() {
    let mut groups = WriteOrder::default();
    let [a, b, c] = [groups.add(), groups.add(), groups.add()];
    assert!(groups.join(a, &page(0), 0..1));
    assert!(groups.join(b, &page(0), 1..2));
    assert_eq!(groups.order(a, b), Err(OrderError::Cycle));
    groups.order(a, c).unwrap();
    assert!(!groups.join(c, &page(0), 0..1), "a must be stable before c");
    assert_eq!(groups.due(9, |block| page(block / 2)), [0], "and is wanted now");
    assert!(write_out(&mut groups, 0));
    assert!(groups.join(c, &page(0), 0..1), "the earlier version is out");
    assert!(groups.is_held(&page(0)));
    flush(&mut groups);
    assert!(!groups.is_held(&page(0)));
}

#[test]
fn a_failed_write_holds_back_what_comes_after() {
    let mut groups = WriteOrder::default();
    let (a, b) = (groups.add(), groups.add());
    assert!(groups.join(a, &page(0), 0..1));
    groups.order(a, b).unwrap();
    assert!(groups.join(b, &page(1), 2..3));
    groups.start_write(&page(0));
    groups.end_write(&page(0), false);
    flush(&mut groups);
    assert!(groups.is_held(&page(1)) && groups.has_waiting());
    assert_eq!(groups.held_blocks(), 1);
}

#[test]
fn too_many_blocks_and_groups_are_refused() {
    let mut groups = WriteOrder::default();
    let first = groups.add();
    let most =
        (0..).take_while(|&block| groups.join(first, &(block..block + 1), std::iter::once(block)));
    assert_eq!(most.count(), BLOCKS_MAX - PAGE_BLOCKS_MAX as usize + 1);
    let mut refused = None;
    for _ in 0..=GROUPS_MAX {
        let group = groups.add();
        refused = refused.or(groups.order(first, group).err());
    }
    assert_eq!(refused, Some(OrderError::TooMany));
}

/// One change of a block in a group.
#[derive(Debug)]
struct Change {
    group: u64,
    page: u64,
    writing: bool,
    written: bool,
    stable: bool,
}

/// All changes and orders so far.
#[derive(Debug, Default)]
struct History {
    changes: Vec<Change>,
    /// Changes that must be stable before any change of a group is written.
    orders: Vec<(Vec<usize>, u64)>,
}

impl History {
    fn start(&mut self, page: u64) {
        for change in self.changes.iter().filter(|c| c.page == page && !c.written) {
            for (before, _) in self.orders.iter().filter(|(_, after)| *after == change.group) {
                let early = before.iter().find(|&&index| !self.changes[index].stable);
                assert_eq!(early, None, "page {page} is written too early");
            }
        }
        for change in self.changes.iter_mut().filter(|c| c.page == page && !c.written) {
            change.writing = true;
        }
    }

    fn end(&mut self, page: u64, written: bool) {
        for change in self.changes.iter_mut().filter(|c| c.page == page && c.writing) {
            (change.writing, change.written) = (false, written);
        }
    }
}

/// A write order and its history.
struct Trial {
    groups: WriteOrder,
    history: History,
    names: Vec<u64>,
    pages: u64,
    writing: BTreeSet<u64>,
    /// Changes that the current flush makes stable.
    flushing: Option<Vec<usize>>,
    orders: usize,
    refused: usize,
    kept_off: usize,
}

impl Trial {
    fn new(names: u64, pages: u64) -> Self {
        let mut groups = WriteOrder::default();
        Trial {
            names: (0..names).map(|_| groups.add()).collect(),
            groups,
            history: History::default(),
            pages,
            writing: BTreeSet::new(),
            flushing: None,
            orders: 0,
            refused: 0,
            kept_off: 0,
        }
    }

    fn change(&mut self, group: u64, block: u64) {
        let number = block / 2;
        if self.groups.join(group, &page(number), std::iter::once(block)) {
            let (writing, written, stable) = (false, false, false);
            let change = Change { group, page: number, writing, written, stable };
            self.history.changes.push(change);
        } else {
            self.kept_off += 1;
        }
    }

    fn order(&mut self, first: u64, after: u64) {
        let changes = self.history.changes.iter().enumerate();
        let unstable = changes.filter(|(_, c)| c.group == first && !c.stable);
        let before: Vec<_> = unstable.map(|(i, _)| i).collect();
        match self.groups.order(first, after) {
            Ok(()) => {
                self.orders += usize::from(!before.is_empty());
                self.history.orders.push((before, after));
            }
            Err(_) => self.refused += 1,
        }
    }

    fn start(&mut self, number: u64) {
        let is_dirty = |c: &Change| c.page == number && !c.written && !c.writing;
        let free = !self.writing.contains(&number) && self.history.changes.iter().any(is_dirty);
        if free && !self.groups.is_held(&page(number)) {
            self.history.start(number);
            self.groups.start_write(&page(number));
            self.writing.insert(number);
        }
    }

    fn end(&mut self, written: bool) {
        if let Some(number) = self.writing.pop_first() {
            self.history.end(number, written);
            self.groups.end_write(&page(number), written);
        }
    }

    fn begin_flush(&mut self) {
        self.groups.begin_flush();
        let written = self.history.changes.iter().enumerate().filter(|(_, c)| c.written);
        self.flushing = Some(written.map(|(i, _)| i).collect());
    }

    fn end_flush(&mut self) {
        for index in self.flushing.take().into_iter().flatten() {
            self.history.changes[index].stable = true;
        }
        self.groups.complete_flush();
    }

    fn step(&mut self, mut below: impl FnMut(u64) -> u64) {
        let pick = |n: u64| usize::try_from(n).expect("small");
        let number = below(self.pages);
        let [one, other] = [(); 2].map(|()| self.names[pick(below(self.names.len() as u64))]);
        match below(10) {
            0..4 => self.change(one, number * 2 + below(2)),
            4 => self.order(one, other),
            5..7 => self.start(number),
            7 => self.end(below(4) > 0),
            8 if self.flushing.is_none() => self.begin_flush(),
            _ => self.end_flush(),
        }
        let changes = &self.history.changes;
        self.groups.check(|block| changes.iter().any(|c| c.page == block / 2 && !c.written));
    }

    /// Expedites everything and writes what is due, until nothing is left.
    fn finish(&mut self) {
        while !self.writing.is_empty() {
            self.end(true);
        }
        self.end_flush();
        for number in 0..self.pages {
            self.groups.expedite(&page(number));
        }
        for _ in 0..100 {
            for block in self.groups.due(3, |block| page(block / 2)) {
                self.start(block / 2);
                self.end(true);
            }
            self.begin_flush();
            self.end_flush();
        }
    }
}

#[test]
fn random_changes_are_never_written_too_early_and_always_come_to_an_end() {
    let (mut orders, mut refused, mut kept_off) = (0, 0, 0);
    for seed in 0..3000 {
        let mut state = seed;
        let mut below = random(&mut state);
        let mut trial = Trial::new(2 + below(4), 2 + below(8));
        for _ in 0..60 {
            trial.step(&mut below);
        }
        trial.finish();
        let Trial { groups, history, .. } = &trial;
        assert_eq!(groups.load(), 0, "seed {seed}: something waits for ever: {groups:?}");
        assert!(history.changes.iter().all(|c| c.stable) && groups.active.is_empty());
        orders += trial.orders;
        refused += trial.refused;
        kept_off += trial.kept_off;
    }
    let seen = format!("{orders} orders, {refused} refused, {kept_off} changes kept off");
    assert!(orders > 1000 && refused > 100 && kept_off > 100, "{seen}");
}

#[test]
fn many_written_stages_are_flushed_even_if_nothing_waits_for_them() {
    let mut groups = WriteOrder::default();
    for number in 0..=STAGES_FLUSH as u64 {
        let group = groups.add();
        let end = number * 2 + 1;
        assert!(groups.join(group, &page(number), end - 1..end));
        assert!(write_out(&mut groups, number));
        let is_many = number >= STAGES_FLUSH as u64;
        assert_eq!(groups.is_flush_due(), is_many, "{} written stages", number + 1);
    }
    let group = groups.add();
    assert!(groups.join(group, &page(1000), 2000..2001));
    assert!(groups.is_flush_due(), "however many more there are");
    flush(&mut groups);
    assert!(!groups.is_flush_due(), "flushed stages are removed");
}
