//! Tests of the modeled SSD: the rates of its data sheet, reads beside writes, the write
//! amplification of garbage collection, the SLC cache, and flushes.

use super::mapping::Cleaning;
use super::*;
use crate::model::ModeledStore;
use crate::model::rig::{self, closed_loop, instant, scattered, write};
use crate::random::Random;
use larder_core::frames::NoFrames;
use larder_core::store::Store;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const READ: StoreOpKind = StoreOpKind::Read;
const WRITE: StoreOpKind = StoreOpKind::Write { fua: false };

fn access(kind: StoreOpKind, offset: u64, len: u64) -> Access {
    Access { kind, offset, len, arrived_at: 0 }
}

/// Returns a drive without an SLC cache.
fn plain() -> SsdSpec {
    SsdSpec { slc_cache_bytes: 0, ..SsdSpec::sata_flash() }
}

#[test]
fn the_drives_complete_what_their_data_sheets_state() {
    let rate = |spec, depth, kind| {
        let drive = Ssd::new(spec, GIB);
        closed_loop(drive, depth, 20_000, kind, 4096, scattered(GIB, 1)).rate
    };
    for (spec, alone, deep) in [
        (SsdSpec::sata_flash(), [13_000.0, 36_000.0], (32, 98_000.0)),
        (SsdSpec::nvme_flash(), [22_000.0, 60_000.0], (256, 1_000_000.0)),
    ] {
        for (kind, expected) in [READ, WRITE].into_iter().zip(alone) {
            let found = rate(spec, 1, kind);
            assert!((found / expected - 1.0_f64).abs() < 0.05, "{kind:?}: {found}");
        }
        let (depth, expected) = deep;
        let found = rate(spec, depth, READ);
        assert!((0.9..1.1).contains(&(found / expected)), "depth {depth}: {found}");
    }
}

#[test]
fn bytes_are_bounded_by_the_interface_and_by_the_flash() {
    let len = 128 << 10;
    let rate = |spec, kind| {
        let result = closed_loop(Ssd::new(spec, 4 * GIB), 8, 8_000, kind, len, |at| at * len);
        result.rate * as_f64(len) / 1e6
    };
    let spec = SsdSpec::sata_flash();
    for kind in [READ, WRITE] {
        let found = rate(spec, kind);
        assert!((540.0..=561.0).contains(&found), "{found} MB/s");
    }
    // 16 KiB on each of 32 dies in 2 ms.
    let slow = SsdSpec { program_page: 2_000_000, ..plain() };
    let (found, expected) = (rate(slow, WRITE), 32.0 * 16_384.0 / 2e-3 / 1e6);
    assert!((found / expected - 1.0).abs() < 0.1, "{found} MB/s, not {expected}");
}

#[test]
fn a_read_waits_for_the_program_or_erase_of_its_die_and_for_no_other() {
    let spec = SsdSpec { pages_per_block: 2, ..plain() };
    let SsdSpec { read_page, program_page, erase_block, .. } = spec;
    let mut die = Die::default();
    // Three programs wait, with an erase after the second.
    let ends: Vec<Nanos> = (0..3).map(|_| die.program(0, program_page, &spec)).collect();
    let second = 2 * program_page;
    assert_eq!(ends, [program_page, second, second + erase_block + program_page]);
    let reads = |now, page| die.clone().read(now, page, &spec);
    assert_eq!(reads(1, 7), program_page + read_page);
    assert_eq!(reads(program_page + 1, 7), second + read_page);
    assert_eq!(reads(second + 1, 7), second + erase_block + read_page);
    // The next read follows at once, and the programs are later.
    assert_eq!(die.read(1, 7, &spec), program_page + read_page);
    assert_eq!(die.read(2, 8, &spec), program_page + 2 * read_page);
    // A page in the register needs no read.
    assert_eq!(die.read(program_page * 9 / 8, 8, &spec), program_page + 2 * read_page);
    let end = die.program(0, program_page, &spec);
    assert_eq!(end, second + erase_block + 2 * program_page + 2 * read_page);
    assert_eq!(Die::default().read(5, 1, &spec), 5 + read_page);
}

