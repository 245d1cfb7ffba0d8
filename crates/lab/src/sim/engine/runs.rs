//! Several simulations of the whole cache over one trace, on threads.

use super::{
    CacheSimulationError, CacheSimulationOptions, CacheSimulationResult, VolumeLengths, simulate,
};
use crate::trace::{BoxedSource, TraceError};
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

/// Interval of progress reports.
const TICK: Duration = Duration::from_millis(100);

/// Runs the simulations of a plan over the trace that `open` opens, and returns their results in
/// the order of the plan. `progress` receives the number of simulated requests from time to time.
///
/// # Errors
/// The trace cannot be read or simulated.
///
/// # Panics
/// If a simulation panics.
pub fn simulate_all(
    open: &(dyn Fn() -> Result<BoxedSource, TraceError> + Sync),
    lengths: &VolumeLengths,
    plan: &[CacheSimulationOptions],
    threads: NonZero<usize>,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<CacheSimulationResult>, CacheSimulationError> {
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let outcomes = Mutex::new((0..plan.len()).map(|_| None).collect::<Vec<_>>());
    std::thread::scope(|scope| {
        let (running, all_finished) = mpsc::channel::<()>();
        for _ in 0..threads.get().min(plan.len()) {
            let running = running.clone();
            let (next, done, outcomes) = (&next, &done, &outcomes);
            scope.spawn(move || {
                let _running = running;
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(options) = plan.get(index) else { break };
                    let count = |requests| {
                        done.fetch_add(requests, Ordering::Relaxed);
                    };
                    let outcome = open()
                        .map_err(CacheSimulationError::from)
                        .and_then(|mut source| simulate(&mut source, lengths, options, count));
                    outcomes.lock().expect("no holder panics")[index] = Some(outcome);
                }
            });
        }
        drop(running);
        while all_finished.recv_timeout(TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
            progress(done.load(Ordering::Relaxed));
        }
    });
    let outcomes = outcomes.into_inner().expect("no holder panics");
    outcomes.into_iter().map(|outcome| outcome.expect("each was run")).collect()
}
