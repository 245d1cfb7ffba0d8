//! The configuration file of `larder serve`, docs/config.md: the flags of the command line as TOML,
//! and a table `[[volume]]` for each volume.
//!
//! The file and the command line have the settings of one table ([`crate::settings`]), so both have
//! the same names and refuse the same values. Invariant: an error is one sentence with the file,
//! the line and the reason, and a file with an error has no effect.

use crate::plan::{Configuration, Plan, PlanError};
use crate::settings::{Assignment, SETTINGS, Setting, ValueForm, find};
use crate::value::{quoted, unknown_setting};
use crate::volume_source::VolumeSource;
use larder_io::owned_file::{self, FileError, FileReaders};
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
    /// A key or a value is invalid.
    #[error("use {}: {}{reason}", file.display(), line.map_or_else(String::new, |line| {
        format!("line {line}: ")
    }))]
    Invalid {
        /// The file.
        file: PathBuf,
        /// The line, from 1, if the error is at one.
        line: Option<usize>,
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

impl ConfigFile {
    /// Reads a file and checks its keys and values.
    ///
    /// # Errors
    /// It cannot be read, or a key or a value is invalid.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let invalid = |line, reason| {
            Err(ConfigError::Invalid { file: path.to_owned(), line: Some(line), reason })
        };
        let bytes = match owned_file::read(path, FileReaders::Public, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(FileError::TooLong(_)) => {
                let max = format::bytes(FILE_BYTES_MAX);
                return invalid(1, format!("the file is larger than {max}"));
            }
            Err(source) => return Err(ConfigError::Unreadable { file: path.to_owned(), source }),
        };
        match str::from_utf8(&bytes) {
            Ok(text) => ConfigFile::parse(path, text),
            Err(error) => {
                let valid = &bytes[..error.valid_up_to()];
                let line = valid.split(|&byte| byte == b'\n').count();
                invalid(line, "the file is not UTF-8".to_owned())
            }
        }
    }

    /// Parses the text of a file, whose path errors name.
    ///
    /// # Errors
    /// A key or a value is invalid.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let (keys, assignments, volumes) = (Vec::new(), Vec::new(), Vec::new());
        let mut reader = TableReader {
            file: ConfigFile { path: path.to_owned(), keys, assignments, volumes },
            line_ends: text.match_indices('\n').map(|(at, _)| at).collect(),
            given: HashSet::new(),
        };
        let table = DeTable::parse(text).or_else(|error| {
            let at = error.span().map_or(0, |span| span.start);
            reader.invalid(at, error.message().replace('\n', ", "))
        })?;
        reader.table(table.get_ref())?;
        Ok(reader.file)
    }

    /// Returns the settings and volumes of the file with those of a command line, which override
    /// them.
    #[must_use]
    pub fn with(&self, command_line: &Configuration) -> Configuration {
        Configuration {
            volumes: [&self.volumes[..], &command_line.volumes].concat(),
            assignments: [&self.assignments[..], &command_line.assignments].concat(),
            file: Some(self.path.clone()),
            mount: None,
        }
    }

    /// Returns the plan of a configuration; an error has the line of its key.
    ///
    /// # Errors
    /// That of the plan.
    pub fn plan(&self, configuration: &Configuration) -> Result<Plan, ConfigError> {
        configuration.plan().map_err(|error| {
            let line = self.line_of(&error);
            let reason = if line.is_some() { error.message_of_keys } else { error.message };
            ConfigError::Invalid { file: self.path.clone(), line, reason }
        })
    }

    fn line_of(&self, error: &PlanError) -> Option<usize> {
        let line = |volume: Option<&str>, key: &str| {
            let matches = |it: &&KeyPosition| it.volume.as_deref() == volume && it.key == key;
            self.keys.iter().rev().find(matches).map(|it| it.line)
        };
        let volume = error.volume.as_deref();
        line(volume, &error.key).or_else(|| line(None, &error.key)).or_else(|| line(volume, "path"))
    }
}

/// Converts tables to settings and volumes.
struct TableReader {
    file: ConfigFile,
    /// Offsets of the ends of lines in the text.
    line_ends: Vec<usize>,
    /// Settings with a value, and the volumes of their tables, by their numbers.
    given: HashSet<(usize, &'static str)>,
}

type ParseResult<T> = Result<T, ConfigError>;

/// Returns the names of the settings of volumes, or of all settings.
fn names(of_volumes: bool) -> impl Iterator<Item = &'static str> {
    let settings = SETTINGS.iter().filter(move |it| !of_volumes || it.is_of_volumes());
    settings.map(|setting| setting.name).chain([SET])
}

impl TableReader {
    /// Returns the line of a byte of the text.
    fn line(&self, at: usize) -> usize {
        self.line_ends.partition_point(|end| *end < at) + 1
    }

    /// Fails for a reason at a byte of the text.
    fn invalid<T>(&self, at: usize, reason: impl Into<String>) -> ParseResult<T> {
        let (file, line, reason) = (self.file.path.clone(), Some(self.line(at)), reason.into());
        Err(ConfigError::Invalid { file, line, reason })
    }

    fn note_key(&mut self, volume: Option<&str>, key: &str, at: usize) {
        let (volume, key, line) = (volume.map(str::to_owned), key.to_owned(), self.line(at));
        self.file.keys.push(KeyPosition { volume, key, line });
    }

