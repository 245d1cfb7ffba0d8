//! LIRS: ranks pages by the recency between their last two references.
//!
//! Jiang, Zhang, "LIRS: an efficient low inter-reference recency set replacement policy to improve
//! buffer cache performance", SIGMETRICS '02. Pages of low recency (LIR) have 99 % of the cache, as
//! in the paper; the rest (HIR) pass through a queue, Q, whose oldest page is the victim. A stack,
//! S, orders LIR pages, resident HIR pages and ghosts by last reference, down to the oldest LIR
//! page. A page that is referenced while it is in S becomes LIR, and the oldest LIR page becomes
//! HIR instead. If no page of Q can be evicted (the 1 % may all be dirty), the victim is the oldest
//! LIR page.
//!
//! The paper does not bound the ghosts; here there are at most as many as the cache has pages, and
//! the ghost whose page was evicted first is dropped.

use super::index::{Index, fingerprint};
use super::list::{Links, List};
use super::{PASSED_OVER_MAX, Policy, Slot};
use crate::page::ChunkedArray;

/// The share of HIR pages: one page in this many, and at least one.
const HIR_SHARE: usize = 100;
/// The maximum number of stack entries visited from the bottom in a search for a LIR victim.
const STACK_SCAN_MAX: usize = 1024;
/// The maximum number of ghosts per page of the cache.
const GHOSTS_PER_PAGE: usize = 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The node is not in use.
    #[default]
    Free,
    Lir,
    Hir,
    Ghost,
}

/// A page of S or Q.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// The slot of a resident page, the fingerprint of a ghost.
    id: u32,
    state: State,
    in_stack: bool,
}

/// LIRS.
#[derive(Debug, Default)]
pub struct Lirs {
    nodes: ChunkedArray<Node>,
    free: Vec<u32>,
    end: u32,
    /// The node of each slot.
    node_of: ChunkedArray<u32>,
    /// The nodes of the ghosts.
    index: Index,
    /// The links of S; the head is the top.
    stack_links: Links,
    stack: List,
    /// The number of LIR pages; they are all in S, and the oldest one is its bottom.
    lir: usize,
    /// The links of the two lists below, each in the order in which a node entered the state.
    links: Links,
    queue: List,
    ghosts: List,
    capacity: usize,
}

impl Lirs {
    /// Memory per resident page in bytes: its node with two pairs of links and an entry of the free
    /// list, the number of that node, and for each ghost a node and an entry of the index.
    pub(super) const BYTES: usize = (size_of::<Node>() + 2 * Links::BYTES + 4)
        * (1 + GHOSTS_PER_PAGE)
        + 4
        + GHOSTS_PER_PAGE * Index::BYTES;

    fn capacity(&self) -> usize {
        self.capacity.max(self.len())
    }

    fn lir_max(&self) -> usize {
        let capacity = self.capacity();
        capacity - (capacity / HIR_SHARE).max(1)
    }

    fn new_node(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        })
    }

    /// Puts a node that is in neither of the lists on top of the stack as LIR.
    fn make_lir(&mut self, node: u32) {
        self.nodes.get_mut(node).state = State::Lir;
        self.push_stack(node);
        self.lir += 1;
    }

    fn push_stack(&mut self, node: u32) {
        let entry = self.nodes.get_mut(node);
        if entry.in_stack {
            self.stack_links.move_to_head(&mut self.stack, node);
        } else {
            entry.in_stack = true;
            self.stack_links.push_head(&mut self.stack, node);
        }
    }

    /// Makes the oldest LIR pages HIR while there are too many.
    fn demote(&mut self) {
        self.prune();
        while self.lir > self.lir_max()
            && let Some(node) = self.stack_links.pop_tail(&mut self.stack)
        {
            *self.nodes.get_mut(node) =
                Node { state: State::Hir, in_stack: false, ..*self.nodes.get(node) };
            self.links.push_head(&mut self.queue, node);
            self.lir -= 1;
            self.prune();
        }
    }

    /// Removes entries older than the oldest LIR page from the stack.
    fn prune(&mut self) {
        while self.stack.len() > 0 && self.nodes.get(self.stack.tail()).state != State::Lir {
            let node = self.stack.tail();
            self.remove_from_stack(node);
            if self.nodes.get(node).state == State::Ghost {
                self.drop_ghost(node);
            }
        }
    }

    /// Drops a ghost that is not in the stack.
    fn drop_ghost(&mut self, node: u32) {
        self.links.remove(&mut self.ghosts, node);
        self.index.remove(self.nodes.get(node).id);
        self.release(node);
    }

    fn release(&mut self, node: u32) {
        *self.nodes.get_mut(node) = Node::default();
        self.free.push(node);
    }

    fn remove_from_stack(&mut self, node: u32) {
        if std::mem::take(&mut self.nodes.get_mut(node).in_stack) {
            self.stack_links.remove(&mut self.stack, node);
        }
    }

    /// Turns the node of an evicted page in the stack into a ghost.
    fn insert_ghost(&mut self, node: u32, page: u64, max_ghosts: usize) {
        let id = fingerprint(page);
        // The index holds only one of two pages with the same fingerprint.
        if let Some(other) = self.index.get(id) {
            self.remove_from_stack(other);
            self.drop_ghost(other);
        }
        *self.nodes.get_mut(node) = Node { id, state: State::Ghost, in_stack: true };
        self.index.insert(id, node);
        self.links.push_head(&mut self.ghosts, node);
        while self.ghosts.len() > max_ghosts {
            let oldest = self.ghosts.tail();
            self.remove_from_stack(oldest);
            self.drop_ghost(oldest);
        }
    }
}

