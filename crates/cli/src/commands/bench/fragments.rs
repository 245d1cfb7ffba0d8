//! `larder bench fragments`: files for `larder bench fileload`, interleaved with a given number of
//! extents, and copies of them with one extent each, counted with FIEMAP.

use crate::free_space;
use crate::signals::Stop;
use crate::{args, progress};
use anyhow::Result;
use clap::Args;
use larder_host::{extents, relocate};
use larder_lab::bench::BenchError;
use larder_lab::bench::fragments::{CONTIGUOUS, FRAGMENTED, Fragments, remove};
use larder_report::escape;
use larder_schema::format;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

#[derive(Debug, Args)]
pub(super) struct FragmentsArgs {
    /// An existing directory.
    ///
    /// The files are created in two new directories in it: fragmented and contiguous.
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

    /// Seed of the data.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Remove the files of an earlier run, nothing else.
    #[arg(long, conflicts_with_all = ["files", "size", "extents", "seed"])]
    remove: bool,
}

/// Returns the number of pieces of an open file.
pub(super) fn piece_count(file: &File) -> Result<u64, String> {
    extents::of(file).map(|extents| extents::pieces(&extents)).map_err(|error| error.to_string())
}

pub(super) fn run(arguments: &FragmentsArgs) -> Result<ExitCode> {
    let directory = arguments.directory.as_path();
    let text = if arguments.remove {
        format!("removed {}\n", format::counted(remove(directory)?, "file"))
    } else {
        make(arguments, directory)?
    };
    crate::output::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn make(arguments: &FragmentsArgs, directory: &Path) -> Result<String> {
    let &FragmentsArgs { files, size: file_bytes, extents, seed, .. } = arguments;
    let fragments = Fragments { files, file_bytes, extents, seed };
    let needed_bytes = fragments.bytes();
    free_space::check(directory, needed_bytes)?;
    let stop = Stop::listen()?;
    let bar = progress::byte_bar(needed_bytes, "writing");
    let exchange = |(file, at): (&File, u64), other: (&File, u64), len: u64| {
        relocate::exchange_blocks(file, at, other, len)
    };
    let result = fragments.make(directory, (&piece_count, &exchange), &mut |bytes| {
        bar.set_position(bytes);
        !stop.flag().load(Ordering::Relaxed)
    });
    bar.finish_and_clear();
    if result.as_ref().is_err_and(BenchError::is_stop) {
        eprintln!("larder: stopped; its test files are removed");
        stop.reraise_signal()?;
    }
    result?;
    let (files, size) = (format::counted(u64::from(files), "file"), format::bytes(file_bytes));
    Ok(format!(
        "{files} of {size}, {extents} extents each: {}\n{files} of {size}, 1 extent each: {}\n",
        escape::path(&directory.join(FRAGMENTED)),
        escape::path(&directory.join(CONTIGUOUS))
    ))
}
