//! Transfers of a device, one after the other.

use larder_core::clock::Nanos;
use std::collections::VecDeque;

/// The times at which a device transfers, now or later: those of operations that wait for tokens
/// leave gaps, which others use.
#[derive(Clone, Debug, Default)]
pub(super) struct Transfers {
    /// Begin and end of each time; none touches another one, and the first is the earliest.
    busy: VecDeque<(Nanos, Nanos)>,
}

impl Transfers {
    /// Adds a transfer that takes `time` and begins at `earliest` at the earliest; returns its end.
    /// No later transfer begins before `now`.
    pub(super) fn add(&mut self, now: Nanos, earliest: Nanos, time: Nanos) -> Nanos {
        if time == 0 {
            return earliest;
        }
        while self.busy.front().is_some_and(|(_, end)| *end < now) {
            self.busy.pop_front();
        }
        let mut index = self.busy.partition_point(|(_, end)| *end < earliest);
        let mut begin = earliest;
        while let Some((next, end)) = self.busy.get(index) {
            if begin.saturating_add(time) <= *next {
                break;
            }
            begin = begin.max(*end);
            index += 1;
        }
        let end = begin.saturating_add(time);
        self.insert(index, (begin, end));
        end
    }

    /// Inserts a time at `index`, and joins it with those that it touches.
    fn insert(&mut self, index: usize, (begin, end): (Nanos, Nanos)) {
        let touches_next = self.busy.get(index).is_some_and(|next| next.0 == end);
        let touches_last = index > 0 && self.busy[index - 1].1 == begin;
        match (touches_last, touches_next) {
            (true, true) => {
                self.busy[index - 1].1 = self.busy[index].1;
                self.busy.remove(index);
            }
            (true, false) => self.busy[index - 1].1 = end,
            (false, true) => self.busy[index].0 = begin,
            (false, false) => self.busy.insert(index, (begin, end)),
        }
    }
}
