//! `larder bench`: the benchmarks, one file each.

mod age;
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
    /// Read files in order, at random, or like a database.
    ///
    /// One or several users read, each a file of its own.
    Fileload(Box<fileload::FileloadArgs>),
    /// Create fragmented files, and contiguous copies.
    ///
    /// The files are for fileload; the number of extents is given.
    Fragments(fragments::FragmentsArgs),
    /// Create files that age a file system: with many fragments.
    ///
    /// The files grow in turn and are replaced, from a seed, until they have a given number of
    /// fragments.
    Age(age::AgeArgs),
    /// Measure file sizes by record sizes, with the tests of IOzone.
    ///
    /// Write, read, random, backward, strided and more.
    Iozone(Box<iozone::IozoneArgs>),
    /// Create, read, append and delete many small files.
    Postmark(Box<postmark::PostmarkArgs>),
    /// Access random records, like the Response Probe.
    ///
    /// A pattern of reads and writes on successive records, with think time.
    Probe(Box<probe::ProbeArgs>),
    /// Add clients that read, write and copy until a server saturates.
    Server(Box<server::ServerArgs>),
    /// Run a benchmark on several file systems and schedulers.
    ///
    /// Each file system is created for its cell, and removed.
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
        Command::Age(arguments) => age::run(arguments),
        Command::Server(arguments) => server::run(arguments),
        Command::Iozone(arguments) => iozone::run(arguments),
        Command::Postmark(arguments) => postmark::run(arguments),
        Command::Probe(arguments) => probe::run(arguments),
        Command::Matrix(arguments) => matrix::run(arguments),
        Command::Cold(arguments) => start::cold(arguments),
        Command::Warm(arguments) => start::warm(arguments),
    }
}
