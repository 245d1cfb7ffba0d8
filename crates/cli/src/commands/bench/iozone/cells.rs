//! File and record sizes, in the notation of IOzone: `k`, `m` and `g` are powers of 1,024.

use crate::args;
use anyhow::{Result, bail};
use clap::Args;
use larder_lab::bench::iozone::grid::{Cell, Grid, Sizes};

/// Default size of the file of each thread in throughput mode.
const THREAD_FILE_BYTES: u64 = 64 << 20;
/// Default size of its records.
const THREAD_RECORD_BYTES: u64 = 4 << 10;

#[derive(Debug, Args)]
pub(super) struct GridArgs {
    /// File size, instead of a range; repeatable.
    ///
    /// With -t the file of each thread, 64MiB if not given.
    #[arg(short = 's', long = "file", value_name = "SIZE", value_parser = size)]
    files: Vec<u64>,

    /// Record size, instead of a range; repeatable.
    ///
    /// With -t 4KiB, if not given.
    #[arg(short = 'r', long = "record", value_name = "SIZE", value_parser = size)]
    records: Vec<u64>,

    /// The smallest file; 64KiB, if not given.
    #[arg(short = 'n', long, value_name = "SIZE", value_parser = size, conflicts_with = "files")]
    min_file: Option<u64>,

    /// The largest file; 512MiB, if not given.
    #[arg(short = 'g', long, value_name = "SIZE", value_parser = size, conflicts_with = "files")]
    max_file: Option<u64>,

    /// The smallest record; 4KiB, if not given.
    #[arg(short = 'y', long, value_name = "SIZE", value_parser = size, conflicts_with = "records",
          hide_short_help = true)]
    min_record: Option<u64>,

    /// The largest record; 16MiB, if not given.
    #[arg(short = 'q', long, value_name = "SIZE", value_parser = size, conflicts_with = "records",
          hide_short_help = true)]
    max_record: Option<u64>,

    /// Factor from one size of a range to the next.
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u64).range(2..=1024),
          hide_short_help = true)]
    factor: Option<u64>,

    /// Measure small records on large files, too.
    ///
    /// Measure records below 64KiB on files above 16MiB; implied if a size or the range of records
    /// is given.
    #[arg(short = 'z', long, hide_short_help = true)]
    no_cross_over: bool,
}

impl GridArgs {
    /// The options for ranges, which conflict with throughput mode.
    pub(super) const RANGE_OPTIONS: [&str; 6] =
        ["min_file", "max_file", "min_record", "max_record", "factor", "no_cross_over"];

    /// Returns the grid.
    pub(super) fn grid(&self) -> Grid {
        let default = Grid::default();
        let sizes = |list: &[u64], [min, max]: [Option<u64>; 2], range| match (list, range) {
            ([], Sizes::Range { least, most }) => {
                Sizes::Range { least: min.unwrap_or(least), most: max.unwrap_or(most) }
            }
            ([], list) => list,
            (list, _) => Sizes::List(list.to_vec()),
        };
        // Explicit sizes are all measured.
        let is_named = !self.files.is_empty()
            || !self.records.is_empty()
            || self.min_record.or(self.max_record).is_some();
        Grid {
            files: sizes(&self.files, [self.min_file, self.max_file], default.files),
            records: sizes(&self.records, [self.min_record, self.max_record], default.records),
            factor: self.factor.unwrap_or(default.factor),
            cross_over: !self.no_cross_over && !is_named,
        }
    }

    /// Returns the only cell of throughput mode.
    pub(super) fn single_cell(&self) -> Result<Cell> {
        let only = |list: &[u64], default: u64, kind: &str| match list {
            [] => Ok(default),
            [one] => Ok(*one),
            _ => bail!("use several sizes of {kind} with threads: name one"),
        };
        let file_bytes = only(&self.files, THREAD_FILE_BYTES, "files")?;
        let record_bytes = only(&self.records, THREAD_RECORD_BYTES, "records")?;
        if record_bytes > file_bytes {
            bail!("use records of {record_bytes} bytes on files of {file_bytes}: none fits");
        }
        Ok(Cell { file_bytes, record_bytes })
    }
}

/// Parses a number of bytes. A plain number is refused: it means kB in IOzone and bytes elsewhere.
fn size(text: &str) -> Result<u64, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("\"{text}\" has no unit; write {text}k or {text}KiB"));
    }
    let units = [('k', 10), ('m', 20), ('g', 30)];
    let bytes = units.into_iter().find_map(|(unit, shift)| {
        let number = text.strip_suffix([unit, unit.to_ascii_uppercase()])?;
        number.parse::<u64>().ok()?.checked_mul(1 << shift)
    });
    bytes.map_or_else(|| args::bytes(text), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};

    fn grid_args(line: &str) -> GridArgs {
        let command = GridArgs::augment_args(Command::new("cells").no_binary_name(true));
        GridArgs::from_arg_matches(&command.get_matches_from(line.split_whitespace())).unwrap()
    }

    #[test]
    fn the_cross_over_goes_as_soon_as_sizes_of_records_are_named() {
        assert_eq!(grid_args("").grid(), Grid::default());
        assert_eq!(grid_args("-z").grid().cells().len(), 146);
        for named in ["-y 4k", "-q 16m", "-s 32m", "-r 4k"] {
            assert!(!grid_args(named).grid().cross_over, "{named}");
        }
        for others in ["-n 64k", "-g 512m", "--factor 2"] {
            assert_eq!(grid_args(others).grid(), Grid::default(), "{others}");
        }
        assert_eq!(grid_args("-n 1m -g 1m -y 4k -q 16k --factor 4").grid().cells().len(), 2);
    }

    #[test]
    fn threads_have_one_size() {
        let (file_bytes, record_bytes) = (64 << 20, 4096);
        assert_eq!(grid_args("").single_cell().unwrap(), Cell { file_bytes, record_bytes });
        assert_eq!(grid_args("-s 1m -r 8k").single_cell().unwrap().records(), 128);
        assert!(
            grid_args("-s 1m -s 2m").single_cell().unwrap_err().to_string().contains("name one")
        );
        assert!(
            grid_args("-s 4k -r 8k").single_cell().unwrap_err().to_string().ends_with("none fits")
        );
    }

    #[test]
    fn letters_are_powers_of_1024_and_plain_numbers_are_refused() {
        assert_eq!((size("64k"), size("2M"), size("1g")), (Ok(65_536), Ok(2 << 20), Ok(1 << 30)));
        assert_eq!((size("64KiB"), size("1.5MiB")), (Ok(65_536), Ok(3 << 19)));
        assert_eq!(size("512").unwrap_err(), "\"512\" has no unit; write 512k or 512KiB");
        for wrong in ["", "k", "-1k", "99999999999999999999g", "much"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
