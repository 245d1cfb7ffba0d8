//! Results into files.

use anyhow::{Context, Result, ensure};
use std::io::Write;
use std::path::Path;
use tempfile::NamedTempFile;

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
