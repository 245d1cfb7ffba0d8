//! One seed of the experiment: its files, and what users read from them.

use super::super::published::{capacity, geometry};
use super::super::users::{Machine, Users};
use super::assumptions::Assumptions;
use super::{CACHES, EXTENTS, FIGURES, KIB, MIB, PAGES};
use crate::file_system::{FileMap, Interleaved};
use crate::model::StoreModel;
use crate::workload::fileload::{FILE_BYTES, Fileload, Order};
use larder_core::hint::Hint;
use larder_core::store::Geometry;
use larder_schema::mean;

/// Number of files of each kind.
const FILES: usize = 4;

/// One seed of the experiment: the places of its files.
pub(super) struct Trial<'a> {
    assumptions: &'a Assumptions,
    seed: u64,
    /// In the middle of the disk, between each other.
    fragmented: Vec<FileMap>,
    /// Two at each end of the disk.
    at_ends: Vec<FileMap>,
    /// Next to each other, after the fragmented ones.
    together: Vec<FileMap>,
}

impl<'a> Trial<'a> {
    pub(super) fn new(assumptions: &'a Assumptions, seed: u64) -> Self {
        let (capacity, bytes) = (capacity(&assumptions.disk), FILE_BYTES);
        let middle = capacity / 2 / MIB * MIB - FILES as u64 * bytes;
        let set = Interleaved { files: FILES, bytes, extents: EXTENTS };
        let files = |starts: [u64; FILES]| {
            starts.map(|start| FileMap::contiguous(start..start + bytes)).to_vec()
        };
        let after = middle + FILES as u64 * bytes;
        Trial {
            assumptions,
            seed,
            fragmented: set.place(middle, seed),
            at_ends: files([0, bytes, capacity - 2 * bytes, capacity - bytes]),
            together: files([0, 1, 2, 3].map(|number| after + number * bytes)),
        }
    }

    /// Returns the value of each of [`FIGURES`].
    pub(super) fn figures(&self) -> [f64; FIGURES.len()] {
        let (fragmented, at_ends) = (&self.fragmented, &self.at_ends);
        let each = |files: &[FileMap], read: &ReadMode| -> Vec<f64> {
            let rate = |file: &FileMap| self.rate(std::slice::from_ref(file), read);
            files.iter().map(rate).collect()
        };
        let unbuffered = [fragmented, at_ends].map(|files| each(files, &UNBUFFERED));
        let cached = [fragmented, at_ends].map(|files| each(files, &SEQUENTIAL));
        let best = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
        let average = |rates: &[f64]| mean(rates).expect("a rate of each file");
        let four = |files: &[FileMap]| self.rate(files, &SEQUENTIAL);
        let [intertwined, ends, near] = [fragmented, at_ends, &self.together].map(|it| four(it));
        let contiguous =
            if self.assumptions.is_database_together { &self.together } else { at_ends };
        let database = |read_bytes| {
            let read = ReadMode { read_bytes, ..DATABASE };
            [fragmented, contiguous].map(|files| self.rate(files, &read))
        };
        let [small, large] = [8 * KIB, 64 * KIB].map(database);
        let [one, raid] = [self.assumptions.disk(), self.assumptions.raid_10()].map(|store| {
            let machine = self.assumptions.machine();
            let sequential = self.rate_on(&at_ends[..1], &SEQUENTIAL, &machine, store);
            [sequential, self.rate_on(&at_ends[..1], &DATABASE, &machine, store)]
        });
        [
            percent_ahead(average(&unbuffered[1]), average(&unbuffered[0])),
            percent_ahead(average(&cached[1]), average(&cached[0])),
            percent_ahead(intertwined, ends),
            percent_ahead(near, intertwined),
            percent_ahead(small[0], small[1]),
            percent_ahead(large[0], large[1]),
            if best(&unbuffered[1]) > best(&unbuffered[0]) { 100.0 } else { 0.0 },
            percent_ahead(unbuffered[1][0], self.rate(&self.together[..1], &UNBUFFERED)),
            raid[0] / one[0],
            percent_ahead(raid[1], one[1]),
        ]
    }

