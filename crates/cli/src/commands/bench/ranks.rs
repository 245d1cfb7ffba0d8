//! Benchmarks on several machines: ranks that run the same workload, synchronized by a barrier;
//! docs/bench-ranks.md.
//!
//! The ranks are started by `mpirun`, and rank 0 listens (`mpi.rs`), or by this command on hosts
//! (`hosts.rs`), which communicates with them over the standard input and output of the program
//! that starts them. The leader implements the barrier (`coordinator.rs`); each rank has a
//! connection to the leader (`communicator.rs`).
//!
//! Invariants: a peer must present the token of the run, or connect over a private channel; another
//! version of Larder or another benchmark is refused; no socket listens except at the configured
//! address.

mod communicator;
mod coordinator;
mod hosts;
mod link;
mod mpi;

use super::local_host::LocalHost;
use super::run_args::{RunArgs, Trials};
use crate::output::OutputFile;
use crate::signals::Stop;
use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use communicator::Communicator;
use coordinator::{RESULT, RankLink};
use larder_lab::bench::{BenchError, Ranks, RunResult, Start, total};
use larder_report::run::Run;
use larder_report::run::parts::Part;
use link::{Hello, PROTOCOL};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;

/// Time limit for all ranks to join, including passwords and slow logins.
const JOIN_MAX: Duration = Duration::from_mins(2);
/// Maximum number of ranks; more are assumed to be a mistake.
const RANKS_MAX: usize = 1024;

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Several machines")]
pub(super) struct MultiHostArgs {
    /// Start this command on these hosts, one rank on each, and run the ranks together.
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    hosts: Vec<String>,

    /// Command that starts a command on a host, as in 'ssh -p 2222'; host and command are appended.
    #[arg(long, value_name = "COMMAND", default_value = "ssh", requires = "hosts")]
    ssh: String,

    /// Path of larder on the hosts.
    #[arg(long, value_name = "PATH", default_value = "larder", requires = "hosts")]
    program: String,

    /// Under mpirun: address at which rank 0 listens for the other ranks.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = address)]
    listen: SocketAddr,

    /// Under mpirun: a file that rank 0 creates, with its address and the token for the other
    /// ranks. With several machines it must be on a shared file system.
    #[arg(long, value_name = "FILE")]
    rendezvous: Option<OutputFile>,

    /// Number of this rank, number of ranks, and host; set by --hosts.
    #[arg(long, value_name = "RANK/RANKS@HOST", hide = true, value_parser = parse_rank)]
    rank: Option<RankId>,
}

/// The number of this rank, the number of ranks, and its host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RankId {
    rank: usize,
    ranks: usize,
    host: String,
}

/// Parses `RANK/RANKS@HOST`.
fn parse_rank(text: &str) -> Result<RankId, String> {
    let parts = text.split_once('@').and_then(|(numbers, host)| {
        let (rank, ranks) = numbers.split_once('/')?;
        let (rank, ranks): (usize, usize) = (rank.parse().ok()?, ranks.parse().ok()?);
        let host = host.to_owned();
        (rank < ranks && ranks <= RANKS_MAX).then_some(RankId { rank, ranks, host })
    });
    parts.ok_or_else(|| format!("\"{text}\" is no rank; write 0/2@host"))
}

/// Parses an address to listen on, with an optional port.
fn address(text: &str) -> Result<SocketAddr, String> {
    let ip = text.parse().map(|ip| SocketAddr::new(ip, 0));
    let found = ip.ok().or_else(|| text.parse().ok());
    found.ok_or_else(|| format!("\"{text}\" is no address; write 10.0.0.1 or 10.0.0.1:4000"))
}

/// The role of this process.
enum Role {
    Alone,
    /// Started by `--hosts` on another process's behalf.
    Started(RankId),
    /// Started by `mpirun`.
    Mpi(RankId),
}

impl MultiHostArgs {
    /// Returns true if there is more than one rank.
    pub(super) fn is_enabled(&self) -> bool {
        !self.hosts.is_empty() || !matches!(self.role(), Ok(Role::Alone))
    }

    fn role(&self) -> Result<Role> {
        if let Some(rank_id) = &self.rank {
            return Ok(Role::Started(rank_id.clone()));
        }
        Ok(mpi::detect_rank(|name| std::env::var(name).ok())?.map_or(Role::Alone, Role::Mpi))
    }

