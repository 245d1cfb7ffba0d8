//! Response bodies that stay in memory as a whole until their client has received them.
//!
//! Invariant: the bodies of all sockets together are less than [`BODIES_BYTES_MAX`] plus one body.
//! The next body is generated when clients have received enough of the others.

use hyper::body::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Mutex, MutexGuard, Notify};

/// Bytes of bodies in memory at which no further body is generated.
const BODIES_BYTES_MAX: usize = 2 << 20;

#[derive(Debug, Default)]
struct Shared {
    bytes: AtomicUsize,
    received: Notify,
    /// Held by the request whose body is generated next.
    queue: Mutex<()>,
}

/// The bodies in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct BodyBudget(Arc<Shared>);

/// Permission to generate one body.
#[derive(Debug)]
pub(super) struct BodyPermit<'a> {
    shared: &'a Arc<Shared>,
    _queue: MutexGuard<'a, ()>,
}

/// A body in memory.
struct Body {
    bytes: Vec<u8>,
    shared: Arc<Shared>,
}

impl BodyBudget {
    /// Waits until one more body may be generated. Requests proceed in order of arrival.
    pub(super) async fn wait(&self) -> BodyPermit<'_> {
        let guard = self.0.queue.lock().await;
        while self.0.bytes.load(Ordering::Acquire) >= BODIES_BYTES_MAX {
            self.0.received.notified().await;
        }
        BodyPermit { shared: &self.0, _queue: guard }
    }
}

impl BodyPermit<'_> {
    /// Returns a body that is counted until its last user drops it.
    pub(super) fn finish(self, mut bytes: Vec<u8>) -> Bytes {
        bytes.shrink_to_fit();
        self.shared.bytes.fetch_add(bytes.len(), Ordering::AcqRel);
        Bytes::from_owner(Body { bytes, shared: Arc::clone(self.shared) })
    }
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.shared.bytes.fetch_sub(self.bytes.len(), Ordering::AcqRel);
        // At most one request waits here: the holder of the queue lock.
        self.shared.received.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_body_waits_until_the_others_are_received() {
        let bodies = BodyBudget::default();
        let make = |bytes: usize| {
            let Poll::Ready(permit) = poll(pin!(bodies.wait())) else { panic!("it may be made") };
            permit.finish(vec![1; bytes])
        };
        let small = make(BODIES_BYTES_MAX - 1);
        let large = make(2 * BODIES_BYTES_MAX);
        let part = large.slice(..1);
        let (mut first, mut second) = (pin!(bodies.wait()), pin!(bodies.wait()));
        assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
        drop((small, large));
        assert!(poll(first.as_mut()).is_pending(), "a part of the large one is not received");
        drop(part);
        assert!(poll(second.as_mut()).is_pending(), "it is the turn of the first");
        let Poll::Ready(permit) = poll(first.as_mut()) else { panic!("all is received") };
        drop(permit);
        assert!(poll(second.as_mut()).is_ready(), "the first one's body was not made");
    }
}
