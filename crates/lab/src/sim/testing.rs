//! Helpers for the tests of the simulator: references of random traces.

use super::interner::Interner;
use super::references::Reference;
use crate::random::Random;
use crate::trace::{NameKind, Op, Record, Source, TraceError};

/// Returns a read of a whole page.
pub(crate) fn reference(page: u64) -> Reference {
    Reference { page, bytes: 4096, write: false, partial: false, first: true }
}

/// Returns reads and writes of `pages` pages, some of them much hotter than others, with sequential
/// runs.
pub(crate) fn random_references(random: &mut Random, count: usize, pages: u64) -> Vec<Reference> {
    let mut references = Vec::new();
    while references.len() < count {
        let range = random.below(pages) + 1;
        let start = random.below(range);
        let run = if random.below(8) == 0 { random.below(20) + 1 } else { 1 };
        for page in start..(start + run).min(pages) {
            let write = random.below(3) == 0;
            references.push(Reference { write, ..reference(page) });
        }
    }
    references.truncate(count);
    references
}

/// Returns reads of which low pages are hotter, with reuse over all distances: the page is a
/// product of two uniform numbers.
pub(crate) fn skewed_references(random: &mut Random, count: usize, pages: u64) -> Vec<Reference> {
    let mut page = || {
        let first = random.below(pages);
        let second = random.below(pages);
        reference(
            u64::try_from(u128::from(first) * u128::from(second) / u128::from(pages)).unwrap(),
        )
    };
    (0..count).map(|_| page()).collect()
}

/// Returns the numbers of the pages of `references`.
pub(crate) fn numbered(references: &[Reference]) -> Vec<u32> {
    let mut numbers = Vec::new();
    Interner::new().numbers(references, &mut numbers);
    numbers
}

/// A trace in memory, read a few records at a time.
#[derive(Debug)]
pub(crate) struct Memory(pub(crate) std::vec::IntoIter<Record>);

impl Memory {
    /// Creates a trace with these references, in pages of 4 KiB.
    pub(crate) fn of(references: &[Reference]) -> Memory {
        let record = |reference: &Reference| Record {
            offset: reference.page * 4096,
            len: 4096,
            op: if reference.write { Op::Write } else { Op::Read },
            ..Record::default()
        };
        Memory(references.iter().map(record).collect::<Vec<_>>().into_iter())
    }
}

impl Source for Memory {
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        batch.extend(self.0.by_ref().take(1000));
        Ok(())
    }

    fn name(&self, kind: NameKind, number: u32) -> Option<&str> {
        (kind == NameKind::Volume && number == 1).then_some("disk")
    }
}
