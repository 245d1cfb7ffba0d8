//! Events of answered requests, for an observer that records them.
//!
//! Each connection has its own ring. The connection's thread stages an event when a request is
//! complete, and publishes the events of a batch after the replies were sent; the observer drains
//! the ring. Invariants: the connection's thread does not wait here, and allocates only for a
//! larger batch than all before; an event that finds the ring full is counted as lost.

use larder_core::clock::{Clock, Nanos};
use larder_core::counters::{Class, Classes};
use larder_core::request::RequestOp;
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Capacity of a ring in events: 256 KiB, and the requests that the fastest client sends in about
/// 25 ms.
const RING_EVENTS: usize = 8192;
/// Number of staged events for which a connection has memory from the start.
const STAGED_EVENTS: usize = 512;

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

/// Sending end of a ring, owned by the connection's thread.
#[derive(Debug)]
struct EventSender {
    events: Producer<Event>,
    /// Completed requests whose replies are not sent yet; the ring has room for them.
    staged: Vec<Event>,
    lost: Arc<AtomicU64>,
}

/// Receiving end of a ring, drained by the observer.
#[derive(Debug)]
pub struct EventReceiver {
    events: Consumer<Event>,
    lost: Arc<AtomicU64>,
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
        if self.events.staged.is_empty() {
            return true;
        }
        if self.events.publish(clock.now()) {
            self.observer.wake();
        }
        !self.events.events.is_abandoned()
    }
}

fn new_ring(capacity: usize) -> (EventSender, EventReceiver) {
    let (producer, consumer) = RingBuffer::new(capacity);
    let lost = Arc::new(AtomicU64::new(0));
    let staged = Vec::with_capacity(STAGED_EVENTS);
    let sender = EventSender { events: producer, staged, lost: Arc::clone(&lost) };
    (sender, EventReceiver { events: consumer, lost })
}

impl EventSender {
    /// Stages a completed request; [`EventSender::publish`] adds its latency.
    fn stage(&mut self, event: Event) {
        if self.staged.len() == self.events.slots() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        } else {
            self.staged.push(event);
        }
    }

    /// Publishes the staged events, whose replies were sent at `now`. Returns true if the observer
    /// has to be woken.
    fn publish(&mut self, now: Nanos) -> bool {
        let half = self.events.buffer().capacity() / 2;
        let had_room = self.events.slots() > half;
        let chunk = self.events.write_chunk_uninit(self.staged.len());
        let chunk = chunk.expect("there was room when the events were staged");
        let with_latency = |it: Event| Event { latency: now.saturating_sub(it.at), ..it };
        chunk.fill_from_iter(self.staged.drain(..).map(with_latency));
        had_room && self.events.slots() <= half
    }
}

impl EventReceiver {
    /// Passes all published events to `consume`, in order.
    pub fn drain(&mut self, consume: impl FnMut(Event)) {
        if let Ok(chunk) = self.events.read_chunk(self.events.slots()) {
            chunk.into_iter().for_each(consume);
        }
    }

    /// Returns the number of events that found the ring full since the last call.
    pub fn take_lost(&mut self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }

    /// Returns true if the connection has ended: a drain after this call finds the last events.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.events.is_abandoned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATIONS: [Operation; 5] =
        [Operation::Read, Operation::Write, Operation::Flush, Operation::Trim, Operation::Zero];

    fn event(number: u64) -> Event {
        let number_u8 = u8::try_from(number % 250).unwrap();
        Event {
            at: 1000 + number,
            latency: 0,
            offset: number << 40 | 7,
            len: u32::MAX - u32::from(number_u8),
            operation: OPERATIONS[usize::from(number_u8) % 5],
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
            assert_eq!(sender.staged.len(), 30);
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
        assert!(!sender.events.is_abandoned());
        drop(receiver);
        assert!(sender.events.is_abandoned());
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
