//! The flags of `larder serve` and `larder mount`, from the table of settings.

use super::short_help;
use crate::output_file::OutputFile;
use clap::builder::{OsStringValueParser, TypedValueParser as _, ValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use larder_server::settings::{Assignment, SETTINGS, Setting, SettingGroup, ValueForm, find};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The flag for tunables by name.
const SET: &str = "set";

/// A text that may be a path; a hyphen begins the next option.
#[derive(Clone, Debug)]
pub(crate) struct PathText;

/// A text that its setting accepts.
#[derive(Clone, Debug)]
pub(super) struct ValidText;

/// The settings that a command line gives to a server, or to a mount.
#[derive(Clone, Debug)]
pub(crate) struct Settings<const OF_MOUNT: bool>(pub(crate) Vec<Assignment>);

/// The settings of `larder serve`: a value of a volume may begin with its name.
pub(crate) type ServeSettings = Settings<false>;
pub(crate) type MountSettings = Settings<true>;

impl<const OF_MOUNT: bool> Settings<OF_MOUNT> {
    fn rows() -> impl Iterator<Item = &'static Setting> {
        SETTINGS.iter().filter(|setting| setting.is_of_mounts || !OF_MOUNT)
    }

    /// Returns true if a value may begin with the name of a volume.
    fn names_volumes(setting: &Setting) -> bool {
        setting.is_of_volumes() && !OF_MOUNT
    }

    fn arg(setting: &'static Setting) -> Arg {
        let names_volumes = Self::names_volumes(setting);
        let placeholder = match setting.form {
            ValueForm::Text(placeholder)
            | ValueForm::Optional { placeholder, .. }
            | ValueForm::Path(placeholder)
            | ValueForm::PathOrNone(placeholder) => placeholder,
            ValueForm::OutputFile => "FILE",
            ValueForm::Number => "NUMBER",
            ValueForm::Switch => "",
        };
        let check = move |text: &str| {
            let (_, value) = split(text, names_volumes);
            setting.check(OsStr::new(value))
        };
        let parser: ValueParser = match setting.form {
            ValueForm::Path(_) => path_parser::<PathBuf>(setting),
            ValueForm::OutputFile => path_parser::<OutputFile>(setting),
            ValueForm::PathOrNone(_) => {
                ValueParser::new(move |text: &str| check(text).map(|()| PathText))
            }
            _ => ValueParser::new(move |text: &str| check(text).map(|()| ValidText)),
        };
        let short = short_help::of(setting.name);
        let arg = Arg::new(setting.name)
            .long(setting.name)
            .help(help(setting, short.unwrap_or(&setting.meaning)))
            .long_help(help(setting, &setting.meaning))
            .hide_short_help(short.is_none());
        let arg = match setting.group {
            SettingGroup::Server => arg,
            group => arg.help_heading(group.heading()),
        };
        match setting.form {
            ValueForm::Switch => {
                return arg.action(ArgAction::SetTrue).overrides_with(setting.name);
            }
            ValueForm::Optional { missing, .. } => arg
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value(missing)
                .value_name(placeholder),
            _ if names_volumes => arg.value_name(format!("[NAME=]{placeholder}")),
            _ => arg.value_name(placeholder),
        }
        // The last of several values applies.
        .action(ArgAction::Append)
        .value_parser(parser)
    }

    fn augment(command: Command) -> Command {
        let placeholder = if OF_MOUNT { "TUNABLE=VALUE" } else { "[NAME.]TUNABLE=VALUE" };
        let set = Arg::new(SET)
            .long(SET)
            .action(ArgAction::Append)
            .value_name(placeholder)
            .value_parser(|text: &str| tunable(text))
            .help("Set a tunable (docs/TUNABLES.md)")
            .help_heading(SettingGroup::Writes.heading());
        command.args(Self::rows().map(Self::arg)).arg(set)
    }

    /// Returns the assignments in the order of the command line.
    fn read(matches: &ArgMatches) -> Self {
        let mut found: Vec<(usize, Assignment)> = Vec::new();
        for setting in Self::rows() {
            if matches.value_source(setting.name) != Some(ValueSource::CommandLine) {
                continue;
            }
            let indices = matches.indices_of(setting.name).into_iter().flatten();
            for (at, raw) in indices.zip(matches.get_raw(setting.name).into_iter().flatten()) {
                let (volume, value) = match raw.to_str() {
                    Some(text) => {
                        let (volume, value) = split(text, Self::names_volumes(setting));
                        (volume.map(str::to_owned), value.into())
                    }
                    None => (None, raw.to_owned()),
                };
                found.push((at, Assignment { volume, name: setting.name.to_owned(), value }));
            }
        }
        let tunables = matches.get_many::<Assignment>(SET).into_iter().flatten().cloned();
        found.extend(matches.indices_of(SET).into_iter().flatten().zip(tunables));
        found.sort_by_key(|(at, _)| *at);
        Settings(found.into_iter().map(|(_, assignment)| assignment).collect())
    }
}

