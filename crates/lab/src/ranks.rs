//! The ranks of a benchmark as processes on one or several machines; docs/bench-ranks.md.
//!
//! The ranks are started by `mpirun`, and rank 0 listens ([`mpi`]), or by the leader on hosts
//! ([`hosts`]), which communicates with them over the standard input and output of the program
//! that starts them. The leader implements the barrier (`coordinator.rs`); each rank has a
//! connection to the leader ([`Communicator`]).
//!
//! Invariants: a peer must present the token of the run, or connect over a private channel; another
//! version of Larder or another benchmark is refused; no socket listens except at the configured
//! address. Errors are sentences that can follow "cannot".

mod communicator;
mod coordinator;
pub mod hosts;
mod link;
pub mod mpi;

pub use communicator::{Communicator, RankError};
pub use link::{Hello, Link};

use crate::bench::{Plan, total};
use larder_schema::run::Part;
use larder_schema::run::Run;
use link::{Message, RankLink};
use serde_json::Value;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time limit for all ranks to join, including passwords and slow logins.
const JOIN_MAX: Duration = Duration::from_mins(2);
/// Maximum number of ranks; more are assumed to be a mistake.
const RANKS_MAX: usize = 1024;

/// The number of a rank, the number of ranks, and its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankId {
    /// The number, from 0.
    pub rank: usize,
    /// The number of ranks.
    pub ranks: usize,
    /// The name of its host.
    pub host: String,
}

impl RankId {
    /// Returns `None` unless the number is one of at most [`RANKS_MAX`].
    fn checked(rank: &str, ranks: &str, host: &str) -> Option<RankId> {
        let (rank, ranks) = (rank.parse().ok()?, ranks.parse().ok()?);
        let host = host.to_owned();
        (rank < ranks && ranks <= RANKS_MAX).then_some(RankId { rank, ranks, host })
    }
}

impl FromStr for RankId {
    type Err = String;

    /// Parses `RANK/RANKS@HOST`.
    fn from_str(text: &str) -> Result<RankId, String> {
        let parsed = text.split_once('@').and_then(|(numbers, host)| {
            let (rank, ranks) = numbers.split_once('/')?;
            RankId::checked(rank, ranks, host)
        });
        parsed.ok_or_else(|| format!("\"{text}\" is no rank; write 0/2@host"))
    }
}

/// Results of all ranks: a host and a record of each, in order.
pub type RankResults = Vec<(String, Value)>;

/// Combines the results of all ranks into one run. If a host has only one rank, the part is named
/// after the host.
///
/// # Errors
/// A result is no record.
pub fn combine(results: RankResults, plan: &Plan) -> Result<Run, String> {
    let hosts: Vec<String> = results.iter().map(|(host, _)| host.clone()).collect();
    let part = |(rank, (host, value)): (usize, (String, Value))| {
        let run = Run::from_json(&value.to_string()).map_err(|error| error.to_string())?;
        let is_only_rank = hosts.iter().filter(|other| **other == host).count() == 1;
        let name = if is_only_rank { host.clone() } else { format!("{host}, rank {rank}") };
        let labels = [("host".to_owned(), host), ("rank".to_owned(), rank.to_string())].into();
        Ok(Part { name, labels, run })
    };
    let parts = results.into_iter().enumerate().map(part).collect::<Result<_, String>>()?;
    Ok(total(parts, plan))
}

/// Leads ranks to the end; returns their results.
fn lead(ranks: Vec<RankLink>, stop: &AtomicBool) -> Result<RankResults, String> {
    let hosts: Vec<String> = ranks.iter().map(|rank| rank.hello.host.clone()).collect();
    Ok(hosts.into_iter().zip(coordinator::lead(ranks, stop)?).collect())
}

/// Waits until all ranks have joined, and returns them in order; an error is sent to those that
/// have joined.
///
/// `next` returns the next peer, or `None` after a short time without one; `name` is the name of a
/// rank that is missing.
fn gather(
    ranks: usize,
    first: Option<RankLink>,
    stop: &AtomicBool,
    mut next: impl FnMut() -> Result<Option<RankLink>, String>,
    name: impl Fn(usize) -> String,
) -> Result<Vec<RankLink>, String> {
    let mut joined: Vec<Option<RankLink>> = (0..ranks).map(|_| None).collect();
    if let Some(first) = first {
        joined[0] = Some(first);
    }
    let started_at = Instant::now();
    let error = loop {
        let Some(missing) = joined.iter().position(Option::is_none) else {
            return Ok(joined.into_iter().flatten().collect());
        };
        if stop.load(Ordering::Relaxed) {
            break "it was stopped".to_owned();
        }
        if started_at.elapsed() > JOIN_MAX {
            let seconds = JOIN_MAX.as_secs();
            break format!("{} did not come within {seconds} seconds", name(missing));
        }
        match next() {
            Ok(None) => {}
            Ok(Some(peer)) => match peer.hello.check(&joined) {
                Ok(()) => {
                    let rank = peer.hello.rank;
                    joined[rank] = Some(peer);
                }
                Err(error) => {
                    joined.push(Some(peer));
                    break error;
                }
            },
            Err(error) => break error,
        }
    };
    for mut peer in joined.into_iter().flatten() {
        // Errors are ignored: the rank may have ended.
        drop(link::write(&mut peer.link.writer, &Message::Ends(error.clone())));
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_read() {
        let host = "b@c".to_owned();
        assert_eq!("1/2@b@c".parse(), Ok(RankId { rank: 1, ranks: 2, host }));
        for wrong in ["", "1@a", "2/2@a", "x/2@a", "0/9999@a"] {
            assert!(wrong.parse::<RankId>().unwrap_err().contains("is no rank"), "{wrong}");
        }
    }
}
