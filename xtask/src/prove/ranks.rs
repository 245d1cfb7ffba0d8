//! `larder bench` on several ranks: under `mpirun`, and on two network namespaces as hosts.
//!
//! Each namespace has its own host name, and a virtual Ethernet pair connects them; both are
//! removed when the value is dropped and when this process dies.

use rustix::process::{Pid, Signal, kill_process};

use super::prelude::*;
use crate::cleanup::Cleanup;
use crate::daemon::{Daemon, poll_until};

/// Timeouts of a run, and of its start.
const RUN_MAX_S: u64 = 300;
const BEGIN_MAX: Duration = Duration::from_mins(1);
/// The addresses of the two hosts.
const ADDRESSES: [&str; 2] = ["10.111.7.1", "10.111.7.2"];
/// A short run of PostMark.
const WORK: &str = "bench postmark --number 100 --transactions 200 --confidence off --trials";
const NAMESPACES: &str = "set -e
ip netns add $1; ip netns add $2
ip link add $1 netns $1 type veth peer name $2 netns $2
ip -n $1 address add $3/24 dev $1; ip -n $2 address add $4/24 dev $2
ip -n $1 link set $1 up; ip -n $2 link set $2 up
ip -n $1 link set lo up; ip -n $2 link set lo up";

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    claims.check("mpirun, two ranks: one barrier, one total", || {
        let (record, trials) = (env.file("mpi.json"), env.choose("6", "2"));
        stdout_of(mpirun(env.dir(), env, 2, &format!("{WORK} {trials}"))?.arg("-o").arg(&record))?;
        check_record(&record, None)
    });
    claims.check("mpirun, four ranks of Probe", || {
        let dir = directory(env, "probe")?;
        let arguments = "--size 1MiB --length 200ms --trials 2 --confidence off";
        let output = stdout_of(mpirun(&dir, env, 4, &format!("bench probe . {arguments}"))?)?;
        ensure!(output.contains("; 4 ranks together"), "{output}");
        check_empty(&dir)?;
        Ok("one total of four".to_owned())
    });
    claims.check("mpirun, one of three killed: all end, no files are left", || killed(env));
    require(run::unmet_requirement(&["ip"]))?;
    let hosts = Hosts::new()?;
    claims.check("two namespaces over TCP: one total, with their names", || two_hosts(env, &hosts));
    claims.check("two namespaces started by --hosts: one total, with their names", || {
        let (dir, larder) = (directory(env, "started")?, &env.larder);
        let (record, names) = (env.file("started.json"), hosts.names.join(","));
        let (work, ssh) = (WORK.split(' '), "ip netns exec");
        stdout_of(cmd!(
            RUN_MAX_S,
            "{larder} {work...} 2 --location {dir} --hosts {names} --ssh {ssh} --program {larder}
             -o {record}"
        ))?;
        check_empty(&dir)?;
        check_record(&record, Some(&hosts.names))
    });
    claims.check("a client without the token is refused", || client_without_token(env, &hosts));
    Ok(())
}

fn directory(env: &Env, name: &str) -> Result<PathBuf> {
    let dir = env.file(&format!("ranks-{name}"));
    std::fs::create_dir(&dir).with_context(|| format!("make {}", dir.display()))?;
    Ok(dir)
}

fn check_empty(dir: &Path) -> Result<()> {
    std::fs::remove_dir(dir).context("remove the directory, which must be empty")
}

/// Returns the command that runs `larder` on some ranks in a directory.
fn mpirun(dir: &Path, env: &Env, ranks: u32, words: &str) -> Result<Command> {
    require(missing_program(&["mpirun"]))?;
    let (larder, words, ranks) = (&env.larder, words.split(' '), ranks.to_string());
    let mut command = cmd!(RUN_MAX_S, "mpirun --oversubscribe -n {ranks} {larder} {words...}");
    // By default mpirun refuses more ranks than processors, and refuses root.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.current_dir(dir);
    Ok(command)
}

/// Checks the record of two ranks, on these hosts if they are known.
fn check_record(at: &Path, hosts: Option<&[String; 2]>) -> Result<String> {
    let run = record::read(at)?;
    let parts = run["parts"].as_array().context("no parts")?;
    ensure!(parts.len() == 2, "{} ranks", parts.len());
    let created = |run: &Value| Ok::<_, anyhow::Error>(record::values(run, "created")?[0]);
    let (sum, one, other) =
        (created(&run)?, created(&parts[0]["run"])?, created(&parts[1]["run"])?);
    ensure!((sum - one - other).abs() < 0.5, "{sum} is not {one} and {other}");
    let names: Vec<&str> =
        parts.iter().filter_map(|part| part["labels"]["host"].as_str()).collect();
    ensure!(names.len() == 2, "no names of hosts");
    ensure!(hosts.is_none_or(|hosts| names == hosts.each_ref()), "hosts are {names:?}");
    let trials = |run: &Value| run["trials"].as_array().map_or(0, Vec::len);
    let count = trials(&run);
    let is_all = parts.iter().all(|part| trials(&part["run"]) == count);
    ensure!(is_all, "the numbers of trials differ");
    Ok(format!("{count} trials, {sum} files together, on {}", names.join(" and ")))
}

