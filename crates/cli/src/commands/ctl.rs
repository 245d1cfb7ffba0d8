//! `larder ctl`: queries and changes a running server; docs/ctl.md.
//!
//! All commands use the control interface (docs/control.md); responses are printed as text, as the
//! unchanged JSON, or as CSV.

mod follow;
mod output;
mod watch;

use crate::args::TableFormat;
use crate::args::{self, VolumeSource};
use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};
use larder_report::control::{dropped_table, pinned_table};
use larder_schema::control::{
    AddRequest, AtRisk, ByteRange, Curves, Dropped, Pinned, RangeRequest, RemoveRequest,
    SetRequest, Stats, VolumeRequest, Volumes,
};
use larder_server::client::Client;
use output::{Answer, AtRiskAnswer};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct CtlArgs {
    /// The server: the path of its control socket, or http://127.0.0.1:PORT. Default: the only
    /// server that is found.
    #[arg(long, global = true, value_name = "SERVER")]
    control: Option<String>,

    /// File with the token, for a server that is controlled over TCP.
    #[arg(long, global = true, value_name = "FILE")]
    token: Option<PathBuf>,

    /// Also trust the server of --control if it runs as this user, in addition to your own user and
    /// root.
    #[arg(long, global = true, value_name = "UID", requires = "control")]
    trust_uid: Option<u32>,

    /// Output format.
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    format: TableFormat,

    /// The same as --format json.
    #[arg(long, global = true)]
    json: bool,

    /// Repeat the query at this interval: rates of each interval and totals.
    #[arg(long, global = true, value_name = "TIME", value_parser = interval)]
    watch: Option<Duration>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Requests of clients, their results in the cache, and operations of the stores.
    Stats {
        /// Show every counter, gauge and latency instead.
        #[arg(long)]
        all: bool,
    },
    /// The volumes and their settings.
    Volumes {
        /// Show the locations of their stores and exports instead.
        #[arg(long)]
        places: bool,
    },
    /// The hit-ratio curve of each volume, its regions, the hit ratios of other policies, and
    /// recommendations.
    Curve {
        /// Only this volume.
        volume: Option<String>,
    },
    /// The files of a mounted directory with the most cached data: resident, dirty, read hits.
    Files {
        /// Maximum number of files, in every format.
        #[arg(long, value_name = "N", default_value_t = 20)]
        top: usize,
    },
    /// Data that a crash now would lose, and failing writes; exit code 1 if there are failing
    /// writes.
    AtRisk,
    /// All metrics in OpenMetrics format, as Prometheus reads them.
    Metrics,
    /// Change settings of a running server: all of these or none.
    Set {
        /// NAME=VALUE for all volumes, VOLUME.NAME=VALUE for one: the settings that larder help
        /// settings shows as live.
        #[arg(required = true, value_name = "[VOLUME.]NAME=VALUE", value_parser = setting)]
        settings: Vec<(String, String)>,
    },
    /// Write all dirty data to the stores and flush them, without stopping.
    Flush {
        /// Only this volume.
        volume: Option<String>,
    },
    /// Read ranges of a volume into the cache ahead of use.
    Warm {
        /// The volume.
        volume: String,
        /// Ranges as OFFSET+LENGTH, for example 1GiB+64MiB; without any, the whole volume.
        #[arg(value_parser = range)]
        ranges: Vec<ByteRange>,
    },
    /// Serve an additional volume, with the server's flags for all volumes.
    Add {
        /// A file, a block device, or an export of another server, as on the command line of larder
        /// serve.
        #[arg(value_name = "[NAME=]PATH", value_parser = volume_to_add)]
        volume: String,
        /// Settings of the volume, by the names that set accepts.
        #[arg(value_name = "NAME=VALUE", value_parser = setting)]
        settings: Vec<(String, String)>,
    },
    /// Write all dirty data of a volume and stop serving it.
    Remove {
        /// The volume.
        volume: String,
        /// Disconnect its clients after their requests in flight, instead of refusing.
        #[arg(long)]
        disconnect: bool,
        /// Discard unwritten data, instead of keeping a volume that cannot be written out.
        #[arg(long)]
        give_up: bool,
    },
    /// Drop clean pages; dirty pages stay.
    Drop {
        /// Only this volume.
        volume: Option<String>,
    },
    /// Freeze the cache contents of a volume: its requests neither add nor evict pages.
    Freeze {
        /// Only this volume.
        volume: Option<String>,
    },
    /// End a freeze.
    Unfreeze {
        /// Only this volume.
        volume: Option<String>,
    },
    /// Read ranges of a volume into the cache and keep them until they are unpinned.
    Pin {
        /// The volume.
        volume: String,
        /// Ranges as OFFSET+LENGTH, for example 1GiB+64MiB.
        #[arg(required = true, value_parser = range)]
        ranges: Vec<ByteRange>,
    },
    /// Unpin ranges, so that they can be evicted.
    Unpin {
        /// The volume.
        volume: String,
        /// Ranges as OFFSET+LENGTH; without any, all pinned ranges.
        #[arg(value_parser = range)]
        ranges: Vec<ByteRange>,
    },
    /// Write all dirty data and stop the server, as SIGTERM does, and wait for its end.
    Stop,
}