impl Policy for Lirs {
    fn on_capacity(&mut self, pages: usize) {
        self.capacity = pages;
    }

    fn on_insert(&mut self, slot: Slot, page: u64) {
        let ghost = self.index.remove(fingerprint(page));
        let node = ghost.unwrap_or_else(|| self.new_node());
        if ghost.is_some() {
            self.links.remove(&mut self.ghosts, node);
        }
        *self.node_of.get_mut(slot) = node;
        self.nodes.get_mut(node).id = slot;
        // The new page counts in the capacity that determines the shares.
        let lir_max = {
            let capacity = self.capacity.max(self.len() + 1);
            capacity - (capacity / HIR_SHARE).max(1)
        };
        if ghost.is_some() || self.lir < lir_max {
            self.make_lir(node);
            self.demote();
        } else {
            self.nodes.get_mut(node).state = State::Hir;
            self.links.push_head(&mut self.queue, node);
            self.push_stack(node);
            self.prune();
        }
    }

    fn on_hit(&mut self, slot: Slot) {
        let node = *self.node_of.get(slot);
        let Node { state, in_stack, .. } = *self.nodes.get(node);
        if state == State::Lir {
            let was_bottom = self.stack.tail() == node;
            self.push_stack(node);
            if was_bottom {
                self.prune();
            }
        } else if in_stack {
            self.links.remove(&mut self.queue, node);
            self.make_lir(node);
            self.demote();
        } else {
            self.links.move_to_head(&mut self.queue, node);
            self.push_stack(node);
            self.prune();
        }
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let mut budget = PASSED_OVER_MAX;
        let nodes = &self.nodes;
        let mut accept = |node| accept(nodes.get(node).id);
        let node = self.links.find_oldest(&self.queue, &mut budget, &mut accept).or_else(|| {
            let stack = self.stack_links.oldest_first(&self.stack).take(STACK_SCAN_MAX);
            stack
                .filter(|&node| nodes.get(node).state == State::Lir)
                .take(budget as usize)
                .find(|&node| accept(node))
        })?;
        Some(self.nodes.get(node).id)
    }

    fn on_remove(&mut self, slot: Slot, page: u64, evicted: bool) {
        let max_ghosts = self.capacity() * GHOSTS_PER_PAGE;
        let node = *self.node_of.get(slot);
        let Node { state, in_stack, .. } = *self.nodes.get(node);
        if state == State::Lir {
            self.lir -= 1;
        } else {
            self.links.remove(&mut self.queue, node);
        }
        if evicted && in_stack {
            self.insert_ghost(node, page, max_ghosts);
        } else {
            self.remove_from_stack(node);
            self.release(node);
        }
        if state == State::Lir {
            self.prune();
        }
    }

    fn is_protected(&self, slot: Slot) -> bool {
        self.nodes.get(*self.node_of.get(slot)).state == State::Lir
    }

    fn len(&self) -> usize {
        self.lir + self.queue.len()
    }

    fn check(&self) {
        self.index.check();
        self.stack_links.check(&self.stack);
        let mut used = self.lir;
        for (list, state) in [(&self.queue, State::Hir), (&self.ghosts, State::Ghost)] {
            self.links.check(list);
            used += list.len();
            for node in self.links.oldest_first(list) {
                let entry = self.nodes.get(node);
                assert_eq!(entry.state, state, "a node in the wrong list");
                if state == State::Ghost {
                    assert_eq!(self.index.get(entry.id), Some(node), "a ghost's cell");
                } else {
                    assert_eq!(*self.node_of.get(entry.id), node, "the node of a slot");
                }
                assert!(entry.in_stack || state == State::Hir, "{entry:?} is not in the stack");
            }
        }
        assert_eq!(self.index.len(), self.ghosts.len(), "ghosts and cells");
        assert_eq!(used + self.free.len(), self.end as usize, "nodes used and free");
        let mut lir = 0;
        for node in self.stack_links.oldest_first(&self.stack) {
            let entry = self.nodes.get(node);
            assert!(entry.in_stack && entry.state != State::Free, "{entry:?} in the stack");
            if entry.state == State::Lir {
                assert_eq!(*self.node_of.get(entry.id), node, "the node of a slot");
                lir += 1;
            }
            assert!(lir > 0, "the bottom of the stack is not LIR");
        }
        assert_eq!(lir, self.lir, "LIR pages in the stack");
    }
}
