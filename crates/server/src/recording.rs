//! Recording files, of requests and of inputs: created before the server accepts requests, and
//! reported with the number of records when it stops.

use crate::record::Recording;
use anyhow::{Context, Result, bail};
use larder_core::input::InputSink;
use larder_io::engine::{ArenaVolume, Engine};
use larder_io::fault::report_failed_part;
use larder_io::front::observe::Observer;
use larder_io::owned_file::{CreatedFile, FileError};
use larder_lab::inputs;
use larder_schema::format;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

struct RecordingFile {
    file: CreatedFile,
    path: PathBuf,
}

impl RecordingFile {
    /// Creates the file, which must not exist yet. Also returns it open for writing.
    fn create(path: &Path) -> Result<(Self, File)> {
        let context = || format!("record to {}", path.display());
        let (file, opened) = match CreatedFile::create(path, 0o644) {
            Err(FileError::System(error)) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                bail!("{}: it exists already; remove it, or name another file", context());
            }
            created => created.with_context(context)?,
        };
        Ok((RecordingFile { file, path: path.to_owned() }, opened))
    }

    /// Removes the file of a server that has not started: the next start would refuse it.
    fn remove(&self) {
        if let Err(error) = self.file.remove() {
            tracing::warn!(
                path = %self.path.display(),
                %error,
                "cannot remove the file of an unused recording; remove it before the next start"
            );
        }
    }
}

/// A recording of requests, and its file.
pub(super) struct RequestRecording {
    recording: Recording,
    file: RecordingFile,
}

impl RequestRecording {
    /// Starts a recording of the requests for these volumes into a new file.
    pub(super) fn start(path: &Path, engine: &Engine, names: Vec<String>) -> Result<Self> {
        let (file, opened) = RecordingFile::create(path)?;
        let shown = path.display().to_string();
        let warn = move |error: &dyn std::fmt::Display| {
            let effect = format!("recording to {shown} has stopped; its volumes are still served");
            report_failed_part(&effect, error);
        };
        match Recording::start(opened, names, engine.clock(), warn) {
            Ok(recording) => Ok(RequestRecording { recording, file }),
            Err(error) => {
                file.remove();
                Err(error).with_context(|| format!("record to {}", path.display()))
            }
        }
    }

    /// Returns the observer that the server notifies of requests.
    pub(super) fn observer(&self) -> Arc<dyn Observer> {
        self.recording.observer()
    }

    /// Ends a recording whose server has not started, and removes its file.
    pub(super) fn discard(self) {
        // The file is removed even if its end cannot be written.
        drop(self.recording.finish());
        self.file.remove();
    }

    /// Ends a recording and prints its summary. An error does not make the server fail.
    pub(super) fn finish(self) {
        let path = self.file.path.display();
        match self.recording.finish() {
            Ok(recorded) => {
                let requests = format::count(recorded.requests);
                eprintln!("larder: recorded {requests} requests in {path}");
                if recorded.lost > 0 {
                    let lost = format::count(recorded.lost);
                    eprintln!("larder: {lost} more were answered too fast to be recorded");
                }
            }
            Err(error) => {
                eprintln!("larder: {path} is incomplete: recording stopped early: {error}");
            }
        }
    }
}

/// A log of the cache's inputs, and its file.
pub(super) struct InputRecording {
    writer: inputs::InputLogWriter,
    file: RecordingFile,
}

impl InputRecording {
    pub(super) fn start(path: &Path) -> Result<Self> {
        let (file, opened) = RecordingFile::create(path)?;
        Ok(InputRecording { writer: inputs::InputLogWriter::new(Box::new(opened)), file })
    }

    /// Returns the sink to which the cache writes its inputs.
    pub(super) fn log(&self) -> Box<dyn InputSink> {
        self.writer.log()
    }

    /// Removes the file of a log whose server has not started.
    pub(super) fn discard(&self) {
        self.file.remove();
    }

    /// Ends the log after all sessions and stores are closed, and prints the number of inputs.
    pub(super) fn finish(&self, volumes: &[Arc<ArenaVolume>]) {
        let path = self.file.path.display();
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
