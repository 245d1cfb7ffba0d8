//! The options `--format` and `--json` of commands that print a result.

use clap::{Args, ValueEnum};

/// The format that a command line selects; `F` has the value `json`.
#[derive(Clone, Debug, Args)]
pub(crate) struct FormatArgs<F: ValueEnum + Send + Sync + 'static> {
    /// Format.
    ///
    /// The output is text, if not given.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_if("json", "true", Some("json")))]
    format: Option<F>,

    /// The same as --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl<F: ValueEnum + Copy + Default + Send + Sync> FormatArgs<F> {
    /// Returns the selected format; `None` if the command line selects none.
    pub(crate) fn selected(&self) -> Option<F> {
        self.format
    }

    /// Returns the selected format, or the default one: text.
    pub(crate) fn get(&self) -> F {
        self.format.unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TextOrJson {
    /// Text for people.
    #[default]
    Text,
    /// All data.
    Json,
}

/// Text, CSV, or JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    /// Text for people.
    #[default]
    Text,
    /// One table with plain numbers.
    Csv,
    /// All data.
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};

    #[test]
    fn json_is_short_for_a_format() {
        let selected = |words: &[&str]| {
            let command = FormatArgs::<TableFormat>::augment_args(Command::new("x"));
            let matches = command.no_binary_name(true).try_get_matches_from(words)?;
            FormatArgs::<TableFormat>::from_arg_matches(&matches).map(|it| it.selected())
        };
        assert_eq!(selected(&[]).unwrap(), None);
        assert_eq!(selected(&["--json"]).unwrap(), Some(TableFormat::Json));
        assert_eq!(selected(&["--format", "csv"]).unwrap(), Some(TableFormat::Csv));
        assert!(selected(&["--json", "--format", "csv"]).is_err());
    }
}
