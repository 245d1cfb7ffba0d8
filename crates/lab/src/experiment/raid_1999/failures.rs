//! Reads from arrays with a failed member, and beside its rebuild.

use super::super::published::geometry;
use super::KIB;
use crate::model::{
    ArrayLayout, ArrayLevel, ArrayStore, ClosedLoop, DeviceModel, DiskSpec, LoopEnd,
};
use crate::random::Random;
use larder_core::clock::{Nanos, SECOND};
use larder_core::store::StoreOpKind;
use larder_core::units::as_f64;
use larder_schema::experiment::{Curve, Line};
use larder_schema::mean;

const DISKS: u32 = 4;
/// Requests in flight; with none, the rebuild is alone.
const DEPTHS: [usize; 5] = [0, 1, 4, 16, 32];
/// Time of a measurement, from the start of the rebuild.
const TIME: Nanos = 60 * SECOND;
/// The levels, the text of each, and the disks whose data it has.
const LEVELS: [(ArrayLevel, &str, u32); 3] = [
    (ArrayLevel::StripedMirrors, "RAID 10", 2),
    (ArrayLevel::Parity, "RAID 5", 3),
    (ArrayLevel::DoubleParity, "RAID 6", 2),
];
const STATES: [&str; 3] = ["whole", "one disk failed", "one disk rebuilt"];

/// The rates of a level.
#[derive(Clone, Copy, Default)]
pub(super) struct Rates {
    /// Reads per second, by number of requests in flight and by state.
    reads: [[f64; STATES.len()]; DEPTHS.len()],
    /// MB/s of the rebuild, by number of requests in flight.
    rebuild: [f64; DEPTHS.len()],
}

/// Returns the rates of all levels.
pub(super) fn rates(seed: u64) -> [Rates; LEVELS.len()] {
    LEVELS.map(|(level, _, data_disks)| {
        let mut rates = Rates::default();
        let whole = ArrayLayout::new(level, DISKS, 64 * KIB);
        let layouts = [
            whole,
            ArrayLayout { failed: [0].into_iter().collect(), ..whole },
            ArrayLayout { rebuilt: Some(0), ..whole },
        ];
        for (index, depth) in DEPTHS.into_iter().enumerate() {
            for (state, layout) in layouts.into_iter().enumerate() {
                let (reads, rebuilt) = measure(layout, data_disks, depth, seed);
                rates.reads[index][state] = reads;
                rates.rebuild[index] = rebuilt;
            }
        }
        rates
    })
}

/// Returns the reads per second, and the MB/s of the rebuild.
fn measure(layout: ArrayLayout, data_disks: u32, depth: usize, seed: u64) -> (f64, f64) {
    let disk = DiskSpec::scsi_1999();
    let geometry = geometry(&disk, data_disks);
    let member = DeviceModel::Disk(disk);
    let mut store =
        ArrayStore::new(geometry, layout, |of_member, number| member.build(of_member, number));
    store.rebuilt_bytes(0);
    let mut random = Random::from_seed(seed);
    let reads = ClosedLoop { kind: StoreOpKind::Read, len: 4 * KIB, depth };
    let offset_of = |_| random.below(geometry.length / (4 * KIB)) * 4 * KIB;
    let rate = match depth {
        0 => 0.0,
        _ => reads.run(&mut store, LoopEnd::At(TIME), offset_of, |_| ()),
    };
    (rate, as_f64(store.rebuilt_bytes(TIME).unwrap_or(0)) / as_f64(TIME) * 1e3)
}

/// Returns the curves: reads of each level, and the rebuild of all.
pub(super) fn curves(of_seeds: &[[Rates; LEVELS.len()]]) -> Vec<Curve> {
    let points = |value: &dyn Fn(&[Rates; LEVELS.len()], usize) -> f64, first: usize| {
        let point = |index: usize| {
            let values: Vec<f64> = of_seeds.iter().map(|rates| value(rates, index)).collect();
            Some((as_f64(DEPTHS[index] as u64), mean(&values)?))
        };
        (first..DEPTHS.len()).filter_map(point).collect::<Vec<_>>()
    };
    let names = ["reads of 4 KiB: RAID 10", "reads of 4 KiB: RAID 5", "reads of 4 KiB: RAID 6"];
    let over = "in flight";
    let of_level = |(level, name): (usize, &'static str)| {
        let line = |state: usize| Line {
            name: STATES[state].to_owned(),
            points: points(&|rates, index| rates[level].reads[index][state], 1),
        };
        Curve { name, over, unit: "reads/s", lines: (0..STATES.len()).map(line).collect() }
    };
    let mut curves: Vec<Curve> = names.into_iter().enumerate().map(of_level).collect();
    let line = |level: usize| Line {
        name: LEVELS[level].1.to_owned(),
        points: points(&|rates, index| rates[level].rebuild[index], 0),
    };
    let lines = (0..LEVELS.len()).map(line).collect();
    curves.push(Curve { name: "rebuild beside these reads", over, unit: "MB/s", lines });
    curves
}

/// Returns the sentences about the arrays.
pub(super) fn sentence() -> String {
    format!(
        "Failures: {DISKS} disks scsi-1999 with chunks of 64 KiB; reads of 4 KiB at random places \
         in the first {} seconds of a rebuild, by the rules and limits of Linux md (1,000 to \
         200,000 KiB/s).",
        TIME / SECOND
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A read from the failed one of four disks takes three reads with parity, one of a mirror.
    #[test]
    fn a_failed_disk_halves_the_reads_of_parity_and_a_rebuild_takes_a_share() {
        for (rates, [low, high]) in rates(1).iter().zip([[0.55, 0.95], [0.4, 0.65], [0.4, 0.65]]) {
            let [.., [whole, degraded, rebuilt]] = rates.reads;
            assert!((low..high).contains(&(degraded / whole)), "{degraded} of {whole}");
            assert!(rebuilt < degraded, "{rebuilt} and {degraded}");
            let [alone, .., beside] = rates.rebuild;
            // The minimum rate of md is 1.02 MB/s.
            assert!(beside > 0.9 && beside < 0.8 * alone, "{beside} and {alone}");
        }
    }
}
