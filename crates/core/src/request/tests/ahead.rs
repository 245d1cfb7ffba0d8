//! Tests of read-ahead and hints by the operations of the store, the waits of clients, and the
//! counters.

use super::rig::{Plain, TestBench, options, tuned};
use crate::counters::{Class, Counter, Gauge};
use crate::hint::Hint;
use crate::policy::PolicyKind;
use crate::request::{ReadRequest, Status};
use crate::store::{Fault, StoreOp, StoreOpKind};
use crate::units::BLOCK_BYTES_U64 as BLOCK;
use crate::volume::VolumeHandle;
use crate::volume::VolumeOptions;

fn count(rig: &TestBench, counter: Counter) -> u64 {
    rig.disks[0].volume.totals().get(counter)
}

fn store_reads(rig: &TestBench) -> Vec<(u64, u64)> {
    let reads = rig.ops.iter().filter(|op| op.1 == StoreOpKind::Read);
    reads.map(|&(_, _, block, count)| (block, count)).collect()
}

/// Performs reads that must succeed.
fn read_all(
    rig: &mut TestBench,
    handle: &mut VolumeHandle<Plain>,
    blocks: impl IntoIterator<Item = u64>,
) {
    for block in blocks {
        assert!(rig.read(handle, block).is_ok(), "block {block}");
    }
}

fn poll(rig: &mut TestBench, depth: usize) -> Vec<StoreOp<Plain>> {
    let mut ops = Vec::new();
    let disk = &rig.disks[0];
    rig.cache.poll(&disk.volume, &disk.recorder, rig.now, depth, &mut ops);
    ops
}

fn submit(rig: &mut TestBench, ops: Vec<StoreOp<Plain>>) {
    for op in ops {
        rig.disks[0].store.submit(rig.now, rig.cache.frames(), op);
    }
}

#[test]
fn a_reader_in_order_hits_what_was_read_ahead_in_large_reads() {
    let mut rig = TestBench::new(65_536, [options(2048)]);
    let mut handle = rig.handle(0);
    read_all(&mut rig, &mut handle, 0..2048);
    assert_eq!(count(&rig, Counter::ReadMiss), 3);
    assert_eq!(count(&rig, Counter::ReadAheadHit), 2045);
    assert_eq!(count(&rig, Counter::ReadAheadBlocks), 2045);
    assert_eq!(count(&rig, Counter::FilledBlocks), 2048, "nothing twice");
    let reads = store_reads(&rig);
    assert!(reads.len() < 20, "{reads:?}");
    assert!(reads.iter().all(|(start, count)| start + count <= 2048), "beyond the end: {reads:?}");
    assert_eq!(count(&rig, Counter::ReadAheads), reads.len() as u64 - 3);
    // All blocks are resident and have been touched.
    read_all(&mut rig, &mut handle, 0..2048);
    assert_eq!(count(&rig, Counter::ReadHit), 2048);
    rig.cache.close_handle(handle);
    rig.cache.check(rig.now);
}

#[test]
fn a_client_that_comes_early_waits_for_what_is_coming_and_goes_first() {
    let mut rig = TestBench::new(4096, [options(2048)]);
    let mut handle = rig.handle(0);
    // Blocks 3 to 6 are resident; the first touch of them requests 7 to 14.
    read_all(&mut rig, &mut handle, 0..3);
    let mut fourth = ReadRequest::new(90, 3 * BLOCK, 4096);
    assert_eq!(rig.cache.read(&mut handle, rig.now, &mut fourth), Status::Done);
    fourth.release(rig.cache.frames());
    assert!(poll(&mut rig, 0).is_empty(), "begun, and not in the store");
    // A block in the middle of them: its read overtakes the blocks before it.
    let mut early = ReadRequest::new(91, 10 * BLOCK, 4096);
    assert_eq!(rig.cache.read(&mut handle, rig.now, &mut early), Status::Pending);
    assert_eq!(early.classes().worst(), Some(Class::ReadAheadWait));
    let ops = poll(&mut rig, 8);
    let order: Vec<_> = ops.iter().map(|op| (op.offset / BLOCK, op.len / BLOCK)).collect();
    assert_eq!(order[..3], [(10, 1), (7, 3), (11, 4)]);
    submit(&mut rig, ops);
    rig.run();
    let mut completions = Vec::new();
    handle.completions.collect(&mut completions);
    for completion in completions {
        assert_eq!(early.apply_completion(rig.cache.frames(), completion), Status::Done);
    }
    early.release(rig.cache.frames());
    assert_eq!(count(&rig, Counter::ReadAheadWait), 1);
    // The block has been touched: the next touch is an ordinary hit.
    read_all(&mut rig, &mut handle, [10, 9]);
    assert_eq!((count(&rig, Counter::ReadHit), count(&rig, Counter::ReadAheadHit)), (1, 2));
    rig.cache.close_handle(handle);
    rig.cache.check(rig.now);
}

