//! Changes while serving that involve more than the cache: memory in bytes with all its tables, and
//! volumes with the threads that drive their stores.

use super::{ArenaVolume, Engine, EngineError, StopProgress, check_memory, frames_in};
use crate::fault;
use larder_core::cache::METADATA_BYTES_PER_FRAME;
use larder_core::curve::candidates::CANDIDATES;
use larder_core::curve::choice::policy_bytes;
use larder_core::policy::PolicyKind;
use larder_core::settings::SettingError;
use larder_core::store::{StoreError, StoreErrorKind};
use larder_core::units::BLOCK_BYTES_U64;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Minimum memory for data: two of the largest requests.
pub(super) const DATA_BYTES_MIN: u64 = 4 << 20;

/// A reason why a volume was not removed. It continues to serve.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// Some data is not written, or the caller canceled the operation: one sentence for the store.
    #[error("remove {volume}: {reason}")]
    NotWritten {
        /// The volume.
        volume: String,
        /// The reason.
        reason: String,
    },
    /// The cache refuses the removal: the volume is in use, not clean, or already removed.
    #[error(transparent)]
    Refused(#[from] SettingError),
}

impl Engine {
    /// Sets the memory for frames and their metadata, in bytes. The call checks the value; the
    /// cache reaches it in the background, and [`larder_core::cache::Cache::memory`] reports the
    /// progress.
    ///
    /// Tables that a larger size needed earlier stay, 3 to 5 % of that size, and are counted: a
    /// cache that has shrunk has that much less for data than one that was never larger.
    ///
    /// # Errors
    /// If it is less than the minimum, more than the machine has, or not enough for these tables or
    /// the floors of the volumes.
    pub fn set_memory(&self, bytes: u64) -> Result<(), EngineError> {
        check_memory(bytes)?;
        let mut plan = self.plan();
        let in_force = bytes.min(plan.limit);
        self.set_frames(in_force, plan.policy_bytes)?;
        plan.memory_bytes = bytes;
        self.cache.note_given_back(bytes - in_force);
        Ok(())
    }

