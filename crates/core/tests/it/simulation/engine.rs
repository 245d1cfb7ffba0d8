//! What happens to a world by itself: stores work, completions arrive, power fails.

use super::world::{Request, Work, World};
use larder_core::counters::Gauge;
use larder_core::frames::{Frames, PlainFrames};
use larder_core::lane::Completion;
use larder_core::request::Status;
use larder_core::store::{Fault, StoreDone, StoreOpKind};
use larder_core::units::BLOCK_BYTES_U64;

impl World {
    /// Gives the store what the cache wants of it.
    pub(crate) fn poll(&mut self, index: usize) -> usize {
        let disk = &mut self.disks[index];
        if disk.gone {
            return 0;
        }
        let mut ops = Vec::new();
        disk.next_poll =
            self.cache.poll(&disk.volume, &disk.recorder, self.now, self.depth, &mut ops);
        let count = ops.len();
        for op in ops {
            self.note(|| format!("store {index}: {:?} {}+{}", op.kind, op.offset, op.len));
            let disk = &mut self.disks[index];
            disk.store.submit(self.now, self.cache.frames(), op);
        }
        self.figures.store_ops += count as u64;
        // The end of a change of the page size wakes those who wait for it.
        for client in 0..self.clients.len() {
            self.collect(client);
        }
        count
    }

    /// Gives the cache what the store has done.
    pub(crate) fn reap(&mut self, index: usize) -> usize {
        let mut done = Vec::new();
        self.disks[index].store.reap(self.now, self.cache.frames(), &mut done);
        let count = done.len();
        for done in done {
            self.complete(index, done);
        }
        count
    }

    fn complete(&mut self, index: usize, done: StoreDone<PlainFrames>) {
        if let Err(error) = &done.result {
            self.figures.faults += 1;
            self.note(|| format!("store {index} failed to {error}"));
            // Of a part of the store it is final for the store to say.
            let is_flush = done.op.kind == StoreOpKind::Flush && done.op.len == 0;
            self.disks[index].flush_failed |= is_flush;
            if done.op.kind == StoreOpKind::Read {
                let range = done.op.offset..done.op.offset + done.op.len;
                let disk = &mut self.disks[index];
                disk.read_errors.push((range, error.clone()));
                // Who waits for it may have come after the fault was over.
                disk.reads_failed_at = disk.model.event();
            }
            if matches!(done.op.kind, StoreOpKind::Write { .. }) {
                for client in self.clients.iter_mut().flatten().filter(|c| c.disk == index) {
                    client.untold = true;
                }
            }
        } else {
            self.note(|| format!("store {index} has done {} {}", done.op.kind, done.op.offset));
        }
        let disk = &mut self.disks[index];
        self.cache.complete(&disk.volume, &disk.recorder, self.now, done);
        for client in 0..self.clients.len() {
            self.collect(client);
        }
    }

    /// Takes the mail of a lane. Flushes end here, at the moment at which they are promised.
    fn collect(&mut self, index: usize) {
        let Some(client) = self.clients[index].as_mut() else { return };
        let (mut mail, mut lines) = (Vec::new(), Vec::new());
        client.lane.collect(&mut mail);
        for completion in mail {
            let Completion::Finished { token, result } = &completion else {
                client.mail.push_back(completion);
                continue;
            };
            // The flush that a FUA write needs tells its lane of errors, too.
            let is_write = |r: &Request| r.token == *token && matches!(r.work, Work::Write { .. });
            if result.is_err() && client.requests.iter().any(is_write) {
                client.untold = false;
            }
            let is_flush = |r: &Request| {
                r.token == *token && matches!(r.work, Work::Flush | Work::FlushRange { .. })
            };
            let Some(place) = client.requests.iter().position(is_flush) else {
                client.mail.push_back(completion);
                continue;
            };
            let request = client.requests.swap_remove(place);
            let disk = &mut self.disks[client.disk];
            match result {
                Ok(()) if let Work::FlushRange { stable, .. } = request.work => {
                    if stable {
                        disk.model.range_flushed(&request.bytes, request.event);
                    }
                }
                // It tells of what lies in its range alone.
                Err(error) if matches!(request.work, Work::FlushRange { .. }) => {
                    assert!(disk.writes_failed, "a flush failed without a fault: {error}");
                    self.figures.failed += 1;
                }
                Ok(()) => {
                    assert!(!disk.flush_failed, "a flush went well after one had failed");
                    assert!(!client.untold, "client {index} was not told of a failed write");
                    disk.model.flushed(request.event);
                }
                Err(error) => {
                    assert!(disk.writes_failed, "a flush failed without a fault: {error}");
                    client.untold = false;
                    self.figures.failed += 1;
                }
            }
            lines.push(format!("flush {token} ends: {:?}", result.as_ref().err()));
        }
        for line in lines {
            self.note(|| line);
        }
    }

