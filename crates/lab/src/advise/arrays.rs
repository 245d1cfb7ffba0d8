//! The choice of a RAID level and a chunk.

use super::split::SplitStore;
use super::traffic::{DeviceRequest, RunResult, Traffic, geometry, run_on};
use crate::model::{ArrayLayout, ArrayLevel, ArrayStore, DeviceModel, StoreModel};
use crate::steps::run_all;
use larder_core::units::as_f64;
use larder_schema::storage_advice::{ArrayRow, TIE};
use std::num::NonZero;
use std::ops::Range;

/// Chunks of arrays that have them.
const CHUNKS: [u64; 4] = [16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// The default, which the others do not use.
pub(super) const NO_CHUNK: u64 = 512 << 10;
/// Levels of candidates.
const LEVELS: [ArrayLevel; 6] = [
    ArrayLevel::Linear,
    ArrayLevel::Stripe,
    ArrayLevel::Mirror,
    ArrayLevel::Parity,
    ArrayLevel::DoubleParity,
    ArrayLevel::StripedMirrors,
];

/// The requirements of an array.
#[derive(Clone, Copy, Debug)]
pub struct ArrayNeeds {
    /// The disks, all alike.
    pub disk: DeviceModel,
    /// Their number, from 1 to 64.
    pub disks: u32,
    /// Failed disks that the array must survive.
    pub failures: u32,
    /// Bytes that it must have; at least those of the traffic are needed as well.
    pub bytes: u64,
    /// Price of a disk.
    pub price: Option<f64>,
    /// Requests in flight.
    pub depth: usize,
}

impl ArrayNeeds {
    /// Returns the model of an array of the disks.
    pub(super) fn model_of(&self, layout: ArrayLayout) -> StoreModel {
        match layout.level {
            ArrayLevel::Linear => StoreModel::Device(self.disk),
            _ => StoreModel::Array(layout, self.disk),
        }
    }

    fn build(&self, layout: ArrayLayout, bytes: u64) -> ArrayStore {
        ArrayStore::new(geometry(bytes), layout, |of_member, number| {
            self.disk.build(of_member, number)
        })
    }
}

/// A log that lies on disks of its own.
#[derive(Clone, Debug)]
pub(super) struct LogPlace {
    /// Its disks.
    pub(super) layout: ArrayLayout,
    /// Its bytes in the traffic.
    pub(super) range: Range<u64>,
}

/// Returns all candidates, the fastest first, and the index of the advised one, if any has enough
/// space and survives enough failures.
#[must_use]
pub fn advise_array(
    traffic: &Traffic,
    requests: &[DeviceRequest],
    needs: &ArrayNeeds,
    threads: NonZero<usize>,
) -> (Vec<ArrayRow>, Option<usize>) {
    let rows = run_candidates(traffic.bytes(), requests, needs, None, threads);
    let advised = choose(&rows, needs.disk.capacity_bytes());
    (rows, advised)
}

/// Returns all candidates for `bytes` of data, the fastest first. With a log, they are for the rest
/// of the data, and the rates are those of all requests.
pub(super) fn run_candidates(
    bytes: u64,
    requests: &[DeviceRequest],
    needs: &ArrayNeeds,
    log: Option<&LogPlace>,
    threads: NonZero<usize>,
) -> Vec<ArrayRow> {
    let layouts = candidates(needs.disks);
    let step = |index: usize| row(layouts[index], bytes, requests, needs, log);
    let mut rows = run_all(layouts.len(), threads, step, &mut || ());
    rows.sort_by(|a, b| b.requests_per_s.total_cmp(&a.requests_per_s));
    rows
}

/// Returns the layouts: one disk, a mirror of two, and the levels with chunks on all disks.
fn candidates(disks: u32) -> Vec<ArrayLayout> {
    let of_level = |level: ArrayLevel| -> Vec<ArrayLayout> {
        let with = |members: u32, chunks: &[u64]| {
            let layout = |&chunk| ArrayLayout::new(level, members, chunk);
            chunks.iter().map(layout).collect::<Vec<_>>()
        };
        match level {
            ArrayLevel::Linear => with(1, &[NO_CHUNK]),
            ArrayLevel::Mirror if disks >= 2 => with(2, &[NO_CHUNK]),
            ArrayLevel::Mirror => Vec::new(),
            _ if disks < level.members_min() => Vec::new(),
            // With two disks this is a mirror.
            ArrayLevel::StripedMirrors if disks < 4 => Vec::new(),
            _ => with(disks, &CHUNKS),
        }
    };
    LEVELS.into_iter().flat_map(of_level).collect()
}

fn row(
    layout: ArrayLayout,
    bytes: u64,
    requests: &[DeviceRequest],
    needs: &ArrayNeeds,
    log: Option<&LogPlace>,
) -> ArrayRow {
    let disk_bytes = needs.disk.capacity_bytes();
    // A disk without a capacity has place for everything.
    let usable_bytes = disk_bytes.map(|bytes| layout.usable_bytes(bytes));
    let mut array = needs.build(layout, usable_bytes.unwrap_or(0).max(bytes));
    let (result, of_log) = if let Some(LogPlace { layout, range }) = log {
        let usable = disk_bytes.map_or(0, |bytes| layout.usable_bytes(bytes));
        let mut log = needs.build(*layout, usable.max(range.end - range.start));
        let mut store = SplitStore { log: &mut log, range: range.clone(), rest: &mut array };
        let result = run_on(&mut store, requests.iter().copied(), needs.depth);
        (result, log.member_operations())
    } else {
        (run_on(&mut array, requests.iter().copied(), needs.depth), 0)
    };
    let RunResult { requests_per_s, mean_ns } = result;
    let needed = bytes.max(needs.bytes);
    let failures_survived = layout.failures_survived();
    let suffices =
        failures_survived >= needs.failures && usable_bytes.is_none_or(|it| it >= needed);
    let operations = array.member_operations() + of_log;
    let per_request = as_f64(operations) / as_f64(requests.len().max(1) as u64);
    let has_chunks = !matches!(layout.level, ArrayLevel::Linear | ArrayLevel::Mirror);
    ArrayRow {
        model: needs.model_of(layout).name().into_owned(),
        level: if layout.level == ArrayLevel::Linear { "one disk" } else { layout.level.name() },
        disks: layout.members,
        chunk_bytes: has_chunks.then_some(layout.chunk_bytes),
        usable_bytes,
        failures_survived,
        suffices,
        requests_per_s,
        mean_ns,
        operations_per_request: per_request,
        price_per_request_per_s: needs
            .price
            .map(|price| price * f64::from(layout.members) / requests_per_s),
    }
}

/// Returns the index of the advised row; the rows are in order of their rates.
fn choose(rows: &[ArrayRow], disk_bytes: Option<u64>) -> Option<usize> {
    let fastest = rows.iter().find(|row| row.suffices)?.requests_per_s;
    let is_tied = |row: &ArrayRow| row.requests_per_s >= fastest * (1.0 - TIE);
    let ties = rows.iter().enumerate().filter(|(_, row)| row.suffices && is_tied(row));
    // In whole disks: the last chunk of a disk is no difference.
    let disk = disk_bytes.unwrap_or(1);
    let usable_disks = |row: &ArrayRow| (row.usable_bytes.unwrap_or(0) + disk / 2) / disk;
    // Of equal ones the fastest.
    ties.rev().max_by_key(|(_, row)| usable_disks(row)).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::DiskSpec;
    use crate::random::Random;
    use larder_core::store::StoreOpKind;

    const WRITE: StoreOpKind = StoreOpKind::Write { fua: false };

    fn needs(disks: u32, failures: u32) -> ArrayNeeds {
        let disk = DeviceModel::Disk(DiskSpec::scsi_1999());
        ArrayNeeds { disk, disks, failures, bytes: 0, price: Some(100.0), depth: 16 }
    }

    /// Returns random requests of 4 KiB, a share of them writes.
    fn random(writes_percent: u64) -> Traffic {
        let mut random = Random::from_seed(1);
        let request = |at| {
            let kind = if random.below(100) < writes_percent { WRITE } else { StoreOpKind::Read };
            DeviceRequest { at, kind, offset: random.below(1 << 18) * 4096, len: 4096 }
        };
        Traffic::new((0..2_000).map(request).collect(), &[1 << 30])
    }

    fn advised(traffic: &Traffic, needs: &ArrayNeeds) -> Option<ArrayRow> {
        let threads = NonZero::new(2).expect("two");
        let (rows, advised) = advise_array(traffic, traffic.requests(), needs, threads);
        assert!(rows.windows(2).all(|pair| pair[0].requests_per_s >= pair[1].requests_per_s));
        advised.map(|index| rows[index].clone())
    }

    #[test]
    fn random_writes_want_mirrors_and_the_disks_must_suffice() {
        let row = advised(&random(100), &needs(4, 1)).unwrap();
        assert_eq!((row.level, row.failures_survived), ("raid10", 1));
        assert!((row.operations_per_request - 2.0).abs() < 0.01);
        assert!(row.price_per_request_per_s.is_some_and(|price| price > 0.0));
        let row = advised(&random(100), &needs(4, 2)).unwrap();
        assert_eq!(row.level, "raid6");
        assert_eq!(advised(&random(0), &needs(1, 1)), None);
        assert_eq!(advised(&random(0), &needs(1, 0)).unwrap().level, "one disk");
        let large = ArrayNeeds { bytes: 10_000_000_000, ..needs(4, 1) };
        // Two mirrored pairs have 8.7 GB.
        assert_eq!(advised(&random(100), &large).unwrap().level, "raid5");
    }

    #[test]
    fn reads_alone_get_the_space_of_parity() {
        assert_eq!(advised(&random(0), &needs(4, 1)).unwrap().level, "raid5");
    }
}
