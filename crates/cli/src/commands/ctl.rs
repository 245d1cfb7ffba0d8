//! `larder ctl`: asks a running server, and changes it; docs/ctl.md.
//!
//! Everything goes through the control interface (docs/control.md); what it answers is printed as
//! text, as the very JSON, or as CSV.

mod client;
mod follow;
mod output;
mod tcp_owner;
mod watch;

use crate::args::{self, VolumeArgument};
use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand, ValueEnum};
pub(crate) use client::Client;
use larder_report::control::{
    AddRequest, AtRisk, ByteRange, Curves, Dropped, Pinned, RangeRequest, RemoveRequest,
    SetRequest, Stats, VolumeRequest, Volumes,
};
use output::{Answer, Risk};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The server: the path of its control socket, or http://127.0.0.1:PORT. Without it, the only
    /// one that is found.
    #[arg(long, global = true, value_name = "SERVER")]
    control: Option<String>,

    /// File with the token, for a server that is controlled over TCP.
    #[arg(long, global = true, value_name = "FILE")]
    token: Option<PathBuf>,

    /// Also trust the server of --control if it runs as this user, in addition to your own user and
    /// root.
    #[arg(long, global = true, value_name = "UID", requires = "control")]
    trust_uid: Option<u32>,

    /// How to print.
    #[arg(long, global = true, default_value = "text")]
    format: Format,

    /// Ask again and again, this far apart: rates of each interval and what they add up to.
    #[arg(long, global = true, value_name = "TIME", value_parser = interval)]
    watch: Option<Duration>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// What the server says, as it is.
    Json,
    /// One table with plain numbers.
    Csv,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What clients asked for, what the cache made of it, and what the stores did.
    Stats {
        /// Every counter, gauge and latency instead.
        #[arg(long)]
        all: bool,
    },
    /// The volumes and their settings.
    Volumes {
        /// Where their stores and exports are instead.
        #[arg(long)]
        places: bool,
    },
    /// The hit-ratio curve of each volume, its regions, what other policies would hit, and what to
    /// do about it.
    Curve {
        /// This volume only.
        volume: Option<String>,
    },
    /// The files of a mounted directory with most in the cache: resident, dirty, reads that hit.
    Files {
        /// So many of them, however they are printed.
        #[arg(long, value_name = "N", default_value_t = 20)]
        top: usize,
    },
    /// What a crash now would lose, and what cannot be written; exit code 1 if there is such.
    AtRisk,
    /// Everything as OpenMetrics, as Prometheus gets it.
    Metrics,
    /// Change settings while it serves: all of these or none.
    Set {
        /// NAME=VALUE for all volumes, VOLUME.NAME=VALUE for one: memory, share, page-size,
        /// policy, write-mode, flush, min, max, and the tunables (docs/TUNABLES.md).
        #[arg(required = true, value_name = "[VOLUME.]NAME=VALUE", value_parser = setting)]
        settings: Vec<(String, String)>,
    },
    /// Write everything dirty to the stores and flush them, without stopping.
    Flush {
        /// This volume only.
        volume: Option<String>,
    },
    /// Read ranges of a volume into the cache before they are asked for.
    Warm {
        /// The volume.
        volume: String,
        /// Ranges as OFFSET+LENGTH, for example 1GiB+64MiB; without any, the whole volume.
        #[arg(value_parser = range)]
        ranges: Vec<ByteRange>,
    },
    /// Serve one more volume, with the flags of the server that hold for all volumes.
    Add {
        /// A file, a block device, or an export of another server, as on the command line of
        /// larder serve.
        #[arg(value_name = "[NAME=]PATH", value_parser = added)]
        volume: String,
        /// Settings of it, by the names that set takes.
        #[arg(value_name = "NAME=VALUE", value_parser = setting)]
        settings: Vec<(String, String)>,
    },
    /// Write everything of a volume and serve it no more.
    Remove {
        /// The volume.
        volume: String,
        /// Let go of its clients, once what they have asked is answered, instead of refusing.
        #[arg(long)]
        disconnect: bool,
        /// Discard unwritten data, instead of keeping a volume that cannot be written out.
        #[arg(long)]
        give_up: bool,
    },
    /// Forget what is clean; what is dirty stays.
    Drop {
        /// This volume only.
        volume: Option<String>,
    },
    /// Let nothing enter the cache and nothing leave it for what is asked of a volume.
    Freeze {
        /// This volume only.
        volume: Option<String>,
    },
    /// End that.
    Unfreeze {
        /// This volume only.
        volume: Option<String>,
    },
    /// Read ranges of a volume in and keep them in the cache until they are unpinned.
    Pin {
        /// The volume.
        volume: String,
        /// Ranges as OFFSET+LENGTH, for example 1GiB+64MiB.
        #[arg(required = true, value_parser = range)]
        ranges: Vec<ByteRange>,
    },
    /// Let pinned ranges go when they are the coldest.
    Unpin {
        /// The volume.
        volume: String,
        /// Ranges as OFFSET+LENGTH; without any, all that are pinned.
        #[arg(value_parser = range)]
        ranges: Vec<ByteRange>,
    },
    /// Write everything and end the server, as SIGTERM does, and wait for it.
    Stop,
}

/// A time between two questions.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = Duration::from_nanos(args::time(text)?);
    if interval < Duration::from_millis(10) {
        return Err(format!("{text} is too short: 10ms are the least"));
    }
    Ok(interval)
}

