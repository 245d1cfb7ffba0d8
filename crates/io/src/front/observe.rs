//! Events of answered requests, for an observer that records them.
//!
//! Each connection has its own ring. The connection's thread stages an event when a request is
//! complete, and publishes the events of a batch after the replies were sent; the observer drains
//! the ring. Invariants: the connection's thread neither waits nor allocates here; an event that
//! finds the ring full is counted as lost; one thread stages and one thread drains, so no event is
//! torn.

use larder_core::clock::{Clock, Nanos};
use larder_core::counters::{Class, Classes};
use larder_core::request::RequestOp;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Capacity of a ring in events: 256 KiB, and the requests that the fastest client sends in about
/// 25 ms.
const RING_EVENTS: u64 = 8192;

/// Operation of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush.
    Flush,
    /// A trim.
    Trim,
    /// A request to write zeros.
    Zero,
}

impl Operation {
    const ALL: [Operation; 5] =
        [Operation::Read, Operation::Write, Operation::Flush, Operation::Trim, Operation::Zero];

    /// Returns the operation of a request; none for operations that observers do not record.
    fn of(op: RequestOp) -> Option<Self> {
        Some(match op {
            RequestOp::Read => Operation::Read,
            RequestOp::Write => Operation::Write,
            RequestOp::Flush | RequestOp::FlushAlways | RequestOp::FlushRange { .. } => {
                Operation::Flush
            }
            RequestOp::Zero { .. } => Operation::Zero,
            RequestOp::Discard => Operation::Trim,
            RequestOp::Populate | RequestOp::Map | RequestOp::Unpin => return None,
        })
    }
}

/// An answered request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Arrival time, by the engine's clock. Increases from request to request of a connection.
    pub at: Nanos,
    /// Time from the arrival until the reply was passed to the socket, or queued behind replies
    /// that the client has not received.
    pub latency: Nanos,
    /// Offset in the export, in bytes.
    pub offset: u64,
    /// Length in bytes; 0 for a flush.
    pub len: u32,
    /// Operation of the request.
    pub operation: Operation,
    /// Worst class of the pages that the request touched; none if it touched none.
    pub class: Option<Class>,
}

impl Event {
    /// Encodes all fields except the latency, which is not known yet.
    fn to_words(self) -> [u64; 3] {
        let class = self.class.map_or(0, Class::number);
        let kind = u64::from(self.len) << 32 | (self.operation as u64) << 8 | u64::from(class);
        [self.at, self.offset, kind]
    }

    fn from_words([at, offset, kind]: [u64; 3], latency: Nanos) -> Self {
        let [class, operation, _, _, len @ ..] = kind.to_le_bytes();
        Event {
            at,
            latency,
            offset,
            len: u32::from_le_bytes(len),
            operation: Operation::ALL[usize::from(operation)],
            class: Class::from_number(class),
        }
    }
}

/// Receiver of the events of all answered requests.
pub trait Observer: Send + Sync {
    /// Announces a new connection to `export`; `events` receives its events until it ends. An
    /// observer that does not record the connection drops the receiver, and the connection stops
    /// staging events.
    fn connected(&self, export: &str, events: EventReceiver);

    /// Reports that a ring is half full. The thread of a connection calls this, so it must only
    /// wake the thread that drains.
    fn wake(&self);
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct PaddedCounter(AtomicU64);

/// Ring of events. Positions only increase; a slot is the position modulo the length.
#[derive(Debug)]
struct Ring {
    words: Box<[[AtomicU64; 4]]>,
    /// Events before this position are published. Only the sender writes this.
    head: PaddedCounter,
    /// Events before this position are drained. Only the receiver writes this.
    tail: PaddedCounter,
    lost: AtomicU64,
    sender_gone: AtomicBool,
    receiver_gone: AtomicBool,
}

impl Ring {
    fn slot(&self, position: u64) -> &[AtomicU64; 4] {
        let index = usize::try_from(position % self.words.len() as u64).expect("an index");
        &self.words[index]
    }
}

/// Sending end of a ring, owned by the connection's thread.
#[derive(Debug)]
struct EventSender {
    ring: Arc<Ring>,
    published: u64,
    /// Position at which the next event is staged.
    next: u64,
}

/// Receiving end of a ring, drained by the observer.
#[derive(Debug)]
pub struct EventReceiver {
    ring: Arc<Ring>,
}

/// Records the answered requests of one connection.
pub(super) struct RequestRecorder {
    events: EventSender,
    observer: Arc<dyn Observer>,
}

impl RequestRecorder {
    /// Starts recording a new connection to `export` for an observer.
    pub(super) fn begin(observer: &Arc<dyn Observer>, export: &str) -> Self {
        let (events, receiver) = new_ring(RING_EVENTS);
        observer.connected(export, receiver);
        RequestRecorder { events, observer: Arc::clone(observer) }
    }

