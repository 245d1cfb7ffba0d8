//! Activity of a world without client requests: store operations, completions, power failures.

use super::world::{Request, World};
use larder_core::clock::{MILLISECOND, Nanos};
use larder_core::counters::Gauge;
use larder_core::frames::{Frames, PlainFrames};
use larder_core::store::{Fault, StoreCompletion, StoreOpKind};
use larder_core::units::BLOCK_BYTES_U64;

impl World {
    /// Submits the operations that the cache has for the store.
    pub(crate) fn poll(&mut self, index: usize) -> usize {
        let disk = &mut self.disks[index];
        if disk.is_removed {
            return 0;
        }
        let mut ops = Vec::new();
        disk.next_poll =
            self.cache.poll(&disk.volume, &disk.recorder, self.now, self.depth, &mut ops);
        let count = ops.len();
        for op in ops {
            self.log_event(|| format!("store {index}: {:?} {}+{}", op.kind, op.offset, op.len));
            let disk = &mut self.disks[index];
            disk.store.submit(self.now, self.cache.frames(), op);
        }
        self.figures.store_ops += count as u64;
        count
    }

    /// Passes the completed operations of the store to the cache.
    pub(crate) fn reap(&mut self, index: usize) -> usize {
        let mut done = Vec::new();
        self.disks[index].store.reap(self.now, self.cache.frames(), &mut done);
        let count = done.len();
        for done in done {
            self.complete(index, done);
        }
        count
    }

    fn complete(&mut self, index: usize, done: StoreCompletion<PlainFrames>) {
        if let Err(error) = &done.result {
            self.figures.faults += 1;
            self.log_event(|| format!("store {index} failed to {error}"));
            // Only a failed flush of the whole store must make later flushes fail.
            let is_flush = done.op.kind == StoreOpKind::Flush && done.op.len == 0;
            // A flush that has succeeded by now precedes this failure: deliver its reply first.
            for client in 0..self.clients.len() {
                if self.clients[client].as_ref().is_some_and(|c| c.disk == index) {
                    self.deliver(client);
                }
            }
            self.disks[index].flush_failed |= is_flush;
            if done.op.kind == StoreOpKind::Read {
                let range = done.op.offset..done.op.offset + done.op.len;
                let disk = &mut self.disks[index];
                disk.read_errors.push((range, error.clone()));
                // Requests that wait for this read may have been submitted after the fault ended.
                disk.reads_failed_at = disk.model.event();
            }
            if matches!(done.op.kind, StoreOpKind::Write { .. }) {
                for client in self.clients.iter_mut().flatten().filter(|c| c.disk == index) {
                    client.has_unreported_failure = true;
                }
            }
        } else {
            self.log_event(|| {
                format!("store {index} has done {} {}", done.op.kind, done.op.offset)
            });
        }
        let disk = &mut self.disks[index];
        self.cache.complete(&disk.volume, &disk.recorder, self.now, done);
    }

    /// Advances the session of a client. Returns true if it made progress.
    pub(crate) fn deliver(&mut self, index: usize) -> bool {
        let (cache, now) = (&self.cache, self.now);
        let moved = self.clients[index].as_mut().unwrap().session.advance(cache, now);
        moved | self.take_events(index)
    }

    /// Sets the faults of a disk.
    pub(crate) fn set_faults(&mut self, index: usize, faults: Vec<Fault>) {
        self.log_event(|| format!("store {index} faults: {faults:?}"));
        let disk = &mut self.disks[index];
        if disk.reads_failing {
            disk.reads_failed_at = disk.model.event();
        }
        let is_read = |fault: &Fault| matches!(fault, Fault::Reads(_) | Fault::Shrunk(_));
        disk.reads_failing = faults.iter().any(is_read);
        disk.writes_failed |= faults.iter().any(|fault| !matches!(fault, Fault::Reads(_)));
        disk.plan.set(faults);
    }