    /// Returns the first message of a rank.
    fn hello(rank_id: &RankId, name: &str, description: &str) -> Hello {
        Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            rank: rank_id.rank,
            ranks: rank_id.ranks,
            host: rank_id.host.clone(),
            what: format!("{name}: {description}"),
            token: String::new(),
        }
    }
}

/// Checks that an authenticated peer matches the ranks that have joined; returns the reason if not.
fn check_peer(hello: &Hello, ranks: usize, joined: &[Option<RankLink>]) -> Result<(), String> {
    let peer = format!("rank {} on {}", hello.rank, hello.host);
    let ours = env!("CARGO_PKG_VERSION");
    if (hello.protocol, hello.version.as_str()) != (PROTOCOL, ours) {
        let theirs = &hello.version;
        return Err(format!("{peer} is larder {theirs}, and this is {ours}: all must be the same"));
    }
    if hello.ranks != ranks || hello.rank >= ranks {
        return Err(format!("{peer} is one of {}, and here are {ranks}", hello.ranks));
    }
    if let Some(other) = &joined[hello.rank] {
        return Err(format!("{peer} and {} are both this rank", other.name()));
    }
    let differs = |other: &&RankLink| other.hello.what != hello.what;
    joined.iter().flatten().find(differs).map_or(Ok(()), |other| {
        let (new, old) = (&hello.what, &other.hello.what);
        Err(format!("{peer} measures \"{new}\", and {} \"{old}\"", other.name()))
    })
}

/// Sends the reason for a failed start to all ranks that have joined.
fn notify_failure(joined: Vec<Option<RankLink>>, reason: &str) {
    for mut rank in joined.into_iter().flatten() {
        // Errors are ignored: the rank may have ended.
        drop(link::write(&mut rank.link.writer, &link::Message::Ends(reason.to_owned())));
    }
}

/// Combines the results of all ranks into one run. If a host has only one rank, the part is named
/// after the host.
fn combine_results(run_args: &RunArgs, hosts: &[String], results: Vec<Value>) -> Result<Run> {
    ensure!(hosts.len() == results.len(), "gather the results: not every rank has one");
    let part = |(rank, (host, value)): (usize, (&String, Value))| {
        let run = Run::from_json(&value.to_string())?;
        let is_only_rank = hosts.iter().filter(|other| *other == host).count() == 1;
        let name = if is_only_rank { host.clone() } else { format!("{host}, rank {rank}") };
        let labels: BTreeMap<String, String> =
            [("host".to_owned(), host.clone()), ("rank".to_owned(), rank.to_string())].into();
        Ok(Part { name, labels, run })
    };
    let parts = hosts.iter().zip(results).enumerate().map(part).collect::<Result<Vec<Part>>>()?;
    // The repetitions are as in this process; the parts contain the start.
    Ok(total(parts, &run_args.plan(Start::default())))
}

/// The leader thread in this process, if any, with the hosts of all ranks and their results.
type Leader = JoinHandle<Result<(Vec<String>, Vec<Value>), String>>;

impl RunArgs {
    /// Leads ranks on other hosts, if `--hosts` is given; returns `None` otherwise. It is called
    /// before any file of the benchmark is examined, as those are on the hosts.
    pub(super) fn lead_ranks(&self, name: &str) -> Result<Option<ExitCode>> {
        if self.multi_host.hosts.is_empty() {
            return Ok(None);
        }
        let stop = Stop::listen()?;
        let hosts = &self.multi_host.hosts;
        match hosts::lead(&self.multi_host, stop.flag()) {
            Ok(results) => {
                let run = combine_results(self, hosts, results)?;
                self.finish(name, (stop, Ok(RunResult { run, stopped: false }))).map(Some)
            }
            Err(error) => {
                stop.reraise_signal()?;
                Err(anyhow!("run {name} together: {error}"))
            }
        }
    }