#[test]
fn what_fails_on_the_way_is_told_to_nobody_and_not_kept() {
    let mut rig = TestBench::new(4096, [options(2048)]);
    let mut handle = rig.handle(0);
    rig.disks[0].plan.set(vec![Fault::Reads(8 * BLOCK..9 * BLOCK)]);
    read_all(&mut rig, &mut handle, 0..8);
    let failed = count(&rig, Counter::StoreReadErrors);
    assert!(failed > 0, "the window reached the bad spot");
    assert_eq!(rig.gauge(Gauge::Resident) / BLOCK, count(&rig, Counter::FilledBlocks));
    // A client that reads the bad block gets the error; reads of its neighbors succeed.
    assert!(rig.read(&mut handle, 8).is_err());
    read_all(&mut rig, &mut handle, 9..200);
    rig.disks[0].plan.set(Vec::new());
    read_all(&mut rig, &mut handle, [8]);
    rig.cache.close_handle(handle);
    rig.cache.check(rig.now);
}

#[test]
fn a_client_that_waits_for_a_part_of_a_failed_window_gets_its_page() {
    let mut rig = TestBench::new(4096, [options(2048)]);
    let mut handle = rig.handle(0);
    read_all(&mut rig, &mut handle, 0..3);
    rig.cache.close_handle(handle);
    let mut handle = rig.handle(0);
    // A stream at another position, whose window contains a bad block.
    rig.disks[0].plan.set(vec![Fault::Reads(1005 * BLOCK..1006 * BLOCK)]);
    read_all(&mut rig, &mut handle, [1000, 1001]);
    let mut third = ReadRequest::new(90, 1002 * BLOCK, 4096);
    assert_eq!(rig.cache.read(&mut handle, rig.now, &mut third), Status::Pending);
    let ops = poll(&mut rig, 8);
    // The store has the read, with the bad block in it, when a client requests a page of it.
    submit(&mut rig, ops);
    let mut fourth = ReadRequest::new(91, 1003 * BLOCK, 4096);
    assert_eq!(rig.cache.read(&mut handle, rig.now, &mut fourth), Status::Pending);
    assert_eq!(fourth.classes().worst(), Some(Class::ReadAheadWait));
    rig.run();
    let mut completions = Vec::new();
    handle.completions.collect(&mut completions);
    for completion in completions {
        let crate::completion::Completion::Filled { token, .. } = &completion else {
            panic!("{completion:?}")
        };
        let of = if *token == 90 { &mut third } else { &mut fourth };
        assert_eq!(of.apply_completion(rig.cache.frames(), completion), Status::Done);
        of.release(rig.cache.frames());
    }
    rig.cache.close_handle(handle);
    rig.cache.check(rig.now);
}

#[test]
fn what_is_evicted_untouched_is_wasted_and_makes_windows_smaller() {
    let lru =
        VolumeOptions { policy: PolicyKind::Lru, ..tuned(200_000, &[("read-ahead-share", 500)]) };
    let mut rig = TestBench::new(256, [lru]);
    let mut handle = rig.handle(0);
    // Short streams at many positions: each leaves most of its window unused.
    for start in (0..400).map(|i| i * 400) {
        read_all(&mut rig, &mut handle, start..start + 4);
    }
    let wasted = count(&rig, Counter::ReadAheadWasted);
    let early = count(&rig, Counter::ReadAheadBlocks);
    assert!(wasted > 100, "{wasted} wasted");
    for start in (400..480).map(|i| i * 400) {
        read_all(&mut rig, &mut handle, start..start + 4);
    }
    let since = count(&rig, Counter::ReadAheadBlocks) - early;
    assert!(since * 10 < early, "{since} of {early} blocks were read ahead in a sixth of the time");
    rig.cache.close_handle(handle);
    rig.cache.check(rig.now);
}

