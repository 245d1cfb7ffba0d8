//! Pacing: on the way to the dirty limit each write is acknowledged a little later, so that writers
//! slow down to the speed of the store smoothly instead of running into a wall.

use crate::clock::{MILLISECOND, Nanos, SECOND};

/// The window over which the speed of the store is measured.
const WINDOW: Nanos = 100 * MILLISECOND;
/// No single write is held back for longer.
const DELAY_MAX: Nanos = 200 * MILLISECOND;

/// The measured speed of a store, and when the next write may be acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    window_start: Nanos,
    window_blocks: u64,
    /// Blocks written per second, smoothed; 0 while unknown.
    blocks_per_s: u64,
    next: Nanos,
}

impl Pace {
    /// Notes that the store has written.
    pub(crate) fn wrote(&mut self, now: Nanos, blocks: u64) {
        self.window_blocks += blocks;
        let elapsed = now.saturating_sub(self.window_start);
        if elapsed < WINDOW {
            return;
        }
        // A window that began long ago holds idle time; it says nothing about speed.
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

    /// When to acknowledge a write of `blocks`, while `unclean` blocks lie between the `setpoint`,
    /// where writers feel nothing, and the `limit`, where they get the store's speed at most.
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
        // Twice the store's time at the limit: the queue drains even before the wall.
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
