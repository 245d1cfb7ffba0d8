//! `larder check-config`: checks a file for `larder serve --config`, without opening volumes.

use anyhow::Result;
use clap::Args;
use larder_report::escape;
use larder_schema::format;
use larder_server::config::ConfigFile;
use larder_server::plan::Configuration;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct CheckConfigArgs {
    /// Configuration file.
    file: PathBuf,
}

pub(crate) fn run(arguments: &CheckConfigArgs) -> Result<()> {
    let file = ConfigFile::read(&arguments.file)?;
    let plan = file.plan(&file.with(&Configuration::default()))?;
    let volumes: Vec<_> = plan.volumes.iter().map(|volume| volume.name.as_str()).collect();
    let volumes = match &volumes[..] {
        [] => "it has no volumes; the command line names them".to_owned(),
        names => format!("volumes: {}", names.join(", ")),
    };
    println!(
        "{} is valid: {} of memory; {volumes}",
        escape::path(&arguments.file),
        format::bytes(plan.server.memory_bytes),
    )?;
    Ok(())
}