#[test]
fn a_discard_goes_past_what_is_read_ahead_there() {
    let mut rig = TestBench::new(4096, [options(2048)]);
    let mut handle = rig.handle(0);
    read_all(&mut rig, &mut handle, [0, 1]);
    let mut third = ReadRequest::new(90, 2 * BLOCK, 4096);
    assert_eq!(rig.cache.read(&mut handle, rig.now, &mut third), Status::Pending);
    assert!(poll(&mut rig, 0).is_empty(), "begun, and not in the store");
    let status = rig.cache.discard_or_zero(&mut handle, rig.now, StoreOpKind::Discard, 4..6, 91);
    assert_eq!(status, Status::Pending);
    rig.run();
    let mut completions = Vec::new();
    handle.completions.collect(&mut completions);
    assert_eq!(completions.len(), 2, "{completions:?}");
    for completion in completions {
        if let crate::completion::Completion::Filled { .. } = completion {
            third.apply_completion(rig.cache.frames(), completion);
        }
    }
    third.release(rig.cache.frames());
    // A range that is being discarded is not read ahead.
    let status = rig.cache.discard_or_zero(&mut handle, rig.now, StoreOpKind::Discard, 40..48, 92);
    assert_eq!(status, Status::Pending);
    let before = count(&rig, Counter::FilledBlocks);
    read_all(&mut rig, &mut handle, 3..30);
    assert!(count(&rig, Counter::FilledBlocks) > before);
    rig.cache.close_handle(handle);
    rig.cache.check(rig.now);
}

#[test]
fn nothing_is_written_back_to_make_room_for_what_nobody_asked_for() {
    let quiet = [("dirty-threshold", 900), ("dirty-limit", 900), ("read-ahead-share", 500)];
    let mut rig = TestBench::new(64, [tuned(4096, &quiet)]);
    let mut handle = rig.handle(0);
    for block in 1000..1050 {
        rig.write(&mut handle, block, 7);
    }
    // Readers pin the other pages, so only dirty pages could be evicted.
    let mut held = Vec::new();
    let random = (2000..2010).map(|block| (Hint::Random, block));
    for (hint, block) in random.chain((0..4).map(|block| (Hint::Sequential, block))) {
        let mut read = ReadRequest::new(block, block * BLOCK, 4096);
        read.hint = Some(hint);
        let status = rig.cache.read(&mut handle, rig.now, &mut read);
        rig.run();
        let mut completions = Vec::new();
        handle.completions.collect(&mut completions);
        for completion in completions {
            assert_eq!(read.apply_completion(rig.cache.frames(), completion), Status::Done);
        }
        assert!(matches!(status, Status::Done | Status::Pending), "{status:?}");
        held.push(read);
    }
    assert_eq!(rig.writes(), Vec::new(), "dirty pages stay");
    assert_eq!(count(&rig, Counter::ReadAheadHit), 3);
    assert_eq!(count(&rig, Counter::ReadAheadDropped), 1);
    for read in &mut held {
        read.release(rig.cache.frames());
    }
    rig.cache.close_handle(handle);
    rig.cache.check(rig.now);
}

#[test]
fn no_memory_beyond_its_share_is_on_its_way() {
    let mut rig = TestBench::new(1024, [tuned(100_000, &[("read-ahead-share", 50)])]);
    let mut handle = rig.handle(0);
    let before = rig.gauge(Gauge::Resident);
    rig.disks[0].volume.set_hint(Hint::Sequential);
    for start in (0..12).map(|i| i * 5000) {
        let mut read = ReadRequest::new(start, start * BLOCK, 4096);
        assert_eq!(rig.cache.read(&mut handle, rig.now, &mut read), Status::Pending);
        read.abandon(rig.cache.frames());
        let ops = poll(&mut rig, 0);
        assert!(ops.is_empty());
        let held = (rig.gauge(Gauge::Resident) - before) / BLOCK;
        assert!(held <= 12 + 1024 * 50 / 1000, "{held} frames");
    }
    rig.cache.close_handle(handle);
    rig.run();
    rig.cache.check(rig.now);
}

