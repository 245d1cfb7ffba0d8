//! A trial with the cache: an NBD server on a socket, and a client in this process.

use super::DemoContext;
use super::disk::Disk;
use super::runner::{Rate, Runner};
use anyhow::{Context, Result};
use larder_core::counters::Totals;
use larder_core::policy::PolicyKind;
use larder_core::volume::VolumeOptions;
use larder_io::engine::{Engine, EngineOptions};
use larder_io::front::nbd::{Export, ListenAddress, Server, ServerLimits};
use larder_io::nbd_client::Client;
use larder_lab::workload::probe::{Action, Probe};
use std::sync::Arc;

/// Size of a request that reads the working set into the cache.
const WARM_BYTES: u64 = 256 << 10;

/// Result of a trial with the cache: its rate, and the counters of its measured half.
pub(super) struct CachedTrial {
    pub(super) rate: Rate,
    pub(super) measured: Totals,
    /// Blocks not yet written to the disk at the end of the trial.
    pub(super) left: u64,
}

pub(super) fn trial(
    context: &DemoContext,
    disk: Disk,
    probe: &Probe,
    fits: bool,
    title: &str,
) -> Result<CachedTrial> {
    let policy = PolicyKind::S3Fifo;
    let engine = Arc::new(Engine::new(EngineOptions {
        memory_bytes: context.memory,
        huge_pages: true,
        lock: false,
        threads: 1,
        policy_bytes: policy.bytes_per_page(),
    })?);
    let volume =
        engine.add_volume(VolumeOptions::new("demo", disk.store.geometry()), disk.store)?;
    let directory = tempfile::tempdir().context("make a directory for the socket")?;
    let address = ListenAddress::Unix(directory.path().join("demo.sock"));
    let limits = ServerLimits::default();
    let export = Export::new(Arc::clone(&volume), disk.map, true, &limits);
    let server = Server::start(Arc::clone(&engine), &address, vec![export], limits)?;
    let uri = server.uri("demo").parse().context("read our own address")?;
    let mut client = Client::connect(&uri).context("connect to our own server")?;

    if fits {
        warm(context, &mut client, probe.file_bytes)?;
    }
    let mut runner = Runner::new(context, probe, &format!("{title}, with"));
    let mut buffer = vec![0x5a; usize::try_from(probe.record_bytes).expect("a record")];
    let mut half_way = None;
    while let Some(request) = runner.next()? {
        if half_way.is_none() && runner.is_measuring() {
            half_way = Some(volume.totals());
        }
        let bytes = &mut buffer[..usize::try_from(request.len).expect("a record")];
        match request.action {
            Action::Read => client.read_at(request.offset, bytes)?,
            Action::Write => client.write_at(request.offset, bytes, false)?,
        }
        runner.record_completion(&request);
    }
    let measured = volume.totals().since(&half_way.unwrap_or_default());
    let left = volume.unclean_blocks();
    client.disconnect().context("leave our own server")?;
    server.close();
    engine.shut_down();
    Ok(CachedTrial { rate: runner.rate()?, measured, left })
}

fn warm(context: &DemoContext, client: &mut Client, bytes: u64) -> Result<()> {
    let mut at = 0;
    while at < bytes {
        context.check()?;
        let len = WARM_BYTES.min(bytes - at);
        client.cache(at, u32::try_from(len).expect("256 KiB"))?;
        at += len;
    }
    Ok(())
}