    /// Returns the speedup by an add-on cache, for each size of each page.
    pub(super) fn speedups(&self) -> [[f64; CACHES.len()]; PAGES.len()] {
        let unbuffered = ReadMode { hint: Hint::NoBuffering, ..DATABASE };
        let without = self.rate(&self.fragmented, &unbuffered);
        let speedup = |page_bytes, mib| {
            let machine =
                Machine { page_bytes, cache_bytes: mib * MIB, ..self.assumptions.machine() };
            self.rate_on(&self.fragmented, &DATABASE, &machine, self.assumptions.disk()) / without
        };
        PAGES.map(|page| CACHES.map(|mib| speedup(page, mib)))
    }

    fn rate(&self, files: &[FileMap], read: &ReadMode) -> f64 {
        self.rate_on(files, read, &self.assumptions.machine(), self.assumptions.disk())
    }

    /// Returns the bytes per second that users read, each from one of the files.
    fn rate_on(
        &self,
        files: &[FileMap],
        read: &ReadMode,
        machine: &Machine,
        store: StoreModel,
    ) -> f64 {
        let load = Fileload::new(read.order, FILE_BYTES, read.read_bytes).expect("large files");
        let is_sequential = read.order == Order::Sequential;
        let reads = if is_sequential { load.reads() } else { DATABASE_READS };
        let is_warm = !is_sequential && read.hint != Hint::NoBuffering;
        let users = Users {
            load,
            files,
            hint: read.hint,
            reads,
            is_warm,
            are_apart: self.assumptions.are_apart,
        };
        let mut machine = machine.clone();
        if read.hint == Hint::NoBuffering {
            // The disk transfers into the memory of the program.
            machine.read_time.bytes_per_s = None;
        }
        let disks =
            if matches!(store, StoreModel::Array(..)) { self.assumptions.disks / 2 } else { 1 };
        let geometry = Geometry { read_only: true, ..geometry(&self.assumptions.disk, disks) };
        users.bytes_per_s(&machine, store.build(geometry), self.seed)
    }
}

/// Reads of each user of a database.
const DATABASE_READS: u64 = 10_000;

/// The reads of a user.
#[derive(Clone, Copy, Debug)]
struct ReadMode {
    order: Order,
    read_bytes: u64,
    hint: Hint,
}

const UNBUFFERED: ReadMode =
    ReadMode { order: Order::Sequential, read_bytes: 8 * KIB, hint: Hint::NoBuffering };
const SEQUENTIAL: ReadMode = ReadMode { hint: Hint::Sequential, ..UNBUFFERED };
const DATABASE: ReadMode =
    ReadMode { order: Order::Database, read_bytes: 8 * KIB, hint: Hint::Random };

/// Returns by how many percent `value` is above `other`.
fn percent_ahead(value: f64, other: f64) -> f64 {
    100.0 * (value / other - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The directions that the study is known for.
    #[test]
    fn contiguous_files_win_alone_and_arrays_are_faster_in_order() {
        let assumptions = Assumptions::published_disk();
        let trial = Trial::new(&assumptions, 7);
        let fragmented = trial.rate(&trial.fragmented[..1], &UNBUFFERED);
        let contiguous = trial.rate(&trial.together[..1], &UNBUFFERED);
        assert!(contiguous > 1.1 * fragmented, "{contiguous} {fragmented}");
        let again = Trial::new(&assumptions, 7).rate(&trial.fragmented[..1], &UNBUFFERED);
        assert_eq!(fragmented.to_bits(), again.to_bits());
        let outer = trial.rate(&trial.at_ends[..1], &UNBUFFERED);
        let inner = trial.rate(&trial.at_ends[3..], &UNBUFFERED);
        assert!(outer > 1.2 * inner, "{outer} {inner}");
        let array = trial.rate_on(
            &trial.at_ends[..1],
            &SEQUENTIAL,
            &assumptions.machine(),
            assumptions.raid_10(),
        );
        assert!(array > 2.0 * outer, "{array} {outer}");
    }
}
