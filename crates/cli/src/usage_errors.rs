//! Errors of the command line: the messages of clap, with suggestions that fit, the reasons of
//! number parsers in plain words, and the help of the command that was meant.

use crate::{Cli, FAILURE, finish, output, parse};
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};
use larder_report::escape;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Write;
use std::process::ExitCode;

/// Options of other programs, and the option that has their meaning here. The first one that a
/// command has is suggested.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("--address", "--listen"),
    ("--port", "--listen"),
    ("--socket", "--listen"),
    ("--cache-size", "--memory"),
    ("-m", "--memory"),
    ("--readonly", "--write-mode"),
    ("--read-only", "--write-mode"),
    ("--writeback", "--write-mode"),
    ("--writethrough", "--write-mode"),
    ("--duration", "--length"),
    ("--duration", "--for"),
    ("--seconds", "--for"),
    ("--file-size", "--size"),
    ("--output-format", "--format"),
];

/// Prints the error of the command line, or the requested help.
pub(crate) fn refuse(error: &clap::Error, words: &[OsString]) -> ExitCode {
    if !error.use_stderr() {
        let printed = error.print().and_then(|()| output::raw_stdout().flush());
        return finish(printed.map(|()| ExitCode::SUCCESS).map_err(Into::into));
    }
    // The message quotes arguments, such as file names: they are escaped.
    if let Err(error) = parse(words.iter().map(|it| escaped(it))) {
        eprint!("{}", message(error, words));
        return ExitCode::from(FAILURE);
    }
    // The arguments contained control characters, or were not UTF-8.
    let argument = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    let argument = argument.unwrap_or_else(|| "an argument".to_owned());
    let reason = match std::error::Error::source(error) {
        _ if error.kind() == ErrorKind::InvalidUtf8 => "it is not UTF-8".to_owned(),
        Some(reason) => reason.to_string(),
        None => "it is not expected here".to_owned(),
    };
    eprintln!("error: invalid value for {argument}: {reason}");
    ExitCode::from(FAILURE)
}

/// Returns an argument escaped for a message; of `--flag=VALUE` only the value is escaped.
fn escaped(argument: &OsStr) -> String {
    let text = argument.to_string_lossy();
    match text.split_once('=') {
        Some((flag, value)) if flag.starts_with("--") => format!("{flag}={}", escape::text(value)),
        _ => escape::text(&text).into_owned(),
    }
}

/// The error of a command line within a command line.
#[derive(Debug)]
pub(crate) struct UsageError(String);

impl UsageError {
    /// Creates the error of a command that is called `name`.
    pub(crate) fn new(error: clap::Error, mut command: Command, name: &str) -> Self {
        command.build();
        UsageError(message_for(error, &command, name))
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Returns the message of an error.
fn message(error: clap::Error, words: &[OsString]) -> String {
    let mut root = Cli::command();
    root.build();
    let (command, name) = named_command(&root, words);
    message_for(error, command, &name)
}

/// Returns the message of an error of a command that is called `name`.
fn message_for(mut error: clap::Error, command: &Command, name: &str) -> String {
    match error.kind() {
        ErrorKind::UnknownArgument => suggest_option(&mut error, command),
        ErrorKind::InvalidSubcommand => suggest_subcommand(&mut error, command),
        _ => {}
    }
    let text = error.render().to_string();
    let lines = text.lines().map(escape::line).map(|line| match line.rsplit_once(": ") {
        Some((start, reason)) => format!("{start}: {}\n", plain_reason(reason)),
        None => format!("{line}\n"),
    });
    lines.collect::<String>().replace("try '--help'", &format!("try '{name} --help'"))
}

/// Returns the reason of a number parser in plain words.
fn plain_reason(reason: &str) -> String {
    match reason {
        // The integer parser returns this for letters and for a sign.
        "invalid digit found in string" => {
            return "it is not a whole number from 0 on, such as 1000".to_owned();
        }
        "invalid float literal" => return "it is not a number".to_owned(),
        "number too large to fit in target type" => return "it is too large".to_owned(),
        _ => {}
    }
    let range = reason.split_once(" is not in ").and_then(|(_, range)| range.split_once("..="));
    match range {
        Some((min, max)) => format!("it is not a whole number from {min} to {max}"),
        None => reason.to_owned(),
    }
}

/// Returns the command that a command line names, and its words.
fn named_command<'a>(root: &'a Command, words: &[OsString]) -> (&'a Command, String) {
    let (mut command, mut name) = (root, root.get_name().to_owned());
    for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
        if let Some(sub) = command.find_subcommand(word) {
            command = sub;
            name.extend([" ", word]);
        }
    }
    (command, name)
}

