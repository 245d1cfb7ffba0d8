//! Limits of the memory that requests hold: frames that reads pin until their bytes are sent, and
//! outside of the cache the requests in flight, the parked payloads of writes, and large receive
//! buffers. There are limits for each session and for all sessions together.
//!
//! A session always has its own share. Beyond that it leases memory from a pool that all sessions
//! share. So a few clients are served at full speed. Even if many clients do not receive their
//! replies, at most half of the cache, and of the part that a volume may have, is pinned; every
//! other client still has its own share.

use super::SMALL_WRITE_PIECE_BYTES;
use crate::input::LoggedLimit;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::units::BLOCK_BYTES_U64;

/// Maximum of a session's share of pinned frames of a large volume; enough for any client that
/// receives its replies.
const PINNED_BYTES_MAX: u64 = 4 << 20;
/// Divisor of a small volume's maximum size in the cache that gives the maximum share of one
/// session.
const PINNED_SHARE: u64 = 16;
/// Divisor of a volume's maximum size in the cache that gives the total of its sessions' shares,
/// and also the maximum that they lease from the pool of pinned frames. Applied to the cache size,
/// it gives the size of the pool.
const POOL_SHARE: u64 = 4;
/// A session's own share of parked payloads: one small piece.
const PARKED_BYTES: u64 = SMALL_WRITE_PIECE_BYTES as u64;
/// A session's own share of requests in flight.
const ENTRIES_BYTES: u64 = 32 * ENTRY_BYTES;
/// Maximum memory of a request in flight, with its operations.
pub(super) const ENTRY_BYTES: u64 = 512;
/// Size of the pool of parked payloads, large receive buffers and requests in flight.
const PARKED_POOL_BYTES: u64 = 1 << 20;
/// Unit of leases from that pool.
const CHUNK_BYTES: u64 = 16 << 10;

/// The memory that the requests of all sessions of a server may hold together.
#[derive(Debug)]
pub struct Budget {
    sessions_max: u64,
    /// Number of open sessions.
    sessions: AtomicU64,
    pinned: Pool,
    parked: Pool,
}

impl Budget {
    /// Returns a budget for at most `sessions_max` sessions.
    #[must_use]
    pub fn new(sessions_max: usize) -> Self {
        Budget {
            sessions_max: sessions_max.max(1) as u64,
            sessions: AtomicU64::new(0),
            pinned: Pool::default(),
            parked: Pool::default(),
        }
    }

    /// Returns the present figures, for a cache of `cache_bytes`.
    #[must_use]
    pub fn usage(&self, cache_bytes: u64) -> BudgetUsage {
        BudgetUsage {
            sessions: self.sessions.load(Ordering::Relaxed),
            sessions_max: self.sessions_max,
            pinned: self.pinned.usage(pinned_pool_bytes(cache_bytes)),
            parked: self.parked.usage(PARKED_POOL_BYTES),
        }
    }
}

/// Figures of a [`Budget`] at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetUsage {
    /// Number of open sessions.
    pub sessions: u64,
    /// Maximum number of open sessions.
    pub sessions_max: u64,
    /// The pool of pinned frames.
    pub pinned: PoolUsage,
    /// The pool of parked payloads, large receive buffers and requests in flight.
    pub parked: PoolUsage,
}

/// Figures of one pool of a [`Budget`] at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// Size of the pool.
    pub size_bytes: u64,
    /// Bytes that sessions have leased, in addition to their own shares. They may exceed the size
    /// after the cache has shrunk.
    pub leased_bytes: u64,
    /// Maximum of `leased_bytes` since the start.
    pub peak_bytes: u64,
    /// Number of times that a session found too little left in the pool. A session that tries again
    /// is counted once, until it gets a lease or holds nothing.
    pub refusals: u64,
}

/// Returns the size of the pool of pinned frames in a cache of `cache_bytes`.
fn pinned_pool_bytes(cache_bytes: u64) -> u64 {
    cache_bytes / POOL_SHARE
}

