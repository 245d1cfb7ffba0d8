//! The arguments of benchmarks on several machines; docs/bench-ranks.md.

use crate::output_file::OutputFile;
use crate::signals::Stop;
use anyhow::{Error, Result};
use clap::Args;
use larder_lab::ranks::hosts::Hosts;
use larder_lab::ranks::mpi::Leader;
use larder_lab::ranks::{Communicator, Hello, Link, RankId, RankResults, hosts, mpi};
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Several machines")]
pub(super) struct MultiHostArgs {
    /// Start this command on these hosts, one rank on each, and run the ranks together.
    #[arg(long, value_name = "HOSTS", value_delimiter = ',', hide_short_help = true)]
    hosts: Vec<String>,

    /// Command that starts a command on a host, as in 'ssh -p 2222'; host and command are appended.
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "ssh",
        requires = "hosts",
        hide_short_help = true
    )]
    ssh: String,

    /// Path of larder on the hosts.
    #[arg(
        long,
        value_name = "PATH",
        default_value = "larder",
        requires = "hosts",
        hide_short_help = true
    )]
    program: String,

    /// Under mpirun: address at which rank 0 listens for the other ranks.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = address,
          hide_short_help = true)]
    listen: SocketAddr,

    /// Under mpirun: a file that rank 0 creates, with its address and the token for the other
    /// ranks. With several machines it must be on a shared file system.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    rendezvous: Option<OutputFile>,

    /// Number of this rank, number of ranks, and host; set by --hosts.
    #[arg(long, value_name = "RANK/RANKS@HOST", hide = true)]
    rank: Option<RankId>,
}

/// Parses an address to listen on, with an optional port.
fn address(text: &str) -> Result<SocketAddr, String> {
    let ip = text.parse().map(|ip| SocketAddr::new(ip, 0));
    let found = ip.ok().or_else(|| text.parse().ok());
    found.ok_or_else(|| format!("\"{text}\" is no address; write 10.0.0.1 or 10.0.0.1:4000"))
}

/// Returns the rank of this process as `mpirun` has set it, if there are several.
fn mpi_rank() -> Result<Option<RankId>, String> {
    mpi::detect_rank(|name| std::env::var(name).ok())
}

impl MultiHostArgs {
    /// Returns true if there is more than one rank.
    pub(super) fn is_enabled(&self) -> bool {
        !self.hosts.is_empty() || self.rank.is_some() || !matches!(mpi_rank(), Ok(None))
    }

    /// Returns the hosts on which this command starts ranks; empty if it starts none.
    pub(super) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Starts the ranks on the hosts; returns their results.
    pub(super) fn lead(&self, stop: &AtomicBool) -> Result<RankResults, String> {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let MultiHostArgs { hosts, ssh, program, .. } = self;
        hosts::lead(&Hosts { hosts, ssh, program, args: &args }, stop)
    }

    /// Joins the other ranks, and starts the leader if it belongs to this process. `what` describes
    /// the benchmark. Returns `None` if there are no other ranks.
    pub(super) fn join(
        &self,
        what: String,
        stop: &Stop,
    ) -> Result<Option<(Communicator, Option<Leader>)>> {
        if let Some(rank_id) = &self.rank {
            let link = Link::new(std::io::stdin(), crate::output::raw_stdout());
            let joined = Communicator::join(Hello::new(rank_id, what), link, stop.shared_flag());
            return Ok(Some((joined.map_err(Error::msg)?, None)));
        }
        let Some(rank_id) = mpi_rank().map_err(Error::msg)? else { return Ok(None) };
        let hello = Hello::new(&rank_id, what);
        let note = |text: &str| eprintln!("larder: note: {text}");
        let rendezvous = self.rendezvous.as_deref();
        mpi::join(self.listen, rendezvous, hello, &stop.shared_flag(), note)
            .map(Some)
            .map_err(Error::msg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        assert_eq!(address("10.0.0.1").unwrap().port(), 0);
        assert_eq!(address("[::1]:7").unwrap().port(), 7);
        assert!(address("host").unwrap_err().contains("is no address"));
    }
}
