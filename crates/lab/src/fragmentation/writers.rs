//! Programs that create fragments, and what prevents them.

use larder_schema::as_f64;
use larder_schema::fragmentation::FragmentWriter;
use larder_schema::watch::Counts;
use std::collections::{BTreeMap, BTreeSet};

/// Mean length up to which writes count as small: below the extents that file systems allocate for
/// larger ones.
const SMALL_BYTES: f64 = 64.0 * 1024.0;
/// Number of files of a program from which on its writes count as parallel.
const PARALLEL_FILES: u64 = 2;

/// Writes of a process to a file.
#[derive(Clone, Debug)]
pub struct WriterFile<'a> {
    /// Name of the process.
    pub process: &'a str,
    /// Index of the file.
    pub file: usize,
    /// Fragments of the file.
    pub fragments: u64,
    /// Accesses.
    pub counts: Counts,
}

/// Returns the programs that write to files with several fragments, those with most bytes first.
/// `file_system` is the type of their file system.
#[must_use]
pub fn find_writers(accesses: &[WriterFile<'_>], file_system: Option<&str>) -> Vec<FragmentWriter> {
    let mut by_name: BTreeMap<&str, (FragmentWriter, BTreeSet<usize>)> = BTreeMap::new();
    for write in accesses.iter().filter(|it| it.fragments > 1 && it.counts.dirtied_pages > 0) {
        let (writer, files) = by_name.entry(write.process).or_default();
        write.process.clone_into(&mut writer.process);
        writer.writes += write.counts.write_requests;
        writer.bytes += write.counts.write_bytes;
        if files.insert(write.file) {
            writer.files += 1;
            writer.fragments += write.fragments;
        }
    }
    let mut found: Vec<FragmentWriter> = by_name.into_values().map(|it| it.0).collect();
    for writer in &mut found {
        writer.measures = measures(writer, file_system);
    }
    found.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.process.cmp(&b.process)));
    found
}

/// Returns the measures against the fragments of a program.
fn measures(writer: &FragmentWriter, file_system: Option<&str>) -> Vec<String> {
    let mean = as_f64(writer.bytes) / as_f64(writer.writes.max(1));
    let is_small = writer.writes > 0 && mean <= SMALL_BYTES;
    let mut measures = Vec::new();
    if is_small {
        measures.push("let the program allocate its files in advance (fallocate)".to_owned());
        measures.push("let the program write through a larger buffer".to_owned());
        measures.push(
            "put the files behind larder mount with write-back, which joins small writes"
                .to_owned(),
        );
    }
    if file_system == Some("xfs") && (is_small || writer.files >= PARALLEL_FILES) {
        measures.push(
            "set an extent size hint on the directory: xfs_io -c 'extsize 16m' DIRECTORY, or \
             mount with allocsize=16m"
                .to_owned(),
        );
    }
    if !is_small && writer.files >= PARALLEL_FILES && file_system != Some("xfs") {
        measures.push(
            "write the files one after the other, or allocate them in advance (fallocate)"
                .to_owned(),
        );
    }
    measures
}
