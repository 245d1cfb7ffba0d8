//! The maintenance thread: it applies changes of memory and limits in the background, in small
//! steps.

use super::ArenaCache;
use crate::fault::{self, Thread};
use crate::waker::Waker;
use larder_core::clock::Clock;
use larder_core::completion::Wake;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pause between two steps; requests of clients take precedence.
const PAUSE: Duration = Duration::from_millis(1);
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// A running maintenance thread, which ends when this is dropped.
pub(super) struct MaintenanceThread {
    quit: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<Thread>,
}

impl MaintenanceThread {
    pub(super) fn start(cache: Arc<ArenaCache>, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let waker = Waker::new()?;
        let quit = Arc::new(AtomicBool::new(false));
        cache.set_maintenance_waker(Box::new(waker.clone()));
        let (waker_inside, quit_inside) = (waker.clone(), Arc::clone(&quit));
        let cache_inside = Arc::clone(&cache);
        let work = move || run(&cache_inside, &*clock, &waker_inside, &quit_inside);
        // This thread works on state that all volumes share, which must not be used while
        // inconsistent.
        let thread = fault::spawn::<()>("maintenance", None, work, move |panic| {
            fault::end_process(&cache, panic)
        })?;
        Ok(MaintenanceThread { quit, waker, thread: Some(thread) })
    }
}

impl Drop for MaintenanceThread {
    fn drop(&mut self) {
        self.quit.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

fn run(cache: &ArenaCache, clock: &dyn Clock, waker: &Waker, quit: &AtomicBool) {
    while !quit.load(Ordering::Acquire) {
        fault::point("maintenance", "cache");
        let next = cache.run_maintenance(clock.now());
        let pause = next.map(|at| Duration::from_nanos(at.saturating_sub(clock.now())).max(PAUSE));
        if let Err(error) = waker.sleep(None, pause) {
            tracing::error!(%error, "the maintenance thread cannot wait");
            std::thread::sleep(AFTER_ERROR);
        }
    }
}
