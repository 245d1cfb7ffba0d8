//! `larder check-config`: whether `larder serve --config` would take a file. Nothing is opened.

use super::serve::config::ConfigFile;
use anyhow::Result;
use clap::Args;
use larder_report::{escape, format};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The file.
    file: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let file = ConfigFile::read(&arguments.file)?;
    let plan = file.plan(&file.arguments(&[])?)?;
    let volumes: Vec<_> = plan.volumes.iter().map(|volume| volume.name.as_str()).collect();
    let volumes = match &volumes[..] {
        [] => "the volumes of the command line".to_owned(),
        names => names.join(", "),
    };
    println!(
        "{}: fine: {} for {volumes}",
        escape::path(&arguments.file),
        format::bytes(plan.memory_bytes),
    )?;
    Ok(())
}
