//! Statistics of the cache for each file of a directory.

use super::super::directory::{CachedSection, Section, segments};
use super::DirectoryMount;
use crate::store::files::{SEGMENT_BYTES, SourceFile};
use larder_core::counters::Class;
use larder_core::units::BLOCK_BYTES_U64;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Statistics of the cache for a file: its data, and the results of its requests.
#[derive(Clone, Debug)]
pub struct FileCounters {
    /// Path in the directory; the last one if the file is deleted.
    pub path: String,
    /// Size, as programs see it.
    pub size_bytes: u64,
    /// Cached bytes.
    pub resident_bytes: u64,
    /// Cached bytes that are not written to the directory yet.
    pub unclean_bytes: u64,
    /// Number of opens.
    pub opens: usize,
    /// Reads and writes by the worst class of their pages, since the file was first seen or came
    /// back.
    pub requests: Vec<(Class, u64)>,
}

/// A file with data that could not be written.
#[derive(Clone, Debug)]
pub struct FailingFile {
    /// Path in the directory; the last one if the file is deleted.
    pub path: String,
    /// Bytes of pages whose last write failed.
    pub failing_bytes: u64,
    /// Error of the last write.
    pub error: Option<String>,
}

impl DirectoryMount {
    /// Returns the files of `failing`, ranges of the volume that could not be written.
    #[must_use]
    pub fn failing(&self, volume: &str, failing: &[Range<u64>]) -> Vec<FailingFile> {
        let cached = self.directory.sections.iter().filter_map(Section::cached);
        let Some(cached) = cached.into_iter().find(|section| section.volume.name() == volume)
        else {
            return Vec::new();
        };
        let mut found: Vec<(Arc<SourceFile>, u64)> = Vec::new();
        let parts = failing.iter().flat_map(|range| segments(range.clone()));
        for (part, _) in parts {
            let Some((file, _)) = cached.table.at(part.start) else { continue };
            let bytes = part.end - part.start;
            match found.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &file)) {
                Some((_, sum)) => *sum += bytes,
                None => found.push((file, bytes)),
            }
        }
        let failing_file = |(file, failing_bytes): (Arc<SourceFile>, u64)| FailingFile {
            path: self.path_of(&file),
            failing_bytes,
            error: file.failure().map(|error| std::io::Error::from(error).to_string()),
        };
        found.into_iter().map(failing_file).collect()
    }

    fn path_of(&self, file: &SourceFile) -> String {
        let (name, directory) = (file.name(), format!("{}/", self.directory.path.display()));
        name.strip_prefix(&directory).unwrap_or(&name).to_owned()
    }

    /// Returns all files with data in the cache, now or recently, in descending order of cached
    /// bytes.
    #[must_use]
    pub fn files(&self) -> Vec<FileCounters> {
        let sections = self.directory.sections.iter();
        let mut files: Vec<_> =
            sections.filter_map(Section::cached).flat_map(|cached| self.files_of(cached)).collect();
        files.sort_by(|a, b| {
            b.resident_bytes.cmp(&a.resident_bytes).then_with(|| a.path.cmp(&b.path))
        });
        files
    }

    fn files_of(&self, CachedSection { table, volume }: CachedSection<'_>) -> Vec<FileCounters> {
        let mut pages: HashMap<u64, (u64, u64)> = HashMap::new();
        self.engine.cache().census(volume, |page| {
            let segment = page.block * BLOCK_BYTES_U64 / SEGMENT_BYTES * SEGMENT_BYTES;
            let (resident, unclean) = pages.entry(segment).or_default();
            *resident += page.resident * BLOCK_BYTES_U64;
            *unclean += page.unclean * BLOCK_BYTES_U64;
        });
        let figures = |(file, starts): (Arc<SourceFile>, Vec<u64>)| {
            let of = starts.iter().filter_map(|start| pages.get(start));
            let (resident_bytes, unclean_bytes) =
                of.fold((0, 0), |sum, page| (sum.0 + page.0, sum.1 + page.1));
            FileCounters {
                path: self.path_of(&file),
                size_bytes: file.size(),
                resident_bytes,
                unclean_bytes,
                opens: file.opens(),
                requests: file.requests(),
            }
        };
        table.files().into_iter().map(figures).collect()
    }
}
