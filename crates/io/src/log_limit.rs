//! A limit on log lines that a peer can cause.

use std::time::{Duration, Instant};

/// Minimum time between two lines.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Limits the log to one line per [`LOG_INTERVAL`], so that a peer that keeps reconnecting or
/// closing connections does not fill it.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    count: u64,
    logged_at: Option<Instant>,
}

impl LogLimit {
    /// Counts an event, and logs it with the number of events since the last line unless that line
    /// is too recent.
    pub(crate) fn log(&mut self, log: impl FnOnce(u64)) {
        self.count += 1;
        if self.logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            self.logged_at = Some(Instant::now());
            log(std::mem::take(&mut self.count));
        }
    }
}
