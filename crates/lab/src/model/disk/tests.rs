//! Tests of the modeled disk: the rates of the real drive, shortest-positioning-first order with
//! bounded waiting, and determinism. Rates are operations per second of virtual time.

use super::super::rig::{self, closed_loop, closed_loop_of, instant, read, scattered, write};
use super::super::{DEVICES, DeviceModel, Disk, DiskSpec, ModeledStore, StoreModel};
use larder_core::clock::{MILLISECOND, SECOND};
use larder_core::frames::NoFrames;
use larder_core::store::{Geometry, Store, StoreOpKind};
use larder_core::units::as_f64;

const TIB: u64 = 1 << 40;
const WRITE: StoreOpKind = StoreOpKind::Write { fua: false };

fn disk() -> Disk {
    Disk::seven_thousand_two_hundred(TIB)
}

fn random_rate(depth: u64, kind: StoreOpKind, length: u64) -> f64 {
    let disk = Disk::seven_thousand_two_hundred(length);
    closed_loop(disk, depth, 4_000, kind, 4096, scattered(length, 11)).rate
}

#[test]
fn random_reads_one_at_a_time_are_75_to_80_a_second() {
    for length in [TIB, 1 << 36, 1 << 30] {
        let rate = random_rate(1, StoreOpKind::Read, length);
        assert!((75.0..=80.0).contains(&rate), "{rate} of {length}");
    }
    let writes = random_rate(1, WRITE, TIB);
    assert!((70.0..=77.0).contains(&writes), "{writes}");
}

#[test]
fn a_queue_of_32_brings_about_twice_as_much() {
    let one = random_rate(1, StoreOpKind::Read, TIB);
    let gains: Vec<f64> =
        [4, 8, 32].map(|depth| random_rate(depth, StoreOpKind::Read, TIB) / one).to_vec();
    assert!(gains.is_sorted(), "{gains:?}");
    assert!((1.6..=2.3).contains(&gains[2]), "{gains:?}");
}

#[test]
fn sequential_reads_run_at_the_rate_of_the_zone() {
    let rate = |len: u64, from: u64| {
        let result = closed_loop(disk(), 1, 20_000, StoreOpKind::Read, len, |at| from + at * len);
        result.rate * f64::from(u32::try_from(len).unwrap()) / 1e6
    };
    let (outer, inner) = (rate(128 << 10, 0), rate(128 << 10, TIB - (4 << 30)));
    assert!((145.0..=151.0).contains(&outer), "{outer} MB/s");
    assert!((72.0..=77.0).contains(&inner), "{inner} MB/s");
}

#[test]
fn sequential_writes_without_the_disks_cache_miss_a_revolution_each_unless_queued() {
    let rate = |depth| closed_loop(disk(), depth, 2_000, WRITE, 4096, |at| at * 4096).rate;
    let alone = rate(1);
    assert!((115.0..=121.0).contains(&alone), "{alone}");
    let queued = rate(32) * 4096.0 / 1e6;
    assert!(queued > 100.0, "{queued} MB/s");
}

#[test]
fn the_nearest_is_served_first_by_rotation_and_by_distance() {
    let frames = NoFrames::new(0);
    let mut store = ModeledStore::new(instant(TIB), disk());
    let mut done = Vec::new();
    // The first read moves the head to the start. Of the others, which wait meanwhile, one lies far
    // away and four lie on one track, a fifth of a revolution apart.
    let track = DiskSpec::seven_thousand_two_hundred().outer_bytes_per_s / 120;
    store.submit(0, &frames, read(0, 0, 4096));
    store.submit(0, &frames, read(9, TIB / 10 * 9 / 4096 * 4096, 4096));
    for fifth in [4, 2, 3, 1] {
        store.submit(0, &frames, read(fifth, (track * 1_000 + track / 5 * fifth) / 512 * 512, 512));
    }
    rig::drain(&mut store, &frames, &mut done);
    let order: Vec<u64> = done.iter().map(|each| each.op.tag).collect();
    assert_eq!((order[0], order[5]), (0, 9), "{order:?}");
    let wrong_steps =
        order[1..5].windows(2).filter(|pair| pair[1] % 4 != (pair[0] + 1) % 4).count();
    assert_eq!(wrong_steps, 0, "one revolution serves all four in turn: {order:?}");
}

#[test]
fn a_far_operation_does_not_starve_behind_near_ones() {
    // All operations are on the outer tracks except one at the far end, and the queue is always
    // full.
    let near = 64 << 20;
    let mut near_offset = scattered(near, 5);
    let offset_of = move |tag| if tag == 40 { TIB - 4096 } else { near_offset(tag) };
    let result = closed_loop(disk(), 32, 4_000, StoreOpKind::Read, 4096, offset_of);
    let at = result.order.iter().position(|tag| *tag == 40).unwrap();
    assert!(at < 1_000, "served as number {at}");
    let bound = DiskSpec::seven_thousand_two_hundred().age_max;
    assert!(result.longest > bound / 4, "the near ones went first: {}", result.longest);
    assert!(result.longest < bound, "{}", result.longest);
    // Without the bound the far operation is served last.
    let patient = DiskSpec { age_max: 1_000 * SECOND, ..DiskSpec::seven_thousand_two_hundred() };
    let mut near_offset = scattered(near, 5);
    let offset_of = move |tag| if tag == 40 { TIB - 4096 } else { near_offset(tag) };
    let disk = Disk::new(patient, TIB);
    let starved = closed_loop(disk, 32, 4_000, StoreOpKind::Read, 4096, offset_of);
    assert_eq!(starved.order.last(), Some(&40));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || closed_loop(disk(), 16, 500, StoreOpKind::Read, 4096, scattered(TIB, 9));
    assert_eq!(run(), run());
}

