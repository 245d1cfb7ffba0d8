//! The configuration file of `larder serve`, docs/config.md: the flags of the command line as TOML,
//! and a table `[[volume]]` for each volume.
//!
//! The file becomes flags and goes through the parser of the command line, so both know the same
//! names and refuse the same values. Invariant: what is wrong is said in one sentence with the
//! file, the line and the reason, and a file with anything wrong has no effect at all.

use super::Arguments;
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
/// Keys of a `[[volume]]` table that are no flags.
const VOLUME_KEYS: [&str; 2] = ["name", "path"];
/// Flags that a file cannot have.
const NOT_IN_FILES: [&str; 3] = ["config", "help", "version"];

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// It cannot be read at all.
    #[error("read {}: {source}", file.display())]
    Unreadable { file: PathBuf, source: FileError },
    /// Something in it is wrong.
    #[error("use {}: line {line}: {reason}", file.display())]
    Wrong { file: PathBuf, line: usize, reason: String },
    /// Something is wrong that has no line of its own.
    #[error("use {}: {reason}", file.display())]
    Whole { file: PathBuf, reason: String },
}

/// A key of the file and where it is.
#[derive(Debug)]
struct Place {
    /// None outside of the tables of volumes.
    volume: Option<String>,
    key: String,
    line: usize,
}

/// A file, read.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    path: PathBuf,
    places: Vec<Place>,
    /// Its flags as a command line has them.
    flags: Vec<OsString>,
    volumes: Vec<VolumeArgument>,
}

/// What is wrong at a byte of the text.
struct Fault {
    at: usize,
    reason: String,
}

type Checked<T> = Result<T, Fault>;

fn fault<T>(at: usize, reason: impl Into<String>) -> Checked<T> {
    Err(Fault { at, reason: reason.into() })
}

impl ConfigFile {
    /// Reads a file and checks each key and value of it.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable { file: path.to_owned(), source };
        let bytes = match owned_file::read(path, Secrecy::Public, FILE_BYTES_MAX) {
            Err(FileError::TooLong(_)) => {
                let reason = format!("the file is larger than {}", format::bytes(FILE_BYTES_MAX));
                return Err(ConfigError::Wrong { file: path.to_owned(), line: 1, reason });
            }
            read => read.map_err(unreadable)?,
        };
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = valid.split(|&byte| byte == b'\n').count();
            let reason = "the file is not UTF-8".to_owned();
            ConfigError::Wrong { file: path.to_owned(), line, reason }
        })?;
        ConfigFile::parse(path, &text)
    }

    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        let line = |at: usize| ends.partition_point(|end| *end < at) + 1;
        let wrong = |Fault { at, reason }| ConfigError::Wrong {
            file: path.to_owned(),
            line: line(at),
            reason,
        };
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            wrong(Fault { at, reason: error.message().replace('\n', ", ") })
        })?;
        let mut builder = Builder::new();
        builder.table(table.get_ref()).map_err(wrong)?;
        let Builder { flags, volumes, places, .. } = builder;
        let places = places.into_iter();
        let places = places.map(|(volume, key, at)| Place { volume, key, line: line(at) });
        Ok(ConfigFile { path: path.to_owned(), places: places.collect(), flags, volumes })
    }

    /// The file's flags and volumes with those of a command line, which go before them.
    pub(crate) fn arguments(&self, command_line: &[OsString]) -> Result<Arguments, ConfigError> {
        let words = self.flags.iter().chain(command_line);
        let mut arguments = from_words(words.cloned().collect())
            .map_err(|reason| ConfigError::Whole { file: self.path.clone(), reason })?;
        arguments.volumes.splice(..0, self.volumes.iter().cloned());
        Ok(arguments)
    }

    /// The plan of these arguments, with the line of what is wrong.
    pub(crate) fn plan(&self, arguments: &Arguments) -> Result<Plan, ConfigError> {
        Plan::of(arguments).map_err(|error| {
            let file = self.path.clone();
            let reason = error.to_string();
            match self.line_of(&error) {
                Some(line) => ConfigError::Wrong { file, line, reason },
                None => ConfigError::Whole { file, reason },
            }
        })
    }

    fn line_of(&self, error: &PlanError) -> Option<usize> {
        let of = |volume: Option<&str>, key: &str| {
            let is_it = |place: &&Place| place.volume.as_deref() == volume && place.key == key;
            self.places.iter().rev().find(is_it).map(|place| place.line)
        };
        let volume = error.volume.as_deref();
        of(volume, error.key).or_else(|| of(None, error.key)).or_else(|| of(volume, "path"))
    }
}