/// Parses the interval between two queries.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = Duration::from_nanos(args::time(text)?);
    if interval < Duration::from_millis(10) {
        return Err(format!("{text} is too short: 10ms are the least"));
    }
    Ok(interval)
}

/// Returns settings by name.
///
/// # Errors
/// Two settings have the same name.
fn by_name(settings: &[(String, String)]) -> Result<BTreeMap<String, String>> {
    let mut by_name = BTreeMap::new();
    for (name, value) in settings {
        let previous = by_name.insert(name.clone(), value.clone());
        ensure!(previous.is_none(), "set {name}: it is named twice");
    }
    Ok(by_name)
}

/// Parses `[VOLUME.]NAME=VALUE`. The name of a volume may contain "=", a value does not.
fn setting(text: &str) -> Result<(String, String), String> {
    let split = text.rsplit_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = split.ok_or("write it as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Parses a volume; returns it with an absolute path, which is valid for the server. A name that
/// the server derives from the path too is left out: it may contain "=".
fn volume_to_add(text: &str) -> Result<String, String> {
    let VolumeSource { name, path, upstream } = VolumeSource::parse(text)?;
    let path = match upstream {
        Some(_) => path,
        None => std::path::absolute(path).map_err(|error| error.to_string())?,
    };
    let path = path.to_str().ok_or("its path cannot be written in JSON: it is not UTF-8")?;
    let is_derived = VolumeSource::parse(path).is_ok_and(|derived| derived.name == name);
    Ok(if is_derived { path.to_owned() } else { format!("{name}={path}") })
}

/// Parses `OFFSET+LENGTH`.
fn range(text: &str) -> Result<ByteRange, String> {
    let (offset, length) =
        text.split_once('+').ok_or("write it as OFFSET+LENGTH, for example 1GiB+64MiB")?;
    Ok(ByteRange { offset: args::bytes(offset)?, length: args::bytes(length)? })
}

pub(crate) fn run(arguments: &CtlArgs) -> Result<ExitCode> {
    let (server, token) = (arguments.control.as_deref(), arguments.token.as_deref());
    let client = Client::find(server, token, arguments.trust_uid)?;
    let format = if arguments.json { TableFormat::Json } else { arguments.format };
    if let Some(interval) = arguments.watch {
        return watch::run(&client, &arguments.command, format, interval);
    }
    match &arguments.command {
        Command::Stats { all } => {
            output::Statistics { now: client.get("stats")?, all: *all }.print(format)
        }
        Command::Volumes { places } => {
            let volumes: Volumes = client.get("volumes")?;
            output::VolumeList { volumes, places: *places }.print(format)
        }
        Command::AtRisk => {
            let risk = AtRiskAnswer(client.get::<AtRisk>("at-risk")?);
            risk.print(format)?;
            return Ok(risk.exit_code());
        }
        Command::Curve { volume } => curve(&client, volume.as_deref())?.print(format),
        Command::Files { top } => {
            output::CachedFiles::first(client.get("files")?, *top).print(format)
        }
        Command::Drop { volume } => {
            let dropped: Dropped = client.post("drop", &volume_request(volume.as_ref()))?;
            output::print(&json!(dropped), &dropped_table(&dropped), "", format)
        }
        Command::Freeze { volume } => change(&client, "freeze", volume.as_ref(), format),
        Command::Unfreeze { volume } => change(&client, "unfreeze", volume.as_ref(), format),
        Command::Pin { volume, ranges } => pin(&client, "pin", volume, ranges, format),
        Command::Unpin { volume, ranges } => pin(&client, "unpin", volume, ranges, format),
        Command::Metrics => {
            ensure!(
                format == TableFormat::Text,
                "print the metrics: they are OpenMetrics text; leave --format out, or use \
                 larder ctl stats --all"
            );
            output::text(&client.get_text("/metrics")?)
        }
        Command::Set { settings } => {
            let request = SetRequest { set: by_name(settings)? };
            output::Changes(client.post("set", &request)?).print(format)
        }
        Command::Flush { volume } => {
            follow::run(&client, "flush", &volume_request(volume.as_ref()), &follow::FLUSH, format)
        }
        Command::Warm { volume, ranges } => {
            let ranges =
                if ranges.is_empty() { whole_volume(&client, volume)? } else { ranges.clone() };
            let request = RangeRequest { volume: volume.clone(), ranges };
            follow::run(&client, "warm", &request, &follow::WARM, format)
        }
        Command::Add { volume, settings } => {
            let set = by_name(settings)?;
            let request = AddRequest { volume: volume.clone(), set };
            output::AddedVolumes(client.post("add", &request)?).print(format)
        }
        Command::Remove { volume, disconnect, give_up } => {
            let (disconnect, give_up) = (*disconnect, *give_up);
            let request = RemoveRequest { volume: volume.clone(), disconnect, give_up };
            follow::run(&client, "remove", &request, &follow::REMOVE, format)
        }
        Command::Stop => {
            follow::run(&client, "stop", &VolumeRequest::default(), &follow::STOP, format)
        }
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Changes one volume, or all volumes, by the request that `path` names.
fn change(client: &Client, path: &str, volume: Option<&String>, format: TableFormat) -> Result<()> {
    output::Changes(client.post(path, &volume_request(volume))?).print(format)
}

/// Returns a request for one volume, or for all volumes.
fn volume_request(volume: Option<&String>) -> VolumeRequest {
    VolumeRequest { volume: volume.cloned() }
}

/// Returns the curves of one volume, or of all volumes.
fn curve(client: &Client, volume: Option<&str>) -> Result<output::CurveTable> {
    let mut curves: Curves = client.get("curve")?;
    if let Some(name) = volume {
        curves.volumes.retain(|volume| volume.name == name);
        ensure!(!curves.volumes.is_empty(), "find the volume \"{name}\": none is called so");
    }
    Ok(output::CurveTable(curves))
}

/// Pins or unpins ranges, and prints the pinned ranges afterwards.
fn pin(
    client: &Client,
    endpoint: &str,
    volume: &str,
    ranges: &[ByteRange],
    format: TableFormat,
) -> Result<()> {
    let request = RangeRequest { volume: volume.to_owned(), ranges: ranges.to_vec() };
    let pinned: Pinned = client.post(endpoint, &request)?;
    output::print(&json!(pinned), &pinned_table(&pinned), "nothing is pinned\n", format)
}

/// Returns the whole volume as one range.
fn whole_volume(client: &Client, name: &str) -> Result<Vec<ByteRange>> {
    let volumes: Volumes = client.get("volumes")?;
    let Some(volume) = volumes.volumes.iter().find(|volume| volume.name == name) else {
        let names: Vec<_> = volumes.volumes.iter().map(|volume| volume.name.as_str()).collect();
        bail!("find the volume \"{name}\": there are {}", names.join(", "));
    };
    Ok(vec![ByteRange { offset: 0, length: volume.length_bytes.unwrap_or_default() }])
}

/// Executes a query that can be repeated; returns `None` for other commands.
fn query(client: &Client, command: &Command) -> Result<Option<Box<dyn Answer>>> {
    Ok(Some(match command {
        Command::Stats { all } => {
            let now: Stats = client.get("stats")?;
            Box::new(output::Statistics { now, all: *all })
        }
        Command::Volumes { places } => {
            Box::new(output::VolumeList { volumes: client.get("volumes")?, places: *places })
        }
        Command::AtRisk => Box::new(AtRiskAnswer(client.get("at-risk")?)),
        Command::Curve { volume } => Box::new(curve(client, volume.as_deref())?),
        Command::Files { top } => Box::new(output::CachedFiles::first(client.get("files")?, *top)),
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_has_a_name() {
        assert_eq!(setting("a=b.policy=lru"), Ok(("a=b.policy".to_owned(), "lru".to_owned())));
        for wrong in ["=1", "policy", ""] {
            assert_eq!(setting(wrong), Err("write it as NAME=VALUE".to_owned()));
        }
    }
}
