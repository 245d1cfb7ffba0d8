//! The file of a recording: made before anything is served, and what is said of it at the end.

use super::record::Recording;
use anyhow::{Context, Result, bail};
use larder_io::engine::Engine;
use larder_io::fault::report_failed_part;
use larder_io::owned_file::{self, FileError};
use larder_report::format;
use std::path::Path;

/// Begins a recording into a new file.
pub(super) fn start(path: &Path, engine: &Engine, names: Vec<String>) -> Result<Recording> {
    let what = || format!("record to {}", path.display());
    let file = match owned_file::create_new(path, 0o644) {
        Err(FileError::System(error)) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{}: it exists already; remove it, or name another file", what());
        }
        file => file.with_context(what)?,
    };
    let shown = path.display().to_string();
    let warn = move |error: &dyn std::fmt::Display| {
        let effect = format!("recording to {shown} has stopped; its volumes are still served");
        report_failed_part(&effect, error);
    };
    Recording::start(file, names, engine.clock(), warn).with_context(what)
}

/// Leaves nothing behind of a recording that never had a server.
pub(super) fn discard(recording: Recording, path: &Path) {
    let discarded = recording.finish().and_then(|_| std::fs::remove_file(path));
    if let Err(error) = discarded {
        tracing::warn!(path = %path.display(), %error, "an empty trace could not be removed");
    }
}

/// Says what was recorded. Volumes that were served well do not fail because of it.
pub(super) fn finish(recording: Recording, path: &Path) {
    let path = path.display();
    match recording.finish() {
        Ok(recorded) => {
            let requests = format::count(recorded.requests);
            eprintln!("larder: recorded {requests} requests in {path}");
            if recorded.lost > 0 {
                let lost = format::count(recorded.lost);
                eprintln!("larder: {lost} more were answered too fast to be recorded");
            }
        }
        Err(error) => eprintln!("larder: {path} is not whole: recording stopped early: {error}"),
    }
}
