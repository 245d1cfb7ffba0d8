//! Free-space check for the files that a command creates.

use anyhow::{Context, Result, ensure};
use larder_host::space;
use larder_schema::format;
use std::path::Path;

/// Refuses work in a directory that needs more than its free space. Returns the free bytes.
pub(crate) fn check(directory: &Path, needs: u64) -> Result<u64> {
    check_directory(directory)?;
    let shown = directory.display();
    let free =
        space::free_bytes(directory).with_context(|| format!("query the free space of {shown}"))?;
    let [needed, left] = [needs, free].map(format::bytes);
    ensure!(needs < free, "work in {shown}: it needs {needed} and {left} are free");
    Ok(free)
}

/// Refuses a directory that does not exist or is a file.
pub(crate) fn check_directory(directory: &Path) -> Result<()> {
    let shown = directory.display();
    let found = std::fs::metadata(directory).with_context(|| format!("find {shown}"))?;
    ensure!(found.is_dir(), "work in {shown}: it is not a directory; name the one that it is in");
    Ok(())
}
