//! Traces that are written: under another name first, renamed when whole; or to standard output.

use anyhow::{Context, Result, ensure};
use larder_lab::trace::{Addressing, Record, Sink, Source, Target};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use tempfile::NamedTempFile;

/// Set by the first signal that asks for an end; the file under its other name is removed then.
static STOPPED: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| {
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // Whoever cannot be told of a signal is ended by it, as without us.
        if let Err(error) = signal_hook::flag::register(signal, stopped.clone()) {
            tracing::warn!("cannot receive signal {signal}: {error}");
        }
    }
    stopped
});

/// The format with this name.
pub(super) fn target(text: &str) -> Result<Target, String> {
    Target::from_name(text).ok_or_else(|| {
        let names: Vec<_> = Target::ALL.iter().map(|target| target.name()).collect();
        format!("\"{text}\" is not a format that can be written; there are {}", names.join(", "))
    })
}

/// A trace being written.
pub(super) struct Output {
    sink: Box<dyn Sink>,
    /// Under which name it is, and which it gets; none on standard output.
    file: Option<(NamedTempFile, PathBuf)>,
}

impl Output {
    /// Begins a trace in a file, or on standard output for `-`. The format is the one that is
    /// given, else that of the name, else our own.
    pub(super) fn create(
        path: &Path,
        target: Option<Target>,
        addressing: Addressing,
    ) -> Result<Self> {
        let name = path.to_string_lossy();
        let target = target.or_else(|| Target::from_file_name(&name)).unwrap_or(Target::Larder);
        if path == Path::new("-") {
            let sink = target.begin(Stdout, addressing)?;
            return Ok(Output { sink, file: None });
        }
        LazyLock::force(&STOPPED);
        let what = || format!("write {}", path.display());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        ensure!(!path.is_dir(), "write {}: it is a directory", path.display());
        let file = tempfile::Builder::new()
            .prefix(".larder-")
            .suffix(".part")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .tempfile_in(folder)
            .with_context(what)?;
        let writer: File = file.reopen().with_context(what)?;
        let sink = target.begin(writer, addressing).with_context(what)?;
        Ok(Output { sink, file: Some((file, path.to_owned())) })
    }

    /// Appends records of `source`.
    pub(super) fn append(&mut self, records: &[Record], source: &dyn Source) -> Result<()> {
        ensure!(
            self.file.is_none() || !STOPPED.load(Ordering::Relaxed),
            "write the trace to its end: it was interrupted, and nothing is left of it"
        );
        Ok(self.sink.append(records, source)?)
    }

    /// Ends the trace and gives it its name.
    pub(super) fn finish(self, source: &dyn Source) -> Result<()> {
        self.sink.finish(source)?;
        if let Some((file, path)) = self.file {
            let what = || format!("write {}", path.display());
            file.as_file().sync_all().with_context(what)?;
            file.persist(&path).map_err(|error| error.error).with_context(what)?;
        }
        Ok(())
    }
}

/// Standard output, which is not locked so that it can be sent to a writer.
struct Stdout;

impl Write for Stdout {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        io::stdout().write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}