    /// Records a completed request: its operation, arrival time, range (offset and length in bytes)
    /// and classes.
    pub(super) fn record(
        &mut self,
        op: RequestOp,
        at: Nanos,
        (offset, len): (u64, u64),
        classes: Classes,
    ) {
        let Some(operation) = Operation::of(op) else { return };
        // The range of a flush has no meaning.
        let (offset, len) = if operation == Operation::Flush { (0, 0) } else { (offset, len) };
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let class = classes.worst();
        self.events.stage(Event { at, latency: 0, offset, len, operation, class });
    }

    /// Publishes the recorded requests after their replies were sent. Returns true if the observer
    /// still receives events.
    pub(super) fn publish(&mut self, clock: &dyn Clock) -> bool {
        if !self.events.has_staged() {
            return true;
        }
        if self.events.publish(clock.now()) {
            self.observer.wake();
        }
        self.events.has_receiver()
    }
}

/// Creates the ring of a connection.
fn new_ring(events: u64) -> (EventSender, EventReceiver) {
    let ring = Arc::new(Ring {
        words: (0..events).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect(),
        head: PaddedCounter::default(),
        tail: PaddedCounter::default(),
        lost: AtomicU64::new(0),
        sender_gone: AtomicBool::new(false),
        receiver_gone: AtomicBool::new(false),
    });
    let sender = EventSender { ring: Arc::clone(&ring), published: 0, next: 0 };
    (sender, EventReceiver { ring })
}

impl EventSender {
    /// Stages a completed request; [`EventSender::publish`] adds its latency.
    fn stage(&mut self, event: Event) {
        let waiting = self.next - self.ring.tail.0.load(Ordering::Acquire);
        if waiting == self.ring.words.len() as u64 {
            self.ring.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let slot = self.ring.slot(self.next);
        for (word, value) in slot.iter().zip(event.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.next += 1;
    }

    /// Returns true if events are staged.
    fn has_staged(&self) -> bool {
        self.next != self.published
    }

    /// Publishes the staged events, whose replies were sent at `now`. Returns true if the observer
    /// has to be woken.
    fn publish(&mut self, now: Nanos) -> bool {
        for position in self.published..self.next {
            let slot = self.ring.slot(position);
            let latency = now.saturating_sub(slot[0].load(Ordering::Relaxed));
            slot[3].store(latency, Ordering::Relaxed);
        }
        let half = self.ring.words.len() as u64 / 2;
        let tail = self.ring.tail.0.load(Ordering::Relaxed);
        let before = self.published.saturating_sub(tail);
        self.published = self.next;
        self.ring.head.0.store(self.published, Ordering::Release);
        before < half && self.published - tail >= half
    }

    /// Returns true if the receiver exists.
    fn has_receiver(&self) -> bool {
        !self.ring.receiver_gone.load(Ordering::Relaxed)
    }
}

impl Drop for EventSender {
    fn drop(&mut self) {
        self.ring.sender_gone.store(true, Ordering::Release);
    }
}

impl EventReceiver {
    /// Passes all published events to `consume`, in order.
    pub fn drain(&mut self, mut consume: impl FnMut(Event)) {
        let head = self.ring.head.0.load(Ordering::Acquire);
        let tail = self.ring.tail.0.load(Ordering::Relaxed);
        for position in tail..head {
            let [at, offset, kind, latency] =
                std::array::from_fn(|i| self.ring.slot(position)[i].load(Ordering::Relaxed));
            consume(Event::from_words([at, offset, kind], latency));
        }
        self.ring.tail.0.store(head, Ordering::Release);
    }

    /// Returns the number of events that found the ring full since the last call.
    pub fn take_lost(&mut self) -> u64 {
        self.ring.lost.swap(0, Ordering::Relaxed)
    }

    /// Returns true if the connection has ended: a drain after this call finds the last events.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ring.sender_gone.load(Ordering::Acquire)
    }
}

impl Drop for EventReceiver {
    fn drop(&mut self) {
        self.ring.receiver_gone.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64) -> Event {
        let number_u8 = u8::try_from(number % 250).unwrap();
        Event {
            at: 1000 + number,
            latency: 0,
            offset: number << 40 | 7,
            len: u32::MAX - u32::from(number_u8),
            operation: Operation::ALL[usize::from(number_u8) % 5],
            class: Class::from_number(number_u8 % 25),
        }
    }

