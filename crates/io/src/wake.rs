//! Wakers: an eventfd that is written only when somebody sleeps on it.

use larder_core::lane::Notify;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

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
}

impl Waker {
    /// A waker.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Waker(Arc::new(Inner { state: AtomicU32::new(AWAKE), event })))
    }

    /// Announces that the thread will sleep on [`Waker::event`]; false if it was notified since it
    /// last woke, and should look again instead.
    #[must_use]
    pub fn prepare_sleep(&self) -> bool {
        let inner = &self.0;
        if inner.state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
        {
            return true;
        }
        // A swap, not a store: what is looked at next must include whatever a notification brought
        // that this overwrites.
        inner.state.swap(AWAKE, Ordering::AcqRel);
        false
    }

    /// Ends a sleep, however it ended.
    pub fn awake(&self) {
        if self.0.state.swap(AWAKE, Ordering::AcqRel) == NOTIFIED {
            let mut count = [0; 8];
            // Nonblocking: where the writer has not come so far yet, the next sleep is cut short.
            let read = rustix::io::read(&self.0.event, &mut count);
            debug_assert!(read.is_ok() || read == Err(rustix::io::Errno::AGAIN), "{read:?}");
        }
    }

    /// What to wait for while asleep: readable when notified.
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
        let timeout = timeout.map(|t| rustix::time::Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: t.subsec_nanos().into(),
        });
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

impl Notify for Waker {
    fn notify(&self) {
        if self.0.state.swap(NOTIFIED, Ordering::AcqRel) == ASLEEP {
            let written = rustix::io::write(&self.0.event, zerocopy::IntoBytes::as_bytes(&1u64));
            debug_assert!(written.is_ok(), "{written:?}");
        }
    }
}
