//! The disks of the demo: an image on the machine's own disk, and a modeled disk.

use super::DemoContext;
use crate::progress;
use anyhow::{Context, Result};
use larder_core::store::{Geometry, MemoryStore};
use larder_io::store::{self, AllocationMap, EngineStore, OpenOptions, SolidMap, TimedStore};
use larder_lab::model::{self, ModeledStore};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes written at a time while the image is filled.
const CHUNK: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiskKind {
    Real,
    Modeled,
}

impl DiskKind {
    pub(super) fn title(self) -> &'static str {
        match self {
            DiskKind::Real => "This machine's disk",
            DiskKind::Modeled => "A modeled 7,200 rpm disk, in real time",
        }
    }

    /// Returns the name in the record.
    pub(super) fn name(self) -> &'static str {
        match self {
            DiskKind::Real => "this disk",
            DiskKind::Modeled => "modeled disk",
        }
    }
}

/// A file without a name.
#[derive(Debug)]
pub(super) struct Image {
    directory: PathBuf,
    file: File,
}

impl Image {
    /// Creates an empty image in `directory`; it is unlinked when this returns.
    pub(super) fn create(directory: &Path) -> Result<Self> {
        let file = tempfile::tempfile_in(directory)
            .with_context(|| format!("make an image in {}", directory.display()))?;
        Ok(Image { directory: directory.to_owned(), file })
    }

    /// Fills the image with data.
    pub(super) fn fill(&mut self, context: &DemoContext) -> Result<()> {
        let error_context = || format!("make an image in {}", self.directory.display());
        let bar = progress::byte_bar(context.image_bytes, "making an image");
        let mut chunk = vec![0u8; CHUNK];
        let mut written = 0;
        while written < context.image_bytes {
            context.check()?;
            // Not zeros: some disks and file systems do not store them.
            for (i, byte) in chunk.iter_mut().enumerate() {
                *byte = u8::try_from((i as u64 * 31 + written / 4096) % 251).expect("below 251");
            }
            let len = CHUNK.min(usize::try_from(context.image_bytes - written).unwrap_or(CHUNK));
            self.file.write_all(&chunk[..len]).with_context(error_context)?;
            written += len as u64;
            bar.set_position(written);
        }
        self.file.sync_all().with_context(error_context)?;
        bar.finish_and_clear();
        Ok(())
    }

    /// Copies the image into a file.
    pub(super) fn copy_to(&mut self, file: &mut File) -> io::Result<()> {
        self.file.rewind()?;
        io::copy(&mut self.file, file).map(drop)
    }
}

/// An open disk.
pub(super) struct Disk {
    pub(super) store: Box<dyn EngineStore>,
    pub(super) map: Arc<dyn AllocationMap>,
}

impl Disk {
    pub(super) fn open(kind: DiskKind, image: &Image, context: &DemoContext) -> Result<Self> {
        let clock = Arc::clone(&context.clock);
        match kind {
            DiskKind::Real => {
                // A file without a name is opened again through its descriptor.
                let path = format!("/proc/self/fd/{}", image.file.as_raw_fd());
                let opened = store::open(path.as_ref(), OpenOptions::default(), clock)?;
                for note in opened.notes {
                    eprintln!("larder: note: {note}");
                }
                Ok(Disk { store: opened.store, map: opened.map })
            }
            DiskKind::Modeled => {
                let length = context.image_bytes;
                let geometry = Geometry { length, granule: 512, read_only: false };
                let disk = model::Disk::seven_thousand_two_hundred(length);
                let modeled = ModeledStore::new(MemoryStore::new(geometry), disk);
                let store = Box::new(TimedStore::new(modeled, clock));
                Ok(Disk { store, map: Arc::new(SolidMap) })
            }
        }
    }
}
