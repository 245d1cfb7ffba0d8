//! A virtual machine with Debian's kernel and the root directory of this machine, for tests of
//! features that the kernel of this machine lacks. It is implemented by the shell script
//! `xtask/guest/run`; its first comment describes the options.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Error, Result};

use crate::{TaskStatus, run};

/// Exit status of the script if the guest cannot be started on this machine.
pub(crate) const CANNOT_START: i32 = 125;

/// Returns the program that boots the guest; its arguments are options and the command for the
/// guest.
pub(crate) fn script() -> Result<PathBuf> {
    Ok(run::workspace()?.join("xtask/guest/run"))
}

/// `guest [OPTION]... COMMAND`: executes the script in place of this process; the script handles
/// signals and sets the exit status.
pub(crate) fn command(args: &[String]) -> Result<TaskStatus> {
    Err(Error::new(Command::new(script()?).args(args).exec()).context("run xtask/guest/run"))
}
