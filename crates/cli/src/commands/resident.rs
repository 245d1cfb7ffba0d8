//! `larder resident`: the resident part of files and directories.
//!
//! The queries never read a file. A file that the user may not query is reported and skipped, and
//! the exit code is 2.

use crate::args::{FormatArgs, TableFormat};
use anyhow::{Result, bail};
use clap::Args;
use larder_host::residency::{self, Residency, ResidencyError};
use larder_report::table::{Cell, Column, Table};
use larder_schema::format;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct ResidentArgs {
    /// Files, and directories with everything below them.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,

    /// Levels below each directory with a row.
    ///
    /// All sums include everything below.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    depth: usize,

    #[command(flatten)]
    format: FormatArgs<TableFormat>,
}

pub(crate) fn run(arguments: &ResidentArgs) -> Result<()> {
    let mut rows = BTreeMap::new();
    // The first error is the result of the command if it stays the only one.
    let (mut first, mut failed) = (None, 0);
    let mut report = |error: ResidencyError| {
        failed += 1;
        if failed == 1 {
            first = Some(error);
            return;
        }
        for error in first.take().into_iter().chain([error]) {
            eprintln!("larder: cannot {error}");
        }
    };
    for path in &arguments.paths {
        match residency::files_below(path) {
            Ok(files) => {
                // A directory without files has a row as well.
                rows.entry(path.clone()).or_insert_with(Residency::default);
                for file in files {
                    match residency::of_path(&file) {
                        Ok(residency) => add(&mut rows, path, &file, residency, arguments.depth),
                        Err(error) => report(error),
                    }
                }
            }
            Err(error) => report(error),
        }
    }
    let table = table(&rows);
    let text = match arguments.format.get() {
        TableFormat::Json => format!(
            "{:#}\n",
            json!({
                "schema": "larder-resident",
                "version": 1,
                "page_bytes": residency::page_bytes(),
                "rows": table.to_json()["rows"],
            })
        ),
        TableFormat::Csv => table.to_csv(),
        TableFormat::Text if rows.is_empty() => String::new(),
        TableFormat::Text => table.to_text(),
    };
    // A closed pipe is not a failure, so the error must reach the caller without context.
    crate::output::stdout().write_all(text.as_bytes())?;
    match first {
        Some(error) => Err(error.into()),
        None if failed > 0 => bail!("report {}", format::counted(failed, "file")),
        None => Ok(()),
    }
}

/// Adds a file to the rows of all directories above it, and to its own row if that is within the
/// depth.
fn add(
    rows: &mut BTreeMap<PathBuf, Residency>,
    root: &Path,
    file: &Path,
    residency: Residency,
    depth: usize,
) {
    let below = file.strip_prefix(root).unwrap_or(Path::new(""));
    let mut row = root.to_path_buf();
    *rows.entry(row.clone()).or_default() += residency;
    for part in below.components().take(depth) {
        row.push(part);
        *rows.entry(row.clone()).or_default() += residency;
    }
}

fn table(rows: &BTreeMap<PathBuf, Residency>) -> Table {
    let columns = [
        Column::words("path", "path"),
        Column::numbers("files", "files"),
        Column::numbers("pages", "pages"),
        Column::numbers("resident_pages", "resident"),
        Column::numbers("resident_bytes", "in memory"),
        Column::numbers("resident_share", "share"),
        Column::numbers("dirty_pages", "dirty"),
        Column::numbers("write_back_pages", "write-back"),
        Column::numbers("evicted_pages", "evicted"),
        Column::numbers("recently_evicted_pages", "just evicted"),
    ];
    let mut table = Table::new("", columns);
    for (path, found) in rows {
        let known = |count| if found.knows_dirty() { Cell::count(count) } else { Cell::missing() };
        table.push([
            Cell::path(path),
            Cell::count(found.files),
            Cell::count(found.pages),
            Cell::count(found.resident),
            Cell::bytes(found.resident * residency::page_bytes()),
            Cell::percent(found.share()),
            known(found.dirty),
            known(found.write_back),
            known(found.evicted),
            known(found.recently_evicted),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_hold_the_sum_of_what_lies_below_to_any_depth() {
        let mut rows = BTreeMap::new();
        let one =
            |pages| Residency { files: 1, pages, resident: pages / 2, ..Residency::default() };
        let root = Path::new("/r");
        add(&mut rows, root, Path::new("/r/a/b/c"), one(4), 1);
        add(&mut rows, root, Path::new("/r/a/d"), one(2), 1);
        add(&mut rows, root, Path::new("/r/e"), one(6), 1);
        let found: Vec<_> =
            rows.iter().map(|(path, it)| (path.to_str().unwrap(), it.pages)).collect();
        assert_eq!(found, [("/r", 12), ("/r/a", 6), ("/r/e", 6)]);
        assert_eq!(rows[Path::new("/r")].files, 3);
        // A file that the user named directly has one row.
        let mut rows = BTreeMap::new();
        add(&mut rows, Path::new("/r/e"), Path::new("/r/e"), one(6), 5);
        assert_eq!(rows.len(), 1);
        assert!(table(&rows).to_text().contains("50.0 %"));
    }
}
