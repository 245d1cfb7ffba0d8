//! Scripts for a modern run: read completely before anything begins.
//!
//! Invariants: the commands and the meaning of a line are those of the original; but an invalid or
//! unknown line is refused with its file and line instead of skipped, empty lines are ignored, and
//! a last line without a line break is complete.

use super::command::Command;
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

/// The reason for which a script is refused. The message can follow "cannot".
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
    /// A line is invalid.
    #[error("read {}, line {line}: {why}", .path.display())]
    Line {
        /// The script.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The reason.
        why: String,
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
            let wrong =
                |why: String| ScriptError::Line { path: path.to_owned(), line: index + 1, why };
            if text.is_empty() {
                continue;
            }
            if text[0] == b'!' {
                return Err(wrong("commands for a shell are not carried out".to_owned()));
            }
            let unknown =
                || wrong(format!("there is no command \"{}\"", String::from_utf8_lossy(text)));
            let (command, parameter) = Command::parse(text).ok_or_else(unknown)?;
            let file = parameter.map(|name| PathBuf::from(OsStr::from_bytes(name)));
            match command {
                // Ends this file, not the one that loaded it.
                Command::Quit => break,
                Command::Run => self.steps.push(Step::Run(self.config.clone(), file)),
                Command::Show => self.steps.push(Step::Show(self.config.clone(), file)),
                Command::Help => {
                    self.steps.push(Step::Help(parameter.unwrap_or_default().to_vec()));
                }
                Command::Load => match file {
                    None => return Err(wrong("no configuration file specified".to_owned())),
                    Some(_) if depth == DEPTH_MAX => {
                        return Err(wrong("scripts load each other in a circle".to_owned()));
                    }
                    Some(file) => self.read_file(&file, depth + 1)?,
                },
                setting => self.config.set(setting, parameter).map_err(wrong)?,
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
