//! The recording of the live view: one line per snapshot in a new file.

use super::snapshot::TopSnapshot;
use anyhow::{Context, Result};
use larder_io::owned_file::{self, FileError};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Maximum number of file names that are tried.
const NAMES_MAX: u32 = 10_000;

#[derive(Debug)]
pub(crate) struct Recording {
    file: File,
    pub(crate) path: PathBuf,
}

impl Recording {
    /// Creates a file with this name or, if it exists, with the next free number, as in
    /// `larder-top-2.json`. A special file, such as a pipe, is written in place.
    pub(crate) fn begin(path: &Path) -> Result<Recording> {
        let context = || format!("record to {}", path.display());
        if let Some(file) = owned_file::open_special(path).with_context(context)? {
            return Ok(Recording { file, path: path.to_owned() });
        }
        for path in (1..=NAMES_MAX).map(|number| numbered(path, number)) {
            match owned_file::create_new(&path, 0o644) {
                Ok(file) => return Ok(Recording { file, path }),
                Err(FileError::System(error)) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(context),
            }
        }
        Err(io::Error::from(io::ErrorKind::AlreadyExists)).with_context(context)
    }

    pub(crate) fn append(&mut self, snapshot: &TopSnapshot) -> Result<()> {
        writeln!(self.file, "{}", snapshot.to_json())
            .with_context(|| format!("record to {}", self.path.display()))
    }
}

/// Returns the name with this number; number 1 is the given name.
fn numbered(path: &Path, number: u32) -> PathBuf {
    if number == 1 {
        return path.to_owned();
    }
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    if let Some(ending) = path.extension() {
        name.push(".");
        name.push(ending);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_recording_takes_the_place_of_another() {
        let directory = tempfile::tempdir().unwrap();
        let named = directory.path().join("top.json");
        for name in ["top.json", "top-2.json", "top-3.json"] {
            let mut recording = Recording::begin(&named).unwrap();
            assert_eq!(recording.path, directory.path().join(name));
            recording.append(&TopSnapshot::default()).unwrap();
        }
        for entry in std::fs::read_dir(directory.path()).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            assert_eq!(text.lines().count(), 1);
        }
        assert_eq!(numbered(Path::new("a/b"), 2), Path::new("a/b-2"));
    }

    #[test]
    fn what_cannot_be_recorded_to_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let error = |path: &Path| format!("{:#}", Recording::begin(path).unwrap_err());
        assert!(error(directory.path()).ends_with("it is a directory"));
        let missing = directory.path().join("no/top.json");
        assert!(error(&missing).starts_with(&format!("record to {}: No such", missing.display())));
        let mut nowhere = Recording::begin(Path::new("/dev/full")).unwrap();
        assert!(nowhere.append(&TopSnapshot::default()).is_err());
    }
}
