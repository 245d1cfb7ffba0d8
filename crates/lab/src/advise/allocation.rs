//! The choice of the allocation unit of a file system for files of known sizes.
//!
//! Files are created and removed at random until the content of a file system has been replaced
//! twice; then the data of the traffic is written there. Small units leave more extents, and large
//! ones more unused bytes at the ends of files.

use super::traffic::{DeviceRequest, Traffic, geometry, run_on};
use crate::file_system::{AgedVolume, Ageing, FileMap};
use crate::model::StoreModel;
use crate::random::Random;
use larder_core::units::as_f64;
use larder_schema::storage_advice::{TIE, UnitRow};

/// The allocation units.
pub const UNITS: [u64; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// Data of a part, and the length of its own file system.
const PART: u64 = 256 << 20;
const PART_DEVICE: u64 = 5 * PART;
/// Share of a file system that is free for the data.
const FREE_PERCENT: u64 = 25;
/// Replacements of the content of a file system before the data is written.
const REPLACED: u64 = 2;
/// Maximum share of the space that a unit may leave unused.
const WASTE_MAX: f64 = 0.1;

/// Returns a row for each unit on an array, and the index of the advised one: the fastest that
/// leaves at most a tenth unused; of those within [`TIE`] the smallest; the smallest unit if all
/// leave more.
///
/// `usable_bytes` are those of the array. `sizes` are the lengths of the files, at least one of
/// which is not empty.
#[must_use]
pub fn advise_unit(
    traffic: &Traffic,
    requests: &[DeviceRequest],
    (model, usable_bytes, depth): (&StoreModel, Option<u64>, usize),
    sizes: &[u64],
    seed: u64,
) -> (Vec<UnitRow>, usize) {
    let used_share = |unit: u64| {
        let used: u128 = sizes.iter().map(|&len| u128::from(len.next_multiple_of(unit))).sum();
        let all: u128 = sizes.iter().map(|&len| u128::from(len)).sum();
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let share = all as f64 / used.max(1) as f64;
        share
    };
    let row = |unit: u64| {
        let place = AgedPlace::new(unit, sizes, seed);
        let divided: Vec<DeviceRequest> =
            requests.iter().flat_map(|request| place.divided(request)).collect();
        let per_request = as_f64(divided.len() as u64) / as_f64(requests.len().max(1) as u64);
        let length = usable_bytes.unwrap_or(0).max(AgedPlace::device_bytes(traffic.bytes()));
        let mut store = model.build(geometry(length));
        let result = run_on(&mut *store, divided.into_iter(), depth);
        UnitRow {
            unit_bytes: unit,
            extent_bytes: place.extent_bytes(),
            requests_per_s: result.requests_per_s / per_request,
            parts_per_request: per_request,
            unused_share: 1.0 - used_share(unit),
        }
    };
    let rows: Vec<UnitRow> = UNITS.into_iter().map(row).collect();
    let is_possible = |row: &&UnitRow| row.unused_share <= WASTE_MAX;
    let rates = rows.iter().filter(is_possible).map(|row| row.requests_per_s);
    let fastest = rates.fold(0.0, f64::max);
    let is_fast = |row: &UnitRow| row.requests_per_s >= fastest * (1.0 - TIE);
    let advised = rows.iter().position(|row| is_possible(&row) && is_fast(row));
    (rows, advised.unwrap_or(0))
}

/// The place of data on an aged file system. Each part of [`PART`] lies as on a file system of its
/// own, with files around it that are as long as `sizes`.
struct AgedPlace {
    part: FileMap,
}

impl AgedPlace {
    fn new(unit: u64, sizes: &[u64], seed: u64) -> Self {
        let len = |random: &mut Random| {
            let index = random.below(sizes.len() as u64);
            sizes[usize::try_from(index).expect("an index")].clamp(1, PART)
        };
        let (bytes, free_percent, replaced) = (PART_DEVICE, FREE_PERCENT, REPLACED);
        let mut volume = AgedVolume::new(Ageing { bytes, unit, free_percent, replaced }, len, seed);
        AgedPlace { part: volume.create(PART) }
    }

    /// Returns the length of the file system for this much data.
    fn device_bytes(bytes: u64) -> u64 {
        bytes.div_ceil(PART).saturating_mul(PART_DEVICE)
    }

    /// Returns the mean length of an extent.
    fn extent_bytes(&self) -> u64 {
        PART / (self.part.extents().len() as u64).max(1)
    }

    /// Returns the requests to the device.
    fn divided(&self, request: &DeviceRequest) -> Vec<DeviceRequest> {
        let (mut divided, mut at) = (Vec::new(), request.offset);
        let end = request.offset + request.len;
        while at < end {
            let (number, start) = (at / PART, at % PART);
            let len = (end - at).min(PART - start);
            let base = number.saturating_mul(PART_DEVICE);
            divided.extend(self.part.on_device(start..start + len).map(|range| DeviceRequest {
                offset: base + range.start,
                len: range.end - range.start,
                ..*request
            }));
            at += len;
        }
        divided
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DeviceModel, DiskSpec};
    use larder_core::store::StoreOpKind;

    /// Sequential requests of 256 KiB cross the more extents the smaller the units are.
    #[test]
    fn large_units_serve_large_requests_and_waste_what_small_files_leave() {
        let request = |at: u64| DeviceRequest {
            at,
            kind: StoreOpKind::Read,
            offset: at * (256 << 10),
            len: 256 << 10,
        };
        let traffic = Traffic::new((0..400).map(request).collect(), &[128 << 20]);
        let disk = StoreModel::Device(DeviceModel::Disk(DiskSpec::scsi_1999()));
        let advise =
            |sizes: &[u64]| advise_unit(&traffic, traffic.requests(), (&disk, None, 4), sizes, 1);
        let sizes: Vec<u64> = (0..=32).map(|step| 4096 << (step / 4)).collect();
        let (rows, advised) = advise(&sizes);
        let [first, .., last] = &rows[..] else { panic!("five units") };
        assert!(first.parts_per_request > last.parts_per_request);
        assert!(first.extent_bytes < last.extent_bytes);
        assert!(first.requests_per_s < last.requests_per_s, "{rows:?}");
        assert!(rows[advised].unused_share <= WASTE_MAX && last.unused_share > WASTE_MAX);
        // Files of 3,000 bytes leave more than a quarter of every unit.
        let (rows, advised) = advise(&[3_000]);
        assert_eq!(rows[advised].unit_bytes, 4096);
        assert!(rows[4].unused_share > 0.9);
    }
}
