//! `larder take-memory`: the leaking process of `larder bench probe --scenario leak`. It allocates
//! memory step by step, prints its total after each step, and keeps it until its standard input
//! ends, which happens when the parent process exits for any reason.
//!
//! It never takes more than `--bytes`. If memory runs out, the OOM killer selects it first.

use crate::args;
use crate::signals::wait_for_end_of_input;
use anyhow::{Context, Result, ensure};
use clap::Args;
use larder_host::memory;
use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Page size; the process writes to each page, since the kernel does not allocate it before.
const PAGE_BYTES: usize = 4096;

#[derive(Debug, Args)]
pub(crate) struct TakeMemoryArgs {
    /// Maximum number of bytes.
    #[arg(long, value_name = "SIZE", value_parser = args::bytes)]
    bytes: u64,

    /// Number of equal steps.
    #[arg(long, value_name = "NUMBER", default_value_t = 32,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: u32,

    /// Duration of all steps.
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    within: u64,
}

pub(crate) fn run(arguments: &TakeMemoryArgs) -> Result<()> {
    let steps = u64::from(arguments.steps);
    let step = usize::try_from(arguments.bytes / steps).context("take memory")?;
    ensure!(
        step >= PAGE_BYTES,
        "take {} bytes in {steps} steps: a step is a page",
        arguments.bytes
    );
    memory::be_ended_first().context("be the first that is ended when memory runs out")?;
    let (sender, closed) = channel::<()>();
    std::thread::spawn(move || {
        wait_for_end_of_input();
        drop(sender);
    });
    let started = Instant::now();
    let mut taken: Vec<Vec<u8>> = Vec::new();
    for number in 1..=arguments.steps {
        let due = Duration::from_nanos(arguments.within) * number / arguments.steps;
        if wait_for_parent_exit(&closed, Some(due.saturating_sub(started.elapsed()))) {
            return Ok(());
        }
        let mut chunk = vec![0_u8; step];
        chunk.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
        taken.push(chunk);
        let all = taken.iter().map(Vec::len).sum::<usize>();
        let mut out = crate::output::stdout();
        writeln!(out, "{all}").and_then(|()| out.flush())?;
    }
    wait_for_parent_exit(&closed, None);
    Ok(())
}

/// Waits until the parent has exited, at most for `time`; returns true if it has.
fn wait_for_parent_exit(closed: &std::sync::mpsc::Receiver<()>, time: Option<Duration>) -> bool {
    match time {
        Some(time) => closed.recv_timeout(time) == Err(RecvTimeoutError::Disconnected),
        None => closed.recv().is_err(),
    }
}
