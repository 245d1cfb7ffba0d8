//! A file server over volumes with different allocation units.
//!
//! The volume is aged first: files are created and removed until the free space is in pieces. Then
//! clients read and write whole files, as transactions of [`ServerLoad`], in parts of 64 KiB.

use super::super::published::geometry;
use super::{KIB, MIB};
use crate::cache_simulation::{CacheSimulation, Clients, Request, RequestTime};
use crate::file_system::{AgedVolume, Ageing, FileMap, file_bytes};
use crate::model::{ArrayLayout, ArrayLevel, ControllerCache, DeviceModel, DiskSpec, StoreModel};
use crate::random::{Random, Spread};
use crate::sim::engine::frames_of;
use crate::trace::Op;
use crate::workload::server::{Kind, Mix, ServerLoad, Transaction};
use larder_core::clock::{MILLISECOND, Nanos, SECOND};
use larder_core::frames::NoFrames;
use larder_core::policy::PolicyKind;
use larder_core::store::Store;
use larder_core::tunables::Tunables;
use larder_core::units::as_f64;
use larder_core::volume::VolumeOptions;

/// Allocation units, bytes.
pub(super) const UNITS: [u64; 3] = [4 * KIB, 16 * KIB, 64 * KIB];
/// Steps of the load.
pub(super) const CLIENTS: [u64; 6] = [1, 2, 4, 8, 16, 32];
/// The memory of the cache of the server and of the controller, bytes.
const SERVER_CACHE: u64 = 64 * MIB;
const CONTROLLER_CACHE: u64 = 16 * MIB;
/// Files of each client.
const FILES: u64 = 16;
/// Free share of the aged volume, and how often its content is replaced.
const FREE_PERCENT: u64 = 15;
const REPLACED: u64 = 4;
/// The part of the volume that is used, bytes.
const VOLUME: u64 = 1024 * MIB;
/// A request of a client machine, and its rate on the network: 100 Mbit/s.
const PART: u64 = 64 * KIB;
const NETWORK: u64 = 12_500_000;
const THINK: Nanos = 100 * MILLISECOND;
/// Client machines.
const MACHINES: usize = 4;
/// Requests of a client in flight: the most extents of a part.
const DEPTH: usize = 16;
/// Time before the measurement, and its length.
const WARM_UP: Nanos = 30 * SECOND;
const MEASURED: Nanos = 60 * SECOND;

pub(super) fn sentences() -> Vec<String> {
    vec![
        format!(
            "Allocation unit: RAID level 5 of 3 disks scsi-1999, chunk 64 KiB, controller cache of \
             {} MB with a battery; {MACHINES} client machines on 100 Mbit/s each.",
            CONTROLLER_CACHE / MIB
        ),
        format!(
            "Assumptions: the server's cache has {} MB (preset nt, LRU); files of 4 KiB to 1 MiB; \
             a volume of {} MB that is {} % full and whose content was replaced {REPLACED} times; \
             70 % reads, 20 % writes, 10 % copies of whole files; 100 ms of think time.",
            SERVER_CACHE / MIB,
            VOLUME / MIB,
            100 - FREE_PERCENT
        ),
        "Not modeled: metadata, and the processors of the server.".to_owned(),
    ]
}

/// Returns the Mbit/s that are read and written, for each of [`CLIENTS`].
pub(super) fn served(unit: u64, seed: u64) -> [f64; CLIENTS.len()] {
    CLIENTS.map(|clients| Server::new(unit, clients, seed).run(seed))
}

/// The server, and the files of its clients.
struct Server {
    simulation: CacheSimulation<Box<dyn Store<NoFrames>>>,
    /// The files of each client.
    files: Vec<Vec<ServedFile>>,
}

impl Server {
    fn new(unit: u64, clients: u64, seed: u64) -> Self {
        let spec = DiskSpec::scsi_1999();
        let layout = ArrayLayout::new(ArrayLevel::Parity, 3, 64 * KIB);
        let geometry = geometry(&spec, 2);
        let cache = ControllerCache { bytes: CONTROLLER_CACHE, has_battery: true };
        let array = StoreModel::CachedArray(cache, layout, DeviceModel::Disk(spec));
        let mut options = VolumeOptions::new("files", geometry);
        options.policy = PolicyKind::Lru;
        options.tunables = Tunables::nt();
        let store = array.build(geometry);
        let number = usize::try_from(clients).expect("a few clients");
        let simulation = CacheSimulation::new(
            frames_of(SERVER_CACHE),
            1,
            [(options, store)],
            Clients { number, depth: DEPTH },
        );
        let mut files = aged_files(unit, clients * FILES, seed).into_iter();
        let mut of_client = || files.by_ref().take(usize::try_from(FILES).expect("few")).collect();
        let files = (0..clients).map(|_| of_client()).collect();
        Server { simulation, files }
    }

