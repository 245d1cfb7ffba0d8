//! Output of `show` and `help`.
//!
//! Invariant: `show` is that of the original, byte for byte; `help` has the same commands, with
//! other descriptions. Sizes are in the unit that the original chooses.

use super::command::COMMANDS;
use super::config::Config;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The configuration as `show` prints it: the part for its file, and separately the list of
/// locations, which always goes to standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownConfiguration {
    /// Text before the locations.
    pub before: Vec<u8>,
    /// The locations, one per line.
    pub locations: Vec<u8>,
    /// Text after the locations.
    pub after: Vec<u8>,
}

/// Returns the configuration. Without locations the files go to `current`, the current directory.
#[must_use]
pub fn show(config: &Config, current: &Path) -> ShownConfiguration {
    let mut before = format!(
        "Current configuration is:\nThe base number of files is {}\nTransactions: {}\n",
        config.number, config.transactions
    )
    .into_bytes();
    let (low, high) = (scaled(config.size_low), scaled(config.size_high));
    let sizes = if config.size_low == config.size_high {
        format!("Files are {low} in size\n")
    } else {
        format!("Files range between {low} and {high} in size\n")
    };
    before.extend_from_slice(sizes.as_bytes());
    match config.locations.len() {
        0 => {
            before.extend_from_slice(b"Working directory: ");
            before.extend_from_slice(current.as_os_str().as_bytes());
            before.push(b'\n');
        }
        1 => before.extend_from_slice(b"Working directory: \n"),
        _ => before.extend_from_slice(b"Working directories: \n"),
    }
    let line = |path: &OsStr, weight| {
        [b"\t", path.as_bytes(), format!(" (weight={weight})\n").as_bytes()].concat()
    };
    let locations = config.locations.iter().flat_map(|each| line(&each.path, each.weight));
    ShownConfiguration { before, locations: locations.collect(), after: after(config).into_bytes() }
}

fn after(config: &Config) -> String {
    let directories = match config.subdirectories {
        0 => String::new(),
        1 => "1 subdirectory will be used\n".to_owned(),
        number => format!("{number} subdirectories will be used\n"),
    };
    let bias = |bias: Option<u32>| bias.map_or_else(|| "-1".to_owned(), |bias| bias.to_string());
    format!(
        "{directories}Block sizes are: read={}, write={}\nBiases are: read/append={}, \
         create/delete={}\n{} Unix buffered file I/O\nRandom number generator seed is \
         {}\nReport format is {}.\n",
        scaled(config.read_block),
        scaled(config.write_block),
        bias(config.bias_read),
        bias(config.bias_create),
        if config.buffered { "Using" } else { "Not using" },
        config.seed,
        if config.is_verbose { "verbose" } else { "terse" },
    )
}

/// Formats a size in whole bytes below 1 KiB, else with two decimals.
fn scaled(bytes: u32) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..0x10_0000 => format!("{:.2} kilobytes", f64::from(bytes) / 1024.0),
        _ => format!("{:.2} megabytes", f64::from(bytes) / 1_048_576.0),
    }
}

/// Returns the lines for commands whose names begin with `prefix`; for all commands, if there is
/// none.
#[must_use]
pub fn help(prefix: &[u8]) -> String {
    let matches = |name: &str| name.as_bytes().starts_with(prefix);
    let none = !COMMANDS.iter().any(|(_, name, _)| matches(name));
    let chosen = COMMANDS.iter().filter(|(_, name, _)| none || matches(name));
    chosen.flat_map(|(_, name, about)| [*name, " - ", *about, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_shown_as_the_original_shows_them() {
        let shown = show(&Config::default(), Path::new("/tmp/pm"));
        let text = String::from_utf8([shown.before, shown.locations, shown.after].concat());
        assert_eq!(
            text.unwrap(),
            "Current configuration is:\nThe base number of files is 500\nTransactions: 500\nFiles \
             range between 500 bytes and 9.77 kilobytes in size\nWorking directory: \
             /tmp/pm\nBlock sizes are: read=512 bytes, write=512 bytes\nBiases are: \
             read/append=5, create/delete=5\nUsing Unix buffered file I/O\nRandom number generator \
             seed is 42\nReport format is verbose.\n"
        );
    }

    #[test]
    fn units_change_at_whole_powers() {
        let known = [
            (1023, "1023 bytes"),
            (1024, "1.00 kilobytes"),
            (1_048_575, "1024.00 kilobytes"),
            (1_048_576, "1.00 megabytes"),
            (1 << 30, "1024.00 megabytes"),
        ];
        for (bytes, text) in known {
            assert_eq!(scaled(bytes), text);
        }
    }

    #[test]
    fn help_is_by_prefix_or_of_everything() {
        assert_eq!(help(b"set b").lines().count(), 3);
        assert_eq!(help(b"r").lines().count(), 1);
        assert_eq!(help(b"runs").lines().count(), 17);
        assert_eq!(help(b"").lines().count(), 17);
    }
}