/// The arguments in the words of a command line.
pub(crate) fn from_words(words: Vec<OsString>) -> Result<Arguments, String> {
    let matches = serve_command().try_get_matches_from(words).map_err(|error| reason_of(&error))?;
    Arguments::from_arg_matches(&matches).map_err(|error| reason_of(&error))
}

/// The flags of `larder serve`; of one that is given twice, the later counts. Whether volumes are
/// named at all is looked at by the plan.
fn serve_command() -> Command {
    let command = Command::new("larder serve").args_override_self(true).no_binary_name(true);
    Arguments::augment_args(command)
        .mut_arg("volumes", |arg| arg.required_unless_present(clap::builder::Resettable::Reset))
}

/// What a parser of the command line says, without what only helps there.
fn reason_of(error: &clap::Error) -> String {
    use std::error::Error as _;
    if let Some(source) = error.source() {
        return source.to_string();
    }
    // Its first paragraph; the others say how to get help.
    let text = error.render().to_string();
    let lines = text.lines().take_while(|line| !line.is_empty()).map(str::trim);
    lines.collect::<Vec<_>>().join(" ").trim_start_matches("error: ").to_owned()
}

/// Makes flags and volumes of tables.
struct Builder {
    command: Command,
    flags: Vec<OsString>,
    volumes: Vec<VolumeArgument>,
    /// Volume, key, byte of the text.
    places: Vec<(Option<String>, String, usize)>,
}

impl Builder {
    fn new() -> Self {
        let command = serve_command();
        Builder { command, flags: Vec::new(), volumes: Vec::new(), places: Vec::new() }
    }

    fn flag(&self, key: &str) -> Option<&Arg> {
        let known = |arg: &&Arg| arg.get_long() == Some(key) && !NOT_IN_FILES.contains(&key);
        self.command.get_arguments().find(known)
    }

    fn table(&mut self, table: &DeTable<'_>) -> Checked<()> {
        for (key, value) in table {
            let (name, at) = (key.get_ref().as_ref(), key.span().start);
            if name == "volume" {
                let DeValue::Array(volumes) = value.get_ref() else {
                    return fault(at, "\"volume\" is a table in an array: write [[volume]]");
                };
                for volume in volumes {
                    self.volume(volume)?;
                }
            } else if self.flag(name).is_some() {
                self.value(None, name, at, value)?;
            } else {
                let flags = self.command.get_arguments().filter_map(Arg::get_long);
                let known = flags.filter(|flag| !NOT_IN_FILES.contains(flag)).chain(["volume"]);
                return fault(at, unknown("key", name, known));
            }
        }
        Ok(())
    }

