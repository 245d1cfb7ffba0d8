//! `larder version`: the version of this program, and what it was built with.

use crate::args::{FormatArgs, TextOrJson};
use anyhow::Result;
use clap::Args;
use serde_json::json;

#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    #[command(flatten)]
    format: FormatArgs<TextOrJson>,
}

/// The features of this program, and true for those that it has.
const FEATURES: [(&str, bool); 3] = [
    ("bpf", cfg!(feature = "bpf")),
    ("parquet", cfg!(feature = "parquet")),
    ("tls", cfg!(feature = "tls")),
];

pub(crate) fn run(arguments: &VersionArgs) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let features: Vec<&str> =
        FEATURES.into_iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name).collect();
    match arguments.format.get() {
        TextOrJson::Text if features.is_empty() => println!("larder {version}")?,
        TextOrJson::Text => println!("larder {version} ({})", features.join(", "))?,
        TextOrJson::Json => {
            let value = json!({
                "schema": "larder-version",
                "version": 1,
                "program": version,
                "features": features,
                "architecture": std::env::consts::ARCH,
            });
            println!("{value:#}")?;
        }
    }
    Ok(())
}
