//! Programs from crates.io, built once into target/tools.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::run;

/// Installs the program of a package at a version; returns its path.
pub(crate) fn install(package: &str, version: &str, options: &[&str]) -> Result<PathBuf> {
    let tools = run::target_dir()?.join("tools").join(format!("{package}-{version}"));
    let program = tools.join("bin").join(package);
    if !program.is_file() {
        let mut cargo = run::cargo(&run::workspace()?);
        cargo.args(["install", "--locked", package, "--version", version, "--root"]).arg(&tools);
        run::show(cargo.args(options))?;
    }
    ensure!(program.is_file(), "the package {package} has no program {package}");
    Ok(program)
}
