//! `larder trace replay`: sends the requests of a trace to an export, and measures the latencies.
//!
//! A file is read twice: first to check that all of it can be replayed, so that nothing is written
//! otherwise; then to replay it. A stream is checked request by request.

use super::input::{Input, InputArgs};
use crate::args::{FormatArgs, TextOrJson};
use crate::connection::NbdConnection;
use crate::signals::Stop;
use anyhow::{Context, Result, bail, ensure};
use clap::{ArgGroup, Args};
use larder_io::nbd_client::{Client, ConnectOptions, ExportDetails, NbdUri};
use larder_io::nbd_wire as wire;
use larder_lab::replay::{
    self, Export, Exports, RecordFilter, ReplayOptions, RequestSource, SentRequest,
};
use larder_lab::trace::Op;
use std::io::Write;
use std::path::PathBuf;

/// Default requests in flight of a timed replay: requests that overlapped in the recording should
/// overlap again.
const TIMED_DEPTH: u64 = 32;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("exports").required(true).args(["to", "volumes"]))]
pub(super) struct ReplayArgs {
    /// The trace; - is standard input.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,

    /// Export to replay to.
    ///
    /// The trace must have one volume.
    #[arg(long, value_name = "URI")]
    to: Option<NbdUri>,

    /// Export of one volume of the trace; repeatable.
    ///
    /// The volume is named by its name, or by its number if it has none.
    #[arg(long = "volume", value_name = "NAME=URI", value_parser = volume)]
    volumes: Vec<(String, NbdUri)>,

    /// Times of the trace, so many times as fast.
    ///
    /// Without it, requests follow as fast as replies arrive.
    #[arg(long, value_name = "FACTOR", value_parser = speed)]
    speed: Option<f64>,

    /// Connections to each export.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=64))]
    connections: u64,

    /// Requests in flight on each connection.
    ///
    /// 1 if not given, 32 with --speed.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=1024))]
    depth: Option<u64>,

    /// Fold offsets beyond the end into the export.
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

/// Parses `NAME=URI`. A name may contain "=".
fn volume(text: &str) -> Result<(String, NbdUri), String> {
    let at = ["=nbd://", "=nbd+unix://"].iter().filter_map(|scheme| text.find(scheme)).min();
    let at = at.ok_or("write it as NAME=nbd+unix://... or NAME=nbd://...")?;
    let uri: NbdUri = text[at + 1..].parse().map_err(|error| format!("{error}"))?;
    Ok((text[..at].to_owned(), uri))
}

pub(super) fn run(arguments: &ReplayArgs) -> Result<()> {
    let path = &arguments.trace;
    let (exports, threads) = connect(arguments)?;
    let filter = RecordFilter { wrap: arguments.wrap, read_only: arguments.read_only };
    if path.is_file() {
        let source = arguments.input.open(path, None, None)?;
        RequestSource::new(source, exports.clone(), filter)
            .and_then(RequestSource::check)
            .with_context(|| format!("replay {}", path.display()))?;
    }
    let input = Input::open(path, &arguments.input)?;
    let source = RequestSource::new(Box::new(input), exports, filter)?;
    let stop = Stop::listen()?;
    let default_depth = if arguments.speed.is_some() { TIMED_DEPTH } else { 1 };
    let depth = usize::try_from(arguments.depth.unwrap_or(default_depth))
        .context("keep so many requests in flight")?;
    let options = ReplayOptions { depth, speed: arguments.speed };
    let (outcome, result) = replay::run(threads, source, options, stop.flag());
    result.with_context(|| {
        format!("replay {} beyond {} requests", path.display(), outcome.requests())
    })?;
    let text = match arguments.format.get() {
        TextOrJson::Json => format!("{:#}\n", outcome.to_json()),
        TextOrJson::Text => outcome.to_text(),
    };
    let mut out = crate::output::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())?;
    stop.reraise_signal()?;
    if let Some((errors, first)) = outcome.errors() {
        bail!("have every request answered: {errors} failed, the first was {first}");
    }
    Ok(())
}

/// Opens the connections of each thread, one to each export, in the order of the exports.
fn connect(arguments: &ReplayArgs) -> Result<(Exports, Vec<Vec<NbdConnection<SentRequest>>>)> {
    let named = arguments.volumes.iter().map(|(name, uri)| (Some(name), uri));
    let wanted: Vec<_> = arguments.to.iter().map(|uri| (None, uri)).chain(named).collect();
    let connections = usize::try_from(arguments.connections).context("connect so often")?;
    let mut threads: Vec<Vec<_>> = (0..connections).map(|_| Vec::new()).collect();
    let mut exports: Vec<(Option<String>, Export)> = Vec::new();
    for (name, _) in &arguments.volumes {
        let count = arguments.volumes.iter().filter(|(other, _)| other == name).count();
        ensure!(count == 1, "replay volume {name} to two exports: name each volume once");
    }
    let options = ConnectOptions { base_allocation: false, ..ConnectOptions::default() };
    for (name, uri) in wanted {
        let mut found = None;
        for clients in &mut threads {
            let client =
                Client::connect_with(uri, options).with_context(|| format!("replay to {uri}"))?;
            let info = client.info();
            ensure!(
                connections == 1 || info.has(wire::FLAG_CAN_MULTI_CONN),
                "replay to {uri} over {connections} connections: its server does not offer that \
                 they see each other's writes"
            );
            ensure!(info.length > 0, "replay to {uri}: it is empty");
            found = Some(export(uri, info));
            clients.push(NbdConnection::new(client));
        }
        exports.extend(found.map(|export| (name.cloned(), export)));
    }
    Ok((Exports::new(exports), threads))
}

/// Returns the properties of an export.
fn export(uri: &NbdUri, info: &ExportDetails) -> Export {
    let optional = [
        (Op::Flush, wire::FLAG_SEND_FLUSH),
        (Op::Discard, wire::FLAG_SEND_TRIM),
        (Op::Zero, wire::FLAG_SEND_WRITE_ZEROES),
    ];
    let offered = optional.into_iter().filter(|(_, flag)| info.has(*flag)).map(|(op, _)| op);
    Export {
        name: uri.to_string(),
        length: info.length,
        granule: info.block_sizes.min.into(),
        transfer_bytes_max: info.block_sizes.max.min(wire::DEFAULT_BLOCK_BYTES_MAX).into(),
        is_read_only: info.has(wire::FLAG_READ_ONLY),
        ops: [Op::Read, Op::Write].into_iter().chain(offered).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_and_speeds_are_read_from_the_command_line() {
        let (name, uri) = volume("a=nbd=nbd+unix:///disk?socket=/s=1").unwrap();
        assert_eq!(name, "a=nbd");
        assert_eq!(uri.export, "disk");
        assert!(volume("a").is_err() && volume("a=/disk").is_err());
        assert_eq!(speed("2x"), Ok(2.0));
        for wrong in ["0", "-1", "nan", "inf", "fast", "x"] {
            assert!(speed(wrong).is_err(), "{wrong}");
        }
    }
}
