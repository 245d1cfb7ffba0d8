//! Deadlines for the server: one for a whole handshake, a whole reply, a whole request. A server
//! that sends a byte from time to time does not extend it.

use std::time::{Duration, Instant};

/// Minimum rate at which a server must send or receive the data of a request.
const BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// The time at which an exchange with the server must be complete; none without a timeout.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Option<Instant>);

impl Deadline {
    /// Returns the deadline of an exchange that starts now and transfers `bytes` of data.
    pub(super) fn after(timeout: Option<Duration>, bytes: usize) -> Self {
        let transfer = Duration::from_secs(bytes as u64 / BYTES_PER_SECOND_MIN);
        // A time that does not fit is longer than any wait.
        Deadline(timeout.and_then(|timeout| Instant::now().checked_add(timeout + transfer)))
    }

    /// Returns the later of this deadline and `timeout` from now.
    pub(super) fn extended(self, timeout: Option<Duration>) -> Self {
        Deadline(self.0.max(Deadline::after(timeout, 0).0))
    }

    /// Returns the time left; `None` without a deadline.
    pub(super) fn left(self) -> Option<Duration> {
        self.0.map(|at| at.saturating_duration_since(Instant::now()))
    }

    pub(super) fn is_over(self) -> bool {
        self.left() == Some(Duration::ZERO)
    }
}