#[test]
fn hints_say_what_is_read_ahead_and_kept() {
    let mut rig = TestBench::new(65_536, [options(20_000)]);
    let mut handle = rig.handle(0);
    let volume = std::sync::Arc::clone(&rig.disks[0].volume);
    volume.set_hint(Hint::Random);
    read_all(&mut rig, &mut handle, 0..100);
    assert_eq!(count(&rig, Counter::ReadAheadBlocks), 0);

    volume.set_hint(Hint::Sequential);
    read_all(&mut rig, &mut handle, [1000]);
    assert_eq!(count(&rig, Counter::ReadAheadBlocks), 256, "all of read-ahead-max at once");
    read_all(&mut rig, &mut handle, 1001..1100);
    assert_eq!(count(&rig, Counter::ReadAheadHit), 99);

    volume.set_hint(Hint::NoBuffering);
    let resident = rig.gauge(Gauge::Resident);
    for _ in 0..2 {
        read_all(&mut rig, &mut handle, 5000..5010);
    }
    assert_eq!(count(&rig, Counter::BypassNoBuffering), 20);
    assert_eq!(count(&rig, Counter::ReadBypass), 20);
    // Resident blocks are used in any case: the store may not have their data yet.
    read_all(&mut rig, &mut handle, 0..10);
    assert_eq!(count(&rig, Counter::ReadHit), 10);
    rig.write(&mut handle, 6000, 3);
    rig.write(&mut handle, 5, 4);
    assert_eq!((rig.stored(0, 6000), rig.stored(0, 5)), (3, 4), "the store has it");
    assert_eq!(rig.read(&mut handle, 5), Ok(4));
    assert_eq!(rig.read(&mut handle, 6000), Ok(3));
    assert_eq!(count(&rig, Counter::WriteBypass), 1);
    assert!(rig.gauge(Gauge::Resident) <= resident + BLOCK, "nothing entered for good");

    // The hint of a request overrides that of the volume.
    let mut kept = ReadRequest::new(77, 7000 * BLOCK, 4096);
    kept.hint = Some(Hint::Normal);
    assert_eq!(rig.cache.read(&mut handle, rig.now, &mut kept), Status::Pending);
    rig.run();
    let mut completions = Vec::new();
    handle.completions.collect(&mut completions);
    for completion in completions {
        kept.apply_completion(rig.cache.frames(), completion);
    }
    kept.release(rig.cache.frames());
    assert_eq!(count(&rig, Counter::ReadMiss), 101 + 1);
    rig.cache.close_handle(handle);
    rig.cache.check(rig.now);
}

#[test]
fn what_a_reader_in_order_has_passed_goes_before_anything_else() {
    let hot = 100;
    let hits_left = |hint| {
        let lru = VolumeOptions { policy: PolicyKind::Lru, ..options(100_000) };
        let mut rig = TestBench::new(1024, [lru]);
        let mut handle = rig.handle(0);
        rig.disks[0].volume.set_hint(Hint::Random);
        read_all(&mut rig, &mut handle, (0..hot).map(|i| 90_000 + 2 * i));
        rig.disks[0].volume.set_hint(hint);
        read_all(&mut rig, &mut handle, 0..20_000);
        let hits = |rig: &TestBench| count(rig, Counter::ReadHit);
        let before = hits(&rig);
        rig.disks[0].volume.set_hint(Hint::Random);
        read_all(&mut rig, &mut handle, (0..hot).map(|i| 90_000 + 2 * i));
        assert_eq!(count(&rig, Counter::DroppedBehind) > 0, hint == Hint::Sequential);
        let hits_left = hits(&rig) - before;
        rig.cache.close_handle(handle);
        rig.cache.check(rig.now);
        hits_left
    };
    assert_eq!(hits_left(Hint::Normal), 0, "least recently used is not scan resistant");
    assert_eq!(hits_left(Hint::Sequential), hot, "the scan has only pushed itself out");
}

/// Returns the hits of a hot set, in per mille, during a scan of ten times the memory.
fn hot_hits(policy: PolicyKind, read_ahead: bool, scan: bool) -> u64 {
    let mut options = tuned(200_000, if read_ahead { &[] } else { &[("read-ahead-max", 0)] });
    options.policy = policy;
    let mut rig = TestBench::new(2048, [options]);
    let (mut one, mut other) = (rig.handle(0), rig.handle(0));
    let mut seed = 1_u64;
    let mut hot = |rig: &mut TestBench, handle: &mut VolumeHandle<Plain>| {
        seed = crate::mix(seed + 1);
        read_all(rig, handle, [100_000 + seed % 1200 * 3]);
    };
    for _ in 0..12_000 {
        hot(&mut rig, &mut one);
    }
    let scanned = |rig: &TestBench| count(rig, Counter::ReadHit);
    let before = scanned(&rig);
    let rounds = 20_000;
    for block in 0..rounds {
        if scan {
            read_all(&mut rig, &mut other, [block]);
        }
        hot(&mut rig, &mut one);
    }
    let hits = scanned(&rig) - before;
    rig.cache.close_handle(one);
    rig.cache.close_handle(other);
    rig.cache.check(rig.now);
    hits * 1000 / rounds
}

