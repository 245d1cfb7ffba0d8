//! `larder demo`.
use anyhow::Result;
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(_arguments: &Arguments) -> Result<()> {
    Ok(())
}
