//! Positions of the bytes of an array on its members, and the operations of its members for a
//! request.
//!
//! The layouts are those of Linux md: left-symmetric parity (`raid5_compute_sector` in
//! drivers/md/raid5.c), and near, far and offset copies (`__raid10_find_phys` in
//! drivers/md/raid10.c). Offsets and lengths are bytes. A row is a page at the same offset on all
//! members.

use super::level::ArrayLevel;
use super::members::MemberSet;
use std::ops::Range;

/// Unit of parity: md handles stripes in pages.
pub(super) const PAGE: u64 = 4096;

/// A range of bytes of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MemberRange {
    pub(super) member: usize,
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl MemberRange {
    pub(super) fn of_rows(member: usize, rows: &Range<u64>) -> Self {
        MemberRange { member, offset: rows.start * PAGE, len: (rows.end - rows.start) * PAGE }
    }
}

/// Operations of the members for a request: first the reads, then the writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MemberOps {
    pub(super) reads: Vec<MemberRange>,
    pub(super) writes: Vec<MemberRange>,
}

/// A part of a request, and its copies on members that have not failed; with parity, its only
/// place, which may be on a failed member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Members, and the offsets there.
    pub(super) places: Vec<(usize, u64)>,
    pub(super) len: u64,
}

impl Part {
    /// Returns the range of a copy.
    pub(super) fn range(&self, (member, offset): (usize, u64)) -> MemberRange {
        MemberRange { member, offset, len: self.len }
    }
}

/// The layout of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayLayout {
    /// The level.
    pub level: ArrayLevel,
    /// Number of members; at least [`ArrayLevel::members_min`].
    pub members: u32,
    /// Bytes of a chunk: a power of two, at least 4,096. Levels 1 and linear do not use it.
    pub chunk_bytes: u64,
    /// Members that have failed: no more than the level survives.
    pub failed: MemberSet,
    /// A new member, which is rebuilt from its first byte on; it has not failed.
    pub rebuilt: Option<u32>,
}

fn index(member: u64) -> usize {
    usize::try_from(member).expect("a number of members")
}

impl ArrayLayout {
    /// Returns the layout of an array without failures.
    #[must_use]
    pub const fn new(level: ArrayLevel, members: u32, chunk_bytes: u64) -> Self {
        ArrayLayout { level, members, chunk_bytes, failed: MemberSet::EMPTY, rebuilt: None }
    }

    pub(super) fn count(&self) -> u64 {
        self.members.into()
    }

    pub(super) fn has_failed(&self, member: usize) -> bool {
        self.failed.contains(member)
    }

    /// Returns the layout with one more failed member.
    pub(super) fn without(self, member: u32) -> ArrayLayout {
        ArrayLayout { failed: self.failed.with(member), ..self }
    }

    /// Returns true if all data can be read: from members that have neither failed nor are rebuilt.
    #[must_use]
    pub fn has_all_data(&self) -> bool {
        let readable = self.rebuilt.map_or(*self, |member| self.without(member));
        match self.level {
            ArrayLevel::Linear | ArrayLevel::Stripe => readable.failed.count() == 0,
            ArrayLevel::Parity | ArrayLevel::DoubleParity => {
                u64::from(readable.failed.count()) <= self.level.parities()
            }
            // Each chunk of a period has a copy.
            _ => {
                let chunks = self.count() * self.chunk_bytes;
                let parts = (0..self.count()).map(|chunk| chunk * self.chunk_bytes);
                parts.into_iter().all(|at| !readable.places(chunks, at).0.is_empty())
            }
        }
    }

    /// Returns the number of data chunks in a stripe.
    pub(super) fn data_chunks(&self) -> u64 {
        self.count() - self.level.parities()
    }

    /// Returns the members that have not failed.
    pub(super) fn alive(&self) -> impl Iterator<Item = usize> {
        (0..self.members as usize).filter(|&member| !self.has_failed(member))
    }

    /// Returns the bytes of each member of an array of `length` bytes: whole chunks.
    #[must_use]
    pub fn member_bytes(&self, length: u64) -> u64 {
        let count = self.count();
        let chunks = length.div_ceil(self.chunk_bytes);
        let rows = match self.level {
            ArrayLevel::Linear => length.div_ceil(count).div_ceil(self.chunk_bytes),
            ArrayLevel::Mirror => chunks,
            ArrayLevel::StripedMirrors => (2 * chunks).div_ceil(count),
            ArrayLevel::FarMirrors | ArrayLevel::OffsetMirrors => 2 * chunks.div_ceil(count),
            _ => chunks.div_ceil(self.data_chunks()),
        };
        rows.max(1) * self.chunk_bytes
    }