#[test]
fn a_long_scan_leaves_the_hot_set_alone_with_and_without_read_ahead() {
    let default = options(1).policy;
    let quiet = hot_hits(default, true, false);
    assert!(quiet > 990, "{quiet} per mille of hits without a scan");
    for read_ahead in [false, true] {
        let scanned = hot_hits(default, read_ahead, true);
        assert!(scanned + 20 >= quiet, "{scanned} of {quiet} per mille, ahead: {read_ahead}");
    }
    // The check can fail: under a policy without scan resistance more hits are lost.
    assert!(hot_hits(PolicyKind::Fifo, true, true) + 20 < quiet, "fifo");
}

#[test]
fn what_a_scan_brings_in_goes_first_where_the_cache_may_choose() {
    let run = |policy_auto| {
        let mut rig = TestBench::new(2048, [VolumeOptions { policy_auto, ..options(200_000) }]);
        let (mut one, mut other) = (rig.handle(0), rig.handle(0));
        let mut seed = 1_u64;
        for round in 0..30_000 {
            read_all(&mut rig, &mut other, [2 * round, 2 * round + 1]);
            seed = crate::mix(seed + 1);
            read_all(&mut rig, &mut one, [100_000 + seed % 1200 * 3]);
        }
        let before = count(&rig, Counter::ReadMiss);
        read_all(&mut rig, &mut one, (0..1200).map(|i| 100_000 + i * 3));
        let hot_misses = count(&rig, Counter::ReadMiss) - before;
        let dropped = count(&rig, Counter::DroppedBehind);
        rig.cache.close_handle(one);
        rig.cache.close_handle(other);
        rig.cache.check(rig.now);
        (dropped, hot_misses)
    };
    let (dropped, hot_misses) = run(true);
    assert!(dropped > 10_000, "{dropped} pages of 60,000");
    assert!(hot_misses <= 24, "{hot_misses} of 1200 pages that are used again are not there");
    assert_eq!(run(false).0, 0, "a policy that was set is left alone");
}

/// The segment of a deleted file may belong to another file when the discard is done.
#[test]
fn nothing_is_read_ahead_of_a_range_after_it_was_discarded() {
    let mut rig = TestBench::new(4096, [options(2048)]);
    let mut handle = rig.handle(0);
    read_all(&mut rig, &mut handle, [0, 1]);
    let status = rig.cache.discard_or_zero(&mut handle, rig.now, StoreOpKind::Discard, 4..2048, 91);
    assert_eq!(status, Status::Pending);
    let ops = poll(&mut rig, 8);
    assert_eq!(ops.iter().map(|op| op.kind).collect::<Vec<_>>(), [StoreOpKind::Discard]);
    // During the discard the stream requests a window.
    let mut third = ReadRequest::new(90, 2 * BLOCK, 4096);
    assert_eq!(rig.cache.read(&mut handle, rig.now, &mut third), Status::Pending);
    assert!(rig.disks[0].volume.ahead.has_windows(), "a window waits");
    submit(&mut rig, ops);
    let mut done = Vec::new();
    let disk = &mut rig.disks[0];
    disk.store.reap(rig.now, rig.cache.frames(), &mut done);
    for done in done {
        rig.cache.complete(&disk.volume, &disk.recorder, rig.now, done);
    }
    rig.run();
    let ahead: Vec<_> = store_reads(&rig).into_iter().filter(|read| read.0 + read.1 > 4).collect();
    assert_eq!(ahead, [], "reads of the discarded range");
    let mut completions = Vec::new();
    handle.completions.collect(&mut completions);
    for completion in completions {
        if let crate::completion::Completion::Filled { .. } = completion {
            third.apply_completion(rig.cache.frames(), completion);
        }
    }
    third.release(rig.cache.frames());
    rig.cache.close_handle(handle);
    rig.cache.check(rig.now);
}
