//! `larder bench` on several ranks: under `mpirun`, and on two network namespaces as hosts.
//!
//! The namespaces have names of their own for their host and a wire between them; everything is
//! undone when the value is dropped and when this process dies.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Claims, Lab};
use crate::run;
use crate::undo::Undo;

/// What a run may take.
const RUN_MAX_S: u64 = 300;
/// How long something may take to begin.
const BEGIN_MAX: Duration = Duration::from_mins(1);

/// Names and addresses of the two hosts; names begin with this process's number, so that two proofs
/// do not meet.
const ADDRESSES: [&str; 2] = ["10.111.7.1", "10.111.7.2"];

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    if run::installed("mpirun") {
        claims.tried("mpirun, two ranks: one barrier, one total", || {
            let folder = folder(lab, "mpi")?;
            let record = folder.join("run.json");
            run::text(work(lab, &mut mpirun(2), lab.either(6, 2)).arg("-o").arg(&record))?;
            total(&record, None)
        });
        claims.tried("mpirun, four ranks of Probe", || {
            let folder = folder(lab, "probe")?;
            let mut command = mpirun(4);
            command.arg(&lab.binary).args(["bench", "probe"]).arg(&folder);
            command.args(["--size", "1MiB", "--length", "200ms", "--trials", "2"]);
            let text = run::text(command.args(["--confidence", "off"]))?;
            ensure!(text.contains("; 4 ranks together"), "{text}");
            nothing_left(&folder)?;
            Ok("one total of four".to_owned())
        });
        claims.tried("mpirun, one of three killed: all end, nothing stays", || killed(lab));
    } else {
        claims.skip("ranks under mpirun", "mpirun is not installed (openmpi-bin)");
    }
    if !run::is_root() || !run::installed("ip") {
        claims.skip("two namespaces as hosts", "needs root and ip (iproute2)");
        return Ok(());
    }
    let hosts = Hosts::make()?;
    claims.tried("two namespaces over TCP: one total, with their names", || apart(lab, &hosts));
    claims.tried("two namespaces started by --hosts: one total, with their names", || {
        started(lab, &hosts)
    });
    claims.tried("whoever has not the token does not get in", || stranger(lab, &hosts));
    Ok(())
}

fn folder(lab: &Lab, name: &str) -> Result<std::path::PathBuf> {
    let folder = lab.file(&format!("ranks-{name}"));
    std::fs::create_dir(&folder).with_context(|| format!("make {}", folder.display()))?;
    Ok(folder)
}

fn mpirun(ranks: u32) -> Command {
    let mut command = run::client(RUN_MAX_S, "mpirun");
    // More ranks than processors, also for root: both are refused otherwise.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args(["--oversubscribe", "-n", &ranks.to_string()]);
    command
}

/// The words of a short run of PostMark.
fn work<'a>(lab: &Lab, command: &'a mut Command, trials: u32) -> &'a mut Command {
    command.arg(&lab.binary).args([
        "bench",
        "postmark",
        "--number",
        "100",
        "--transactions",
        "200",
    ]);
    command.args(["--confidence", "off", "--trials", &trials.to_string()])
}

