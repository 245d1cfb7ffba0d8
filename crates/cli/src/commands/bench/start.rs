//! `larder bench cold` and `larder bench warm`: drop files from memory or read them into it, with
//! verification.

use crate::progress;
use crate::signals::Stop;
use anyhow::{Context, Result, bail};
use clap::Args;
use larder_host::residency::drop::everything;
use larder_host::residency::prefetch::{Files, SetResidency};
use larder_host::residency::{Residency, caches_below, files_below, page_bytes, why_pages_stay};
use larder_schema::format;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

#[derive(Debug, Args)]
pub(super) struct StartArgs {
    /// Files, block devices, and directories with all files below them.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,

    /// Drop everything that the machine has cached, too.
    ///
    /// Inodes, directories, and caches below FUSE and loop devices. Needs root, and slows down
    /// other programs.
    #[arg(long)]
    drop_all: bool,
}

pub(super) fn cold(arguments: &StartArgs) -> Result<ExitCode> {
    let stop = Stop::listen()?;
    let files = open(arguments)?;
    files.drop(|| !stop.flag().load(Ordering::Relaxed))?;
    if arguments.drop_all {
        everything()?;
    }
    stop.reraise_signal()?;
    let found = files.residency()?;
    for note in caches_below(files.paths(), arguments.drop_all) {
        eprintln!("larder: note: {note}");
    }
    report_start("cold", &found, found.sum.is_cold(), || {
        found.resident.as_ref().map_or_else(String::new, |(path, one)| {
            let count = format::count(one.resident);
            format!("{} keeps {count} pages: {}", path.display(), why_pages_stay(path, one))
        })
    })
}

pub(super) fn warm(arguments: &StartArgs) -> Result<ExitCode> {
    if arguments.drop_all {
        bail!("make files warm: --drop-all is for cold ones");
    }
    let stop = Stop::listen()?;
    let files = open(arguments)?;
    let sizes = files.paths().iter().filter_map(|path| path.metadata().ok());
    let bar = progress::byte_bar(sizes.map(|file| file.len()).sum(), "reading");
    let found = files.fill(|bytes| {
        bar.inc(bytes);
        !stop.flag().load(Ordering::Relaxed)
    })?;
    bar.finish_and_clear();
    stop.reraise_signal()?;
    report_start("warm", &found, found.sum.is_warm(), || {
        found.lacking.as_ref().map_or_else(String::new, |(path, one)| {
            let count = format::count(one.pages - one.resident);
            let reason = larder_host::residency::why_pages_lack(path, one);
            format!("{} lacks {count} pages: {reason}", path.display())
        })
    })
}

fn open(arguments: &StartArgs) -> Result<Files> {
    let mut paths = Vec::new();
    for path in &arguments.paths {
        paths.extend(files_below(path)?);
    }
    if paths.is_empty() {
        bail!("find files: the directories have none");
    }
    Ok(Files::open(paths)?)
}

/// Prints the verified state; returns exit code 1 if it is not the requested one.
fn report_start(
    state: &str,
    found: &SetResidency,
    is_reached: bool,
    reason: impl Fn() -> String,
) -> Result<ExitCode> {
    let Residency { files, pages, resident, .. } = found.sum;
    let prefix = if is_reached { "" } else { "not " };
    let line = format!(
        "{prefix}{state}: {} of {} pages ({}) of {} in memory\n",
        format::count(resident),
        format::count(pages),
        format::bytes(pages * page_bytes()),
        format::counted(files, "file")
    );
    crate::output::stdout().write_all(line.as_bytes()).context("print the result")?;
    if is_reached {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("larder: {}", reason());
    Ok(ExitCode::from(1))
}