/// Adds `bytes` to `sum` if the result is at most `max`, and returns the result.
fn add_up_to(sum: &AtomicU64, max: u64, bytes: u64) -> Option<u64> {
    let more = |before: u64| before.checked_add(bytes).filter(|&after| after <= max);
    let before = sum.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
    before.ok().map(|before| before + bytes)
}

/// Memory that sessions lease.
#[derive(Debug, Default)]
struct Pool {
    leased_bytes: AtomicU64,
    peak_bytes: AtomicU64,
    refusals: AtomicU64,
}

/// The memory that one session has leased from a pool.
#[derive(Debug, Default)]
struct Lease {
    bytes: u64,
    /// True if the pool had too little left at the last attempt.
    is_refused: bool,
}

impl Pool {
    /// Extends `lease` by `bytes` from a pool of `pool_bytes`. Returns false if the pool has too
    /// little left.
    fn extend(&self, lease: &mut Lease, pool_bytes: u64, bytes: u64) -> bool {
        let Some(leased_bytes) = add_up_to(&self.leased_bytes, pool_bytes, bytes) else {
            self.refuse(lease);
            return false;
        };
        self.peak_bytes.fetch_max(leased_bytes, Ordering::Relaxed);
        lease.bytes += bytes;
        lease.is_refused = false;
        true
    }

