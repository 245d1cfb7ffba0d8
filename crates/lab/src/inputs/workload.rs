//! The requests of clients in a log of inputs, and simulations of caches of other sizes that get
//! the same requests.
//!
//! Unlike a trace, a log has all options of a request, such as the ends of the file within which
//! the cache reads ahead, the settings of the volumes, and the session of each request: each NBD
//! connection has one, and detects sequential reads by its own requests. The simulation has a
//! client for each of them, and one request at a time, after the pause that followed the previous
//! reply in the log. The log is read once for each simulation, so the memory does not depend on its
//! length.

mod reader;

use crate::cache_simulation::{CacheSimulation, Clients, EngineRequest, SimulationError};
use crate::model::StoreModel;
use larder_core::cache::shards_for;
use larder_core::counters::Totals;
use larder_core::request::RequestOp;
use larder_core::units::BLOCK_BYTES_U64;
use larder_core::volume::VolumeOptions;
use larder_report::lines::LineError;
use reader::{RecordedRequest, Step, read};
use std::collections::BTreeSet;
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};

/// Maximum pages of the footprint that are counted: 64 GiB in pages of 4 KiB.
const FOOTPRINT_PAGES_MAX: usize = 1 << 24;

/// A log whose requests cannot be used, as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The file cannot be opened.
    #[error("read the recording: {0}")]
    Open(#[from] io::Error),
    /// A line cannot be read.
    #[error("read the recording: {0}")]
    Read(#[from] LineError),
    /// A line is not one of a log, or contradicts the lines before.
    #[error("read the recording of inputs: line {line}: {reason}")]
    Refused {
        /// Counting from 1.
        line: u64,
        /// Reason for the refusal.
        reason: String,
    },
    /// The simulated cache failed a request.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
}

/// The requests of a log, which is read again for each use.
#[derive(Debug)]
pub struct RecordedWorkload {
    path: PathBuf,
    volumes: Vec<VolumeOptions>,
    requests: u64,
    clients: usize,
    footprint_bytes: u64,
}

impl RecordedWorkload {
    /// Reads a log, and counts its requests and pages.
    ///
    /// # Errors
    /// The file is not a log, or cannot be read.
    pub fn open(path: &Path) -> Result<RecordedWorkload, WorkloadError> {
        let mut volumes: Vec<VolumeOptions> = Vec::new();
        let (mut requests, mut clients, mut footprint) = (0, 1, Footprint::default());
        read(path, &mut |step| {
            match step {
                Step::Volume(options) => volumes.push(options),
                Step::Request(RecordedRequest { client, request, .. }) => {
                    clients = clients.max(client + 1);
                    let page_blocks = volumes[request.volume].page_blocks;
                    footprint.add(&request, u64::from(page_blocks) * BLOCK_BYTES_U64);
                    requests += u64::from(request.request.is_counted);
                }
            }
            Ok(())
        })?;
        let footprint_bytes = footprint.max_bytes;
        Ok(RecordedWorkload { path: path.to_owned(), volumes, requests, clients, footprint_bytes })
    }

    /// Returns the number of requests of clients.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the maximum memory that the pages of the requests take at a time, without those that
    /// a client has discarded, as with a removed file.
    #[must_use]
    pub fn footprint_bytes(&self) -> u64 {
        self.footprint_bytes
    }

    /// Simulates a cache of `frames` frames in front of stores of a model, on a machine with this
    /// many processors. Returns the counters of all volumes together.
    ///
    /// # Errors
    /// The log cannot be read, or has a request that cannot be simulated.
    pub fn simulate(
        &self,
        frames: u32,
        cores: NonZero<usize>,
        store: StoreModel,
    ) -> Result<Totals, WorkloadError> {
        let volumes = self.volumes.iter().map(|it| (it.clone(), store.build(it.geometry)));
        let shards = shards_for(frames, cores.get());
        let clients = Clients::synchronous(self.clients);
        let mut simulation = CacheSimulation::new(frames, shards, volumes, clients);
        read(&self.path, &mut |step| {
            if let Step::Request(RecordedRequest { pause, client, request }) = step {
                simulation.wait_for_all()?;
                simulation.run_until(simulation.now() + pause)?;
                simulation.begin_exactly(client, request)?;
            }
            Ok(())
        })?;
        simulation.wait_for_all()?;
        let mut totals = Totals::default();
        for volume in simulation.finish() {
            totals.add(&volume);
        }
        Ok(totals)
    }
}

/// The pages that the requests so far have touched and not discarded.
#[derive(Default)]
struct Footprint {
    pages: BTreeSet<(usize, u64)>,
    max_bytes: u64,
}

impl Footprint {
    fn add(&mut self, EngineRequest { volume, request, .. }: &EngineRequest, page_bytes: u64) {
        let volume = *volume;
        let end = request.offset + request.len;
        match request.op {
            RequestOp::Read | RequestOp::Write => {
                let touched = request.offset / page_bytes..end.div_ceil(page_bytes);
                let left = FOOTPRINT_PAGES_MAX.saturating_sub(self.pages.len());
                self.pages.extend(touched.take(left).map(|page| (volume, page)));
                self.max_bytes = self.max_bytes.max(self.pages.len() as u64 * page_bytes);
            }
            RequestOp::Discard => {
                let gone =
                    (volume, request.offset.div_ceil(page_bytes))..(volume, end / page_bytes);
                if gone.start < gone.end {
                    let gone: Vec<_> = self.pages.range(gone).copied().collect();
                    for page in &gone {
                        self.pages.remove(page);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
