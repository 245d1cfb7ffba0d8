//! Tests of layouts and of arrays of disks.

mod rebuild;

use super::layout::{MemberOps, MemberRange};
use super::*;
use crate::model::rig::{self, closed_loop_of, scattered};
use crate::model::{
    ClosedLoop, DeviceRates, Disk, Latency, LoopEnd, Model, ModeledStore, NullStore, RatedDevice,
};
use larder_core::clock::{MILLISECOND, SECOND};
use larder_core::store::{Geometry, StoreOpKind};
use std::collections::HashSet;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn layout(level: ArrayLevel, members: u32) -> ArrayLayout {
    ArrayLayout::new(level, members, 64 * KIB)
}

fn kib(ranges: &[MemberRange]) -> Vec<(usize, u64, u64)> {
    ranges.iter().map(|it| (it.member, it.offset / KIB, it.len / KIB)).collect()
}

#[test]
fn each_byte_has_its_own_place_on_each_of_its_members() {
    for level in ArrayLevel::ALL {
        for members in level.members_min()..=7 {
            let layout = layout(level, members);
            let length = 64 * KIB * 61;
            let member_bytes = layout.member_bytes(length);
            let mut places = HashSet::new();
            for at in (0..length).step_by(4096) {
                for part in layout.parts(length, at..at + 4096) {
                    for place in part.places {
                        assert!(place.1 + part.len <= member_bytes, "{layout:?} {at} {place:?}");
                        assert!(places.insert(place), "{layout:?} {at} {place:?}");
                    }
                }
            }
            let copies = match level {
                ArrayLevel::Mirror => u64::from(members),
                ArrayLevel::StripedMirrors | ArrayLevel::FarMirrors | ArrayLevel::OffsetMirrors => {
                    2
                }
                _ => 1,
            };
            assert_eq!(places.len() as u64, copies * length / 4096, "{layout:?}");
        }
    }
}

/// The left-symmetric layout: the parity moves to the left, and data follows it.
#[test]
fn parity_and_data_rotate_as_in_md() {
    let places = |layout: ArrayLayout| -> Vec<usize> {
        let of_chunk = |chunk: u64| {
            let at = chunk * layout.chunk_bytes;
            layout.parts(GIB, at..at + 4096)[0].places[0].0
        };
        (0..8).map(of_chunk).collect()
    };
    assert_eq!(places(layout(ArrayLevel::Parity, 3)), [0, 1, 2, 0, 1, 2, 0, 1]);
    assert_eq!(places(layout(ArrayLevel::Parity, 4)), [0, 1, 2, 3, 0, 1, 2, 3]);
    assert_eq!(places(layout(ArrayLevel::DoubleParity, 4)), [1, 2, 0, 1, 3, 0, 2, 3]);
    assert_eq!(places(layout(ArrayLevel::Stripe, 3)), [0, 1, 2, 0, 1, 2, 0, 1]);
}

#[test]
fn a_request_over_several_chunks_is_one_operation_for_each_member() {
    let read = |layout: ArrayLayout, bytes| {
        let parts = layout.parts(GIB, bytes);
        let ranges: Vec<_> = parts.iter().map(|part| part.range(part.places[0])).collect();
        kib(&layout.read(&ranges).reads)
    };
    let whole = 0..384 * KIB;
    assert_eq!(
        read(layout(ArrayLevel::Stripe, 3), whole.clone()),
        [(0, 0, 128), (1, 0, 128), (2, 0, 128)]
    );
    assert_eq!(read(layout(ArrayLevel::Mirror, 2), whole.clone()), [(0, 0, 384)]);
    let within = 60 * KIB..68 * KIB;
    assert_eq!(read(layout(ArrayLevel::Stripe, 3), within.clone()), [(0, 60, 4), (1, 0, 4)]);
    assert_eq!(read(layout(ArrayLevel::Parity, 3), within), [(0, 60, 4), (1, 0, 4)]);
}

