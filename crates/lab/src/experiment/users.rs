//! Users that read files in a closed loop through the cache of a modeled machine.

use crate::cache_simulation::{CacheSimulation, Clients, Request, RequestTime};
use crate::file_system::{FileMap, FileStore};
use crate::random::Random;
use crate::sim::engine::frames_of;
use crate::trace::Op;
use crate::workload::fileload::{Fileload, REGIONS};
use larder_core::clock::SECOND;
use larder_core::frames::NoFrames;
use larder_core::hint::Hint;
use larder_core::policy::PolicyKind;
use larder_core::store::Store;
use larder_core::tunables::Tunables;
use larder_core::units::as_f64;
use larder_core::volume::VolumeOptions;

/// A machine without its disks.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// Memory of its cache, bytes.
    pub(super) cache_bytes: u64,
    /// Bytes of a page of the cache, a multiple of 4 KiB.
    pub(super) page_bytes: u64,
    /// Replacement of the cache.
    pub(super) policy: PolicyKind,
    /// Constants of the cache.
    pub(super) tunables: Tunables,
    /// Processor time of a read.
    pub(super) read_time: RequestTime,
}

/// Users of files on a device, each with a file of its own.
#[derive(Debug)]
pub(super) struct Users<'a> {
    /// The reads of each user.
    pub(super) load: Fileload,
    /// The files.
    pub(super) files: &'a [FileMap],
    /// Use of the machine's cache.
    pub(super) hint: Hint,
    /// Reads of each user. The measurement ends with the last one.
    pub(super) reads: u64,
    /// True if the cache is warm: the files are read in order, one after the other, then all of
    /// their indexes at random, and then as in the measurement.
    pub(super) is_warm: bool,
    /// True if the users begin at different places: each by a share of its offsets later.
    pub(super) are_apart: bool,
}

impl Users<'_> {
    /// Returns the bytes per second that the users read on a machine with this device.
    ///
    /// # Panics
    /// If a file is shorter than the load reads, or the cache too small for its users.
    #[must_use]
    pub(super) fn bytes_per_s(
        &self,
        machine: &Machine,
        device: Box<dyn Store<NoFrames>>,
        seed: u64,
    ) -> f64 {
        let stores = FileStore::all(device, self.files);
        let volumes = stores.into_iter().enumerate().map(|(number, store)| {
            let mut options = VolumeOptions::new(number.to_string(), store.geometry());
            options.page_blocks = frames_of(machine.page_bytes);
            options.policy = machine.policy;
            options.hint = self.hint;
            options.tunables = machine.tunables.clone();
            (options, store)
        });
        let places = usize::try_from(self.load.reads()).expect("reads of a file");
        let (users, frames) = (self.files.len(), frames_of(machine.cache_bytes));
        let mut simulation = CacheSimulation::new(frames, 1, volumes, Clients::synchronous(users));
        let offsets = |user: usize| {
            let skipped = if self.are_apart { user * places / users } else { 0 };
            self.load.offsets(seed << 8 | user as u64).skip(skipped)
        };
        let mut offsets: Vec<_> = (0..users).map(offsets).collect();
        let read_time = machine.read_time;
        if self.is_warm {
            self.prime(&mut simulation);
            let mut indexes: Vec<_> =
                (0..users as u64).map(|user| self.index_offsets(seed << 8 | user)).collect();
            let reads = indexes[0].len() as u64;
            self.read(&mut simulation, (read_time, reads), |user| indexes[user].pop());
            self.read(&mut simulation, (read_time, self.reads), |user| offsets[user].next());
        }
        let begin = simulation.now();
        self.read(&mut simulation, (read_time, self.reads), |user| offsets[user].next());
        let elapsed = simulation.now() - begin;
        simulation.finish();
        let bytes = self.reads * users as u64 * self.load.read_bytes;
        as_f64(bytes) * as_f64(SECOND) / as_f64(elapsed.max(1))
    }

    /// Reads `reads` times for each user, from the offsets that `next` returns.
    fn read(
        &self,
        simulation: &mut CacheSimulation<FileStore>,
        (read_time, reads): (RequestTime, u64),
        mut next: impl FnMut(usize) -> Option<u64>,
    ) {
        let mut left = vec![reads; self.files.len()];
        while left.iter().any(|left| *left > 0) {
            let client = simulation.wait_for_client_of(|user, _| left[user] > 0, read_time);
            let user = client.expect("stores do not fail");
            left[user] -= 1;
            let offset = next(user).expect("an offset for each read");
            begin_read(simulation, user, offset, self.load.read_bytes);
        }
        simulation.wait_for_all().expect("stores do not fail");
    }

    /// Returns the offsets of all reads of the indexes of a database, in random order.
    fn index_offsets(&self, seed: u64) -> Vec<u64> {
        let regions = (0..REGIONS).step_by(2).map(|region| self.load.region(region));
        let reads = regions.flat_map(|(first, count)| first..first + count);
        let mut offsets: Vec<u64> = reads.map(|read| read * self.load.read_bytes).collect();
        let mut random = Random::from_seed(seed);
        for last in (1..offsets.len()).rev() {
            let other = random.below(last as u64 + 1);
            offsets.swap(last, usize::try_from(other).expect("a number of offsets"));
        }
        offsets
    }

    /// Reads the files in order, one after the other.
    fn prime(&self, simulation: &mut CacheSimulation<FileStore>) {
        const LEN: u64 = 64 << 10;
        for (user, file) in self.files.iter().enumerate() {
            for offset in (0..file.len()).step_by(usize::try_from(LEN).expect("64 KiB")) {
                begin_read(simulation, user, offset, LEN.min(file.len() - offset));
                simulation.wait_for_all().expect("stores do not fail");
            }
        }
    }
}

/// Begins a read of the file of a user.
fn begin_read(simulation: &mut CacheSimulation<FileStore>, user: usize, offset: u64, len: u64) {
    let request = Request { volume: user, op: Op::Read, offset, len };
    simulation.begin(user, &request).expect("stores do not fail");
}