    fn table(&mut self, table: &DeTable<'_>) -> ParseResult<()> {
        for (key, value) in table {
            let (name, at) = (key.get_ref().as_ref(), key.span().start);
            if name == "volume" {
                let DeValue::Array(volumes) = value.get_ref() else {
                    let reason = "\"volume\" is a table in an array: write [[volume]]";
                    return self.invalid(at, reason);
                };
                for volume in volumes {
                    self.volume(volume)?;
                }
            } else if name == SET {
                self.tunables(None, at, value)?;
            } else if let Some(setting) = find(name) {
                self.value(None, setting, at, value)?;
            } else {
                if VOLUME_KEYS.contains(&name) {
                    return self.invalid(at, format!("\"{name}\" belongs below a [[volume]] line"));
                }
                let known = names(false).chain(["volume"]);
                return self.invalid(at, unknown_setting("key", name, known));
            }
        }
        Ok(())
    }

    fn volume(&mut self, volume: &Spanned<DeValue<'_>>) -> ParseResult<()> {
        let at = volume.span().start;
        let DeValue::Table(table) = volume.get_ref() else {
            return self.invalid(at, "a volume is a table: write [[volume]]");
        };
        let text = |key: &str| match table.get(key).map(|value| (value.get_ref(), value.span())) {
            None => Ok(None),
            Some((DeValue::String(text), _)) if !text.is_empty() => Ok(Some(text.to_string())),
            Some((_, span)) => {
                self.invalid(span.start, format!("\"{key}\" must be a string that is not empty"))
            }
        };
        let Some(path) = text("path")? else {
            return self.invalid(at, "a volume needs a \"path\"");
        };
        let volume = VolumeSource::new(text("name")?.as_deref(), &path);
        let volume = volume.or_else(|reason| self.invalid(at, reason))?;
        let name = volume.name.clone();
        if name.contains('/') || name.starts_with('-') {
            let reason = format!("\"{name}\" cannot be a name: it has a / or begins with -");
            return self.invalid(at, reason);
        }
        self.file.volumes.push(volume);
        for (key, value) in table {
            let (key, at) = (key.get_ref().as_ref(), key.span().start);
            match find(key) {
                _ if VOLUME_KEYS.contains(&key) => self.note_key(Some(&name), key, at),
                _ if key == SET => self.tunables(Some(&name), at, value)?,
                Some(setting) if setting.is_of_volumes() => {
                    self.value(Some(&name), setting, at, value)?;
                }
                Some(_) => {
                    let reason =
                        format!("\"{key}\" is a setting of the server: write it above [[volume]]");
                    return self.invalid(at, reason);
                }
                None => {
                    let known = names(true).chain(VOLUME_KEYS);
                    return self.invalid(at, unknown_setting("key", key, known));
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
            return self.invalid(at, "\"set\" is a table: write set = { age-max = 2000 }");
        };
        for (name, value) in table {
            let (key, at) = (name.get_ref().as_ref(), name.span().start);
            let Some(setting) = find(key).filter(|setting| setting.form == ValueForm::Number)
            else {
                let known = SETTINGS.iter().filter(|setting| setting.form == ValueForm::Number);
                let reason = unknown_setting("tunable", key, known.map(|setting| setting.name));
                return self.invalid(at, reason);
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
        let table = if volume.is_some() { self.file.volumes.len() } else { 0 };
        if !self.given.insert((table, key)) {
            return self.invalid(at, format!("\"{key}\" is given twice; remove one of them"));
        }
        self.note_key(volume, key, at);
        let text = match (setting.form, value.get_ref()) {
            (ValueForm::Switch | ValueForm::Optional { .. }, DeValue::Boolean(false)) => {
                return Ok(());
            }
            (ValueForm::Switch, DeValue::Boolean(true)) => "true".to_owned(),
            (ValueForm::Optional { missing, .. }, DeValue::Boolean(true)) => missing.to_owned(),
            (ValueForm::Switch, _) => {
                return self.invalid(at, format!("\"{key}\" must be true or false"));
            }
            (_, DeValue::Integer(number)) => {
                let value = u64::from_str_radix(number.as_str(), number.radix());
                value.map_or_else(|_| number.to_string(), |value| value.to_string())
            }
            (_, DeValue::String(text)) => text.to_string(),
            (ValueForm::Number, _) => {
                return self.invalid(
                    at,
                    format!("\"{key}\" must be a whole number, or a size or time in quotes"),
                );
            }
            _ => {
                let reason = format!("\"{key}\" must be a string, as in {key} = \"...\"");
                return self.invalid(at, reason);
            }
        };
        // On the command line a volume name may precede the value; in a file the table determines
        // the volume.
        if setting.is_of_volumes() && text.contains('=') {
            let reason =
                format!("{} names a volume: write {key} into its [[volume]]", quoted(&text));
            return self.invalid(at, reason);
        }
        setting.check(OsStr::new(&text)).or_else(|reason| self.invalid(at, reason))?;
        let (volume, name) = (volume.map(str::to_owned), key.to_owned());
        self.file.assignments.push(Assignment { volume, name, value: text.into() });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
