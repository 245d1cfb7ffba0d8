//! The load of a file server on a machine: steps with an increasing number of clients, each step
//! with a warm-up and a measured phase.
//!
//! [`crate::workload::server`] chooses the transactions; this module performs them. Each client is
//! a thread with its own items. A transaction counts if it ends in the measured phase of its step;
//! one that started in the warm-up and ends later is load like any other. Throughput is the bytes
//! of all clients divided by the time of the phase; a copy counts the bytes that it reads and those
//! that it writes. After each step the written data is flushed, so that no step pays for the one
//! before. The stress point is found in the medians of all trials ([`larder_report::run::stress`]).

mod share;

pub use share::{Directory, Extent, ItemLocation};

use super::error::BenchError;
use super::worker_pool;
use super::workload::{Outcome, Series, Space, StartState, TrialContext, Workload, parameters};
use crate::random::Random;
use crate::workload::server::{Kind, ServerLoad, Transaction};
use larder_core::clock::Nanos;
use larder_core::counters::{Histogram, HistogramSnapshot};
use larder_report::run::stress::{CLIENTS, RESPONSE_TIME, THROUGHPUT};
use larder_schema::format;
use larder_schema::run::Direction;
use serde_json::{Value, json};
use share::Items;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The highest throughput of all steps.
const PEAK: &str = "peak throughput";
const TRANSACTIONS: &str = "transactions";

/// The steps of the load.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// Clients of each step, in order; not empty, none 0.
    pub clients: Vec<u64>,
    /// Nanoseconds of warm-up in each step.
    pub warm_up: Nanos,
    /// Nanoseconds of the measured phase; above 0.
    pub measure: Nanos,
    /// Bytes that are read or written at a time; above 0.
    pub record_bytes: u64,
    /// True if a transaction flushes the data that it writes before it ends.
    pub sync: bool,
}

/// The server load with its target.
#[derive(Debug)]
pub struct ServerBench {
    share: ItemLocation,
    load: ServerLoad,
    steps: Steps,
    extent: Extent,
}

impl ServerBench {
    /// Returns the load of clients with `load.items` items of `item_bytes` each.
    ///
    /// # Panics
    /// Without steps, or if one of the numbers is 0.
    #[must_use]
    pub fn new(share: ItemLocation, load: ServerLoad, steps: Steps, item_bytes: u64) -> Self {
        assert!(!steps.clients.contains(&0) && steps.measure > 0, "a load without workers");
        assert!(steps.record_bytes > 0 && item_bytes > 0, "there is something to do");
        let clients = *steps.clients.iter().max().expect("a step");
        let extent = Extent { clients, items: load.items, item_bytes };
        ServerBench { share, load, steps, extent }
    }

    /// Returns a series for the step with this number of clients.
    fn series_at(name: &str, unit: &str, better: Direction, clients: u64) -> Series {
        #[expect(clippy::cast_precision_loss, reason = "clients are few")]
        let at = clients as f64;
        Series::new(name, unit, Some(better)).at(&[(CLIENTS, at)])
    }

    fn step_series(clients: u64) -> [Series; 3] {
        [
            ServerBench::series_at(THROUGHPUT, "bytes/s", Direction::Higher, clients),
            ServerBench::series_at(TRANSACTIONS, "transactions/s", Direction::Higher, clients),
            ServerBench::series_at(RESPONSE_TIME, "ns", Direction::Lower, clients),
        ]
    }

    /// Runs one step, adds its results to `outcome`, and returns its throughput.
    fn step(
        &self,
        context: &TrialContext<'_>,
        clients: u64,
        outcome: &mut Outcome,
    ) -> Result<f64, BenchError> {
        let name = if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
        let mut workers = (0..clients)
            .map(|client| Client::new(self, client, context.seed))
            .collect::<Result<Vec<_>, _>>()?;
        let flush = format!("{name}, flush");
        let phases =
            worker_pool::run(context, &[&name, &flush], &mut workers, |client, current| {
                if current.phase == 0 {
                    client.work(context, current.begun_at)
                } else {
                    client.items.flush()
                }
            })?;
        outcome.phases.extend(phases);
        let mut times = HistogramSnapshot::default();
        for client in &workers {
            client.times.add_to(&mut times);
        }
        if times.count() == 0 {
            let time = format::duration(self.steps.measure);
            let none =
                format!("measure {name}: no transaction ended within {time}; measure longer");
            return Err(BenchError::Failed(none));
        }
        let idle = workers.iter().filter(|client| client.bytes == 0).count();
        if idle > 0 {
            outcome.doubts.push(format!(
                "with {name} {idle} of them ended no transaction while it was measured"
            ));
        }
        let bytes: u64 = workers.iter().map(|client| client.bytes).sum();
        #[expect(clippy::cast_precision_loss, reason = "counts and times stay below 2^53")]
        let [per_s, bytes, count, sum] = [
            1e9 / self.steps.measure as f64,
            bytes as f64,
            times.count() as f64,
            times.sum() as f64,
        ];
        let values = [bytes * per_s, count * per_s, sum / count];
        let series_at = ServerBench::step_series(clients).into_iter().map(|series| series.name);
        outcome.values.extend(series_at.zip(values));
        outcome.latencies.push((name, times));
        Ok(values[0])
    }
}

