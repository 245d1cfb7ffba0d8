//! Rates of the levels.

use super::super::published::geometry;
use super::{KIB, MIB, RESULTS};
use crate::model::{
    ArrayLayout, ArrayLevel, ClosedLoop, DeviceModel, DiskSpec, LoopEnd, StoreModel,
};
use crate::random::Random;
use larder_core::store::StoreOpKind;
use larder_core::units::as_f64;

/// Disks of each array.
const DISKS: u32 = 4;
/// Requests of a measurement; of large ones fewer, so that they stay in the outermost zone.
const REQUESTS: u64 = 4_000;
const LARGE_REQUESTS: u64 = 400;
/// Rates that differ by less have the same rank.
const TIE: f64 = 0.1;
/// The levels, the first of which is the reference.
const LEVELS: [ArrayLevel; 3] =
    [ArrayLevel::Stripe, ArrayLevel::StripedMirrors, ArrayLevel::Parity];

/// Requests of one kind to an array.
#[derive(Clone, Copy)]
struct Requests {
    kind: StoreOpKind,
    bytes: u64,
    depth: usize,
    is_random: bool,
}

const WRITE: StoreOpKind = StoreOpKind::Write { fua: false };
/// The workloads.
const WORKLOADS: [Requests; 4] = [
    Requests { kind: StoreOpKind::Read, bytes: 4 * KIB, depth: 32, is_random: true },
    Requests { kind: WRITE, bytes: 4 * KIB, depth: 32, is_random: true },
    Requests { kind: StoreOpKind::Read, bytes: 64 * KIB, depth: 8, is_random: false },
    Requests { kind: WRITE, bytes: MIB, depth: 8, is_random: false },
];

/// Returns the ranks of levels 10 and 5 for each workload, and then how many times slower than
/// level 0 they write, at random and in order.
pub(super) fn results(seed: u64) -> [f64; RESULTS] {
    let rates = WORKLOADS.map(|workload| LEVELS.map(|level| rate(level, workload, seed)));
    let ranks = rates.iter().flat_map(|rates| [rank(rates, 1), rank(rates, 2)]);
    let writes = rates.iter().zip(WORKLOADS).filter(|(_, workload)| workload.kind == WRITE);
    let slower = writes.flat_map(|([stripe, others @ ..], _)| others.map(|rate| stripe / rate));
    let mut results = [0.0; RESULTS];
    results.iter_mut().zip(ranks.chain(slower)).for_each(|(result, value)| *result = value);
    results
}

/// Returns the rank of a rate: one more than the number of rates that are clearly higher.
fn rank(rates: &[f64], index: usize) -> f64 {
    let is_higher = |rate: &&f64| **rate > rates[index] * (1.0 + TIE);
    as_f64(1 + rates.iter().filter(is_higher).count() as u64)
}

/// Returns the requests per second of a closed loop.
fn rate(level: ArrayLevel, workload: Requests, seed: u64) -> f64 {
    let Requests { kind, bytes, depth, is_random } = workload;
    let spec = DiskSpec::scsi_1999();
    let layout = ArrayLayout::new(level, DISKS, 64 * KIB);
    let data_disks = match level {
        ArrayLevel::StripedMirrors => DISKS / 2,
        ArrayLevel::Parity => DISKS - 1,
        _ => DISKS,
    };
    let geometry = geometry(&spec, data_disks);
    let mut store = StoreModel::Array(layout, DeviceModel::Disk(spec)).build(geometry);
    let mut random = Random::from_seed(seed);
    let requests = if is_random { REQUESTS } else { LARGE_REQUESTS };
    // In order from a random place near the begin.
    let first = random.below(LARGE_REQUESTS);
    let offset_of = |number| {
        let place = if is_random { random.below(geometry.length / bytes) } else { first + number };
        place * bytes
    };
    let operations = ClosedLoop { kind, len: bytes, depth };
    operations.run(&mut *store, LoopEnd::Operations(requests), offset_of, |_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_counts_the_rates_that_are_clearly_higher() {
        let rates = [100.0, 95.0, 60.0];
        assert!([0, 1, 2].map(|index| rank(&rates, index)).into_iter().eq([1.0, 1.0, 3.0]));
    }

    #[test]
    fn small_writes_are_twice_and_four_times_slower() {
        let [.., mirrors, parity, _, _] = results(1);
        assert!((1.6..2.2).contains(&mirrors), "{mirrors}");
        assert!((3.0..4.4).contains(&parity), "{parity}");
    }
}
