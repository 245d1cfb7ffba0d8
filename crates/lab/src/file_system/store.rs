//! Files as stores on one device: each request to a file becomes requests to the device.

use super::FileMap;
use larder_core::clock::Nanos;
use larder_core::frames::NoFrames;
use larder_core::store::{Geometry, Store, StoreCompletion, StoreOp, StoreOpKind};
use slab::Slab;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A request to a file, in progress.
struct Request {
    file: usize,
    op: StoreOp<NoFrames>,
    started_at: Nanos,
    /// Requests to the device that are not complete.
    left: usize,
}

/// The device, and the requests of all files.
struct Device {
    store: Box<dyn Store<NoFrames>>,
    requests: Slab<Request>,
    /// Completions by file that were not reaped.
    done: Vec<Vec<StoreCompletion<NoFrames>>>,
    completed: Vec<StoreCompletion<NoFrames>>,
}

impl Device {
    fn submit(
        &mut self,
        now: Nanos,
        frames: &NoFrames,
        (file, op): (usize, StoreOp<NoFrames>),
        ranges: &[Range<u64>],
    ) {
        let kind = op.kind;
        let request = Request { file, op, started_at: now, left: ranges.len() };
        let tag = self.requests.insert(request) as u64;
        for Range { start, end } in ranges.iter().cloned() {
            let (offset, len, segments) = (start, end - start, Vec::new());
            let op = StoreOp { tag, kind, offset, len, segments, queued_at: now };
            self.store.submit(now, frames, op);
        }
    }

    /// Processes completions up to `now`.
    fn advance(&mut self, now: Nanos, frames: &NoFrames) {
        let mut completed = std::mem::take(&mut self.completed);
        self.store.reap(now, frames, &mut completed);
        for StoreCompletion { op, finished_at, .. } in completed.drain(..) {
            let number = usize::try_from(op.tag).expect("the number of a request");
            let request = &mut self.requests[number];
            request.left -= 1;
            if request.left == 0 {
                let Request { file, op, started_at, .. } = self.requests.remove(number);
                let done = StoreCompletion { op, result: Ok(()), started_at, finished_at };
                self.done[file].push(done);
            }
        }
        self.completed = completed;
    }

    fn in_flight(&self, file: usize) -> usize {
        self.requests.iter().filter(|(_, request)| request.file == file).count()
    }
}

/// A file on a device with others.
#[derive(Clone)]
pub struct FileStore {
    device: Arc<Mutex<Device>>,
    number: usize,
    map: FileMap,
    geometry: Geometry,
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStore").field("number", &self.number).finish_non_exhaustive()
    }
}

impl FileStore {
    /// Returns the stores of files on a device, which has no other requests. A granule divides all
    /// extents.
    #[must_use]
    pub fn all(store: Box<dyn Store<NoFrames>>, maps: &[FileMap]) -> Vec<FileStore> {
        let geometry = store.geometry();
        let device = Arc::new(Mutex::new(Device {
            store,
            requests: Slab::new(),
            done: maps.iter().map(|_| Vec::new()).collect(),
            completed: Vec::new(),
        }));
        let file = |(number, map): (usize, &FileMap)| FileStore {
            device: Arc::clone(&device),
            number,
            map: map.clone(),
            geometry: Geometry { length: map.len(), ..geometry },
        };
        maps.iter().enumerate().map(file).collect()
    }

    fn device(&self) -> MutexGuard<'_, Device> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store<NoFrames> for FileStore {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, now: Nanos, frames: &NoFrames, op: StoreOp<NoFrames>) {
        let ranges: Vec<Range<u64>> = match op.kind {
            StoreOpKind::Flush => std::iter::once(0..0).collect(),
            _ => self.map.on_device(op.offset..op.offset + op.len).collect(),
        };
        let mut device = self.device();
        device.advance(now, frames);
        device.submit(now, frames, (self.number, op), &ranges);
    }

    fn reap(&mut self, now: Nanos, frames: &NoFrames, done: &mut Vec<StoreCompletion<NoFrames>>) {
        let mut device = self.device();
        device.advance(now, frames);
        done.append(&mut device.done[self.number]);
    }

    fn in_flight(&self) -> usize {
        let device = self.device();
        device.in_flight(self.number) + device.done[self.number].len()
    }

    /// Returns the time of the next completion of any file: the device decides then which request
    /// it serves next.
    fn next_event(&self) -> Option<Nanos> {
        let device = self.device();
        let done = device.done[self.number].iter().map(|done| done.finished_at).min();
        let waits = device.in_flight(self.number) > 0;
        done.or_else(|| device.store.next_event().filter(|_| waits))
    }
}

#[cfg(test)]
mod tests;
