//! The failure state of a mount, which all its threads share.

use crate::fault::report_failed_part;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Failure state of a mount: after an internal error every request is refused with EIO.
#[derive(Debug, Default)]
pub(super) struct MountFailure {
    name: String,
    has_failed: AtomicBool,
}

impl MountFailure {
    pub(super) fn new(at: &Path) -> Self {
        MountFailure { name: at.display().to_string(), has_failed: AtomicBool::new(false) }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn fail(&self, error: &dyn fmt::Display) {
        let is_first = !self.has_failed.swap(true, Ordering::AcqRel);
        if is_first {
            report_failed_part(
                &format!(
                    "the mount has failed: every request to {} gets EIO; data accepted before is \
                     still written to the store; unmount it and mount it again",
                    self.name
                ),
                error,
            );
        } else {
            tracing::error!(mount = self.name, "another error of the failed mount: {error}");
        }
    }
}