    /// Asserts that a crash now would leave only permitted content.
    pub(crate) fn crash(&mut self, index: usize, seed: u64) {
        let disk = &self.disks[index];
        let bytes = disk.media.lock().unwrap().after_crash(seed);
        disk.model.check_store(&bytes, true);
        self.figures.crashes += 1;
    }

    /// Runs the maintenance that changes of memory and bounds require; returns true if more can be
    /// done immediately.
    pub(crate) fn run_maintenance(&mut self) -> bool {
        let before = self.cache.memory();
        let next = self.cache.run_maintenance(self.now);
        let after = self.cache.memory();
        if before != after {
            self.log_event(|| format!("{} of {} frames in service", after.usable, after.target));
        }
        next == Some(self.now)
    }

    /// Runs until nothing can progress without new requests. Waits for the background writer only
    /// if `lazily`.
    pub(crate) fn quiesce(&mut self, lazily: bool) {
        for turn in 1..20_000 {
            // Time passes: failed writes of pages are retried after a delay.
            if turn % 100 == 0 {
                self.now += 100 * MILLISECOND;
            }
            let mut moved = self.run_maintenance();
            for disk in 0..self.disks.len() {
                moved |= self.poll(disk) + self.reap(disk) > 0;
            }
            for client in 0..self.clients.len() {
                while self.clients[client].is_some() && self.deliver(client) {
                    moved = true;
                }
            }
            if moved {
                continue;
            }
            let present_disks = self.disks.iter().filter(|disk| !disk.is_removed);
            let times = present_disks.filter_map(|disk| {
                let background_poll = disk.next_poll.filter(|_| lazily);
                background_poll.into_iter().chain(disk.store.next_event()).min()
            });
            if let Some(next) = times.chain(self.next_reply()).min().filter(|&next| next > self.now)
            {
                self.now = next;
                continue;
            }
            if self.disks.iter().any(|disk| disk.store.in_flight() > 0) {
                continue;
            }
            return;
        }
        panic!("the world does not come to rest\n{}", self.describe());
    }

    /// Returns the time of the next delayed reply.
    pub(crate) fn next_reply(&self) -> Option<Nanos> {
        self.clients.iter().flatten().filter_map(|client| client.session.next_reply_at()).min()
    }

    /// Asserts that every frame is available, i.e. that there are no pins.
    pub(crate) fn check_no_pins(&self) {
        let frames = self.cache.frames();
        for frame in 0..frames.count() {
            let pin =
                frames.try_write_pin(frame).unwrap_or_else(|| panic!("frame {frame} is held"));
            frames.release_write_pin(pin);
        }
    }

    /// Describes the waiting requests, and the memory that they may lack.
    fn describe(&self) -> String {
        let clients = self.clients.iter().flatten();
        let waiting = clients.flat_map(|client| {
            client.requests.iter().map(|request| {
                let Request { token, bytes, kind, .. } = request;
                format!("{} {token} of volume {}: {bytes:?}", kind.name(), client.disk)
            })
        });
        let gauges = self.disks.iter().map(|disk| {
            let blocks = |gauge| self.cache.gauge(&disk.volume, gauge) / BLOCK_BYTES_U64;
            let state = if disk.volume.is_frozen() { "frozen" } else { "not frozen" };
            let mode = disk.volume.write_mode();
            format!(
                "{}: {mode}, {state}, {} blocks per page, bounds {:?}; \
                 {} resident, {} dirty, {} writing, {} free, of {}",
                disk.volume.name(),
                disk.volume.page_bytes() / BLOCK_BYTES_U64,
                disk.volume.bounds(),
                blocks(Gauge::Resident),
                blocks(Gauge::Dirty),
                blocks(Gauge::Writing),
                blocks(Gauge::Free),
                blocks(Gauge::Memory)
            )
        });
        gauges.chain(waiting).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn is_failing(&self, disk: usize) -> bool {
        self.cache.gauge(&self.disks[disk].volume, Gauge::Failing) > 0
    }
}