    /// Hands one completion to the request it belongs to; whether there was one.
    pub(crate) fn deliver(&mut self, index: usize) -> bool {
        let client = self.clients[index].as_mut().unwrap();
        let Some(completion) = client.mail.pop_front() else { return false };
        let token = match &completion {
            Completion::Unstalled => {
                self.retry(index);
                return true;
            }
            Completion::Filled { token, .. }
            | Completion::Failed { token, .. }
            | Completion::Continue { token }
            | Completion::Synced { token, .. }
            | Completion::Finished { token, .. } => *token,
        };
        let place = client.requests.iter().position(|request| request.token == token);
        let place = place.unwrap_or_else(|| panic!("request {token} is done already"));
        let mut request = client.requests.swap_remove(place);
        if matches!(completion, Completion::Continue { .. }) {
            self.note(|| format!("request {token} goes on"));
            self.drive(index, request);
            return true;
        }
        let status = match &mut request.work {
            Work::Read { assembly, .. } => assembly.absorb(self.cache.frames(), completion),
            Work::Write { task, .. } => {
                self.cache.write_completed(&mut client.lane, self.now, task, completion)
            }
            Work::Exclude { .. } => match completion {
                Completion::Finished { result, .. } => {
                    result.map_or_else(Status::Failed, |()| Status::Done)
                }
                other => panic!("{other:?} for an exclusive range"),
            },
            Work::Flush | Work::FlushRange { .. } => panic!("{completion:?} for a flush"),
            Work::Map { mapping, .. } => {
                self.cache.map_completed(&mut client.lane, self.now, mapping, completion)
            }
            Work::Unpin { mapping } => {
                self.cache.unpin_completed(&mut client.lane, self.now, mapping, completion)
            }
        };
        self.settle(index, request, status);
        true
    }

    /// Sets the faults of a disk.
    pub(crate) fn set_faults(&mut self, index: usize, faults: Vec<Fault>) {
        self.note(|| format!("store {index} faults: {faults:?}"));
        let disk = &mut self.disks[index];
        if disk.reads_failing {
            disk.reads_failed_at = disk.model.event();
        }
        let is_read = |fault: &Fault| matches!(fault, Fault::Reads(_) | Fault::Shrunk(_));
        disk.reads_failing = faults.iter().any(is_read);
        disk.writes_failed |= faults.iter().any(|fault| !matches!(fault, Fault::Reads(_)));
        disk.plan.set(faults);
    }

    /// Asserts that a crash now would leave only what it may.
    pub(crate) fn crash(&mut self, index: usize, seed: u64) {
        let disk = &self.disks[index];
        let bytes = disk.platter.lock().unwrap().after_crash(seed);
        disk.model.check_store(&bytes, true);
        self.figures.crashes += 1;
    }

    /// Does what changes of memory and bounds left to be done; whether there was something that
    /// could be done now.
    pub(crate) fn tend(&mut self) -> bool {
        let before = self.cache.memory();
        let next = self.cache.tend(self.now);
        let after = self.cache.memory();
        if before != after {
            self.note(|| format!("{} of {} frames in service", after.usable, after.target));
        }
        next == Some(self.now)
    }

    /// Lets everything happen that would happen by itself while nobody asks for more, except that
    /// the lazy writer is waited for only if `lazily`.
    pub(crate) fn rest(&mut self, lazily: bool) {
        for _ in 0..20_000 {
            let mut moved = self.tend();
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
            let there = self.disks.iter().filter(|disk| !disk.gone);
            let times = there.filter_map(|disk| {
                let lazy = disk.next_poll.filter(|_| lazily);
                lazy.into_iter().chain(disk.store.next_event()).min()
            });
            if let Some(next) = times.min().filter(|&next| next > self.now) {
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

    /// Asserts that every frame can be had: nobody holds a pin.
    pub(crate) fn check_no_pins(&self) {
        let frames = self.cache.frames();
        for frame in 0..frames.count() {
            let own = frames.try_own(frame).unwrap_or_else(|| panic!("frame {frame} is held"));
            frames.disown(own);
        }
    }

    /// Who waits, and for what there may be no room.
    fn describe(&self) -> String {
        let clients = self.clients.iter().flatten();
        let waiting = clients.flat_map(|client| {
            client.requests.iter().map(|request| {
                let Request { token, bytes, stalled, .. } = request;
                format!("request {token} of volume {}: {bytes:?}, stalled {stalled}", client.disk)
            })
        });
        let gauges = self.disks.iter().map(|disk| {
            let blocks = |gauge| self.cache.gauge(&disk.volume, gauge) / BLOCK_BYTES_U64;
            format!(
                "{}: {} resident, {} dirty, {} writing, {} free, of {}",
                disk.volume.name(),
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
