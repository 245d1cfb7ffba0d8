//! One connection of the load: a few requests in flight, each answer judged.
//!
//! Invariants: no two requests in flight overlap, unless both read, so a read has one right answer;
//! a record is in the log before its request is sent, or after its answer has come.

use super::area::{Area, Range};
use super::log::{Log, Record};
use super::sector::{self, Content, Name, SECTOR_BYTES};
use anyhow::{Context, Result, bail};
use larder_io::front::nbd::wire::CMD_FLAG_FUA;
use larder_io::nbd_client::{Client, ClientError, Completion, Errno, Request};
use larder_lab::random::Random;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Out of a hundred requests.
const FLUSHES: u64 = 3;
const WRITES: u64 = 57;
/// One write in so many has FUA.
const FUA: u64 = 16;
/// How often a place is looked for where nothing is in flight.
const TRIES: u32 = 8;

/// What the connections of a load share.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) seed: u64,
    pub(super) depth: usize,
    pub(super) log: Log,
    pub(super) until: Option<Instant>,
    pub(super) stop: AtomicBool,
}

/// What was done.
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
    /// Both together.
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
struct Flight {
    cookie: u64,
    id: u64,
    what: LoadOperation,
}

/// A connection and what it knows of its stripes.
#[derive(Debug)]
pub(super) struct Connection<'a> {
    load: &'a Load,
    client: Client,
    number: u64,
    area: Area,
    random: Random,
    /// By stripe, the last write to each sector that was answered; 0 for none.
    known: HashMap<u64, Box<[u64]>>,
    flights: Vec<Flight>,
    /// Buffers that are not in flight.
    spare: Vec<Vec<u8>>,
    count: u64,
    tally: LoadTotals,
}

impl<'a> Connection<'a> {
    pub(super) fn new(load: &'a Load, client: Client, number: u64, area: Area) -> Self {
        // Streams of one seed that have nothing in common.
        let random = Random::from_seed(load.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Connection {
            load,
            client,
            number,
            area,
            random,
            known: HashMap::new(),
            flights: Vec::new(),
            spare: Vec::new(),
            count: 0,
            tally: LoadTotals::default(),
        }
    }

    /// Loads until the connection breaks, time is up, or another connection has ended. With the
    /// first connection that ends otherwise than by its time, the whole load ends.
    pub(super) fn run(mut self) -> Result<LoadTotals> {
        let mut ended = self.drive();
        if ended.as_ref().is_err_and(is_end) {
            self.tally.broken = 1;
            self.load.stop.store(true, Ordering::Release);
            ended = self.collect();
        }
        self.load.stop.fetch_or(ended.is_err(), Ordering::AcqRel);
        ended.map(|()| self.tally)
    }

    fn drive(&mut self) -> Result<()> {
        while !self.is_over() {
            while self.flights.len() < self.load.depth && self.send()? {}
            self.receive()?;
        }
        while !self.flights.is_empty() {
            self.receive()?;
        }
        self.send_flush()?;
        self.receive()
    }

    fn is_over(&self) -> bool {
        self.load.stop.load(Ordering::Acquire)
            || self.load.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Takes note of the answers that came before the connection broke.
    fn collect(&mut self) -> Result<()> {
        while let Ok(completion) = self.client.wait() {
            match self.judge(completion) {
                Err(error) if !is_end(&error) => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Sends one request; `false` if no place for one was found.
    fn send(&mut self) -> Result<bool> {
        let dice = self.random.below(100);
        if dice < FLUSHES {
            self.send_flush()?;
            return Ok(true);
        }
        let write = dice < FLUSHES + WRITES;
        for _ in 0..TRIES {
            let range = self.area.draw(&mut self.random);
            let free = self.flights.iter().all(|flight| match flight.what {
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
        // An answer that leaves bytes as they were must not look right.
        buffer.fill(0xa5);
        self.submit(Request::read(range.offset(), buffer), 0, LoadOperation::Read(range))
    }

    fn send_flush(&mut self) -> Result<()> {
        let id = self.next_id();
        self.load.log.add(Record::Flush { id })?;
        self.submit(Request::flush(), id, LoadOperation::Flush)
    }

    fn submit(&mut self, request: Request, id: u64, what: LoadOperation) -> Result<()> {
        let cookie = self.client.submit(request)?;
        self.flights.push(Flight { cookie, id, what });
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
        self.judge(completion)
    }

    /// Takes note of an answer.
    fn judge(&mut self, completion: Completion) -> Result<()> {
        let at = self.flights.iter().position(|flight| flight.cookie == completion.cookie);
        let Flight { id, what, .. } =
            self.flights.swap_remove(at.context("match an answer with a request")?);
        if let Err(error) = completion.result {
            return Err(ClientError::Request(error).into());
        }
        match what {
            LoadOperation::Flush => {
                self.load.log.add(Record::Flushed { id })?;
                self.tally.flushes += 1;
            }
            LoadOperation::Write(range) => {
                self.load.log.add(Record::Written { id })?;
                self.known_of(range).fill(id);
                self.tally.writes += 1;
                self.tally.written_bytes += completion.data.len() as u64;
            }
            LoadOperation::Read(range) => {
                self.verify(range, &completion.data)?;
                self.tally.reads += 1;
                self.tally.read_bytes += completion.data.len() as u64;
            }
        }
        self.spare.push(completion.data);
        Ok(())
    }

    fn known_of(&mut self, range: Range) -> &mut [u64] {
        let len = self.area.stripe_sectors();
        let stripe = self.known.entry(range.stripe).or_insert_with(|| vec![0; len].into());
        let at = usize::try_from(range.at).expect("a stripe fits memory");
        &mut stripe[at..at + range.bytes() / SECTOR_BYTES]
    }

    /// Compares what was read with what was written last. What the export held before the load is
    /// not known, only that it holds nothing of this load in a wrong place.
    fn verify(&mut self, range: Range, data: &[u8]) -> Result<()> {
        let seed = self.load.seed;
        let sectors = data.chunks_exact(SECTOR_BYTES).zip(range.first..);
        for ((bytes, sector), &known) in sectors.zip(&*self.known_of(range)) {
            let content = sector::recognise(seed, sector, bytes);
            if known != 0 && content != Content::Whole(known) {
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

/// Whether it is how a load is expected to end: the server is gone, or going.
fn is_end(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Closed) => true,
        Some(error) => error.errno() == Some(Errno::Shutdown),
        None => false,
    }
}
