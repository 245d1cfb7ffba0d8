//! `larder bench postmark`: PostMark; docs/bench-postmark.md.

use anyhow::Result;
use clap::Args;
use larder_lab::workload::postmark::Session;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A script with commands; `.pmrc` in the current folder, if not given.
    #[arg(value_name = "CONFIG")]
    config: Option<PathBuf>,

    /// Behave exactly as the original: script, then prompt, whole seconds, errors passed over.
    #[arg(long, required = true)]
    classic: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    // What is said comes out where the original empties its buffer.
    let mut out = BufWriter::new(io::stdout().lock());
    let mut err = io::stderr().lock();
    Session::new(&mut out, &mut err).run(arguments.config.as_deref(), &mut io::stdin().lock())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