fn killed(env: &Env) -> Result<String> {
    let dir = directory(env, "killed")?;
    let words = "bench postmark --transactions 100000000 --bias-create -1 --trials 1";
    let command = mpirun(&dir, env, 3, words)?;
    let ranks = Daemon::start("mpirun", env.dir(), |_| command)?;
    poll_until("three ranks work", BEGIN_MAX, || Ok(std::fs::read_dir(&dir)?.count() >= 3))?;
    let entry = std::fs::read_dir(&dir)?.next().context("a rank works")??;
    let name = entry.file_name().to_string_lossy().into_owned();
    // The directory of a rank is larder-postmark-PID-NUMBER.
    let id = name.split('-').nth(2).and_then(|id| id.parse().ok()).and_then(Pid::from_raw);
    kill_process(id.with_context(|| format!("no process ID in {name}"))?, Signal::KILL)?;
    let ended = ranks.wait(Duration::from_secs(RUN_MAX_S))?;
    let output = ended.stderr;
    ensure!(ended.code != Some(0), "mpirun succeeded though a rank was killed");
    ensure!(
        output.contains("is gone") && output.contains("what was made here is removed"),
        "{output}"
    );
    check_empty(&dir)?;
    Ok("a sentence from each, and an empty directory".to_owned())
}

/// Two connected network namespaces. Their names contain the ID of this process, so that two proofs
/// do not collide.
struct Hosts {
    names: [String; 2],
    _cleanup: Cleanup,
}

impl Hosts {
    fn new() -> Result<Self> {
        let names = ["lra", "lrb"].map(|it| format!("{it}{}", std::process::id()));
        let [a, b] = &names;
        let cleanup = Cleanup::start("ip netns del \"$1\"; ip netns del \"$2\"", &[a, b])?;
        stdout_of(cmd!("sh -c {NAMESPACES} hosts {a} {b} {ADDRESSES...}"))?;
        Ok(Hosts { names, _cleanup: cleanup })
    }

    /// Returns a command in one of them, with the host name of the namespace.
    fn on(&self, number: usize, words: &[&str]) -> Command {
        let name = &self.names[number];
        let named = format!("hostname {name}; exec \"$@\"");
        cmd!(RUN_MAX_S, "ip netns exec {name} unshare --uts sh -c {named} sh {words...}")
    }

    /// Returns the command of one of two ranks that connect over TCP.
    fn rank(&self, env: &Env, number: usize, dir: &Path) -> Command {
        let (larder, at) = (env.larder.to_string_lossy(), dir.display());
        let line = format!(
            "{larder} {WORK} 2 --rendezvous {at}/meeting --listen {} --location {at}",
            ADDRESSES[0]
        );
        let mut command = self.on(number, &line.split(' ').collect::<Vec<_>>());
        command.env("PMI_RANK", number.to_string()).env("PMI_SIZE", "2");
        command
    }
}

fn two_hosts(env: &Env, hosts: &Hosts) -> Result<String> {
    let (dir, record) = (directory(env, "apart")?, env.file("apart.json"));
    let other = Daemon::start("the second rank", env.dir(), |_| hosts.rank(env, 1, &dir))?;
    stdout_of(hosts.rank(env, 0, &dir).arg("-o").arg(&record))?;
    let other = other.wait(Duration::from_secs(RUN_MAX_S))?;
    ensure!(other.code == Some(0), "{}", other.stderr);
    check_empty(&dir)?;
    check_record(&record, Some(&hosts.names))
}

/// Connects a client that finds the address but has no token, while the first rank waits.
fn client_without_token(env: &Env, hosts: &Hosts) -> Result<String> {
    let dir = directory(env, "stranger")?;
    let meeting = dir.join("meeting");
    let first = Daemon::start("the first rank", env.dir(), |_| hosts.rank(env, 0, &dir))?;
    poll_until("the first rank listens", BEGIN_MAX, || Ok(meeting.exists()))?;
    let line = std::fs::read_to_string(&meeting).context("read where they meet")?;
    let address = line.trim().rsplit_once('@').context("no address")?.1;
    let port = address.rsplit_once(':').context("no port")?.1;
    // The first rank listens only on the given address.
    let inside = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
    let is_open = capture(hosts.on(0, &["bash", "-c", &inside]))?.ok();
    ensure!(!is_open, "the first rank listens on another address as well");
    let hello = "{\"hello\":{\"protocol\":1,\"version\":\"0.1.0\",\"rank\":1,\"ranks\":2,\
                 \"host\":\"x\",\"what\":\"x\",\"token\":\"Bearer 0000\"}}";
    let script = format!("exec 3<>/dev/tcp/{}/{port}; echo '{hello}' >&3; cat <&3", ADDRESSES[0]);
    let answer = stdout_of(hosts.on(1, &["bash", "-c", &script]))?;
    ensure!(answer.is_empty(), "it was answered {answer}");
    // The second rank, which has the token, connects later, and the run continues.
    stdout_of(hosts.rank(env, 1, &dir))?;
    let first = first.wait(Duration::from_secs(RUN_MAX_S))?;
    let output = first.stderr;
    ensure!(first.code == Some(0) && output.contains("has not the token of this run"), "{output}");
    check_empty(&dir)?;
    Ok("refused, and the run continued".to_owned())
}