    /// Runs the benchmark alone or as one of several ranks, and prints the result. `play` gets the
    /// host, the flag that stops it, and the progress display.
    pub(super) fn run_ranked(
        &self,
        name: &str,
        description: &str,
        play: impl FnOnce(&LocalHost, &AtomicBool, &mut Trials) -> Result<RunResult, BenchError>,
    ) -> Result<ExitCode> {
        let stop = Stop::listen()?;
        let (communicator, leader) = match self.multi_host.role()? {
            Role::Alone => {
                let mut bar = Trials::new("");
                let result = play(&self.host(), stop.flag(), &mut bar);
                bar.end();
                return self.finish(name, (stop, result));
            }
            Role::Started(rank_id) => {
                (hosts::join(MultiHostArgs::hello(&rank_id, name, description), &stop)?, None)
            }
            Role::Mpi(rank_id) => mpi::join(
                &self.multi_host,
                MultiHostArgs::hello(&rank_id, name, description),
                &stop,
            )?,
        };
        let communicator = Arc::new(communicator);
        let mut bar = if communicator.is_rank_0() { Trials::new("") } else { Trials::hidden() };
        let host = self.host().with(Arc::<Communicator>::clone(&communicator));
        let result = play(&host, stop.flag(), &mut bar);
        bar.end();
        let run = match send_result(&communicator, result) {
            Ok(()) => {
                communicator.leave(None);
                let Some(leader) = leader else { return Ok(ExitCode::SUCCESS) };
                let results = leader.join().expect("the leader does not panic");
                let (hosts, results) =
                    results.map_err(|error| anyhow!("run {name} together: {error}"))?;
                combine_results(self, &hosts, results)?
            }
            Err(error) => {
                let leader_reason = communicator.reason();
                let own_reason = error.is_stop().then(|| "it was stopped".to_owned());
                let own_reason = own_reason.unwrap_or_else(|| error.to_string());
                communicator.leave(leader_reason.is_none().then_some(own_reason.as_str()));
                // The leader waits until the other ranks have cleaned up.
                drop(leader.map(JoinHandle::join));
                if let Some(reason) = leader_reason {
                    bail!("run {name} together: {reason}; what was made here is removed");
                }
                if error.is_stop() {
                    eprintln!("larder: stopped; what it made is removed");
                    stop.reraise_signal()?;
                }
                return Err(error).context(format!("run {name}"));
            }
        };
        self.finish(name, (stop, Ok(RunResult { run, stopped: false })))
    }
}

/// Sends the record to the leader, after all ranks have one. A stopped run is an error.
fn send_result(
    communicator: &Communicator,
    result: Result<RunResult, BenchError>,
) -> Result<(), BenchError> {
    let result = result?;
    if result.stopped {
        return Err(BenchError::Stopped);
    }
    let run = serde_json::to_value(&result.run);
    let run = run.map_err(|error| BenchError::Workload(format!("hand over: {error}")))?;
    communicator.wait_at_barrier(RESULT, run).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use link::Link;

    #[test]
    fn seats_and_addresses_are_read() {
        let host = "b@c".to_owned();
        assert_eq!(parse_rank("1/2@b@c"), Ok(RankId { rank: 1, ranks: 2, host }));
        for wrong in ["", "1@a", "2/2@a", "x/2@a", "0/9999@a"] {
            assert!(parse_rank(wrong).unwrap_err().contains("is no rank"), "{wrong}");
        }
        assert_eq!(address("10.0.0.1").unwrap().port(), 0);
        assert_eq!(address("[::1]:7").unwrap().port(), 7);
        assert!(address("host").unwrap_err().contains("is no address"));
    }

    #[test]
    fn who_does_not_fit_is_refused_with_a_sentence() {
        let hello = |rank: usize, what: &str| Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            rank,
            ranks: 2,
            host: format!("h{rank}"),
            what: what.to_owned(),
            token: String::new(),
        };
        let link = Link::new(std::io::empty(), std::io::sink());
        let joined = [Some(RankLink { hello: hello(0, "x"), link }), None];
        assert_eq!(check_peer(&hello(1, "x"), 2, &joined), Ok(()));
        let error = |hello: &Hello| check_peer(hello, 2, &joined).unwrap_err();
        let old = Hello { version: "0.0.1".to_owned(), ..hello(1, "x") };
        assert!(error(&old).starts_with("rank 1 on h1 is larder 0.0.1, and this is "));
        assert!(error(&hello(0, "x")).contains("are both this rank"));
        assert_eq!(error(&hello(1, "y")), "rank 1 on h1 measures \"y\", and rank 0 on h0 \"x\"");
        let three = Hello { ranks: 3, ..hello(1, "x") };
        assert_eq!(error(&three), "rank 1 on h1 is one of 3, and here are 2");
    }
}
