//! `larder top`: files, processes, disks and caches of this machine, live; docs/top.md.

use super::watch::interval;
use crate::colors;
use crate::output::sentence;
use crate::signals;
use crate::tui::{
    Collector, Input, LiveTerminal, Recording, State, TopSnapshot, View, ViewAction, draw,
    wait_for_keys,
};
use anyhow::{Context, Result, ensure};
use clap::Args;
use larder_host::watch::STEP;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Refresh interval.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    interval: u64,

    /// Initial view.
    ///
    /// The views: files, processes, disks, caches, uses.
    #[arg(long, value_name = "VIEW", default_value = "processes", hide_possible_values = true)]
    view: View,

    /// Record from the start, one line of JSON a refresh.
    ///
    /// If the file exists, the recording gets the next free name.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Default file for recordings that the key w starts.
const DEFAULT_RECORDING: &str = "larder-top.json";

pub(crate) fn run(arguments: &TopArgs) -> Result<()> {
    ensure!(
        std::io::stdout().is_terminal() && std::io::stdin().is_terminal(),
        "show a live view: standard output is not a terminal; use larder watch or larder resident"
    );
    let file = arguments.output.as_deref();
    let mut recording = file.map(Recording::begin).transpose()?;
    let terminated = signals::termination_flag()?;
    let mut terminal = LiveTerminal::enter().context("show a live view")?;
    run_view(&mut terminal, arguments, &mut recording, &terminated)
}

fn run_view(
    terminal: &mut LiveTerminal,
    arguments: &TopArgs,
    recording: &mut Option<Recording>,
    terminated: &AtomicBool,
) -> Result<()> {
    let mut state = State::new(arguments.view);
    state.colors = colors::are_shown();
    state.recording = recording.is_some();
    state.message = recording.as_ref().map(recording_message);
    let interval = Duration::from_nanos(arguments.interval);
    let mut collector = Collector::default();
    // Rates need two snapshots; the first interval is a short one.
    let mut snapshot = collector.collect(state.view);
    let mut next = Instant::now() + interval.min(Duration::from_millis(500));
    let mut changed = true;
    while !terminated.load(Ordering::Acquire) {
        if std::mem::take(&mut changed) {
            terminal.draw(|frame| draw(frame, &snapshot, &state))?;
        }
        let left = next.saturating_duration_since(Instant::now());
        let keys = match wait_for_keys(std::io::stdin(), left.min(STEP))? {
            Input::Closed => return Ok(()),
            Input::Keys(keys) => keys,
            Input::Nothing if left.is_zero() => Vec::new(),
            Input::Nothing => {
                changed = terminal.is_resized();
                collector.step();
                continue;
            }
        };
        changed = true;
        if !keys.is_empty() {
            let view = state.view;
            for key in keys {
                let grid = snapshot.grid(state.view);
                match state.key(key, grid) {
                    ViewAction::Quit => return Ok(()),
                    ViewAction::Draw => {}
                    ViewAction::Record => {
                        let path = arguments.output.as_deref();
                        let path = path.unwrap_or(Path::new(DEFAULT_RECORDING));
                        toggle_recording(recording, path, &mut state);
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
            snapshot = collector.collect(state.view);
            record(recording, &snapshot, &mut state);
        }
    }
    Ok(())
}

/// Starts or stops the recording. A failed start is reported, and the view continues.
fn toggle_recording(recording: &mut Option<Recording>, path: &Path, state: &mut State) {
    state.message = Some(match recording.take() {
        Some(it) => format!("recorded to {}", it.path.display()),
        None => match Recording::begin(path) {
            Ok(it) => recording_message(recording.insert(it)),
            Err(error) => format!("cannot {}", sentence(&error)),
        },
    });
    state.recording = recording.is_some();
}

fn recording_message(recording: &Recording) -> String {
    format!("recording to {}", recording.path.display())
}

/// Records a snapshot; a failed write ends the recording.
fn record(recording: &mut Option<Recording>, snapshot: &TopSnapshot, state: &mut State) {
    if let Some(it) = recording
        && let Err(error) = it.append(snapshot)
    {
        *recording = None;
        state.recording = false;
        state.message = Some(format!("cannot {}", sentence(&error)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_begins_ends_and_fails_with_a_sentence() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("top.json");
        let (mut recording, mut state) = (None, State::new(View::Files));
        let mut messages = Vec::new();
        for _ in 0..3 {
            toggle_recording(&mut recording, &path, &mut state);
            messages.push(state.message.clone().unwrap());
            assert_eq!(state.recording, recording.is_some());
        }
        let second = directory.path().join("top-2.json");
        assert_eq!(
            messages,
            [
                format!("recording to {}", path.display()),
                format!("recorded to {}", path.display()),
                format!("recording to {}", second.display()),
            ]
        );
        let (mut recording, mut state) = (None, State::new(View::Files));
        toggle_recording(&mut recording, &directory.path().join("no/top.json"), &mut state);
        assert!(recording.is_none() && !state.recording);
        assert!(state.message.unwrap().starts_with("cannot record to "));
        let (mut recording, mut state) = (None, State::new(View::Files));
        toggle_recording(&mut recording, Path::new("/dev/full"), &mut state);
        assert!(state.recording);
        record(&mut recording, &TopSnapshot::default(), &mut state);
        assert!(!state.recording && state.message.unwrap().contains("No space left"));
    }
}