/// Settings by name.
///
/// # Errors
/// Two settings have the same name.
fn by_name(settings: &[(String, String)]) -> Result<BTreeMap<String, String>> {
    let mut by_name = BTreeMap::new();
    for (name, value) in settings {
        let earlier = by_name.insert(name.clone(), value.clone());
        ensure!(earlier.is_none(), "set {name}: it is named twice");
    }
    Ok(by_name)
}

/// `[VOLUME.]NAME=VALUE`. A volume may have a "=" in its name, a value has none.
fn setting(text: &str) -> Result<(String, String), String> {
    let named = text.rsplit_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = named.ok_or("write it as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// A volume with its name, and with a path that means the same to the server.
fn added(text: &str) -> Result<String, String> {
    let VolumeArgument { name, path, upstream } = args::volume(text)?;
    let path = match upstream {
        Some(_) => path,
        None => std::path::absolute(path).map_err(|error| error.to_string())?,
    };
    let path = path.to_str().ok_or("its path cannot be written in JSON: it is not UTF-8")?;
    Ok(format!("{name}={path}"))
}

/// `OFFSET+LENGTH`.
fn range(text: &str) -> Result<ByteRange, String> {
    let (offset, length) =
        text.split_once('+').ok_or("write it as OFFSET+LENGTH, for example 1GiB+64MiB")?;
    Ok(ByteRange { offset: args::bytes(offset)?, length: args::bytes(length)? })
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (server, token) = (arguments.control.as_deref(), arguments.token.as_deref());
    let client = Client::find(server, token, arguments.trust_uid)?;
    let format = arguments.format;
    if let Some(interval) = arguments.watch {
        return watch::run(&client, &arguments.command, format, interval);
    }
    match &arguments.command {
        Command::Stats { all } => {
            output::Statistics { now: client.get("stats")?, all: *all }.print(format)
        }
        Command::Volumes { places } => {
            let volumes: Volumes = client.get("volumes")?;
            output::Listed { volumes, places: *places }.print(format)
        }
        Command::AtRisk => {
            let risk = Risk(client.get::<AtRisk>("at-risk")?);
            risk.print(format)?;
            return Ok(risk.exit_code());
        }
        Command::Curve { volume } => curve(&client, volume.as_deref())?.print(format),
        Command::Files { top } => output::Cached::first(client.get("files")?, *top).print(format),
        Command::Drop { volume } => {
            let dropped: Dropped = client.post("drop", &one(volume.as_ref()))?;
            output::print(&json!(dropped), &dropped.table(), "", format)
        }
        Command::Freeze { volume } => {
            output::Changes(client.post("freeze", &one(volume.as_ref()))?).print(format)
        }
        Command::Unfreeze { volume } => {
            output::Changes(client.post("unfreeze", &one(volume.as_ref()))?).print(format)
        }
        Command::Pin { volume, ranges } => pin(&client, "pin", volume, ranges, format),
        Command::Unpin { volume, ranges } => pin(&client, "unpin", volume, ranges, format),
        Command::Metrics => {
            ensure!(
                format == Format::Text,
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
            follow::run(&client, "flush", &one(volume.as_ref()), &follow::FLUSH, format)
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
            output::Added(client.post("add", &request)?).print(format)
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

/// A request about one volume or all.
fn one(volume: Option<&String>) -> VolumeRequest {
    VolumeRequest { volume: volume.cloned() }
}

/// The curves, of one volume or all.
fn curve(client: &Client, volume: Option<&str>) -> Result<output::CurveTable> {
    let mut curves: Curves = client.get("curve")?;
    if let Some(name) = volume {
        curves.volumes.retain(|volume| volume.name == name);
        ensure!(!curves.volumes.is_empty(), "find the volume \"{name}\": none is called so");
    }
    Ok(output::CurveTable(curves))
}

/// Pins or unpins, and shows what is pinned then.
fn pin(
    client: &Client,
    what: &str,
    volume: &str,
    ranges: &[ByteRange],
    format: Format,
) -> Result<()> {
    let request = RangeRequest { volume: volume.to_owned(), ranges: ranges.to_vec() };
    let pinned: Pinned = client.post(what, &request)?;
    output::print(&json!(pinned), &pinned.table(), "nothing is pinned\n", format)
}

/// The whole of a volume, as one range.
fn whole_volume(client: &Client, name: &str) -> Result<Vec<ByteRange>> {
    let volumes: Volumes = client.get("volumes")?;
    let Some(volume) = volumes.volumes.iter().find(|volume| volume.name == name) else {
        let names: Vec<_> = volumes.volumes.iter().map(|volume| volume.name.as_str()).collect();
        bail!("find the volume \"{name}\": there are {}", names.join(", "));
    };
    Ok(vec![ByteRange { offset: 0, length: volume.length_bytes.unwrap_or_default() }])
}

/// What can be asked again and again.
fn run_command(client: &Client, command: &Command) -> Result<Option<Box<dyn Answer>>> {
    Ok(Some(match command {
        Command::Stats { all } => {
            let now: Stats = client.get("stats")?;
            Box::new(output::Statistics { now, all: *all })
        }
        Command::Volumes { places } => {
            Box::new(output::Listed { volumes: client.get("volumes")?, places: *places })
        }
        Command::AtRisk => Box::new(Risk(client.get("at-risk")?)),
        Command::Curve { volume } => Box::new(curve(client, volume.as_deref())?),
        Command::Files { top } => Box::new(output::Cached::first(client.get("files")?, *top)),
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
