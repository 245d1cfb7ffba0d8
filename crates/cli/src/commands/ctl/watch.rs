//! Repeats a query, until Ctrl-C or until standard output is closed.

use super::Query;
use super::output;
use crate::args::TableFormat;
use crate::output::raw_stdout;
use crate::signals::channel_of_signals;
use anyhow::Result;
use larder_server::client::Client;
use larder_server::requests::ServerRequest;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Moves the cursor to the upper left corner; the view overwrites the screen instead of clearing
/// it, to avoid flicker.
const HOME: &str = "\x1b[H";
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

/// Overwrites the screen with a text.
fn draw(text: &str) -> Result<()> {
    control(HOME)?;
    for line in text.split_inclusive('\n') {
        output::text(line.trim_end_matches('\n'))?;
        control(&format!("{CLEAR_LINE}\n"))?;
    }
    control(CLEAR_SCREEN)
}