/// Looks at the record of two ranks, on these hosts if they are known.
fn total(record: &Path, hosts: Option<&[String; 2]>) -> Result<String> {
    let text = std::fs::read_to_string(record).context("read the record")?;
    let run: Value = serde_json::from_str(&text).context("parse the record")?;
    let parts = run["parts"].as_array().context("no parts")?;
    ensure!(parts.len() == 2, "{} ranks", parts.len());
    let created = |run: &Value| {
        let samples = run["samples"].as_array().cloned().unwrap_or_default();
        let sample = samples.into_iter().find(|sample| sample["series"] == "created");
        sample.and_then(|sample| sample["values"][0].as_f64()).context("nothing was created")
    };
    let (sum, each) = (created(&run)?, [created(&parts[0]["run"])?, created(&parts[1]["run"])?]);
    ensure!((sum - each[0] - each[1]).abs() < 0.5, "{sum} is not {} and {}", each[0], each[1]);
    let names: Vec<&str> =
        parts.iter().filter_map(|part| part["labels"]["host"].as_str()).collect();
    ensure!(names.len() == 2, "no names of hosts");
    if let Some(hosts) = hosts {
        ensure!(names == [hosts[0].as_str(), hosts[1].as_str()], "hosts are {names:?}");
    }
    let trials = run["trials"].as_array().map_or(0, Vec::len);
    let of_parts = parts.iter().map(|part| part["run"]["trials"].as_array().map_or(0, Vec::len));
    ensure!(of_parts.into_iter().all(|count| count == trials), "not as many trials everywhere");
    Ok(format!("{trials} trials, {sum} files together, on {}", names.join(" and ")))
}

fn nothing_left(folder: &Path) -> Result<()> {
    let mut left = std::fs::read_dir(folder).context("look what is left")?;
    match left.next() {
        None => Ok(()),
        Some(entry) => anyhow::bail!("{} stays", entry?.path().display()),
    }
}