#[test]
fn a_small_write_reads_old_data_and_parity_and_a_whole_stripe_reads_nothing() {
    let write = |level, members, bytes: std::ops::Range<u64>| {
        let MemberOps { reads, writes } = layout(level, members).write(GIB, bytes);
        (kib(&reads), kib(&writes))
    };
    // Four operations with level 5, six with level 6.
    let small = 8 * KIB..16 * KIB;
    let both = vec![(0, 8, 8), (4, 8, 8)];
    assert_eq!(write(ArrayLevel::Parity, 5, small.clone()), (both.clone(), both.clone()));
    let three = vec![(0, 8, 8), (1, 8, 8), (6, 8, 8)];
    assert_eq!(write(ArrayLevel::DoubleParity, 7, small.clone()), (three.clone(), three));
    // If the rest of the row is as much, md reads that.
    let rest = (vec![(1, 8, 8), (2, 8, 8)], vec![(0, 8, 8), (3, 8, 8)]);
    assert_eq!(write(ArrayLevel::Parity, 4, small), rest);
    // A part of a page is written as the page.
    let page = vec![(0, 0, 4), (4, 0, 4)];
    assert_eq!(write(ArrayLevel::Parity, 5, 512..1024), (page.clone(), page));
    // With three members the rest of the row is one page.
    let reconstructed = write(ArrayLevel::Parity, 3, 0..4 * KIB);
    assert_eq!(reconstructed, (vec![(1, 0, 4)], vec![(0, 0, 4), (2, 0, 4)]));
    // Most of a row: the rest is read.
    let most = write(ArrayLevel::Parity, 5, 0..192 * KIB);
    assert_eq!(most.0, [(3, 0, 64)]);
    let whole = write(ArrayLevel::Parity, 5, 0..256 * KIB);
    assert_eq!(whole, (vec![], (0..5).map(|member| (member, 0, 64)).collect()));
    let mirrors = write(ArrayLevel::StripedMirrors, 4, 64 * KIB..68 * KIB);
    assert_eq!(mirrors, (vec![], vec![(2, 0, 4), (3, 0, 4)]));
}

/// The same bytes in small writes of whole pages touch the same pages of the members.
#[test]
fn a_long_write_writes_what_its_pages_write() {
    for level in ArrayLevel::ALL {
        let layout = ArrayLayout::new(level, 5, 16 * KIB);
        let degraded = [layout, layout.without(1), layout.without(1).without(3)];
        for layout in degraded.into_iter().filter(ArrayLayout::has_all_data) {
            let length = 64 << 20;
            for (start, end) in [(0, 1 << 20), (12, 2_000), (80, 84), (60, 400), (4, 1_200)] {
                let bytes = start * KIB..end * KIB;
                let pages = |ranges: &[MemberRange]| -> HashSet<(usize, u64)> {
                    let of = |it: &MemberRange| {
                        let member = it.member;
                        (it.offset / 4096..(it.offset + it.len).div_ceil(4096))
                            .map(move |page| (member, page))
                            .collect::<Vec<_>>()
                    };
                    ranges.iter().flat_map(of).collect()
                };
                let end = bytes.end.min(length);
                let whole = pages(&layout.write(length, bytes.start..end).writes);
                let each = (bytes.start..end).step_by(4096);
                let each: HashSet<_> = each
                    .flat_map(|at| pages(&layout.write(length, at..at + 4096).writes))
                    .collect();
                assert_eq!(whole, each, "{layout:?} {bytes:?}");
            }
        }
    }
}

/// A trace may have such requests.
#[test]
fn a_request_to_a_whole_volume_is_a_few_operations() {
    for level in ArrayLevel::ALL {
        for chunk_bytes in [4 * KIB, GIB] {
            let layout = ArrayLayout { chunk_bytes, ..layout(level, 5) };
            let length = 1 << 50;
            for ops in
                [layout.write(length, 4_096..length - 512), layout.discard(length, 0..length)]
            {
                assert!(ops.reads.len() + ops.writes.len() <= 50, "{layout:?}: {ops:?}");
            }
        }
    }
}

