//! A file that is written as a whole, or not at all.
//!
//! It is written beside the one that it replaces, and gets its name when it is whole. A rename
//! would put a file in the place of a device or a pipe, and cut off whoever has standard output
//! open: what is no ordinary file is written through its name, as it comes. Invariants: until
//! `finish` a regular file is unchanged, even if the process is killed. A symbolic link stays a
//! link, and a link of another user is not followed ([`larder_io::owned_file`]).

use anyhow::{Context, Result, bail, ensure};
use larder_io::owned_file::{self, Replacement};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Of a file that was not there before.
const MODE: u32 = 0o644;

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct Whole {
    /// As it was asked for.
    path: PathBuf,
    to: To,
}

#[derive(Debug)]
enum To {
    /// A regular file, under a temporary name.
    Beside(Replacement),
    /// Something else.
    Through(File),
}

/// Refuses a file whose directory does not exist.
///
/// # Errors
/// A sentence that can follow "failed to".
pub(super) fn check_directory(path: &Path) -> Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let missing = directory.filter(|directory| matches!(directory.try_exists(), Ok(false)));
    if let Some(missing) = missing {
        bail!("write {}: the directory {} does not exist", path.display(), missing.display());
    }
    Ok(())
}

impl Whole {
    /// Begins to write.
    ///
    /// # Errors
    /// It is a directory, or cannot be written: a sentence that can follow "failed to".
    pub(crate) fn begin(path: &Path, suffix: &str) -> Result<Whole> {
        let what = || format!("write {}", path.display());
        // Elsewhere it is a name for standard output, so that nobody wants a file of this name.
        ensure!(
            path != Path::new("-"),
            "write -: standard output is /dev/stdout, a file of this name is ./-"
        );
        check_directory(path)?;
        let to = match owned_file::open_special(path).with_context(what)? {
            Some(file) => To::Through(file),
            None => To::Beside(Replacement::begin(path, suffix, MODE).with_context(what)?),
        };
        Ok(Whole { path: path.to_owned(), to })
    }

    /// The file under its other name, to be removed if this process ends before it is whole.
    pub(crate) fn part(&self) -> Option<PathBuf> {
        match &self.to {
            To::Beside(file) => Some(file.part()),
            To::Through(_) => None,
        }
    }

    /// The file itself once more.
    ///
    /// # Errors
    /// There are too many open files.
    pub(crate) fn reopen(&self) -> Result<File> {
        let file = match &self.to {
            To::Beside(file) => file.file(),
            To::Through(file) => file,
        };
        file.try_clone().with_context(|| format!("write {}", self.path.display()))
    }

    /// It is whole: it gets its name, and is on the disk.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub(crate) fn finish(self) -> Result<()> {
        let what = || format!("write {}", self.path.display());
        match self.to {
            To::Beside(file) => file.finish().with_context(what)?,
            To::Through(mut file) => file.flush().with_context(what)?,
        }
        Ok(())
    }
}

impl Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.to {
            To::Beside(file) => file.file().write(bytes),
            To::Through(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.to {
            To::Beside(file) => file.file().flush(),
            To::Through(file) => file.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::fs::symlink;

    fn write(path: &Path, text: &str) -> Result<()> {
        let mut file = Whole::begin(path, "")?;
        file.write_all(text.as_bytes())?;
        file.finish()
    }

    #[test]
    fn a_file_changes_when_the_new_one_is_whole_and_keeps_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("file"), directory.path().join("link"));
        write(&path, "one").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        symlink("file", &link).unwrap();
        let mut second = Whole::begin(&link, ".part").unwrap();
        assert_eq!(second.part().unwrap().extension(), Some("part".as_ref()));
        second.write_all(b"two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
        second.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(Whole::begin(&path, "").unwrap());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "nothing is left");
    }

    #[test]
    fn what_is_no_ordinary_file_stays_what_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let device = directory.path().join("device");
        symlink("/dev/full", &device).unwrap();
        let mut file = Whole::begin(&device, "").unwrap();
        assert_eq!(file.write_all(b"x").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(file.part().is_none());
        write(Path::new("/dev/null"), "x").unwrap();
        for device in ["/dev/full", "/dev/null"] {
            assert!(!std::fs::metadata(device).unwrap().is_file(), "{device}");
        }
        // What a process has open, by its number; it goes on behind what was written before.
        let mut open = tempfile::tempfile().unwrap();
        open.write_all(b"before ").unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&open);
        write(Path::new(&format!("/dev/fd/{number}")), "after").unwrap();
        let mut text = String::new();
        std::io::Seek::rewind(&mut open).unwrap();
        open.read_to_string(&mut text).unwrap();
        assert_eq!(text, "before after");
    }

    #[test]
    fn what_cannot_be_written_is_refused_in_words() {
        let directory = tempfile::tempdir().unwrap();
        let said = |path: &Path| format!("{:#}", Whole::begin(path, "").unwrap_err());
        assert!(said(directory.path()).ends_with("it is a directory"));
        let missing = said(&directory.path().join("no/file"));
        assert!(missing.ends_with("/no does not exist"), "{missing}");
        assert!(said(Path::new("-")).contains("a file of this name is ./-"));
    }
}
