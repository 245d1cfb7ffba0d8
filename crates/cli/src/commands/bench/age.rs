//! `larder bench age`: files that grow in turn and are replaced, until they have a given number of
//! fragments, counted with FIEMAP.

use super::fragments::piece_count;
use crate::free_space;
use crate::signals::Stop;
use crate::{args, progress};
use anyhow::Result;
use clap::Args;
use larder_lab::bench::BenchError;
use larder_lab::bench::age::{AGED, VolumeAger};
use larder_lab::bench::fragments::remove_set;
use larder_report::escape;
use larder_schema::format;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

#[derive(Debug, Args)]
pub(super) struct AgeArgs {
    /// An existing directory.
    ///
    /// The files are created in the new directory aged in it.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,

    /// Number of files.
    #[arg(long, value_name = "NUMBER", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    files: u32,

    /// Mean length of a file.
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = args::bytes)]
    size: u64,

    /// Mean number of fragments of a file.
    #[arg(long, value_name = "NUMBER", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    fragments: u32,

    /// Maximum number of rounds.
    ///
    /// All files grow in the first round; a third is replaced in each further one.
    #[arg(long, value_name = "NUMBER", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,

    /// Seed of lengths, order and data.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Remove the files of an earlier run, nothing else.
    #[arg(long, conflicts_with_all = ["files", "size", "fragments", "rounds", "seed"])]
    remove: bool,
}

pub(super) fn run(arguments: &AgeArgs) -> Result<ExitCode> {
    let directory = arguments.directory.as_path();
    let text = if arguments.remove {
        let removed = remove_set(directory, AGED)?;
        format!("removed {}\n", format::counted(removed, "file"))
    } else {
        make(arguments)?
    };
    crate::output::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn make(arguments: &AgeArgs) -> Result<String> {
    let ager = VolumeAger {
        files: arguments.files,
        file_bytes: arguments.size,
        fragments: arguments.fragments.into(),
        rounds: arguments.rounds,
        seed: arguments.seed,
    };
    free_space::check(&arguments.directory, ager.bytes_max())?;
    let stop = Stop::listen()?;
    let bar = progress::bar(0, "writing: {bytes}");
    let result = ager.make(&arguments.directory, &piece_count, &mut |bytes| {
        bar.set_position(bytes);
        !stop.flag().load(Ordering::Relaxed)
    });
    bar.finish_and_clear();
    if result.as_ref().is_err_and(BenchError::is_stop) {
        eprintln!("larder: stopped; its files are removed");
        stop.reraise_signal()?;
    }
    let state = result?;
    let mut text = format!(
        "{} with {}, {} fragments each after {}: {}\n",
        format::counted(arguments.files.into(), "file"),
        format::bytes(state.bytes),
        format::number(state.fragments),
        format::counted(state.rounds.into(), "round"),
        escape::path(&arguments.directory.join(AGED))
    );
    if state.fragments < f64::from(arguments.fragments) {
        text += "The file system keeps the files more contiguous: more rounds, more files or less \
                 free space give more fragments.\n";
    }
    Ok(text)
}
