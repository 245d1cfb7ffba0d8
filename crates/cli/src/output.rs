//! Results into files, and errors as sentences.

use anyhow::{Context, Result, ensure};
use std::io::Write;
use std::path::Path;
use tempfile::NamedTempFile;

/// An error and its causes in one sentence; a cause that is part of it already is not said twice.
pub(crate) fn sentence(error: &anyhow::Error) -> String {
    let mut sentence = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if sentence.is_empty() {
            sentence = cause;
        } else if !sentence.contains(&cause) {
            sentence = format!("{sentence}: {cause}");
        }
    }
    sentence
}

/// Writes a file under another name first, so that it is whole or as it was.
pub(crate) fn write_whole(file: &Path, text: &str) -> Result<()> {
    let what = || format!("write {}", file.display());
    let mut new = beside(file)?;
    new.write_all(text.as_bytes()).with_context(what)?;
    new.persist(file).map_err(|error| error.error).with_context(what)?;
    Ok(())
}

/// Refuses a file that could not be written, before there is anything to write.
pub(crate) fn check(file: &Path) -> Result<()> {
    beside(file).map(drop)
}

/// An empty file that can take the name of another.
fn beside(file: &Path) -> Result<NamedTempFile> {
    ensure!(!file.is_dir(), "write {}: it is a directory", file.display());
    let what = || format!("write {}", file.display());
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = parent.unwrap_or(Path::new("."));
    std::fs::metadata(folder).with_context(what)?;
    tempfile::Builder::new()
        .prefix(".larder-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(folder)
        .with_context(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let cause = std::io::Error::from(std::io::ErrorKind::NotFound);
        let error = anyhow::Error::new(cause);
        assert_eq!(sentence(&error), "entity not found");
        assert_eq!(sentence(&error.context("open x")), "open x: entity not found");
        let path = std::path::PathBuf::from("/x");
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        let error = larder_io::store::OpenError::Open { path, source, hint: "" };
        assert_eq!(sentence(&anyhow::Error::new(error)), "open /x: entity not found");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_refused_and_nothing_is_left_of_a_try() {
        let folder = tempfile::tempdir().unwrap();
        check(&folder.path().join("new")).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let said = |path: &Path| format!("{:#}", check(path).unwrap_err());
        assert!(said(folder.path()).ends_with("it is a directory"));
        let missing = said(&folder.path().join("no/file"));
        assert!(missing.contains("No such file") && !missing.contains(".larder-"), "{missing}");
    }
}
