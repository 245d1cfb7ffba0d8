//! Busy polling for the next request instead of sleeping, where that pays: waking a sleeping thread
//! costs more than answering a small read.
//!
//! Invariant: at least one processor is left to the clients, or all spinning threads yield theirs.

use larder_core::clock::{Clock, Nanos};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Time for which a thread polls for its next request. Longer than a client takes between a reply
/// and its next request, shorter than the two wake-ups that it saves.
const SPIN_TIME: Nanos = 30_000;
/// Number of consecutive unsuccessful spins after which a thread sleeps at once, except for one try
/// in [`SPIN_RETRY_INTERVAL`] batches.
const FAILED_SPINS_MAX: u32 = 8;
const SPIN_RETRY_INTERVAL: u32 = 32;
/// Pauses between two polls: each poll takes a lock that the client needs for sending.
const SPIN_PAUSES: u32 = 16;
/// Amount by which a batch raises the measure of overlap if another thread is answering one; other
/// batches lower it by 1. So it rises if more than a third of the batches overlap, as with two
/// programs; a single program, some of whose requests need no answer, stays below.
const OVERLAP_GAIN: u32 = 2;
/// Maximum of the measure, and the value above which one more thread may spin.
const OVERLAP_MAX: u32 = 64;
const OVERLAP_MIN: u32 = 32;
/// Requests with a shorter interval than this are a stream: more than one is in flight.
const STREAM_GAP: Nanos = 15_000;

/// The spinning threads of a front end.
#[derive(Debug)]
pub(super) struct Spinners {
    count: AtomicUsize,
    max: usize,
    /// Number of answered batches of requests.
    batches: AtomicU64,
    /// Number of threads that are answering a batch.
    answering: AtomicUsize,
    /// Measure of the recent batches that overlapped.
    overlap: AtomicU32,
}

