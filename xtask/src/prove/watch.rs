//! `larder watch` is exact, costs little and loses nothing; `larder size --live` predicts.
//!
//! The exactness is shown by a test of the command, with cachestat(2) right before each read. The
//! cost is measured by a loop of reads here, in pairs: batches without it, batches with it; and
//! beside it the floor, which is the cost of reading where the kernel calls a program or records an
//! event at all.

use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Stdio};

use rustix::process::Signal;

use super::prelude::*;
use crate::daemon::Daemon;
use crate::memory_group::MemoryGroup;
use crate::record::Record;
use crate::stats::{Spread, median};

/// How look-ups are counted, as `--bpf` takes it; by how much a read may become slower; in words.
const WAYS: [(&str, f64, &str); 2] = [
    ("on", 0.12, "a read of 4 KiB from memory, at most 12 % slower where the kernel counts"),
    ("off", 0.20, "a read of 4 KiB from memory, at most 20 % slower where each is told"),
];
/// Look-ups per second of which none may be lost.
const PER_S_MIN: f64 = 500_000.0;
/// Points that a prediction may be off on average.
const POINTS_MAX: f64 = 3.0;
/// Pages of the file that is read from memory.
const PAGES: u64 = 16_384;
const PAGE_BYTES: u64 = 4096;
/// Reads of a batch, and batches with it, and without: a fifth of a second, since the machine is
/// not the same for long.
const BATCH: u64 = 50_000;
const BATCHES: u64 = 5;
/// Pairs for each measurement of the floor.
const FLOOR_EVERY: u64 = 4;

/// Runs the proof.
pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    if claims.skipped("the file cache, watched", run::missing(&[])) {
        return Ok(());
    }
    exactness(env, claims)?;
    let settings = json!({ "reads of a batch": BATCH, "batches": BATCHES, "pages": PAGES });
    let what = "a read of 4 KiB from memory, without and with larder watch, in pairs";
    let mut record = Record::new(&env.root, what, &[], &settings)?;
    for (way, bound, claim) in WAYS {
        let Some((added, floors)) = cost(env, claims, way, bound, claim)? else { continue };
        let read = format!("watched with --bpf {way}");
        added.put_into(&mut record, &read);
        floors.put_into(&mut record, floor_name(way));
        // A ratio above the required one holds: how much of its speed a read keeps.
        let ratio = Spread::of_ratios(&added.off, &added.on);
        let sides = [format!("with: {read}"), format!("without: {read}")];
        record.comparison(&read, [&sides[0], &sides[1]], ratio, 1.0 / (1.0 + bound));
    }
    if !env.options.quick {
        say!("   {} written", record.write_as("watch")?);
    }
    claims.tried("killed with -9, the next start removes the instance", || killed(env));
    claims.tried("without root it says what is missing, and shows the rest", || refused(env));
    Ok(())
}

/// The test of the command says what it has shown.
fn exactness(env: &Env, claims: &mut Claims) -> Result<()> {
    let mut cargo = run::cargo(&env.root);
    // The test only starts and checks; what it starts is the binary that is to be proved.
    cargo.args(["test", "--package", "larder", "--test", "it", "watch::", "--", "--nocapture"]);
    cargo.args(["--test-threads", "1"]).env("LARDER_BINARY", &env.larder);
    cargo.envs(env.either(Some(("LARDER_WATCH_FULL", "1")), None));
    let out = keep(&mut cargo)?;
    // The first line of a test stands behind its name.
    let shown: Vec<&str> =
        out.stdout.lines().filter_map(|line| Some(line.split_once("shown: ")?.1)).collect();
    for line in &shown {
        say!("   {line}");
    }
    if !out.ok() {
        say!("{}\n{}", out.stdout, out.stderr);
    }
    for line in out.stdout.lines().filter_map(|line| line.strip_prefix("skipped: ")) {
        claims.skip("hits and misses", line);
    }
    let figure = format!("{} comparisons, each within 1 %", shown.len());
    claims.add("hits, misses, writers: by file and process", figure, out.ok() && !shown.is_empty());
    Ok(())
}

