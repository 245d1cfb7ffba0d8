//! `larder watch` is exact, costs little and loses nothing; `larder size --live` predicts.
//!
//! The cost is measured by a loop of reads, in pairs of batches without and with `larder watch`.
//! The floor is measured in the same way: the kernel only calls a program, or only records an
//! event.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use rustix::process::Signal;

use super::long_tests;
use super::prelude::*;
use crate::cleanup::Cleanup;
use crate::daemon::Daemon;
use crate::memory_group::MemoryGroup;
use crate::record::Record;
use crate::stats::Spread;

/// A value of `--bpf`, the share by which it may slow down a read, and the claim.
type Mode = (&'static str, f64, &'static str);
const MODES: [Mode; 2] = [
    ("on", 0.12, "a read of 4 KiB from memory, at most 12 % slower if the kernel counts"),
    ("off", 0.20, "a read of 4 KiB from memory, at most 20 % slower if each is recorded"),
];
/// The minimum number of lookups per second, none of which may be lost.
const PER_S_MIN: f64 = 500_000.0;
/// The maximum mean error of a prediction, in percentage points.
const POINTS_MAX: f64 = 3.0;
/// The number of pages of the file that is read from memory.
const PAGES: u64 = 16_384;
const PAGE_BYTES: u64 = 4096;
/// Reads of a batch, and batches of a measurement: a fifth of a second, since the speed of the
/// machine changes over longer times.
const BATCH: u64 = 50_000;
const BATCHES: u64 = 5;
/// The number of pairs for each measurement of the floor.
const FLOOR_EVERY: u64 = 4;

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(run::unmet_requirement(&[]))?;
    let statement = "hits, misses, writers: by file and process, each comparison within 1 %";
    long_tests::add_test_claim(env, claims, statement, ("larder", "watch::", "shown: "), &[]);
    let settings = json!({ "reads of a batch": BATCH, "batches": BATCHES, "pages": PAGES });
    let statement = "a read of 4 KiB from memory, without and with larder watch, in pairs";
    let mut record = Record::new(&env.root, statement, &[], &settings)?;
    for mode @ (name, bound, _) in MODES {
        let Some(pairs) = cost(env, claims, mode)? else { continue };
        let read = format!("watched with --bpf {name}");
        for (statement, [off, on]) in [read.as_str(), floor_name(name)].into_iter().zip(&pairs) {
            record.series(&format!("without: {statement}"), "ns", off, 0);
            record.series(&format!("with: {statement}"), "ns", on, 0);
        }
        // The share of its speed that a read keeps; it holds if it is above the required one.
        let ratio = Spread::of_ratios(&pairs[0][0], &pairs[0][1]);
        let sides = [format!("with: {read}"), format!("without: {read}")];
        record.comparison(&read, [&sides[0], &sides[1]], ratio, 1.0 / (1.0 + bound));
    }
    if !env.options.quick {
        outln!("   recorded in {}", record.write_as("watch")?);
    }
    for (statement, test) in [
        ("after kill -9, the next start removes its instance", "watch::nothing_is_left_behind"),
        ("without root it names what is missing, and shows the rest", "watch::what_is_missing"),
    ] {
        long_tests::add_test_claim(
            env,
            claims,
            statement,
            ("larder", test, long_tests::RESULT),
            &[],
        );
    }
    Ok(())
}

/// Starts a command and waits until it prints "watching ".
fn start(env: &Env, words: &[&str]) -> Result<Daemon> {
    let larder = &env.larder;
    let mut daemon = Daemon::start("larder", env.dir(), |_| cmd!("{larder} {words...}"))?;
    daemon.wait_until(|daemon| daemon.stderr().contains("watching "))?;
    Ok(daemon)
}

/// Starts `larder watch` with its result in `watch.json`.
pub(super) fn watch(env: &Env, words: &[&str]) -> Result<Daemon> {
    let result = env.file("watch.json");
    let arguments = ["watch", "--rows", "100000", "--for", "5m", "-o", &result.to_string_lossy()];
    start(env, &[&arguments[..], words].concat())
}

/// Ends `larder watch` like Ctrl-C; returns its result.
pub(super) fn result(env: &Env, watching: Daemon) -> Result<Value> {
    watching.end_with_success(Signal::INT)?;
    record::read(&env.file("watch.json"))
}

