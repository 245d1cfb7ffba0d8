//! The configuration file of `larder serve`, docs/config.md: the flags of the command line as TOML,
//! and a table `[[volume]]` for each volume.
//!
//! The file is converted to flags and parsed as a command line, so both have the same names and
//! refuse the same values. Invariant: an error is one sentence with the file, the line and the
//! reason, and a file with an error has no effect.

use super::ServeArgs;
use super::plan::{Plan, PlanError};
use crate::args::{VolumeArgument, unknown};
use clap::{Arg, ArgAction, Args as _, Command, FromArgMatches};
use larder_io::owned_file::{self, FileError, Secrecy};
use larder_report::format;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum size of a configuration file: thousands of volumes with all settings.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Keys of a `[[volume]]` table that are not flags.
const VOLUME_KEYS: [&str; 2] = ["name", "path"];
/// Flags that a file cannot contain.
const NOT_IN_FILES: [&str; 3] = ["config", "help", "version"];

/// An error of a configuration file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("read {}: {source}", file.display())]
    Unreadable { file: PathBuf, source: FileError },
    /// An error at a line of the file.
    #[error("use {}: line {line}: {reason}", file.display())]
    AtLine { file: PathBuf, line: usize, reason: String },
    /// An error without a line.
    #[error("use {}: {reason}", file.display())]
    InFile { file: PathBuf, reason: String },
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
pub(crate) struct ConfigFile {
    path: PathBuf,
    keys: Vec<KeyPosition>,
    /// Its flags in the form of a command line.
    flags: Vec<OsString>,
    volumes: Vec<VolumeArgument>,
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
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
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

    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
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
        let mut builder = FlagBuilder::new();
        builder.table(table.get_ref()).map_err(at_line)?;
        let FlagBuilder { flags, volumes, keys, .. } = builder;
        let keys = keys.into_iter();
        let keys = keys.map(|(volume, key, at)| KeyPosition { volume, key, line: line(at) });
        Ok(ConfigFile { path: path.to_owned(), keys: keys.collect(), flags, volumes })
    }

    /// Returns the flags and volumes of the file with those of a command line, which override them.
    pub(crate) fn arguments(&self, command_line: &[OsString]) -> Result<ServeArgs, ConfigError> {
        let words = self.flags.iter().chain(command_line);
        let mut arguments = parse_words(words.cloned().collect())
            .map_err(|reason| ConfigError::InFile { file: self.path.clone(), reason })?;
        arguments.volumes.splice(..0, self.volumes.iter().cloned());
        Ok(arguments)
    }

    /// Returns the plan of these arguments; an error has the line of its key.
    pub(crate) fn plan(&self, arguments: &ServeArgs) -> Result<Plan, ConfigError> {
        Plan::of(arguments).map_err(|error| {
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
        line(volume, error.key).or_else(|| line(None, error.key)).or_else(|| line(volume, "path"))
    }
}

/// Parses arguments in the form of a command line.
pub(crate) fn parse_words(words: Vec<OsString>) -> Result<ServeArgs, String> {
    let matches = serve_command().try_get_matches_from(words).map_err(|error| reason_of(&error))?;
    ServeArgs::from_arg_matches(&matches).map_err(|error| reason_of(&error))
}

/// Returns the flags of `larder serve`; the last of several values of a flag applies. The plan
/// checks if there are volumes.
fn serve_command() -> Command {
    let command = Command::new("larder serve").args_override_self(true).no_binary_name(true);
    ServeArgs::augment_args(command)
        .mut_arg("volumes", |arg| arg.required_unless_present(clap::builder::Resettable::Reset))
}

/// Returns the message of a clap error, without the help that applies only to a command line.
fn reason_of(error: &clap::Error) -> String {
    use std::error::Error as _;
    if let Some(source) = error.source() {
        return source.to_string();
    }
    // The first paragraph; the others describe the help options.
    let text = error.render().to_string();
    let lines = text.lines().take_while(|line| !line.is_empty()).map(str::trim);
    lines.collect::<Vec<_>>().join(" ").trim_start_matches("error: ").to_owned()
}

/// Converts tables to flags and volumes.
struct FlagBuilder {
    command: Command,
    flags: Vec<OsString>,
    volumes: Vec<VolumeArgument>,
    /// Volume, key, and byte offset in the text.
    keys: Vec<(Option<String>, String, usize)>,
}

impl FlagBuilder {
    fn new() -> Self {
        let command = serve_command();
        FlagBuilder { command, flags: Vec::new(), volumes: Vec::new(), keys: Vec::new() }
    }

    fn flag(&self, key: &str) -> Option<&Arg> {
        let matches = |arg: &&Arg| arg.get_long() == Some(key) && !NOT_IN_FILES.contains(&key);
        self.command.get_arguments().find(matches)
    }

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
            } else if self.flag(name).is_some() {
                self.value(None, name, at, value)?;
            } else {
                let flags = self.command.get_arguments().filter_map(Arg::get_long);
                let known = flags.filter(|flag| !NOT_IN_FILES.contains(flag)).chain(["volume"]);
                return error_at(at, unknown("key", name, known));
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
        let volume = VolumeArgument::new(text("name")?.as_deref(), &path);
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
            } else if self.flag(key).is_some_and(is_of_volume) {
                self.value(Some(&name), key, at, value)?;
            } else if self.flag(key).is_some() {
                return error_at(
                    at,
                    format!("\"{key}\" is one for all volumes: write it above them"),
                );
            } else {
                let flags = self.command.get_arguments().filter(|arg| is_of_volume(arg));
                let known = flags.filter_map(Arg::get_long).chain(VOLUME_KEYS);
                return error_at(at, unknown("key", key, known));
            }
        }
        Ok(())
    }

    /// Adds `--key=value`, with the name of the volume if there is one.
    fn value(
        &mut self,
        volume: Option<&str>,
        key: &str,
        at: usize,
        value: &Spanned<DeValue<'_>>,
    ) -> ParseResult<()> {
        self.keys.push((volume.map(str::to_owned), key.to_owned(), at));
        let arg = self.flag(key).expect("a key that is known");
        let is_switch = matches!(arg.get_action(), ArgAction::SetTrue);
        let is_setting = key == "set";
        match value.get_ref() {
            DeValue::Boolean(on) if is_switch => {
                if *on {
                    self.flags.push(format!("--{key}").into());
                }
                Ok(())
            }
            // A flag with an optional value.
            DeValue::Boolean(on) if is_optional(arg) => {
                if *on {
                    self.flags.push(format!("--{key}").into());
                }
                Ok(())
            }
            _ if is_switch => error_at(at, format!("\"{key}\" is true or false")),
            DeValue::Table(table) if is_setting => {
                for (name, value) in table {
                    let DeValue::Integer(number) = value.get_ref() else {
                        return error_at(
                            value.span().start,
                            format!("\"{}\" must be a whole number", name.get_ref()),
                        );
                    };
                    let prefix = volume.map(|volume| format!("{volume}.")).unwrap_or_default();
                    let setting = format!("{prefix}{}={number}", name.get_ref());
                    self.push(key, name.span().start, &setting)?;
                }
                Ok(())
            }
            _ if is_setting => {
                error_at(at, "\"set\" is a table: write set = { age-max = 2000 }".to_owned())
            }
            DeValue::String(text) => self.set_word(volume, key, at, text),
            DeValue::Integer(number) => self.set_word(volume, key, at, &number.to_string()),
            _ => error_at(at, format!("\"{key}\" must be a text, as in {key} = \"...\"")),
        }
    }

    fn set_word(
        &mut self,
        volume: Option<&str>,
        key: &str,
        at: usize,
        text: &str,
    ) -> ParseResult<()> {
        // On the command line a volume name may precede the value; in a file the table determines
        // the volume.
        if is_of_volume(self.flag(key).expect("known")) && text.contains('=') {
            let reason = format!("\"{text}\" names a volume: write {key} into its [[volume]]");
            return error_at(at, reason);
        }
        let prefix = volume.map(|volume| format!("{volume}=")).unwrap_or_default();
        self.push(key, at, &format!("{prefix}{text}"))
    }

    /// Adds a flag if the parser of the command line accepts its value.
    fn push(&mut self, key: &str, at: usize, value: &str) -> ParseResult<()> {
        // The flag is parsed alone; dependencies between flags are checked when all are known.
        let arg = self.flag(key).expect("a key that is known");
        let arg = Arg::new("value")
            .long("value")
            .value_parser(arg.get_value_parser().clone())
            .action(arg.get_action().clone());
        let command = Command::new("larder serve").no_binary_name(true).arg(arg);
        if let Err(error) = command.try_get_matches_from([format!("--value={value}")]) {
            return error_at(at, reason_of(&error));
        }
        self.flags.push(format!("--{key}={value}").into());
        Ok(())
    }
}

/// Returns true if the value of a flag is optional.
fn is_optional(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|values| values.min_values() == 0 && values.takes_values())
}

/// Returns true if a flag may be given for one volume.
fn is_of_volume(arg: &Arg) -> bool {
    let names = arg.get_value_names().unwrap_or_default();
    names.first().is_some_and(|name| name.starts_with("[NAME"))
}

#[cfg(test)]
mod tests;
