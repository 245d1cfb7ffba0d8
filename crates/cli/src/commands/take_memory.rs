//! `larder take-memory`: the process that leaks in `larder bench probe --scenario leak`. It takes
//! memory step by step, says after each step how much it has, and keeps it until its standard input
//! ends, which it does when whoever started it is gone, however that came about.
//!
//! It never takes more than it was told. When memory runs out the kernel ends it first.

use crate::args;
use crate::signals::wait_for_end_of_input;
use anyhow::{Context, Result, ensure};
use clap::Args;
use larder_host::memory;
use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Bytes after which memory is another page; each page is written to, or it would not be taken.
const PAGE_BYTES: usize = 4096;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Bytes at the most.
    #[arg(long, value_name = "SIZE", value_parser = args::bytes)]
    bytes: u64,

    /// In so many equal steps.
    #[arg(long, value_name = "NUMBER", default_value_t = 32,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: u32,

    /// Within this time.
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    within: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let steps = u64::from(arguments.steps);
    let step = usize::try_from(arguments.bytes / steps).context("take memory")?;
    ensure!(
        step >= PAGE_BYTES,
        "take {} bytes in {steps} steps: a step is a page",
        arguments.bytes
    );
    memory::be_ended_first().context("be the first that is ended when memory runs out")?;
    let (sender, ended) = channel::<()>();
    std::thread::spawn(move || {
        wait_for_end_of_input();
        drop(sender);
    });
    let begun = Instant::now();
    let mut taken: Vec<Vec<u8>> = Vec::new();
    for number in 1..=arguments.steps {
        let due = Duration::from_nanos(arguments.within) * number / arguments.steps;
        if is_over(&ended, Some(due.saturating_sub(begun.elapsed()))) {
            return Ok(());
        }
        let mut more = vec![0_u8; step];
        more.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
        taken.push(more);
        let all = taken.iter().map(Vec::len).sum::<usize>();
        let mut out = crate::output::stdout();
        writeln!(out, "{all}").and_then(|()| out.flush())?;
    }
    is_over(&ended, None);
    Ok(())
}

/// Whether the other side is gone, after waiting this long at the most, or for ever.
fn is_over(ended: &std::sync::mpsc::Receiver<()>, time: Option<Duration>) -> bool {
    match time {
        Some(time) => ended.recv_timeout(time) == Err(RecvTimeoutError::Disconnected),
        None => ended.recv().is_err(),
    }
}