#[test]
fn a_degraded_array_computes_what_the_failed_member_had() {
    let degraded = |level, members, failed| layout(level, members).without(failed);
    let read = |layout: ArrayLayout| {
        let parts = layout.parts(GIB, 0..4096);
        kib(&layout.read(&[parts[0].range(parts[0].places[0])]).reads)
    };
    assert_eq!(read(degraded(ArrayLevel::Parity, 4, 0)), [(1, 0, 4), (2, 0, 4), (3, 0, 4)]);
    assert_eq!(read(degraded(ArrayLevel::Parity, 4, 1)), [(0, 0, 4)]);
    let double = read(degraded(ArrayLevel::DoubleParity, 5, 1));
    assert_eq!(double, [(0, 0, 4), (2, 0, 4), (3, 0, 4), (4, 0, 4)]);
    assert_eq!(read(degraded(ArrayLevel::Mirror, 2, 0)), [(1, 0, 4)]);
    assert_eq!(read(degraded(ArrayLevel::StripedMirrors, 4, 0)), [(1, 0, 4)]);
    let write = |failed| {
        let MemberOps { reads, writes } =
            degraded(ArrayLevel::Parity, 4, failed).write(GIB, 0..4096);
        (kib(&reads), kib(&writes))
    };
    // The written member has failed: the parity follows from the other data.
    assert_eq!(write(0), (vec![(1, 0, 4), (2, 0, 4)], vec![(3, 0, 4)]));
    // Other data has failed: the parity follows from the old data and parity.
    assert_eq!(write(1), (vec![(0, 0, 4), (3, 0, 4)], vec![(0, 0, 4), (3, 0, 4)]));
    // The parity has failed.
    assert_eq!(write(3).1, [(0, 0, 4)]);
    // A part of a page of the failed member: everything else is read.
    let part = degraded(ArrayLevel::Parity, 4, 0).write(GIB, 0..512);
    assert_eq!(kib(&part.reads), [(1, 0, 4), (2, 0, 4), (3, 0, 4)]);
}

fn array<M: Model + 'static>(layout: ArrayLayout, model: impl Fn(u64, u32) -> M) -> ArrayStore {
    let geometry = Geometry { length: GIB, granule: 512, read_only: false };
    ArrayStore::new(geometry, layout, |of_member, number| {
        Box::new(ModeledStore::new(NullStore::new(of_member), model(of_member.length, number)))
    })
}

fn disks(layout: ArrayLayout) -> ArrayStore {
    array(layout, |length, number| Disk::seven_thousand_two_hundred(length).with_phase_of(number))
}

/// A mirrored write waits for the slower member.
#[test]
fn members_do_not_take_the_same_times() {
    let write = StoreOpKind::Write { fua: false };
    let rate = |store| closed_loop_of(store, 1, 4_000, write, 4096, scattered(GIB, 1)).rate;
    let mirror = layout(ArrayLevel::Mirror, 2);
    let alone = layout(ArrayLevel::Linear, 1);
    let median = MILLISECOND / 2;
    let read_latency = Latency { mean: MILLISECOND, median };
    let rates = DeviceRates { write_latency: read_latency, ..DeviceRates::fixed(0) };
    let of = |layout| rate(array(layout, |_, number| RatedDevice::new(rates, number.into())));
    // The mean of the larger of two is 2 Phi(s / sqrt 2) times the mean, with s^2 = 2 ln 2.
    let slower = of(alone) / of(mirror);
    assert!((slower - 1.595).abs() < 0.08, "{slower}");
    // A sixth of a revolution more, of 13 ms.
    let more_ms = 1e3 / rate(disks(mirror)) - 1e3 / rate(disks(alone));
    assert!((1.0..1.8).contains(&more_ms), "{more_ms}");
}

#[test]
fn a_small_write_takes_a_read_and_a_write() {
    let fixed = DeviceRates::fixed(MILLISECOND);
    let rate = |layout, kind| {
        let store = array(layout, |_, _| RatedDevice::new(fixed, 0));
        closed_loop_of(store, 1, 1_000, kind, 4096, scattered(GIB, 1)).rate
    };
    let write = StoreOpKind::Write { fua: false };
    let parity = layout(ArrayLevel::Parity, 4);
    assert!((rate(parity, write) - 500.0).abs() < 1.0);
    assert!((rate(parity, StoreOpKind::Read) - 1_000.0).abs() < 2.0);
    assert!((rate(layout(ArrayLevel::Mirror, 2), write) - 1_000.0).abs() < 2.0);
    let flush = rate(parity.without(2), StoreOpKind::Flush);
    assert!((flush - 1_000.0).abs() < 2.0);
}

