//! A store that stalls until the test resumes it.

use super::rig::Memory;
use larder_core::request::{Request, RequestOp};
use larder_core::store::{DelayStore, Store};
use larder_io::engine::{ArenaVolume, Engine};
use larder_io::frames::ArenaFrames;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Switch that resumes the store.
pub(crate) struct Stalled(Arc<AtomicBool>);

/// Returns a store of `length` bytes that stalls, and its switch.
pub(crate) fn stalled(length: u64) -> (impl Store<ArenaFrames>, Stalled) {
    let store = DelayStore::new(Memory::new(length), 0);
    let switch = store.stall_switch();
    switch.store(true, Ordering::Release);
    (store, Stalled(switch))
}

impl Stalled {
    /// Resumes the store. Its thread notices that at the next request, which this function submits.
    pub(crate) fn resume(self, engine: &Engine, volume: &Arc<ArenaVolume>) {
        self.0.store(false, Ordering::Release);
        let mut session = engine.blocking_session(volume).expect("the volume is open");
        session.start_flush(Request::new(RequestOp::Flush, 0..0));
    }
}
