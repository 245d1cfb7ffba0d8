//! Rates of the levels.

use super::{KIB, MIB, RATIOS};
use crate::model::{ArrayLayout, ArrayLevel, DeviceModel, DiskSpec, StoreModel};
use crate::random::Random;
use larder_core::clock::{Nanos, SECOND};
use larder_core::frames::NoFrames;
use larder_core::store::{Geometry, Store, StoreOp, StoreOpKind};
use larder_core::units::as_f64;

/// Disks of each array.
const DISKS: u32 = 4;
/// Requests of a measurement.
const REQUESTS: u64 = 4_000;
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

/// Returns the rates of levels 10 and 5 as a percentage of that of level 0, for each workload.
pub(super) fn shares(seed: u64) -> [f64; RATIOS] {
    let mut shares = [0.0; RATIOS];
    for (shares, requests) in shares.chunks_mut(2).zip(WORKLOADS) {
        let [stripe, others @ ..] = LEVELS.map(|level| rate(level, requests, seed));
        for (share, rate) in shares.iter_mut().zip(others) {
            *share = 100.0 * rate / stripe;
        }
    }
    shares
}

/// Returns the requests per second of a closed loop.
fn rate(level: ArrayLevel, requests: Requests, seed: u64) -> f64 {
    let Requests { kind, bytes, depth, is_random } = requests;
    let spec = DiskSpec::scsi_1999();
    let layout = ArrayLayout { level, members: DISKS, chunk_bytes: 64 * KIB, failed: None };
    let granule = u32::try_from(spec.sector_bytes).expect("a sector");
    let data_disks = match level {
        ArrayLevel::StripedMirrors => DISKS / 2,
        ArrayLevel::Parity => DISKS - 1,
        _ => DISKS,
    };
    let length = spec.capacity_bytes / MIB * MIB * u64::from(data_disks);
    let geometry = Geometry { length, granule, read_only: false };
    let mut store = StoreModel::Array(layout, DeviceModel::Disk(spec)).build(geometry);
    let (frames, mut random) = (NoFrames::new(0), Random::from_seed(seed));
    let (mut now, mut sent, mut done): (Nanos, u64, Vec<_>) = (0, 0, Vec::new());
    let first = random.below(length / 2 / bytes);
    while (done.len() as u64) < REQUESTS {
        while sent < REQUESTS && store.in_flight() < depth {
            let place = if is_random { random.below(length / bytes) } else { first + sent };
            let (offset, len) = (place * bytes, bytes);
            let segments = Vec::new();
            let op = StoreOp { tag: sent, kind, offset, len, segments, queued_at: now };
            store.submit(now, &frames, op);
            sent += 1;
        }
        now = store.next_event().expect("operations are in flight").max(now);
        store.reap(now, &frames, &mut done);
    }
    as_f64(REQUESTS) * as_f64(SECOND) / as_f64(now.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_levels_have_the_published_ranks() {
        let [read_10, read_5, write_10, write_5, in_order_10, in_order_5, written_10, written_5] =
            shares(1);
        assert!(read_10 > 70.0 && read_5 > 70.0, "{read_10} {read_5}");
        assert!(write_5 < write_10 && write_10 < 100.0, "{write_10} {write_5}");
        assert!(in_order_10 < in_order_5, "{in_order_10} {in_order_5}");
        assert!(written_5 < 100.0 && written_10 < 100.0, "{written_10} {written_5}");
    }
}
