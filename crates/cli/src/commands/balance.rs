//! `larder balance`: the load of disks by file and process, and a plan of moves.
//!
//! Nothing is moved: the plan is printed, and written as a script for review.

mod alternatives;
mod inventory;
mod items;
mod journal;
mod plan;
mod record;

use crate::args::{self, FormatArgs, TextOrJson};
use crate::commands::report::{page_or_json, print_and_write};
use crate::commands::store_model;
use crate::commands::trace::InputArgs;
use crate::output;
use crate::output_file::OutputFile;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use larder_lab::model::StoreSpec;
use larder_schema::balance::MoveLink;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct BalanceArgs {
    /// Results of larder watch, or traces with the names of files.
    ///
    /// JSON of larder watch, made on this machine; or a log of Process Monitor or Filemon, or
    /// another trace that names files, of which each request counts as one of the disk.
    #[arg(value_name = "RECORD", required = true)]
    records: Vec<PathBuf>,

    /// Model of a disk.
    ///
    /// NAME is that of a disk, such as sda, of a device above disks, which then counts as one disk,
    /// or of a drive, such as C:. MODEL is as for larder sim --store; without it, the service times
    /// are those of the record.
    #[arg(long = "disk", value_name = "NAME[=MODEL]", value_parser = disk)]
    disks: Vec<(String, Option<StoreSpec>)>,

    /// Directories below which files may move.
    ///
    /// If not given, the mount points of all writable file systems on disks.
    #[arg(long, value_name = "DIRECTORIES", value_delimiter = ',')]
    to: Vec<PathBuf>,

    /// Files and directories that stay.
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    exclude: Vec<PathBuf>,

    /// Unit of the moves: file, directory.
    #[arg(long, value_name = "UNIT", default_value = "file", hide_possible_values = true)]
    by: Unit,

    /// Old path becomes: symlink, bind.
    ///
    /// The old path becomes a symbolic link to the new one, or a mount point of it.
    #[arg(long, value_name = "KIND", default_value = "symlink", hide_possible_values = true)]
    link: Link,

    /// Free share of each file system.
    ///
    /// Share of each file system that stays free.
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = reserve)]
    reserve: f64,

    /// File whose time is that of the last backup.
    ///
    /// If not given, the newest stamp of a systemd timer with the name of a backup program.
    #[arg(long, value_name = "FILE")]
    backup: Option<PathBuf>,

    /// Write the script of the plan.
    ///
    /// A script for bash: checks, moves, verification and undo. Larder never runs it.
    #[arg(long, value_name = "FILE")]
    script: Option<OutputFile>,

    /// Write the result into a file as well.
    ///
    /// The file is JSON, or a page with charts if its name ends in .html.
    #[arg(short, long, value_name = "FILE", value_parser = page_or_json())]
    output: Option<OutputFile>,

    #[command(flatten)]
    format: FormatArgs<TextOrJson>,

    #[command(flatten)]
    input: InputArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Unit {
    /// Single files.
    File,
    /// Directories with all that is in them.
    Directory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Link {
    /// Symbolic links.
    Symlink,
    /// Bind mounts.
    Bind,
}

impl From<Link> for MoveLink {
    fn from(link: Link) -> MoveLink {
        match link {
            Link::Symlink => MoveLink::Symlink,
            Link::Bind => MoveLink::Bind,
        }
    }
}

/// Parses `NAME[=MODEL]`.
fn disk(text: &str) -> Result<(String, Option<StoreSpec>), String> {
    let (name, model) = match text.split_once('=') {
        Some((name, model)) => (name, Some(store_model::parse(model)?)),
        None => (text, None),
    };
    let name = name.strip_prefix("/dev/mapper/").unwrap_or(name);
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    if name.is_empty() {
        return Err("write it as NAME or NAME=MODEL, such as sda=disk".to_owned());
    }
    Ok((name.to_owned(), model))
}

/// Parses a percentage below 100.
fn reserve(text: &str) -> Result<f64, String> {
    let percent = args::per_cent(text).filter(|it| (0.0..100.0).contains(it));
    percent.map(|it| it / 100.0).ok_or_else(|| "write a percentage below 100, such as 10%".into())
}

pub(crate) fn run(arguments: &BalanceArgs) -> Result<()> {
    let recording = record::read(&arguments.records, &arguments.input)?;
    let balance = plan::plan(arguments, recording)?;
    let printed = print_and_write(
        arguments.format.get(),
        arguments.output.as_ref(),
        || larder_report::balance::to_text(&balance),
        || larder_report::balance::to_html(&balance),
        || format!("{:#}\n", balance.to_json()),
    )?;
    if let Some(file) = &arguments.script {
        let script = larder_report::balance::to_script(&balance).with_context(|| {
            let reason = if balance.moves.is_empty() {
                "the plan has no move"
            } else {
                "the files are not of this machine"
            };
            format!("write {}: {reason}", file.display())
        })?;
        output::write_atomically(file, &script)?;
    }
    Ok(printed?)
}
