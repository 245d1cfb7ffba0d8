//! Tests of the rebuild of a member.

use super::*;
use ArrayLevel::{DoubleParity, FarMirrors, Mirror, OffsetMirrors, Parity, Stripe, StripedMirrors};

fn redundant() -> impl Iterator<Item = ArrayLayout> {
    let layouts = ArrayLevel::ALL.into_iter().flat_map(|level| {
        (level.members_min()..=6).map(move |members| ArrayLayout::new(level, members, 16 * KIB))
    });
    layouts.filter(|layout| layout.without(0).has_all_data())
}

#[test]
fn a_rebuild_reads_the_copies_of_what_the_member_has() {
    let length = 16 * KIB * 61;
    for layout in redundant().filter(|layout| layout.level.parities() == 0) {
        for at in (0..length).step_by(4096) {
            let places = layout.parts(length, at..at + 4096)[0].places.clone();
            for &(member, offset) in &places {
                let MemberOps { reads, writes } =
                    layout.rebuild(length, member, offset..offset + 4096);
                let [MemberRange { member: from, offset: read_at, len: 4096 }] = reads[..] else {
                    panic!("{layout:?} {at}: {reads:?}");
                };
                assert!(from != member && places.contains(&(from, read_at)), "{layout:?} {at}");
                assert_eq!(kib(&writes), [(member, offset / KIB, 4)]);
            }
        }
    }
}

#[test]
fn a_rebuild_with_parity_reads_the_rows_of_all_others() {
    let layout = ArrayLayout { failed: [3].into_iter().collect(), ..layout(DoubleParity, 5) };
    let ops = layout.rebuild(GIB, 1, 8 * KIB..72 * KIB);
    assert_eq!(kib(&ops.reads), [(0, 8, 64), (2, 8, 64), (4, 8, 64)]);
    assert_eq!(kib(&ops.writes), [(1, 8, 64)]);
}

#[test]
fn an_array_knows_the_failures_that_it_survives() {
    let survives = |level, members, failed: &[u32]| {
        let failed = failed.iter().copied().collect();
        ArrayLayout { failed, ..layout(level, members) }.has_all_data()
    };
    assert!(survives(Mirror, 3, &[0, 2]) && !survives(Mirror, 3, &[0, 1, 2]));
    assert!(survives(Parity, 4, &[1]) && !survives(Parity, 4, &[1, 2]));
    assert!(survives(DoubleParity, 4, &[1, 2]) && !survives(DoubleParity, 4, &[0, 1, 2]));
    assert!(survives(StripedMirrors, 4, &[0, 2]) && !survives(StripedMirrors, 4, &[2, 3]));
    assert!(survives(StripedMirrors, 5, &[1, 3]) && !survives(StripedMirrors, 5, &[0, 4]));
    assert!(survives(FarMirrors, 4, &[0, 2]) && !survives(FarMirrors, 4, &[3, 0]));
    assert!(survives(OffsetMirrors, 5, &[1, 3]) && !survives(OffsetMirrors, 5, &[1, 2]));
    assert!(survives(Stripe, 2, &[]) && !survives(Stripe, 2, &[0]));
    let rebuilt = ArrayLayout { rebuilt: Some(0), ..layout(Parity, 4) };
    assert!(rebuilt.has_all_data() && !rebuilt.without(1).has_all_data());
}

