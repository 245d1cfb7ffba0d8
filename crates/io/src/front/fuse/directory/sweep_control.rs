//! The control of the thread that looks for files without a name.

use std::sync::atomic::AtomicBool;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Pause between two sweeps.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct State {
    /// True if the kernel sends no requests any more.
    is_gone: bool,
    has_ended: bool,
}

/// Control of the thread.
#[derive(Debug, Default)]
pub(crate) struct SweepControl {
    state: Mutex<State>,
    changed: Condvar,
    /// True while a notification that makes the kernel forget nodes is queued or in progress.
    pub(super) is_pruning: AtomicBool,
}

impl SweepControl {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the mount is gone: no program can reach its files any more.
    pub(crate) fn set_gone(&self) {
        self.state().is_gone = true;
        self.changed.notify_all();
    }

    /// Ends the thread.
    pub(super) fn end(&self) {
        self.state().has_ended = true;
        self.changed.notify_all();
    }

    /// Waits for the next sweep; returns true if the mount is gone, or `None` at the end.
    pub(super) fn wait(&self, was_gone: bool) -> Option<bool> {
        let is_unchanged = |state: &mut State| !state.has_ended && state.is_gone == was_gone;
        let waited = self.changed.wait_timeout_while(self.state(), PAUSE, is_unchanged);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (!state.has_ended).then_some(state.is_gone)
    }
}
