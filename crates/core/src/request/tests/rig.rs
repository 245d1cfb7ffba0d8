//! A cache over one or more volumes, and a client that performs one operation after the other.

use crate::cache::Cache;
use crate::clock::{MILLISECOND, Nanos, SECOND};
use crate::completion::{Completion, NoWaker};
use crate::counters::{Gauge, Recorder};
use crate::frames::{Frames, PlainFrames};
use crate::request::handle::open_handle;
use crate::request::{ReadRequest, Status, WriteRequest};
use crate::store::{
    CrashDisk, CrashStore, DelayStore, FaultPlan, FaultyStore, Geometry, SparseBytes, Store,
    StoreError, StoreOpKind,
};
use crate::units::BLOCK_BYTES_U64 as BLOCK;
use crate::volume::VolumeHandle;
use crate::volume::{Volume, VolumeOptions};
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

pub(super) type Plain = PlainFrames;
type PlainPin = <Plain as Frames>::Pin;

pub(super) struct Disk {
    pub(super) volume: Arc<Volume<Plain>>,
    pub(super) store: Box<dyn Store<Plain>>,
    pub(super) platter: Arc<Mutex<CrashDisk>>,
    pub(super) plan: FaultPlan,
    pub(super) stall: Arc<AtomicBool>,
    pub(super) recorder: Arc<Recorder>,
}

/// A cache over volumes whose stores can fail, stall and lose unflushed data in a crash.
pub(super) struct TestBench {
    pub(super) cache: Cache<Plain>,
    pub(super) disks: Vec<Disk>,
    pub(super) now: Nanos,
    tokens: u64,
    /// Operations that the stores have received: volume, kind, first block, blocks.
    pub(super) ops: Vec<(usize, StoreOpKind, u64, u64)>,
}

pub(super) fn options(blocks: u64) -> VolumeOptions {
    let geometry = Geometry { length: blocks * BLOCK, granule: 512, read_only: false };
    VolumeOptions::new("v", geometry)
}

pub(super) fn tuned(blocks: u64, values: &[(&str, u64)]) -> VolumeOptions {
    let mut options = options(blocks);
    for (name, value) in values {
        options.tunables.set(name, *value).unwrap();
    }
    options
}

impl TestBench {
    pub(super) fn new(frames: u32, volumes: impl IntoIterator<Item = VolumeOptions>) -> Self {
        let cache = Cache::new(PlainFrames::new(frames), 1);
        let disk = |options: VolumeOptions| {
            let crash = CrashStore::new(options.geometry, SparseBytes::default(), 1);
            let platter = crash.disk();
            let delay = DelayStore::new(crash, 0);
            let (stall, plan) = (delay.stall_switch(), FaultPlan::default());
            let store = Box::new(FaultyStore::new(delay, plan.clone()));
            let volume = cache.add_volume(options, Box::new(NoWaker));
            let recorder = cache.recorder(&volume);
            Disk { volume, store, platter, plan, stall, recorder }
        };
        let disks = volumes.into_iter().map(disk).collect();
        TestBench { cache, disks, now: SECOND, tokens: 0, ops: Vec::new() }
    }

    pub(super) fn handle(&self, disk: usize) -> VolumeHandle<Plain> {
        let volume = &self.disks[disk].volume;
        open_handle(&self.cache, volume, Box::new(NoWaker)).unwrap()
    }

    pub(super) fn token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    /// Submits operations to the stores and processes their completions, until there is no
    /// progress.
    pub(super) fn run(&mut self) {
        loop {
            let mut has_progress = false;
            for (index, disk) in self.disks.iter_mut().enumerate() {
                let (mut ops, mut done) = (Vec::new(), Vec::new());
                self.cache.poll(&disk.volume, &disk.recorder, self.now, 16, &mut ops);
                for op in ops {
                    self.ops.push((index, op.kind, op.offset / BLOCK, op.len / BLOCK));
                    disk.store.submit(self.now, self.cache.frames(), op);
                }
                disk.store.reap(self.now, self.cache.frames(), &mut done);
                for done in done {
                    has_progress = true;
                    self.cache.complete(&disk.volume, &disk.recorder, self.now, done);
                }
            }
            if !has_progress {
                return;
            }
        }
    }

    pub(super) fn run_until(&mut self, end: Nanos) {
        while self.now < end {
            self.now += 10 * MILLISECOND;
            self.run();
        }
    }

    /// Writes `byte` to all bytes of `blocks`. Returns the status when there is no more progress.
    pub(super) fn try_write(
        &mut self,
        handle: &mut VolumeHandle<Plain>,
        blocks: [u64; 2],
        byte: u8,
        fua: bool,
    ) -> Status {
        let len = u32::try_from(blocks[1] * BLOCK).unwrap();
        let data = vec![byte; len as usize];
        let mut write = WriteRequest::new(self.token(), blocks[0] * BLOCK, len, fua);
        let status =
            self.cache.write(&Arc::clone(&handle.volume), handle, self.now, &mut write, &data);
        self.finish_write(handle, &mut write, &data, status)
    }

