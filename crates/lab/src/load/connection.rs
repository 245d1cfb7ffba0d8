//! One connection of the load: several requests in flight, and verification of each reply.
//!
//! Invariants: no two requests in flight overlap, unless both are reads, so a read has one correct
//! result; the record of a request is logged before the request is sent, the record of a reply
//! after it was received.

use super::LoadError;
use super::area::{Area, Range};
use super::log::{Log, Record};
use super::sector::{self, Content, Name, SECTOR_BYTES};
use crate::connection::{BlockRequest, Connection, ConnectionError, Reply};
use crate::random::Random;
use crate::trace::Op;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Flushes per hundred requests.
const FLUSHES: u64 = 3;
/// Writes per hundred requests.
const WRITES: u64 = 57;
/// One write in this many has FUA.
const FUA: u64 = 16;
/// Attempts to find a range that does not overlap a request in flight.
const ATTEMPTS_MAX: u32 = 8;

/// Options of a load.
#[derive(Debug)]
pub struct LoadOptions {
    /// Bytes of the export.
    pub bytes: u64,
    /// Minimum length of a request, in bytes.
    pub granule: u32,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Maximum requests in flight of each connection.
    pub depth: usize,
    /// The log of the load.
    pub log: Log,
    /// Duration; `None` until a connection breaks.
    pub time: Option<Duration>,
}

/// State that the connections of a load share.
struct Load {
    options: LoadOptions,
    until: Option<Instant>,
    stop: AtomicBool,
}

/// Totals of a load.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadTotals {
    /// Acknowledged writes.
    pub writes: u64,
    /// Bytes of those.
    pub written_bytes: u64,
    /// Verified reads.
    pub reads: u64,
    /// Bytes of those.
    pub read_bytes: u64,
    /// Acknowledged flushes.
    pub flushes: u64,
    /// Connections that broke.
    pub broken: u64,
}

/// A request of a load; its write or flush has an id.
#[derive(Clone, Copy, Debug)]
pub struct LoadOperation(Operation);

#[derive(Clone, Copy, Debug)]
enum Operation {
    Read(Range),
    Write { id: u64, range: Range },
    Flush { id: u64 },
}

/// Runs a load over connections to one export; returns the first failure, if any.
///
/// # Errors
/// The export is too small, a request failed, the log cannot be written, or a read returned wrong
/// data.
pub fn run<C: Connection<LoadOperation>>(
    connections: Vec<C>,
    options: LoadOptions,
) -> Result<LoadTotals, LoadError> {
    let (bytes, granule, count) = (options.bytes, options.granule, connections.len() as u64);
    let until = options.time.map(|time| Instant::now() + time);
    let load = Load { options, until, stop: AtomicBool::new(false) };
    let workers = (0..).zip(connections).map(|(number, connection)| {
        Ok(Worker::new(&load, connection, number, Area::new(bytes, granule, number, count)?))
    });
    let workers: Vec<Worker<'_, C>> = workers.collect::<Result<_, LoadError>>()?;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            workers.into_iter().map(|worker| scope.spawn(|| worker.run())).collect();
        // All threads are joined before a failure is returned.
        let results: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        let mut sum = LoadTotals::default();
        for totals in results {
            let totals = totals?;
            sum.writes += totals.writes;
            sum.written_bytes += totals.written_bytes;
            sum.reads += totals.reads;
            sum.read_bytes += totals.read_bytes;
            sum.flushes += totals.flushes;
            sum.broken += totals.broken;
        }
        Ok(sum)
    })
}

/// One connection and the known contents of its stripes.
struct Worker<'a, C> {
    load: &'a Load,
    connection: C,
    number: u64,
    area: Area,
    random: Random,
    /// By stripe, the last acknowledged write to each sector; 0 for none.
    last_written: HashMap<u64, Box<[u64]>>,
    /// Buffers that are not in flight.
    spare: Vec<Vec<u8>>,
    count: u64,
    totals: LoadTotals,
}

impl<'a, C: Connection<LoadOperation>> Worker<'a, C> {
    fn new(load: &'a Load, connection: C, number: u64, area: Area) -> Self {
        // Independent random streams from one seed.
        let seed = load.options.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Worker {
            load,
            connection,
            number,
            area,
            random: Random::from_seed(seed),
            last_written: HashMap::new(),
            spare: Vec::new(),
            count: 0,
            totals: LoadTotals::default(),
        }
    }

    /// Runs until the connection breaks, time is up, or another connection has ended. The first
    /// connection that ends before its time ends the whole load.
    fn run(mut self) -> Result<LoadTotals, LoadError> {
        let mut result = self.drive();
        if result.as_ref().is_err_and(is_disconnect) {
            self.totals.broken = 1;
            self.load.stop.store(true, Ordering::Release);
            result = self.collect();
        }
        self.load.stop.fetch_or(result.is_err(), Ordering::AcqRel);
        result.map(|()| self.totals)
    }