    fn drained(receiver: &mut EventReceiver) -> Vec<Event> {
        let mut events = Vec::new();
        receiver.drain(|event| events.push(event));
        events
    }

    #[test]
    fn events_come_out_as_they_went_in_with_the_latency_of_their_batch() {
        let (mut sender, mut receiver) = new_ring(64);
        for batch in 0..100 {
            let numbers = batch * 30..batch * 30 + 30;
            numbers.clone().for_each(|number| sender.stage(event(number)));
            assert_eq!(drained(&mut receiver), [], "nothing is seen before it is published");
            assert!(sender.has_staged());
            sender.publish(50_000);
            let expected =
                numbers.map(|number| Event { latency: 49_000 - number, ..event(number) });
            assert_eq!(drained(&mut receiver), expected.collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_full_ring_loses_what_comes_and_keeps_what_is_there() {
        let (mut sender, mut receiver) = new_ring(8);
        assert!(!{
            (0..3).for_each(|number| sender.stage(event(number)));
            sender.publish(0)
        });
        (3..11).for_each(|number| sender.stage(event(number)));
        assert!(sender.publish(0), "it is more than half full");
        assert!(!sender.publish(0), "who drains is woken once");
        assert_eq!(receiver.take_lost(), 3);
        let offsets = drained(&mut receiver).into_iter().map(|event| event.offset >> 40);
        assert_eq!(offsets.collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
        assert_eq!(receiver.take_lost(), 0);
        sender.stage(event(11));
        sender.publish(0);
        assert_eq!(drained(&mut receiver), [event(11)]);
    }

    #[test]
    fn each_end_notices_that_the_other_is_gone() {
        let (mut sender, mut receiver) = new_ring(8);
        sender.stage(event(1));
        sender.publish(0);
        assert!(!receiver.is_over());
        drop(sender);
        assert!(receiver.is_over());
        assert_eq!(drained(&mut receiver).len(), 1);
        let (sender, receiver) = new_ring(8);
        assert!(sender.has_receiver());
        drop(receiver);
        assert!(!sender.has_receiver());
    }

    #[test]
    fn two_threads_lose_nothing_uncounted_and_tear_nothing() {
        const COUNT: u64 = 200_000;
        let (mut sender, mut receiver) = new_ring(64);
        let (seen, lost) = std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..COUNT {
                    sender.stage(event(number));
                    if number % 7 == 0 {
                        sender.publish(2 * COUNT);
                    }
                }
                sender.publish(2 * COUNT);
            });
            let (mut seen, mut next) = (0, 0);
            loop {
                let over = receiver.is_over();
                receiver.drain(|found| {
                    let number = found.offset >> 40;
                    assert!(number >= next, "{number} after {next}");
                    next = number + 1;
                    let latency = (2 * COUNT).saturating_sub(found.at);
                    assert_eq!(found, Event { latency, ..event(number) });
                    seen += 1;
                });
                if over {
                    break (seen, receiver.take_lost());
                }
            }
        });
        assert_eq!(seen + lost, COUNT);
    }
}
