//! One connection of the load: several requests in flight, and verification of each reply.
//!
//! Invariants: no two requests in flight overlap, unless both are reads, so a read has one correct
//! result; the record of a request is logged before the request is sent, the record of a reply
//! after it was received.

use super::area::{Area, Range};
use super::log::{Log, Record};
use super::sector::{self, Content, Name, SECTOR_BYTES};
use anyhow::{Context, Result, bail};
use larder_io::nbd_client::{Client, ClientError, Completion, Errno, Request};
use larder_io::nbd_wire::CMD_FLAG_FUA;
use larder_lab::random::Random;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Flushes per hundred requests.
const FLUSHES: u64 = 3;
/// Writes per hundred requests.
const WRITES: u64 = 57;
/// One write in this many has FUA.
const FUA: u64 = 16;
/// Attempts to find a range that does not overlap a request in flight.
const ATTEMPTS_MAX: u32 = 8;

/// State that the connections of a load share.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) seed: u64,
    pub(super) depth: usize,
    pub(super) log: Log,
    pub(super) until: Option<Instant>,
    pub(super) stop: AtomicBool,
}

/// Totals of a load.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoadTotals {
    pub(super) writes: u64,
    pub(super) written_bytes: u64,
    pub(super) reads: u64,
    pub(super) read_bytes: u64,
    pub(super) flushes: u64,
    /// Connections that broke.
    pub(super) broken: u64,
}