impl Workload for ServerBench {
    fn name(&self) -> &'static str {
        "server"
    }

    fn description(&self) -> String {
        let clients: Vec<_> = self.steps.clients.iter().map(ToString::to_string).collect();
        format!(
            "Server load: {} clients, transactions {}, {} items of {} each; {}",
            clients.join(", "),
            self.load.mix.in_words(),
            self.extent.items,
            format::bytes(self.extent.item_bytes),
            self.share.description(),
        )
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        parameters(json!({
            "target": self.share.description(),
            "clients": self.steps.clients,
            "mix": self.load.mix.in_words(),
            "think_ns": [self.load.think.mean, self.load.think.sdev],
            "items": self.extent.items,
            "item_bytes": self.extent.item_bytes,
            "record_bytes": self.steps.record_bytes,
            "warm_up_ns": self.steps.warm_up,
            "measure_ns": self.steps.measure,
            "sync": self.steps.sync,
        }))
    }

    fn series(&self) -> Vec<Series> {
        let mut series = vec![Series::new(PEAK, "bytes/s", Some(Direction::Higher))];
        series.extend(self.steps.clients.iter().flat_map(|&it| ServerBench::step_series(it)));
        series
    }

    fn space(&self) -> Vec<Space> {
        self.share.space(&self.extent)
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.share.paths()
    }

    fn prepare(&mut self, context: &TrialContext<'_>) -> Result<(), BenchError> {
        self.share.prepare(&self.extent, context)
    }

    fn start_state(&mut self) -> StartState<'_> {
        self.share.start_state(&self.extent)
    }

    fn trial(&mut self, context: &TrialContext<'_>) -> Result<Outcome, BenchError> {
        let mut outcome = Outcome::default();
        let mut peak = 0.0_f64;
        for &clients in &self.steps.clients {
            peak = peak.max(self.step(context, clients, &mut outcome)?);
        }
        outcome.values.insert(PEAK.to_owned(), peak);
        Ok(outcome)
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        self.share.clean_up()
    }
}

/// One client of a step.
struct Client<'a> {
    items: Items,
    transactions: Box<dyn Iterator<Item = Transaction> + Send>,
    steps: &'a Steps,
    item_bytes: u64,
    /// Payload of writes, and buffer of reads.
    record: Vec<u8>,
    times: Histogram,
    /// Bytes of the transactions that count.
    bytes: u64,
}

impl<'a> Client<'a> {
    fn new(bench: &'a ServerBench, number: u64, seed: u64) -> Result<Self, BenchError> {
        let len = usize::try_from(bench.steps.record_bytes.min(bench.extent.item_bytes))
            .map_err(|error| BenchError::Failed(format!("make room for a record: {error}")))?;
        let seed = seed.wrapping_add(number);
        // Data that cannot be compressed, since some disks and file systems store zeros without
        // space.
        let mut record = vec![0; len];
        Random::from_seed(seed).fill(&mut record);
        Ok(Client {
            items: bench.share.open(&bench.extent, number)?,
            transactions: Box::new(bench.load.transactions(seed)),
            steps: &bench.steps,
            item_bytes: bench.extent.item_bytes,
            record,
            times: Histogram::default(),
            bytes: 0,
        })
    }

    /// Runs transactions until the measured phase is over.
    fn work(&mut self, context: &TrialContext<'_>, begun_at: Nanos) -> Result<(), BenchError> {
        let measured_from = begun_at + self.steps.warm_up;
        let ends_at = measured_from + self.steps.measure;
        while let Some(transaction) = self.transactions.next() {
            let left = ends_at.saturating_sub(context.now());
            context.sleep(transaction.think.min(left))?;
            let started_at = context.now();
            if started_at >= ends_at {
                break;
            }
            let bytes = self.execute(&transaction)?;
            let done_at = context.now();
            if (measured_from..ends_at).contains(&done_at) {
                self.times.record(done_at - started_at);
                self.bytes += bytes;
            }
        }
        Ok(())
    }

    /// Executes a transaction, and returns the bytes that it read and wrote.
    fn execute(&mut self, transaction: &Transaction) -> Result<u64, BenchError> {
        let (record, sync) = (&mut self.record, self.steps.sync);
        match transaction.kind {
            Kind::Read => self.items.read(transaction.item, record)?,
            Kind::Write => self.items.write(transaction.item, record, sync)?,
            Kind::Copy => {
                self.items.copy(transaction.item, transaction.to, record, sync)?;
                return Ok(2 * self.item_bytes);
            }
        }
        Ok(self.item_bytes)
    }
}

#[cfg(test)]
mod tests;