#[test]
fn a_request_beyond_the_rebuilt_part_reads_as_if_the_member_had_failed() {
    let rebuilt = ArrayLayout { rebuilt: Some(0), ..layout(ArrayLevel::Parity, 3) };
    let ops_of = |store: &ArrayStore, kind, offset| {
        let MemberOps { reads, writes } = store.member_ops(&rig::op(0, kind, offset, 4096));
        (kib(&reads), kib(&writes))
    };
    let mut store = array(rebuilt, |_, _| RatedDevice::new(DeviceRates::fixed(MILLISECOND), 0));
    let write = StoreOpKind::Write { fua: false };
    store.rebuilt_bytes(0);
    // The first chunk is on member 0, its parity on member 2.
    assert_eq!(ops_of(&store, StoreOpKind::Read, 0).0, [(1, 0, 4), (2, 0, 4)]);
    assert_eq!(ops_of(&store, write, 0), (vec![(1, 0, 4)], vec![(2, 0, 4), (0, 0, 4)]));
    assert!(store.rebuilt_bytes(SECOND).is_some_and(|bytes| (64 * KIB..GIB / 2).contains(&bytes)));
    assert_eq!(ops_of(&store, StoreOpKind::Read, 0).0, [(0, 0, 4)]);
    let last = GIB - 4096;
    assert_eq!(ops_of(&store, StoreOpKind::Read, last).0.len(), 2);
    assert_eq!(store.rebuilt_bytes(1_000 * SECOND), None);
    assert_eq!(ops_of(&store, StoreOpKind::Read, last).0.len(), 1);
}

/// Eight windows of 128 KiB in 2 ms: 512 MiB/s, which the maximum rate limits to 200,000 KiB/s.
#[test]
fn a_rebuild_alone_reaches_the_maximum_rate_and_beside_requests_the_minimum() {
    let rebuilt = ArrayLayout { rebuilt: Some(1), ..layout(ArrayLevel::Parity, 4) };
    let new = || array(rebuilt, |_, _| RatedDevice::new(DeviceRates::fixed(MILLISECOND), 0));
    let mut store = new();
    store.rebuilt_bytes(0);
    let bytes = store.rebuilt_bytes(SECOND).unwrap();
    // What was in flight at the limit is completed.
    assert!((150_000 * KIB..=201_024 * KIB).contains(&bytes), "{bytes}");
    // A slow array: each window takes 2 s.
    let slow = DeviceRates::fixed(SECOND);
    let mut store = array(rebuilt, |_, _| RatedDevice::new(slow, 0));
    let read = ClosedLoop { kind: StoreOpKind::Read, len: 64 * KIB, depth: 4 };
    read.run(&mut store, LoopEnd::At(100 * SECOND), |at| at % 8 * MIB, |_| ());
    let bytes = store.rebuilt_bytes(100 * SECOND).unwrap();
    assert!((40 * MIB..=52 * MIB).contains(&bytes), "eight windows at a time: {bytes}");
}

/// A rebuild of a member of a Linux md array, and the operations of all members.
#[derive(serde::Deserialize)]
struct MdRebuild {
    level: String,
    members: u32,
    rebuilt: usize,
    array_bytes: u64,
    /// For each member: reads, sectors read, writes, sectors written.
    operations: Vec<[u64; 4]>,
}

/// Beside the data, md and mdadm read and write the superblocks: at most this many sectors.
const SUPERBLOCKS: u64 = 32;
/// The page that the write before the rebuild has left in md's stripe cache.
const CACHED: u64 = 8;

#[test]
fn a_rebuild_reads_and_writes_as_much_as_under_md() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench-runs/md-rebuilds.json");
    let rebuilds: Vec<MdRebuild> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(rebuilds.len(), 8);
    for MdRebuild { level, members, rebuilt, array_bytes, operations } in rebuilds {
        let level = ArrayLevel::ALL.into_iter().find(|it| it.name() == level).unwrap();
        let layout = layout(level, members);
        let bytes = layout.member_bytes(array_bytes);
        let MemberOps { reads, writes } = layout.rebuild(array_bytes, rebuilt, 0..bytes);
        for (member, [_, read, _, written]) in operations.into_iter().enumerate() {
            let sectors = |ranges: &[MemberRange]| -> u64 {
                ranges.iter().filter(|it| it.member == member).map(|it| it.len / 512).sum()
            };
            let case = format!("{layout:?}, member {member}: {read} and {written}");
            if member != rebuilt {
                let all = sectors(&reads);
                let expected = all.saturating_sub(CACHED)..=all + SUPERBLOCKS;
                assert!(expected.contains(&read), "{case}, model {all}");
            }
            let all = sectors(&writes);
            assert!((all..=all + SUPERBLOCKS).contains(&written), "{case}, model {all}");
        }
    }
}
