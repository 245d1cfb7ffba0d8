//! `larder trace replay`: sends the requests of a trace to an export, and measures the latencies.
//!
//! A file is read twice: first to check that all of it can be replayed, so that nothing is written
//! otherwise; then to replay it. A stream is checked request by request. The threads of the
//! connections take requests from one [`feed::RequestSource`], in the order of the trace.

mod feed;
mod outcome;
mod targets;
#[cfg(test)]
mod tests;
mod worker;

use super::input::{Input, InputArgs, open_trace};
use crate::args::{FormatArgs, TextOrJson};
use crate::signals::Stop;
use anyhow::{Context, Result, bail, ensure};
use clap::{ArgGroup, Args};
use feed::{RecordFilter, RequestSource};
use larder_io::nbd_client::NbdUri;
use outcome::Outcome;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;
use targets::Targets;
use worker::{Pace, Worker};

/// Default requests in flight of a timed replay: requests that overlapped in the recording should
/// overlap again.
const TIMED_DEPTH: u64 = 32;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("exports").required(true).args(["to", "volumes"]))]
pub(super) struct ReplayArgs {
    /// The trace; - is standard input.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,

    /// The export to replay to, if the trace has one volume.
    #[arg(long, value_name = "URI")]
    to: Option<NbdUri>,

    /// The export of one volume of the trace, by name, or by number if it has none; may be given
    /// several times.
    #[arg(long = "volume", value_name = "NAME=URI", value_parser = targets::volume)]
    volumes: Vec<(String, NbdUri)>,

    /// Send requests at the times of the trace, this many times as fast; without it, as fast as
    /// replies arrive.
    #[arg(long, value_name = "FACTOR", value_parser = speed)]
    speed: Option<f64>,

    /// Connections to each export.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=64))]
    connections: u64,

    /// Requests in flight on each connection; 1 if not given, 32 with --speed.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=1024))]
    depth: Option<u64>,

    /// Fold offsets beyond the end of an export into it.
    #[arg(long)]
    wrap: bool,

    /// Skip requests that write, discard or zero.
    #[arg(long)]
    read_only: bool,

    #[command(flatten)]
    format: FormatArgs<TextOrJson>,

    #[command(flatten)]
    input: InputArgs,
}

fn speed(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('x').unwrap_or(text).parse().ok();
    let speed = number.filter(|speed: &f64| (1e-6..=1e6).contains(speed));
    speed.ok_or_else(|| format!("\"{text}\" is not a speed from 0.000001 to 1000000"))
}

pub(super) fn run(arguments: &ReplayArgs) -> Result<()> {
    let path = &arguments.trace;
    let targets = match &arguments.to {
        Some(uri) => Targets::single(uri.clone()),
        None => Targets::by_name(&arguments.volumes)?,
    };
    let connections = usize::try_from(arguments.connections).context("connect so often")?;
    let (targets, clients) = targets.connect(connections)?;
    let filter = RecordFilter { wrap: arguments.wrap, read_only: arguments.read_only };
    if path.is_file() {
        check(path, arguments, targets.clone(), filter)
            .with_context(|| format!("replay {}", path.display()))?;
    }
    let input = Input::open(path, &arguments.input)?;
    let source = Mutex::new(RequestSource::new(input, targets, filter)?);
    let stop = Stop::listen()?;
    let default_depth = if arguments.speed.is_some() { TIMED_DEPTH } else { 1 };
    let depth = arguments.depth.unwrap_or(default_depth);
    let started = Instant::now();
    let pace = Pace { started, speed: arguments.speed };
    let mut outcome = Outcome::new(arguments.connections, depth, arguments.speed);
    let depth = usize::try_from(depth).context("keep so many requests in flight")?;
    let workers = clients
        .into_iter()
        .map(|clients| Worker::new(clients, &source, pace, depth, stop.flag()))
        .collect();
    let result = worker::run_all(workers, &mut outcome);
    outcome.duration_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let source = source.into_inner().expect("no holder panics");
    outcome.add_source_counts(&source);
    result.with_context(|| {
        format!("replay {} beyond {} requests", path.display(), outcome.requests())
    })?;
    let text =
        if arguments.format.get() == TextOrJson::Json { outcome.json()? } else { outcome.text() };
    let mut out = crate::output::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())?;
    stop.reraise_signal()?;
    if let Some((errors, first)) = outcome.errors() {
        bail!("have every request answered: {errors} failed, the first was {first}");
    }
    Ok(())
}

/// Reads the whole trace once, so that an unsupported request is reported before any is sent.
fn check(
    path: &Path,
    arguments: &ReplayArgs,
    targets: Targets,
    filter: RecordFilter,
) -> Result<()> {
    let input = Input::from_source(open_trace(path, &arguments.input, None, None)?);
    let mut source = RequestSource::new(input, targets, filter)?.without_notes();
    while source.next()?.is_some() {}
    let unused = source.targets.unused();
    ensure!(unused.is_empty(), "no volume of the trace is called {}", unused.join(" or "));
    Ok(())
}
