//! The journal of moves: a line before each move and one after it, so that a move that a crash
//! interrupted is known, and its file is compared.

use anyhow::{Context, Result};
use larder_host::file_walk::WalkRoot;
use larder_host::relocate::{OpenFile, RelocateOptions};
use larder_io::owned_file;
use larder_report::escape;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Metadata};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The directory of the default journal, and its name.
const DIRECTORY: &str = "/var/lib/larder";
const NAME: &str = "frag.journal";
/// Maximum length of a journal: it has the moves of one repair.
const BYTES_MAX: u64 = 1 << 30;

/// A move that begins.
#[derive(Debug, Serialize, Deserialize)]
struct Begun {
    path: Vec<u8>,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    checksum: u64,
}

/// A line of the journal.
#[derive(Debug, Serialize, Deserialize)]
enum Line {
    Begin(Begun),
    End,
}

/// An open journal, which no other repair has open.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// Opens the journal; returns a sentence for a move that an earlier repair did not end.
    pub(super) fn open(
        path: Option<&Path>,
        options: &RelocateOptions<'_>,
    ) -> Result<(Journal, Vec<String>)> {
        let path = path.map_or_else(|| Path::new(DIRECTORY).join(NAME), Path::to_owned);
        let context = || format!("open the journal {}", escape::path(&path));
        if path.starts_with(DIRECTORY) {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(DIRECTORY);
            made.with_context(context)?;
        }
        let mut file = owned_file::open_or_create(&path).with_context(context)?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| match error {
                rustix::io::Errno::WOULDBLOCK => anyhow::anyhow!("another repair is running"),
                error => error.into(),
            })
            .with_context(context)?;
        let mut text = Vec::new();
        (&file).take(BYTES_MAX).read_to_end(&mut text).with_context(context)?;
        let interrupted = last_begun(&text).map(|begun| examine(&begun, options));
        file.set_len(0).and_then(|()| file.rewind()).with_context(context)?;
        Ok((Journal { file, path }, interrupted.into_iter().collect()))
    }

    fn append(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        self.file.write_all(text.as_bytes())?;
        self.file.sync_data()
    }

    /// Records that a move begins.
    pub(super) fn begin(&mut self, path: &Path, found: &Metadata, checksum: u64) -> io::Result<()> {
        let path = path.as_os_str().as_bytes().to_vec();
        let modified = (found.mtime(), found.mtime_nsec());
        let (inode, bytes) = (found.ino(), found.len());
        self.append(&Line::Begin(Begun { path, inode, bytes, modified, checksum }))
    }

    /// Records that it ended.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.append(&Line::End)
    }

    /// Empties the journal: no move is in progress.
    pub(super) fn end(self) -> Result<()> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.sync_data());
        emptied.with_context(|| format!("empty the journal {}", escape::path(&self.path)))
    }
}

/// Returns the move without an end. A line that was not written completely is of a move that had
/// not begun.
fn last_begun(text: &[u8]) -> Option<Begun> {
    let mut lines = text.split(|byte| *byte == b'\n').rev();
    match lines.find_map(|line| serde_json::from_slice(line).ok())? {
        Line::Begin(begun) => Some(begun),
        Line::End => None,
    }
}

/// Compares the file of an interrupted move with its checksum.
fn examine(begun: &Begun, options: &RelocateOptions<'_>) -> String {
    let path = Path::new(OsStr::from_bytes(&begun.path));
    let name = escape::path(path);
    let options = RelocateOptions { open_files: true, shared: true, ..*options };
    let compared = || {
        let root = WalkRoot::open(path.parent()?).ok()?;
        let file = OpenFile::open(&root, Path::new(path.file_name()?), &options).ok()?;
        let found = file.metadata();
        let facts = (found.ino(), found.len(), (found.mtime(), found.mtime_nsec()));
        let is_same = facts == (begun.inode, begun.bytes, begun.modified);
        is_same.then(|| file.checksum(&options).ok().map(|sum| sum == begun.checksum)).flatten()
    };
    match compared() {
        Some(true) => format!("The move of {name} was interrupted; its content is as before."),
        Some(false) => format!(
            "The move of {name} was interrupted, and its content differs from that before: compare \
             it with a backup."
        ),
        None => format!("The move of {name} was interrupted; it was changed or removed since."),
    }
}