    /// Continues a write until it is complete or there is no more progress.
    pub(super) fn finish_write(
        &mut self,
        handle: &mut VolumeHandle<Plain>,
        write: &mut WriteRequest,
        data: &[u8],
        mut status: Status,
    ) -> Status {
        while matches!(status, Status::Pending | Status::Stalled) {
            self.run();
            let mut completions = Vec::new();
            handle.completions.collect(&mut completions);
            if completions.is_empty() {
                return status;
            }
            for completion in completions {
                status = match completion {
                    Completion::Unstalled if status != Status::Stalled => continue,
                    Completion::Unstalled => {
                        self.cache.write(&Arc::clone(&handle.volume), handle, self.now, write, data)
                    }
                    Completion::Continue { pins, .. } => {
                        self.unpin(pins);
                        self.cache.write(&Arc::clone(&handle.volume), handle, self.now, write, data)
                    }
                    other => self.cache.write_completed(handle, self.now, write, other),
                };
            }
        }
        status
    }

    pub(super) fn unpin(&self, pins: Vec<PlainPin>) {
        for pin in pins {
            self.cache.frames().unpin(pin);
        }
    }

    pub(super) fn write(&mut self, handle: &mut VolumeHandle<Plain>, block: u64, byte: u8) {
        let status = self.try_write(handle, [block, 1], byte, false);
        assert!(matches!(status, Status::Done | Status::DoneAt(_)), "{status:?}");
    }

    /// Starts reads, then runs the stores. Returns the first byte of each, or its error.
    pub(super) fn reads(
        &mut self,
        handle: &mut VolumeHandle<Plain>,
        blocks: &[[u64; 2]],
    ) -> Vec<Result<u8, StoreError>> {
        let mut pending = HashMap::new();
        let mut ended = Vec::new();
        for (index, [block, count]) in blocks.iter().enumerate() {
            let len = u32::try_from(count * BLOCK).unwrap();
            let mut read = ReadRequest::new(self.token(), block * BLOCK, len);
            let status = self.cache.read(handle, self.now, &mut read);
            ended.push((index, status, read.token));
            pending.insert(read.token, read);
        }
        self.run();
        let mut completions = Vec::new();
        handle.completions.collect(&mut completions);
        for completion in completions {
            let (Completion::Filled { token, .. } | Completion::Failed { token, .. }) = &completion
            else {
                continue;
            };
            let token = *token;
            let status =
                pending.get_mut(&token).unwrap().apply_completion(self.cache.frames(), completion);
            ended.iter_mut().find(|end| end.2 == token).unwrap().1 = status;
        }
        let mut answer = |(_, status, token)| {
            let mut read = pending.remove(&token).unwrap();
            match status {
                Status::Failed(error) => Err(error),
                Status::Done => {
                    let mut bytes = vec![0; read.len as usize];
                    read.copy_to(self.cache.frames(), &mut bytes);
                    read.release(self.cache.frames());
                    Ok(bytes[0])
                }
                other => panic!("a read is {other:?}"),
            }
        };
        ended.into_iter().map(&mut answer).collect()
    }

    pub(super) fn read(
        &mut self,
        handle: &mut VolumeHandle<Plain>,
        block: u64,
    ) -> Result<u8, StoreError> {
        self.reads(handle, &[[block, 1]]).remove(0)
    }

    /// Flushes the volume. Returns `None` if the flush does not complete.
    pub(super) fn flush(
        &mut self,
        handle: &mut VolumeHandle<Plain>,
    ) -> Option<Result<(), StoreError>> {
        let token = self.token();
        assert_eq!(self.cache.flush(handle, self.now, token, false), Status::Pending);
        self.run();
        Self::finished(handle)
    }

    pub(super) fn finished(handle: &VolumeHandle<Plain>) -> Option<Result<(), StoreError>> {
        let mut completions = Vec::new();
        handle.completions.collect(&mut completions);
        completions.into_iter().find_map(|completion| match completion {
            Completion::Finished { result, .. } => Some(result),
            _ => None,
        })
    }

    pub(super) fn stored(&self, disk: usize, block: u64) -> u8 {
        let mut byte = [0];
        self.disks[disk].platter.lock().unwrap().current().read(block * BLOCK, &mut byte);
        byte[0]
    }

    pub(super) fn gauge(&self, gauge: Gauge) -> u64 {
        self.cache.gauge(&self.disks[0].volume, gauge)
    }

    pub(super) fn writes(&self) -> Vec<(u64, u64)> {
        let is_write = |kind| matches!(kind, StoreOpKind::Write { .. });
        let writes = self.ops.iter().filter(|op| is_write(op.1));
        writes.map(|&(_, _, block, count)| (block, count)).collect()
    }
}
