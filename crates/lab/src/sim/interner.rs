//! Assignment of dense numbers to the pages of a trace, in the order of their first reference.
//!
//! The number of pages so far is the footprint, and a first reference is a compulsory miss of every
//! cache. Memory: 8 bytes per page, and 16 to 32 for its entry in the table.

use super::references::Reference;
use larder_core::page_index::{Hash, Index};

/// References of a chunk, whose table entries are prefetched together.
const PREFETCH: usize = 32;

/// Pages and their numbers.
#[derive(Clone, Debug, Default)]
pub struct Interner {
    index: Index,
    pages: Vec<u64>,
}

impl Interner {
    /// Creates an interner without pages.
    #[must_use]
    pub fn new() -> Self {
        Interner::default()
    }

    /// Returns the number of a page, a new one for a new page.
    pub fn number(&mut self, page: u64) -> u32 {
        self.number_hashed(page, Hash::of(page))
    }

    fn number_hashed(&mut self, page: u64, hash: Hash) -> u32 {
        let Interner { index, pages } = self;
        index.find(hash, |number| pages[number as usize] == page).unwrap_or_else(|| {
            let number = u32::try_from(pages.len()).expect("fewer than 2^31 pages");
            index.insert(hash, number);
            pages.push(page);
            number
        })
    }

    /// Returns the number of a page, if it has one.
    pub(crate) fn find(&self, page: u64) -> Option<u32> {
        self.index.find(Hash::of(page), |number| self.pages[number as usize] == page)
    }

    /// Returns the page with this number, which is below [`Self::len`].
    pub(crate) fn page(&self, number: u32) -> u64 {
        self.pages[number as usize]
    }

    /// Replaces the contents of `numbers` with the numbers of the pages of `references`.
    pub fn numbers(&mut self, references: &[Reference], numbers: &mut Vec<u32>) {
        numbers.clear();
        for chunk in references.chunks(PREFETCH) {
            // The loads of a chunk do not wait for each other; the lookups after them find the
            // table in the processor's cache.
            let touched = chunk.iter().fold(0, |sum, r| sum ^ self.index.touch(Hash::of(r.page)));
            std::hint::black_box(touched);
            for reference in chunk {
                numbers.push(self.number(reference.page));
            }
        }
    }

    /// Returns the number of pages: the footprint.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Returns true if there are no pages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Returns the bytes of memory in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.index.bytes() + self.pages.capacity() * size_of::<u64>()
    }
}
