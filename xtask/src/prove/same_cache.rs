//! Equality of server and simulator: traces replayed to `larder serve`, and simulated by
//! `larder sim`.
//!
//! With one client and write-through nothing depends on time: the counters must be equal. With
//! eight clients and write-back the hit ratios may differ by [`APART_POINTS`]; the store takes
//! [`STORE_TIME`] per request, and the simulation uses the measured miss time and think time.
//! Curves must predict the hit ratio of the server at ten sizes. There is no read-ahead, since its
//! effect depends on the time of the store.

use super::policies::traces;
use super::prelude::*;
use crate::stats::{Spread, mean_and_max};

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
/// The maximum difference of hit ratios with eight clients, in percentage points of references.
const APART_POINTS: f64 = 0.5;
/// The maximum error of the prediction of a curve: on average, and at the worst size.
const MEAN_POINTS: f64 = 1.0;
const WORST_POINTS: f64 = 3.0;
/// The memory of the cache where only one size is tested.
const MEMORY: &str = "24MiB";
/// The service time of the store with eight clients.
const STORE_TIME: Duration = Duration::from_millis(4);
/// The maximum think time (between a reply and the next request), and the maximum relative
/// difference between the times of the simulation and of the replay.
const THINK_MAX_NS: u64 = 2_000_000;
const TIME_APART: f64 = 0.005;
/// The sizes of the prediction, in MiB of memory.
const SIZES_MIB: [u64; 10] = [8, 10, 12, 14, 16, 20, 28, 40, 56, 80];

/// A trace of one volume, and an image of sufficient length.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) trace: PathBuf,
    pub(super) image: PathBuf,
    pub(super) image_bytes: u64,
}

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let found = traces(env);
    require(found.is_empty().then(|| "there are no traces in ../shared/traces".into()))?;
    // Only the small trace in the short form.
    let wanted = found.into_iter().filter(|(_, name)| !env.options.quick || *name == "TPC-C");
    for (trace, name) in wanted {
        let (trace, image_bytes) = one_volume(env, &trace, name)?;
        let image = image::create_sparse(&env.file(&format!("{name}.img")), image_bytes)?;
        let case = Case { name, trace, image, image_bytes };
        for policy in env.choose(&["lru", "s3fifo", "arc"][..], &["s3fifo"][..]) {
            check_equal(env, &case, policy, claims)?;
        }
        check_near(env, &case, claims)?;
        // Only traces of reads: the effect of writes on a page is beyond a curve of references.
        if matches!(name, "OLTP" | "P3") {
            for policy in ["lru", "s3fifo"] {
                check_predicted(env, &case, policy, claims)?;
            }
        }
    }
    Ok(())
}

/// Returns the trace, or the part of its busiest volume, and the minimum length of that volume,
/// rounded up as in the simulator.
pub(super) fn one_volume(env: &Env, trace: &Path, name: &str) -> Result<(PathBuf, u64)> {
    let larder = &env.larder;
    let summary = json_of(cmd!("{larder} trace summary --json {trace}"))?;
    let volumes = summary["volumes"].as_array().context("the summary has no volumes")?;
    let requests = |volume: &&Value| {
        let of = |op: &str| volume["ops"][op]["requests"].as_u64().unwrap_or(0);
        of("read") + of("write")
    };
    let busiest = volumes.iter().max_by_key(requests).context("the trace has no volume")?;
    let end = busiest["end_bytes"].as_u64().context("the volume has no end")?;
    let end = end.next_multiple_of(1 << 20);
    if volumes.len() == 1 {
        return Ok((trace.to_path_buf(), end));
    }
    let volume = busiest["volume"].as_str().context("the volume has no name")?;
    let only = env.file(&format!("{name}.ltr"));
    stdout_of(cmd!("{larder} trace filter {trace} {only} --volume {volume}"))?;
    Ok((only, end))
}

/// The result of a replay to a server.
pub(super) struct ReplayResult {
    counters: Value,
    /// The number of pages in the memory of the server.
    pub(super) pages: u64,
    /// The mean time of a store read in nanoseconds: queue time plus service time.
    miss_ns: f64,
    /// The duration of the whole replay in nanoseconds.
    pub(super) duration_ns: f64,
}

/// Replays the trace to a server with `store` as its backing store.
pub(super) fn replay_to_server(
    env: &Env,
    (case, store): (&Case, &Path),
    options: &str,
    replay: &[&str],
) -> Result<ReplayResult> {
    let counters = env.file("counters.json");
    let options = format!("{options} --read-ahead off --counters {}", counters.display());
    let server = env.serve(store, &options)?;
    let (larder, trace, uri) = (&env.larder, &case.trace, server.uri());
    let replayed = json_of(cmd!("{larder} trace replay {trace} --to {uri} --json {replay...}"))?;
    server.stop_clean()?;
    let whole = record::read(&counters)?;
    let volume = &whole["volumes"][0];
    let memory = volume["gauges"]["memory_bytes"].as_u64().context("no gauge memory_bytes")?;
    let mean = |name: &str| volume["latencies"][name]["mean"].as_f64().unwrap_or(0.0);
    Ok(ReplayResult {
        counters: volume["counters"].clone(),
        pages: memory / 4096,
        miss_ns: mean("store_read_queue_ns") + mean("store_read_service_ns"),
        duration_ns: number(&replayed, "duration_ns")?,
    })
}

