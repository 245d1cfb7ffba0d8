//! `larder bench fragments`: files for `larder bench fileload`, intertwined in so many extents, and
//! copies of them in one each, counted with FIEMAP.

use crate::free_space;
use crate::signals::Stop;
use crate::{args, progress};
use anyhow::Result;
use clap::Args;
use larder_host::extents;
use larder_lab::workload::fragments::{CONTIGUOUS, FRAGMENTED, Fragments, FragmentsError, remove};
use larder_report::{escape, format};
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// A directory that is there. The files come into two new directories in it: fragmented and
    /// contiguous.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,

    /// Files of each kind.
    #[arg(long, value_name = "NUMBER", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    files: u32,

    /// Bytes of each file.
    #[arg(long, value_name = "SIZE", default_value = "100MiB", value_parser = args::bytes)]
    size: u64,

    /// Extents of each fragmented file.
    #[arg(long, value_name = "NUMBER", default_value_t = 400)]
    extents: u64,

    /// Where the bytes come from.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Remove what was made in DIRECTORY before, and nothing else.
    #[arg(long, conflicts_with_all = ["files", "size", "extents", "seed"])]
    remove: bool,
}

/// Of how many pieces an open file is made.
fn pieces(file: &File) -> Result<u64, String> {
    extents::of(file).map(|extents| extents::pieces(&extents)).map_err(|error| error.to_string())
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let directory = arguments.directory.as_path();
    let text = if arguments.remove {
        format!("removed {}\n", format::counted(remove(directory)?, "file"))
    } else {
        make(arguments, directory)?
    };
    crate::output::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn make(arguments: &Arguments, directory: &Path) -> Result<String> {
    let &Arguments { files, size: file_bytes, extents, seed, .. } = arguments;
    let wanted = Fragments { files, file_bytes, extents, seed };
    let needs = wanted.bytes();
    free_space::check(directory, needs)?;
    let stop = Stop::listen()?;
    let is_shown = std::io::stderr().is_terminal();
    let template = "writing [{bar:30}] {bytes} of {total_bytes}";
    let bar = is_shown.then(|| progress::bar(needs, template));
    let made = wanted.make(directory, &pieces, &mut |bytes| {
        if let Some(bar) = &bar {
            bar.set_position(bytes);
        }
        !stop.flag().load(Ordering::Relaxed)
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    if matches!(made, Err(FragmentsError::Stopped)) {
        eprintln!("larder: stopped; what it made is removed");
        stop.end()?;
    }
    made?;
    let size = format::bytes(file_bytes);
    Ok(format!(
        "{files} of {size} in {extents} extents each: {}\n{files} of {size} in 1 extent each: {}\n",
        escape::path(&directory.join(FRAGMENTED)),
        escape::path(&directory.join(CONTIGUOUS))
    ))
}