/// Runs batches of reads from memory; returns the shortest time of one read, in nanoseconds.
fn batches(file: &File) -> Result<f64> {
    let (mut buffer, mut best, mut page) = (vec![0; 4096], f64::INFINITY, 1_u64);
    for _ in 0..BATCHES {
        let begun = Instant::now();
        for _ in 0..BATCH {
            page = page.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let place = (page >> 33) % PAGES;
            file.read_exact_at(&mut buffer, place * PAGE_BYTES).context("read")?;
        }
        best = best.min(begun.elapsed().as_secs_f64() * 1e9 / to_f64(BATCH));
    }
    Ok(best)
}

/// Enables or disables the recording of lookups without a reader; `$1` is `on` or `off`.
const RECORD: &str = "
mount -t tracefs none /sys/kernel/tracing 2>/dev/null
own=/sys/kernel/tracing/instances/larder-floor
if [ \"$1\" = on ]; then
  mkdir \"$own\" && echo mono > \"$own/trace_clock\" &&
    echo 1 > \"$own/events/filemap/mm_filemap_get_pages/enable\"
else
  echo 0 > \"$own/events/enable\"; rmdir \"$own\"
fi";

fn floor_name(mode: &str) -> &'static str {
    if mode == "on" { "another file watched" } else { "recorded without a reader" }
}

/// Starts the minimum that slows down reads, until both values are dropped: the kernel calls a
/// program for a file that is not watched, or records each lookup without a reader.
fn floor(env: &Env, mode: &str) -> Result<(Option<Daemon>, Option<Cleanup>)> {
    if mode == "on" {
        let other = env.file("other");
        std::fs::write(&other, "no program reads it").context("make a file")?;
        return Ok((Some(watch(env, &["--bpf", mode, &other.to_string_lossy()])?), None));
    }
    let off = Cleanup::start("unshare -m sh -c \"$1\" sh off", &[RECORD])?;
    stdout_of(cmd!("unshare -m sh -c {RECORD} sh on")).context("enable the event")?;
    Ok((None, Some(off)))
}

/// Nanoseconds per read without and with the overhead, in the order of the pairs.
type Pairs = [Vec<f64>; 2];

/// Returns the added time in percent: median, minimum and maximum of the pairs.
fn added([off, on]: &Pairs) -> Spread {
    Spread::of(&on.iter().zip(off).map(|(on, off)| 100.0 * (on / off - 1.0)).collect::<Vec<_>>())
}

/// Measures one mode: reads without and with it, and the same for the floor.
fn cost(env: &Env, claims: &mut Claims, (mode, bound, claim): Mode) -> Result<Option<[Pairs; 2]>> {
    let larder = &env.larder;
    let tried = capture(cmd!(300, "{larder} watch --bpf {mode} --for 100ms"))?;
    if mode == "on" && !tried.ok() {
        claims.skip(claim, tried.stderr.trim());
        return Ok(None);
    }
    let path = env.file("hot");
    let name = path.display().to_string();
    std::fs::write(&path, vec![7; usize::try_from(PAGES * PAGE_BYTES)?]).context("make a file")?;
    let file = File::open(&path).context("open the file")?;
    batches(&file)?;
    let [mut pairs, mut floors] = [Pairs::default(), Pairs::default()];
    let (mut lost, mut looked_up, mut seconds, mut cpu, mut memory) = (0.0, 0.0, 0.0, 0.0, 0.0);
    // The speed of the machine varies by the second, so the batches before and after count.
    let mut before = batches(&file)?;
    let mut pair = |pairs: &mut Pairs, on: f64| -> Result<()> {
        let after = batches(&file)?;
        let off = f64::midpoint(before, after);
        outln!("   {off:.0} ns without, {on:.0} ns with");
        pairs[0].push(off);
        pairs[1].push(on);
        before = after;
        Ok(())
    };
    // The first batch touches the buffers for the first time, and lets the reader settle.
    let settled = || batches(&file).and_then(|_| batches(&file));
    let rounds = env.choose(96, 6);
    for round in 0..rounds {
        if round % FLOOR_EVERY == 0 {
            let floor = floor(env, mode)?;
            let on = settled()?;
            drop(floor);
            pair(&mut floors, on)?;
        }
        let watching = watch(env, &["--bpf", mode])?;
        let begun = Instant::now();
        let on = settled()?;
        seconds += begun.elapsed().as_secs_f64();
        let found = result(env, watching)?;
        lost += number(&found, "/total/lost_events")?;
        cpu += number(&found, "own_cpu_ns")?;
        memory = number(&found, "own_memory_bytes")?.max(memory);
        let rows = found["total"]["rows"].as_array().context("no rows")?;
        let own = rows.iter().filter(|row| row["file"] == name.as_str());
        looked_up += own.filter_map(|row| row["read_pages"].as_f64()).sum::<f64>();
        pair(&mut pairs, on)?;
    }
    let figure = format!(
        "{:+.1} %, {} pairs; {}: {:+.1} %; its own processor time {:.0} ns a lookup, {:.0} MiB",
        added(&pairs),
        pairs[0].len(),
        floor_name(mode),
        added(&floors),
        cpu / f64::max(looked_up, 1.0),
        memory / to_f64(MIB)
    );
    claims.add(claim, figure, added(&pairs).median <= 100.0 * bound);
    let (expected, rate) = (to_f64(2 * BATCH * BATCHES * rounds), looked_up / seconds);
    let is_all = lost <= 0.0 && (looked_up - expected).abs() < 0.5;
    claims.add(
        format!("500,000 lookups per second and more, none lost (--bpf {mode})"),
        format!("{rate:.0}/s, {lost} lost, {looked_up} of {expected} counted"),
        is_all && rate >= PER_S_MIN,
    );
    Ok(Some([pairs, floors]))
}

