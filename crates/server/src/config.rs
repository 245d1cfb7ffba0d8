//! The configuration file of `larder serve`, docs/config.md: the flags of the command line as TOML,
//! and a table `[[volume]]` for each volume.
//!
//! The file and the command line have the settings of one table ([`crate::settings`]), so both have
//! the same names and refuse the same values. Invariant: an error is one sentence with the file,
//! the line and the reason, and a file with an error has no effect.

use crate::plan::{Configuration, Plan, PlanError};
use crate::settings::{Assignment, Form, SETTINGS, Setting, find};
use crate::value::unknown;
use crate::volume_source::VolumeSource;
use larder_io::owned_file::{self, FileError, Secrecy};
use larder_schema::format;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum size of a configuration file: thousands of volumes with all settings.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Keys of a `[[volume]]` table that are no settings.
const VOLUME_KEYS: [&str; 2] = ["name", "path"];
/// The key of a table of tunables.
const SET: &str = "set";

/// An error of a configuration file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("read {}: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: FileError,
    },
    /// An error at a line of the file.
    #[error("use {}: line {line}: {reason}", file.display())]
    AtLine {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// An error without a line.
    #[error("use {}: {reason}", file.display())]
    InFile {
        /// The file.
        file: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// A key of the file and its line.
#[derive(Debug)]
struct KeyPosition {
    /// The volume of the table; `None` for a global key.
    volume: Option<String>,
    key: String,
    line: usize,
}

/// A parsed file.
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    keys: Vec<KeyPosition>,
    assignments: Vec<Assignment>,
    volumes: Vec<VolumeSource>,
}

/// An error at a byte of the text.
struct PositionedError {
    at: usize,
    reason: String,
}

type ParseResult<T> = Result<T, PositionedError>;

fn error_at<T>(at: usize, reason: impl Into<String>) -> ParseResult<T> {
    Err(PositionedError { at, reason: reason.into() })
}

impl ConfigFile {
    /// Reads a file and checks its keys and values.
    ///
    /// # Errors
    /// It cannot be read, or a key or a value is invalid.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable { file: path.to_owned(), source };
        let bytes = match owned_file::read(path, Secrecy::Public, FILE_BYTES_MAX) {
            Err(FileError::TooLong(_)) => {
                let reason = format!("the file is larger than {}", format::bytes(FILE_BYTES_MAX));
                return Err(ConfigError::AtLine { file: path.to_owned(), line: 1, reason });
            }
            read => read.map_err(unreadable)?,
        };
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = valid.split(|&byte| byte == b'\n').count();
            let reason = "the file is not UTF-8".to_owned();
            ConfigError::AtLine { file: path.to_owned(), line, reason }
        })?;
        ConfigFile::parse(path, &text)
    }

    /// Parses the text of a file, whose path errors name.
    ///
    /// # Errors
    /// A key or a value is invalid.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        let line = |at: usize| ends.partition_point(|end| *end < at) + 1;
        let at_line = |PositionedError { at, reason }| ConfigError::AtLine {
            file: path.to_owned(),
            line: line(at),
            reason,
        };
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            at_line(PositionedError { at, reason: error.message().replace('\n', ", ") })
        })?;
        let mut reader = TableReader::default();
        reader.table(table.get_ref()).map_err(at_line)?;
        let TableReader { assignments, volumes, keys, .. } = reader;
        let keys = keys.into_iter();
        let keys = keys.map(|(volume, key, at)| KeyPosition { volume, key, line: line(at) });
        Ok(ConfigFile { path: path.to_owned(), keys: keys.collect(), assignments, volumes })
    }

    /// Returns the settings and volumes of the file with those of a command line, which override
    /// them.
    #[must_use]
    pub fn with(&self, command_line: &Configuration) -> Configuration {
        let Configuration { volumes, assignments, .. } = command_line.clone();
        let volumes = self.volumes.iter().cloned().chain(volumes).collect();
        let assignments = self.assignments.iter().cloned().chain(assignments).collect();
        Configuration { volumes, assignments, file: Some(self.path.clone()), mount: None }
    }

    /// Returns the plan of a configuration; an error has the line of its key.
    ///
    /// # Errors
    /// That of the plan.
    pub fn plan(&self, configuration: &Configuration) -> Result<Plan, ConfigError> {
        configuration.plan().map_err(|error| {
            let file = self.path.clone();
            let reason = error.to_string();
            match self.line_of(&error) {
                Some(line) => ConfigError::AtLine { file, line, reason },
                None => ConfigError::InFile { file, reason },
            }
        })
    }

    fn line_of(&self, error: &PlanError) -> Option<usize> {
        let line = |volume: Option<&str>, key: &str| {
            let matches = |key_position: &&KeyPosition| {
                key_position.volume.as_deref() == volume && key_position.key == key
            };
            self.keys.iter().rev().find(matches).map(|key_position| key_position.line)
        };
        let volume = error.volume.as_deref();
        line(volume, &error.key).or_else(|| line(None, &error.key)).or_else(|| line(volume, "path"))
    }
}

/// Converts tables to settings and volumes.
#[derive(Default)]
struct TableReader {
    assignments: Vec<Assignment>,
    volumes: Vec<VolumeSource>,
    /// Volume, key, and byte offset in the text.
    keys: Vec<(Option<String>, String, usize)>,
    /// Settings with a value, and the volumes of their tables, by their numbers.
    given: HashSet<(usize, &'static str)>,
}

/// Returns the names of the settings of volumes, or of all settings.
fn names(of_volumes: bool) -> impl Iterator<Item = &'static str> {
    let settings = SETTINGS.iter().filter(move |it| !of_volumes || it.is_of_volumes());
    settings.map(|setting| setting.name).chain([SET])
}

