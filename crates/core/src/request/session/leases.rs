//! The memory that a session leases for its requests.

use super::Session;
use crate::cache::Cache;
use crate::frames::Frames;
use crate::input::{Input, LeaseChange};
use crate::payload::Payload;
use crate::request::READ_PIECE_BYTES;
use crate::request::budget::ENTRY_BYTES;
use crate::units::BLOCK_BYTES_U64;

impl<F: Frames, P: Payload, C> Session<F, P, C> {
    /// Returns the bytes of a read of `len` bytes that may be pinned now: all, a smaller piece, or
    /// 0.
    pub fn grant_piece(&mut self, cache: &Cache<F>, len: u64) -> u64 {
        self.change_leases(cache, LeaseChange::Read(len), |session| session.lease_piece(cache, len))
    }

    /// Calls `change`, and logs it if it has changed the session's leases.
    fn change_leases<T>(
        &mut self,
        cache: &Cache<F>,
        lease: LeaseChange,
        change: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let log = cache.log.pause();
        let before = self.memory.leases();
        let result = change(self);
        if let Some(mut log) = log
            && self.memory.leases() != before
        {
            log.add(Input::Lease { session: self.number, lease });
        }
        result
    }

    pub(super) fn lease_piece(&mut self, cache: &Cache<F>, len: u64) -> u64 {
        let len = len.min(u64::from(READ_PIECE_BYTES));
        // Frames at unaligned ends are pinned completely.
        let wanted = len + 2 * BLOCK_BYTES_U64;
        let sizes = [u64::from(cache.frame_count()), self.volume.config.capacity()];
        let sizes = sizes.map(|frames| frames * BLOCK_BYTES_U64);
        len.min(self.memory.may_pin(sizes, self.pinned_bytes, wanted))
    }

    /// Returns the bytes of parked payloads and of requests in flight. The memory of requests that
    /// have ended counts until it is released.
    fn outside_bytes(&self) -> u64 {
        let entries = self.requests.capacity().max(self.operations.capacity()) as u64;
        self.parked_bytes as u64 + entries * ENTRY_BYTES
    }

    /// Returns true if one more request may be in flight, and one more piece of a payload of up to
    /// `piece_bytes` be parked.
    pub fn may_park(&mut self, cache: &Cache<F>, piece_bytes: u32) -> bool {
        self.change_leases(cache, LeaseChange::Payload(piece_bytes), |session| {
            session.memory.may_park(session.outside_bytes(), piece_bytes.into())
        })
    }

    /// Leases `bytes` for a large receive buffer of the front end; 0 returns the lease. Returns
    /// true if the session has the lease.
    pub fn lease_buffer(&mut self, cache: &Cache<F>, bytes: u64) -> bool {
        self.change_leases(cache, LeaseChange::Buffer(bytes), |session| {
            session.memory.lease_buffer(bytes)
        })
    }

    /// Returns leased memory that the session does not need now to the budget.
    pub fn settle_share(&mut self, cache: &Cache<F>) {
        self.change_leases(cache, LeaseChange::Return, Self::return_lease);
    }

    pub(super) fn return_lease(&mut self) {
        self.memory.settle(self.pinned_bytes, self.outside_bytes());
    }

    /// Returns true if a read of `len` bytes may pin all of them now.
    pub(super) fn may_read(&mut self, cache: &Cache<F>, len: u64) -> bool {
        len <= self.lease_piece(cache, len)
    }
}
