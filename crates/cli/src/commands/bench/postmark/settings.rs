//! The settings of a PostMark script, as flags.

use crate::args;
use clap::{ArgAction, Args};
use larder_lab::workload::postmark::config::{BIAS_MAX, SIZE_MAX};
use larder_lab::workload::postmark::{Config, Location};

/// One flag for each command that sets a value. A flag overrides the script.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "As in scripts")]
pub(super) struct Settings {
    /// Number of files [default: 500].
    ///
    /// The files are created before the transactions.
    #[arg(long, value_name = "NUMBER", value_parser = positive)]
    number: Option<u32>,

    /// Number of transactions [default: 500].
    ///
    /// Each reads or appends, and creates or deletes.
    #[arg(long, value_name = "NUMBER", value_parser = positive)]
    transactions: Option<u32>,

    /// Sizes of files [default: 500-10000].
    ///
    /// A range, or one size, as in 4KiB.
    #[arg(long, value_name = "LOW[-HIGH]", value_parser = sizes)]
    size: Option<(u32, u32)>,

    /// Seed of the random numbers of PostMark [default: 42].
    #[arg(long, value_name = "NUMBER", value_parser = positive, hide_short_help = true)]
    postmark_seed: Option<u32>,

    /// Directory for the files; repeatable.
    ///
    /// Optionally with a weight [default: the current directory].
    #[arg(long, value_name = "PATH[:WEIGHT]", value_parser = location)]
    location: Vec<Location>,

    /// Subdirectories in each location; 0 and 1 are none [default: 0].
    #[arg(long, value_name = "NUMBER", hide_short_help = true)]
    subdirectories: Option<u32>,

    /// Bytes of one read [default: 512].
    #[arg(long, value_name = "SIZE", value_parser = block, hide_short_help = true)]
    read: Option<u32>,

    /// Bytes of one write [default: 512].
    #[arg(long, value_name = "SIZE", value_parser = block, hide_short_help = true)]
    write: Option<u32>,

    /// Buffer reads and writes, like C's stdio [default: true].
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, hide_short_help = true)]
    buffering: Option<bool>,

    /// Reads, as opposed to appends, out of ten operations; -1 for neither [default: 5].
    #[arg(long, value_name = "NUMBER", value_parser = bias, allow_hyphen_values = true,
          hide_short_help = true)]
    bias_read: Option<Bias>,

    /// Creations, as opposed to deletions, out of ten operations; -1 for neither [default: 5].
    #[arg(long, value_name = "NUMBER", value_parser = bias, allow_hyphen_values = true,
          hide_short_help = true)]
    bias_create: Option<Bias>,
}

/// A probability in tenths; `None` for neither operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bias(Option<u32>);

/// Parses a number as in scripts: from 1 to 2^31 - 1.
fn positive(text: &str) -> Result<u32, String> {
    let number = text.parse::<i32>().ok().and_then(|number| u32::try_from(number).ok());
    number
        .filter(|&number| number > 0)
        .ok_or_else(|| format!("\"{text}\" is no number from 1 to 2147483647"))
}

fn block(text: &str) -> Result<u32, String> {
    let bytes = u32::try_from(args::bytes(text)?).ok();
    bytes
        .filter(|bytes| (1..=SIZE_MAX).contains(bytes))
        .ok_or_else(|| format!("\"{text}\" is no size from 1 byte to 1 GiB"))
}

fn sizes(text: &str) -> Result<(u32, u32), String> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (block(low)?, block(high)?);
    if low > high { Err(format!("{low} is more than {high}")) } else { Ok((low, high)) }
}

fn bias(text: &str) -> Result<Bias, String> {
    match text.parse::<i32>() {
        Ok(-1) => Ok(Bias(None)),
        Ok(number) if u32::try_from(number).is_ok_and(|number| number <= BIAS_MAX) => {
            Ok(Bias(u32::try_from(number).ok()))
        }
        _ => Err(format!("\"{text}\" is no chance out of ten; write 0 to {BIAS_MAX}, or -1")),
    }
}

/// Parses `PATH` or `PATH:WEIGHT`. A path may contain ":" unless only a number follows it.
fn location(text: &str) -> Result<Location, String> {
    let weighted = text.rsplit_once(':').and_then(|(path, weight)| {
        let is_number = !weight.is_empty() && weight.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then_some((path, weight))
    });
    let (path, weight) = match weighted {
        Some((path, weight)) => (path, positive(weight)?),
        None => (text, 1),
    };
    if path.is_empty() {
        return Err("a location needs a path".to_owned());
    }
    Ok(Location { path: path.into(), weight })
}

impl Settings {
    /// Returns a configuration with the values of the flags.
    pub(super) fn apply_to(&self, mut config: Config) -> Config {
        let set = |field: &mut u32, flag: Option<u32>| *field = flag.unwrap_or(*field);
        set(&mut config.number, self.number);
        set(&mut config.transactions, self.transactions);
        set(&mut config.seed, self.postmark_seed);
        set(&mut config.subdirectories, self.subdirectories);
        set(&mut config.read_block, self.read);
        set(&mut config.write_block, self.write);
        if let Some((low, high)) = self.size {
            (config.size_low, config.size_high) = (low, high);
        }
        if !self.location.is_empty() {
            config.locations.clone_from(&self.location);
        }
        config.buffered = self.buffering.unwrap_or(config.buffered);
        if let Some(Bias(bias)) = self.bias_read {
            config.bias_read = bias;
        }
        if let Some(Bias(bias)) = self.bias_create {
            config.bias_create = bias;
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_with_units_and_ranges() {
        assert_eq!(sizes("500-10000"), Ok((500, 10_000)));
        assert_eq!(sizes("4KiB"), Ok((4096, 4096)));
        assert!(sizes("5-4").unwrap_err().contains("more than"));
        assert!(sizes("0").unwrap_err().contains("from 1 byte"));
        assert!(block("2GiB").unwrap_err().contains("1 GiB"));
        assert_eq!(bias("-1"), Ok(Bias(None)));
        assert_eq!(bias("10"), Ok(Bias(Some(10))));
        assert!(bias("11").is_err() && bias("-2").is_err() && bias("x").is_err());
        assert!(positive("0").is_err() && positive("2147483648").is_err());
    }

    #[test]
    fn a_location_may_have_a_weight() {
        let of = |text: &str| location(text).map(|it| (it.path.into_string().unwrap(), it.weight));
        assert_eq!(of("/a"), Ok(("/a".to_owned(), 1)));
        assert_eq!(of("/a:3"), Ok(("/a".to_owned(), 3)));
        assert_eq!(of("/a:b"), Ok(("/a:b".to_owned(), 1)));
        assert!(of("/a:0").is_err() && of("").is_err());
    }

    #[test]
    fn flags_win_over_the_script_and_leave_the_rest() {
        let settings = Settings {
            number: Some(7),
            size: Some((1, 2)),
            bias_read: Some(Bias(None)),
            location: vec![Location { path: "/b".into(), weight: 2 }],
            ..Settings::default()
        };
        let script = Config { number: 9, transactions: 11, buffered: false, ..Config::default() };
        let config = settings.apply_to(script.clone());
        assert_eq!((config.number, config.transactions), (7, 11));
        assert_eq!((config.size_low, config.size_high, config.bias_read), (1, 2, None));
        assert_eq!(config.locations.len(), 1);
        assert_eq!(Settings::default().apply_to(script.clone()), script);
    }
}
