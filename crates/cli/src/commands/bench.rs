//! `larder bench`: the classic benchmarks, one file each.

mod postmark;

use anyhow::Result;
use clap::{Args, Subcommand};
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Many small files: create, read, append, delete.
    Postmark(Box<postmark::Arguments>),
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Command::Postmark(arguments) => postmark::run(arguments),
    }
}
