//! The commands of a PostMark script: their syntax, and their effect on the configuration.
//!
//! Invariants, all as in the original: a line is the first command whose name it begins with, in
//! the order of [`Command::ALL`]; the character after the name is skipped, whatever it is; the rest
//! is the parameter. Numbers are read as C's `atoi` reads them into an int.

use super::config::{BIAS_MAX, Config, Location, ReportFormat};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `set size LOW [HIGH]`
    Size,
    /// `set number N`
    Number,
    /// `set seed N`
    Seed,
    /// `set transactions N`
    Transactions,
    /// `set location [+|-]PATH [WEIGHT]`
    Location,
    /// `set subdirectories N`
    Subdirectories,
    /// `set read N`
    Read,
    /// `set write N`
    Write,
    /// `set buffering true|false`
    Buffering,
    /// `set bias read N`
    BiasRead,
    /// `set bias create N`
    BiasCreate,
    /// `set report verbose|terse`
    Report,
    /// `run [FILE]`
    Run,
    /// `load FILE`
    Load,
    /// `show [FILE]`
    Show,
    /// `help [PREFIX]`
    Help,
    /// `quit`
    Quit,
}

impl Command {
    /// All commands, in the order in which a line is compared with them.
    pub const ALL: [Command; 17] = [
        Command::Size,
        Command::Number,
        Command::Seed,
        Command::Transactions,
        Command::Location,
        Command::Subdirectories,
        Command::Read,
        Command::Write,
        Command::Buffering,
        Command::BiasRead,
        Command::BiasCreate,
        Command::Report,
        Command::Run,
        Command::Load,
        Command::Show,
        Command::Help,
        Command::Quit,
    ];

    /// Returns the name with which a line begins, and a description.
    #[must_use]
    pub fn usage(self) -> (&'static str, &'static str) {
        match self {
            Command::Size => ("set size", "LOW [HIGH], bytes of a new file"),
            Command::Number => ("set number", "how many files there are at the beginning"),
            Command::Seed => ("set seed", "where the random numbers come from"),
            Command::Transactions => ("set transactions", "how many transactions a run does"),
            Command::Location => ("set location", "[+|-]PATH [WEIGHT], directories for the files"),
            Command::Subdirectories => ("set subdirectories", "how many are in each location"),
            Command::Read => ("set read", "bytes of one read"),
            Command::Write => ("set write", "bytes of one write"),
            Command::Buffering => ("set buffering", "true or false, a buffer as in C's stdio"),
            Command::BiasRead => {
                ("set bias read", "0 to 10, chance to read, not append; -1 neither")
            }
            Command::BiasCreate => {
                ("set bias create", "0 to 10, chance to create, not delete; -1 neither")
            }
            Command::Report => ("set report", "verbose or terse"),
            Command::Run => ("run", "[FILE], runs it; the report goes to the end of FILE"),
            Command::Load => ("load", "FILE, carries out the commands in it"),
            Command::Show => ("show", "[FILE], what is set"),
            Command::Help => ("help", "[PREFIX], these lines"),
            Command::Quit => ("quit", "ends"),
        }
    }

    /// Parses a line. Returns the command and its parameter, if the line continues after the name.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<(Command, Option<&[u8]>)> {
        Command::ALL.into_iter().find_map(|command| {
            let rest = line.strip_prefix(command.usage().0.as_bytes())?;
            Some((command, rest.get(1..)))
        })
    }
}

/// An error in a parameter, in the words of the original.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// Error of `set size`.
    #[error("no file size low or high bounds specified")]
    Size,
    /// Error of `set number`.
    #[error("invalid number of files")]
    Number,
    /// Error of `set seed`.
    #[error("invalid seed for random numbers")]
    Seed,
    /// Error of `set transactions`.
    #[error("no transactions specified")]
    Transactions,
    /// Error of `set location`.
    #[error("no directory name specified")]
    NoLocation,
    /// The location to remove is not in the list.
    #[error("cannot find location '{}'", .0.display())]
    UnknownLocation(OsString),
    /// The weight of the location becomes 1.
    #[error("ignoring invalid weight '{}'", .0.display())]
    Weight(OsString),
    /// Error of `set subdirectories`.
    #[error("invalid number of subdirectories")]
    Subdirectories,
    /// Error of `set read`.
    #[error("invalid read block size")]
    Read,
    /// Error of `set write`.
    #[error("invalid write block size")]
    Write,
    /// Error of `set buffering`.
    #[error("no buffering mode (true/false) specified")]
    Buffering,
    /// Error of both biases.
    #[error("no bias specified (0-10 for greater chance,-1 to disable)")]
    Bias,
    /// Error of `set report`.
    #[error("either 'verbose' or 'terse' required")]
    Report,
}

