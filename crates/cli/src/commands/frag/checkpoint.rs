//! The position of a scan in a file, from which it continues.

use crate::output;
use anyhow::{Context, Result, ensure};
use larder_host::file_walk::{LevelList, WalkPosition};
use larder_io::owned_file::{self, FileError, FileReaders};
use larder_report::escape;
use larder_schema::fragmentation::FileScan;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Schema name and version of the file.
const SCHEMA: &str = "larder-scan-position";
const VERSION: u32 = 1;
/// Maximum length of the file.
const BYTES_MAX: u64 = 256 << 20;
/// Maximum number of files with several names that are kept: more are counted once for each name.
const LINKS_MAX: usize = 4 << 20;

/// Files with several names that were seen.
#[derive(Debug, Default)]
pub(super) struct Links(Mutex<HashSet<u64>>);

impl Links {
    /// Returns true at the first name of a file.
    pub(super) fn is_new(&self, inode: u64) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() < LINKS_MAX { seen.insert(inode) } else { !seen.contains(&inode) }
    }

    pub(super) fn restore(&self, inodes: &[u64]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(inodes);
    }

    fn all(&self) -> Vec<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

/// Removes the file, if it exists.
pub(super) fn remove(file: &Path) -> Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", escape::path(file)))
        }
        _ => Ok(()),
    }
}

/// The state of a scan between two parts of a directory.
#[derive(Serialize, Deserialize)]
pub(super) struct Checkpoint {
    schema: String,
    version: u32,
    paths: Vec<Vec<u8>>,
    /// Index of the path that is scanned.
    pub(super) path: usize,
    position: Vec<LevelList>,
    pub(super) links: Vec<u64>,
    pub(super) scan: FileScan,
}

fn bytes(paths: &[PathBuf]) -> Vec<Vec<u8>> {
    paths.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect()
}

impl Checkpoint {
    pub(super) fn new(
        paths: &[PathBuf],
        path: usize,
        at: &WalkPosition,
        scan: &FileScan,
        links: &Links,
    ) -> Checkpoint {
        Checkpoint {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            paths: bytes(paths),
            path,
            position: at.to_lists(),
            links: links.all(),
            scan: scan.clone(),
        }
    }

    /// Reads the file; `None` if it does not exist.
    pub(super) fn read(file: &Path, paths: &[PathBuf]) -> Result<Option<Checkpoint>> {
        let name = escape::path(file);
        let context = || format!("continue the scan of {name}");
        let text = match owned_file::read(file, FileReaders::Public, BYTES_MAX) {
            Err(FileError::System(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            text => text.with_context(context)?,
        };
        let found: Option<Checkpoint> = serde_json::from_slice(&text).ok();
        let found = found.with_context(|| {
            format!("{}: it is not the position of a scan; remove it", context())
        })?;
        let is_known = found.schema == SCHEMA && found.version == VERSION;
        ensure!(is_known, "{}: another version of larder wrote it; remove it", context());
        ensure!(
            found.paths == bytes(paths) && found.path < paths.len(),
            "{}: it is the position of a scan of other paths; remove it, or name the same paths",
            context()
        );
        Ok(Some(found))
    }

    /// Returns the position in the path.
    pub(super) fn position(&self) -> WalkPosition {
        WalkPosition::from_lists(self.position.clone())
    }

    /// Replaces the file.
    pub(super) fn write(&self, file: &Path) -> Result<()> {
        output::write_atomically(file, &serde_json::to_string(self)?)
    }
}
