//! Repeats a query, until Ctrl-C or until standard output is closed.

use super::Query;
use super::output;
use crate::args::TableFormat;
use crate::output::raw_stdout;
use crate::signals::channel_of_signals;
use anyhow::Result;
use larder_server::client::Client;
use larder_server::requests::ServerRequest;
use ratatui::termion::terminal_size;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Moves the cursor to the upper left corner; the view overwrites the screen instead of clearing
/// it, to avoid flicker.
const HOME: &str = "\x1b[H";
/// Cuts lines at the right margin, or wraps them.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";
/// Clears the rest of a line.
const CLEAR_LINE: &str = "\x1b[K";
/// Clears the rest of the screen.
const CLEAR_SCREEN: &str = "\x1b[J";

pub(super) fn run(
    client: &Client,
    query: &Query,
    format: TableFormat,
    interval: Duration,
) -> Result<ExitCode> {
    let signals = channel_of_signals()?;
    let redraw = format == TableFormat::Text && std::io::stdout().is_terminal();
    if redraw {
        // The view cuts lines at the margin, since its height is limited.
        larder_report::table::fit_terminal(0);
        control(&format!("{HOME}{CLEAR_SCREEN}"))?;
    }
    let (mut earlier, mut is_first) = (None, true);
    let mut next = Instant::now();
    loop {
        let answer = query.execute(client, &mut earlier)?;
        match format {
            TableFormat::Text if redraw => draw(&answer.text)?,
            TableFormat::Text => output::text(&format!("{}\n", answer.text))?,
            // The first response is the base of the first interval.
            _ if is_first => {}
            TableFormat::Json => output::text(&format!("{}\n", answer.json))?,
            TableFormat::Csv => output::text(&answer.table.to_csv())?,
        }
        is_first = false;
        next += interval;
        // After a slow response, missed intervals are skipped.
        next = next.max(Instant::now());
        let left = next.saturating_duration_since(Instant::now());
        match signals.receiver().wait(left) {
            Some(ServerRequest::Stop | ServerRequest::Reload) => return Ok(ExitCode::SUCCESS),
            Some(ServerRequest::Report) | None => {}
        }
    }
}

/// Writes one of this program's own control sequences.
fn control(sequence: &str) -> Result<()> {
    let mut out = raw_stdout();
    out.write_all(sequence.as_bytes())?;
    Ok(out.flush()?)
}

/// Overwrites the screen with the lines of a text that fit it.
fn draw(text: &str) -> Result<()> {
    control(&format!("{HOME}{NO_WRAP}"))?;
    for line in visible_lines(text, terminal_size().ok().map(|(_, lines)| lines)) {
        output::text(line)?;
        control(&format!("{CLEAR_LINE}\n"))?;
    }
    control(&format!("{CLEAR_SCREEN}{WRAP}"))
}

/// Returns the lines of a text that fit a screen with a number of lines, and with the cursor below
/// them: further lines would scroll the screen. The number is 0 or `None` if it is unknown.
fn visible_lines(text: &str, lines: Option<u16>) -> impl Iterator<Item = &str> {
    let lines = lines.filter(|lines| *lines > 0);
    text.lines().take(lines.map_or(usize::MAX, |lines| usize::from(lines) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_scrolls_a_small_screen() {
        let seen = |lines| visible_lines("a\nb\n\nc\n", lines).collect::<Vec<_>>();
        assert_eq!(seen(Some(3)), ["a", "b"]);
        assert_eq!([seen(Some(5)), seen(Some(0)), seen(None)], [["a", "b", "", "c"]; 3]);
        assert_eq!(seen(Some(1)), [""; 0]);
    }
}
