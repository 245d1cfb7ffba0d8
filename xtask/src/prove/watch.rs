//! `larder watch` says what happened, costs little, loses nothing; `larder size --live` predicts.
//!
//! The exactness is shown by a test of the command, with cachestat(2) right before each read. What
//! it costs is measured by a loop of reads here, in pairs: batches without it, batches with it; and
//! beside it the floor, which is what reading costs where the kernel is asked at all.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::speed::record::{self, Record};
use super::{Claims, Lab, to_f64};
use crate::memory_group::MemoryGroup;
use crate::run;

mod added;
use added::Added;

/// How look-ups are learnt of, as `--bpf` takes it; what reading may become slower by; in words.
const WAYS: [(&str, f64, &str); 2] = [
    ("on", 0.12, "a read of 4 KiB from memory, at most 12 % slower where the kernel counts"),
    ("off", 0.20, "a read of 4 KiB from memory, at most 20 % slower where each is told"),
];
/// Look-ups per second of which none may be lost.
const PER_S_MIN: f64 = 500_000.0;
/// Points that a prediction may be off, on the average.
const POINTS_MAX: f64 = 3.0;
/// Pages of the file that is read from memory.
const PAGES: u64 = 16_384;
const PAGE_BYTES: u64 = 4096;
/// Reads of a batch.
const BATCH: u64 = 50_000;
/// Batches with it, and without: a fifth of a second, since the machine is not the same for long.
const BATCHES: u64 = 5;
/// Pairs for each look at the floor.
const FLOOR_EVERY: u64 = 4;
/// What a command may take.
const LONG_S: u64 = 300;
/// How long a watcher may take to begin.
const BEGIN_MAX: Duration = Duration::from_secs(20);

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    if !run::is_root() {
        claims.skip("what the file cache does", "needs root");
        return Ok(());
    }
    exactness(lab, claims)?;
    let started = record::now()?;
    let (mut samples, mut comparisons) = (Vec::new(), Vec::new());
    for (way, bound, claim) in WAYS {
        let Some((added, floors)) = cost(lab, claims, way, bound, claim)? else { continue };
        let (read, floor) = (format!("watched with --bpf {way}"), Floor::name(way));
        comparisons.push(added.comparison(&read, bound));
        samples.extend(added.series(&read).into_iter().chain(floors.series(floor)));
    }
    if !lab.options.quick {
        let record = Record {
            what: "a read of 4 KiB from memory, without and with larder watch, in pairs",
            started: &started,
            software: json!({ "larder": record::commit(&lab.root) }),
            settings: json!({ "reads of a batch": BATCH, "batches": BATCHES, "pages": PAGES }),
            samples,
            comparisons,
        };
        let path = Path::new("bench-runs/watch.json");
        record.write_to(&lab.root, path)?;
        println!("   {} written", path.display());
    }
    claims.tried("killed with -9, the next start removes the instance", || killed(lab));
    claims.tried("without root it says what is missing, and shows the rest", || refused(lab));
    Ok(())
}

/// The test of the command says what it has shown.
fn exactness(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let mut cargo = run::cargo(&lab.root);
    // The test only starts and checks; what it starts is the binary that is to be proved.
    // As the tests are built anyway: of one package alone all would be built anew.
    cargo.args(["test", "--workspace", "--test", "watch"]);
    cargo.args(["--", "--nocapture", "--test-threads", "1"]).env("LARDER_BINARY", &lab.binary);
    if !lab.options.quick {
        cargo.env("LARDER_WATCH_FULL", "1");
    }
    let out = run::keep(&mut cargo)?;
    // The first line of a test stands behind its name.
    let shown: Vec<&str> =
        out.stdout.lines().filter_map(|line| Some(line.split_once("shown: ")?.1)).collect();
    for line in &shown {
        println!("   {line}");
    }
    if !out.ok() {
        println!("{}\n{}", out.stdout, out.stderr);
    }
    for line in out.stdout.lines().filter(|line| line.starts_with("skipped: ")) {
        claims.skip("hits and misses", line.trim_start_matches("skipped: "));
    }
    let figure = format!("{} comparisons, each within 1 %", shown.len());
    claims.add("hits, misses, writers: by file and process", figure, out.ok() && !shown.is_empty());
    Ok(())
}

/// A command that watches, until dropped.
struct Watching {
    child: Child,
    result: PathBuf,
}

