//! The same cache both ways: traces replayed to `larder serve`, and simulated by `larder sim`.
//!
//! With one client and write-through nothing depends on time: the counters must be equal. With
//! eight clients and write-back the hit ratios may differ by [`APART_POINTS`]. Then it matters
//! which requests are under way together, for who asks for a page that is still coming has missed.
//! So the store is one whose time the machine's own delays do not blur, a server that answers after
//! [`STORE_TIME`], and the simulation is told how long a miss took as the server measured it, and
//! such a time between an answer and the next request of the same client that it takes as long as
//! the replay did: what clients, sockets and threads take. And curves, which see single references
//! only, must foretell the hit ratio of the server at ten sizes.
//!
//! Nothing is read ahead, here and there: whether what is read ahead has come when its reader does,
//! and what had to go for it, depends on the time that the store takes, in all three.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::default_policy::traces;
use super::{Claims, Lab, to_f64};
use crate::server::{Peer, Server};
use crate::{image, run};

/// Counters that must be equal with one client.
const EQUAL: [&str; 8] = [
    "read_hit_pages",
    "read_partial_hit_pages",
    "read_miss_pages",
    "read_bypass_pages",
    "write_partial_pages",
    "write_through_pages",
    "evicted_pages",
    "filled_blocks",
];
/// How far hit ratios with eight clients may be apart, in per cent of references.
const APART_POINTS: f64 = 0.5;
/// How far the prediction of a curve may be off: on average, and at the worst size.
const MEAN_POINTS: f64 = 1.0;
const WORST_POINTS: f64 = 3.0;
/// Memory of the cache where only one size is tried.
const MEMORY: &str = "24MiB";
/// What each read and write of the store takes with eight clients.
const STORE_TIME: Duration = Duration::from_millis(4);
/// The longest time between an answer and the next request that is tried, and how near the time of
/// the simulation must come to that of the replay.
const THINK_MAX_NS: u64 = 2_000_000;
const TIME_APART: f64 = 0.005;
/// Sizes of the prediction, in MiB of memory.
const SIZES_MIB: [u64; 10] = [8, 10, 12, 14, 16, 20, 28, 40, 56, 80];

/// One trace, and an image that is long enough for it.
struct Case {
    name: &'static str,
    trace: PathBuf,
    image: PathBuf,
    /// Bytes of the image.
    length: u64,
}

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let found = traces(lab);
    if found.is_empty() {
        claims.skip("a trace replayed and simulated", "there are no traces in ../shared/traces");
        return Ok(());
    }
    // The small one alone in the short form.
    let wanted = found.into_iter().filter(|(_, name)| !lab.options.quick || *name == "TPC-C");
    for (trace, name) in wanted {
        let (trace, end) = one_volume(lab, &trace, name)?;
        let image = image::sparse(&lab.file(&format!("{name}.img")), end)?;
        let case = Case { name, trace, image, length: end };
        for policy in lab.either(&["lru", "s3fifo", "arc"][..], &["s3fifo"][..]) {
            equal(lab, &case, policy, claims)?;
        }
        near(lab, &case, claims)?;
        // Reads alone: what a write leaves of a page is beyond a curve of references.
        if matches!(name, "OLTP" | "P3") {
            for policy in ["lru", "s3fifo"] {
                foretold(lab, &case, policy, claims)?;
            }
        }
    }
    Ok(())
}

/// The trace, or what it has of its busiest volume, and where that must end at least, rounded up as
/// the simulator does.
fn one_volume(lab: &Lab, trace: &Path, name: &str) -> Result<(PathBuf, u64)> {
    let mut command = Command::new(&lab.binary);
    let summary = json(command.args(["trace", "summary", "--json"]).arg(trace))?;
    let volumes = summary["volumes"].as_array().context("the summary has no volumes")?;
    let asked = |volume: &&Value| {
        let of = |op: &str| volume["ops"][op]["requests"].as_u64().unwrap_or(0);
        of("read") + of("write")
    };
    let busiest = volumes.iter().max_by_key(asked).context("the trace has no volume")?;
    let end = busiest["end_bytes"].as_u64().context("the volume has no end")?;
    let end = end.next_multiple_of(1 << 20);
    if volumes.len() == 1 {
        return Ok((trace.to_path_buf(), end));
    }
    let called = busiest["volume"].as_str().context("the volume has no name")?;
    let only = lab.file(&format!("{name}.ltr"));
    let mut command = Command::new(&lab.binary);
    command.args(["trace", "filter"]).arg(trace).arg(&only).args(["--volume", called]);
    run::text(&mut command)?;
    Ok((only, end))
}

