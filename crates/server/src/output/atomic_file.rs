//! A file that is written completely, or not at all.
//!
//! The file is written next to the one that it replaces, and renamed when it is complete. A rename
//! would replace a device or a pipe with a regular file, and disconnect processes that have it open
//! as standard output: anything but a regular file is therefore written in place. Invariants: until
//! `finish` a regular file is unchanged, even if the process is killed. A symbolic link stays a
//! link, and a link of another user is not followed ([`larder_io::owned_file`]).

use anyhow::{Context, Result, bail, ensure};
use larder_io::owned_file::{self, Replacement};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Mode of a new file.
const MODE: u32 = 0o644;

/// A file that is being written.
#[derive(Debug)]
pub struct AtomicFile {
    /// The path as the caller gave it.
    path: PathBuf,
    to: Target,
}

#[derive(Debug)]
enum Target {
    /// A regular file, under a temporary name.
    Replacement(Replacement),
    /// Anything else, written in place.
    InPlace(File),
}

/// Refuses a file whose directory does not exist.
fn check_directory(path: &Path) -> Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let missing = directory.filter(|directory| matches!(directory.try_exists(), Ok(false)));
    if let Some(missing) = missing {
        bail!("write {}: the directory {} does not exist", path.display(), missing.display());
    }
    Ok(())
}

impl AtomicFile {
    /// Opens a file for writing.
    ///
    /// # Errors
    /// It is a directory, or cannot be written.
    pub fn begin(path: &Path, suffix: &str) -> Result<AtomicFile> {
        let context = || format!("write {}", path.display());
        // Other programs take "-" for standard output, so a file of this name is unlikely to be
        // intended.
        ensure!(
            path != Path::new("-"),
            "write -: standard output is /dev/stdout, a file of this name is ./-"
        );
        check_directory(path)?;
        let to = match owned_file::open_special(path).with_context(context)? {
            Some(file) => Target::InPlace(file),
            None => {
                Target::Replacement(Replacement::begin(path, suffix, MODE).with_context(context)?)
            }
        };
        Ok(AtomicFile { path: path.to_owned(), to })
    }

    /// Returns the temporary path, which the caller removes if the process ends before `finish`.
    #[must_use]
    pub fn temporary_path(&self) -> Option<PathBuf> {
        match &self.to {
            Target::Replacement(file) => Some(file.part()),
            Target::InPlace(_) => None,
        }
    }

    /// Duplicates the file descriptor.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn reopen(&self) -> Result<File> {
        self.file().try_clone().with_context(|| format!("write {}", self.path.display()))
    }

    fn file(&self) -> &File {
        match &self.to {
            Target::Replacement(file) => file.file(),
            Target::InPlace(file) => file,
        }
    }

    /// Syncs the file to disk and renames it.
    ///
    /// # Errors
    /// The original file is then unchanged.
    pub fn finish(self) -> Result<()> {
        let context = || format!("write {}", self.path.display());
        match self.to {
            Target::Replacement(file) => file.finish().with_context(context)?,
            Target::InPlace(mut file) => file.flush().with_context(context)?,
        }
        Ok(())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
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
        let mut file = AtomicFile::begin(path, "")?;
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
        let mut second = AtomicFile::begin(&link, ".part").unwrap();
        assert_eq!(second.temporary_path().unwrap().extension(), Some("part".as_ref()));
        second.write_all(b"two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
        second.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(AtomicFile::begin(&path, "").unwrap());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "nothing is left");
    }

    #[test]
    fn what_is_no_ordinary_file_stays_what_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let device = directory.path().join("device");
        symlink("/dev/full", &device).unwrap();
        let mut file = AtomicFile::begin(&device, "").unwrap();
        assert_eq!(file.write_all(b"x").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(file.temporary_path().is_none());
        write(Path::new("/dev/null"), "x").unwrap();
        for device in ["/dev/full", "/dev/null"] {
            assert!(!std::fs::metadata(device).unwrap().is_file(), "{device}");
        }
        // An open file by its descriptor number; data is appended to the existing content.
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
        let error = |path: &Path| format!("{:#}", AtomicFile::begin(path, "").unwrap_err());
        assert!(error(directory.path()).ends_with("it is a directory"));
        let missing = error(&directory.path().join("no/file"));
        assert!(missing.ends_with("/no does not exist"), "{missing}");
        assert!(error(Path::new("-")).contains("a file of this name is ./-"));
    }
}
