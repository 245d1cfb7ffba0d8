//! The rebuild of a member beside other requests, by the rules of Linux md: `md_do_sync` and
//! `is_mddev_idle` in drivers/md/md.c, with the default limits of /proc/sys/dev/raid.
//!
//! The member is written from its first byte on, window by window. As long as the rebuild is below
//! its minimum rate, or the array has no other requests, many windows are in flight; else one.

use super::layout::{ArrayLayout, MemberOps, MemberRange, PAGE};
use super::level::ArrayLevel;
use larder_core::clock::{MILLISECOND, Nanos, SECOND};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// Bytes of a window: 32 pages.
const WINDOW: u64 = 32 * PAGE;
/// Minimum rate beside other requests, and maximum rate, KiB/s (`speed_limit_min`, `_max`).
const KIB_PER_S_MIN: u64 = 1_000;
const KIB_PER_S_MAX: u64 = 200_000;
/// Pause of a rebuild above its maximum rate.
const PAUSE: Nanos = 500 * MILLISECOND;
/// The rate is that since the oldest mark (`SYNC_MARKS`, `SYNC_MARK_STEP`).
const MARKS: usize = 10;
const MARK_STEP: Nanos = 3 * SECOND;
/// Bytes of other requests to a member from which an array is not idle: 64 sectors.
const IDLE_BYTES: u64 = 64 * 512;

/// The progress of a rebuild.
pub(super) struct Rebuild {
    /// The member that is written.
    pub(super) member: usize,
    member_bytes: u64,
    /// Windows in flight at most: 256 stripes of a page with parity (`NR_STRIPES` in
    /// drivers/md/raid5.c), else 32 times 64 KiB (`RESYNC_DEPTH` in drivers/md/raid1-10.c).
    windows_max: usize,
    /// Start of the next window.
    next: u64,
    in_flight: BTreeSet<u64>,
    bytes_done: u64,
    /// Times and bytes done, the oldest first; empty before the first request.
    marks: VecDeque<(Nanos, u64)>,
    /// Bytes of other requests by member, since the array was last found not idle.
    others: Vec<u64>,
    paused_until: Option<Nanos>,
}

impl Rebuild {
    pub(super) fn new(layout: &ArrayLayout, member: u32, member_bytes: u64) -> Self {
        let bytes_max = if layout.level.parities() > 0 { 256 * PAGE } else { 32 * (64 << 10) };
        Rebuild {
            member: member as usize,
            member_bytes,
            windows_max: usize::try_from(bytes_max / WINDOW).expect("a few windows"),
            next: 0,
            in_flight: BTreeSet::new(),
            bytes_done: 0,
            marks: VecDeque::new(),
            others: vec![0; layout.members as usize],
            paused_until: None,
        }
    }

    /// Returns the bytes of the member that are complete, from the first one on.
    pub(super) fn complete_to(&self) -> u64 {
        self.in_flight.first().copied().unwrap_or(self.next)
    }

    pub(super) fn has_begun(&self) -> bool {
        !self.marks.is_empty()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete_to() == self.member_bytes
    }

    /// Counts an operation of another request.
    pub(super) fn count_other(&mut self, range: &MemberRange) {
        self.others[range.member] += range.len;
    }

    /// Returns the end of the pause, if there is one.
    pub(super) fn pause_end(&self) -> Option<Nanos> {
        self.paused_until
    }

    /// Begins the next window if the rules allow it.
    pub(super) fn begin_window(&mut self, now: Nanos) -> Option<Range<u64>> {
        self.paused_until = self.paused_until.filter(|&end| end > now);
        let may_begin = self.next < self.member_bytes
            && self.in_flight.len() < self.windows_max
            && self.paused_until.is_none();
        if !may_begin || !self.rate_allows(now) {
            return None;
        }
        let window = self.next..self.member_bytes.min(self.next + WINDOW);
        self.next = window.end;
        self.in_flight.insert(window.start);
        Some(window)
    }

    pub(super) fn end_window(&mut self, start: u64) {
        self.in_flight.remove(&start);
        self.bytes_done += self.member_bytes.min(start + WINDOW) - start;
    }

    fn rate_allows(&mut self, now: Nanos) -> bool {
        if self.marks.is_empty() {
            self.marks.extend(std::iter::repeat_n((now, 0), MARKS));
        }
        if self.marks.back().is_some_and(|&(at, _)| now >= at + MARK_STEP) {
            self.marks.pop_front();
            self.marks.push_back((now, self.bytes_done));
        }
        let (since, bytes) = self.marks[0];
        let kib_per_s = (self.bytes_done - bytes) / 1024 / ((now - since) / SECOND + 1) + 1;
        if kib_per_s <= KIB_PER_S_MIN {
            return true;
        }
        if kib_per_s > KIB_PER_S_MAX {
            self.paused_until = Some(now + PAUSE);
            return false;
        }
        self.in_flight.is_empty() || self.is_idle()
    }

    fn is_idle(&mut self) -> bool {
        let mut is_idle = true;
        for bytes in &mut self.others {
            if *bytes > IDLE_BYTES {
                (*bytes, is_idle) = (0, false);
            }
        }
        is_idle
    }
}

impl ArrayLayout {
    /// Returns the operations that rebuild the bytes of a member: the reads of the others, and the
    /// writes to it. The array has `length` bytes.
    pub(super) fn rebuild(&self, length: u64, member: usize, bytes: Range<u64>) -> MemberOps {
        let all = MemberRange { member, offset: bytes.start, len: bytes.end - bytes.start };
        let others = || self.alive().filter(move |&other| other != member);
        let reads = match self.level {
            ArrayLevel::Parity | ArrayLevel::DoubleParity => {
                others().map(|other| MemberRange { member: other, ..all }).collect()
            }
            ArrayLevel::Linear | ArrayLevel::Stripe | ArrayLevel::Mirror => {
                others().take(1).map(|other| MemberRange { member: other, ..all }).collect()
            }
            _ => {
                let chunks = bytes.start / self.chunk_bytes..bytes.end.div_ceil(self.chunk_bytes);
                let copy = |row: u64| {
                    let start = bytes.start.max(row * self.chunk_bytes);
                    let end = bytes.end.min((row + 1) * self.chunk_bytes);
                    let (member, copy_row) = self.copy_of(length, member, row);
                    let offset = copy_row * self.chunk_bytes + start % self.chunk_bytes;
                    MemberRange { member, offset, len: end - start }
                };
                chunks.map(copy).collect()
            }
        };
        MemberOps { reads, writes: vec![all] }
    }

    /// Returns the member and the row of the copy of the chunk in a row of a member, for level 10.
    fn copy_of(&self, length: u64, member: usize, row: u64) -> (usize, u64) {
        let count = self.count();
        let at = |number: u64| usize::try_from(number % count).expect("a number of members");
        let member = member as u64;
        let (next, previous) = (at(member + 1), at(member + count - 1));
        match self.level {
            ArrayLevel::FarMirrors => {
                let rows = self.far_rows(length);
                if row < rows { (next, row + rows) } else { (previous, row - rows) }
            }
            ArrayLevel::OffsetMirrors if row.is_multiple_of(2) => (next, row + 1),
            ArrayLevel::OffsetMirrors => (previous, row - 1),
            _ => {
                let copy = (row * count + member) ^ 1;
                (at(copy), copy / count)
            }
        }
    }
}