fn json(command: &mut Command) -> Result<Value> {
    let text = run::text(command)?;
    serde_json::from_str(&text).context("parse what larder printed")
}

/// What a server did with a trace that was replayed to it.
struct Served {
    counters: Value,
    /// Its memory.
    pages: u64,
    /// Mean nanoseconds of a read of the store.
    miss: f64,
    /// Nanoseconds of the whole replay.
    duration: f64,
}

/// Mean nanoseconds of a read that the store was asked for: waiting for it, and in it.
fn miss_time(volume: &Value) -> f64 {
    let mean = |name: &str| volume["latencies"][name]["mean"].as_f64().unwrap_or(0.0);
    mean("store_read_queue_ns") + mean("store_read_service_ns")
}

/// Replays the trace to a server with `store` behind it.
fn served(
    lab: &Lab,
    (case, store): (&Case, &Path),
    options: &str,
    replay: &[&str],
) -> Result<Served> {
    let counters = lab.file("counters.json");
    let options = format!("{options} --read-ahead off --counters {}", counters.display());
    let server = lab.serve(store, &options)?;
    let mut command = Command::new(&lab.binary);
    command.args(["trace", "replay"]).arg(&case.trace).args(["--to", &server.uri(), "--json"]);
    let replayed = json(command.args(replay))?;
    server.stop_clean()?;
    let text = std::fs::read_to_string(&counters).context("read the counters of the server")?;
    let whole: Value = serde_json::from_str(&text).context("parse the counters of the server")?;
    let volume = &whole["volumes"][0];
    let memory = volume["gauges"]["memory_bytes"].as_u64().context("no gauge memory_bytes")?;
    Ok(Served {
        counters: volume["counters"].clone(),
        pages: memory / 4096,
        miss: miss_time(volume),
        duration: replayed["duration_ns"].as_f64().context("a replay takes time")?,
    })
}

/// The first row of a simulation.
fn simulated(lab: &Lab, case: &Case, pages: u64, options: &[&str]) -> Result<Value> {
    let size = format!("{pages}p");
    let mut command = Command::new(&lab.binary);
    command.arg("sim").arg(&case.trace).args(["--page-size", "4KiB", "--format", "json"]);
    let whole = json(command.args(["--size", &size]).args(options))?;
    Ok(whole["rows"][0].clone())
}

fn number(from: &Value, name: &str) -> Result<u64> {
    from[name].as_u64().with_context(|| format!("no number {name}"))
}

/// A counter for each read reference, in per cent.
fn per_read(counters: &Value, counter: &str) -> Result<f64> {
    let names =
        ["read_hit_pages", "read_partial_hit_pages", "read_miss_pages", "read_bypass_pages"];
    let mut all = 0;
    for name in names {
        all += number(counters, name)?;
    }
    Ok(100.0 * to_f64(number(counters, counter)?) / to_f64(all.max(1)))
}

/// Read references that hit, of all, in per cent.
fn hits(counters: &Value) -> Result<f64> {
    per_read(counters, "read_hit_pages")
}

/// Blocks read from the store into the cache, of all read references, in per cent.
fn fetched(counters: &Value) -> Result<f64> {
    per_read(counters, "filled_blocks")
}

fn equal(lab: &Lab, case: &Case, policy: &str, claims: &mut Claims) -> Result<()> {
    let options = format!("--memory {MEMORY} --policy {policy} --write-mode through");
    let Served { counters, pages, .. } = served(lab, (case, &case.image), &options, &[])?;
    let whole = ["--level", "whole", "--policy", policy, "--write-mode", "through"];
    let more = ["--read-ahead", "off", "--store", "instant"];
    let row = simulated(lab, case, pages, &[&whole[..], &more].concat())?;
    let mut apart = Vec::new();
    for name in EQUAL {
        let (ours, theirs) = (number(&counters, name)?, number(&row, name)?);
        if ours != theirs {
            apart.push(format!("{name} {ours} and {theirs}"));
        }
    }
    let figure = format!(
        "{} hits, {} misses, {} evictions{}{}",
        counters["read_hit_pages"],
        counters["read_miss_pages"],
        counters["evicted_pages"],
        if apart.is_empty() { "" } else { "; apart: " },
        apart.join(", ")
    );
    claims.against(
        format!("{}, {policy}: replayed by one client, write-through: equal counters", case.name),
        figure,
        format!("simulated: {} hits", row["read_hit_pages"]),
        apart.is_empty(),
    );
    Ok(())
}

