//! The decision of the lazy writer: it runs for too many dirty blocks, a page that is dirty for too
//! long, or an idle volume.

use crate::clock::Nanos;
use crate::tunables::{Tunable, Tunables};
use crate::volume::Trigger;

/// Inputs of the decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct LazyState {
    pub(super) now: Nanos,
    /// Dirty blocks, and the blocks to which ratios refer.
    pub(super) dirty: u64,
    pub(super) capacity: u64,
    /// Blocks whose last write failed.
    pub(super) failing: u64,
    /// Number of blocks at which writes stall; an upper bound of the threshold.
    pub(super) limit: u64,
    /// Time at which the oldest dirty page became dirty.
    pub(super) oldest: Option<Nanos>,
    pub(super) last_request: Nanos,
    /// True while a series of bursts continues.
    pub(super) bulk: bool,
    /// Earliest time of the next attempt to write pages whose write has failed.
    pub(super) retry_at: Nanos,
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Write the pages that were already dirty at `dirty_before`, at most `blocks` blocks of them;
    /// with `retries`, also as many blocks whose write has failed.
    Run { trigger: Trigger, dirty_before: Nanos, blocks: u64, retries: bool },
    /// Decide again at this time.
    Wait(Nanos),
    /// Nothing is dirty.
    Rest,
}

/// Decides. The threshold has priority over the age, and the age over idleness.
pub(super) fn decide(tunables: &Tunables, state: &LazyState) -> Decision {
    let Some(oldest) = state.oldest else { return Decision::Rest };
    let LazyState { now, dirty, .. } = *state;
    let retries = now >= state.retry_at;
    // At the dirty limit, writers wait until each block has been tried once: the attempt frees
    // blocks, or shows that none can be freed.
    if !retries && (dirty < state.limit || dirty <= state.failing) {
        return Decision::Wait(state.retry_at);
    }
    let threshold = tunables.share(Tunable::DirtyThreshold, state.capacity).min(state.limit);
    let target = tunables.share(Tunable::DirtyTarget, threshold);
    if dirty >= threshold.max(1) || (state.bulk && dirty > target) {
        let blocks = tunables.share(Tunable::BurstShare, dirty).max(1);
        let (trigger, dirty_before) = (Trigger::Threshold, Nanos::MAX);
        return Decision::Run { trigger, dirty_before, blocks, retries };
    }
    let age_max = tunables.nanos(Tunable::AgeMax);
    if now >= oldest + age_max {
        // Pages of half the age are written too: one burst instead of many small writes.
        let dirty_before = now - age_max / 2;
        return Decision::Run { trigger: Trigger::Age, dirty_before, blocks: u64::MAX, retries };
    }
    let first_delay = tunables.nanos(Tunable::FirstDelay);
    let idle_at = state.last_request + tunables.nanos(Tunable::IdleDelay);
    let idle_due = idle_at.max(oldest + first_delay);
    if now >= idle_due {
        let dirty_before = now.saturating_sub(first_delay);
        return Decision::Run { trigger: Trigger::Idle, dirty_before, blocks: u64::MAX, retries };
    }
    Decision::Wait(idle_due.min(oldest + age_max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{MILLISECOND, SECOND};

    fn state(now: Nanos, dirty: u64, oldest: Nanos, last_request: Nanos) -> LazyState {
        LazyState {
            now,
            dirty,
            capacity: 1000,
            failing: 0,
            limit: 1000,
            oldest: Some(oldest),
            last_request,
            bulk: false,
            retry_at: 0,
        }
    }

    #[test]
    fn nt_writes_a_page_three_seconds_after_its_first_change_when_idle() {
        let nt = Tunables::nt();
        let wait = decide(&nt, &state(SECOND, 1, SECOND, SECOND));
        assert_eq!(wait, Decision::Wait(4 * SECOND));
        let run = decide(&nt, &state(4 * SECOND, 1, SECOND, SECOND));
        assert!(matches!(run, Decision::Run { trigger: Trigger::Idle, .. }), "{run:?}");
    }

    #[test]
    fn a_busy_volume_waits_for_age() {
        let nt = Tunables::nt();
        let busy = decide(&nt, &state(6 * SECOND, 1, SECOND, 6 * SECOND - 10));
        assert_eq!(busy, Decision::Wait(7 * SECOND - 10));
        let old = decide(&nt, &state(9 * SECOND, 1, SECOND, 9 * SECOND - 10));
        assert!(matches!(old, Decision::Run { trigger: Trigger::Age, .. }), "{old:?}");
    }

    #[test]
    fn bursts_of_a_quarter_run_from_the_threshold_down_to_the_target() {
        let nt = Tunables::nt();
        let at = |dirty, bulk| decide(&nt, &LazyState { bulk, ..state(0, dirty, 0, 0) });
        let burst = |blocks| Decision::Run {
            trigger: Trigger::Threshold,
            dirty_before: Nanos::MAX,
            blocks,
            retries: true,
        };
        assert_eq!(at(375, false), burst(93));
        assert_eq!(at(282, true), burst(70));
        assert_eq!(at(281, true), Decision::Wait(3 * SECOND), "the target is 281");
        assert_eq!(at(374, false), Decision::Wait(3 * SECOND));
    }

    #[test]
    fn a_limit_below_the_threshold_starts_the_writer_too() {
        let at_limit = LazyState { limit: 10, ..state(0, 10, 0, 0) };
        let run = decide(&Tunables::nt(), &at_limit);
        assert!(matches!(run, Decision::Run { trigger: Trigger::Threshold, .. }), "{run:?}");
    }

    #[test]
    fn after_a_failed_write_it_waits() {
        let tunables = Tunables::default();
        let mut failed = state(SECOND, 900, 0, 0);
        failed.retry_at = SECOND + 100 * MILLISECOND;
        assert_eq!(decide(&tunables, &failed), Decision::Wait(failed.retry_at));
    }

    #[test]
    fn at_the_dirty_limit_it_waits_only_with_what_has_failed() {
        let tunables = Tunables::default();
        let mut failed = LazyState { failing: 900, ..state(SECOND, 1000, 0, 0) };
        failed.retry_at = SECOND + 100 * MILLISECOND;
        let run = decide(&tunables, &failed);
        assert!(matches!(run, Decision::Run { retries: false, .. }), "{run:?}");
        failed.failing = 1000;
        assert_eq!(decide(&tunables, &failed), Decision::Wait(failed.retry_at));
        failed.now = failed.retry_at;
        let run = decide(&tunables, &failed);
        assert!(matches!(run, Decision::Run { retries: true, .. }), "{run:?}");
    }
}
