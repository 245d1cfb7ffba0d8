//! A modeled device in real time: a reply waits until the model has served its operation.

use larder_core::clock::Clock;
use larder_core::frames::NoFrames;
use larder_core::store::{Geometry, Store, StoreOp, StoreOpKind};
use larder_io::clock::MonotonicClock;
use larder_io::nbd_wire::Errno;
use larder_lab::model::StoreModel;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// The reply to a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    /// Chosen by the client; repeated in the reply.
    pub(super) cookie: u64,
    /// Operation of the model; `None` for a request that was refused or needs none.
    pub(super) op: Option<DeviceOp>,
    /// Bytes of a block status, all of which are allocated; 0 for other requests.
    pub(super) status_bytes: u32,
    pub(super) result: Result<(), Errno>,
}

/// An operation of the model.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceOp {
    pub(super) kind: StoreOpKind,
    pub(super) offset: u64,
    pub(super) len: u32,
}

/// A file with the timing of a model.
pub(super) struct ModeledDevice {
    pub(super) geometry: Geometry,
    pub(super) file: File,
    clock: MonotonicClock,
    queue: Mutex<Queue>,
    /// Signaled when an operation was submitted.
    submitted: Condvar,
}

/// Operations in the model.
struct Queue {
    store: Box<dyn Store<NoFrames>>,
    /// Replies of the operations in flight by their tag, with the channel to their client.
    replies: HashMap<u64, (Reply, Sender<Reply>)>,
    tag_next: u64,
}

impl ModeledDevice {
    pub(super) fn new(model: &StoreModel, geometry: Geometry, file: File) -> Self {
        let store = model.build(geometry);
        let queue = Queue { store, replies: HashMap::new(), tag_next: 0 };
        ModeledDevice {
            geometry,
            file,
            clock: MonotonicClock::new(),
            queue: Mutex::new(queue),
            submitted: Condvar::new(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no holder panics")
    }

    /// Submits an operation; its reply is sent to `replies` when the model has served it.
    pub(super) fn submit(&self, op: DeviceOp, cookie: u64, replies: &Sender<Reply>) {
        let mut queue = self.queue();
        let (tag, now) = (queue.tag_next, self.clock.now());
        queue.tag_next += 1;
        let reply = Reply { cookie, op: Some(op), status_bytes: 0, result: Ok(()) };
        queue.replies.insert(tag, (reply, replies.clone()));
        let DeviceOp { kind, offset, len } = op;
        let segments = Vec::new();
        let op = StoreOp { tag, kind, offset, len: len.into(), segments, queued_at: now };
        queue.store.submit(now, &NoFrames::new(0), op);
        self.submitted.notify_one();
    }

    /// Completes operations at their times, as long as the process lives.
    pub(super) fn run(&self) {
        let (mut done, mut queue) = (Vec::new(), self.queue());
        loop {
            let now = self.clock.now();
            queue.store.reap(now, &NoFrames::new(0), &mut done);
            for each in done.drain(..) {
                let (reply, replies) = queue.replies.remove(&each.op.tag).expect("in flight");
                let _gone = replies.send(reply);
            }
            queue = match queue.store.next_event() {
                None => self.submitted.wait(queue).expect("no holder panics"),
                Some(at) => {
                    let time = Duration::from_nanos(at.saturating_sub(self.clock.now()));
                    self.submitted.wait_timeout(queue, time).expect("no holder panics").0
                }
            };
        }
    }

    /// Writes all data to stable storage.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
