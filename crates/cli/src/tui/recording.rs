//! What is seen, line by line in a file that was not there before.

use super::snapshot::TopSnapshot;
use anyhow::{Context, Result};
use larder_io::owned_file::{self, FileError};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Names that are tried.
const NAMES_MAX: u32 = 10_000;

/// A file that is written.
#[derive(Debug)]
pub(crate) struct Recording {
    file: File,
    path: PathBuf,
}

impl Recording {
    /// Begins one with this name, or where there is such a file with the next that is free, as in
    /// `larder-top-2.json`. What is no file, as a pipe, is written to.
    pub(crate) fn begin(named: &Path) -> Result<Recording> {
        let what = || format!("record to {}", named.display());
        if let Some(file) = owned_file::open_special(named).with_context(what)? {
            return Ok(Recording { file, path: named.to_owned() });
        }
        for path in (1..=NAMES_MAX).map(|number| numbered(named, number)) {
            match owned_file::create_new(&path, 0o644) {
                Ok(file) => return Ok(Recording { file, path }),
                Err(FileError::System(error)) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(what),
            }
        }
        Err(io::Error::from(io::ErrorKind::AlreadyExists)).with_context(what)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// One more line.
    pub(crate) fn append(&mut self, picture: &TopSnapshot) -> Result<()> {
        writeln!(self.file, "{}", picture.to_json())
            .with_context(|| format!("record to {}", self.path.display()))
    }
}

/// The name of the recording with this number; the first has the one that was given.
fn numbered(named: &Path, number: u32) -> PathBuf {
    if number == 1 {
        return named.to_owned();
    }
    let mut name = named.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    if let Some(ending) = named.extension() {
        name.push(".");
        name.push(ending);
    }
    named.with_file_name(name)
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
            assert_eq!(recording.path(), directory.path().join(name));
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
        let why = |path: &Path| format!("{:#}", Recording::begin(path).unwrap_err());
        assert!(why(directory.path()).ends_with("it is a directory"));
        let missing = directory.path().join("no/top.json");
        assert!(why(&missing).starts_with(&format!("record to {}: No such", missing.display())));
        let mut nowhere = Recording::begin(Path::new("/dev/full")).unwrap();
        assert!(nowhere.append(&TopSnapshot::default()).is_err());
    }
}
