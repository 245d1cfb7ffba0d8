//! Several machines: ranks that do the same together under one barrier; docs/bench-ranks.md.
//!
//! Either `mpirun` starts them, and rank 0 listens (`mpi.rs`), or this command starts them itself
//! on hosts (`hosts.rs`) and talks to them through what started them. Who leads keeps the barrier
//! (`hub.rs`); each rank has its way to the leader (`company.rs`).
//!
//! Invariants: nobody joins who does not show the token of the run, or come through a way that is
//! private; another version of Larder or another benchmark is refused; nothing is listened on but
//! what was asked for.

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

/// How long ranks may take to come, passwords and slow logins included.
const JOIN_MAX: Duration = Duration::from_mins(2);
/// More ranks than this are a mistake.
const RANKS_MAX: usize = 1024;

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Several machines")]
pub(super) struct MultiHostArgs {
    /// Start this very command on these hosts, one rank on each, and let them do the same together.
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    hosts: Vec<String>,

    /// What starts a command on a host, as in 'ssh -p 2222'; host and command are added.
    #[arg(long, value_name = "COMMAND", default_value = "ssh", requires = "hosts")]
    ssh: String,

    /// Where larder is on the hosts.
    #[arg(long, value_name = "PATH", default_value = "larder", requires = "hosts")]
    program: String,

    /// Under mpirun: where rank 0 listens for the others.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = address)]
    listen: SocketAddr,

    /// Under mpirun: a file that rank 0 makes, to tell the others where it listens and how they
    /// show that they belong to it. On several machines it must lie where all find it.
    #[arg(long, value_name = "FILE")]
    rendezvous: Option<OutputFile>,

    /// Which rank of how many this is, and on what host; who said --hosts says this.
    #[arg(long, value_name = "RANK/RANKS@HOST", hide = true, value_parser = seat)]
    rank: Option<Seat>,
}

/// Which rank this is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seat {
    rank: usize,
    ranks: usize,
    host: String,
}

/// `RANK/RANKS@HOST`.
fn seat(text: &str) -> Result<Seat, String> {
    let parts = text.split_once('@').and_then(|(numbers, host)| {
        let (rank, ranks) = numbers.split_once('/')?;
        let (rank, ranks): (usize, usize) = (rank.parse().ok()?, ranks.parse().ok()?);
        let host = host.to_owned();
        (rank < ranks && ranks <= RANKS_MAX).then_some(Seat { rank, ranks, host })
    });
    parts.ok_or_else(|| format!("\"{text}\" is no rank; write 0/2@host"))
}

/// An address to listen on, with a port or without.
fn address(text: &str) -> Result<SocketAddr, String> {
    let ip = text.parse().map(|ip| SocketAddr::new(ip, 0));
    let found = ip.ok().or_else(|| text.parse().ok());
    found.ok_or_else(|| format!("\"{text}\" is no address; write 10.0.0.1 or 10.0.0.1:4000"))
}

/// How this process takes part.
enum Role {
    Alone,
    /// Started by `--hosts` somewhere else.
    Started(Seat),
    /// Started by `mpirun`.
    Mpi(Seat),
}

impl MultiHostArgs {
    /// Whether there is more than one rank.
    pub(super) fn is_asked(&self) -> bool {
        !self.hosts.is_empty() || !matches!(self.role(), Ok(Role::Alone))
    }

    fn role(&self) -> Result<Role> {
        if let Some(seat) = &self.rank {
            return Ok(Role::Started(seat.clone()));
        }
        Ok(mpi::seat(|name| std::env::var(name).ok())?.map_or(Role::Alone, Role::Mpi))
    }

    /// What a rank says when it comes.
    fn hello(seat: &Seat, name: &str, what: &str) -> Hello {
        Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            rank: seat.rank,
            ranks: seat.ranks,
            host: seat.host.clone(),
            what: format!("{name}: {what}"),
            token: String::new(),
        }
    }
}

/// Whether a peer that may join fits to those who are there already; why not, in a sentence.
fn fits(hello: &Hello, ranks: usize, there: &[Option<RankLink>]) -> Result<(), String> {
    let who = format!("rank {} on {}", hello.rank, hello.host);
    let ours = env!("CARGO_PKG_VERSION");
    if (hello.protocol, hello.version.as_str()) != (PROTOCOL, ours) {
        let theirs = &hello.version;
        return Err(format!("{who} is larder {theirs}, and this is {ours}: all must be the same"));
    }
    if hello.ranks != ranks || hello.rank >= ranks {
        return Err(format!("{who} is one of {}, and here are {ranks}", hello.ranks));
    }
    if let Some(other) = &there[hello.rank] {
        return Err(format!("{who} and {} are both this rank", other.name()));
    }
    let differs = |other: &&RankLink| other.hello.what != hello.what;
    there.iter().flatten().find(differs).map_or(Ok(()), |other| {
        let (here, there) = (&hello.what, &other.hello.what);
        Err(format!("{who} measures \"{here}\", and {} \"{there}\"", other.name()))
    })
}

/// Says to all who are there why nothing comes of it.
fn turn_away(there: Vec<Option<RankLink>>, why: &str) {
    for mut member in there.into_iter().flatten() {
        // One who is gone need not be told.
        drop(link::write(&mut member.link.writer, &link::Message::Ends(why.to_owned())));
    }
}

