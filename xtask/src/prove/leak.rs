//! The floor: what `--min` gives a volume nobody takes from it, neither another volume that floods
//! the pool nor a process that leaks memory until there is none left.
//!
//! The second is what squeezed the file cache of Windows NT to nothing. Here all that takes part
//! shares one memory group with a limit: a server, a process that reads a file through the kernel's
//! cache again and again, and one that leaks. The kernel ends it when nothing is left. A chart of
//! the recorded run is in the documentation.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::speed::record::{Record, now, software};
use super::{Claims, Lab, to_f64};
use crate::image::{self, MIB};
use crate::memory_group::MemoryGroup;
use crate::nbd::Client;
use crate::run;
use crate::server::{Larder, Recipe, Server};

/// All memory that there is.
const LIMIT_MIB: u64 = 640;
/// The pool of the server, and what of it the volume "hot" keeps.
const MEMORY: &str = "160MiB";
const MIN: &str = "hot=100MiB";
const HOT_MIB: u64 = 80;
const FLOOD_MIB: u64 = 512;
/// The file that is read through the kernel's cache.
const FILE_MIB: u64 = 256;
/// Between two looks.
const STEP: Duration = Duration::from_millis(500);
/// Looks before the leak begins, and at most.
const CALM_STEPS: usize = 8;
const STEPS_MAX: usize = 120;
/// The leak: 8 MiB, a pause, and so on, all kept in memory.
const LEAK: &str = "echo 1000 > /proc/self/oom_score_adj
while head -c 8388608 /dev/zero; do sleep 0.2; done | tail";

/// Where the recorded run lies.
const RECORD: &str = "bench-runs/leak.json";

/// A server inside a group.
struct Inside<'a>(Larder, &'a MemoryGroup);

impl Recipe for Inside<'_> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn command(&self, socket: &Path, scratch: &Path) -> Command {
        self.1.enter(&self.0.command(socket, scratch))
    }

    fn announces(&self) -> bool {
        true
    }
}

/// What one look saw.
struct Look {
    /// Since the beginning, seconds.
    at: f64,
    kernel_mib: f64,
    others_mib: f64,
    hot_mib: f64,
    /// Of the reads of the hot volume since the last look.
    hits: f64,
}

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    if let Some(reason) = MemoryGroup::missing() {
        claims.skip("the floor holds while a process leaks memory", reason);
        return Ok(());
    }
    let group = MemoryGroup::of(LIMIT_MIB)?;
    let [hot, flood, file] = [("hot", HOT_MIB), ("flood", FLOOD_MIB), ("file", FILE_MIB)]
        .map(|(name, mib)| image::filled(&lab.file(name), mib, lab.options.seed));
    let (hot, flood, file) = (hot?, flood?, file?);
    let volume = |name: &str, path: &Path| format!("{name}={}", path.display());
    let larder = Larder {
        binary: lab.binary.clone(),
        volumes: vec![volume("hot", &hot), volume("flood", &flood)],
        options: ["--memory", MEMORY, "--min", MIN, "--lock"].map(str::to_owned).into(),
    };
    let server = Server::start(&Inside(larder, &group), lab.dir())?;
    let mut client = Client::connect(&server.socket(), "hot")?;
    read_all(&mut client)?;
    claims.tried(
        format!("{HOT_MIB} MiB above their floor stay while {FLOOD_MIB} MiB flood the pool"),
        || {
            let mut copy = run::client(120, "nbdcopy");
            let uri = format!("nbd+unix:///flood?socket={}", server.socket().display());
            run::text(copy.arg(uri).arg("null:"))?;
            let mib = resident_mib(lab, &server)?;
            anyhow::ensure!(mib >= to_f64(HOT_MIB), "{mib:.1} MiB are left");
            Ok(format!("{mib:.1} MiB"))
        },
    );
    let looks = watch(lab, &group, (&server, &mut client), &file)?;
    judge(&looks, claims);
    drop(client);
    claims.tried("after the leak: stops clean", || {
        server.stop_clean()?;
        Ok("exit code 0".into())
    });
    if !lab.options.quick {
        write(&lab.root, &looks)?;
        println!("   {RECORD} written; the chart follows with cargo xtask docs");
    }
    Ok(())
}