    fn drive(&mut self) -> Result<(), LoadError> {
        while !self.is_over() {
            while self.connection.in_flight().len() < self.load.options.depth && self.send()? {}
            self.receive()?;
        }
        while self.connection.in_flight().len() > 0 {
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
    fn collect(&mut self) -> Result<(), LoadError> {
        while let Ok(Some(reply)) = self.connection.receive(None) {
            match self.complete(reply) {
                Err(error) if !is_disconnect(&error) => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Sends one request; returns `false` if no free range was found.
    fn send(&mut self) -> Result<bool, LoadError> {
        let draw = self.random.below(100);
        if draw < FLUSHES {
            self.send_flush()?;
            return Ok(true);
        }
        let write = draw < FLUSHES + WRITES;
        for _ in 0..ATTEMPTS_MAX {
            let range = self.area.draw(&mut self.random);
            let is_free = self.connection.in_flight().all(|request| match request.0 {
                Operation::Flush { .. } => true,
                Operation::Read(other) => !write || !range.overlaps(&other),
                Operation::Write { range: other, .. } => !range.overlaps(&other),
            });
            if is_free {
                if write {
                    self.send_write(range)?;
                } else {
                    // Nonzero, so that a reply that leaves the buffer unchanged fails the
                    // verification.
                    let mut data = self.buffer(range);
                    data.fill(0xa5);
                    self.submit(Op::Read, range, false, data, Operation::Read(range))?;
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn send_write(&mut self, range: Range) -> Result<(), LoadError> {
        let id = self.next_id();
        let fua = self.random.below(FUA) == 0;
        let mut data = self.buffer(range);
        sector::fill(self.load.options.seed, id, range.first, &mut data);
        let sectors = u32::try_from(range.sectors).expect("a request is short");
        self.load.options.log.add(Record::Write { id, first: range.first, sectors, fua })?;
        self.submit(Op::Write, range, fua, data, Operation::Write { id, range })
    }

    fn send_flush(&mut self) -> Result<(), LoadError> {
        let id = self.next_id();
        self.load.options.log.add(Record::Flush { id })?;
        let request = BlockRequest { op: Op::Flush, ..BlockRequest::default() };
        Ok(self.connection.submit(request, LoadOperation(Operation::Flush { id }))?)
    }

    fn submit(
        &mut self,
        op: Op,
        range: Range,
        fua: bool,
        data: Vec<u8>,
        operation: Operation,
    ) -> Result<(), LoadError> {
        let len = u32::try_from(data.len()).expect("a request is short");
        let request = BlockRequest { op, offset: range.offset(), len, fua, data };
        Ok(self.connection.submit(request, LoadOperation(operation))?)
    }

    fn next_id(&mut self) -> u64 {
        self.count += 1;
        sector::id(self.number, self.count)
    }

    /// Returns a buffer for the data of a range, with any content.
    fn buffer(&mut self, range: Range) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(range.bytes(), 0);
        buffer
    }

    fn receive(&mut self) -> Result<(), LoadError> {
        match self.connection.receive(None)? {
            Some(reply) => self.complete(reply),
            None => Ok(()),
        }
    }

    /// Processes a reply.
    fn complete(&mut self, reply: Reply<LoadOperation>) -> Result<(), LoadError> {
        if let Some(ConnectionError { text, is_closed }) = reply.error {
            let text = format!("the NBD server failed the request: {text}");
            return Err(ConnectionError { text, is_closed }.into());
        }
        let bytes = reply.data.len() as u64;
        match reply.context.0 {
            Operation::Flush { id } => {
                self.load.options.log.add(Record::Flushed { id })?;
                self.totals.flushes += 1;
            }
            Operation::Write { id, range } => {
                self.load.options.log.add(Record::Written { id })?;
                self.last_written_to(range).fill(id);
                self.totals.writes += 1;
                self.totals.written_bytes += bytes;
            }
            Operation::Read(range) => {
                self.verify(range, &reply.data)?;
                self.totals.reads += 1;
                self.totals.read_bytes += bytes;
            }
        }
        self.spare.push(reply.data);
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
    fn verify(&mut self, range: Range, data: &[u8]) -> Result<(), LoadError> {
        let seed = self.load.options.seed;
        let sectors = data.chunks_exact(SECTOR_BYTES).zip(range.first..);
        for ((bytes, sector), &known) in sectors.zip(&*self.last_written_to(range)) {
            let content = sector::classify(seed, sector, bytes);
            if known != 0 && content != Content::Intact(known) {
                return Err(LoadError::Refused(format!(
                    "read sector {sector} as it was written: expected write {}, got {content}",
                    Name(known)
                )));
            }
            if matches!(content, Content::Torn(_) | Content::Misplaced { .. }) {
                let text = format!("read sector {sector}, not yet written: got {content}");
                return Err(LoadError::Refused(text));
            }
        }
        Ok(())
    }
}

/// Returns true for the expected end of a load: the server has exited or shuts down.
fn is_disconnect(error: &LoadError) -> bool {
    matches!(error, LoadError::Connection(ConnectionError { is_closed: true, .. }))
}
