//! Throttling: the closer a volume is to its dirty limit, the later each write is acknowledged. So
//! writers slow down gradually to the speed of the store and do not stop abruptly at the limit.

use crate::clock::{MILLISECOND, Nanos, SECOND};

/// Interval over which the speed of the store is measured.
const WINDOW: Nanos = 100 * MILLISECOND;
/// Maximum delay of one write.
const DELAY_MAX: Nanos = 200 * MILLISECOND;

/// The measured speed of a store, and the earliest time of the next acknowledgement.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    window_start: Nanos,
    window_blocks: u64,
    /// Blocks written per second, smoothed; 0 before the first measurement.
    blocks_per_s: u64,
    next: Nanos,
}

impl Pace {
    /// Records a write of the store.
    pub(crate) fn wrote(&mut self, now: Nanos, blocks: u64) {
        self.window_blocks += blocks;
        let elapsed = now.saturating_sub(self.window_start);
        if elapsed < WINDOW {
            return;
        }
        // An interval that began long ago contains idle time, so it does not show the speed.
        if elapsed < 10 * WINDOW {
            let measured = self.window_blocks.saturating_mul(SECOND) / elapsed;
            self.blocks_per_s = if self.blocks_per_s == 0 {
                measured
            } else {
                (self.blocks_per_s * 3 + measured) / 4
            };
        }
        (self.window_start, self.window_blocks) = (now, 0);
    }

    /// Returns the time at which to acknowledge a write of `blocks`. `unclean` is the number of
    /// unclean blocks: writes are not delayed up to `setpoint`, and at `limit` they get at most the
    /// speed of the store.
    pub(crate) fn acknowledge_at(
        &mut self,
        now: Nanos,
        blocks: u64,
        unclean: u64,
        setpoint: u64,
        limit: u64,
    ) -> Option<Nanos> {
        if unclean <= setpoint || self.blocks_per_s == 0 {
            return None;
        }
        let full = blocks * SECOND / self.blocks_per_s;
        let position =
            (unclean - setpoint).min(limit - setpoint) * 1000 / (limit - setpoint).max(1);
        // Twice the time of the store at the limit, so that the number of dirty blocks falls before
        // it is reached.
        let delay = full * position * 2 / 1000;
        self.next = self.next.max(now).saturating_add(delay).min(now + DELAY_MAX);
        Some(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_grows_from_nothing_to_twice_the_time_of_the_store() {
        let mut pace = Pace::default();
        for i in 0..100 {
            pace.wrote(i * 10 * MILLISECOND, 1);
        }
        let now = SECOND;
        assert_eq!(pace.acknowledge_at(now, 1, 500, 500, 1000), None);
        let half = pace.acknowledge_at(now, 1, 750, 500, 1000).unwrap() - now;
        assert!((8 * MILLISECOND..12 * MILLISECOND).contains(&half), "{half}");
        let next = pace.acknowledge_at(now, 1, 1000, 500, 1000).unwrap() - now;
        assert!((25 * MILLISECOND..36 * MILLISECOND).contains(&next), "{next} with the one before");
    }
}