/// Looks again and again while memory is leaked, until the kernel ends that.
fn watch(
    lab: &Lab,
    group: &MemoryGroup,
    (server, client): (&Server, &mut Client),
    file: &Path,
) -> Result<Vec<Look>> {
    // It lies in the kernel's cache since it was written, on the account of another group.
    run::text(Command::new("dd").arg(format!("of={}", file.display())).args([
        "oflag=nocache",
        "conv=notrunc,fdatasync",
        "count=0",
    ]))?;
    let mut reader = Command::new("sh");
    reader.args(["-c", "while cat \"$0\" > /dev/null; do :; done"]).arg(file);
    let mut reader = begin(group, &reader)?;
    let mut leak: Option<Child> = None;
    let mut looks: Vec<Look> = Vec::new();
    let started = Instant::now();
    let mut before = read_hits(lab, server)?;
    for step in 0..STEPS_MAX {
        if step == CALM_STEPS {
            leak = Some(begin(group, Command::new("sh").args(["-c", LEAK]))?);
        }
        read_all(client)?;
        let after = read_hits(lab, server)?;
        let mib = |bytes: u64| to_f64(bytes) / to_f64(MIB);
        looks.push(Look {
            at: started.elapsed().as_secs_f64(),
            kernel_mib: mib(group.bytes("cache")?),
            others_mib: mib(group.bytes("rss")?.saturating_sub(server.memory_bytes("VmRSS")?)),
            hot_mib: resident_mib(lab, server)?,
            hits: (after.0 - before.0) / (after.1 - before.1),
        });
        before = after;
        let leak_ended = match &mut leak {
            Some(leak) => leak.try_wait().context("look after the leak")?.is_some(),
            None => false,
        };
        if leak_ended {
            break;
        }
        std::thread::sleep(STEP);
    }
    for child in leak.iter_mut().chain([&mut reader]) {
        drop(child.kill());
        child.wait().context("end what was begun")?;
    }
    Ok(looks)
}

fn begin(group: &MemoryGroup, command: &Command) -> Result<Child> {
    let mut inside = group.enter(command);
    inside.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    inside.spawn().context("start a process in the group")
}

/// Reads the hot volume once, in pieces of 64 KiB.
fn read_all(client: &mut Client) -> Result<()> {
    let mut piece = vec![0; 1 << 16];
    for offset in (0..client.bytes()).step_by(piece.len()) {
        client.read(offset, &mut piece)?.ok().context("the server refused a read")?;
    }
    Ok(())
}

fn hot(lab: &Lab, server: &Server, what: &str) -> Result<Value> {
    let mut ctl = run::client(30, &lab.binary.to_string_lossy());
    ctl.args(["ctl", what, "--format", "json", "--control"]).arg(server.control());
    let answer: Value = serde_json::from_str(&run::text(&mut ctl)?).context("parse an answer")?;
    let volumes = answer["volumes"].as_array().context("no volumes in an answer")?;
    let hot = volumes.iter().find(|volume| volume["name"] == "hot" || volume["volume"] == "hot");
    hot.cloned().context("no volume hot in an answer")
}

fn resident_mib(lab: &Lab, server: &Server) -> Result<f64> {
    let volume = hot(lab, server, "volumes")?;
    let bytes = volume["resident_bytes"].as_u64().context("no resident_bytes")?;
    Ok(to_f64(bytes) / to_f64(MIB))
}

/// Pages that reads of the hot volume hit, and all that they touched.
fn read_hits(lab: &Lab, server: &Server) -> Result<(f64, f64)> {
    let volume = hot(lab, server, "stats")?;
    let number = |name: &str| volume[name].as_f64().with_context(|| format!("no {name}"));
    Ok((number("read_hits")?, number("read_pages")?))
}

fn judge(looks: &[Look], claims: &mut Claims) {
    let most = |of: fn(&Look) -> f64| looks.iter().map(of).fold(0.0, f64::max);
    let least = |of: fn(&Look) -> f64| looks.iter().map(of).fold(f64::MAX, f64::min);
    let leaking = looks.get(CALM_STEPS..).unwrap_or_default();
    let kernel_least = leaking.iter().map(|look| look.kernel_mib).fold(f64::MAX, f64::min);
    let kernel_most = most(|look| look.kernel_mib);
    claims.add(
        "a leak squeezes the kernel's file cache to a tenth or less",
        format!("from {kernel_most:.0} to {kernel_least:.1} MiB"),
        kernel_least <= kernel_most / 10.0,
    );
    let hot = least(|look| look.hot_mib);
    claims.add(
        format!("meanwhile the {HOT_MIB} MiB above their floor stay, and every read hits"),
        format!("{hot:.1} MiB at least, {:.2} % hits at least", 100.0 * least(|look| look.hits)),
        hot >= to_f64(HOT_MIB) && least(|look| look.hits) >= 1.0,
    );
}

/// The run, for the chart.
fn write(root: &Path, looks: &[Look]) -> Result<()> {
    let series = |name: &str, unit: &str, of: fn(&Look) -> f64| {
        let values: Vec<f64> =
            looks.iter().map(|look| (of(look) * 100.0).round() / 100.0).collect();
        json!({ "series": name, "unit": unit, "values": values })
    };
    let record = Record {
        what: "a leak, the kernel's file cache, and a volume with a floor, in one memory group",
        started: &now()?,
        software: software(root),
        settings: json!({ "limit_mib": LIMIT_MIB, "memory": MEMORY, "min": MIN }),
        samples: vec![
            series("time", "s", |look| look.at),
            series("file cache of the kernel", "MiB", |look| look.kernel_mib),
            series("the process that leaks", "MiB", |look| look.others_mib),
            series("volume with a floor", "MiB", |look| look.hot_mib),
        ],
        comparisons: Vec::new(),
    };
    record.write_to(root, Path::new(RECORD))
}
