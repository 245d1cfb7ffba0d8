//! Scripts for a modern run: read completely before anything begins.
//!
//! Invariants: the commands and the meaning of a line are those of the original; but an invalid or
//! unknown line is refused with its file and line instead of skipped, empty lines are ignored, and
//! a last line without a line break is complete.

use super::command::{Command, ParameterError};
use super::config::Config;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum depth of scripts that load scripts; more is a cycle.
const DEPTH_MAX: usize = 16;

/// A step of a script other than a setting, with the configuration at that point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A run, and the file to which its report is appended.
    Run(Config, Option<PathBuf>),
    /// The display of the configuration, and the file to which it is appended.
    Show(Config, Option<PathBuf>),
    /// The help for commands with this prefix.
    Help(Vec<u8>),
}

/// A parsed script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Its steps, in order.
    pub steps: Vec<Step>,
    /// The configuration at its end.
    pub config: Config,
}

/// The reason for which a script is refused. The message can follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The script cannot be read.
    #[error("read the script {}: {source}", .path.display())]
    Unreadable {
        /// The script.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A line is not a command.
    #[error("read {}, line {line}: there is no command \"{text}\"", .path.display())]
    Unknown {
        /// The script.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The text of the line.
        text: String,
    },
    /// A command for a shell.
    #[error("read {}, line {line}: commands for a shell are not carried out", .path.display())]
    Shell {
        /// The script.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// A parameter is invalid.
    #[error("read {}, line {line}: {error}", .path.display())]
    Wrong {
        /// The script.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The error.
        error: ParameterError,
    },
    /// A `load` has no parameter, or scripts load each other in a cycle.
    #[error("read {}, line {line}: {why}", .path.display())]
    Load {
        /// The script.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The reason.
        why: &'static str,
    },
}

impl Script {
    /// Reads a script and the scripts that it loads.
    ///
    /// # Errors
    /// A script cannot be read, or has an error; the message states its position.
    pub fn read(path: &Path) -> Result<Self, ScriptError> {
        let mut script = Script::default();
        script.read_file(path, 0)?;
        Ok(script)
    }

    fn read_file(&mut self, path: &Path, depth: usize) -> Result<(), ScriptError> {
        let text = std::fs::read(path)
            .map_err(|source| ScriptError::Unreadable { path: path.to_owned(), source })?;
        for (index, text) in text.split(|&byte| byte == b'\n').enumerate() {
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            let position = || (path.to_owned(), index + 1);
            if text.is_empty() {
                continue;
            }
            if text[0] == b'!' {
                let (path, line) = position();
                return Err(ScriptError::Shell { path, line });
            }
            let Some((command, parameter)) = Command::parse(text) else {
                let text = String::from_utf8_lossy(text).into_owned();
                let (path, line) = position();
                return Err(ScriptError::Unknown { path, line, text });
            };
            let file = || parameter.map(|name| PathBuf::from(OsStr::from_bytes(name)));
            match command {
                // Ends this file, not the one that loaded it.
                Command::Quit => break,
                Command::Run => self.steps.push(Step::Run(self.config.clone(), file())),
                Command::Show => self.steps.push(Step::Show(self.config.clone(), file())),
                Command::Help => {
                    self.steps.push(Step::Help(parameter.unwrap_or_default().to_vec()));
                }
                Command::Load => {
                    let load_error = |why| {
                        let (path, line) = position();
                        ScriptError::Load { path, line, why }
                    };
                    let loaded =
                        file().ok_or_else(|| load_error("no configuration file specified"))?;
                    if depth == DEPTH_MAX {
                        return Err(load_error("scripts load each other in a circle"));
                    }
                    self.read_file(&loaded, depth + 1)?;
                }
                setting => self.config.set(setting, parameter).map_err(|error| {
                    let (path, line) = position();
                    ScriptError::Wrong { path, line, error }
                })?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Script, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("script");
        let text = text.replace("SCRIPT", &path.display().to_string());
        std::fs::write(&path, text).unwrap();
        let shown = format!("{}", path.display());
        Script::read(&path).map_err(|error| error.to_string().replace(&shown, "SCRIPT"))
    }

    #[test]
    fn a_script_comes_to_steps_with_what_is_set_by_then() {
        let script = read("set number 7\r\n\nrun\nset number 8\nrun out\nquit\nfoo").unwrap();
        let numbers: Vec<_> = script
            .steps
            .iter()
            .map(|step| match step {
                Step::Run(config, file) => (config.number, file.clone()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(numbers, [(7, None), (8, Some("out".into()))]);
        assert_eq!(read("set number 77").unwrap().config.number, 77, "the last letter counts");
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_place() {
        let cases = [
            ("run\nfoo\n", "read SCRIPT, line 2: there is no command \"foo\""),
            ("\n\nset number x", "read SCRIPT, line 3: invalid number of files"),
            ("!rm", "read SCRIPT, line 1: commands for a shell are not carried out"),
            ("load", "read SCRIPT, line 1: no configuration file specified"),
            ("load SCRIPT", "read SCRIPT, line 1: scripts load each other in a circle"),
        ];
        for (text, message) in cases {
            assert_eq!(read(text).unwrap_err(), message);
        }
        let error = read("load no-such-file").unwrap_err();
        assert!(error.starts_with("read the script no-such-file: No such file"), "{error}");
    }
}
