//! The terminal: colors by meaning and the user's choice of them, spark lines, width of tables.

use clap::ColorChoice;
use ratatui::termion::terminal_size;
use std::io::IsTerminal;
use std::sync::OnceLock;

/// The value of `--color`.
static CHOICE: OnceLock<ColorChoice> = OnceLock::new();

/// The levels of a spark line, from 0 to 100 %.
const LEVELS: [char; 8] = [
    '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}',
];
/// Intervals of a spark line.
pub(crate) const TREND_MAX: usize = 10;

/// The meaning of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Hit,
    ReadAhead,
    Miss,
    Bypass,
    Good,
}

impl Meaning {
    /// Returns the color, among the 256 of a terminal: blue, light blue, orange, gray, green.
    pub(crate) fn color(self) -> u8 {
        match self {
            Meaning::Hit => 32,
            Meaning::ReadAhead => 117,
            Meaning::Miss => 208,
            Meaning::Bypass => 245,
            Meaning::Good => 36,
        }
    }

    /// Returns a text in the color, for a terminal.
    pub(crate) fn paint(self, text: &str) -> String {
        format!("\u{1b}[38;5;{}m{text}\u{1b}[39m", self.color())
    }
}

/// Sets the choice of the command line.
pub(crate) fn choose(choice: ColorChoice) {
    CHOICE.get_or_init(|| choice);
}

/// Fits tables into the lines of the terminal, if standard output is one.
pub(crate) fn fit_terminal() {
    if std::io::stdout().is_terminal()
        && let Ok((characters, _)) = terminal_size()
    {
        larder_report::table::fit_terminal(characters.into());
    }
}

/// Returns true if standard output shows colors: `auto` means on a terminal, unless `NO_COLOR` is
/// set.
pub(crate) fn are_shown() -> bool {
    let variable = |name| std::env::var_os(name).unwrap_or_default();
    shows(
        CHOICE.get().copied().unwrap_or_default(),
        std::io::stdout().is_terminal(),
        !variable("NO_COLOR").is_empty() || variable("TERM") == "dumb",
    )
}

fn shows(choice: ColorChoice, is_terminal: bool, is_unwanted: bool) -> bool {
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => is_terminal && !is_unwanted,
    }
}

/// Appends a ratio to a trend, if there is one.
pub(crate) fn extend_trend(trend: &mut Vec<f64>, ratio: Option<f64>) {
    trend.extend(ratio);
    trend.drain(..trend.len().saturating_sub(TREND_MAX));
}

/// Returns ratios as a spark line, one character each.
pub(crate) fn spark_line(ratios: &[f64]) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 7")]
    let level = |ratio: &f64| LEVELS[(ratio.clamp(0.0, 1.0) * 7.0).round() as usize];
    ratios.iter().map(level).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_comes_before_the_environment() {
        assert!(shows(ColorChoice::Always, false, true));
        assert!(!shows(ColorChoice::Never, true, false));
        assert!(shows(ColorChoice::Auto, true, false));
        assert!(!shows(ColorChoice::Auto, true, true) && !shows(ColorChoice::Auto, false, false));
    }

    #[test]
    fn a_spark_line_has_the_last_ratios() {
        let mut trend = Vec::new();
        for number in 0..15 {
            extend_trend(&mut trend, Some(f64::from(number) / 14.0));
            extend_trend(&mut trend, None);
        }
        assert_eq!((trend.len(), spark_line(&trend).chars().last()), (TREND_MAX, Some('\u{2588}')));
        assert_eq!(spark_line(&[0.0, 0.5, 2.0, f64::NAN]), "\u{2581}\u{2585}\u{2588}\u{2581}");
    }
}
