//! The settings of a volume that its users read and change while it serves.

use super::Volume;
use crate::frames::Frames;
use crate::hint::Hint;
use crate::input::{Input, LogGuard, Setting};
use crate::mode::{FlushMode, WriteMode};
use crate::policy::PolicyKind;
use crate::settings::{FrameBounds, SettingError};
use crate::tunables::Tunables;
use crate::units::BLOCK_BYTES_U64;

impl<F: Frames> Volume<F> {
    pub(crate) fn log_setting(&self, setting: impl FnOnce() -> Setting) -> Option<LogGuard<'_>> {
        self.log.add(|| Input::Set { volume: self.id, setting: setting() })
    }

    /// Returns the write mode in effect.
    #[must_use]
    pub fn write_mode(&self) -> WriteMode {
        self.effective(self.config.write_mode.get())
    }

    /// Sets the write mode for requests that begin from now on. Dirty data stays dirty and is
    /// written as before, even in a mode that makes no data dirty.
    ///
    /// # Errors
    /// If the store is read-only and the mode is not [`WriteMode::ReadOnly`].
    pub fn set_write_mode(&self, mode: WriteMode) -> Result<(), SettingError> {
        if self.geometry.read_only && mode != WriteMode::ReadOnly {
            return Err(SettingError::ReadOnlyStore { volume: self.name.clone() });
        }
        let _logged = self.log_setting(|| Setting::WriteMode(mode));
        self.config.write_mode.set(mode);
        Ok(())
    }

    /// Returns the flush mode.
    #[must_use]
    pub fn flush_mode(&self) -> FlushMode {
        self.config.flush_mode.get()
    }

    /// Sets the flush mode for requests that begin from now on. The first flush in mode `keep` also
    /// covers data that was written while flushes were ignored.
    pub fn set_flush_mode(&self, mode: FlushMode) {
        let _logged = self.log_setting(|| Setting::FlushMode(mode));
        self.config.flush_mode.set(mode);
        self.waker.wake();
    }

    /// Sets the access pattern of requests without a hint, from the next request on.
    pub fn set_hint(&self, hint: Hint) {
        let _logged = self.log_setting(|| Setting::Hint(hint));
        self.config.hint.set(hint);
    }

    /// Returns the present values of all tunables.
    #[must_use]
    pub fn tunables(&self) -> Tunables {
        self.config.tunables.snapshot()
    }

    /// Sets a tunable by name, in its own unit.
    ///
    /// # Errors
    /// If no tunable has this name or the value is out of its range.
    pub fn set_tunable(&self, name: &str, value: u64) -> Result<(), SettingError> {
        let _logged = self.log_setting(|| Setting::Tunable { name: name.to_owned(), value });
        self.config.tunables.set(name, value)?;
        self.waker.wake();
        Ok(())
    }

    /// Returns the replacement policy.
    #[must_use]
    pub fn policy(&self) -> PolicyKind {
        self.config.policy.get()
    }

    /// Returns true if the cache may switch to a policy with more hits.
    #[must_use]
    pub fn policy_auto(&self) -> bool {
        self.config.policy_auto()
    }

    /// Sets if the cache may switch to a policy with more hits.
    pub fn set_policy_auto(&self, auto: bool) {
        let _logged = self.log_setting(|| Setting::PolicyAuto(auto));
        self.config.set_policy_auto(auto);
    }

    /// Returns the bytes in a page.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        u64::from(self.page_blocks()) * BLOCK_BYTES_U64
    }

    /// Returns true if a change of the page size is pending.
    #[must_use]
    pub fn is_regrouping(&self) -> bool {
        self.config.page_size.is_changing()
    }

    /// Returns the minimum number of frames, which other volumes cannot take, and the maximum.
    #[must_use]
    pub fn bounds(&self) -> (u32, u32) {
        (self.quota.min(), self.quota.max())
    }

    pub(crate) fn frame_bounds(&self) -> FrameBounds<'_> {
        let (min, max) = self.bounds();
        let page_blocks = self.config.page_size.requested().unwrap_or_else(|| self.page_blocks());
        FrameBounds { name: &self.name, min, max, page_blocks }
    }

    /// Returns true if the volume is frozen.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.lifecycle.is_frozen()
    }

    /// Makes writes write-through from now on, so that the number of dirty blocks only falls.
    pub fn begin_stop(&self) {
        let _logged = self.log_setting(|| Setting::Stopping(true));
        self.lifecycle.set_stopping(true);
        self.waker.wake();
    }

    /// Cancels [`Volume::begin_stop`].
    pub fn cancel_stop(&self) {
        let _logged = self.log_setting(|| Setting::Stopping(false));
        self.lifecycle.set_stopping(false);
    }
}
