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
use larder_report::control;
use larder_schema::control::{
    AddRequest, ByteRange, ChangeResponse, Curves, DropResponse, Pinned, RangeRequest,
    RemoveRequest, SetRequest, Stats, VolumeRequest, Volumes,
};
use larder_server::client::Client;
use output::Answer;
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct CtlArgs {
    /// Control socket of the server, or http://127.0.0.1:PORT.
    ///
    /// The only server that is found, if not given.
    #[arg(long, global = true, value_name = "SERVER")]
    control: Option<String>,

    /// File with the token, for control over TCP.
    #[arg(long, global = true, value_name = "FILE")]
    token: Option<PathBuf>,

    /// Trust a server that runs as this user, too.
    ///
    /// Trust the server of --control if it runs as this user, in addition to your own user and
    /// root.
    #[arg(long, global = true, value_name = "UID", requires = "control")]
    trust_uid: Option<u32>,

    /// Format.
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "text",
        hide_default_value = true
    )]
    format: TableFormat,

    /// The same as --format json.
    #[arg(long, global = true, conflicts_with = "format")]
    json: bool,

    /// Repeat the query at this interval.
    ///
    /// Repeat the query at this interval: rates of each interval and totals.
    #[arg(long, global = true, value_name = "TIME", value_parser = interval)]
    watch: Option<Duration>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Query(Query),
    #[command(flatten)]
    Change(Change),
}

/// A command that can be repeated.
#[derive(Debug, Subcommand)]
enum Query {
    /// Show requests, cache results, and operations of the stores.
    Stats {
        /// Only this volume.
        volume: Option<String>,
        /// Show every counter, gauge and latency instead.
        #[arg(long)]
        all: bool,
    },
    /// Show the volumes and their settings.
    Volumes {
        /// Show the locations of their stores and exports instead.
        #[arg(long)]
        places: bool,
    },
    /// Show hit-ratio curves, other policies, and recommendations.
    ///
    /// For each volume: the curve, its regions, the hit ratios of other policies, and the
    /// recommended sizes.
    Curve {
        /// Only this volume.
        volume: Option<String>,
    },
    /// Show the files of a mount with the most cached data.
    ///
    /// Of each file: resident and dirty data, and read hits.
    Files {
        /// Maximum number of files, in every format.
        #[arg(long, value_name = "N", default_value_t = 20)]
        top: usize,
    },
    /// Show data that a crash would lose, and failing writes.
    ///
    /// Exit code 1 if there are failing writes.
    AtRisk,
}

/// A command that is executed once.
#[derive(Debug, Subcommand)]
enum Change {
    /// Print all metrics in OpenMetrics format.
    ///
    /// Prometheus reads this format.
    Metrics,
    /// Change settings of a running server: all of these or none.
    Set {
        /// Live settings, of all volumes or of one.
        ///
        /// NAME=VALUE for all volumes, VOLUME.NAME=VALUE for one: the settings that larder help
        /// settings shows as live.
        #[arg(required = true, value_name = "[VOLUME.]NAME=VALUE", value_parser = args::setting)]
        settings: Vec<(String, String)>,
    },
    /// Write all dirty data to the stores, and flush them.
    ///
    /// The server continues.
    Flush {
        /// Only this volume.
        volume: Option<String>,
    },
    /// Read ranges of a volume into the cache ahead of use.
    Warm {
        /// The volume.
        volume: String,
        /// Ranges, as in 1GiB+64MiB; else the whole volume.
        ///
        /// Ranges as OFFSET+LENGTH; without any, the whole volume.
        #[arg(value_parser = range)]
        ranges: Vec<ByteRange>,
    },
    /// Serve an additional volume.
    ///
    /// The server's flags for all volumes apply.
    Add {
        /// A file, a block device, or an NBD address.
        ///
        /// The form is that of larder serve.
        #[arg(value_name = "[NAME=]PATH", value_parser = volume_to_add)]
        volume: String,
        /// Settings of the volume, by the names that set accepts.
        #[arg(value_name = "NAME=VALUE", value_parser = args::setting)]
        settings: Vec<(String, String)>,
    },
    /// Write all dirty data of a volume and stop serving it.
    Remove {
        /// The volume.
        volume: String,
        /// Disconnect clients instead of refusing.
        ///
        /// Disconnect its clients after their requests in flight, instead of refusing.
        #[arg(long)]
        disconnect: bool,
        /// Discard data that cannot be written.
        ///
        /// Discard unwritten data, instead of keeping a volume that cannot be written out.
        #[arg(long)]
        give_up: bool,
    },
    /// Drop clean pages; dirty pages stay.
    Drop {
        /// Only this volume.
        volume: Option<String>,
    },
    /// Freeze the cache contents: requests add and evict no pages.
    Freeze {
        /// Only this volume.
        volume: Option<String>,
    },
    /// End a freeze.
    Unfreeze {
        /// Only this volume.
        volume: Option<String>,
    },
    /// Read ranges into the cache and keep them until unpinned.
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
    /// Write all dirty data, stop the server, and wait for its end.
    ///
    /// The same as SIGTERM, but the command returns when the server has ended.
    Stop,
}

