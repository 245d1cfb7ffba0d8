//! The options `--format` and `--json` of commands that print a result.

use clap::{Args, ValueEnum};

/// The output formats of a command.
pub(crate) trait OutputFormat: ValueEnum + Clone + Copy + Send + Sync + 'static {
    /// The default.
    const TEXT: Self;
    /// JSON.
    const JSON: Self;
}

/// The format that a command line selects.
#[derive(Clone, Debug, Args)]
pub(crate) struct FormatArgs<F: OutputFormat> {
    /// Output format; text, if not given.
    #[arg(long, value_name = "FORMAT", value_enum)]
    format: Option<F>,

    /// The same as --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl<F: OutputFormat> FormatArgs<F> {
    /// Returns the selected format; `None` if the command line selects none.
    pub(crate) fn selected(&self) -> Option<F> {
        if self.json { Some(F::JSON) } else { self.format }
    }

    /// Returns the selected format, or text.
    pub(crate) fn get(&self) -> F {
        self.selected().unwrap_or(F::TEXT)
    }
}

/// Text, or JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TextOrJson {
    /// Text for people.
    Text,
    /// All data.
    Json,
}

impl OutputFormat for TextOrJson {
    const TEXT: Self = TextOrJson::Text;
    const JSON: Self = TextOrJson::Json;
}

/// Text, CSV, or JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    /// Text for people.
    Text,
    /// One table with plain numbers.
    Csv,
    /// All data.
    Json,
}

impl OutputFormat for TableFormat {
    const TEXT: Self = TableFormat::Text;
    const JSON: Self = TableFormat::Json;
}