/// The ranks that were published about 1999: arrays with parity read as fast as striped ones and
/// write up to four times slower, mirrors write up to twice slower and are third in sequential
/// reads.
#[test]
fn levels_have_the_published_ranks() {
    let rates = |kind, depth, len: u64, is_random: bool| {
        let levels = [ArrayLevel::Stripe, ArrayLevel::StripedMirrors, ArrayLevel::Parity];
        levels.map(|level| {
            let store = disks(layout(level, 4));
            let mut random = scattered(GIB, 5);
            let offset_of = |at| if is_random { random(at) } else { at * len % GIB };
            closed_loop_of(store, depth, 2_000, kind, len, offset_of).rate
        })
    };
    let write = StoreOpKind::Write { fua: false };
    let [stripe, mirrors, parity] = rates(StoreOpKind::Read, 32, 4096, true);
    assert!(parity > 0.85 * stripe && mirrors > 0.85 * stripe, "{stripe} {mirrors} {parity}");
    let [stripe, mirrors, parity] = rates(StoreOpKind::Read, 8, 64 * KIB, false);
    assert!(parity > 0.7 * stripe && mirrors < 0.7 * parity, "{stripe} {mirrors} {parity}");
    for [stripe, mirrors, parity] in [rates(write, 32, 4096, true), rates(write, 8, 1 << 20, false)]
    {
        assert!((1.6..2.2).contains(&(stripe / mirrors)), "{stripe} {mirrors}");
        assert!((2.5..5.0).contains(&(stripe / parity)), "{stripe} {parity}");
    }
}

/// Far copies make sequential reads as fast as those of a stripe, and writes slower.
#[test]
fn far_copies_read_in_order_like_a_stripe_and_write_slower_than_near_ones() {
    let rate = |level, kind, len: u64| {
        let (mut at, store) = (0, disks(layout(level, 4)));
        let offset_of = |_| {
            at += len;
            (at - len) % (GIB / 2)
        };
        closed_loop_of(store, 8, 1_000, kind, len, offset_of).rate
    };
    let levels = [ArrayLevel::Stripe, ArrayLevel::StripedMirrors, ArrayLevel::FarMirrors];
    let [stripe, near, far] = levels.map(|level| rate(level, StoreOpKind::Read, 256 * KIB));
    assert!(far > 0.8 * stripe && near < 0.7 * stripe, "{stripe} {near} {far}");
    let write = StoreOpKind::Write { fua: false };
    let [_, near, far] = levels.map(|level| rate(level, write, 256 * KIB));
    assert!(far < near, "{near} {far}");
}

/// A request to an array of Linux md, and the operations of its members.
#[derive(serde::Deserialize)]
struct MdRequest {
    level: String,
    members: u32,
    failed: Vec<u32>,
    array_bytes: u64,
    kind: String,
    offset: u64,
    length: u64,
    /// For each member: reads, sectors read, writes, sectors written.
    operations: Vec<[u64; 4]>,
}

/// The record is of md in Linux 6.1 (`cargo xtask prove md-members`). The kernel joins the pages of
/// a request only in part, which differs from run to run. It spreads large reads over the copies of
/// mirrors.
#[test]
fn members_do_the_operations_that_they_do_under_md() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench-runs/md-members.json");
    let requests: Vec<MdRequest> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(requests.len(), 25 * 12);
    for request in &requests {
        let MdRequest { offset, length, ref failed, .. } = *request;
        let level = ArrayLevel::ALL.into_iter().find(|it| it.name() == request.level).unwrap();
        let failed = failed.iter().copied().collect();
        let layout = ArrayLayout { failed, ..layout(level, request.members) };
        let array_bytes = request.array_bytes;
        let parts = layout.parts(array_bytes, offset..offset + length);
        let is_read = request.kind == "read";
        let ops = if is_read {
            let ranges: Vec<_> = parts.iter().map(|part| part.range(part.places[0])).collect();
            layout.read(&ranges)
        } else {
            layout.write(array_bytes, offset..offset + length)
        };
        let case = format!("{layout:?} {} {offset} {length}", request.kind);
        if is_read && parts.iter().any(|part| part.places.len() > 1) {
            let sectors: u64 = request.operations.iter().map(|it| it[1]).sum();
            assert_eq!(sectors * 512, length, "{case}");
            continue;
        }
        for (member, md) in request.operations.iter().enumerate() {
            for (ranges, at) in [(&ops.reads, 0), (&ops.writes, 2)] {
                let own = || ranges.iter().filter(|range| range.member == member);
                let sectors: u64 = own().map(|range| range.len / 512).sum();
                assert_eq!(sectors, md[at + 1], "{case}, member {member}: {ops:?}");
                let counts = own().count() as u64..=own().map(|it| it.len.div_ceil(4096)).sum();
                assert!(counts.contains(&md[at]), "{case}, member {member}: {ops:?}");
            }
        }
    }
}
