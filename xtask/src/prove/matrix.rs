//! `larder bench matrix` on three file systems and four schedulers, and the machine as before.
//!
//! What the machine was is read here as well, by other programs than the command reads it with.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Claims, Lab};
use crate::run;

const SYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];
const SCHEDULERS: [&str; 4] = ["none", "mq-deadline", "bfq", "kyber"];
/// What a run may take.
const RUN_MAX_S: u64 = 900;
/// How long the first cell may take to be there.
const BEGIN_MAX: Duration = Duration::from_mins(2);

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    if !run::is_root() || !Path::new("/dev/loop-control").exists() {
        claims.skip("file systems made, measured and removed", "needs root and loop devices");
        return Ok(());
    }
    let scratch = lab.file("matrix");
    std::fs::create_dir(&scratch).context("make a folder for images")?;
    let (record, before) = (lab.file("matrix.json"), machine(&scratch)?);
    let mut command = larder(lab, &scratch, lab.either(6, 2), lab.either(2000, 200));
    command.args(["-o"]).arg(&record);
    let words = ["--", "--number", "500", "--size", "500-10000", "--subdirectories", "5"];
    command.args(words).args(["--transactions", lab.either("2000", "400")]);
    let out = run::keep(&mut command)?;
    println!("{}{}", out.stdout, out.stderr);
    claims.add("it runs to its end and finds nothing changed", code(out.code), out.ok());
    let after = machine(&scratch)?;
    claims.add(
        "devices, schedulers, mounts and folders are as before, read by other programs",
        if before == after { "no difference".to_owned() } else { difference(&before, &after) },
        before == after,
    );
    claims.tried("three file systems on four schedulers, as read back in each", || {
        cells(&read(&record)?)
    });
    claims.tried("a chart for each column of the table", || charts(lab, &record));
    claims.tried("killed with -9, the next start removes what is left", || killed(lab, &scratch));
    Ok(())
}

fn code(code: Option<i32>) -> String {
    code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"))
}

/// The command without the words for the benchmark.
fn larder(lab: &Lab, scratch: &Path, trials: u32, size_mib: u32) -> Command {
    let mut command = run::client(RUN_MAX_S, &lab.binary.to_string_lossy());
    command.args(["bench", "matrix", "--workload", "postmark", "--fs", &SYSTEMS.join(",")]);
    command.args(["--scheduler", &SCHEDULERS.join(","), "--scratch"]).arg(scratch);
    // XFS needs 300 MiB at least.
    command.args(["--size", &format!("{}MiB", size_mib.max(512)), "--confidence", "off"]);
    command.args(["--trials", &trials.to_string()]);
    command
}

/// What the machine is like, as text.
fn machine(scratch: &Path) -> Result<String> {
    let script = "losetup --list --noheadings; grep . /sys/block/*/queue/scheduler \
                  /sys/block/*/queue/nr_requests; cut -d' ' -f1-4 /proc/self/mounts; ls -A \"$1\"; \
                  ls /dev/loop*; nice";
    run::text(Command::new("sh").args(["-c", script, "machine"]).arg(scratch))
}

fn difference(before: &str, after: &str) -> String {
    let lacks = |text: &str, line: &str| !text.lines().any(|other| other == line);
    let gone = before.lines().filter(|line| lacks(after, line)).map(|line| format!("-{line}"));
    let new = after.lines().filter(|line| lacks(before, line)).map(|line| format!("+{line}"));
    gone.chain(new).collect::<Vec<_>>().join(" ")
}

fn read(record: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(record).context("read the record")?;
    serde_json::from_str(&text).context("parse the record")
}

/// Looks at each cell of the record.
fn cells(run: &Value) -> Result<String> {
    let parts = run["parts"].as_array().context("no parts")?;
    let mut trials = 0;
    for system in SYSTEMS {
        for scheduler in SCHEDULERS {
            let name = format!("{system}, {scheduler}");
            let part = parts.iter().find(|part| part["name"] == name.as_str());
            let part = &part.with_context(|| format!("no cell {name}"))?["run"];
            let environment = &part["environment"];
            ensure!(environment["disk.scheduler"] == scheduler, "{name}: {environment}");
            ensure!(environment["mount.type"] == system, "{name}: {environment}");
            ensure!(part["environment_changes"] == Value::Array(vec![]), "{name} changed");
            trials += part["trials"].as_array().map_or(0, Vec::len);
        }
    }
    ensure!(run["environment_changes"] == Value::Array(vec![]), "the machine changed");
    ensure!(parts.len() == SYSTEMS.len() * SCHEDULERS.len(), "{} cells", parts.len());
    Ok(format!("{} cells, {trials} trials", parts.len()))
}

fn charts(lab: &Lab, record: &Path) -> Result<String> {
    let page =
        run::text(Command::new(&lab.binary).args(["report", "--format", "html"]).arg(record))?;
    let charts = page.matches("<figure>").count();
    ensure!(charts == 8, "{charts} charts");
    ensure!(!page.contains("<script src") && !page.contains("href=\"http"), "it fetches something");
    Ok(format!("{charts} charts, {} bytes", page.len()))
}

/// Kills a run when it works, and starts another.
fn killed(lab: &Lab, scratch: &Path) -> Result<String> {
    let before = machine(scratch)?;
    let mut child = Command::new(&lab.binary)
        .args(["bench", "matrix", "--workload", "postmark", "--fs", "xfs", "--scheduler", "bfq"])
        .args(["--size", "512MiB", "--scratch"])
        .arg(scratch)
        .args(["--", "--transactions", "100000000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("start larder")?;
    let begun = Instant::now();
    while !machine(scratch)?.contains("/mounted xfs") {
        ensure!(begun.elapsed() < BEGIN_MAX, "it mounts nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().context("kill it")?;
    child.wait().context("wait for it")?;
    ensure!(machine(scratch)? != before, "there was nothing to leave");
    let mut next = larder(lab, scratch, 1, 512);
    let out = run::keep(next.args(["--", "--number", "50", "--transactions", "100"]))?;
    ensure!(out.ok(), "{}", run::tail(&out.stderr));
    ensure!(out.stderr.contains("which a run that was killed had left"), "{}", out.stderr);
    let after = machine(scratch)?;
    ensure!(after == before, "{}", difference(&before, &after));
    Ok("removed, and nothing is left".to_owned())
}
