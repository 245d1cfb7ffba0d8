//! The handle of a thread on a volume.

use super::Volume;
use crate::completion::{Completion, CompletionQueue, Ring};
use crate::counters::Recorder;
use crate::frames::{FrameId, Frames};
use crate::readahead::Detector;
use crate::sync::Arc;

/// The handle of one thread on one volume. Only the request engine opens it; close it with
/// `Cache::close_handle`.
#[derive(Debug)]
pub(crate) struct VolumeHandle<F: Frames> {
    pub(crate) volume: Arc<Volume<F>>,
    pub(crate) completions: Arc<CompletionQueue<F>>,
    pub(crate) rings: Box<[Arc<Ring>]>,
    pub(crate) recorder: Arc<Recorder>,
    /// The sequential and strided streams of its client.
    pub(crate) detector: Detector,
    /// Frames taken from the pool for the current request.
    pub(crate) spare: Vec<FrameId>,
}

impl<F: Frames> VolumeHandle<F> {
    /// Returns the counters of the handle.
    #[must_use]
    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Moves all completions to `to`.
    pub(crate) fn collect(&self, to: &mut Vec<Completion<F>>) {
        self.completions.collect(to);
    }

    /// Returns true if [`VolumeHandle::collect`] would move a completion.
    #[must_use]
    pub(crate) fn has_completions(&self) -> bool {
        self.completions.has_completions()
    }

    /// Releases the memory that many completions have taken.
    pub(crate) fn shrink(&self) {
        self.completions.shrink();
    }
}
