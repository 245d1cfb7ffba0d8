//! `larder top`: files, processes, disks and caches of this machine, live; docs/top.md.

use crate::args;
use crate::tui::{Act, Eye, Picture, Procfs, State, View, draw};
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use larder_host::watch::STEP;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How often to look.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    interval: u64,

    /// What to show first.
    #[arg(long, value_name = "VIEW", default_value = "processes")]
    view: First,

    /// Record from the beginning, one line of JSON for each look.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum First {
    /// Open files and what of them is in memory.
    Files,
    /// What processes read and write.
    Processes,
    /// What disks do.
    Disks,
    /// What larder serves here.
    Caches,
    /// Files by the processes that use them, and who hits; needs root.
    Uses,
}

/// Where the key w records to, if no other file was named.
const RECORDING: &str = "larder-top.json";

fn interval(text: &str) -> Result<u64, String> {
    match args::time(text)? {
        ns if ns < 100_000_000 => Err("an interval is 100ms or longer".to_owned()),
        ns => Ok(ns),
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    ensure!(
        std::io::stdout().is_terminal() && std::io::stdin().is_terminal(),
        "show a live view: this is no terminal"
    );
    let mut recording = match &arguments.output {
        Some(file) => Some(create(file)?),
        None => None,
    };
    // Restores the terminal at a panic as well.
    let mut terminal = ratatui::try_init().context("show a live view")?;
    let result = watch(&mut terminal, arguments, &mut recording);
    ratatui::try_restore().context("restore the terminal")?;
    result
}

fn create(file: &PathBuf) -> Result<File> {
    File::create(file).with_context(|| format!("record to {}", file.display()))
}

fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    arguments: &Arguments,
    recording: &mut Option<File>,
) -> Result<()> {
    let mut state = State::new(match arguments.view {
        First::Files => View::Files,
        First::Processes => View::Processes,
        First::Disks => View::Disks,
        First::Caches => View::Caches,
        First::Uses => View::Uses,
    });
    state.recording = recording.is_some();
    let interval = Duration::from_nanos(arguments.interval);
    let mut eye = Procfs::new();
    // Rates need two looks; the first interval is a short one.
    let mut picture = eye.look(state.view);
    let mut next = Instant::now() + interval.min(Duration::from_millis(500));
    let mut changed = true;
    loop {
        if std::mem::take(&mut changed) {
            terminal.draw(|frame| draw(frame, &picture, &state))?;
        }
        let left = next.saturating_duration_since(Instant::now());
        if !left.is_zero() && !event::poll(left.min(STEP))? {
            eye.step();
            continue;
        }
        changed = true;
        if event::poll(Duration::ZERO)? {
            let view = state.view;
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
            {
                let grid = picture.grid(state.view);
                match state.key(key, grid) {
                    Act::Quit => return Ok(()),
                    Act::Draw => {}
                    Act::Record => {
                        *recording = if recording.is_some() {
                            None
                        } else {
                            let named = arguments.output.clone();
                            Some(create(&named.unwrap_or_else(|| RECORDING.into()))?)
                        };
                        state.recording = recording.is_some();
                    }
                }
            }
            if state.view == View::Uses && view != View::Uses {
                next = Instant::now();
            }
            continue;
        }
        next = Instant::now() + interval;
        if !state.frozen {
            picture = eye.look(state.view);
            record(recording, &picture)?;
        }
    }
}

fn record(recording: &mut Option<File>, picture: &Picture) -> Result<()> {
    if let Some(file) = recording {
        writeln!(file, "{}", picture.to_json()).context("record what is seen")?;
    }
    Ok(())
}
