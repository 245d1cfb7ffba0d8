//! The commands of a PostMark script: their syntax, and their effect on the configuration.
//!
//! Invariants, all as in the original: a line is the first command whose name it begins with, in
//! the order of `COMMANDS`; the character after the name is skipped, whatever it is; the rest
//! is the parameter. Numbers are read as C's `atoi` reads them into an int.

use super::config::{BIAS_MAX, Config, Location};
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

/// All commands in the order in which a line is compared with them, with the name with which a line
/// begins, and a description.
pub(super) const COMMANDS: [(Command, &str, &str); 17] = [
    (Command::Size, "set size", "LOW [HIGH], bytes of a new file"),
    (Command::Number, "set number", "how many files there are at the beginning"),
    (Command::Seed, "set seed", "where the random numbers come from"),
    (Command::Transactions, "set transactions", "how many transactions a run does"),
    (Command::Location, "set location", "[+|-]PATH [WEIGHT], directories for the files"),
    (Command::Subdirectories, "set subdirectories", "how many are in each location"),
    (Command::Read, "set read", "bytes of one read"),
    (Command::Write, "set write", "bytes of one write"),
    (Command::Buffering, "set buffering", "true or false, a buffer as in C's stdio"),
    (Command::BiasRead, "set bias read", "0 to 10, chance to read, not append; -1 neither"),
    (Command::BiasCreate, "set bias create", "0 to 10, chance to create, not delete; -1 neither"),
    (Command::Report, "set report", "verbose or terse"),
    (Command::Run, "run", "[FILE], runs it; the report goes to the end of FILE"),
    (Command::Load, "load", "FILE, carries out the commands in it"),
    (Command::Show, "show", "[FILE], what is set"),
    (Command::Help, "help", "[PREFIX], these lines"),
    (Command::Quit, "quit", "ends"),
];

impl Command {
    /// Parses a line. Returns the command and its parameter, if the line continues after the name.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<(Command, Option<&[u8]>)> {
        COMMANDS.into_iter().find_map(|(command, name, _)| {
            Some((command, line.strip_prefix(name.as_bytes())?.get(1..)))
        })
    }
}

impl Config {
    /// Applies a command that sets a value; does nothing for others.
    ///
    /// # Errors
    /// The parameter is invalid, in the words of the original. The configuration stays as it is,
    /// except that a location with an invalid weight gets the weight 1.
    pub fn set(&mut self, command: Command, parameter: Option<&[u8]>) -> Result<(), String> {
        let number = parameter.map(integer);
        let positive = |error: &str| {
            let number = number.and_then(|number| u32::try_from(number).ok());
            number.filter(|&number| number > 0).ok_or_else(|| error.to_owned())
        };
        let bias = || match number.map(u32::try_from) {
            Some(Ok(bias)) if bias <= BIAS_MAX => Ok(Some(bias)),
            Some(_) if number == Some(-1) => Ok(None),
            _ => Err("no bias specified (0-10 for greater chance,-1 to disable)"),
        };
        let choose = |[yes, no]: [&str; 2], error| match parameter {
            Some(text) if text == yes.as_bytes() => Ok(true),
            Some(text) if text == no.as_bytes() => Ok(false),
            _ => Err(error),
        };
        match command {
            Command::Size => {
                self.size_low = positive("no file size low or high bounds specified")?;
                let mut values = parameter.unwrap_or_default().splitn(2, |&byte| byte == b' ');
                let high = values.nth(1).map(integer).and_then(|high| u32::try_from(high).ok());
                self.size_high = high.unwrap_or(0).max(self.size_low);
            }
            Command::Number => self.number = positive("invalid number of files")?,
            Command::Seed => self.seed = positive("invalid seed for random numbers")?,
            Command::Transactions => self.transactions = positive("no transactions specified")?,
            Command::Location => {
                self.set_location(parameter.ok_or("no directory name specified")?)?;
            }
            Command::Subdirectories => {
                self.subdirectories = positive("invalid number of subdirectories")?;
            }
            Command::Read => self.read_block = positive("invalid read block size")?,
            Command::Write => self.write_block = positive("invalid write block size")?,
            Command::Buffering => {
                let error = "no buffering mode (true/false) specified";
                self.buffered = choose(["true", "false"], error)?;
            }
            Command::BiasRead => self.bias_read = bias()?,
            Command::BiasCreate => self.bias_create = bias()?,
            Command::Report => {
                let error = "either 'verbose' or 'terse' required";
                self.is_verbose = choose(["verbose", "terse"], error)?;
            }
            Command::Run | Command::Load | Command::Show | Command::Help | Command::Quit => {}
        }
        Ok(())
    }

    fn set_location(&mut self, parameter: &[u8]) -> Result<(), String> {
        let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        if let Some(path) = parameter.strip_prefix(b"-") {
            let found = self.locations.iter().position(|location| location.path.as_bytes() == path);
            let unknown = || format!("cannot find location '{}'", owned(path).display());
            self.locations.remove(found.ok_or_else(unknown)?);
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
        let ignored = || format!("ignoring invalid weight '{}'", owned(weight).display());
        valid.map(drop).ok_or_else(ignored)
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