    /// Returns the Mbit/s that are read and written.
    fn run(mut self, seed: u64) -> f64 {
        let mix = Mix { read: 70, write: 20, copy: 10 };
        let think = Spread { mean: as_f64(THINK), sdev: as_f64(THINK) / 2.0 };
        let load = ServerLoad { mix, think, items: FILES };
        let clients = self.files.iter().zip(seed << 16..);
        let mut clients: Vec<Client> =
            clients.map(|(files, seed)| Client::new(load, files, seed)).collect();
        // The time at which the network of each client machine is free.
        let mut free_at = [0; MACHINES];
        let begin = self.simulation.now() + WARM_UP;
        let mut bytes = 0;
        while self.simulation.now() < begin + MEASURED {
            // The requests of a part are sent together, and the next part after all replies.
            let client = self
                .simulation
                .wait_for_client_of(
                    |client, is_idle| is_idle || clients[client].has_more(),
                    RequestTime::default(),
                )
                .expect("stores do not fail");
            let now = self.simulation.now();
            match clients[client].next_step() {
                Step::Think(time) => self.simulation.pause(client, now + time),
                Step::Transfer(len) => {
                    let free_at = &mut free_at[client % MACHINES];
                    *free_at = now.max(*free_at) + len * SECOND / NETWORK;
                    self.simulation.pause(client, *free_at);
                    bytes += if now >= begin { len } else { 0 };
                }
                Step::Request(request) => {
                    self.simulation.begin(client, &request).expect("stores do not fail");
                }
            }
        }
        self.simulation.finish();
        as_f64(bytes) * 8.0 / 1e6 / (as_f64(MEASURED) / as_f64(SECOND))
    }
}

/// A step of a client.
#[derive(Clone, Copy)]
enum Step {
    Think(Nanos),
    /// Bytes on the network, for a part that has been answered.
    Transfer(u64),
    Request(Request),
}

/// A client: its files, and what it does next.
struct Client<'a> {
    files: &'a [ServedFile],
    transactions: Box<dyn Iterator<Item = Transaction> + 'a>,
    /// Steps of the current transaction, the last one first.
    steps: Vec<Step>,
}

impl<'a> Client<'a> {
    fn new(load: ServerLoad, files: &'a [ServedFile], seed: u64) -> Self {
        let transactions = Box::new(load.transactions(seed));
        Client { files, transactions, steps: Vec::new() }
    }

    /// Returns true if the next step is a request that belongs to the same part as the last one.
    fn has_more(&self) -> bool {
        matches!(self.steps.last(), Some(Step::Request(_)))
    }

    /// Adds the steps for a whole file, in front of the others.
    fn add(&mut self, op: Op, item: u64) {
        let file = &self.files[usize::try_from(item).expect("a few files")];
        for part in (0..file.len.div_ceil(PART)).rev() {
            let start = part * PART;
            let end = (start + PART).min(file.len);
            self.steps.push(Step::Transfer(end - start));
            self.steps.extend(file.map.on_device(start..end).map(|range| {
                let (offset, len) = (range.start, range.end - range.start);
                Step::Request(Request { volume: 0, op, offset, len })
            }));
        }
    }

    fn next_step(&mut self) -> Step {
        while self.steps.is_empty() {
            let next = self.transactions.next().expect("transactions do not end");
            let Transaction { think, kind, item, to } = next;
            match kind {
                Kind::Read => self.add(Op::Read, item),
                Kind::Write => self.add(Op::Write, item),
                Kind::Copy => {
                    self.add(Op::Write, to);
                    self.add(Op::Read, item);
                }
            }
            self.steps.push(Step::Think(think));
        }
        self.steps.pop().expect("a step was just added")
    }
}

/// A file of a client.
struct ServedFile {
    map: FileMap,
    /// Its bytes; the last unit may have more.
    len: u64,
}

/// Returns files on a volume that has been used for long. Their lengths depend on the seed alone.
fn aged_files(unit: u64, count: u64, seed: u64) -> Vec<ServedFile> {
    let ageing = Ageing { bytes: VOLUME, unit, free_percent: FREE_PERCENT, replaced: REPLACED };
    let mut volume = AgedVolume::new(ageing, file_bytes, seed);
    let mut lengths = Random::from_seed(!seed);
    let file = |_| {
        let len = file_bytes(&mut lengths);
        ServedFile { map: volume.create(len), len }
    };
    (0..count).map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_small_units_have_more_extents_and_all_transactions_end() {
        let extents = |unit: u64| -> usize {
            aged_files(unit, 100, 1).iter().map(|file| file.map.extents().len()).sum()
        };
        let [small, large] = [4 * KIB, 64 * KIB].map(extents);
        assert!(5 * small > 6 * large, "{small} and {large} extents");
        let served = Server::new(64 * KIB, 2, 1).run(1);
        assert!(served > 1.0, "{served} Mbit/s");
    }
}
