//! `larder top`: files, processes, disks and caches of this machine, live; docs/top.md.

use crate::args;
use crate::output::sentence;
use crate::signals;
use crate::tui::{
    Collector, Input, LiveTerminal, Procfs, Recording, State, TopSnapshot, View, ViewAction, draw,
    wait_for_keys,
};
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use larder_host::watch::STEP;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How often to look.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    interval: u64,

    /// What to show first.
    #[arg(long, value_name = "VIEW", default_value = "processes")]
    view: First,

    /// Record from the beginning, one line of JSON for each look; where there is such a file
    /// already, under the next name that is free.
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
        Some(file) => Some(Recording::begin(file)?),
        None => None,
    };
    let ended = signals::ended()?;
    let mut terminal = LiveTerminal::enter().context("show a live view")?;
    watch(&mut terminal, arguments, &mut recording, &ended)
}

fn watch(
    terminal: &mut LiveTerminal,
    arguments: &Arguments,
    recording: &mut Option<Recording>,
    ended: &AtomicBool,
) -> Result<()> {
    let mut state = State::new(match arguments.view {
        First::Files => View::Files,
        First::Processes => View::Processes,
        First::Disks => View::Disks,
        First::Caches => View::Caches,
        First::Uses => View::Uses,
    });
    state.recording = recording.is_some();
    state.said = recording.as_ref().map(begun);
    let interval = Duration::from_nanos(arguments.interval);
    let mut eye = Procfs::new();
    // Rates need two looks; the first interval is a short one.
    let mut picture = eye.collect(state.view);
    let mut next = Instant::now() + interval.min(Duration::from_millis(500));
    let mut changed = true;
    while !ended.load(Ordering::Acquire) {
        if std::mem::take(&mut changed) {
            terminal.draw(|frame| draw(frame, &picture, &state))?;
        }
        let left = next.saturating_duration_since(Instant::now());
        let keys = match wait_for_keys(std::io::stdin(), left.min(STEP))? {
            Input::Closed => return Ok(()),
            Input::Keys(keys) => keys,
            Input::Nothing if left.is_zero() => Vec::new(),
            Input::Nothing => {
                changed = terminal.is_resized();
                eye.step();
                continue;
            }
        };
        changed = true;
        if !keys.is_empty() {
            let view = state.view;
            for key in keys {
                let grid = picture.grid(state.view);
                match state.key(key, grid) {
                    ViewAction::Quit => return Ok(()),
                    ViewAction::Draw => {}
                    ViewAction::Record => {
                        let named = arguments.output.as_deref();
                        let named = named.unwrap_or(Path::new(RECORDING));
                        switch(recording, named, &mut state);
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
            picture = eye.collect(state.view);
            record(recording, &picture, &mut state);
        }
    }
    Ok(())
}

/// Begins or ends the recording. That it cannot begin is said, and nothing else ends.
fn switch(recording: &mut Option<Recording>, named: &Path, state: &mut State) {
    state.said = Some(match recording.take() {
        Some(it) => format!("recorded to {}", it.path().display()),
        None => match Recording::begin(named) {
            Ok(it) => begun(recording.insert(it)),
            Err(error) => format!("failed to {}", sentence(&error)),
        },
    });
    state.recording = recording.is_some();
}

fn begun(recording: &Recording) -> String {
    format!("recording to {}", recording.path().display())
}

/// Records what is seen; what cannot be written ends the recording.
fn record(recording: &mut Option<Recording>, picture: &TopSnapshot, state: &mut State) {
    if let Some(it) = recording
        && let Err(error) = it.append(picture)
    {
        *recording = None;
        state.recording = false;
        state.said = Some(format!("failed to {}", sentence(&error)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_begins_ends_and_fails_with_a_sentence() {
        let directory = tempfile::tempdir().unwrap();
        let named = directory.path().join("top.json");
        let (mut recording, mut state) = (None, State::new(View::Files));
        let mut said = Vec::new();
        for _ in 0..3 {
            switch(&mut recording, &named, &mut state);
            said.push(state.said.clone().unwrap());
            assert_eq!(state.recording, recording.is_some());
        }
        let second = directory.path().join("top-2.json");
        assert_eq!(
            said,
            [
                format!("recording to {}", named.display()),
                format!("recorded to {}", named.display()),
                format!("recording to {}", second.display()),
            ]
        );
        let (mut recording, mut state) = (None, State::new(View::Files));
        switch(&mut recording, &directory.path().join("no/top.json"), &mut state);
        assert!(recording.is_none() && !state.recording);
        assert!(state.said.unwrap().starts_with("failed to record to "));
        let (mut recording, mut state) = (None, State::new(View::Files));
        switch(&mut recording, Path::new("/dev/full"), &mut state);
        assert!(state.recording);
        record(&mut recording, &TopSnapshot::default(), &mut state);
        assert!(!state.recording && state.said.unwrap().contains("No space left"));
    }
}
