//! Addition and removal of volumes while others serve.
//!
//! A removal has two steps. First the volume is *closed*, if no session uses it and it is at rest:
//! it accepts no requests from then on, so the driver of its store may stop. Then it is *removed*:
//! its pages are dropped shard by shard. Its number is reused only when no frame is charged to it,
//! since frames that slow readers still pin record the volume that they are charged to.

use super::Cache;
use crate::clock::Nanos;
use crate::completion::{Ring, Wake};
use crate::frames::Frames;
use crate::input::Input;
use crate::settings::{SettingError, check_bounds};
use crate::shard::Instance;
use crate::sync::{Arc, lock};
use crate::volume::VolumeHandle;
use crate::volume::{LENGTH_MAX, NO_VOLUME, Volume, VolumeOptions};

impl<F: Frames> Cache<F> {
    /// Adds a volume, as [`Cache::try_add_volume`] does.
    ///
    /// # Panics
    /// If the options are refused.
    pub fn add_volume(&self, options: VolumeOptions, waker: Box<dyn Wake>) -> Arc<Volume<F>> {
        match self.try_add_volume(options, waker) {
            Ok(volume) => volume,
            Err(error) => panic!("{error}"),
        }
    }

    /// Adds a volume. `waker` wakes the driver of its store.
    ///
    /// # Errors
    /// If the page size is invalid, the length of the store is 0 or more than [`LENGTH_MAX`], the
    /// floors of all volumes do not fit, or there are too many volumes.
    pub fn try_add_volume(
        &self,
        options: VolumeOptions,
        waker: Box<dyn Wake>,
    ) -> Result<Arc<Volume<F>>, SettingError> {
        let _logged = self.log.add(|| Input::AddVolume { options: options.clone() });
        let length = options.geometry.length;
        if length == 0 || length > LENGTH_MAX {
            return Err(SettingError::Length { volume: options.name, length });
        }
        let _one_at_a_time = lock(&self.settings);
        let others = self.volumes();
        let all_bounds =
            others.iter().map(|volume| volume.frame_bounds()).chain([options.frame_bounds()]);
        check_bounds(all_bounds, self.pool.target())?;
        let policy = options.policy;
        let volume = {
            let mut volumes = lock(&self.pool.volumes);
            let is_unused = |place: &Option<Arc<Volume<F>>>| {
                place.as_ref().is_none_or(|volume| volume.is_forgotten())
            };
            let index = volumes.iter().position(is_unused).unwrap_or(volumes.len());
            let Some(id) = u16::try_from(index).ok().filter(|&id| id < NO_VOLUME) else {
                return Err(SettingError::TooManyVolumes { volume: options.name });
            };
            let parts = self.shards.len();
            let (tracker, all) = (self.tracker_for(id, &options), Arc::clone(&self.pool.all));
            let volume =
                Arc::new(Volume::new(id, options, all, parts, tracker, waker, self.log.clone()));
            if index == volumes.len() {
                volumes.push(None);
            }
            volumes[index] = Some(Arc::clone(&volume));
            volume
        };
        let place = usize::from(volume.id);
        for (index, mut shard) in self.shards.each().enumerate() {
            if shard.instances.len() <= place {
                shard.instances.resize_with(place + 1, || None);
            }
            let instance = Instance::new(index, Arc::clone(&volume), policy.build());
            shard.instances[place] = Some(instance);
        }
        self.update_capacities();
        self.maintenance.wake();
        Ok(volume)
    }

    /// Returns all volumes.
    #[must_use]
    pub fn volumes(&self) -> Vec<Arc<Volume<F>>> {
        let volumes = lock(&self.pool.volumes);
        volumes.iter().flatten().filter(|volume| !volume.is_removed()).cloned().collect()
    }

    /// Makes the shards drain these rings, one each.
    pub(crate) fn add_rings(&self, rings: &[Arc<Ring>]) {
        for (mut shard, ring) in self.shards.each().zip(rings) {
            shard.rings.push(Arc::clone(ring));
        }
    }

    pub(crate) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Closes a handle. Operations for which it waited continue without it.
    pub(crate) fn close_handle(&self, handle: VolumeHandle<F>) {
        for (mut shard, ring) in self.shards.each().zip(&handle.rings) {
            shard.rings.retain(|other| !Arc::ptr_eq(other, ring));
        }
        handle.completions.close(&self.frames);
        handle.volume.recorders.remove(&handle.recorder);
        self.pool.give_back(&handle.volume, handle.spare);
        handle.volume.lifecycle.remove_handle();
    }

    /// Closes a volume: no handle can be opened any more, and its store gets no more operations.
    /// The caller removes it with [`Cache::remove_volume`].
    ///
    /// # Errors
    /// If it is closed already, handles are open, or it is not at rest. The volume continues to
    /// serve then.
    pub fn close_volume(&self, volume: &Volume<F>) -> Result<(), SettingError> {
        let _logged = self.log.add(|| Input::CloseVolume { volume: volume.id });
        let _one_at_a_time = lock(&self.settings);
        volume.lifecycle.close(volume.name())?;
        if self.is_at_rest(volume) {
            return Ok(());
        }
        volume.lifecycle.reopen();
        let unclean = u32::try_from(volume.unclean_blocks()).unwrap_or(u32::MAX);
        Err(SettingError::NotAtRest { volume: volume.name().to_owned(), unclean })
    }

    /// Removes a closed volume and drops all its pages. The driver of its store must have stopped.
    ///
    /// # Panics
    /// If the volume is not closed.
    pub fn remove_volume(&self, volume: &Volume<F>, now: Nanos) {
        let _logged = self.log.add(|| Input::RemoveVolume { volume: volume.id, now });
        let _one_at_a_time = lock(&self.settings);
        assert!(volume.lifecycle.is_closed(), "a volume was removed that is not closed");
        for mut shard in self.shards.each() {
            shard.drain(now);
            let place = &mut shard.instances[usize::from(volume.id)];
            let mut instance = place.take().expect("a volume is removed once");
            for slot in instance.pages.slots().collect::<Vec<_>>() {
                self.drop_page(&mut instance, slot);
            }
        }
        volume.note_removed();
        self.release_tracker_bytes(volume);
        self.update_capacities();
        self.unstall();
        self.maintenance.wake();
    }
}
