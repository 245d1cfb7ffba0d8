//! Opening of handles. Only the request engine can do so, and the operations of the cache take a
//! handle: no other module can call them.

use crate::cache::Cache;
use crate::completion::{CompletionQueue, Ring, Wake};
use crate::frames::Frames;
use crate::readahead::StreamDetector;
use crate::settings::SettingError;
use crate::sync::Arc;
use crate::volume::{Volume, VolumeHandle};

/// Opens a handle on a volume. `waker` wakes its thread when completions have arrived.
///
/// # Errors
/// If the volume is closed or removed.
pub(super) fn open_handle<F: Frames>(
    cache: &Cache<F>,
    volume: &Arc<Volume<F>>,
    waker: Box<dyn Wake>,
) -> Result<VolumeHandle<F>, SettingError> {
    volume.lifecycle.add_handle(volume.name())?;
    let rings: Box<[_]> =
        (0..cache.shard_count()).map(|_| Arc::new(Ring::new(volume.id))).collect();
    cache.add_rings(&rings);
    Ok(VolumeHandle {
        volume: Arc::clone(volume),
        completions: Arc::new(CompletionQueue::new(waker, volume.dirty.resolved_errors())),
        rings,
        recorder: volume.recorders.add(),
        detector: StreamDetector::default(),
        spare: Vec::new(),
        is_gathering: false,
    })
}
