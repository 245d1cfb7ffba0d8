//! Wakers: an eventfd that is written only while a thread sleeps on it.

use larder_core::completion::Wake;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::time::Timespec;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use zerocopy::IntoBytes as _;

const AWAKE: u32 = 0;
const NOTIFIED: u32 = 1;
const ASLEEP: u32 = 2;

/// Wakes one thread. Notifying an awake thread is one atomic exchange.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: AtomicU32,
    event: OwnedFd,
    /// Number of writes to the event that the sleeper knows of and has not read. Only the sleeper
    /// uses it.
    unread_writes: AtomicU64,
}

impl Waker {
    /// Creates a waker.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let (state, unread_writes) = (AtomicU32::new(AWAKE), AtomicU64::new(0));
        Ok(Waker(Arc::new(Inner { state, event, unread_writes })))
    }

    /// Announces that the thread will sleep on [`Waker::event`]. Returns false if it was notified
    /// since it last woke, and must check for work instead.
    #[must_use]
    pub fn prepare_sleep(&self) -> bool {
        let inner = &self.0;
        if inner.state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
        {
            return true;
        }
        // A swap, not a store: the following check must see all that preceded a notification which
        // this overwrites.
        inner.state.swap(AWAKE, Ordering::AcqRel);
        false
    }

    /// Ends a sleep, for whatever reason.
    pub fn awake(&self) {
        let Inner { state, event, unread_writes } = &*self.0;
        let mut unread = unread_writes.load(Ordering::Relaxed);
        unread += u64::from(state.swap(AWAKE, Ordering::AcqRel) == NOTIFIED);
        if unread > 0 {
            let mut count = 0_u64;
            // The read does not block: if the notifier has not written yet, the next sleep returns
            // early, and the write is read then. A write that stayed unread would end all sleeps
            // early.
            match rustix::io::read(event, count.as_mut_bytes()) {
                Ok(_) => unread = unread.saturating_sub(count),
                Err(error) => debug_assert_eq!(error, rustix::io::Errno::AGAIN),
            }
        }
        unread_writes.store(unread, Ordering::Relaxed);
    }

    /// Returns the descriptor to wait for while asleep: readable when notified.
    #[must_use]
    pub fn event(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }

    /// Sleeps until notified, until `other` (if any) is ready for `flags`, or for `timeout`.
    ///
    /// # Errors
    /// If the kernel refuses to wait.
    pub fn sleep(
        &self,
        other: Option<(BorrowedFd<'_>, PollFlags)>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        if !self.prepare_sleep() {
            return Ok(());
        }
        // A timeout that does not fit is longer than any wait.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let event = PollFd::from_borrowed_fd(self.event(), PollFlags::IN);
        let waited = match other {
            Some((fd, flags)) => {
                let fd = PollFd::from_borrowed_fd(fd, flags);
                rustix::event::poll(&mut [event, fd], timeout.as_ref())
            }
            None => rustix::event::poll(&mut [event], timeout.as_ref()),
        };
        self.awake();
        match waited {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Wake for Waker {
    fn wake(&self) {
        if self.0.state.swap(NOTIFIED, Ordering::AcqRel) == ASLEEP {
            let written = rustix::io::write(&self.0.event, 1_u64.as_bytes());
            debug_assert!(written.is_ok(), "{written:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns true if a sleep would return immediately.
    fn is_readable(waker: &Waker) -> bool {
        let mut event = [PollFd::from_borrowed_fd(waker.event(), PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut event, Some(&at_once)).expect("poll") > 0
    }

    #[test]
    fn a_notification_that_is_late_cuts_one_sleep_short_and_no_other() {
        let waker = Waker::new().expect("a waker");
        assert!(waker.prepare_sleep());
        // A thread notifies, and is delayed before it writes the event.
        assert_eq!(waker.0.state.swap(NOTIFIED, Ordering::AcqRel), ASLEEP);
        waker.awake();
        assert!(waker.prepare_sleep() && !is_readable(&waker));
        // Another thread that notifies meanwhile is not delayed.
        waker.wake();
        assert!(is_readable(&waker));
        waker.awake();
        rustix::io::write(waker.event(), 1_u64.as_bytes()).expect("write late");
        assert!(waker.prepare_sleep() && is_readable(&waker), "cut short");
        waker.awake();
        assert!(waker.prepare_sleep() && !is_readable(&waker), "it sleeps");
        waker.awake();
    }

    #[test]
    fn whoever_is_notified_while_awake_does_not_sleep() {
        let waker = Waker::new().expect("a waker");
        waker.wake();
        assert!(!waker.prepare_sleep() && !is_readable(&waker));
        assert!(waker.prepare_sleep());
        waker.wake();
        waker.wake();
        assert!(is_readable(&waker));
        waker.awake();
        assert!(!is_readable(&waker));
    }
}