/// Parses the interval between two queries.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = Duration::from_nanos(args::time(text)?);
    if interval < Duration::from_millis(10) {
        return Err(format!("{text} is too short: the minimum is 10ms"));
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

/// Refuses a server that is neither a URL nor possibly a socket. The client names the reason for
/// a socket that is missing.
fn check_server(server: &str) -> Result<()> {
    let path = Path::new(server.strip_prefix("unix:").unwrap_or(server));
    let is_socket = |found: Metadata| found.file_type().is_socket();
    let reason = match path.metadata().map(is_socket) {
        Ok(false) => "it is not a socket; name the control socket of a server (NAME.control)",
        Err(_) if !server.starts_with("http://") && is_address(server) => {
            "it is not a path; write http://127.0.0.1:PORT, and add --token"
        }
        _ => return Ok(()),
    };
    bail!("use {server} to control a server: {reason}")
}

/// Returns true for a URL and for `HOST:PORT`.
fn is_address(server: &str) -> bool {
    let port = server.rsplit_once(':').map_or("", |(_, port)| port);
    server.contains("://") || port.parse::<u16>().is_ok()
}

pub(crate) fn run(arguments: &CtlArgs) -> Result<ExitCode> {
    let (server, token) = (arguments.control.as_deref(), arguments.token.as_deref());
    server.map_or(Ok(()), check_server)?;
    let client = Client::find(server, token, arguments.trust_uid)?;
    let format = if arguments.json { TableFormat::Json } else { arguments.format };
    let answer = match (&arguments.command, arguments.watch) {
        (Command::Query(query), Some(interval)) => {
            return watch::run(&client, query, format, interval);
        }
        (Command::Query(query), None) => query.execute(&client, &mut None)?,
        (Command::Change(_), Some(_)) => {
            bail!("repeat this command: --watch is for stats, volumes, curve, files and at-risk")
        }
        (Command::Change(change), None) => match change.execute(&client, format)? {
            Some(answer) => answer,
            None => return Ok(ExitCode::SUCCESS),
        },
    };
    answer.print(format)?;
    Ok(ExitCode::from(u8::from(answer.has_finding)))
}

impl Query {
    /// Returns the answer. Statistics are rates since `earlier`, if this is not the first query;
    /// they are stored there.
    fn execute(&self, client: &Client, earlier: &mut Option<Stats>) -> Result<Answer> {
        Ok(match self {
            Query::Stats { volume, all } => {
                let mut now: Stats = client.get("stats")?;
                if let Some(name) = volume {
                    keep_volume(name, &mut now.volumes, |volume| &volume.name)?;
                }
                let answer = match &earlier {
                    Some(earlier) => output::rates(&now, earlier),
                    None => output::stats(&now, *all),
                };
                *earlier = Some(now);
                answer
            }
            Query::Volumes { places } => output::volumes(&client.get("volumes")?, *places),
            Query::AtRisk => output::at_risk(&client.get("at-risk")?),
            Query::Curve { volume } => {
                let mut curves: Curves = client.get("curve")?;
                if let Some(name) = volume {
                    keep_volume(name, &mut curves.volumes, |volume| &volume.name)?;
                }
                Answer::new(
                    control::curves_to_text(&curves),
                    &curves,
                    control::curves_table(&curves),
                )
            }
            Query::Files { top } => output::files(client.get("files")?, *top),
        })
    }
}

impl Change {
    /// Executes the command; returns `None` if it has printed its result.
    fn execute(&self, client: &Client, format: TableFormat) -> Result<Option<Answer>> {
        let of_volume = |volume: &Option<String>| VolumeRequest { volume: volume.clone() };
        let changed = |path: &str, volume| {
            let changed: ChangeResponse = client.post(path, &of_volume(volume))?;
            Ok(Some(output::changed(&changed)))
        };
        let pin = |path: &str, volume: &str, ranges: &[ByteRange]| {
            let request = RangeRequest { volume: volume.to_owned(), ranges: ranges.to_vec() };
            let pinned: Pinned = client.post(path, &request)?;
            Ok(Some(Answer::of_table(
                &pinned,
                control::pinned_table(&pinned),
                "nothing is pinned\n",
            )))
        };
        match self {
            Change::Drop { volume } => {
                let dropped: DropResponse = client.post("drop", &of_volume(volume))?;
                return Ok(Some(Answer::of_table(&dropped, control::dropped_table(&dropped), "")));
            }
            Change::Freeze { volume } => return changed("freeze", volume),
            Change::Unfreeze { volume } => return changed("unfreeze", volume),
            Change::Pin { volume, ranges } => return pin("pin", volume, ranges),
            Change::Unpin { volume, ranges } => return pin("unpin", volume, ranges),
            Change::Set { settings } => {
                let request = SetRequest { set: by_name(settings)? };
                return Ok(Some(output::changed(&client.post("set", &request)?)));
            }
            Change::Add { volume, settings } => {
                let request = AddRequest { volume: volume.clone(), set: by_name(settings)? };
                return Ok(Some(output::added(&client.post("add", &request)?)));
            }
            Change::Metrics => {
                ensure!(
                    format == TableFormat::Text,
                    "print the metrics: they are OpenMetrics text; leave --format out, or use \
                 larder ctl stats --all"
                );
                output::text(&client.get_text("/metrics")?)?;
            }
            Change::Flush { volume } => {
                follow::run(client, "flush", &of_volume(volume), ("writing", "flushed"), format)?;
            }
            Change::Warm { volume, ranges } => {
                let ranges =
                    if ranges.is_empty() { whole_volume(client, volume)? } else { ranges.clone() };
                let request = RangeRequest { volume: volume.clone(), ranges };
                follow::run(client, "warm", &request, ("reading", "warmed"), format)?;
            }
            Change::Remove { volume, disconnect, give_up } => {
                let (disconnect, give_up) = (*disconnect, *give_up);
                let request = RemoveRequest { volume: volume.clone(), disconnect, give_up };
                let completed =
                    if give_up { "removed" } else { "removed, no unwritten data is left; written" };
                follow::run(client, "remove", &request, ("writing", completed), format)?;
            }
            Change::Stop => {
                let words = ("writing", "stopped, no unwritten data is left; written");
                follow::run(client, "stop", &of_volume(&None), words, format)?;
            }
        }
        Ok(None)
    }
}

/// Fails if `name` is not one of the names of the volumes.
fn ensure_known<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let names: Vec<&str> = names.into_iter().collect();
    ensure!(names.contains(&name), args::unknown_volume(name, names));
    Ok(())
}

/// Removes all volumes but the one with this name.
fn keep_volume<T>(name: &str, volumes: &mut Vec<T>, name_of: fn(&T) -> &String) -> Result<()> {
    ensure_known(name, volumes.iter().map(|volume| name_of(volume).as_str()))?;
    volumes.retain(|volume| name_of(volume) == name);
    Ok(())
}

fn whole_volume(client: &Client, name: &str) -> Result<Vec<ByteRange>> {
    let Volumes { volumes, .. } = client.get("volumes")?;
    ensure_known(name, volumes.iter().map(|volume| volume.name.as_str()))?;
    let volume = volumes.iter().find(|volume| volume.name == name);
    let length = volume.and_then(|volume| volume.length_bytes).unwrap_or_default();
    Ok(vec![ByteRange { offset: 0, length }])
}
