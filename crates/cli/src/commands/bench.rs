//! `larder bench`: the classic benchmarks, one file each.

mod bar;
mod embedded;
mod fileload;
mod fragments;
mod iozone;
mod leak;
mod leftovers;
mod local_host;
mod matrix;
mod places;
mod postmark;
mod probe;
mod ranks;
mod run_args;
mod server;
mod start;
pub(crate) mod try_run;

use anyhow::Result;
use clap::{Args, Subcommand};
pub(crate) use run_args::RecordedSpeed;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Files read in order, at random, or as a database would, by several users.
    Fileload(Box<fileload::Arguments>),
    /// Make files for fileload: intertwined in so many extents, and contiguous copies.
    Fragments(fragments::Arguments),
    /// File sizes by record sizes: write, read, random, backward, strided and more.
    Iozone(Box<iozone::Arguments>),
    /// Many small files: create, read, append, delete.
    Postmark(Box<postmark::Arguments>),
    /// Random records with a pattern of reads and writes, as the Response Probe did.
    Probe(Box<probe::Arguments>),
    /// Clients that read, write and copy, step by step more of them, up to where a server has
    /// enough.
    Server(Box<server::Arguments>),
    /// A benchmark on several file systems, schedulers and settings, each made for it and removed.
    Matrix(Box<matrix::Arguments>),
    /// Make files cold: nothing of them in memory, as read back.
    Cold(start::Arguments),
    /// Make files warm: all of them in memory, as read back.
    Warm(start::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Command::Fileload(arguments) => fileload::run(arguments),
        Command::Fragments(arguments) => fragments::run(arguments),
        Command::Server(arguments) => server::run(arguments),
        Command::Iozone(arguments) => iozone::run(arguments),
        Command::Postmark(arguments) => postmark::run(arguments),
        Command::Probe(arguments) => probe::run(arguments),
        Command::Matrix(arguments) => matrix::run(arguments),
        Command::Cold(arguments) => start::cold(arguments),
        Command::Warm(arguments) => start::warm(arguments),
    }
}