#[test]
fn reads_beside_writes_take_longer() {
    let frames = NoFrames::new(0);
    let mut store = ModeledStore::new(instant(GIB), Ssd::new(plain(), GIB));
    let (mut random, mut done) = (Random::from_seed(3), Vec::new());
    let mut slow = |writes: u64| {
        done.clear();
        for tag in 0..2_000 {
            let begin = (writes * 4_000 + tag) * 200_000;
            for _ in 0..writes {
                store.submit(begin, &frames, write(9_999, random.below(1 << 18) * 4096, 4096));
            }
            store.submit(begin, &frames, rig::read(tag, random.below(1 << 18) * 4096, 4096));
            store.reap(begin + 199_999, &frames, &mut done);
        }
        let reads = done.iter().filter(|each| each.op.kind == READ);
        let mut times: Vec<Nanos> = reads.map(|it| it.finished_at - it.started_at).collect();
        times.sort_unstable();
        times[times.len() * 99 / 100]
    };
    let (alone, beside) = (slow(0), slow(4));
    assert!(beside > alone + 100_000, "{alone} ns, {beside} ns");
}

/// Returns the write amplification of greedy garbage collection under uniform random writes, for
/// flash of `ratio` times the drive: P. Desnoyers, "Analytic modeling of SSD write performance",
/// SYSTOR 2012, and X. Luojie and B. Kurkoski, "An improved analytic expression for write
/// amplification in NAND flash", ICNC 2012.
fn theory(ratio: f64) -> f64 {
    let target = -ratio * (-ratio).exp();
    // Lambert's W of the target, by Newton's method; the other solution is -ratio.
    let mut w = -0.5_f64;
    for _ in 0..200 {
        w -= (w * w.exp() - target) / (w.exp() * (1.0 + w));
    }
    ratio / (ratio + w)
}

#[test]
fn random_writes_reach_the_write_amplification_of_greedy_collection() {
    for (permille, length) in [(70, GIB), (280, GIB), (280, 4 * GIB)] {
        let spec = SsdSpec { over_provisioning_permille: permille, ..plain() };
        let slots = length / SLOT_BYTES;
        let mut mapping = Mapping::new(slots, 4_096, spec.over_provisioning_permille);
        let mut random = Random::from_seed(7);
        let mut copied = |writes: u64| -> f64 {
            let copied: u64 = (0..writes).map(|_| mapping.write(random.below(slots)).copied).sum();
            1.0 + as_f64(copied) / as_f64(writes)
        };
        copied(4 * slots);
        let (found, expected) = (copied(slots), theory(1.0 + f64::from(permille) / 1e3));
        assert!((found / expected - 1.0).abs() < 0.1, "{permille}: {found}, not {expected}");
    }
}

#[test]
fn the_drive_pays_for_its_copies() {
    let length = 128 * MIB;
    let frames = NoFrames::new(0);
    let rate = |count, permille| {
        let spec = SsdSpec { over_provisioning_permille: permille, command: 0, ..plain() };
        let mut store = ModeledStore::new(instant(length), Ssd::new(spec, length));
        let (mut offset, mut now, mut done) = (scattered(length, 1), 0, Vec::new());
        for tag in 0..count {
            while store.in_flight() >= 32 {
                now = now.max(store.next_event().unwrap());
                store.reap(now, &frames, &mut done);
            }
            store.submit(now, &frames, write(tag, offset(tag), 4096));
        }
        (as_f64(count) * 1e9 / as_f64(now), store.model().totals())
    };
    let slots = length / SLOT_BYTES;
    let (roomy, _) = rate(6 * slots, 1_000);
    let (tight, totals) = rate(6 * slots, 70);
    let amplification = totals.write_amplification();
    assert!((4.0..8.0).contains(&amplification), "{totals:?}");
    assert_eq!(totals.host_bytes, 6 * length);
    assert!(totals.copied_bytes < totals.programmed_bytes && totals.folded_bytes == 0);
    assert!(tight * 2.0 < roomy, "{tight} per s, {roomy} per s");
}

