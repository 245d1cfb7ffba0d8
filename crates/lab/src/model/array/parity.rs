//! Writes to a part of a stripe with parity: `handle_stripe_dirtying` in drivers/md/raid5.c.

use super::layout::{ArrayLayout, MemberOps, MemberRange, PAGE};
use std::ops::Range;

impl ArrayLayout {
    /// Adds the operations for a part of one or two stripes.
    pub(super) fn write_with_parity(&self, bytes: &Range<u64>, ops: &mut MemberOps) {
        let stripe_bytes = self.chunk_bytes * self.data_chunks();
        for stripe in bytes.start / stripe_bytes..bytes.end.div_ceil(stripe_bytes) {
            let all = stripe * stripe_bytes..(stripe + 1) * stripe_bytes;
            let bytes = bytes.start.max(all.start)..bytes.end.min(all.end);
            // The pages between these ones are all alike.
            let ends = [bytes.start, bytes.end].map(|at| at % self.chunk_bytes);
            let chunk_pages = self.chunk_bytes / PAGE;
            let mut steps = vec![0, chunk_pages];
            steps.extend(ends.iter().flat_map(|at| [at / PAGE, at.div_ceil(PAGE)]));
            steps.sort_unstable();
            for step in steps.windows(2).filter(|step| step[0] < step[1]) {
                self.write_rows(&bytes, stripe, &(step[0]..step[1]), ops);
            }
        }
    }

    /// Adds the operations for the same pages of all chunks of a stripe, which are all alike.
    fn write_rows(&self, bytes: &Range<u64>, stripe: u64, pages: &Range<u64>, ops: &mut MemberOps) {
        let data = self.data_chunks();
        let first = stripe * self.chunk_bytes / PAGE;
        let rows = first + pages.start..first + pages.end;
        let (mut written, mut needed) = (Vec::new(), Vec::new());
        for number in 0..data {
            let start = (stripe * data + number) * self.chunk_bytes + pages.start * PAGE;
            let covered = bytes.end.min(start + PAGE).saturating_sub(bytes.start.max(start));
            let member = self.data_member(stripe, number);
            if covered > 0 {
                written.push(member);
            }
            if covered < PAGE {
                needed.push(member);
            }
        }
        if written.is_empty() {
            return;
        }
        written.extend((0..self.level.parities()).map(|parity| self.parity_member(stripe, parity)));
        // md counts a member that cannot be read as twice the members.
        let cost = |members: &[usize]| {
            let of_failed = 2 * self.members as usize;
            let each = |&member: &usize| if self.has_failed(member) { of_failed } else { 1 };
            members.iter().map(each).sum::<usize>()
        };
        let read = if cost(&written) < cost(&needed) { &written } else { &needed };
        let of_rows = |member: usize| MemberRange::of_rows(member, &rows);
        if read.iter().any(|&member| self.has_failed(member)) {
            ops.reads.extend(self.alive().map(of_rows));
        } else {
            ops.reads.extend(read.iter().copied().map(of_rows));
        }
        let alive = written.into_iter().filter(|&member| !self.has_failed(member));
        ops.writes.extend(alive.map(of_rows));
    }
}