    /// Counts a refusal, unless the last attempt was refused as well.
    fn refuse(&self, lease: &mut Lease) {
        if !std::mem::replace(&mut lease.is_refused, true) {
            self.refusals.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the leased memory to the pool.
    fn give_back(&self, lease: &mut Lease) {
        if lease.bytes > 0 {
            self.leased_bytes.fetch_sub(std::mem::take(&mut lease.bytes), Ordering::AcqRel);
        }
    }

    fn usage(&self, size_bytes: u64) -> PoolUsage {
        PoolUsage {
            size_bytes,
            leased_bytes: self.leased_bytes.load(Ordering::Relaxed),
            peak_bytes: self.peak_bytes.load(Ordering::Relaxed),
            refusals: self.refusals.load(Ordering::Relaxed),
        }
    }
}

/// The memory that the requests of a session may hold.
#[derive(Debug)]
pub enum SessionLimit {
    /// The first piece of a read, and further pieces while fewer than this many bytes are pinned;
    /// and any payloads, for front ends whose clients limit them.
    Own(u64),
    /// A share of a budget.
    Shared(Arc<Budget>),
}

impl SessionLimit {
    /// Returns the limit in the format of the log of inputs.
    pub(super) fn as_input(&self) -> LoggedLimit {
        match self {
            SessionLimit::Own(bytes) => LoggedLimit::Own(*bytes),
            SessionLimit::Shared(budget) => LoggedLimit::Shared(budget.sessions_max),
        }
    }
}

/// The memory that a session may hold, and its leases.
#[derive(Debug)]
pub(super) struct SessionMemory {
    limit: SessionLimit,
    pinned_lease: Lease,
    parked_lease: Lease,
    buffer_lease: Lease,
    /// Bytes of frames that all sessions of the volume have leased.
    leased_for_volume: Arc<AtomicU64>,
    /// Maximum size of the volume in the cache, and the session's share of it.
    volume_bytes: u64,
    own_bytes: u64,
}

impl SessionMemory {
    /// Returns the memory of a session on a volume whose sessions have leased the bytes of frames
    /// in `leased_for_volume`.
    pub(super) fn new(limit: SessionLimit, leased_for_volume: Arc<AtomicU64>) -> Self {
        if let SessionLimit::Shared(budget) = &limit {
            budget.sessions.fetch_add(1, Ordering::Relaxed);
        }
        SessionMemory {
            limit,
            pinned_lease: Lease::default(),
            parked_lease: Lease::default(),
            buffer_lease: Lease::default(),
            leased_for_volume,
            volume_bytes: 0,
            own_bytes: 0,
        }
    }

    /// Returns the bytes of frames, of payloads and of the receive buffer that are leased.
    pub(super) fn leases(&self) -> [u64; 3] {
        [self.pinned_lease.bytes, self.parked_lease.bytes, self.buffer_lease.bytes]
    }

    /// Returns the number of the `wanted` bytes that may be pinned in addition to `pinned_bytes`,
    /// in a cache of `cache_bytes` of which the volume may have `volume_bytes`: all of them, a
    /// smaller part to continue with, or 0 until some of the pins are released.
    pub(super) fn may_pin(
        &mut self,
        [cache_bytes, volume_bytes]: [u64; 2],
        pinned_bytes: u64,
        wanted: u64,
    ) -> u64 {
        let budget = match &self.limit {
            SessionLimit::Own(max) => {
                let may_pin = pinned_bytes == 0 || pinned_bytes < *max;
                return if may_pin { wanted } else { 0 };
            }
            SessionLimit::Shared(budget) => budget,
        };
        let for_volume_bytes = pinned_pool_bytes(volume_bytes);
        if self.volume_bytes != volume_bytes {
            let part = for_volume_bytes / budget.sessions_max;
            let whole_frames = part / BLOCK_BYTES_U64 * BLOCK_BYTES_U64;
            self.own_bytes = whole_frames.clamp(BLOCK_BYTES_U64, PINNED_BYTES_MAX);
            self.volume_bytes = volume_bytes;
        }
        // More than this is never leased.
        let wanted = wanted.min(for_volume_bytes.max(self.own_bytes));
        let need = pinned_bytes + wanted;
        let allowed = self.own_bytes + self.pinned_lease.bytes;
        if need <= allowed {
            return wanted;
        }
        // The first piece of a session may exceed its share of a small volume.
        let share = (volume_bytes / PINNED_SHARE).min(PINNED_BYTES_MAX);
        if pinned_bytes < share {
            let (pool, leased, more) = (&budget.pinned, &self.leased_for_volume, need - allowed);
            if add_up_to(leased, for_volume_bytes, more).is_none() {
                pool.refuse(&mut self.pinned_lease);
            } else if pool.extend(&mut self.pinned_lease, pinned_pool_bytes(cache_bytes), more) {
                return wanted;
            } else {
                leased.fetch_sub(more, Ordering::AcqRel);
            }
        }
        if pinned_bytes == 0 { self.own_bytes } else { 0 }
    }

    /// Returns true if one more piece of a payload of `piece_bytes` may be parked, in addition to
    /// the `parked_bytes` of payloads and requests in flight.
    pub(super) fn may_park(&mut self, parked_bytes: u64, piece_bytes: u64) -> bool {
        let budget = match &self.limit {
            SessionLimit::Own(_) => return true,
            SessionLimit::Shared(budget) => budget,
        };
        let need = parked_bytes + piece_bytes;
        let allowed = PARKED_BYTES + ENTRIES_BYTES + self.parked_lease.bytes;
        if need <= allowed {
            return true;
        }
        let more = (need - allowed).next_multiple_of(CHUNK_BYTES);
        budget.parked.extend(&mut self.parked_lease, PARKED_POOL_BYTES, more)
    }

    /// Leases `bytes` for a large receive buffer, unless the pool has too little left; 0 returns
    /// the lease. Returns true if the session has the lease.
    pub(super) fn lease_buffer(&mut self, bytes: u64) -> bool {
        let SessionLimit::Shared(budget) = &self.limit else { return true };
        if self.buffer_lease.bytes != bytes {
            budget.parked.give_back(&mut self.buffer_lease);
            return bytes == 0
                || budget.parked.extend(&mut self.buffer_lease, PARKED_POOL_BYTES, bytes);
        }
        true
    }

    /// Returns leased memory that the session no longer needs to the pools.
    pub(super) fn settle(&mut self, pinned_bytes: u64, parked_bytes: u64) {
        let SessionLimit::Shared(budget) = &self.limit else { return };
        if pinned_bytes <= self.own_bytes && self.pinned_lease.bytes > 0 {
            self.leased_for_volume.fetch_sub(self.pinned_lease.bytes, Ordering::AcqRel);
            budget.pinned.give_back(&mut self.pinned_lease);
        }
        if parked_bytes <= ENTRIES_BYTES {
            budget.parked.give_back(&mut self.parked_lease);
        }
        self.pinned_lease.is_refused &= pinned_bytes > 0;
        self.parked_lease.is_refused &= parked_bytes > 0;
    }
}

impl Drop for SessionMemory {
    fn drop(&mut self) {
        self.settle(0, 0);
        self.lease_buffer(0);
        if let SessionLimit::Shared(budget) = &self.limit {
            budget.sessions.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Returns a function that opens session shares of `budget`, all on one volume.
    fn shares(budget: &Arc<Budget>) -> impl Fn() -> SessionMemory {
        let (budget, volume) = (Arc::clone(budget), Arc::default());
        move || SessionMemory::new(SessionLimit::Shared(Arc::clone(&budget)), Arc::clone(&volume))
    }

    /// Grants memory to the sessions in turn, and adds it to the bytes that each holds, until no
    /// session is granted more.
    fn exhaust(
        sessions: &mut [(SessionMemory, u64)],
        grant: impl Fn(&mut SessionMemory, u64) -> u64,
    ) {
        loop {
            let mut any = false;
            for (share, held) in &mut *sessions {
                let granted = grant(share, *held);
                *held += granted;
                any |= granted > 0;
            }
            if !any {
                break;
            }
        }
    }

    #[test]
    fn sessions_pin_at_most_half_of_the_cache_and_each_has_its_share() {
        let cache = 16 * MIB;
        let budget = Arc::new(Budget::new(64));
        let share = shares(&budget);
        let mut sessions: Vec<_> = (0..64).map(|_| (share(), 0)).collect();
        exhaust(&mut sessions, |share, pinned| share.may_pin([cache; 2], pinned, MIB));
        let pinned = || sessions.iter().map(|(_, pinned)| *pinned);
        assert!(pinned().all(|bytes| bytes >= cache / POOL_SHARE / 64), "{sessions:?}");
        assert!(pinned().sum::<u64>() <= cache / 2, "{sessions:?}");
        let PoolUsage { leased_bytes, peak_bytes, refusals, .. } = budget.usage(cache).pinned;
        assert!(leased_bytes > 0 && leased_bytes <= cache / POOL_SHARE, "{leased_bytes}");
        let without_lease = pinned().filter(|&bytes| bytes < MIB).count() as u64;
        assert!(without_lease > 0, "{sessions:?}");
        assert_eq!((peak_bytes, refusals), (leased_bytes, without_lease), "each is counted once");
        drop(sessions);
        assert_eq!(budget.usage(cache).pinned.leased_bytes, 0);
        assert_eq!(budget.usage(cache).sessions, 0);
        assert_eq!(
            share().may_pin([cache; 2], 0, MIB),
            MIB,
            "a single session can pin a whole piece"
        );
    }

    #[test]
    fn a_session_without_room_continues_when_all_its_pins_are_released() {
        let budget = Arc::new(Budget::new(64));
        let share = shares(&budget);
        let (mut greedy, mut late) = (share(), share());
        // The cache has shrunk below the leased size.
        assert_eq!(greedy.may_pin([16 * MIB; 2], 0, MIB), MIB);
        let cache = 64 * BLOCK_BYTES_U64;
        assert_eq!(late.may_pin([cache; 2], 0, MIB), BLOCK_BYTES_U64);
        assert_eq!(late.may_pin([cache; 2], BLOCK_BYTES_U64, MIB), 0);
        assert_eq!(late.may_pin([cache; 2], 0, BLOCK_BYTES_U64), BLOCK_BYTES_U64);
    }

    #[test]
    fn sessions_pin_at_most_half_of_the_ceiling_of_their_volume() {
        let (cache, ceiling) = (256 * MIB, 2 * MIB);
        let budget = Arc::new(Budget::new(64));
        let (of_small, of_large) = (shares(&budget), shares(&budget));
        // The sessions of another volume have leased more than the small one may have.
        let mut large = (of_large(), 0);
        exhaust(std::slice::from_mut(&mut large), |share, pinned| {
            share.may_pin([cache; 2], pinned, MIB)
        });
        let leased_bytes = || budget.usage(cache).pinned.leased_bytes;
        let before = leased_bytes();
        assert!(before > ceiling, "{before}");
        let mut sessions: Vec<_> = (0..63).map(|_| (of_small(), 0)).collect();
        exhaust(&mut sessions, |share, pinned| share.may_pin([cache, ceiling], pinned, MIB));
        let pinned = || sessions.iter().map(|(_, pinned)| *pinned);
        assert!(pinned().all(|bytes| bytes >= ceiling / POOL_SHARE / 64), "{sessions:?}");
        assert!(pinned().sum::<u64>() <= ceiling / 2, "{sessions:?}");
        assert_eq!(pinned().max(), Some(ceiling / POOL_SHARE), "one piece of all that is leased");
        assert!(budget.usage(cache).pinned.refusals > 0);
        drop(sessions);
        assert_eq!(leased_bytes(), before);
        assert_eq!(of_small().may_pin([cache, ceiling], 0, MIB), ceiling / POOL_SHARE, "again");
    }

    #[test]
    fn a_session_of_the_smallest_ceiling_pins_one_block_at_a_time() {
        let budget = Arc::new(Budget::new(64));
        let mut share = shares(&budget)();
        assert_eq!(share.may_pin([MIB, BLOCK_BYTES_U64], 0, MIB), BLOCK_BYTES_U64);
        assert_eq!(share.may_pin([MIB, BLOCK_BYTES_U64], BLOCK_BYTES_U64, 1), 0);
        share.settle(0, 0);
        assert_eq!(share.may_pin([MIB, BLOCK_BYTES_U64], 0, MIB), BLOCK_BYTES_U64);
    }

    #[test]
    fn sessions_park_one_piece_each_and_more_while_the_pool_has_memory() {
        let budget = Arc::new(Budget::new(64));
        let share = shares(&budget);
        let mut sessions: Vec<_> = (0..64).map(|_| (share(), 0)).collect();
        exhaust(
            &mut sessions,
            |share, parked| if share.may_park(parked, PARKED_BYTES) { PARKED_BYTES } else { 0 },
        );
        assert!(sessions.iter().all(|(_, parked)| *parked >= PARKED_BYTES), "{sessions:?}");
        let parked: u64 = sessions.iter().map(|(_, parked)| *parked).sum();
        let own_bytes = PARKED_BYTES + ENTRIES_BYTES;
        assert!(parked <= 64 * own_bytes + PARKED_POOL_BYTES, "{parked}");
        assert!(parked >= 64 * PARKED_BYTES + PARKED_POOL_BYTES / 2, "{parked}");
        sessions[0].0.settle(0, 0);
        let (other, parked) = &mut sessions[1];
        assert!(other.may_park(*parked, PARKED_BYTES), "others get what one returns");
        let parked = budget.usage(0).parked;
        assert!(parked.leased_bytes > PARKED_POOL_BYTES - PARKED_BYTES, "{parked:?}");
        drop(sessions);
        assert_eq!(budget.usage(0).parked, PoolUsage { leased_bytes: 0, ..parked });
    }

    #[test]
    fn requests_in_flight_are_leased_beyond_a_few_of_each_session() {
        let budget = Arc::new(Budget::new(64));
        let share = shares(&budget);
        let mut sessions: Vec<_> = (0..64).map(|_| (share(), 0)).collect();
        exhaust(&mut sessions, |share, held| {
            let is_one_more = held < 512 * ENTRY_BYTES && share.may_park(held, PARKED_BYTES);
            if is_one_more { ENTRY_BYTES } else { 0 }
        });
        assert!(sessions.iter().all(|(_, held)| *held >= ENTRIES_BYTES), "{sessions:?}");
        let held: u64 = sessions.iter().map(|(_, held)| *held).sum();
        assert!(held <= 64 * (ENTRIES_BYTES + CHUNK_BYTES) + PARKED_POOL_BYTES, "{held}");
        drop(sessions);
        assert_eq!(budget.usage(0).parked.leased_bytes, 0);
    }

    #[test]
    fn receive_buffers_are_leased_from_the_same_pool_and_given_back() {
        const BUFFER: u64 = PARKED_POOL_BYTES / 2;
        let budget = Arc::new(Budget::new(3));
        let share = shares(&budget);
        let (mut first, mut second, mut third) = (share(), share(), share());
        assert!(
            first.lease_buffer(BUFFER) && first.lease_buffer(BUFFER) && second.lease_buffer(BUFFER)
        );
        assert_eq!(budget.usage(0).parked.leased_bytes, PARKED_POOL_BYTES);
        assert!(!third.lease_buffer(BUFFER) && !third.may_park(PARKED_BYTES, 2 * PARKED_BYTES));
        assert!(third.may_park(0, PARKED_BYTES), "its own share");
        second.settle(0, 0);
        assert!(!third.lease_buffer(BUFFER), "buffers do not depend on requests");
        assert!(first.lease_buffer(0) && third.lease_buffer(BUFFER));
        drop((second, third));
        assert_eq!(budget.usage(0).parked.leased_bytes, 0);
    }

    #[test]
    fn figures_count_a_session_that_tries_again_as_one_refusal() {
        let budget = Arc::new(Budget::new(2));
        let share = shares(&budget);
        let (mut greedy, mut late) = (share(), share());
        let mut held = PARKED_BYTES;
        while greedy.may_park(held, PARKED_BYTES) {
            held += PARKED_BYTES;
        }
        assert!(late.may_park(ENTRIES_BYTES, PARKED_BYTES), "its own share");
        let more = PARKED_BYTES + ENTRIES_BYTES;
        assert!((0..10).all(|_| !late.may_park(more, PARKED_BYTES)));
        let BudgetUsage { sessions, sessions_max, parked, pinned } = budget.usage(64 * MIB);
        assert_eq!((sessions, sessions_max), (2, 2));
        assert_eq!((pinned.size_bytes, pinned.peak_bytes, pinned.refusals), (16 * MIB, 0, 0));
        let full = parked.leased_bytes;
        assert!(full > PARKED_POOL_BYTES - PARKED_BYTES, "{parked:?}");
        let known = PoolUsage {
            size_bytes: PARKED_POOL_BYTES,
            leased_bytes: full,
            peak_bytes: full,
            refusals: 2,
        };
        assert_eq!(parked, known);
        greedy.settle(0, 0);
        assert!(
            late.may_park(more, PARKED_BYTES),
            "the memory that the other session has returned"
        );
        let known = PoolUsage { leased_bytes: PARKED_BYTES, ..known };
        assert_eq!(budget.usage(0).parked, known, "the peak stays");
        while late.may_park(held, PARKED_BYTES) {
            held += PARKED_BYTES;
        }
        assert_eq!(budget.usage(0).parked.refusals, 3, "it was refused again after a lease");
        late.settle(0, 0);
        drop(greedy);
        assert_eq!((budget.usage(0).sessions, budget.usage(0).parked.leased_bytes), (1, 0));
    }
}
