//! The end of connections whose client is gone while the server does not receive from it.
//!
//! A server that has no room for further requests does not read the socket, and would not see that
//! the client has closed it: connections of clients that are gone would keep their places as long
//! as their requests wait for the store. Such a connection is closed after [`GRACE`], in which a
//! request that the client had still sent can be taken in.

use crate::front::nbd::transport::Transport;
use larder_core::clock::{Nanos, SECOND};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd as _;

/// Time from the end of the client's side to the end of the connection.
const GRACE: Nanos = SECOND;
/// Conditions of a socket that say that the client sends nothing more.
const ENDED: PollFlags = PollFlags::RDHUP.union(PollFlags::HUP).union(PollFlags::ERR);

/// Watches for the client's end of a connection that the server does not receive from.
#[derive(Debug, Default)]
pub(super) struct HangUp {
    seen_at: Option<Nanos>,
}

impl HangUp {
    /// Returns what to wait for, in addition to the other conditions of the socket.
    pub(super) fn wanted(&self) -> PollFlags {
        // Once seen, it would end every sleep at once.
        if self.seen_at.is_none() { PollFlags::RDHUP } else { PollFlags::empty() }
    }

    /// Returns when the connection is to be closed, if the client is gone.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.seen_at.map(|at| at + GRACE)
    }

    /// Looks whether the client is gone. Returns whether it has been so for too long.
    pub(super) fn is_over(
        &mut self,
        now: Nanos,
        is_receiving: bool,
        transport: &Transport<'_>,
    ) -> bool {
        if is_receiving {
            self.seen_at = None;
            return false;
        }
        if self.seen_at.is_none() && has_ended(transport) {
            self.seen_at = Some(now);
        }
        self.deadline().is_some_and(|deadline| deadline <= now)
    }
}

fn has_ended(transport: &Transport<'_>) -> bool {
    let mut socket = [PollFd::from_borrowed_fd(transport.as_fd(), PollFlags::RDHUP)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut socket, Some(&at_once)).is_ok() && socket[0].revents().intersects(ENDED)
}