/// Returns the parser of a path, which need not be UTF-8.
fn path_parser<T>(setting: &'static Setting) -> ValueParser
where
    T: From<OsString> + Clone + Send + Sync + 'static,
{
    let checked = |path: OsString| setting.check(&path).map(|()| T::from(path));
    OsStringValueParser::new().try_map(checked).into()
}

/// Returns a meaning of a setting with its default.
fn help(setting: &Setting, meaning: &str) -> String {
    let meaning = meaning.trim_end_matches('.');
    if setting.default.is_empty() {
        return meaning.to_owned();
    }
    format!("{meaning} [default: {}]", setting.default)
}

/// Splits `[NAME=]VALUE`. A name may contain "=", a value does not.
fn split(text: &str, names_volumes: bool) -> (Option<&str>, &str) {
    match text.rsplit_once('=').filter(|_| names_volumes) {
        Some((name, value)) => (Some(name), value),
        None => (None, text),
    }
}

/// Parses `[NAME.]TUNABLE=VALUE`.
fn tunable(text: &str) -> Result<Assignment, String> {
    let named = text.rsplit_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = named.ok_or("write it as NAME=VALUE")?;
    let assignment = Assignment::parse(name, value);
    // The plan refuses an unknown name.
    if let Some(setting) = find(&assignment.name) {
        if setting.form != ValueForm::Number {
            return Err(format!("{name} is not a tunable; use --{}", assignment.name));
        }
        setting.check(OsStr::new(value))?;
    }
    Ok(assignment)
}

impl<const OF_MOUNT: bool> FromArgMatches for Settings<OF_MOUNT> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self::read(matches))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::read(matches);
        Ok(())
    }
}

impl<const OF_MOUNT: bool> clap::Args for Settings<OF_MOUNT> {
    fn augment_args(command: Command) -> Command {
        Self::augment(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args as _;

    fn serve(words: &[&str]) -> Result<Vec<Assignment>, String> {
        let command = ServeSettings::augment_args(Command::new("serve").no_binary_name(true));
        let command = super::super::allow_hyphens(command);
        let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
        Ok(ServeSettings::read(&matches).0)
    }

    fn assignment(volume: &str, name: &str, value: &str) -> Assignment {
        let volume = (!volume.is_empty()).then(|| volume.to_owned());
        Assignment { volume, name: name.to_owned(), value: value.into() }
    }

    #[test]
    fn flags_name_a_volume_or_none() {
        let found = serve(&["--min", "1MiB", "--min=b=x=4MiB", "--lock", "--give-back"]).unwrap();
        let expected = [
            assignment("", "min", "1MiB"),
            assignment("b=x", "min", "4MiB"),
            assignment("", "lock", "true"),
            assignment("", "give-back", "0"),
        ];
        assert_eq!(found, expected);
        let found = serve(&["--set", "my.disk.age-max=70", "--age-max", "my.disk=90"]).unwrap();
        let (by_flag, by_name) =
            (assignment("my.disk", "age-max", "90"), assignment("my.disk", "age-max", "70"));
        assert_eq!(found, [by_name, by_flag], "in the order of the command line");
    }

    #[test]
    fn a_wrong_value_is_refused_with_its_reason() {
        let refused = |words: &[&str]| serve(words).unwrap_err();
        assert!(refused(&["--memory", "-1"]).contains("\"-1\" is not a size"));
        assert!(refused(&["--policy", "a=mru"]).contains("there is no policy \"mru\""));
        assert!(refused(&["--set", "memory=1"]).contains("memory is not a tunable; use --memory"));
        assert!(refused(&["--set", "=1"]).contains("write it as NAME=VALUE"));
        assert!(refused(&["--age-max", "soon"]).contains("\"soon\" is not a time"));
        let days = refused(&["--set", "disk.age-max=1d"]);
        assert!(days.contains("one from 10ms to 1h, or a number of milliseconds"), "{days}");
    }
}