fn near(lab: &Lab, case: &Case, claims: &mut Claims) -> Result<()> {
    let options = format!("--memory {MEMORY} --policy s3fifo --write-mode back");
    let slow = Peer::NbdkitSlow(case.length, STORE_TIME);
    let store = Server::start(&slow, lab.dir())?;
    let uri = PathBuf::from(store.uri());
    let served = served(lab, (case, &uri), &options, &["--connections", "8"])?;
    store.stop()?;
    let Served { counters, pages, .. } = &served;
    let store = format!("fixed:{:.0}ns", served.miss);
    let whole = ["--level", "whole", "--policy", "s3fifo", "--write-mode", "back"];
    let more = ["--read-ahead", "off", "--clients", "8", "--store", &store];
    let (think, row) = as_long(served.duration, |think| {
        simulated(lab, case, *pages, &[&whole[..], &more, &["--think", think]].concat())
    })?;
    // A reference to a page that another request is fetching counts as a miss, but reads nothing:
    // how many there are depends on the moment of each request.
    let (real, foretold) = (fetched(counters)?, fetched(&row)?);
    claims.against(
        format!(
            "{}: eight clients, write-back: pages fetched within {APART_POINTS} points",
            case.name
        ),
        format!("{real:.2} % of read references"),
        format!("simulated: {foretold:.2} %"),
        (real - foretold).abs() <= APART_POINTS,
    );
    let (real, foretold) = (hits(counters)?, hits(&row)?);
    claims.against(
        format!("{}: eight clients, write-back: hits within {APART_POINTS} points", case.name),
        format!("{real:.2} % of reads hit; store {store}, {think} to think"),
        format!("simulated: {foretold:.2} %"),
        (real - foretold).abs() <= APART_POINTS,
    );
    Ok(())
}

/// The simulation that takes as long as `duration` nanoseconds, and its time from an answer to the
/// next request: the longer that is, the longer it takes.
fn as_long(duration: f64, simulate: impl Fn(&str) -> Result<Value>) -> Result<(String, Value)> {
    let (mut least, mut most) = (0_u64, THINK_MAX_NS);
    loop {
        let think = least.midpoint(most);
        let said = format!("{think}ns");
        let row = simulate(&said)?;
        let took = row["elapsed_ns"].as_f64().context("a simulation takes time")?;
        if (took / duration - 1.0).abs() <= TIME_APART || most - least <= 1 {
            return Ok((said, row));
        }
        if took < duration { least = think } else { most = think }
    }
}

/// Curves of references against the server.
fn foretold(lab: &Lab, case: &Case, policy: &str, claims: &mut Claims) -> Result<()> {
    let mut real = Vec::new();
    for mib in SIZES_MIB {
        let options = format!("--memory {mib}MiB --policy {policy} --write-mode through");
        let Served { counters, pages, .. } = served(lab, (case, &case.image), &options, &[])?;
        real.push((pages, hits(&counters)?));
    }
    let curves: [(&str, &[&str]); 2] = [("every reference", &[]), ("sampled", &["--curve"])];
    for (how, options) in curves {
        let mut errors = Vec::new();
        for &(pages, hit) in &real {
            let row = simulated(lab, case, pages, &[&["--policy", policy][..], options].concat())?;
            let Some(ratio) = row["hit_ratio"].as_f64() else { bail!("no hit ratio in a curve") };
            errors.push((100.0 * ratio - hit).abs());
        }
        let mean = errors.iter().sum::<f64>() / to_f64(errors.len() as u64);
        let worst = errors.iter().copied().fold(0.0, f64::max);
        claims.against(
            format!(
                "{}, {policy}: curve of {how} against the server at {} sizes: mean {MEAN_POINTS}, \
                 worst {WORST_POINTS} points",
                case.name,
                real.len()
            ),
            format!("mean {mean:.2}, worst {worst:.2} points"),
            format!(
                "{:.1} % to {:.1} % of references hit",
                real.iter().map(|one| one.1).fold(100.0, f64::min),
                real.iter().map(|one| one.1).fold(0.0, f64::max)
            ),
            mean <= MEAN_POINTS && worst <= WORST_POINTS,
        );
    }
    Ok(())
}