/// Compares the curve of a recorded run with the same run in memory cgroups of six sizes.
pub(super) fn size_live(env: &Env, claims: &mut Claims) -> Result<()> {
    require(MemoryGroup::unavailable_reason())?;
    let (path, trace, mib) = (env.file("skewed"), env.file("skewed.ltr"), env.choose(256, 128));
    std::fs::write(&path, vec![3; mib << 20]).context("make a file")?;
    let file = File::open(&path).context("open the file")?;
    file.sync_all().context("sync the file")?;
    let [path_text, trace_text] = [&path, &trace].map(|path| path.to_string_lossy());
    let recorder = start(env, &["trace", "record", &trace_text, &path_text])?;
    stdout_of(load(env, &path, mib))?;
    recorder.end_with_success(Signal::INT)?;
    let mut points = Vec::new();
    for size in env.choose([24, 40, 64, 96, 144, 208], [16, 24, 36, 52, 72, 100]) {
        let group = MemoryGroup::with_limit(size)?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
            .context("drop the file from the page cache")?;
        let watching = watch(env, &[&path_text])?;
        stdout_of(group.wrap(&load(env, &path, mib)))?;
        let held = group.bytes("cache")?;
        let found = result(env, watching)?;
        let pages = |name: &str| number(&found, &format!("/total/sum/{name}"));
        let measured = pages("hit_pages")? / pages("read_pages")?.max(1.0);
        let (larder, count) = (&env.larder, (held / PAGE_BYTES).max(1).to_string());
        let arguments = ["--level", "replacement", "--policy", "linux", "--json"];
        let row = json_of(cmd!(300, "{larder} sim {trace} {arguments...} --size {count}p"))?;
        let predicted = number(&row, "/rows/0/hit_ratio")?;
        points.push(100.0 * (predicted - measured).abs());
        outln!(
            "   {size} MiB, {} MiB of them cache: predicted {:.1} %, measured {:.1} %",
            held >> 20,
            100.0 * predicted,
            100.0 * measured
        );
    }
    let mean = crate::stats::mean_and_max(&points).0;
    let figure = format!("{mean:.2} points off on the average, six sizes");
    claims.add("the curve of a live recording, against memory groups", figure, mean <= POINTS_MAX);
    Ok(())
}

/// Returns the command for skewed reads, which are the same each time. It ends after a number of
/// requests, not after the length of the file.
fn load(env: &Env, path: &Path, mib: usize) -> Command {
    let requests = env.choose(400_000_u64, 120_000);
    let line = format!(
        "--rw=randread --bs=4k --ioengine=psync --thread --random_distribution=zipf:0.9 \
         --randrepeat=1 --randseed=7 --norandommap --invalidate=0 --fadvise_hint=random \
         --size={mib}m --number_ios={requests} --io_size={}",
        requests * PAGE_BYTES
    );
    let arguments = line.split_whitespace();
    cmd!(300, "fio --name=skewed {arguments...} --filename={path}")
}