/// Returns the first row of a simulation.
pub(super) fn simulate(env: &Env, case: &Case, pages: u64, options: &str) -> Result<Value> {
    let (larder, trace, options) = (&env.larder, &case.trace, options.split_whitespace());
    let (pages, arguments) = (pages.to_string(), ["--page-size", "4KiB", "--format", "json"]);
    let whole = json_of(cmd!("{larder} sim {trace} {arguments...} --size {pages}p {options...}"))?;
    Ok(whole["rows"][0].clone())
}

/// Returns a counter relative to the read references, in percent.
fn per_read(counters: &Value, counter: &str) -> Result<f64> {
    let all: f64 = EQUAL[..4].iter().map(|name| number(counters, name)).sum::<Result<_>>()?;
    Ok(100.0 * number(counters, counter)? / all.max(1.0))
}

fn check_equal(env: &Env, case: &Case, policy: &str, claims: &mut Claims) -> Result<()> {
    let options = format!("--policy {policy} --write-mode through");
    let served =
        replay_to_server(env, (case, &case.image), &format!("--memory {MEMORY} {options}"), &[])?;
    let whole = format!("--level whole --read-ahead off --store instant {options}");
    let row = simulate(env, case, served.pages, &whole)?;
    let mut differences = Vec::new();
    for name in EQUAL {
        let (ours, theirs) = (number(&served.counters, name)?, number(&row, name)?);
        if (ours - theirs).abs() > 0.0 {
            differences.push(format!("; different: {name} {ours} and {theirs}"));
        }
    }
    let [hits, misses, evictions] =
        ["read_hit_pages", "read_miss_pages", "evicted_pages"].map(|it| &served.counters[it]);
    claims.add_with_peer(
        format!("{}, {policy}: replayed by one client, write-through: equal counters", case.name),
        format!("{hits} hits, {misses} misses, {evictions} evictions{}", differences.concat()),
        format!("simulated: {} hits", row["read_hit_pages"]),
        differences.is_empty(),
    );
    Ok(())
}

fn check_near(env: &Env, case: &Case, claims: &mut Claims) -> Result<()> {
    let options = "--policy s3fifo --write-mode back";
    let store = Peer::nbdkit_slow(case.image_bytes, STORE_TIME, 16).start(env.dir())?;
    let (uri, line) = (PathBuf::from(store.uri()), format!("--memory {MEMORY} {options}"));
    let served = replay_to_server(env, (case, &uri), &line, &["--connections", "8"])?;
    store.stop()?;
    let store = format!("fixed:{:.0}ns", served.miss_ns);
    let whole = format!("--level whole --read-ahead off --clients 8 --store {store} {options}");
    // A longer think time makes the simulated replay longer: bisection finds the time that matches
    // the replay.
    let (mut least, mut most) = (0_u64, THINK_MAX_NS);
    let (think, row) = loop {
        let think = least.midpoint(most);
        let row = simulate(env, case, served.pages, &format!("{whole} --think {think}ns"))?;
        let took = number(&row, "elapsed_ns")?;
        if (took / served.duration_ns - 1.0).abs() <= TIME_APART || most - least <= 1 {
            break (think, row);
        }
        if took < served.duration_ns { least = think } else { most = think }
    };
    // A reference to a page that another request is filling counts as a miss, but reads nothing;
    // the number of these misses depends on timing.
    for (statement, counter, note) in [
        ("pages fetched", "filled_blocks", String::new()),
        ("hits", "read_hit_pages", format!("; store {store}, think time {think} ns")),
    ] {
        let (real, expected) = (per_read(&served.counters, counter)?, per_read(&row, counter)?);
        let name = case.name;
        claims.add_with_peer(
            format!("{name}: eight clients, write-back: {statement} within {APART_POINTS} points"),
            format!("{real:.2} % of read references{note}"),
            format!("simulated: {expected:.2} %"),
            (real - expected).abs() <= APART_POINTS,
        );
    }
    Ok(())
}

/// Compares the predictions of curves with the server.
fn check_predicted(env: &Env, case: &Case, policy: &str, claims: &mut Claims) -> Result<()> {
    let mut real = Vec::new();
    for mib in SIZES_MIB {
        let options = format!("--memory {mib}MiB --policy {policy} --write-mode through");
        let ReplayResult { counters, pages, .. } =
            replay_to_server(env, (case, &case.image), &options, &[])?;
        real.push((pages, per_read(&counters, "read_hit_pages")?));
    }
    for (kind, options) in [("every reference", ""), ("sampled", "--curve")] {
        let error = |&(pages, hit): &(u64, f64)| -> Result<f64> {
            let row = simulate(env, case, pages, &format!("--policy {policy} {options}"))?;
            Ok((100.0 * number(&row, "hit_ratio")? - hit).abs())
        };
        let (mean, worst) = mean_and_max(&real.iter().map(error).collect::<Result<Vec<_>>>()?);
        let hits = Spread::of(&real.iter().map(|one| one.1).collect::<Vec<_>>());
        claims.add_with_peer(
            format!(
                "{}, {policy}: curve of {kind} against the server at {} sizes: mean {MEAN_POINTS}, \
                 worst {WORST_POINTS} points",
                case.name,
                real.len()
            ),
            format!("mean {mean:.2}, worst {worst:.2} points"),
            format!("{:.1} % to {:.1} % of references hit", hits.min, hits.max),
            mean <= MEAN_POINTS && worst <= WORST_POINTS,
        );
    }
    Ok(())
}
