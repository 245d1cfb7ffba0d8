//! Looking for the next request instead of sleeping, where that pays: waking a sleeping thread
//! costs more than the answer to a small read.
//!
//! Invariant: one processor is always left to those who ask.

use larder_core::clock::{Clock, Nanos};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How long a thread looks for its next request. Longer than a client needs to turn round, shorter
/// than the two wake-ups that it saves.
const SPIN: Nanos = 30_000;
/// After this many spins in vain in a row a thread sleeps at once, but for one try in
/// [`SPIN_AGAIN`].
const SPINS_IN_VAIN_MAX: u32 = 8;
const SPIN_AGAIN: u32 = 32;
/// Pauses between two looks: each look takes a lock that the client needs for sending.
const SPIN_PAUSES: u32 = 16;
/// Requests that come closer together than this are a stream: more than one is under way.
const STREAM_GAP: Nanos = 15_000;

/// The threads of a front end that spin now.
#[derive(Debug)]
pub(super) struct Spinners {
    count: AtomicUsize,
    max: usize,
    /// Batches of requests that threads have taken who keep their processors from being idle.
    batches: AtomicU64,
}

impl Spinners {
    pub(super) fn new() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Spinners { count: AtomicUsize::new(0), max: cpus - 1, batches: AtomicU64::new(0) }
    }

    /// Whether there are two processors, so that one who spins keeps the only other one.
    pub(super) fn is_pair(&self) -> bool {
        self.max == 1
    }

    /// A thread has taken requests, and others may spin for its sake.
    pub(super) fn note_batch(&self) {
        self.batches.fetch_add(1, Ordering::Relaxed);
    }

    /// How many batches of requests such threads have taken together.
    pub(super) fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Looks with `found` for a while, if not too many others do; whether it found something.
    pub(super) fn spin(&self, clock: &dyn Clock, mut found: impl FnMut() -> bool) -> bool {
        if self.count.fetch_add(1, Ordering::AcqRel) >= self.max {
            self.count.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        let end = clock.now() + SPIN;
        let came = loop {
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
        came
    }
}

/// What a thread has learnt about whether spinning pays.
#[derive(Debug, Default)]
pub(super) struct SpinHistory {
    in_vain: u32,
    tries: u32,
    last_batch: Nanos,
}

impl SpinHistory {
    /// Whether to spin after a batch that came at `now`. `alone`: it was one request at most, and
    /// all of it is answered. `reads`: a read was in it. A stream of small writes has its next
    /// request here before a sleeper would be gone; looking for it would only cost processor time.
    pub(super) fn pays(&mut self, now: Nanos, alone: bool, reads: bool) -> bool {
        self.tries = self.tries.wrapping_add(1);
        let pays = reads || now > self.last_batch + STREAM_GAP;
        self.last_batch = now;
        let hopeful = self.in_vain < SPINS_IN_VAIN_MAX || self.tries.is_multiple_of(SPIN_AGAIN);
        alone && hopeful && pays
    }

    /// How a spin ended.
    pub(super) fn ended(&mut self, found: bool) {
        self.in_vain = if found { 0 } else { self.in_vain + 1 };
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
            if history.pays(batch * 100_000, true, true) {
                spins += 1;
                history.ended(false);
            }
        }
        assert_eq!(spins, 8 + (200 - 8) / 32);
        while !history.pays(0, true, true) {}
        history.ended(true);
        assert!(history.pays(1, true, true), "one that paid counts");
        assert!(!history.pays(2, false, true), "more than one request is under way");
        assert!(!history.pays(3, true, false), "a stream of writes");
        assert!(history.pays(3 + STREAM_GAP + 1, true, false));
    }

    #[test]
    fn a_spin_ends_when_something_is_found_or_time_is_up() {
        let clock = VirtualClock::at(5);
        let spinners = Spinners { count: AtomicUsize::new(0), max: 1, batches: AtomicU64::new(0) };
        let mut looks = 0;
        assert!(spinners.spin(&clock, || {
            looks += 1;
            looks == 3
        }));
        assert!(!spinners.spin(&clock, || {
            clock.advance_to(5 + SPIN + 1);
            false
        }));
        assert!(!spinners.spin(&clock, || {
            spinners.spin(&clock, || panic!("nobody else may spin"));
            clock.advance_to(3 * SPIN);
            false
        }));
    }
}
