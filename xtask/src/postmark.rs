//! Debian's PostMark: what it is told by those who only want it to work.

use std::path::Path;

use anyhow::{Context as _, Result};

/// Writes a script for a run in `folder`, with as many `files` of 500 bytes up to `largest`, and 4
/// KiB for each read and write.
pub(crate) fn write_script(
    script: &Path,
    folder: &Path,
    (files, transactions): (u64, u64),
    largest: u64,
) -> Result<()> {
    let lines = format!(
        "set location {}\nset number {files}\nset size 500 {largest}\nset subdirectories 5\n\
         set transactions {transactions}\nset read 4096\nset write 4096\nrun\nquit\n",
        folder.display()
    );
    std::fs::write(script, lines).context("write a script for PostMark")
}