/// Replaces the suggestions for an unknown option: clap also suggests to pass it as a value, and
/// names that are hardly similar; its usage line contains the suggested option.
fn suggest_option(error: &mut clap::Error, command: &Command) {
    let suggested = error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::Suggested);
    error.remove(ContextKind::Usage);
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else { return };
    let has = |option: &str| {
        let long = option.trim_start_matches('-');
        command.get_arguments().any(|arg| arg.get_long() == Some(long))
    };
    let other_name =
        OTHER_NAMES.iter().find(|(other, option)| other == given && has(option)).map(|it| it.1);
    let option = match &suggested {
        _ if other_name.is_some() => other_name,
        Some(ContextValue::String(option)) if is_similar(given, option) => Some(option.as_str()),
        _ => None,
    };
    if let Some(option) = option {
        error.insert(ContextKind::SuggestedArg, ContextValue::String(option.to_owned()));
    } else if command.get_name() == "iozone" && !given.starts_with('-') {
        let tip = StyledStr::from("as in IOzone, -o has no value; '--output FILE' names a file");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    } else if given.starts_with('-') && command.get_arguments().any(clap::Arg::is_last_set) {
        let tip = StyledStr::from("arguments of the benchmark follow after '--'");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
}

/// Returns true if one option may be a wrong spelling of another one.
fn is_similar(given: &str, option: &str) -> bool {
    let [given, option] = [given, option].map(|name| name.trim_start_matches('-'));
    let same = given.chars().zip(option.chars()).take_while(|(a, b)| a == b).count();
    let longer = given.len().max(option.len());
    same >= 4 || strsim::damerau_levenshtein(given, option) * 3 <= longer
}

/// Suggests commands of other commands, such as `larder ctl stats` for `larder stats`, if no
/// similar one exists. Removes suggestions of clap that are hardly similar.
fn suggest_subcommand(error: &mut clap::Error, command: &Command) {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand).cloned()
    else {
        return;
    };
    if let Some(ContextValue::Strings(names)) = error.remove(ContextKind::SuggestedSubcommand) {
        let is_similar = |name: &String| {
            given.starts_with(name.as_str())
                || strsim::damerau_levenshtein(&given, name) * 2 <= given.len()
        };
        let names: Vec<String> = names.into_iter().filter(is_similar).collect();
        if names.is_empty() {
            error.remove(ContextKind::Suggested);
        } else {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
        }
    }
    let nested = command.get_subcommands().filter(|sub| sub.find_subcommand(&given).is_some());
    let names: Vec<String> = nested.map(|sub| format!("{} {given}", sub.get_name())).collect();
    if error.get(ContextKind::SuggestedSubcommand).is_none() && !names.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message_of(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        message(parse(words.clone()).map(drop).unwrap_err(), &words)
    }

    #[test]
    fn options_are_suggested_that_are_similar_or_mean_the_same() {
        for (line, option) in [
            ("larder serve a --memroy 1MiB", "'--memory'"),
            ("larder sim a --policies lru", "'--policy'"),
            ("larder serve a --port 1", "'--listen'"),
            ("larder watch --duration 5s", "'--for'"),
            ("larder bench probe a --duration 5s", "'--length'"),
            ("larder try a --size 1MiB", "follow after '--'"),
            ("larder bench iozone a -o b", "'--output FILE'"),
        ] {
            let message = message_of(line);
            assert!(message.contains("tip: ") && message.contains(option), "{message}");
        }
        for line in ["larder sim a --verbose", "larder trace synth zipf a --footprint 1"] {
            assert!(!message_of(line).contains("tip: "), "{line}");
        }
    }

    #[test]
    fn a_message_ends_with_the_help_of_its_command() {
        let message = message_of("larder bench server a --clients 0");
        assert!(message.contains(": it is not a whole number from 1 to 4096\n"), "{message}");
        assert!(message.ends_with("try 'larder bench server --help'.\n"), "{message}");
        assert!(message_of("larder stats").contains("'ctl stats'"));
        assert!(!message_of("larder nosuch").contains("similar"));
        let message = message_of("larder trace synth zipf a --rate x");
        assert!(message.contains(": it is not a number\n"), "{message}");
        for (command, usage) in [("size", "TRACE | --sample | --live"), ("sim", "... | --sample")] {
            let message = message_of(&format!("larder {command}"));
            assert!(message.contains(usage), "{message}");
        }
    }
}