    /// Returns the bytes for data if each member has `bytes`: whole chunks.
    #[must_use]
    pub fn usable_bytes(&self, bytes: u64) -> u64 {
        let (count, rows) = (self.count(), bytes / self.chunk_bytes);
        let chunks = match self.level {
            ArrayLevel::Linear => rows * count,
            ArrayLevel::Mirror => rows,
            ArrayLevel::StripedMirrors | ArrayLevel::FarMirrors | ArrayLevel::OffsetMirrors => {
                rows * count / 2
            }
            _ => rows * self.data_chunks(),
        };
        chunks * self.chunk_bytes
    }

    /// Returns the number of failed members, whichever they are, that the data survives.
    #[must_use]
    pub fn failures_survived(&self) -> u32 {
        match self.level {
            ArrayLevel::Linear | ArrayLevel::Stripe => 0,
            ArrayLevel::Mirror => self.members - 1,
            ArrayLevel::DoubleParity => 2,
            _ => 1,
        }
    }

    /// Returns the parts of a request to an array of `length` bytes; parts that are adjacent on
    /// their members are one.
    pub(super) fn parts(&self, length: u64, bytes: Range<u64>) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        let mut at = bytes.start;
        while at < bytes.end {
            let (places, contiguous) = self.places(length, at);
            let len = contiguous.min(bytes.end - at);
            let follows = |part: &&mut Part| {
                let ends = part.places.iter().map(|(member, offset)| (*member, offset + part.len));
                ends.eq(places.iter().copied())
            };
            match parts.iter_mut().find(follows) {
                Some(part) => part.len += len,
                None => parts.push(Part { places, len }),
            }
            at += len;
        }
        parts
    }

    /// Returns the places of the byte at `at`, and the number of bytes that follow there, itself
    /// included.
    fn places(&self, length: u64, at: u64) -> (Vec<(usize, u64)>, u64) {
        let count = self.count();
        let (chunk, within) = (at / self.chunk_bytes, at % self.chunk_bytes);
        let place = |member: u64, row: u64| (index(member), row * self.chunk_bytes + within);
        let places = match self.level {
            ArrayLevel::Linear => {
                let each = self.member_bytes(length);
                return (vec![(index(at / each), at % each)], each - at % each);
            }
            ArrayLevel::Mirror => {
                return (self.alive().map(|member| (member, at)).collect(), length - at);
            }
            ArrayLevel::Stripe => vec![place(chunk % count, chunk / count)],
            // The copies of a chunk are in adjacent places; with an odd number of members the
            // second copy of some chunks is in the next row.
            ArrayLevel::StripedMirrors => {
                let copies = [2 * chunk, 2 * chunk + 1].map(|it| place(it % count, it / count));
                copies.into_iter().filter(|(member, _)| !self.has_failed(*member)).collect()
            }
            ArrayLevel::FarMirrors | ArrayLevel::OffsetMirrors => {
                let (row, copy) = match self.level {
                    ArrayLevel::FarMirrors => (chunk / count, self.far_rows(length)),
                    _ => (chunk / count * 2, 1),
                };
                let copies = [place(chunk % count, row), place((chunk + 1) % count, row + copy)];
                copies.into_iter().filter(|(member, _)| !self.has_failed(*member)).collect()
            }
            ArrayLevel::Parity | ArrayLevel::DoubleParity => {
                let data = self.data_chunks();
                let (stripe, number) = (chunk / data, chunk % data);
                vec![place(self.data_member(stripe, number) as u64, stripe)]
            }
        };
        (places, self.chunk_bytes - within)
    }

    /// Returns an upper limit of the bytes of each member to which a request to an array of
    /// `length` bytes extends.
    pub(super) fn member_end(&self, length: u64, bytes: &Range<u64>) -> u64 {
        let chunk = bytes.end.saturating_sub(1) / self.chunk_bytes;
        let rows = match self.level {
            ArrayLevel::Linear | ArrayLevel::FarMirrors => return self.member_bytes(length),
            ArrayLevel::Mirror => return bytes.end,
            ArrayLevel::StripedMirrors => (2 * chunk + 1) / self.count() + 1,
            ArrayLevel::OffsetMirrors => 2 * (chunk / self.count() + 1),
            _ => chunk / self.data_chunks() + 1,
        };
        rows * self.chunk_bytes
    }

    /// Returns the rows of chunks from a far chunk to its copy, in an array of `length` bytes.
    pub(super) fn far_rows(&self, length: u64) -> u64 {
        self.member_bytes(length) / self.chunk_bytes / 2
    }

    /// Returns the member of a parity chunk of a stripe: 0 for P, 1 for Q.
    pub(super) fn parity_member(&self, stripe: u64, parity: u64) -> usize {
        index((self.count() - 1 - stripe % self.count() + parity) % self.count())
    }

    /// Returns the member of a data chunk of a stripe.
    pub(super) fn data_member(&self, stripe: u64, number: u64) -> usize {
        let first = self.parity_member(stripe, 0) as u64 + self.level.parities();
        index((first + number) % self.count())
    }

    /// Returns the operations of a read whose copies have been chosen; a part on a failed member is
    /// computed from all others, of level 6 too (`fetch_block` in drivers/md/raid5.c).
    pub(super) fn read(&self, parts: &[MemberRange]) -> MemberOps {
        let mut reads = Vec::new();
        for part in parts {
            if !self.has_failed(part.member) {
                reads.push(*part);
                continue;
            }
            let rows = part.offset / PAGE..(part.offset + part.len).div_ceil(PAGE);
            reads.extend(self.alive().map(|member| MemberRange::of_rows(member, &rows)));
        }
        MemberOps { reads: merged(reads), writes: Vec::new() }
    }

    /// Returns the operations of a write. Levels with parity read what they need for it, as
    /// `handle_stripe_dirtying` in drivers/md/raid5.c: the old data and parity of the written pages
    /// (read-modify-write), or the rest of the row (reconstruct-write), whichever is less, and
    /// nothing if the whole row is written.
    pub(super) fn write(&self, length: u64, bytes: Range<u64>) -> MemberOps {
        let (whole, rest) = self.split(bytes);
        let mut ops = MemberOps { reads: Vec::new(), writes: self.all_of(length, &whole) };
        for bytes in rest {
            if self.level.parities() > 0 {
                self.write_with_parity(&bytes, &mut ops);
                continue;
            }
            for part in self.parts(length, bytes) {
                ops.writes.extend(part.places.iter().map(|&place| part.range(place)));
            }
        }
        MemberOps { reads: merged(ops.reads), writes: merged(ops.writes) }
    }

    /// Returns the operations of a discard. With parity only whole stripes are discarded.
    pub(super) fn discard(&self, length: u64, bytes: Range<u64>) -> MemberOps {
        if self.level.parities() == 0 {
            return self.write(length, bytes);
        }
        MemberOps { reads: Vec::new(), writes: self.all_of(length, &self.split(bytes).0) }
    }

    /// Returns the length of a period of the layout: its data chunks, and its chunks on each
    /// member; `None` without chunks.
    fn period(&self) -> Option<(u64, u64)> {
        match self.level {
            ArrayLevel::Linear | ArrayLevel::Mirror => None,
            ArrayLevel::StripedMirrors | ArrayLevel::OffsetMirrors => Some((self.count(), 2)),
            _ => Some((self.data_chunks(), 1)),
        }
    }

    /// Splits a request, which may be long, into whole periods and the bytes before and after them.
    fn split(&self, bytes: Range<u64>) -> (Range<u64>, Vec<Range<u64>>) {
        let Some((chunks, _)) = self.period() else { return (0..0, vec![bytes]) };
        let period = chunks * self.chunk_bytes;
        let whole = bytes.start.div_ceil(period)..bytes.end / period;
        if whole.is_empty() {
            return (0..0, vec![bytes]);
        }
        let rest = [bytes.start..whole.start * period, whole.end * period..bytes.end];
        (whole, rest.into_iter().filter(|rest| !rest.is_empty()).collect())
    }

    /// Returns the ranges of all members for whole periods of an array of `length` bytes.
    fn all_of(&self, length: u64, periods: &Range<u64>) -> Vec<MemberRange> {
        let Some((_, chunks)) = self.period().filter(|_| !periods.is_empty()) else {
            return Vec::new();
        };
        let rows = chunks * self.chunk_bytes / PAGE;
        let rows = periods.start * rows..periods.end * rows;
        let copies = match self.level {
            ArrayLevel::FarMirrors => vec![0, self.far_rows(length) * self.chunk_bytes / PAGE],
            _ => vec![0],
        };
        let ranges = copies.into_iter().flat_map(|copy| {
            let rows = rows.start + copy..rows.end + copy;
            self.alive().map(move |member| MemberRange::of_rows(member, &rows))
        });
        ranges.collect()
    }
}

/// Returns the ranges in order of member and offset, with adjacent ones joined.
fn merged(mut ranges: Vec<MemberRange>) -> Vec<MemberRange> {
    ranges.sort_unstable();
    ranges.dedup_by(|next, previous| {
        let is_adjacent =
            next.member == previous.member && next.offset <= previous.offset + previous.len;
        if is_adjacent {
            let end = (next.offset + next.len).max(previous.offset + previous.len);
            previous.len = end - previous.offset;
        }
        is_adjacent
    });
    ranges
}
