//! Groups against a plain list of everything that was ever written and ordered.

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

/// Writes a page and flushes, if it may be written.
fn write_out(groups: &mut Groups, number: u64) -> bool {
    if groups.is_held(&page(number)) {
        return false;
    }
    groups.started(&page(number));
    groups.ended(&page(number), true);
    true
}

fn flush(groups: &mut Groups) {
    groups.flush_begun();
    groups.flush_done();
}

#[test]
fn the_second_group_waits_until_the_first_one_is_flushed() {
    let mut groups = Groups::default();
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
    assert!(groups.groups.is_empty());
}

#[test]
fn what_was_written_and_not_flushed_still_comes_first() {
    let mut groups = Groups::default();
    let (a, b) = (groups.add(), groups.add());
    assert!(groups.join(a, &page(0), 0..2));
    assert!(write_out(&mut groups, 0));
    groups.order(a, b).unwrap();
    assert!(groups.join(b, &page(1), 2..3));
    assert!(!write_out(&mut groups, 1));
    groups.want(&page(1));
    assert!(groups.is_flush_due());
    flush(&mut groups);
    assert!(write_out(&mut groups, 1));
}

#[test]
fn later_changes_of_the_first_group_are_not_waited_for() {
    let mut groups = Groups::default();
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
    let mut groups = Groups::default();
    let [a, b, c] = [groups.add(), groups.add(), groups.add()];
    assert_eq!(groups.order(a, a), Err(OrderError::Cycle));
    for (group, number) in [(a, 0), (b, 1), (c, 2)] {
        assert!(groups.join(group, &page(number), number * 2..number * 2 + 1));
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
    let mut groups = Groups::default();
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
    let mut groups = Groups::default();
    let (a, b) = (groups.add(), groups.add());
    assert!(groups.join(a, &page(0), 0..1));
    groups.order(a, b).unwrap();
    assert!(groups.join(b, &page(1), 2..3));
    groups.started(&page(0));
    groups.ended(&page(0), false);
    flush(&mut groups);
    assert!(groups.is_held(&page(1)) && groups.has_waiting());
    assert_eq!(groups.held_blocks(), 1);
}

#[test]
fn too_many_blocks_and_groups_are_refused() {
    let mut groups = Groups::default();
    let first = groups.add();
    let most = (0..).take_while(|&block| groups.join(first, &(block..block + 1), block..block + 1));
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

/// Everything that ever happened.
#[derive(Debug, Default)]
struct History {
    changes: Vec<Change>,
    /// Changes that must be stable before anything of a group is written.
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

#[test]
fn random_changes_are_never_written_too_early_and_always_come_to_an_end() {
    let (mut orders, mut refused, mut kept_off) = (0, 0, 0);
    for seed in 0..3000 {
        let mut state = seed;
        let mut below = random(&mut state);
        let (mut groups, mut history) = (Groups::default(), History::default());
        let names: Vec<_> = (0..2 + below(4)).map(|_| groups.add()).collect();
        let pages = 2 + below(8);
        let (mut writing, mut flushing) = (BTreeSet::new(), None);
        let dirty = |history: &History, page: u64| {
            history.changes.iter().any(|c| c.page == page && !c.written && !c.writing)
        };
        for _ in 0..60 {
            let (number, pick) = (below(pages), |n: u64| usize::try_from(n).expect("small"));
            let group = names[pick(below(names.len() as u64))];
            match below(10) {
                0..4 => {
                    let block = number * 2 + below(2);
                    if groups.join(group, &page(number), block..block + 1) {
                        let (writing, written, stable) = (false, false, false);
                        history.changes.push(Change {
                            group,
                            page: number,
                            writing,
                            written,
                            stable,
                        });
                    } else {
                        kept_off += 1;
                    }
                }
                4 => {
                    let after = names[pick(below(names.len() as u64))];
                    let unstable = |(_, c): &(usize, &Change)| c.group == group && !c.stable;
                    let before: Vec<_> = history
                        .changes
                        .iter()
                        .enumerate()
                        .filter(unstable)
                        .map(|(i, _)| i)
                        .collect();
                    match groups.order(group, after) {
                        Ok(()) => {
                            orders += usize::from(!before.is_empty());
                            history.orders.push((before, after));
                        }
                        Err(_) => refused += 1,
                    }
                }
                5..7 => {
                    let free = !writing.contains(&number) && dirty(&history, number);
                    if free && !groups.is_held(&page(number)) {
                        history.start(number);
                        groups.started(&page(number));
                        writing.insert(number);
                    }
                }
                7 => {
                    if let Some(number) = writing.pop_first() {
                        let written = below(4) > 0;
                        history.end(number, written);
                        groups.ended(&page(number), written);
                    }
                }
                8 if flushing.is_none() => {
                    groups.flush_begun();
                    let written = history.changes.iter().enumerate().filter(|(_, c)| c.written);
                    flushing = Some(written.map(|(i, _)| i).collect::<Vec<_>>());
                }
                _ => {
                    for index in flushing.take().into_iter().flatten() {
                        history.changes[index].stable = true;
                    }
                    groups.flush_done();
                }
            }
            groups.check(|block| history.changes.iter().any(|c| c.page == block / 2 && !c.written));
        }
        for number in writing {
            history.end(number, true);
            groups.ended(&page(number), true);
        }
        for index in flushing.into_iter().flatten() {
            history.changes[index].stable = true;
        }
        groups.flush_done();
        for number in 0..pages {
            groups.want(&page(number));
        }
        for _ in 0..1000 {
            for block in groups.due(3, |block| page(block / 2)) {
                let number = block / 2;
                if !groups.is_held(&page(number)) && dirty(&history, number) {
                    history.start(number);
                    groups.started(&page(number));
                    history.end(number, true);
                    groups.ended(&page(number), true);
                }
            }
            flush(&mut groups);
            for change in history.changes.iter_mut().filter(|c| c.written) {
                change.stable = true;
            }
        }
        assert_eq!(groups.load(), 0, "seed {seed}: something waits for ever: {groups:?}");
        assert!(history.changes.iter().all(|c| c.stable) && groups.groups.is_empty());
    }
    let seen = format!("{orders} orders, {refused} refused, {kept_off} changes kept off");
    assert!(orders > 1000 && refused > 100 && kept_off > 100, "{seen}");
}