impl Config {
    /// Applies a command that sets a value; does nothing for others.
    ///
    /// # Errors
    /// The parameter is invalid. The configuration stays as it is, except that a location with an
    /// invalid weight gets the weight 1.
    pub fn set(
        &mut self,
        command: Command,
        parameter: Option<&[u8]>,
    ) -> Result<(), ParameterError> {
        let number = parameter.map(integer);
        let positive = number.and_then(|number| u32::try_from(number).ok()).filter(|&n| n > 0);
        match command {
            Command::Size => {
                self.size_low = positive.ok_or(ParameterError::Size)?;
                let mut values = parameter.unwrap_or_default().splitn(2, |&byte| byte == b' ');
                let high = values.nth(1).map(integer).and_then(|high| u32::try_from(high).ok());
                self.size_high = high.unwrap_or(0).max(self.size_low);
            }
            Command::Number => self.number = positive.ok_or(ParameterError::Number)?,
            Command::Seed => self.seed = positive.ok_or(ParameterError::Seed)?,
            Command::Transactions => {
                self.transactions = positive.ok_or(ParameterError::Transactions)?;
            }
            Command::Location => self.set_location(parameter.ok_or(ParameterError::NoLocation)?)?,
            Command::Subdirectories => {
                self.subdirectories = positive.ok_or(ParameterError::Subdirectories)?;
            }
            Command::Read => self.read_block = positive.ok_or(ParameterError::Read)?,
            Command::Write => self.write_block = positive.ok_or(ParameterError::Write)?,
            Command::Buffering => {
                self.buffered = match parameter {
                    Some(b"true") => true,
                    Some(b"false") => false,
                    _ => return Err(ParameterError::Buffering),
                }
            }
            Command::BiasRead => self.bias_read = bias(number)?,
            Command::BiasCreate => self.bias_create = bias(number)?,
            Command::Report => {
                let is_named = |report: &ReportFormat| Some(report.name().as_bytes()) == parameter;
                let found = ReportFormat::ALL.into_iter().find(is_named);
                self.report = found.ok_or(ParameterError::Report)?;
            }
            Command::Run | Command::Load | Command::Show | Command::Help | Command::Quit => {}
        }
        Ok(())
    }

    fn set_location(&mut self, parameter: &[u8]) -> Result<(), ParameterError> {
        let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        if let Some(path) = parameter.strip_prefix(b"-") {
            let found = self.locations.iter().position(|location| location.path.as_bytes() == path);
            let index = found.ok_or_else(|| ParameterError::UnknownLocation(owned(path)))?;
            self.locations.remove(index);
            return Ok(());
        }
        let path = parameter.strip_prefix(b"+").unwrap_or_else(|| {
            self.locations.clear();
            parameter
        });
        let Some(blank) = path.iter().rposition(|&byte| byte == b' ') else {
            self.locations.push(Location { path: owned(path), weight: 1 });
            return Ok(());
        };
        let (path, weight) = (&path[..blank], &path[blank + 1..]);
        let valid = u32::try_from(integer(weight)).ok().filter(|&weight| weight > 0);
        self.locations.push(Location { path: owned(path), weight: valid.unwrap_or(1) });
        valid.map(|_| ()).ok_or_else(|| ParameterError::Weight(owned(weight)))
    }
}

fn bias(number: Option<i32>) -> Result<Option<u32>, ParameterError> {
    match number.ok_or(ParameterError::Bias)? {
        -1 => Ok(None),
        number => match u32::try_from(number) {
            Ok(bias) if bias <= BIAS_MAX => Ok(Some(bias)),
            _ => Err(ParameterError::Bias),
        },
    }
}

/// Returns the number with which a text begins, or 0: `strtol` truncated to an int.
fn integer(text: &[u8]) -> i32 {
    let is_blank = |byte: &u8| matches!(byte, b' ' | 9..=13);
    let start = text.iter().position(|byte| !is_blank(byte)).unwrap_or(text.len());
    let (negative, digits) = match &text[start..] {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] | rest => (false, rest),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let value = digits.fold(0_i64, |value, digit| {
        let digit = i64::from(digit - b'0');
        let signed = if negative { -digit } else { digit };
        value.saturating_mul(10).saturating_add(signed)
    });
    #[expect(clippy::cast_possible_truncation, reason = "as the original does")]
    let cut = value as i32;
    cut
}

#[cfg(test)]
mod tests;
