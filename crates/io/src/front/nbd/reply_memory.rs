//! Cache memory that replies pin until clients receive them, shared among connections.
//!
//! Every connection may always pin a small share. Beyond that it leases memory from a pool that all
//! connections share. Thus a few connections can read at full speed; and even if many clients do
//! not receive their replies, at most half of the cache is pinned and every other client still has
//! its own share.

use larder_core::units::BLOCK_BYTES;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum share of one connection in a large cache; enough for any client that reads.
const CONNECTION_BYTES_MAX: usize = 4 << 20;
/// Divisor of the cache size: maximum share of one connection in a small cache.
const CONNECTION_SHARE: usize = 16;
/// Divisor of the cache size: the shares of all connections together, and also the pool.
const POOL_SHARE: usize = 4;

/// The reply memory of a server.
#[derive(Debug)]
pub(super) struct ReplyMemory {
    connections_max: usize,
    leased_bytes: AtomicUsize,
}

/// The part of the pool that one connection has leased.
#[derive(Debug, Default)]
pub(super) struct Lease {
    bytes: usize,
    /// Size of the cache, and the connection's share of it.
    cache_bytes: usize,
    own_bytes: usize,
}

impl ReplyMemory {
    pub(super) fn new(connections_max: usize) -> Self {
        ReplyMemory { connections_max: connections_max.max(1), leased_bytes: AtomicUsize::new(0) }
    }

    /// Returns the bytes that a connection may pin without a lease, in a cache of `cache_bytes`.
    fn own_bytes(&self, lease: &mut Lease, cache_bytes: usize) -> usize {
        if lease.cache_bytes != cache_bytes {
            let part = cache_bytes / POOL_SHARE / self.connections_max;
            let whole_frames = part / BLOCK_BYTES * BLOCK_BYTES;
            lease.own_bytes = whole_frames.clamp(BLOCK_BYTES, CONNECTION_BYTES_MAX);
            lease.cache_bytes = cache_bytes;
        }
        lease.own_bytes
    }

    /// Returns how much of `wanted_bytes` a connection may pin in addition to `pinned_bytes`: all
    /// of it, a smaller part to continue with, or nothing until its client has received some
    /// replies.
    pub(super) fn grant(
        &self,
        lease: &mut Lease,
        cache_bytes: usize,
        pinned_bytes: usize,
        wanted_bytes: usize,
    ) -> usize {
        let own_bytes = self.own_bytes(lease, cache_bytes);
        let need = pinned_bytes + wanted_bytes;
        let allowed = own_bytes + lease.bytes;
        if need <= allowed {
            return wanted_bytes;
        }
        // The first piece of a connection may exceed its share of a small cache.
        let share = (cache_bytes / CONNECTION_SHARE).min(CONNECTION_BYTES_MAX);
        if pinned_bytes < share && self.take(cache_bytes / POOL_SHARE, need - allowed) {
            lease.bytes += need - allowed;
            return wanted_bytes;
        }
        if pinned_bytes == 0 { own_bytes } else { 0 }
    }

    fn take(&self, pool_bytes: usize, bytes: usize) -> bool {
        let more = |leased: usize| leased.checked_add(bytes).filter(|&sum| sum <= pool_bytes);
        self.leased_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Returns leased memory that a connection does not need any more to the pool.
    pub(super) fn settle(&self, lease: &mut Lease, cache_bytes: usize, pinned_bytes: usize) {
        if lease.bytes > 0 && pinned_bytes <= self.own_bytes(lease, cache_bytes) {
            self.leased_bytes.fetch_sub(std::mem::take(&mut lease.bytes), Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn connections_pin_at_most_half_of_the_cache_and_each_has_its_part() {
        let cache = 16 * MIB;
        let memory = ReplyMemory::new(64);
        let mut leases: Vec<Lease> = (0..64).map(|_| Lease::default()).collect();
        let mut pinned = vec![0; 64];
        loop {
            let mut any = false;
            for (lease, pinned) in leases.iter_mut().zip(&mut pinned) {
                let granted = memory.grant(lease, cache, *pinned, MIB);
                *pinned += granted;
                any |= granted > 0;
            }
            if !any {
                break;
            }
        }
        assert!(pinned.iter().all(|&bytes| bytes >= cache / POOL_SHARE / 64), "{pinned:?}");
        assert!(pinned.iter().sum::<usize>() <= cache / 2, "{pinned:?}");
        for lease in &mut leases {
            memory.settle(lease, cache, 0);
        }
        assert_eq!(memory.leased_bytes.load(Ordering::Acquire), 0);
        assert_eq!(memory.grant(&mut leases[0], cache, 0, MIB), MIB, "one alone has a piece");
    }

    #[test]
    fn a_connection_without_room_goes_on_when_its_client_has_taken_all() {
        let memory = ReplyMemory::new(64);
        let (mut greedy, mut late) = (Lease::default(), Lease::default());
        // The cache has shrunk below the leased size.
        assert_eq!(memory.grant(&mut greedy, 16 * MIB, 0, MIB), MIB);
        let cache = 64 * BLOCK_BYTES;
        assert_eq!(memory.grant(&mut late, cache, 0, MIB), BLOCK_BYTES);
        assert_eq!(memory.grant(&mut late, cache, BLOCK_BYTES, MIB), 0);
        assert_eq!(memory.grant(&mut late, cache, 0, BLOCK_BYTES), BLOCK_BYTES);
    }
}