/// What all handed over as one run. A host that has one rank only gives its name to the part.
fn as_one(playing: &RunArgs, hosts: &[String], handed: Vec<Value>) -> Result<Run> {
    ensure!(hosts.len() == handed.len(), "gather the results: not every rank has one");
    let part = |(rank, (host, value)): (usize, (&String, Value))| {
        let run = Run::from_json(&value.to_string())?;
        let alone = hosts.iter().filter(|other| *other == host).count() == 1;
        let name = if alone { host.clone() } else { format!("{host}, rank {rank}") };
        let labels: BTreeMap<String, String> =
            [("host".to_owned(), host.clone()), ("rank".to_owned(), rank.to_string())].into();
        Ok(Part { name, labels, run })
    };
    let parts = hosts.iter().zip(handed).enumerate().map(part).collect::<Result<Vec<Part>>>()?;
    // How often it was repeated is as here, and from where it started stands in the parts.
    Ok(total(parts, &playing.plan(Start::default())))
}

/// The leader in this process, if it is here, with the hosts of all ranks.
type Leader = JoinHandle<Result<(Vec<String>, Vec<Value>), String>>;

impl RunArgs {
    /// Leads ranks on other hosts, if that was asked for; nothing if not. It comes before anything
    /// of the benchmark is looked at: that is there and not here.
    pub(super) fn lead(&self, name: &str) -> Result<Option<ExitCode>> {
        if self.together.hosts.is_empty() {
            return Ok(None);
        }
        let stop = Stop::listen()?;
        let hosts = &self.together.hosts;
        match hosts::lead(&self.together, stop.flag()) {
            Ok(handed) => {
                let run = as_one(self, hosts, handed)?;
                self.finish(name, (stop, Ok(RunResult { run, stopped: false }))).map(Some)
            }
            Err(why) => {
                stop.end()?;
                Err(anyhow!("run {name} together: {why}"))
            }
        }
    }

    /// Plays alone or as one of several ranks, whatever was asked for, and prints what came out.
    /// `play` is given the machine, the flag that stops it, and what shows how far it is.
    pub(super) fn play_seated(
        &self,
        name: &str,
        what: &str,
        play: impl FnOnce(&LocalHost, &AtomicBool, &mut Trials) -> Result<RunResult, BenchError>,
    ) -> Result<ExitCode> {
        let stop = Stop::listen()?;
        let (company, leader) = match self.together.role()? {
            Role::Alone => {
                let mut bar = Trials::new("");
                let result = play(&self.here(), stop.flag(), &mut bar);
                bar.end();
                return self.finish(name, (stop, result));
            }
            Role::Started(seat) => {
                (hosts::join(MultiHostArgs::hello(&seat, name, what), &stop)?, None)
            }
            Role::Mpi(seat) => {
                mpi::join(&self.together, MultiHostArgs::hello(&seat, name, what), &stop)?
            }
        };
        let company = Arc::new(company);
        let mut bar = if company.is_first() { Trials::new("") } else { Trials::hidden() };
        let here = self.here().with(Arc::<Communicator>::clone(&company));
        let result = play(&here, stop.flag(), &mut bar);
        bar.end();
        let run = match hand_over(&company, result) {
            Ok(()) => {
                company.leave(None);
                let Some(leader) = leader else { return Ok(ExitCode::SUCCESS) };
                let handed = leader.join().expect("the leader does not panic");
                let (hosts, handed) =
                    handed.map_err(|why| anyhow!("run {name} together: {why}"))?;
                as_one(self, &hosts, handed)?
            }
            Err(error) => {
                let why = company.reason();
                let ours = error.is_stop().then(|| "it was stopped".to_owned());
                let ours = ours.unwrap_or_else(|| error.to_string());
                company.leave(why.is_none().then_some(ours.as_str()));
                // It waits for the others to clean up.
                drop(leader.map(JoinHandle::join));
                if let Some(why) = why {
                    bail!("run {name} together: {why}; what was made here is removed");
                }
                if error.is_stop() {
                    eprintln!("larder: stopped; what it made is removed");
                    stop.end()?;
                }
                return Err(error).context(format!("run {name}"));
            }
        };
        self.finish(name, (stop, Ok(RunResult { run, stopped: false })))
    }
}

/// Hands the record to the leader, when all have one. A run that was stopped is none.
fn hand_over(
    company: &Communicator,
    played: Result<RunResult, BenchError>,
) -> Result<(), BenchError> {
    let played = played?;
    if played.stopped {
        return Err(BenchError::Stopped);
    }
    let run = serde_json::to_value(&played.run);
    let run = run.map_err(|error| BenchError::Workload(format!("hand over: {error}")))?;
    company.wait_at_barrier(RESULT, run).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use link::Link;

    #[test]
    fn seats_and_addresses_are_read() {
        let host = "b@c".to_owned();
        assert_eq!(seat("1/2@b@c"), Ok(Seat { rank: 1, ranks: 2, host }));
        for wrong in ["", "1@a", "2/2@a", "x/2@a", "0/9999@a"] {
            assert!(seat(wrong).unwrap_err().contains("is no rank"), "{wrong}");
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
        let there = [Some(RankLink { hello: hello(0, "x"), link }), None];
        assert_eq!(fits(&hello(1, "x"), 2, &there), Ok(()));
        let why = |hello: &Hello| fits(hello, 2, &there).unwrap_err();
        let old = Hello { version: "0.0.1".to_owned(), ..hello(1, "x") };
        assert!(why(&old).starts_with("rank 1 on h1 is larder 0.0.1, and this is "));
        assert!(why(&hello(0, "x")).contains("are both this rank"));
        assert_eq!(why(&hello(1, "y")), "rank 1 on h1 measures \"y\", and rank 0 on h0 \"x\"");
        let three = Hello { ranks: 3, ..hello(1, "x") };
        assert_eq!(why(&three), "rank 1 on h1 is one of 3, and here are 2");
    }
}
