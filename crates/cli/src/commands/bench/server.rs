//! `larder bench server`: steps with an increasing number of clients, until a server is saturated.

use super::leftovers::remove_leftovers;
use super::places::FileOptions;
use super::probe::{milliseconds, pair};
use super::run_args::RunArgs;
use crate::args;
use anyhow::{Result, ensure};
use clap::Args;
use larder_lab::bench::Start;
use larder_lab::bench::server::{Directory, Extent, ItemLocation, ServerBench, Steps};
use larder_lab::random::Spread;
use larder_lab::workload::server::{Mix, ServerLoad};
use std::path::Path;
use std::process::ExitCode;

/// Maximum number of clients, each of which is a thread; more are assumed to be a mistake.
const CLIENTS_MAX: u64 = 4096;

#[derive(Debug, Args)]
pub(super) struct ServerArgs {
    /// A directory, a file, a block device, or an NBD address.
    ///
    /// In a directory, on a mounted file system for a file server, files are created and removed.
    /// Addresses of exports begin with nbd:// or nbd+unix://.
    #[arg(value_name = "TARGET")]
    target: String,

    /// Clients of each step.
    #[arg(long, value_name = "NUMBER", value_delimiter = ',', default_value = "1,2,4,8,16",
          value_parser = clap::value_parser!(u64).range(1..=CLIENTS_MAX))]
    clients: Vec<u64>,

    /// Weights [default: read=70,write=20,copy=10].
    ///
    /// Weights of transactions that read an item, write one, and copy one to another.
    #[arg(long, value_name = "WEIGHTS", default_value = "read=70,write=20,copy=10",
          value_parser = mix, hide_default_value = true)]
    mix: Mix,

    /// Milliseconds of think time.
    ///
    /// Think time before each transaction, mean and standard deviation.
    #[arg(long, value_name = "MEAN[,SDEV]", default_value = "100,30", value_parser = pair,
          hide_short_help = true)]
    think: Spread,

    /// Items of each client.
    #[arg(long, value_name = "NUMBER", default_value_t = 16,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000), hide_short_help = true)]
    items: u64,

    /// Bytes of an item.
    #[arg(long, value_name = "SIZE", default_value = "256KiB", value_parser = args::bytes)]
    size: u64,

    /// Bytes of one read or write.
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = args::bytes)]
    record: u64,

    /// Duration of each step before its measurement.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = args::time,
          hide_short_help = true)]
    warm_up: u64,

    /// Measured duration of each step.
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = args::time)]
    measure: u64,

    /// Make writes stable before a transaction ends.
    #[arg(long)]
    sync: bool,

    /// Bypass the page cache, with direct I/O.
    #[arg(long)]
    unbuffered: bool,

    /// Write to an existing TARGET; its data is lost.
    #[arg(long)]
    overwrite: bool,

    #[command(flatten)]
    run_args: RunArgs,
}

fn mix(text: &str) -> Result<Mix, String> {
    Mix::parse(text).map_err(|error| error.to_string())
}

impl ServerArgs {
    fn share(&self) -> Result<ItemLocation> {
        let target = self.target.as_str();
        let (unbuffered, writes) = (self.unbuffered, self.mix.writes());
        let options = FileOptions { unbuffered, mapped: false, writes };
        let Some(place) = options.open(target)? else {
            let directory = Path::new(target);
            remove_leftovers(directory, "server");
            return Ok(ItemLocation::Directory(Directory::inside(directory, options.buffering())));
        };
        let clients = self.clients.iter().copied().max().unwrap_or(1);
        let extent = Extent { clients, items: self.items, item_bytes: self.size };
        let (available, needed) = (place.bytes(), extent.bytes());
        ensure!(needed <= available, "work on {needed} bytes of {target}: it has {available}");
        ensure!(
            self.overwrite || !writes,
            "work on {target}: the mix writes to it; add --overwrite, or use --mix read=1"
        );
        Ok(ItemLocation::Places(place))
    }

    fn bench(&self) -> Result<ServerBench> {
        let &ServerArgs { record, size, measure, warm_up, sync, mix, items, .. } = self;
        ensure!(size > 0 && record > 0, "work on items of 0 bytes: there is nothing to do");
        ensure!(measure > 0, "measure for no time: nothing can end in it");
        let fits = !self.unbuffered || (size % 512 == 0 && record % 512 == 0);
        ensure!(fits, "work past the page cache: items and records are multiples of 512 bytes");
        let is_increasing = self.clients.is_sorted_by(|one, next| one < next);
        ensure!(is_increasing, "load step by step: each step has more clients than the one before");
        let load = ServerLoad { mix, think: milliseconds(self.think), items };
        let clients = self.clients.clone();
        let steps = Steps { clients, warm_up, measure, record_bytes: record, sync };
        Ok(ServerBench::new(self.share()?, load, steps, size))
    }
}

pub(super) fn run(arguments: &ServerArgs) -> Result<ExitCode> {
    // Each step has its own warm-up, and the cache of a server cannot be queried.
    arguments.run_args.run("server", Start::AsIs, || arguments.bench())
}
