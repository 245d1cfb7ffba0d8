//! Disconnection of clients that do not receive their replies.
//!
//! The time runs only while replies are unsent: a client that is idle, or whose request waits for
//! the store, is never disconnected. A client that receives slowly drains the kernel's send queue,
//! which counts as progress even while the queue is full.

use super::Transmission;
use crate::front::nbd::socket::Socket;
use larder_core::clock::Nanos;
use std::time::Duration;

/// Progress checks per period of `send_time_max`.
const CHECKS_PER_LIMIT: u64 = 4;

/// Timer for a client that does not receive its replies.
#[derive(Debug)]
pub(super) struct SendTimer {
    limit: Option<Nanos>,
    /// None while all replies are sent.
    waiting: Option<UnsentReplies>,
}

#[derive(Clone, Copy, Debug)]
struct UnsentReplies {
    /// Time of the last known progress.
    since: Nanos,
    next_check: Nanos,
    /// Bytes passed to the kernel, and bytes still in its send queue.
    progress: (u64, u64),
}

impl SendTimer {
    pub(super) fn new(limit: Option<Duration>) -> Self {
        let nanos = |limit: Duration| u64::try_from(limit.as_nanos()).unwrap_or(Nanos::MAX);
        SendTimer { limit: limit.map(nanos), waiting: None }
    }

    /// Returns the time of the next progress check; none while all replies are sent.
    pub(super) fn next_check(&self) -> Option<Nanos> {
        self.waiting.map(|waiting| waiting.next_check)
    }

    fn has_expired(&mut self, now: Nanos, all_sent: bool, socket: &Socket) -> bool {
        let Some(limit) = self.limit else { return false };
        if all_sent {
            self.waiting = None;
            return false;
        }
        let pause = (limit / CHECKS_PER_LIMIT).max(1);
        let Some(waiting) = &mut self.waiting else {
            let progress = socket.sent_and_queued();
            self.waiting = Some(UnsentReplies { since: now, next_check: now + pause, progress });
            return false;
        };
        if now < waiting.next_check {
            return false;
        }
        waiting.next_check = now + pause;
        let progress = socket.sent_and_queued();
        if progress != waiting.progress {
            (waiting.progress, waiting.since) = (progress, now);
        }
        now.saturating_sub(waiting.since) >= limit
    }
}

impl Transmission<'_> {
    /// Returns true if the client has received no replies for too long, and logs it.
    pub(super) fn has_send_timed_out(&mut self, now: Nanos) -> bool {
        let has_expired =
            self.send_timer.has_expired(now, self.all_sent(), &self.connection.socket);
        if has_expired {
            let (export, limit) = (&self.export.info.name, self.shared.limits.send_time_max);
            let seconds = limit.unwrap_or_default().as_secs_f64();
            tracing::warn!(
                %export,
                "closed a connection: its client read no replies for {seconds} s (--send-timeout)"
            );
        }
        has_expired
    }
}