impl Spinners {
    pub(super) fn new() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Spinners::with_max(cpus - 1)
    }

    fn with_max(max: usize) -> Self {
        let (count, answering) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (batches, overlap) = (AtomicU64::new(0), AtomicU32::new(0));
        Spinners { count, max, batches, answering, overlap }
    }

    /// Returns true if there are two processors, so that a spinning thread occupies the only other
    /// one.
    pub(super) fn has_two_processors(&self) -> bool {
        self.max == 1
    }

    /// Records that a thread has taken a request for which a process waits. If other threads often
    /// answer requests at the same time, one more thread may spin, and all have to yield their
    /// processors: then no client has to be woken on an idle processor.
    pub(super) fn begin_batch(&self) {
        self.measure_overlap(self.answering.fetch_add(1, Ordering::Relaxed) > 0);
    }

    /// Records that a batch has a second request for which a process waits, so that another thread
    /// could have answered it.
    pub(super) fn note_backlog(&self) {
        self.measure_overlap(true);
    }

    fn measure_overlap(&self, overlaps: bool) {
        let overlap = self.overlap.load(Ordering::Relaxed);
        let new = if overlaps {
            (overlap + OVERLAP_GAIN).min(OVERLAP_MAX)
        } else {
            overlap.saturating_sub(1)
        };
        if new != overlap {
            self.overlap.store(new, Ordering::Relaxed);
        }
    }

    /// Returns true if a thread is polling for requests, or is answering them and some thread has
    /// answered a batch since this was `batches_seen`, and one thread is enough for the requests.
    pub(super) fn is_attended(&self, batches_seen: u64) -> bool {
        let polls = || self.count.load(Ordering::Relaxed) > 0;
        let answers =
            || self.answering.load(Ordering::Relaxed) > 0 && self.batches() != batches_seen;
        !self.requests_overlap() && (polls() || answers())
    }

    /// Records that the thread has answered its batch.
    pub(super) fn end_batch(&self) {
        self.answering.fetch_sub(1, Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true while spinning threads have to yield their processors between two polls.
    pub(super) fn requests_overlap(&self) -> bool {
        self.overlap.load(Ordering::Relaxed) > OVERLAP_MIN
    }

    pub(super) fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Calls `found` repeatedly for a limited time, unless too many threads spin. Returns true if
    /// it returned true.
    pub(super) fn spin(&self, clock: &dyn Clock, mut found: impl FnMut() -> bool) -> bool {
        let max = self.max + usize::from(self.requests_overlap());
        if self.count.fetch_add(1, Ordering::AcqRel) >= max {
            self.count.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        let end = clock.now() + SPIN_TIME;
        let is_found = loop {
            if found() {
                break true;
            }
            if clock.now() > end {
                break false;
            }
            for _ in 0..SPIN_PAUSES {
                std::hint::spin_loop();
            }
        };
        self.count.fetch_sub(1, Ordering::AcqRel);
        is_found
    }
}

/// Recent results of one thread's spins, from which it decides whether to spin.
#[derive(Debug, Default)]
pub(super) struct SpinHistory {
    failed_spins: u32,
    batches: u32,
    last_batch: Nanos,
}

impl SpinHistory {
    /// Returns true if the thread should spin after a batch that arrived at `now`. `is_single`: the
    /// batch had at most one request, and all its replies were sent. `has_read`: the batch
    /// contained a read. In a stream of small writes, the next request arrives before the thread
    /// would fall asleep, so that polling for it would only cost processor time.
    pub(super) fn should_spin(&mut self, now: Nanos, is_single: bool, has_read: bool) -> bool {
        self.batches = self.batches.wrapping_add(1);
        let is_worthwhile = has_read || now > self.last_batch + STREAM_GAP;
        self.last_batch = now;
        let may_try = self.failed_spins < FAILED_SPINS_MAX
            || self.batches.is_multiple_of(SPIN_RETRY_INTERVAL);
        is_single && may_try && is_worthwhile
    }

    pub(super) fn record_spin(&mut self, found: bool) {
        self.failed_spins = if found { 0 } else { self.failed_spins + 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_core::clock::VirtualClock;

    #[test]
    fn spinning_in_vain_ends_and_is_tried_again_now_and_then() {
        let mut history = SpinHistory::default();
        let mut spins = 0;
        for batch in 1..=200 {
            if history.should_spin(batch * 100_000, true, true) {
                spins += 1;
                history.record_spin(false);
            }
        }
        assert_eq!(spins, 8 + (200 - 8) / 32);
        while !history.should_spin(0, true, true) {}
        history.record_spin(true);
        assert!(history.should_spin(1, true, true), "one that paid counts");
        assert!(!history.should_spin(2, false, true), "more than one request is under way");
        assert!(!history.should_spin(3, true, false), "a stream of writes");
        assert!(history.should_spin(3 + STREAM_GAP + 1, true, false));
    }

    #[test]
    fn a_spin_ends_when_something_is_found_or_time_is_up() {
        let clock = VirtualClock::at(5);
        let spinners = Spinners::with_max(1);
        let mut looks = 0;
        assert!(spinners.spin(&clock, || {
            looks += 1;
            looks == 3
        }));
        assert!(!spinners.spin(&clock, || {
            clock.advance_to(5 + SPIN_TIME + 1);
            false
        }));
        assert!(!spinners.spin(&clock, || {
            spinners.spin(&clock, || panic!("no other thread may spin"));
            clock.advance_to(3 * SPIN_TIME);
            false
        }));
    }

    #[test]
    fn one_more_thread_spins_while_requests_overlap() {
        let clock = VirtualClock::at(5);
        let spinners = Spinners::with_max(1);
        let two_spin = || spinners.spin(&clock, || spinners.spin(&clock, || true));
        let batch = || {
            spinners.begin_batch();
            spinners.end_batch();
        };
        batch();
        clock.advance_to(2 * SPIN_TIME);
        assert!(!spinners.spin(&clock, || {
            clock.advance_to(4 * SPIN_TIME);
            spinners.spin(&clock, || panic!("requests come one by one"))
        }));
        // One batch in four overlaps.
        for _ in 0..100 {
            (0..3).for_each(|_| batch());
            spinners.begin_batch();
            batch();
            spinners.end_batch();
        }
        assert!(!spinners.requests_overlap(), "one program");
        // Every second batch overlaps.
        for _ in 0..100 {
            spinners.begin_batch();
            batch();
            spinners.end_batch();
        }
        assert!(two_spin());
        (0..OVERLAP_MAX - OVERLAP_MIN).for_each(|_| batch());
        assert!(!spinners.requests_overlap(), "forgotten");
    }

    #[test]
    fn requests_are_attended_while_one_thread_makes_progress_with_them() {
        let clock = VirtualClock::at(5);
        let spinners = Spinners::with_max(1);
        assert!(!spinners.is_attended(0), "all sleep");
        assert!(spinners.spin(&clock, || spinners.is_attended(0)), "one polls");
        spinners.begin_batch();
        assert!(!spinners.is_attended(0), "one may be held up in its first batch");
        spinners.end_batch();
        spinners.begin_batch();
        assert!(spinners.is_attended(0), "it goes on");
        assert!(!spinners.is_attended(1), "it is held up");
        (0..OVERLAP_MAX).for_each(|_| spinners.note_backlog());
        assert!(!spinners.is_attended(0), "there is work for two");
        assert!(!spinners.spin(&clock, || {
            clock.advance_to(2 * SPIN_TIME);
            spinners.is_attended(0)
        }));
    }
}
