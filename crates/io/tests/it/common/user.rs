//! A thread's way to a volume with calls that wait, and work whose result is known.

use crate::common::{PATIENCE, Random};
use larder_core::lane::Completion;
use larder_core::request::{Assembly, Status, WriteTask};
use larder_core::store::StoreError;
use larder_io::engine::{ArenaLane, ArenaVolume, Engine};
use larder_io::frames::ArenaFrames;
use larder_io::wake::Waker;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A thread's way to a volume, with calls that wait.
pub(crate) struct User<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) lane: ArenaLane,
    waker: Waker,
}

impl<'a> User<'a> {
    pub(crate) fn new(engine: &'a Engine, volume: &Arc<ArenaVolume>) -> Self {
        let waker = Waker::new().expect("a file descriptor");
        let lane = engine.cache().open_lane(volume, Box::new(waker.clone()));
        User { engine, lane, waker }
    }

    pub(crate) fn collect(&self) -> Vec<Completion<ArenaFrames>> {
        let (mut completions, started) = (Vec::new(), Instant::now());
        loop {
            self.lane.collect(&mut completions);
            if !completions.is_empty() {
                return completions;
            }
            assert!(started.elapsed() < PATIENCE, "a request does not end");
            self.waker.sleep(None, Some(Duration::from_secs(1))).expect("sleeping works");
        }
    }

    pub(crate) fn read(&mut self, offset: u64, len: u32) -> Result<Vec<u8>, StoreError> {
        let cache = Arc::clone(self.engine.cache());
        let mut assembly = Assembly::new(0, offset, len);
        let mut status = cache.read(&mut self.lane, self.engine.now(), &mut assembly);
        loop {
            match status {
                Status::Done => break,
                Status::Failed(error) => return Err(error),
                Status::Stalled => {
                    status = cache.read(&mut self.lane, self.engine.now(), &mut assembly);
                    if status == Status::Stalled {
                        self.collect();
                    }
                }
                _ => {
                    for completion in self.collect() {
                        if !matches!(completion, Completion::Unstalled) {
                            status = assembly.absorb(cache.frames(), completion);
                        }
                    }
                }
            }
        }
        let mut bytes = vec![0; len as usize];
        assembly.copy_to(cache.frames(), &mut bytes);
        assembly.release(cache.frames());
        Ok(bytes)
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8], fua: bool) -> Result<(), StoreError> {
        let cache = Arc::clone(self.engine.cache());
        let len = u32::try_from(bytes.len()).expect("a small write");
        let mut task = WriteTask::new(0, offset, len, fua);
        let mut status = cache.write(&mut self.lane, self.engine.now(), &mut task, bytes);
        loop {
            match status {
                Status::Done | Status::DoneAt(_) => return Ok(()),
                Status::Failed(error) => return Err(error),
                Status::Pending | Status::Stalled => {}
            }
            for completion in self.collect() {
                let now = self.engine.now();
                let again = matches!(completion, Completion::Continue { .. })
                    || (matches!(completion, Completion::Unstalled) && status == Status::Stalled);
                if again {
                    status = cache.write(&mut self.lane, now, &mut task, bytes);
                } else if !matches!(completion, Completion::Unstalled) {
                    status = cache.write_completed(&mut self.lane, now, &mut task, completion);
                }
            }
        }
    }

    pub(crate) fn flush(&mut self) -> Result<(), StoreError> {
        let cache = Arc::clone(self.engine.cache());
        assert_eq!(cache.flush(&mut self.lane, self.engine.now(), 0), Status::Pending);
        loop {
            for completion in self.collect() {
                if let Completion::Finished { result, .. } = completion {
                    return result;
                }
            }
        }
    }

    pub(crate) fn close(self) {
        self.engine.cache().close_lane(self.lane);
    }
}

/// Random requests in one part of a volume, against a vector of bytes; what it holds at the end.
pub(crate) fn work(user: &mut User<'_>, base: u64, len: usize, seed: u64) -> Vec<u8> {
    let (mut random, mut model) = (Random::new(seed), vec![0; len]);
    for _ in 0..300 {
        let bits = 4 + random.below(14);
        let size = 1 + random.below(1 << bits);
        let start = random.below(len - size);
        let (offset, range) = (base + start as u64, start..start + size);
        match random.below(20) {
            0 => user.flush().expect("the store works"),
            n @ 1..10 => {
                let bytes = random.bytes(size);
                user.write(offset, &bytes, n == 1).expect("the store works");
                model[range].copy_from_slice(&bytes);
            }
            _ => {
                let read = user.read(offset, u32::try_from(size).expect("small"));
                assert!(read.expect("the store works") == model[range], "other bytes");
            }
        }
    }
    model
}
