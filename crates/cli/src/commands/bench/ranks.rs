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

use crate::output_file::OutputFile;
use crate::signals::Stop;
use anyhow::Result;
use clap::Args;
pub(super) use communicator::Communicator;
pub(super) use coordinator::RESULT;
use coordinator::RankLink;
use link::{Hello, PROTOCOL};
use serde_json::Value;
use std::net::SocketAddr;
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

    /// Returns the hosts on which this command starts ranks; empty if it starts none.
    pub(super) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Starts the ranks on the hosts; returns their results.
    pub(super) fn lead(&self, stop: &AtomicBool) -> Result<Vec<Value>> {
        hosts::lead(self, stop)
    }

    /// Joins the other ranks, and starts the leader if it belongs to this process. Returns `None`
    /// if there are no other ranks.
    pub(super) fn join(
        &self,
        name: &str,
        description: &str,
        stop: &Stop,
    ) -> Result<Option<(Communicator, Option<Leader>)>> {
        Ok(match self.role()? {
            Role::Alone => None,
            Role::Started(rank_id) => {
                Some((hosts::join(Self::hello(&rank_id, name, description), stop)?, None))
            }
            Role::Mpi(rank_id) => {
                Some(mpi::join(self, Self::hello(&rank_id, name, description), stop)?)
            }
        })
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

/// The leader thread in this process, if any, with the hosts of all ranks and their results.
pub(super) type Leader = JoinHandle<Result<(Vec<String>, Vec<Value>), String>>;

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
