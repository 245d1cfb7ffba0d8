//! Recording files, of requests and of inputs: created before the server accepts requests, and
//! reported with the number of records when it stops.

use super::record::Recording;
use anyhow::{Context, Result, bail};
use larder_core::input::InputLog;
use larder_io::engine::{ArenaVolume, Engine};
use larder_io::fault::report_failed_part;
use larder_io::owned_file::{self, FileError};
use larder_lab::inputs;
use larder_report::format;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Begins a recording into a new file.
pub(super) fn start(path: &Path, engine: &Engine, names: Vec<String>) -> Result<Recording> {
    let file = create(path)?;
    let shown = path.display().to_string();
    let warn = move |error: &dyn std::fmt::Display| {
        let effect = format!("recording to {shown} has stopped; its volumes are still served");
        report_failed_part(&effect, error);
    };
    Recording::start(file, names, engine.clock(), warn)
        .with_context(|| format!("record to {}", path.display()))
}

/// Creates the file of a recording.
fn create(path: &Path) -> Result<File> {
    let what = || format!("record to {}", path.display());
    match owned_file::create_new(path, 0o644) {
        Err(FileError::System(error)) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{}: it exists already; remove it, or name another file", what());
        }
        file => file.with_context(what),
    }
}

/// A log of the cache's inputs, and its file.
pub(super) struct InputRecording {
    writer: inputs::Writer,
    path: PathBuf,
}

impl InputRecording {
    pub(super) fn start(path: &Path) -> Result<Self> {
        let writer = inputs::Writer::new(Box::new(create(path)?));
        Ok(InputRecording { writer, path: path.to_owned() })
    }

    /// Returns the sink to which the cache writes its inputs.
    pub(super) fn log(&self) -> Box<dyn InputLog> {
        self.writer.log()
    }

    /// Removes the file of a log whose server has not started.
    pub(super) fn discard(self) {
        remove(&self.path);
    }

    /// Ends the log after all sessions and stores are closed, and prints the number of inputs.
    pub(super) fn finish(&self, volumes: &[Arc<ArenaVolume>]) {
        let path = self.path.display();
        match self.writer.finish(volumes) {
            Ok(count) => {
                let count = format::count(count);
                eprintln!("larder: recorded {count} inputs in {path}");
            }
            Err(error) => {
                eprintln!("larder: {path} is incomplete: recording stopped early: {error}");
            }
        }
    }
}

/// Ends a recording whose server has not started, and removes its file.
pub(super) fn discard(recording: Recording, path: &Path) {
    // The file is removed even if its end cannot be written.
    drop(recording.finish());
    remove(path);
}

/// Removes the file of a recording whose server has not started: the next start would be refused.
fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::warn!(path = %path.display(), %error, "cannot remove the file of an unused recording; remove it before the next start");
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
