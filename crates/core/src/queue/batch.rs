//! A batch of dirty pages to write.

/// Pages to write in disk order. Each is named by a block of it, since the page size may change
/// before the write.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Block numbers in descending order: the next one is last.
    blocks: Vec<u64>,
}

impl Batch {
    /// Returns a batch of `blocks`, which may be in any order.
    pub(crate) fn sorted(mut blocks: Vec<u64>) -> Self {
        blocks.sort_unstable_by(|a, b| b.cmp(a));
        blocks.dedup();
        Batch { blocks }
    }

    pub(crate) fn next(&mut self) -> Option<u64> {
        self.blocks.pop()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}
