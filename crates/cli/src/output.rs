//! Results into files.

use anyhow::{Context, Result};
use std::io::Write;
use std::path::Path;

/// Writes a file under another name first, so that it is whole or as it was.
pub(crate) fn write_whole(file: &Path, text: &str) -> Result<()> {
    let what = || format!("write {}", file.display());
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = parent.unwrap_or(Path::new("."));
    let mut new = tempfile::Builder::new()
        .prefix(".larder-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(folder)
        .with_context(what)?;
    new.write_all(text.as_bytes()).with_context(what)?;
    new.persist(file).with_context(what)?;
    Ok(())
}