impl TableReader {
    fn table(&mut self, table: &DeTable<'_>) -> ParseResult<()> {
        for (key, value) in table {
            let (name, at) = (key.get_ref().as_ref(), key.span().start);
            if name == "volume" {
                let DeValue::Array(volumes) = value.get_ref() else {
                    return error_at(at, "\"volume\" is a table in an array: write [[volume]]");
                };
                for volume in volumes {
                    self.volume(volume)?;
                }
            } else if name == SET {
                self.tunables(None, at, value)?;
            } else if let Some(setting) = find(name) {
                self.value(None, setting, at, value)?;
            } else {
                return error_at(at, unknown("key", name, names(false).chain(["volume"])));
            }
        }
        Ok(())
    }

    fn volume(&mut self, volume: &Spanned<DeValue<'_>>) -> ParseResult<()> {
        let at = volume.span().start;
        let DeValue::Table(table) = volume.get_ref() else {
            return error_at(at, "a volume is a table: write [[volume]]");
        };
        let text = |key: &str| match table.get(key).map(|value| (value.get_ref(), value.span())) {
            None => Ok(None),
            Some((DeValue::String(text), _)) if !text.is_empty() => Ok(Some(text.to_string())),
            Some((_, span)) => error_at(span.start, format!("\"{key}\" must be a text")),
        };
        let Some(path) = text("path")? else {
            return error_at(at, "a volume needs a \"path\"");
        };
        let volume = VolumeSource::new(text("name")?.as_deref(), &path);
        let volume = volume.or_else(|reason| error_at(at, reason))?;
        let name = volume.name.clone();
        if name.contains('/') || name.starts_with('-') {
            let reason = format!("\"{name}\" cannot be a name: it has a / or begins with -");
            return error_at(at, reason);
        }
        self.volumes.push(volume);
        for (key, value) in table {
            let (key, at) = (key.get_ref().as_ref(), key.span().start);
            if VOLUME_KEYS.contains(&key) {
                self.keys.push((Some(name.clone()), key.to_owned(), at));
            } else if key == SET {
                self.tunables(Some(&name), at, value)?;
            } else {
                match find(key) {
                    Some(setting) if setting.is_of_volumes() => {
                        self.value(Some(&name), setting, at, value)?;
                    }
                    Some(_) => {
                        let reason =
                            format!("\"{key}\" is one for all volumes: write it above them");
                        return error_at(at, reason);
                    }
                    None => {
                        let known = names(true).chain(VOLUME_KEYS);
                        return error_at(at, unknown("key", key, known));
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds the tunables of a table `set`.
    fn tunables(
        &mut self,
        volume: Option<&str>,
        at: usize,
        value: &Spanned<DeValue<'_>>,
    ) -> ParseResult<()> {
        let DeValue::Table(table) = value.get_ref() else {
            return error_at(at, "\"set\" is a table: write set = { age-max = 2000 }");
        };
        for (name, value) in table {
            let (key, at) = (name.get_ref().as_ref(), name.span().start);
            let Some(setting) = find(key).filter(|setting| setting.form == Form::Number) else {
                let known = SETTINGS.iter().filter(|setting| setting.form == Form::Number);
                return error_at(at, unknown("tunable", key, known.map(|setting| setting.name)));
            };
            self.value(volume, setting, at, value)?;
        }
        Ok(())
    }

    /// Adds a value, if the setting accepts it.
    fn value(
        &mut self,
        volume: Option<&str>,
        setting: &'static Setting,
        at: usize,
        value: &Spanned<DeValue<'_>>,
    ) -> ParseResult<()> {
        let key = setting.name;
        let table = if volume.is_some() { self.volumes.len() } else { 0 };
        if !self.given.insert((table, key)) {
            return error_at(at, format!("\"{key}\" is given twice: leave one of them out"));
        }
        self.keys.push((volume.map(str::to_owned), key.to_owned(), at));
        let text = match (setting.form, value.get_ref()) {
            (Form::Switch | Form::Optional { .. }, DeValue::Boolean(false)) => return Ok(()),
            (Form::Switch, DeValue::Boolean(true)) => "true".to_owned(),
            (Form::Optional { missing, .. }, DeValue::Boolean(true)) => missing.to_owned(),
            (Form::Switch, _) => return error_at(at, format!("\"{key}\" is true or false")),
            (_, DeValue::Integer(number)) => {
                let value = u64::from_str_radix(number.as_str(), number.radix());
                value.map_or_else(|_| number.to_string(), |value| value.to_string())
            }
            (Form::Number, _) => {
                return error_at(at, format!("\"{key}\" must be a whole number"));
            }
            (_, DeValue::String(text)) => text.to_string(),
            _ => {
                return error_at(at, format!("\"{key}\" must be a text, as in {key} = \"...\""));
            }
        };
        // On the command line a volume name may precede the value; in a file the table determines
        // the volume.
        if setting.is_of_volumes() && text.contains('=') {
            let reason = format!("\"{text}\" names a volume: write {key} into its [[volume]]");
            return error_at(at, reason);
        }
        setting.check(OsStr::new(&text)).or_else(|reason| error_at(at, reason))?;
        let (volume, name) = (volume.map(str::to_owned), key.to_owned());
        self.assignments.push(Assignment { volume, name, value: text.into() });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
