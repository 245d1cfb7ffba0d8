//! Trials of the demo, with and without a cache, by the second-half rule.

use super::DemoContext;
use super::disk::Disk;
use crate::progress;
use anyhow::{Context, Result, anyhow};
use indicatif::ProgressBar;
use larder_core::clock::{Clock, Nanos};
use larder_core::counters::Totals;
use larder_core::frames::Frames;
use larder_core::policy::PolicyKind;
use larder_core::store::{Buffer, Segment, StoreCompletion, StoreOp, StoreOpKind};
use larder_core::volume::VolumeOptions;
use larder_io::engine::{Engine, EngineOptions};
use larder_io::frames::ArenaFrames;
use larder_io::front::nbd::{Export, ListenAddress, Server, ServerLimits};
use larder_io::nbd_client::Client;
use larder_io::waker::Waker;
use larder_lab::trace::{Op, Record};
use larder_lab::workload::probe::{Action, Probe, ProbeRequest, ProbeRequests};
use larder_lab::workload::trial::Trial;
use larder_mem::{Arena, ArenaOptions};
use std::sync::Arc;

/// Maximum number of recorded requests: 48 MB of memory during a trial.
const REQUESTS_MAX: usize = 1_000_000;

/// Operations per second of the measured half.
pub(super) type Rate = f64;

/// Generates the requests of a trial until its time is over.
struct Runner<'a> {
    context: &'a DemoContext,
    requests: ProbeRequests,
    trial: Trial,
    started_at: Nanos,
    bar: ProgressBar,
    /// The requests of the trial, if they are recorded.
    recorded: Option<Vec<Record>>,
}

impl<'a> Runner<'a> {
    fn new(context: &'a DemoContext, probe: &Probe, title: &str) -> Self {
        let now = context.clock.now();
        let length = u64::try_from(context.trial.as_nanos()).expect("at most minutes");
        let bar = progress::bar(length / 1_000_000, "{prefix:32} [{bar:30}] {eta} left");
        bar.set_prefix(title.to_owned());
        Runner {
            context,
            requests: probe.requests(super::SEED),
            trial: Trial::new(now, length),
            started_at: now,
            bar,
            recorded: None,
        }
    }

    /// Returns the next request; `None` when the trial is over.
    fn next(&mut self) -> Result<Option<ProbeRequest>> {
        self.context.check()?;
        self.started_at = self.context.clock.now();
        if self.trial.is_over(self.started_at) {
            self.bar.finish_and_clear();
            return Ok(None);
        }
        let elapsed = (self.started_at - self.trial.begins_at()) / 1_000_000;
        if self.bar.position() + 100 < elapsed {
            self.bar.set_position(elapsed);
        }
        let request = self.requests.next();
        if let (Some(recorded), Some(request)) = (&mut self.recorded, &request)
            && recorded.len() < REQUESTS_MAX
        {
            recorded.push(Record {
                time_ns: self.started_at - self.trial.begins_at(),
                offset: request.offset,
                len: request.len,
                op: match request.action {
                    Action::Read => Op::Read,
                    Action::Write => Op::Write,
                },
                ..Record::default()
            });
        }
        Ok(request)
    }

    fn is_measuring(&self) -> bool {
        self.trial.measures(self.started_at)
    }

    fn record_completion(&mut self) {
        let now = self.context.clock.now();
        self.trial.record(self.started_at, now, now - self.started_at);
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn rate(&self) -> Result<Rate> {
        let times = self.trial.response_times().context("measure: no request was finished")?;
        Ok(times.count as f64 * 1e9 / times.measured_ns.max(1) as f64)
    }
}

/// Size of a request that reads the working set into the cache.
const WARM_BYTES: u64 = 256 << 10;

/// Result of a trial with the cache: its rate, and the counters of its measured half.
pub(super) struct CachedTrial {
    pub(super) rate: Rate,
    pub(super) measured: Totals,
    /// The counters of the half before.
    pub(super) before: Totals,
    /// Its first requests, if they were recorded.
    pub(super) requests: Vec<Record>,
}

/// Runs a trial with the cache: an NBD server on a socket, and a client in this process. A working
/// set that fits is read in first; requests are recorded if `records` says so.
pub(super) fn cached(
    context: &DemoContext,
    disk: Disk,
    probe: &Probe,
    [fits, records]: [bool; 2],
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
    runner.recorded = records.then(Vec::new);
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
        runner.record_completion();
    }
    let before = half_way.unwrap_or_default();
    let measured = volume.totals().since(&before);
    client.disconnect().context("leave our own server")?;
    server.close();
    engine.shut_down();
    let requests = runner.recorded.take().unwrap_or_default();
    Ok(CachedTrial { rate: runner.rate()?, measured, before, requests })
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

/// Runs a trial without a cache: each request goes directly to the store.
pub(super) fn uncached(
    context: &DemoContext,
    disk: Disk,
    probe: &Probe,
    title: &str,
) -> Result<Rate> {
    let arena = Arena::new(ArenaOptions { frames: 1, huge_pages: false, lock: false })?;
    let frames = ArenaFrames::new(arena);
    let waker = Waker::new()?;
    let mut store = disk.store;
    let mut runner = Runner::new(context, probe, &format!("{title}, without"));
    let mut done = Vec::new();
    while let Some(request) = runner.next()? {
        let now = context.clock.now();
        store.submit(now, &frames, operation(&frames, &request, now));
        while done.is_empty() {
            store.reap(context.clock.now(), &frames, &mut done);
            if done.is_empty() {
                store.wait(&waker, None)?;
            }
        }
        for StoreCompletion { op, result, .. } in done.drain(..) {
            for segment in op.segments {
                match segment.buffer {
                    Buffer::Owned(pin) => frames.release_write_pin(pin),
                    Buffer::Pinned(pin) => frames.unpin(pin),
                }
            }
            result.map_err(|error| anyhow!("{error}"))?;
        }
        runner.record_completion();
    }
    runner.rate()
}

fn operation(frames: &ArenaFrames, request: &ProbeRequest, now: u64) -> StoreOp<ArenaFrames> {
    let pin = frames.try_write_pin(0).expect("one request at a time");
    let (kind, buffer) = match request.action {
        Action::Read => (StoreOpKind::Read, Buffer::Owned(pin)),
        Action::Write => (StoreOpKind::Write { fua: false }, Buffer::Pinned(frames.downgrade(pin))),
    };
    let len = u32::try_from(request.len).expect("a record");
    StoreOp {
        tag: 0,
        kind,
        offset: request.offset,
        len: request.len,
        segments: vec![Segment { buffer, offset: 0, len }],
        queued_at: now,
    }
}
