//! Sections of a directory: the files of a rule, or the files without a rule. Each section that is
//! cached is a volume, so that page size, modes, hints, tunables and counters are those of its
//! rule.
//!
//! Invariant: a file belongs to one section, and is moved to another one only while no program has
//! it open and none of it is cached.

use super::rules::{FileOptions, KernelPages};
use crate::engine::ArenaVolume;
use crate::store::files::{FileTable, SourceFile};
use larder_core::mode::WriteMode;
use rustix::io::Errno;
use std::sync::{Arc, OnceLock};

#[derive(Debug)]
pub(crate) struct Section {
    pub(super) options: FileOptions,
    /// Addresses of the files in the store; none for files that are not cached.
    pub(super) table: Option<Arc<FileTable>>,
    /// Set when the directory is mounted.
    volume: OnceLock<Arc<ArenaVolume>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedSection<'a> {
    pub(crate) table: &'a Arc<FileTable>,
    pub(crate) volume: &'a Arc<ArenaVolume>,
}

impl CachedSection<'_> {
    /// Records that all of a file may be cached, including the rest of its last page beyond the
    /// end.
    pub(crate) fn note_reach(&self, file: &SourceFile) {
        file.note_reach(file.size().next_multiple_of(self.volume.page_bytes()));
    }
}

impl Section {
    pub(super) fn new(options: FileOptions, table: Option<Arc<FileTable>>) -> Self {
        Section { options, table, volume: OnceLock::new() }
    }

    /// Returns true if the kernel passes each read(2) and write(2) through, and caches pages only
    /// for mappings. Files that the kernel reads and writes itself are exempt.
    pub(crate) fn is_direct_io(&self) -> bool {
        self.options.kernel_pages == KernelPages::Off
    }

    pub(super) fn set_volume(&self, volume: Arc<ArenaVolume>) {
        let is_first = self.volume.set(volume).is_ok();
        debug_assert!(is_first, "a directory is mounted once");
    }

    /// Returns its store and volume, if it is cached.
    pub(crate) fn cached(&self) -> Option<CachedSection<'_>> {
        Some(CachedSection { table: self.table.as_ref()?, volume: self.volume.get()? })
    }

    /// Returns an error if the contents of its files cannot be changed.
    pub(super) fn check_writable(&self) -> Result<(), Errno> {
        let is_set =
            self.volume.get().is_some_and(|volume| volume.write_mode() == WriteMode::ReadOnly);
        if self.options.read_only || is_set { Err(Errno::ROFS) } else { Ok(()) }
    }
}
