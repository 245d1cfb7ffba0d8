//! Doubly linked lists over slots, with the links in one array: no allocation per page. A slot is
//! in at most one list of a `Links` at a time.

use super::{NO_SLOT, Slot};
use crate::page::ChunkedArray;

#[derive(Clone, Copy, Debug)]
struct Link {
    prev: Slot,
    next: Slot,
}

impl Default for Link {
    fn default() -> Self {
        Link { prev: NO_SLOT, next: NO_SLOT }
    }
}

/// The links of all lists of one policy.
#[derive(Debug, Default)]
pub(crate) struct Links {
    links: ChunkedArray<Link>,
}

/// A list: pages enter at the head and leave at the tail.
#[derive(Debug)]
pub(crate) struct List {
    head: Slot,
    tail: Slot,
    len: usize,
}

impl Default for List {
    fn default() -> Self {
        List { head: NO_SLOT, tail: NO_SLOT, len: 0 }
    }
}

impl List {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the slot that entered first, or [`NO_SLOT`].
    pub(crate) fn tail(&self) -> Slot {
        self.tail
    }
}

impl Links {
    /// Memory per slot for its links in bytes.
    pub(crate) const BYTES: usize = size_of::<Link>();

    /// Returns the slot that entered just after `slot` (towards the head), or [`NO_SLOT`].
    pub(crate) fn newer(&self, slot: Slot) -> Slot {
        self.links.get(slot).prev
    }

    pub(crate) fn push_head(&mut self, list: &mut List, slot: Slot) {
        let next = list.head;
        *self.links.get_mut(slot) = Link { prev: NO_SLOT, next };
        if next == NO_SLOT {
            list.tail = slot;
        } else {
            self.links.get_mut(next).prev = slot;
        }
        list.head = slot;
        list.len += 1;
    }

    pub(crate) fn remove(&mut self, list: &mut List, slot: Slot) {
        let Link { prev, next } = *self.links.get(slot);
        if prev == NO_SLOT {
            debug_assert_eq!(list.head, slot, "slot {slot} is not in this list");
            list.head = next;
        } else {
            self.links.get_mut(prev).next = next;
        }
        if next == NO_SLOT {
            debug_assert_eq!(list.tail, slot, "slot {slot} is not in this list");
            list.tail = prev;
        } else {
            self.links.get_mut(next).prev = prev;
        }
        list.len -= 1;
    }

    /// Makes `slot` the newest one of its list.
    pub(crate) fn move_to_head(&mut self, list: &mut List, slot: Slot) {
        if list.head != slot {
            self.remove(list, slot);
            self.push_head(list, slot);
        }
    }

    /// Removes and returns the slot that entered first.
    pub(crate) fn pop_tail(&mut self, list: &mut List) -> Option<Slot> {
        let slot = list.tail;
        (slot != NO_SLOT).then(|| {
            self.remove(list, slot);
            slot
        })
    }

    /// Returns the oldest slot that `accept` accepts; each rejected slot costs one unit of
    /// `budget`.
    pub(crate) fn find_oldest(
        &self,
        list: &List,
        budget: &mut u32,
        accept: &mut dyn FnMut(Slot) -> bool,
    ) -> Option<Slot> {
        let mut slot = list.tail;
        while slot != NO_SLOT && *budget > 0 {
            if accept(slot) {
                return Some(slot);
            }
            *budget -= 1;
            slot = self.newer(slot);
        }
        None
    }

    /// Returns the slots of a list, the oldest first.
    pub(crate) fn oldest_first<'a>(&'a self, list: &List) -> impl Iterator<Item = Slot> + 'a {
        let some = |slot: Slot| (slot != NO_SLOT).then_some(slot);
        std::iter::successors(some(list.tail), move |&slot| some(self.newer(slot)))
    }

    /// Walks the list from tail to head and asserts that links and length agree.
    pub(crate) fn check(&self, list: &List) {
        let (mut count, mut slot, mut older) = (0, list.tail, NO_SLOT);
        while slot != NO_SLOT {
            assert_eq!(self.links.get(slot).next, older, "links of slot {slot}");
            older = slot;
            slot = self.newer(slot);
            count += 1;
            assert!(count <= list.len, "a list is longer than its length");
        }
        assert_eq!(older, list.head);
        assert_eq!(count, list.len);
    }
}