#[test]
fn discarded_blocks_are_not_copied() {
    let slots = 1 << 16;
    let mut mapping = Mapping::new(slots, 4_096, 70);
    mapping.discard(slots / 2..slots);
    let mut random = Random::from_seed(7);
    let writes = 4 * slots;
    let copied: u64 = (0..writes).map(|_| mapping.write(random.below(slots / 2)).copied).sum();
    let found = 1.0 + as_f64(copied) / as_f64(writes);
    assert!(found < 1.3, "{found}");
    // Whole volumes of any size.
    let mut large = Mapping::new(1 << 50, 4_096, 70);
    large.discard(0..1 << 50);
    assert_eq!(large.write(0), Cleaning::default());
    let mut small = Mapping::new(1, 4_096, 10);
    let cleanings: Vec<_> = (0..1_000).map(|_| small.write(0)).collect();
    assert!(cleanings.iter().all(|it| it.copied == 0));
}

#[test]
fn writes_slow_down_when_the_slc_cache_is_full_and_a_rest_empties_it() {
    let spec = SsdSpec {
        slc_cache_bytes: 256 * MIB,
        program_page: 4_000_000,
        slc_program_page: 400_000,
        interface_bytes_per_s: 4_000_000_000,
        ..SsdSpec::sata_flash()
    };
    let mut drive = Ssd::new(spec, 4 * GIB);
    let (mut now, len) = (0, MIB);
    let mut rate = |drive: &mut Ssd, count: u64, begin: Nanos| {
        now = now.max(begin);
        let started = now;
        for number in 0..count {
            now = now.max(drive.serve(now, &access(WRITE, number * len % (4 * GIB), len)));
        }
        as_f64(count * len) * 1e3 / as_f64(now - started)
    };
    let fast = rate(&mut drive, 200, 0);
    let slow = {
        rate(&mut drive, 100, 0);
        rate(&mut drive, 200, 0)
    };
    assert!(fast > 5.0 * slow, "{fast} MB/s, then {slow} MB/s");
    let after_a_rest = rate(&mut drive, 200, 100 * SECOND);
    assert!(after_a_rest > 5.0 * slow, "{after_a_rest} MB/s");
    assert!(drive.totals().folded_bytes >= 256 * MIB, "{:?}", drive.totals());
}

#[test]
fn a_flush_waits_for_the_flash_unless_the_buffer_is_protected() {
    for (has_protected_buffer, least) in [(false, plain().program_page), (true, 0)] {
        let spec = SsdSpec { has_protected_buffer, ..plain() };
        let mut drive = Ssd::new(spec, GIB);
        let written = drive.serve(0, &access(WRITE, 0, 4096));
        assert!(written < 60_000, "{written}");
        let time = drive.serve(written, &access(StoreOpKind::Flush, 0, 0)) - written;
        assert!((least..=least + 60_000).contains(&time), "{time}");
        // Nothing is left to program.
        let now = written + time;
        let again = drive.serve(now, &access(StoreOpKind::Flush, 0, 0)) - now;
        assert!(again <= spec.overhead, "{again}");
        let fua = drive.serve(now + 1, &access(StoreOpKind::Write { fua: true }, 0, 4096));
        assert!(fua - now > least, "{fua}");
        let discard = drive.serve(fua, &access(StoreOpKind::Discard, 0, GIB));
        assert!(discard - fua <= spec.overhead, "{discard}");
    }
}

#[test]
fn a_request_of_any_length_has_a_time() {
    let mut drive = Ssd::new(SsdSpec::nvme_flash(), GIB);
    let end = drive.serve(0, &access(READ, 0, 64 * GIB));
    assert!((9 * SECOND..12 * SECOND).contains(&end), "{end}");
}