#[test]
fn a_write_cache_answers_at_once_and_a_flush_pays() {
    let frames = NoFrames::new(0);
    let spec = DiskSpec { write_cache_bytes: 1 << 20, ..DiskSpec::seven_thousand_two_hundred() };
    let mut store = ModeledStore::new(instant(TIB), Disk::new(spec, TIB));
    let mut offset_of = scattered(TIB, 2);
    let mut done = Vec::new();
    for tag in 0..100 {
        store.submit(0, &frames, write(tag, offset_of(tag), 4096));
    }
    store.submit(0, &frames, rig::flush(100));
    rig::drain(&mut store, &frames, &mut done);
    assert_eq!(done.last().unwrap().op.tag, 100);
    let (last_write, flush) = (done[99].finished_at, done[100].finished_at);
    assert!(last_write < 5 * MILLISECOND, "{last_write}");
    // A hundred random writes, in the best order: more than 3 ms and less than 10 ms each.
    assert!((300..1_000).contains(&(flush / MILLISECOND)), "{flush}");
}

#[test]
fn a_full_write_cache_is_as_slow_as_the_platter() {
    let spec = DiskSpec { write_cache_bytes: 1 << 20, ..DiskSpec::seven_thousand_two_hundred() };
    let result = closed_loop(Disk::new(spec, TIB), 1, 2_000, WRITE, 4096, scattered(TIB, 4));
    assert!((100.0..400.0).contains(&result.rate), "{}", result.rate);
}

/// Returns the operations per second on a disk that is built by its specification.
fn built_rate(spec: DiskSpec, depth: u64, len: u64, offset_of: impl FnMut(u64) -> u64) -> f64 {
    let geometry = Geometry { length: TIB, granule: 512, read_only: false };
    let store = StoreModel::Device(DeviceModel::Disk(spec)).build(geometry);
    closed_loop_of(store, depth, 4_000, StoreOpKind::Read, len, offset_of).rate
}

#[test]
fn the_named_disks_have_the_times_of_their_figures() {
    let mut disks = 0;
    for device in &DEVICES {
        let DeviceModel::Disk(spec) = device.device else { continue };
        disks += 1;
        let revolution = 60 * SECOND / u64::from(spec.rpm);
        let time = spec.overhead + spec.average_seek + revolution / 2;
        let (found, expected) =
            (built_rate(spec, 1, 512, scattered(TIB, 3)), as_f64(SECOND) / as_f64(time));
        // The full stroke of an actuator spans its part of the addresses.
        assert!((found / expected - 1.0).abs() < 0.04, "{}: {found} {expected}", device.name);
        let len = 128 << 10;
        let outer = built_rate(spec, 2, len, |at| at * len) * as_f64(len);
        let expected = as_f64(spec.outer_bytes_per_s);
        assert!((0.96..1.01).contains(&(outer / expected)), "{}: {outer}", device.name);
    }
    assert_eq!(disks, 6);
}

#[test]
fn the_command_queue_bounds_what_is_reordered() {
    let spec = |queue_depth| DiskSpec { queue_depth, ..DiskSpec::scsi_1999() };
    let rates =
        [1, 4, 32].map(|queue_depth| built_rate(spec(queue_depth), 64, 4096, scattered(TIB, 7)));
    assert!(rates[0] * 1.2 < rates[1] && rates[1] * 1.2 < rates[2], "{rates:?}");
    // In order of arrival, a deep queue of the host gains nothing.
    let alone = built_rate(spec(1), 1, 4096, scattered(TIB, 7));
    assert!((rates[0] / alone - 1.0).abs() < 0.01, "{} {alone}", rates[0]);
    let in_order = Disk::new(spec(1), TIB);
    let result = closed_loop(in_order, 16, 200, StoreOpKind::Read, 4096, scattered(TIB, 7));
    assert!(result.order.is_sorted());
}

#[test]
fn two_actuators_serve_their_halves_at_the_same_time() {
    let (one, two) = (DiskSpec::helium(), DiskSpec::dual_actuator());
    let gain =
        built_rate(two, 16, 4096, scattered(TIB, 1)) / built_rate(one, 8, 4096, scattered(TIB, 1));
    assert!((1.7..2.1).contains(&gain), "{gain}");
    let len = 128 << 10;
    let rate = |offset_of: fn(u64) -> u64| built_rate(two, 8, len, offset_of) * as_f64(len);
    let in_one = rate(|at| at * (128 << 10));
    let in_both = rate(|at| at % 2 * (TIB / 2) + at / 2 * (128 << 10));
    assert!((1.9..2.1).contains(&(in_both / in_one)), "{in_both} {in_one}");
}

/// Otherwise a disk with a large cache would not be fast to simulate.
#[test]
fn a_large_write_cache_destages_near_the_head() {
    let rate = |write_cache_bytes| {
        let spec = DiskSpec { write_cache_bytes, ..DiskSpec::laptop_5400() };
        closed_loop(Disk::new(spec, TIB), 1, 40_000, WRITE, 4096, scattered(TIB, 4)).rate
    };
    let (small, large) = (rate(1 << 20), rate(64 << 20));
    assert!(large > 1.5 * small, "{large} {small}");
}