impl LoadTotals {
    /// Returns the sum of both.
    pub(super) fn plus(&self, other: &LoadTotals) -> LoadTotals {
        LoadTotals {
            writes: self.writes + other.writes,
            written_bytes: self.written_bytes + other.written_bytes,
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            flushes: self.flushes + other.flushes,
            broken: self.broken + other.broken,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum LoadOperation {
    Read(Range),
    Write(Range),
    Flush,
}

/// A request in flight.
#[derive(Debug)]
struct RequestInFlight {
    cookie: u64,
    id: u64,
    operation: LoadOperation,
}

/// A connection and the known contents of its stripes.
#[derive(Debug)]
pub(super) struct Connection<'a> {
    load: &'a Load,
    client: Client,
    number: u64,
    area: Area,
    random: Random,
    /// By stripe, the last acknowledged write to each sector; 0 for none.
    last_written: HashMap<u64, Box<[u64]>>,
    in_flight: Vec<RequestInFlight>,
    /// Buffers that are not in flight.
    spare: Vec<Vec<u8>>,
    count: u64,
    totals: LoadTotals,
}

impl<'a> Connection<'a> {
    pub(super) fn new(load: &'a Load, client: Client, number: u64, area: Area) -> Self {
        // Independent random streams from one seed.
        let random = Random::from_seed(load.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Connection {
            load,
            client,
            number,
            area,
            random,
            last_written: HashMap::new(),
            in_flight: Vec::new(),
            spare: Vec::new(),
            count: 0,
            totals: LoadTotals::default(),
        }
    }

    /// Runs until the connection breaks, time is up, or another connection has ended. The first
    /// connection that ends before its time ends the whole load.
    pub(super) fn run(mut self) -> Result<LoadTotals> {
        let mut result = self.drive();
        if result.as_ref().is_err_and(is_disconnect) {
            self.totals.broken = 1;
            self.load.stop.store(true, Ordering::Release);
            result = self.collect();
        }
        self.load.stop.fetch_or(result.is_err(), Ordering::AcqRel);
        result.map(|()| self.totals)
    }

    fn drive(&mut self) -> Result<()> {
        while !self.is_over() {
            while self.in_flight.len() < self.load.depth && self.send()? {}
            self.receive()?;
        }
        while !self.in_flight.is_empty() {
            self.receive()?;
        }
        self.send_flush()?;
        self.receive()
    }

    fn is_over(&self) -> bool {
        self.load.stop.load(Ordering::Acquire)
            || self.load.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Receives the replies that arrived before the connection broke.
    fn collect(&mut self) -> Result<()> {
        while let Ok(completion) = self.client.wait() {
            match self.complete(completion) {
                Err(error) if !is_disconnect(&error) => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Sends one request; returns `false` if no free range was found.
    fn send(&mut self) -> Result<bool> {
        let draw = self.random.below(100);
        if draw < FLUSHES {
            self.send_flush()?;
            return Ok(true);
        }
        let write = draw < FLUSHES + WRITES;
        for _ in 0..ATTEMPTS_MAX {
            let range = self.area.draw(&mut self.random);
            let free = self.in_flight.iter().all(|request| match request.operation {
                LoadOperation::Flush => true,
                LoadOperation::Read(other) => !write || !range.overlaps(&other),
                LoadOperation::Write(other) => !range.overlaps(&other),
            });
            if free {
                if write {
                    self.send_write(range)?;
                } else {
                    self.send_read(range)?;
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn send_write(&mut self, range: Range) -> Result<()> {
        let id = self.next_id();
        let fua = self.random.below(FUA) == 0;
        let mut data = self.buffer(range);
        sector::fill(self.load.seed, id, range.first, &mut data);
        let sectors = u32::try_from(range.sectors).expect("a request is short");
        self.load.log.add(Record::Write { id, first: range.first, sectors, fua })?;
        let flags = if fua { CMD_FLAG_FUA } else { 0 };
        let request = Request::write(range.offset(), data).with_flags(flags);
        self.submit(request, id, LoadOperation::Write(range))
    }

    fn send_read(&mut self, range: Range) -> Result<()> {
        let mut buffer = self.buffer(range);
        // Nonzero fill, so that a reply that leaves the buffer unchanged fails the verification.
        buffer.fill(0xa5);
        self.submit(Request::read(range.offset(), buffer), 0, LoadOperation::Read(range))
    }

    fn send_flush(&mut self) -> Result<()> {
        let id = self.next_id();
        self.load.log.add(Record::Flush { id })?;
        self.submit(Request::flush(), id, LoadOperation::Flush)
    }

    fn submit(&mut self, request: Request, id: u64, operation: LoadOperation) -> Result<()> {
        let cookie = self.client.submit(request)?;
        self.in_flight.push(RequestInFlight { cookie, id, operation });
        Ok(())
    }

    fn next_id(&mut self) -> u64 {
        self.count += 1;
        sector::id(self.number, self.count)
    }

    fn buffer(&mut self, range: Range) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(range.bytes(), 0);
        buffer
    }

    fn receive(&mut self) -> Result<()> {
        let completion = self.client.wait()?;
        self.complete(completion)
    }

    /// Processes a reply.
    fn complete(&mut self, completion: Completion) -> Result<()> {
        let at = self.in_flight.iter().position(|request| request.cookie == completion.cookie);
        let RequestInFlight { id, operation, .. } =
            self.in_flight.swap_remove(at.context("match an answer with a request")?);
        if let Err(error) = completion.result {
            return Err(ClientError::Request(error).into());
        }
        match operation {
            LoadOperation::Flush => {
                self.load.log.add(Record::Flushed { id })?;
                self.totals.flushes += 1;
            }
            LoadOperation::Write(range) => {
                self.load.log.add(Record::Written { id })?;
                self.last_written_to(range).fill(id);
                self.totals.writes += 1;
                self.totals.written_bytes += completion.data.len() as u64;
            }
            LoadOperation::Read(range) => {
                self.verify(range, &completion.data)?;
                self.totals.reads += 1;
                self.totals.read_bytes += completion.data.len() as u64;
            }
        }
        self.spare.push(completion.data);
        Ok(())
    }

    fn last_written_to(&mut self, range: Range) -> &mut [u64] {
        let len = self.area.stripe_sectors();
        let stripe = self.last_written.entry(range.stripe).or_insert_with(|| vec![0; len].into());
        let at = usize::try_from(range.at).expect("a stripe fits memory");
        &mut stripe[at..at + range.bytes() / SECTOR_BYTES]
    }

    /// Compares the data read with the last write. The contents before the load are unknown, but
    /// must not be misplaced or torn sectors of this load.
    fn verify(&mut self, range: Range, data: &[u8]) -> Result<()> {
        let seed = self.load.seed;
        let sectors = data.chunks_exact(SECTOR_BYTES).zip(range.first..);
        for ((bytes, sector), &known) in sectors.zip(&*self.last_written_to(range)) {
            let content = sector::classify(seed, sector, bytes);
            if known != 0 && content != Content::Intact(known) {
                bail!(
                    "read sector {sector} as it was written: expected write {}, got {content}",
                    Name(known)
                );
            }
            if matches!(content, Content::Torn(_) | Content::Misplaced { .. }) {
                bail!("read sector {sector}, not yet written: got {content}");
            }
        }
        Ok(())
    }
}

/// Returns true for the expected end of a load: the server has exited or shuts down.
fn is_disconnect(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Closed) => true,
        Some(error) => error.errno() == Some(Errno::Shutdown),
        None => false,
    }
}