    /// Returns the requested memory in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.plan().memory_bytes
    }

    /// Returns the number of frames for data in `bytes`, after all tables, present and future.
    pub(super) fn frames_for(&self, bytes: u64, policy_bytes: usize) -> u32 {
        let frames = frames_in(bytes, policy_bytes);
        if frames >= self.cache.frames_ever() {
            return frames;
        }
        let left = bytes.saturating_sub(self.table_bytes(policy_bytes)) / BLOCK_BYTES_U64;
        u32::try_from(left).expect("fewer than in all of it")
    }

    /// Sets the frames of the cache to those for data in `bytes`, after all tables.
    pub(super) fn set_frames(&self, bytes: u64, policy_bytes: usize) -> Result<(), EngineError> {
        let frames = self.frames_for(bytes, policy_bytes);
        if u64::from(frames) * BLOCK_BYTES_U64 < DATA_BYTES_MIN {
            let least = self.table_bytes(policy_bytes) + DATA_BYTES_MIN;
            return Err(EngineError::TooLittleForTables { requested: bytes, least });
        }
        Ok(self.cache.set_memory(frames)?)
    }

    /// Returns the bytes of the tables for the largest number of frames so far.
    pub(super) fn table_bytes(&self, policy_bytes: usize) -> u64 {
        u64::from(self.cache.frames_ever()) * (METADATA_BYTES_PER_FRAME + policy_bytes) as u64
    }

    /// Replaces the policy of a volume; the new one stays until the next call. A policy with more
    /// metadata leaves less memory for data, and vice versa.
    ///
    /// # Errors
    /// If the remaining memory is not enough for the floors of the volumes.
    pub fn set_policy(&self, volume: &ArenaVolume, kind: PolicyKind) -> Result<(), EngineError> {
        self.make_room_for(volume, kind.bytes_per_page())?;
        volume.set_policy_auto(false);
        self.cache.set_policy(volume, kind, self.now());
        Ok(())
    }

    /// Lets the cache choose the policy of a volume, and change it when another one hits clearly
    /// more. Until then the present policy stays; one that is not a candidate is replaced by the
    /// first of [`CANDIDATES`]. Each frame has room for the candidate with the most metadata.
    ///
    /// # Errors
    /// If the remaining memory is not enough for the floors of the volumes.
    pub fn set_policy_auto(&self, volume: &ArenaVolume) -> Result<(), EngineError> {
        self.make_room_for(volume, policy_bytes(volume.policy(), true))?;
        if !CANDIDATES.contains(&volume.policy()) {
            self.cache.set_policy(volume, CANDIDATES[0], self.now());
        }
        volume.set_policy_auto(true);
        Ok(())
    }

    /// Resizes the cache so that each frame has `bytes` for the policy of a volume, and as many as
    /// before for the policies of the others.
    fn make_room_for(&self, volume: &ArenaVolume, bytes: usize) -> Result<(), EngineError> {
        let mut plan = self.plan();
        let others = self.cache.volumes().into_iter().filter(|other| other.name() != volume.name());
        let others = others.map(|other| policy_bytes(other.policy(), other.policy_auto()));
        let policy_bytes = others.chain([bytes]).max().expect("at least this one");
        self.set_frames(plan.in_force(), policy_bytes)?;
        plan.policy_bytes = policy_bytes;
        Ok(())
    }

    /// Gives up the unwritten data of a volume: later writes are discarded, and reads of the store
    /// fail. The caller then calls [`Engine::remove_volume`].
    pub fn give_up_volume(&self, volume: &Arc<ArenaVolume>) {
        self.give_up(volume, || {});
    }

    /// Gives up the unwritten data of a volume while a stop writes it: requests of its clients fail
    /// from now on, and the stop continues without the data.
    pub fn give_up_volume_at_stop(&self, volume: &Arc<ArenaVolume>) {
        // The volume is broken first, so that no discarded write is acknowledged. A stop that sees
        // the broken volume waits for the list of drivers, and then sees that its data is given up.
        self.give_up(volume, || {
            let message = format!("use {}: its data was given up", volume.name());
            self.cache.break_volume(volume, StoreError::new(StoreErrorKind::Gone, message));
        });
    }

    /// Calls `prepare` with the list of drivers locked, then makes the volume's driver give up.
    fn give_up(&self, volume: &Arc<ArenaVolume>, prepare: impl FnOnce()) {
        let unwritten = fault::unwritten(&self.cache, volume);
        tracing::warn!(volume = volume.name(), "unwritten data is given up; {unwritten}");
        let drivers = self.drivers();
        if let Some(driver) = drivers.iter().find(|one| Arc::ptr_eq(&one.volume, volume)) {
            prepare();
            driver.give_up();
        }
    }

    pub(super) fn is_given_up(&self, volume: &Arc<ArenaVolume>) -> bool {
        let drivers = self.drivers();
        drivers.iter().any(|one| Arc::ptr_eq(&one.volume, volume) && one.is_given_up())
    }

    /// Writes and flushes all dirty data of a volume before its removal, and reports to `progress`
    /// several times a second. From then on the volume writes through.
    ///
    /// # Errors
    /// If `progress` breaks it off, or the store cannot be written to or flushed. The volume then
    /// serves as before.
    pub fn write_out_volume(
        &self,
        volume: &Arc<ArenaVolume>,
        mut progress: impl FnMut(&StopProgress) -> ControlFlow<()>,
    ) -> Result<(), RemoveError> {
        if volume.is_removed() {
            return Err(SettingError::Removed { volume: volume.name().to_owned() }.into());
        }
        let total_bytes = volume.unclean_bytes();
        volume.begin_stop();
        let written = self.drain_volume(volume, total_bytes, &mut progress);
        written.map_err(|reason| {
            volume.cancel_stop();
            RemoveError::NotWritten { volume: volume.name().to_owned(), reason }
        })
    }

    /// Removes a volume: writes it out as [`Engine::write_out_volume`], ends its thread and closes
    /// its store. Front ends close their sessions before; the call fails while a session is open.
    ///
    /// # Errors
    /// As for [`Engine::write_out_volume`], or if the volume is in use. The volume then serves as
    /// before.
    pub fn remove_volume(
        &self,
        volume: &Arc<ArenaVolume>,
        progress: impl FnMut(&StopProgress) -> ControlFlow<()>,
    ) -> Result<(), RemoveError> {
        self.write_out_volume(volume, progress)?;
        if let Err(error) = self.cache.close_volume(volume) {
            volume.cancel_stop();
            return Err(error.into());
        }
        let mut drivers = self.drivers();
        let place = drivers.iter().position(|driver| Arc::ptr_eq(&driver.volume, volume));
        let driver = drivers.swap_remove(place.expect("each volume of an engine has a driver"));
        drop(drivers);
        // Waits for the thread, which closes the store.
        drop(driver);
        self.cache.remove_volume(volume, self.now());
        Ok(())
    }
}
