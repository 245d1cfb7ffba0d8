//! Detection of clients that disconnect while the server does not receive from them.
//!
//! A server without room for further requests does not read the socket, and would not notice that
//! the client has closed it: the connections of such clients would occupy connection slots as long
//! as their requests wait for the store. Such a connection is closed after [`GRACE`], in which the
//! server can still receive a request that the client has sent before.

use crate::front::nbd::socket::Socket;
use larder_core::clock::{Nanos, SECOND};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Time from the end of the client's side to the end of the connection.
const GRACE: Nanos = SECOND;
/// Events of a socket whose client sends nothing more.
const ENDED: PollFlags = PollFlags::RDHUP.union(PollFlags::HUP).union(PollFlags::ERR);

/// Detects that the client has closed a connection that the server does not receive from.
#[derive(Debug, Default)]
pub(super) struct HangupDetector {
    seen_at: Option<Nanos>,
}

impl HangupDetector {
    /// Returns the event to poll for, in addition to the other events of the socket.
    pub(super) fn poll_flags(&self) -> PollFlags {
        // After its first report, this event would end every sleep at once.
        if self.seen_at.is_none() { PollFlags::RDHUP } else { PollFlags::empty() }
    }

    /// Returns the time at which the connection is closed, if the client has left.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.seen_at.map(|at| at + GRACE)
    }

    /// Polls the socket for the end of the client's side. Returns true if the grace period has
    /// passed.
    pub(super) fn poll_socket(&mut self, now: Nanos, is_receiving: bool, socket: &Socket) -> bool {
        if is_receiving {
            self.seen_at = None;
            return false;
        }
        if self.seen_at.is_none() && has_ended(socket) {
            self.seen_at = Some(now);
        }
        self.deadline().is_some_and(|deadline| deadline <= now)
    }
}

fn has_ended(socket: &Socket) -> bool {
    let mut socket = [PollFd::new(socket, PollFlags::RDHUP)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut socket, Some(&at_once)).is_ok() && socket[0].revents().intersects(ENDED)
}
