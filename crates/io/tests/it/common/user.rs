//! A thread's blocking session on a volume, and random work with a known result.

use crate::common::Random;
use larder_core::request::{Request, RequestOp};
use larder_core::store::StoreError;
use larder_io::blocking::BlockingSession;
use larder_io::engine::{ArenaVolume, Engine};
use std::sync::Arc;

/// A thread's blocking session on a volume.
pub(crate) struct User(BlockingSession);

impl User {
    pub(crate) fn new(engine: &Engine, volume: &Arc<ArenaVolume>) -> Self {
        User(engine.blocking_session(volume).expect("the volume is open"))
    }

    pub(crate) fn read(&mut self, offset: u64, len: u32) -> Result<Vec<u8>, StoreError> {
        let request = Request::new(RequestOp::Read, offset..offset + u64::from(len));
        let mut bytes = Vec::new();
        self.0.submit(request, &[], |frames, read| {
            let at = bytes.len();
            bytes.resize(at + read.len as usize, 0);
            read.copy_to(frames, &mut bytes[at..]);
        })?;
        Ok(bytes)
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8], fua: bool) -> Result<(), StoreError> {
        let range = offset..offset + bytes.len() as u64;
        let request = Request { fua, ..Request::new(RequestOp::Write, range) };
        self.0.submit(request, bytes, |_, _| {})
    }

    pub(crate) fn flush(&mut self) -> Result<(), StoreError> {
        self.0.submit(Request::new(RequestOp::Flush, 0..0), &[], |_, _| {})
    }

    pub(crate) fn close(self) {
        drop(self.0);
    }
}

/// Runs random requests in one part of a volume, and compares them with a vector of bytes. Returns
/// the content at the end.
pub(crate) fn work(user: &mut User, base: u64, len: usize, seed: u64) -> Vec<u8> {
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
