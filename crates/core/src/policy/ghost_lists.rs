//! Ghosts in exact lists: for policies whose ghosts leave in an order of their own, or whose number
//! of ghosts in each list counts.

use super::index::{Index, fingerprint};
use super::list::{Links, List};
use crate::page::Chunked;

/// `N` lists of ghosts with one index. A page is in at most one of them.
#[derive(Debug)]
pub(crate) struct GhostLists<const N: usize> {
    /// From a fingerprint to N times the number of the ghost plus the number of its list.
    index: Index,
    links: Links,
    lists: [List; N],
    fingerprints: Chunked<u32>,
    free: Vec<u32>,
    end: u32,
}

impl<const N: usize> Default for GhostLists<N> {
    fn default() -> Self {
        GhostLists {
            index: Index::default(),
            links: Links::default(),
            lists: std::array::from_fn(|_| List::default()),
            fingerprints: Chunked::default(),
            free: Vec::new(),
            end: 0,
        }
    }
}

impl<const N: usize> GhostLists<N> {
    /// Bytes that a ghost needs at most: index, links, fingerprint, entry of the free list.
    pub(crate) const BYTES: usize = Index::BYTES + Links::BYTES + 2 * size_of::<u32>();

    const COUNT: u32 = {
        assert!(N > 0 && N < 256);
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let count = N as u32;
        count
    };

    fn list_of(value: u32) -> usize {
        (value % Self::COUNT) as usize
    }

    /// Ghosts of a list.
    pub(crate) fn len(&self, list: usize) -> usize {
        self.lists[list].len()
    }

    /// Ghosts of all lists.
    pub(crate) fn total(&self) -> usize {
        self.index.len()
    }

    /// The list that `page` is in.
    pub(crate) fn find(&self, page: u64) -> Option<usize> {
        self.index.get(fingerprint(page)).map(Self::list_of)
    }

    /// Forgets `page`; the list that it was in.
    pub(crate) fn take(&mut self, page: u64) -> Option<usize> {
        let value = self.index.remove(fingerprint(page))?;
        let list = Self::list_of(value);
        self.links.remove(&mut self.lists[list], value / Self::COUNT);
        self.free.push(value / Self::COUNT);
        Some(list)
    }

    /// Remembers `page` as the newest one of a list.
    pub(crate) fn push(&mut self, list: usize, page: u64) {
        self.take(page);
        let ghost = self.free.pop().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        });
        *self.fingerprints.get_mut(ghost) = fingerprint(page);
        self.links.push_head(&mut self.lists[list], ghost);
        let list = u32::try_from(list).expect("fewer lists than 256");
        self.index.insert(fingerprint(page), ghost * Self::COUNT + list);
    }

    /// Forgets the oldest ghost of a list, if it has one.
    pub(crate) fn pop_oldest(&mut self, list: usize) {
        if let Some(ghost) = self.links.pop_tail(&mut self.lists[list]) {
            self.index.remove(*self.fingerprints.get(ghost));
            self.free.push(ghost);
        }
    }

    /// Asserts that index and lists agree.
    pub(crate) fn check(&self) {
        self.index.check();
        let mut count = 0;
        for (number, list) in self.lists.iter().enumerate() {
            self.links.check(list);
            for ghost in self.links.oldest_first(list) {
                let value = self.index.get(*self.fingerprints.get(ghost)).expect("indexed");
                assert_eq!((value / Self::COUNT, Self::list_of(value)), (ghost, number));
                count += 1;
            }
        }
        assert_eq!(count, self.index.len(), "ghosts in lists and in the index");
        assert_eq!(count + self.free.len(), self.end as usize, "ghosts used and free");
    }
}