/// Waits until so many ranks have a folder.
fn wait_for_work(folder: &Path, ranks: usize) -> Result<()> {
    let begun = Instant::now();
    while std::fs::read_dir(folder)?.count() < ranks {
        ensure!(begun.elapsed() < BEGIN_MAX, "nobody works");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn killed(lab: &Lab) -> Result<String> {
    let folder = folder(lab, "killed")?;
    let mut command = mpirun(3);
    command.arg(&lab.binary).args(["bench", "postmark", "--transactions", "100000000"]);
    command.args(["--bias-create", "-1", "--trials", "1"]).current_dir(&folder);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let child = child.context("start mpirun")?;
    wait_for_work(&folder, 3)?;
    // The folder of a rank has its number in its name.
    let entry = std::fs::read_dir(&folder)?.next().context("a rank works")??;
    let name = entry.file_name().to_string_lossy().into_owned();
    let id = name.strip_prefix("larder-postmark-").and_then(|rest| rest.split('-').next());
    let id = id.and_then(|id| id.parse().ok()).and_then(rustix::process::Pid::from_raw);
    let id = id.with_context(|| format!("no number in {name}"))?;
    rustix::process::kill_process(id, rustix::process::Signal::KILL).context("kill a rank")?;
    let output = child.wait_with_output().context("wait for mpirun")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success(), "it ended well");
    ensure!(said.contains("is gone") && said.contains("what was made here is removed"), "{said}");
    nothing_left(&folder)?;
    Ok("a sentence from each, and an empty folder".to_owned())
}

/// Two network namespaces with a wire between them.
#[derive(Debug)]
struct Hosts {
    names: [String; 2],
    _undo: Undo,
}

impl Hosts {
    fn make() -> Result<Self> {
        let id = std::process::id();
        let names = [format!("lra{id}"), format!("lrb{id}")];
        let [a, b] = &names;
        let undo = Undo::with("ip netns del \"$1\"; ip netns del \"$2\"", &[a, b])?;
        let script = "set -e
ip netns add $1; ip netns add $2
ip link add $1 netns $1 type veth peer name $2 netns $2
ip -n $1 address add $3/24 dev $1; ip -n $2 address add $4/24 dev $2
ip -n $1 link set $1 up; ip -n $2 link set $2 up
ip -n $1 link set lo up; ip -n $2 link set lo up";
        let [one, other] = ADDRESSES;
        run::text(Command::new("sh").args(["-c", script, "hosts", a, b, one, other]))?;
        Ok(Hosts { names, _undo: undo })
    }

    /// Runs a command on one of them, where the host is called as the namespace is.
    fn on(&self, number: usize) -> Command {
        let name = &self.names[number];
        let mut command = run::client(RUN_MAX_S, "ip");
        let named = format!("hostname {name}; exec \"$@\"");
        command.args(["netns", "exec", name, "unshare", "--uts", "sh", "-c", &named, "sh"]);
        command
    }

    /// The same as one of two ranks that meet over TCP.
    fn rank(&self, lab: &Lab, number: usize, folder: &Path) -> Command {
        let mut command = self.on(number);
        command.env("PMI_RANK", number.to_string()).env("PMI_SIZE", "2");
        work(lab, &mut command, 2).arg("--rendezvous").arg(folder.join("meeting"));
        command.args(["--listen", ADDRESSES[0]]).arg("--location").arg(folder);
        command
    }
}

fn apart(lab: &Lab, hosts: &Hosts) -> Result<String> {
    let folder = folder(lab, "apart")?;
    let record = lab.file("apart.json");
    let mut other = hosts.rank(lab, 1, &folder);
    let other = other.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let other = other.context("start the second rank")?;
    let first = run::text(hosts.rank(lab, 0, &folder).arg("-o").arg(&record));
    let other = other.wait_with_output().context("wait for the second rank")?;
    first?;
    ensure!(other.status.success(), "{}", String::from_utf8_lossy(&other.stderr));
    nothing_left(&folder)?;
    total(&record, Some(&hosts.names))
}

fn started(lab: &Lab, hosts: &Hosts) -> Result<String> {
    let folder = folder(lab, "started")?;
    let record = lab.file("started.json");
    let mut command = run::client(RUN_MAX_S, &lab.binary.to_string_lossy());
    command.args(["bench", "postmark", "--number", "100", "--transactions", "200"]);
    command.args(["--confidence", "off", "--trials", "2", "--location"]).arg(&folder);
    command.args(["--hosts", &hosts.names.join(","), "--ssh", "ip netns exec", "--program"]);
    run::text(command.arg(&lab.binary).arg("-o").arg(&record))?;
    nothing_left(&folder)?;
    total(&record, Some(&hosts.names))
}

/// Somebody who finds the address but has no token, in the middle of a meeting.
fn stranger(lab: &Lab, hosts: &Hosts) -> Result<String> {
    let folder = folder(lab, "stranger")?;
    let first = hosts
        .rank(lab, 0, &folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("start the first rank")?;
    let meeting = folder.join("meeting");
    let begun = Instant::now();
    while !meeting.exists() {
        ensure!(begun.elapsed() < BEGIN_MAX, "there is no meeting");
        std::thread::sleep(Duration::from_millis(10));
    }
    let line = std::fs::read_to_string(&meeting).context("read where they meet")?;
    let address = line.trim().rsplit_once('@').context("no address")?.1;
    let port = address.rsplit_once(':').context("no port")?.1;
    // Only what was asked for is listened on.
    let inside = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
    let inside = run::keep(hosts.on(0).args(["bash", "-c", &inside]))?;
    ensure!(!inside.ok(), "it listens on another address too");
    let hello = "{\"hello\":{\"protocol\":1,\"version\":\"0.1.0\",\"rank\":1,\"ranks\":2,\
                 \"host\":\"x\",\"what\":\"x\",\"token\":\"Bearer 0000\"}}";
    let script = format!("exec 3<>/dev/tcp/{}/{port}; echo '{hello}' >&3; cat <&3", ADDRESSES[0]);
    let answer = run::text(hosts.on(1).args(["bash", "-c", &script]))?;
    ensure!(answer.is_empty(), "it was answered {answer}");
    // The one that has it comes later, and the run goes on.
    run::text(&mut hosts.rank(lab, 1, &folder))?;
    let first = first.wait_with_output().context("wait for the first rank")?;
    let said = String::from_utf8_lossy(&first.stderr);
    ensure!(first.status.success() && said.contains("has not the token of this run"), "{said}");
    nothing_left(&folder)?;
    Ok("passed over, and the run went on".to_owned())
}
