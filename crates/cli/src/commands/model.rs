//! `larder model`: the models of stores, their fit to a device, and their comparison with it.

mod check;
mod comparison;
mod fit;
mod serve;
mod show;
mod target;

use anyhow::Result;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the named models.
    List(show::ListArgs),
    /// Show all figures of a model, with their sources.
    Show(show::ShowArgs),
    /// Measure a device, and write a model that fits it.
    ///
    /// A measurement takes up to ten seconds for reads, and as much again for writes: at most
    /// 140,000 operations of 4 KiB and 2,048 of 256 KiB, past the page cache.
    Fit(fit::FitArgs),
    /// Compare a model with a device: eight patterns, predicted and measured.
    Check(check::CheckArgs),
    /// Serve a modeled device over NBD.
    ///
    /// FILE holds the data; the model delays each request.
    Serve(serve::ServeArgs),
}

pub(crate) fn run(arguments: &ModelArgs) -> Result<()> {
    match &arguments.command {
        Command::List(arguments) => show::list(arguments),
        Command::Show(arguments) => show::show(arguments),
        Command::Fit(arguments) => fit::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Serve(arguments) => serve::run(arguments),
    }
}
