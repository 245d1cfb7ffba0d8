//! Location of a file in the stores.
//!
//! Invariant: the holder of the lock of the segments also determines the section.

use super::SourceFile;
use crate::store::files::SEGMENT_BYTES;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

impl SourceFile {
    pub(crate) fn section(&self) -> usize {
        self.section.load(Ordering::Acquire)
    }

    /// Moves the file to another section if it is not open and was not opened since its number of
    /// openings was `openings`. Returns its previous segments, of which no data may be cached.
    pub(crate) fn move_to(&self, section: usize, openings: u64) -> Option<Vec<u32>> {
        let mut more = self.other_segments.lock().expect("no holder panics");
        if self.is_open() || self.openings() != openings {
            return None;
        }
        self.section.store(section, Ordering::Release);
        Some(self.take_from(&mut more))
    }

    /// Records that the file moves when no process has it open.
    pub(crate) fn set_moves(&self) {
        self.move_pending.store(true, Ordering::Release);
    }

    pub(crate) fn has_moved(&self) {
        self.move_pending.store(false, Ordering::Release);
    }

    /// Returns true if the file moves when no process has it open.
    pub(crate) fn moves(&self) -> bool {
        self.move_pending.load(Ordering::Acquire)
    }

    /// Returns true if data of the file may be in the cache.
    pub(crate) fn has_segments(&self) -> bool {
        !self.segments().is_empty()
    }

    pub(in crate::store::files) fn segment(&self, number: u64) -> Option<u32> {
        if number == 0 {
            return self.first_segment.load(Ordering::Acquire).checked_sub(1);
        }
        self.other_segments.lock().expect("no holder panics").get(&number).copied()
    }

    /// Returns the segment of this number, which `allocate` provides if there is none.
    pub(in crate::store::files) fn segment_or(
        &self,
        number: u64,
        allocate: impl FnOnce() -> Result<u32, Errno>,
    ) -> Result<u32, Errno> {
        let mut more = self.other_segments.lock().expect("no holder panics");
        if number > 0 {
            if let Some(&segment) = more.get(&number) {
                return Ok(segment);
            }
            let segment = allocate()?;
            more.insert(number, segment);
            return Ok(segment);
        }
        if let Some(segment) = self.first_segment.load(Ordering::Acquire).checked_sub(1) {
            return Ok(segment);
        }
        let segment = allocate()?;
        self.first_segment.store(segment + 1, Ordering::Release);
        Ok(segment)
    }

    /// Calls `change` if the file has no segment, and returns its result. No segment is allocated
    /// meanwhile.
    pub(crate) fn without_segments<T>(&self, change: impl FnOnce() -> T) -> Option<T> {
        let more = self.other_segments.lock().expect("no holder panics");
        let has_none = self.first_segment.load(Ordering::Acquire) == 0 && more.is_empty();
        has_none.then(change)
    }

    /// Calls `each` for the parts of a range that lie in no segment; none is allocated meanwhile.
    pub(crate) fn beside_segments(
        &self,
        range: Range<u64>,
        mut each: impl FnMut(Range<u64>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let more = self.other_segments.lock().expect("no holder panics");
        let first = (self.first_segment.load(Ordering::Acquire) > 0).then_some(&0);
        let mut at = range.start;
        for &number in first.into_iter().chain(more.keys()) {
            let start = (number * SEGMENT_BYTES).min(range.end);
            if at < start {
                each(at..start)?;
            }
            at = at.max((number + 1) * SEGMENT_BYTES);
        }
        if at < range.end { each(at..range.end) } else { Ok(()) }
    }

    /// Returns all segments with their numbers, in order.
    pub(in crate::store::files) fn segments(&self) -> Vec<(u64, u32)> {
        self.placed().1
    }

    /// Returns the section, and all segments with their numbers, in order.
    pub(in crate::store::files) fn placed(&self) -> (usize, Vec<(u64, u32)>) {
        let more = self.other_segments.lock().expect("no holder panics");
        let first = self.first_segment.load(Ordering::Acquire).checked_sub(1);
        let rest = more.iter().map(|(&number, &segment)| (number, segment));
        let segments = first.map(|segment| (0, segment)).into_iter().chain(rest).collect();
        (self.section(), segments)
    }

    pub(in crate::store::files) fn take_segments(&self) -> Vec<u32> {
        self.take_from(&mut self.other_segments.lock().expect("no holder panics"))
    }

    fn take_from(&self, more: &mut BTreeMap<u64, u32>) -> Vec<u32> {
        let first = self.first_segment.swap(0, Ordering::AcqRel).checked_sub(1);
        first.into_iter().chain(std::mem::take(more).into_values()).collect()
    }
}
