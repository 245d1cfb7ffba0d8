//! Scripts for a run of today: read as a whole before anything begins.
//!
//! Invariants: the commands are the original's, and so is what a line means; but what is wrong or
//! unknown is refused with its file and line instead of passed over, empty lines are nothing, and a
//! last line without a line break is whole.

use super::command::{Command, ParameterError};
use super::config::Config;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Scripts that load scripts: more than this is a circle.
const DEPTH_MAX: usize = 16;

/// What a script asks for besides settings, with what is set by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A run, and the file that its report goes to the end of.
    Run(Config, Option<PathBuf>),
    /// What is set, and the file that this goes to the end of.
    Show(Config, Option<PathBuf>),
    /// The commands that begin so.
    Help(Vec<u8>),
}

/// What a script comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// What it asks for, in order.
    pub steps: Vec<Step>,
    /// What is set at its end.
    pub config: Config,
}

/// Why a script is refused. The message can follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// It cannot be read.
    #[error("read the script {}: {source}", .path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line is no command.
    #[error("read {}, line {line}: there is no command \"{text}\"", .path.display())]
    Unknown {
        /// The script.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What it says.
        text: String,
    },
    /// A command for a shell.
    #[error("read {}, line {line}: commands for a shell are not carried out", .path.display())]
    Shell {
        /// The script.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
    },
    /// A parameter is wrong.
    #[error("read {}, line {line}: {complaint}", .path.display())]
    Wrong {
        /// The script.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        complaint: ParameterError,
    },
    /// A script needs a parameter, or loads itself.
    #[error("read {}, line {line}: {why}", .path.display())]
    Load {
        /// The script.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong.
        why: &'static str,
    },
}

impl Script {
    /// Reads a script and those that it loads.
    ///
    /// # Errors
    /// One cannot be read, or holds something wrong; the message says where.
    pub fn read(path: &Path) -> Result<Self, ScriptError> {
        let mut script = Script::default();
        script.take(path, 0)?;
        Ok(script)
    }

    fn take(&mut self, path: &Path, depth: usize) -> Result<(), ScriptError> {
        let text = std::fs::read(path)
            .map_err(|source| ScriptError::Unreadable { path: path.to_owned(), source })?;
        for (index, text) in text.split(|&byte| byte == b'\n').enumerate() {
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            let place = || (path.to_owned(), index + 1);
            if text.is_empty() {
                continue;
            }
            if text[0] == b'!' {
                let (path, line) = place();
                return Err(ScriptError::Shell { path, line });
            }
            let Some((command, parameter)) = Command::parse(text) else {
                let text = String::from_utf8_lossy(text).into_owned();
                let (path, line) = place();
                return Err(ScriptError::Unknown { path, line, text });
            };
            let file = || parameter.map(|name| PathBuf::from(OsStr::from_bytes(name)));
            match command {
                // It ends this file, not the one that loaded it.
                Command::Quit => break,
                Command::Run => self.steps.push(Step::Run(self.config.clone(), file())),
                Command::Show => self.steps.push(Step::Show(self.config.clone(), file())),
                Command::Help => {
                    self.steps.push(Step::Help(parameter.unwrap_or_default().to_vec()));
                }
                Command::Load => {
                    let wrong = |why| {
                        let (path, line) = place();
                        ScriptError::Load { path, line, why }
                    };
                    let loaded = file().ok_or_else(|| wrong("no configuration file specified"))?;
                    if depth == DEPTH_MAX {
                        return Err(wrong("scripts load each other in a circle"));
                    }
                    self.take(&loaded, depth + 1)?;
                }
                setting => self.config.set(setting, parameter).map_err(|complaint| {
                    let (path, line) = place();
                    ScriptError::Wrong { path, line, complaint }
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
        let known = [
            ("run\nfoo\n", "read SCRIPT, line 2: there is no command \"foo\""),
            ("\n\nset number x", "read SCRIPT, line 3: invalid number of files"),
            ("!rm", "read SCRIPT, line 1: commands for a shell are not carried out"),
            ("load", "read SCRIPT, line 1: no configuration file specified"),
            ("load SCRIPT", "read SCRIPT, line 1: scripts load each other in a circle"),
        ];
        for (text, message) in known {
            assert_eq!(read(text).unwrap_err(), message);
        }
        let error = read("load no-such-file").unwrap_err();
        assert!(error.starts_with("read the script no-such-file: No such file"), "{error}");
    }
}
