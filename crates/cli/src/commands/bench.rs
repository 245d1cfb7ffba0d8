//! `larder bench`: the benchmarks, one file each.

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
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read files in order, at random, or like a database, with several users.
    Fileload(Box<fileload::FileloadArgs>),
    /// Create files for fileload: interleaved with a given number of extents, and contiguous
    /// copies.
    Fragments(fragments::FragmentsArgs),
    /// Measure file sizes by record sizes: write, read, random, backward, strided and more.
    Iozone(Box<iozone::IozoneArgs>),
    /// Create, read, append and delete many small files.
    Postmark(Box<postmark::PostmarkArgs>),
    /// Access random records with a pattern of reads and writes, like the Response Probe.
    Probe(Box<probe::ProbeArgs>),
    /// Run an increasing number of clients that read, write and copy, until a server is saturated.
    Server(Box<server::ServerArgs>),
    /// Run a benchmark on several file systems, schedulers and settings, each created and removed.
    Matrix(Box<matrix::MatrixArgs>),
    /// Make files cold: no page of them is resident, verified.
    Cold(start::StartArgs),
    /// Make files warm: all pages are resident, verified.
    Warm(start::StartArgs),
}

pub(crate) fn run(arguments: &BenchArgs) -> Result<ExitCode> {
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