impl Watching {
    fn start(lab: &Lab, words: &[&str]) -> Result<Self> {
        let result = lab.file("watch.json");
        let said = lab.file("watch.err");
        let child = Command::new(&lab.binary)
            .args(["watch", "--rows", "1000", "--for", "5m"])
            .args(words)
            .arg("-o")
            .arg(&result)
            .stdout(Stdio::null())
            .stderr(File::create(&said).context("make a file for what it says")?)
            .spawn()
            .context("start larder watch")?;
        let begun = Instant::now();
        while !std::fs::read_to_string(&said)?.contains("watching ") {
            ensure!(begun.elapsed() < BEGIN_MAX, "it does not begin");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Self { child, result })
    }

    /// Ends it as Ctrl-C does; what it found.
    fn end(mut self) -> Result<Value> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).context("end it")?;
        ensure!(self.child.wait().context("wait for it")?.success(), "larder watch failed");
        let text = std::fs::read_to_string(&self.result).context("read what it found")?;
        serde_json::from_str(&text).context("parse what it found")
    }
}

/// Batches of reads from memory; the shortest time of one read, in nanoseconds.
fn batches(file: &File, count: u64) -> Result<f64> {
    let mut buffer = vec![0; 4096];
    let mut best = f64::INFINITY;
    let mut page = 1_u64;
    for _ in 0..count {
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

/// What reading becomes slower by at the least, however little is done then; until dropped.
enum Floor {
    /// The kernel calls a program of ours, for a file that is not watched.
    Called(Watching),
    /// It records each look-up for nobody.
    Recorded(Child),
}

/// Records look-ups until the end of its input.
const RECORD: &str = "
mount -t tracefs none /sys/kernel/tracing 2>/dev/null
own=/sys/kernel/tracing/instances/larder-floor-$$
mkdir \"$own\" && echo mono > \"$own/trace_clock\" &&
  echo 1 > \"$own/events/filemap/mm_filemap_get_pages/enable\" && echo records
read -r end
echo 0 > \"$own/events/enable\"
rmdir \"$own\"";

impl Floor {
    fn name(way: &str) -> &'static str {
        if way == "on" { "another file watched" } else { "recorded for nobody" }
    }

    fn start(lab: &Lab, way: &str) -> Result<Self> {
        if way == "on" {
            let other = lab.file("other");
            std::fs::write(&other, "nobody reads it").context("make a file")?;
            return Ok(Self::Called(Watching::start(
                lab,
                &["--bpf", way, &other.to_string_lossy()],
            )?));
        }
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", RECORD]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("start a shell with tracefs")?;
        let mut said = String::new();
        let out = child.stdout.take().context("no output")?;
        BufReader::new(out).read_line(&mut said).context("wait for the event")?;
        let floor = Self::Recorded(child);
        ensure!(said.trim() == "records", "the event cannot be enabled");
        Ok(floor)
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        let child = match self {
            Self::Called(watching) => &mut watching.child,
            Self::Recorded(child) => child,
        };
        // What it would find is not asked for; the shell ends with its input.
        let pid = rustix::process::Pid::from_child(child);
        let asked = child.stdin.take().is_some()
            || rustix::process::kill_process(pid, rustix::process::Signal::INT).is_ok();
        if asked {
            drop(child.wait());
        }
    }
}

/// Measures one way; answers with what it adds, and with what asking the kernel at all does.
fn cost(
    lab: &Lab,
    claims: &mut Claims,
    way: &str,
    bound: f64,
    claim: &str,
) -> Result<Option<(Added, Added)>> {
    if way == "on" {
        let mut tried = run::client(LONG_S, &lab.binary.to_string_lossy());
        let out = run::keep(tried.args(["watch", "--bpf", way, "--for", "100ms"]))?;
        if !out.ok() {
            claims.skip(claim, out.stderr.trim());
            return Ok(None);
        }
    }
    let path = lab.file("hot");
    let name = path.display().to_string();
    let bytes = usize::try_from(PAGES * PAGE_BYTES).context("a small file")?;
    std::fs::write(&path, vec![7; bytes]).context("make a file")?;
    let file = File::open(&path).context("open it")?;
    batches(&file, 4)?;
    let (rounds, count) = (lab.either(96, 6), BATCHES);
    let (mut added, mut floors) = (Added::default(), Added::default());
    let (mut lost, mut looked_up, mut seconds, mut cpu, mut memory) = (0, 0, 0.0, 0, 0);
    let mut before = batches(&file, count)?;
    for round in 0..rounds {
        if round % FLOOR_EVERY == 0 {
            let floor = {
                let _floor = Floor::start(lab, way)?;
                batches(&file, count)?;
                batches(&file, count)?
            };
            let after = batches(&file, count)?;
            floors.put(f64::midpoint(before, after), floor);
            before = after;
        }
        let watching = Watching::start(lab, &["--bpf", way])?;
        let begun = Instant::now();
        // Buffers are touched for the first time, and the reader finds its pace.
        batches(&file, count)?;
        let on = batches(&file, count)?;
        seconds += begun.elapsed().as_secs_f64();
        let found = watching.end()?;
        lost += found["total"]["lost_events"].as_u64().context("no count of what was lost")?;
        cpu += found["own_cpu_ns"].as_u64().context("no processor time")?;
        memory = memory.max(found["own_memory_bytes"].as_u64().context("no memory")?);
        let rows = found["total"]["rows"].as_array().context("no rows")?;
        let own = rows.iter().filter(|row| row["file"] == name.as_str());
        looked_up += own.filter_map(|row| row["read_pages"].as_u64()).sum::<u64>();
        // The machine is faster and slower by the second, so both sides of it are looked at.
        let after = batches(&file, count)?;
        let off = f64::midpoint(before, after);
        println!("   {off:.0} ns without, {on:.0} ns with");
        added.put(off, on);
        before = after;
    }
    let median = added.ratio();
    let figure = format!(
        "{added}, {} pairs; {}: {floors}; its own processor time {:.0} ns a look-up, {} MiB",
        added.pairs(),
        Floor::name(way),
        to_f64(cpu) / to_f64(looked_up.max(1)),
        memory >> 20
    );
    claims.add(claim, figure, median <= bound);
    let expected = 2 * BATCH * count * rounds;
    let rate = to_f64(looked_up) / seconds;
    let figure = format!("{rate:.0}/s, {lost} lost, {looked_up} of {expected} counted");
    let all = lost == 0 && looked_up == expected && rate >= PER_S_MIN;
    let claim = format!("500,000 look-ups per second and more, none lost (--bpf {way})");
    claims.add(&claim, figure, all);
    Ok(Some((added, floors)))
}

/// Instances of tracefs, read by another program.
fn instances() -> Result<usize> {
    let script = "unshare -m sh -c 'mount -t tracefs none /sys/kernel/tracing 2>/dev/null; \
                  ls /sys/kernel/tracing/instances'";
    let text = run::text(Command::new("sh").args(["-c", script]))?;
    Ok(text.lines().filter(|line| line.starts_with("larder-")).count())
}

fn killed(lab: &Lab) -> Result<String> {
    let before = instances()?;
    let mut first = Watching::start(lab, &[])?;
    first.child.kill().context("kill it")?;
    first.child.wait().context("wait for it")?;
    ensure!(instances()? > before, "there was nothing to leave");
    Watching::start(lab, &[])?.end()?;
    ensure!(instances()? == before, "something is left");
    Ok("removed, and nothing is left".to_owned())
}

/// As somebody else, for a second.
fn refused(lab: &Lab) -> Result<String> {
    let mut command = run::client(LONG_S, "setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.arg(&lab.binary).args(["watch", "--for", "1s"]);
    let out = run::keep(&mut command)?;
    let sentence = out.stderr.lines().find(|line| line.starts_with("missing: "));
    let sentence = sentence.context("it says nothing")?;
    ensure!(out.ok() && sentence.contains("root"), "{}", out.stderr);
    ensure!(out.stdout.contains("memory: "), "it shows nothing: {}", out.stdout);
    Ok(sentence.trim_start_matches("missing: ").to_owned())
}

/// The curve of a recorded run, against the same run in memory groups of six sizes.
pub(super) fn size_live(lab: &Lab, claims: &mut Claims) -> Result<()> {
    if let Some(why) = MemoryGroup::missing() {
        claims.skip("a prediction against memory groups", why);
        return Ok(());
    }
    let path = lab.file("skewed");
    let mib = lab.either(256, 128);
    std::fs::write(&path, vec![3; mib << 20]).context("make a file")?;
    File::open(&path).and_then(|file| file.sync_all()).context("write it out")?;
    let requests = lab.either(400_000_u64, 120_000);
    let trace = lab.file("skewed.ltr");
    let mut recorder = Command::new(&lab.binary)
        .args(["trace", "record"])
        .args([&trace, &path])
        .stderr(File::create(lab.file("record.err")).context("make a file")?)
        .spawn()
        .context("start larder trace record")?;
    let begun = Instant::now();
    while !std::fs::read_to_string(lab.file("record.err"))?.contains("watching ") {
        ensure!(begun.elapsed() < BEGIN_MAX, "it does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    run::text(&mut load(&path, mib, requests))?;
    let pid = rustix::process::Pid::from_child(&recorder);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).context("end it")?;
    ensure!(recorder.wait().context("wait for it")?.success(), "larder trace record failed");
    let (mut sum, mut count) = (0.0, 0);
    for size in lab.either([24, 40, 64, 96, 144, 208], [16, 24, 36, 52, 72, 100]) {
        let group = MemoryGroup::of(size)?;
        drop_pages(&path)?;
        let watching = Watching::start(lab, &[&path.to_string_lossy()])?;
        run::text(&mut group.enter(&load(&path, mib, requests)))?;
        let held = group.bytes("cache")?;
        let found = watching.end()?;
        let pages = |name: &str| found["total"]["sum"][name].as_u64().unwrap_or(0);
        let measured = to_f64(pages("hit_pages")) / to_f64(pages("read_pages").max(1));
        let predicted = predicted(lab, &trace, held)?;
        let points = 100.0 * (predicted - measured).abs();
        println!(
            "   {size} MiB, {} MiB of them cache: predicted {:.1} %, measured {:.1} %",
            held >> 20,
            100.0 * predicted,
            100.0 * measured
        );
        sum += points;
        count += 1;
    }
    let mean = sum / f64::from(count);
    let figure = format!("{mean:.2} points off on the average, six sizes");
    claims.add("the curve of a live recording, against memory groups", figure, mean <= POINTS_MAX);
    Ok(())
}

/// Skewed reads, the same each time.
fn load(path: &Path, mib: usize, requests: u64) -> Command {
    let mut fio = run::client(LONG_S, "fio");
    fio.args(["--name=skewed", "--rw=randread", "--bs=4k", "--ioengine=psync", "--thread"]);
    fio.args(["--random_distribution=zipf:0.9", "--randrepeat=1", "--randseed=7"]);
    fio.args(["--norandommap", "--invalidate=0", "--fadvise_hint=random"]);
    fio.arg(format!("--filename={}", path.display())).arg(format!("--size={mib}m"));
    fio.arg(format!("--number_ios={requests}"));
    // It ends after so many requests, and not when it has read as much as the file has.
    fio.arg(format!("--io_size={}", requests * PAGE_BYTES));
    fio
}

fn drop_pages(path: &Path) -> Result<()> {
    let file = File::open(path).context("open it")?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).context("drop its pages")
}

/// The hit ratio of the kernel's policy with so much cache.
fn predicted(lab: &Lab, trace: &Path, bytes: u64) -> Result<f64> {
    let mut command = run::client(LONG_S, &lab.binary.to_string_lossy());
    command.arg("sim").arg(trace).args(["--policy", "linux", "--format", "json"]);
    let pages = (bytes / PAGE_BYTES).max(1);
    command.args(["--size", &format!("{pages}p")]);
    let text = run::text(&mut command)?;
    let found: Value = serde_json::from_str(&text).context("parse what larder sim printed")?;
    hit_ratio(&found).with_context(|| format!("no hit ratio in {found}"))
}

/// The first number called so, wherever it is.
fn hit_ratio(value: &Value) -> Option<f64> {
    match value {
        Value::Object(fields) => match fields.get("hit_ratio").and_then(Value::as_f64) {
            Some(ratio) => Some(ratio),
            None => fields.values().find_map(hit_ratio),
        },
        Value::Array(all) => all.iter().find_map(hit_ratio),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_ratio_is_found_wherever_it_lies() {
        let value = json!({"a": [{"b": 1}, {"hit_ratio": 0.25}]});
        assert_eq!(hit_ratio(&value), Some(0.25));
        assert_eq!(hit_ratio(&json!({"hit_ratio": null})), None);
    }
}