/// Starts a command that says "watching " once it does.
fn start(env: &Env, words: &[&str]) -> Result<Daemon> {
    let larder = &env.larder;
    let mut daemon = Daemon::start("larder", env.dir(), |_| cmd!("{larder} {words...}"))?;
    daemon.wait_until(|daemon| daemon.stderr().contains("watching "))?;
    Ok(daemon)
}

/// Starts `larder watch` with its result in `watch.json`.
fn watch(env: &Env, words: &[&str]) -> Result<Daemon> {
    let result = env.file("watch.json");
    let how = ["watch", "--rows", "1000", "--for", "5m", "-o", &result.to_string_lossy()];
    start(env, &[&how[..], words].concat())
}

/// Ends it as Ctrl-C does; its result.
fn result(env: &Env, watching: Daemon) -> Result<Value> {
    watching.end_well(Signal::INT)?;
    record::read(&env.file("watch.json"))
}

/// Batches of reads from memory; the shortest time of one read, in nanoseconds.
fn batches(file: &File, count: u64) -> Result<f64> {
    let (mut buffer, mut best, mut page) = (vec![0; 4096], f64::INFINITY, 1_u64);
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

/// The least that makes reading slower, until dropped.
enum Floor {
    /// The kernel calls a program of ours, for a file that is not watched.
    Called { _watching: Daemon },
    /// It records each look-up for no reader.
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

fn floor_name(way: &str) -> &'static str {
    if way == "on" { "another file watched" } else { "recorded for nobody" }
}

impl Floor {
    fn start(env: &Env, way: &str) -> Result<Self> {
        if way == "on" {
            let other = env.file("other");
            std::fs::write(&other, "no program reads it").context("make a file")?;
            let words = ["--bpf", way, &other.to_string_lossy()];
            return Ok(Self::Called { _watching: watch(env, &words)? });
        }
        let mut command = cmd!("unshare -m sh -c {RECORD}");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (mut said, out) = (String::new(), child.stdout.take().context("no output")?);
        let floor = Self::Recorded(child);
        BufReader::new(out).read_line(&mut said).context("wait for the event")?;
        ensure!(said.trim() == "records", "the event cannot be enabled");
        Ok(floor)
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        if let Self::Recorded(child) = self {
            // The shell ends with its input.
            drop(child.stdin.take());
            drop(child.wait());
        }
    }
}

/// Nanoseconds of a read without something and with it, in pairs.
#[derive(Debug, Default)]
struct Added {
    off: Vec<f64>,
    on: Vec<f64>,
}

impl Added {
    fn put(&mut self, off: f64, on: f64) {
        self.off.push(off);
        self.on.push(on);
    }

    /// What is added, as shares, in order.
    fn shares(&self) -> Vec<f64> {
        let mut all: Vec<f64> =
            self.on.iter().zip(&self.off).map(|(on, off)| on / off - 1.0).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// The median share, and the ends of its interval at 95 %: a root of the number of pairs away
    /// from the middle one, whatever their spread (the binomial law, by its normal approximation).
    fn share(&self) -> [f64; 3] {
        let all = self.shares();
        let (middle, away) = (all.len() / 2, all.len().isqrt());
        [middle, middle.saturating_sub(away), middle + away]
            .map(|place| all.get(place).or(all.last()).copied().unwrap_or(f64::NAN))
    }

    fn put_into(&self, record: &mut Record, what: &str) {
        record.series(&format!("without: {what}"), "ns", &self.off, 0);
        record.series(&format!("with: {what}"), "ns", &self.on, 0);
    }
}

impl fmt::Display for Added {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [share, low, high] = self.share().map(|share| 100.0 * share);
        let ns: Vec<f64> = self.on.iter().zip(&self.off).map(|(on, off)| on - off).collect();
        write!(out, "{share:+.1} % ({low:+.1} to {high:+.1}; {:+.0} ns)", median(&ns))
    }
}

/// Measures one way: what it adds, and what the floor does.
fn cost(
    env: &Env,
    claims: &mut Claims,
    way: &str,
    bound: f64,
    claim: &str,
) -> Result<Option<(Added, Added)>> {
    let larder = &env.larder;
    let tried = keep(cmd!(300, "{larder} watch --bpf {way} --for 100ms"))?;
    if way == "on" && claims.skipped(claim, (!tried.ok()).then(|| tried.stderr.trim().into())) {
        return Ok(None);
    }
    let path = env.file("hot");
    let name = path.display().to_string();
    std::fs::write(&path, vec![7; usize::try_from(PAGES * PAGE_BYTES)?]).context("make a file")?;
    let file = File::open(&path).context("open it")?;
    batches(&file, 4)?;
    let (rounds, count) = (env.either(96, 6), BATCHES);
    let (mut added, mut floors) = (Added::default(), Added::default());
    let (mut lost, mut looked_up, mut seconds, mut cpu, mut memory) = (0.0, 0.0, 0.0, 0.0, 0.0);
    let mut before = batches(&file, count)?;
    for round in 0..rounds {
        if round % FLOOR_EVERY == 0 {
            let on = {
                let _floor = Floor::start(env, way)?;
                batches(&file, count)?;
                batches(&file, count)?
            };
            let after = batches(&file, count)?;
            floors.put(f64::midpoint(before, after), on);
            before = after;
        }
        let watching = watch(env, &["--bpf", way])?;
        let begun = Instant::now();
        // Buffers are touched for the first time, and the reader finds its pace.
        batches(&file, count)?;
        let on = batches(&file, count)?;
        seconds += begun.elapsed().as_secs_f64();
        let found = result(env, watching)?;
        lost += number(&found, "/total/lost_events")?;
        cpu += number(&found, "own_cpu_ns")?;
        memory = number(&found, "own_memory_bytes")?.max(memory);
        let rows = found["total"]["rows"].as_array().context("no rows")?;
        let own = rows.iter().filter(|row| row["file"] == name.as_str());
        looked_up += own.filter_map(|row| row["read_pages"].as_f64()).sum::<f64>();
        // The machine is faster and slower by the second, so both sides of it are measured.
        let after = batches(&file, count)?;
        let off = f64::midpoint(before, after);
        say!("   {off:.0} ns without, {on:.0} ns with");
        added.put(off, on);
        before = after;
    }
    let figure = format!(
        "{added}, {} pairs; {}: {floors}; its own processor time {:.0} ns a look-up, {:.0} MiB",
        added.on.len(),
        floor_name(way),
        cpu / f64::max(looked_up, 1.0),
        memory / to_f64(MIB)
    );
    claims.add(claim, figure, added.share()[0] <= bound);
    let (expected, rate) = (to_f64(2 * BATCH * count * rounds), looked_up / seconds);
    let is_all = lost <= 0.0 && (looked_up - expected).abs() < 0.5;
    claims.add(
        format!("500,000 look-ups per second and more, none lost (--bpf {way})"),
        format!("{rate:.0}/s, {lost} lost, {looked_up} of {expected} counted"),
        is_all && rate >= PER_S_MIN,
    );
    Ok(Some((added, floors)))
}

/// Instances of tracefs, listed by another program.
fn instances() -> Result<usize> {
    let script = "mount -t tracefs none /sys/kernel/tracing 2>/dev/null; \
                  ls /sys/kernel/tracing/instances";
    let text = text(cmd!("unshare -m sh -c {script}"))?;
    Ok(text.lines().filter(|line| line.starts_with("larder-")).count())
}

fn killed(env: &Env) -> Result<String> {
    let before = instances()?;
    watch(env, &[])?.end(Signal::KILL)?;
    ensure!(instances()? > before, "there was nothing to leave");
    result(env, watch(env, &[])?)?;
    ensure!(instances()? == before, "something is left");
    Ok("removed, and nothing is left".to_owned())
}

/// As another user, for a second.
fn refused(env: &Env) -> Result<String> {
    let (larder, user) = (&env.larder, "--reuid 65534 --regid 65534 --clear-groups".split(' '));
    let out = keep(cmd!(300, "setpriv {user...} {larder} watch --for 1s"))?;
    let sentence = out.stderr.lines().find_map(|line| line.strip_prefix("missing: "));
    let sentence = sentence.context("it says nothing")?;
    ensure!(out.ok() && sentence.contains("root"), "{}", out.stderr);
    ensure!(out.stdout.contains("memory: "), "it shows nothing: {}", out.stdout);
    Ok(sentence.to_owned())
}

/// The curve of a recorded run, against the same run in memory groups of six sizes.
pub(super) fn size_live(env: &Env, claims: &mut Claims) -> Result<()> {
    if claims.skipped("a prediction against memory groups", MemoryGroup::missing()) {
        return Ok(());
    }
    let (path, trace, mib) = (env.file("skewed"), env.file("skewed.ltr"), env.either(256, 128));
    std::fs::write(&path, vec![3; mib << 20]).context("make a file")?;
    let file = File::open(&path).context("open it")?;
    file.sync_all().context("write it out")?;
    let [path_text, trace_text] = [&path, &trace].map(|path| path.to_string_lossy());
    let recorder = start(env, &["trace", "record", &trace_text, &path_text])?;
    text(load(env, &path, mib))?;
    recorder.end_well(Signal::INT)?;
    let mut points = Vec::new();
    for size in env.either([24, 40, 64, 96, 144, 208], [16, 24, 36, 52, 72, 100]) {
        let group = MemoryGroup::of(size)?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
            .context("drop its pages")?;
        let watching = watch(env, &[&path_text])?;
        text(group.enter(&load(env, &path, mib)))?;
        let held = group.bytes("cache")?;
        let found = result(env, watching)?;
        let pages = |name: &str| number(&found, &format!("/total/sum/{name}"));
        let measured = pages("hit_pages")? / pages("read_pages")?.max(1.0);
        let (larder, count) = (&env.larder, (held / PAGE_BYTES).max(1).to_string());
        let how = ["--policy", "linux", "--format", "json"];
        let row = json_of(cmd!(300, "{larder} sim {trace} {how...} --size {count}p"))?;
        let predicted = number(&row, "/rows/0/hit_ratio")?;
        points.push(100.0 * (predicted - measured).abs());
        say!(
            "   {size} MiB, {} MiB of them cache: predicted {:.1} %, measured {:.1} %",
            held >> 20,
            100.0 * predicted,
            100.0 * measured
        );
    }
    let mean = crate::stats::mean_and_most(&points).0;
    let figure = format!("{mean:.2} points off on the average, six sizes");
    claims.add("the curve of a live recording, against memory groups", figure, mean <= POINTS_MAX);
    Ok(())
}

/// Skewed reads, the same each time. It ends after so many requests, and not when it has read as
/// much as the file has.
fn load(env: &Env, path: &Path, mib: usize) -> Command {
    let requests = env.either(400_000_u64, 120_000);
    let line = format!(
        "--rw=randread --bs=4k --ioengine=psync --thread --random_distribution=zipf:0.9 \
         --randrepeat=1 --randseed=7 --norandommap --invalidate=0 --fadvise_hint=random \
         --size={mib}m --number_ios={requests} --io_size={}",
        requests * PAGE_BYTES
    );
    let how = line.split_whitespace();
    cmd!(300, "fio --name=skewed {how...} --filename={path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_pairs_is_shown_with_its_interval() {
        let mut added = Added::default();
        for on in [1010.0, 1050.0, 1500.0, 1030.0] {
            added.put(1000.0, on);
        }
        added.put(2000.0, 2080.0);
        assert_eq!(added.to_string(), "+4.0 % (+1.0 to +50.0; +50 ns)");
        let ratio = Spread::of_ratios(&added.off, &added.on);
        assert_eq!(format!("{ratio:.3}"), "0.962 (0.667 to 0.990)");
    }
}