    fn volume(&mut self, volume: &Spanned<DeValue<'_>>) -> Checked<()> {
        let at = volume.span().start;
        let DeValue::Table(table) = volume.get_ref() else {
            return fault(at, "a volume is a table: write [[volume]]");
        };
        let text = |key: &str| match table.get(key).map(|value| (value.get_ref(), value.span())) {
            None => Ok(None),
            Some((DeValue::String(text), _)) if !text.is_empty() => Ok(Some(text.to_string())),
            Some((_, span)) => fault(span.start, format!("\"{key}\" must be a text")),
        };
        let Some(path) = text("path")? else {
            return fault(at, "a volume needs a \"path\"");
        };
        let volume = VolumeArgument::new(text("name")?.as_deref(), &path);
        let volume = volume.or_else(|reason| fault(at, reason))?;
        let name = volume.name.clone();
        if name.contains('/') || name.starts_with('-') {
            let reason = format!("\"{name}\" cannot be a name: it has a / or begins with -");
            return fault(at, reason);
        }
        self.volumes.push(volume);
        for (key, value) in table {
            let (key, at) = (key.get_ref().as_ref(), key.span().start);
            if VOLUME_KEYS.contains(&key) {
                self.places.push((Some(name.clone()), key.to_owned(), at));
            } else if self.flag(key).is_some_and(is_of_volume) {
                self.value(Some(&name), key, at, value)?;
            } else if self.flag(key).is_some() {
                return fault(at, format!("\"{key}\" is one for all volumes: write it above them"));
            } else {
                let flags = self.command.get_arguments().filter(|arg| is_of_volume(arg));
                let known = flags.filter_map(Arg::get_long).chain(VOLUME_KEYS);
                return fault(at, unknown("key", key, known));
            }
        }
        Ok(())
    }

    /// Adds `--key=value`, for a volume if it is one of its own.
    fn value(
        &mut self,
        volume: Option<&str>,
        key: &str,
        at: usize,
        value: &Spanned<DeValue<'_>>,
    ) -> Checked<()> {
        self.places.push((volume.map(str::to_owned), key.to_owned(), at));
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
            // A flag that may have a value, or none.
            DeValue::Boolean(on) if is_optional(arg) => {
                if *on {
                    self.flags.push(format!("--{key}").into());
                }
                Ok(())
            }
            _ if is_switch => fault(at, format!("\"{key}\" is true or false")),
            DeValue::Table(table) if is_setting => {
                for (name, value) in table {
                    let DeValue::Integer(number) = value.get_ref() else {
                        return fault(
                            value.span().start,
                            format!("\"{}\" must be a whole number", name.get_ref()),
                        );
                    };
                    let of = volume.map(|volume| format!("{volume}.")).unwrap_or_default();
                    let setting = format!("{of}{}={number}", name.get_ref());
                    self.push(key, name.span().start, &setting)?;
                }
                Ok(())
            }
            _ if is_setting => {
                fault(at, "\"set\" is a table: write set = { age-max = 2000 }".to_owned())
            }
            DeValue::String(text) => self.set_word(volume, key, at, text),
            DeValue::Integer(number) => self.set_word(volume, key, at, &number.to_string()),
            _ => fault(at, format!("\"{key}\" must be a text, as in {key} = \"...\"")),
        }
    }

    fn set_word(&mut self, volume: Option<&str>, key: &str, at: usize, text: &str) -> Checked<()> {
        // On the command line a name may stand before the value; here the table says whose it is.
        if is_of_volume(self.flag(key).expect("known")) && text.contains('=') {
            let reason = format!("\"{text}\" names a volume: write {key} into its [[volume]]");
            return fault(at, reason);
        }
        let of = volume.map(|volume| format!("{volume}=")).unwrap_or_default();
        self.push(key, at, &format!("{of}{text}"))
    }

    /// Adds a flag if the parser of the command line takes its value.
    fn push(&mut self, key: &str, at: usize, value: &str) -> Checked<()> {
        // Alone: what must come together with it is looked at when all is there.
        let arg = self.flag(key).expect("a key that is known");
        let arg = Arg::new("value")
            .long("value")
            .value_parser(arg.get_value_parser().clone())
            .action(arg.get_action().clone());
        let command = Command::new("larder serve").no_binary_name(true).arg(arg);
        if let Err(error) = command.try_get_matches_from([format!("--value={value}")]) {
            return fault(at, reason_of(&error));
        }
        self.flags.push(format!("--{key}={value}").into());
        Ok(())
    }
}

/// Whether a flag may stand without a value, though it takes one.
fn is_optional(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|values| values.min_values() == 0 && values.takes_values())
}

/// Whether a flag may be given for one volume.
fn is_of_volume(arg: &Arg) -> bool {
    let names = arg.get_value_names().unwrap_or_default();
    names.first().is_some_and(|name| name.starts_with("[NAME"))
}

#[cfg(test)]
mod tests;
