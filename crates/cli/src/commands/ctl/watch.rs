//! Repeats a query, until Ctrl-C or until standard output is closed.

use super::Command;
use super::output::{self, Answer};
use crate::args::TableFormat;
use crate::output::raw_stdout;
use crate::signals::channel_of_signals;
use anyhow::{Result, bail};
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
    command: &Command,
    format: TableFormat,
    interval: Duration,
) -> Result<ExitCode> {
    let signals = channel_of_signals()?;
    let redraw = format == TableFormat::Text && std::io::stdout().is_terminal();
    if redraw {
        control(&format!("{HOME}{CLEAR_SCREEN}"))?;
    }
    let mut earlier: Option<Box<dyn Answer>> = None;
    let mut next = Instant::now();
    loop {
        let Some(answer) = super::query(client, command)? else {
            bail!("watch this: only stats, volumes, at-risk and curve can be watched");
        };
        show(&*answer, earlier.as_deref(), format, redraw)?;
        earlier = Some(answer);
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

fn show(
    answer: &dyn Answer,
    earlier: Option<&dyn Answer>,
    format: TableFormat,
    redraw: bool,
) -> Result<()> {
    let since = earlier.map(|earlier| answer.since(earlier));
    match (format, since) {
        (TableFormat::Text, since) => {
            let text = since.map_or_else(|| answer.to_text(), |(text, ..)| text);
            if redraw {
                control(HOME)?;
                for line in text.split_inclusive('\n') {
                    output::text(line.trim_end_matches('\n'))?;
                    control(&format!("{CLEAR_LINE}\n"))?;
                }
                control(CLEAR_SCREEN)
            } else {
                output::text(&format!("{text}\n"))
            }
        }
        // The first response is the base of the first interval.
        (TableFormat::Json | TableFormat::Csv, None) => Ok(()),
        (TableFormat::Json, Some((_, json, _))) => output::text(&format!("{json}\n")),
        (TableFormat::Csv, Some((_, _, table))) => output::text(&table.to_csv()),
    }
}
