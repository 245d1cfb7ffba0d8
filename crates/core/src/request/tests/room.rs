//! Tests of requests that need frames while they pin pages themselves.

use super::rig::{Plain, TestBench, options};
use crate::clock::SECOND;
use crate::completion::{Completion, NoWaker};
use crate::counters::{Counter, Gauge};
use crate::hint::Hint;
use crate::policy::PolicyKind;
use crate::request::{ReadRequest, Request, RequestOp, Session, SessionLimit, Status, Submitted};
use crate::units::BLOCK_BYTES_U64 as BLOCK;
use crate::volume::VolumeHandle;
use crate::volume::VolumeOptions;
use std::sync::atomic::Ordering;

/// Number of attempts of a read.
const TRIES: usize = 8;

/// Reads `count` blocks with one request, and retries it. Returns the last status.
fn read_with_retries(
    rig: &mut TestBench,
    handle: &mut VolumeHandle<Plain>,
    [first, count]: [u64; 2],
) -> Status {
    let len = u32::try_from(count * BLOCK).unwrap();
    let mut read = ReadRequest::new(rig.token(), first * BLOCK, len);
    let mut status = Status::Stalled;
    for _ in 0..TRIES {
        if status == Status::Stalled {
            status = rig.cache.read(handle, rig.now, &mut read);
        }
        rig.run();
        let mut completions = Vec::new();
        handle.completions.collect(&mut completions);
        for completion in completions {
            if !matches!(completion, Completion::Unstalled) {
                status = read.apply_completion(rig.cache.frames(), completion);
            }
        }
    }
    read.release(rig.cache.frames());
    status
}

/// Such a read pins the resident blocks that it finds. If only these pages were examined for a
/// victim, it would wait for itself without end.
#[test]
fn a_read_that_holds_the_coldest_pages_gets_room_all_the_same() {
    for policy in PolicyKind::ALL {
        let volume = VolumeOptions { policy, hint: Hint::Random, ..options(4096) };
        let mut rig = TestBench::new(1024, [volume]);
        let mut handle = rig.handle(0);
        for block in (100..228).chain(1024..1920) {
            rig.now += 1000;
            rig.read(&mut handle, block).unwrap();
        }
        let status = read_with_retries(&mut rig, &mut handle, [100, 256]);
        assert_eq!(status, Status::Done, "{policy:?}");
        rig.cache.check(rig.now);
    }
}

/// Evicted frames are free when no reader pins them any more. Two reads that each found only some
/// of these frames would wait for each other without end.
#[test]
fn frames_that_nobody_holds_any_more_are_found_however_many_they_are() {
    let volume = VolumeOptions { page_blocks: 256, hint: Hint::NoBuffering, ..options(4096) };
    let mut rig = TestBench::new(512, [volume]);
    let mut handle = rig.handle(0);
    for part in 0..8 {
        let status = read_with_retries(&mut rig, &mut handle, [part * 64, 64]);
        assert_eq!(status, Status::Done);
    }
    rig.disks[0].volume.set_hint(Hint::Random);
    let mut read = ReadRequest::new(rig.token(), 1024 * BLOCK, 256 * 4096);
    assert_eq!(rig.cache.read(&mut handle, rig.now, &mut read), Status::Pending);
    rig.run();
    read.abandon(rig.cache.frames());
}

/// A client that does not receive its replies pins one block of each page. That must not keep the
/// other blocks of the pages from other clients.
#[test]
fn a_page_with_a_pinned_block_gives_room_all_the_same() {
    const PAGE: u64 = 16;
    let tag = |page: u64| u8::try_from(page + 1).unwrap();
    for policy in PolicyKind::ALL {
        let page_blocks = u32::try_from(PAGE).unwrap();
        let volume = VolumeOptions { page_blocks, policy, ..options(4096) };
        let mut rig = TestBench::new(256, [volume]);
        let (mut handle, mut other) = (rig.handle(0), rig.handle(0));
        let mut held = Vec::new();
        for page in 0..256 / PAGE {
            rig.now += 1000;
            rig.write(&mut handle, page * PAGE, tag(page));
            rig.flush(&mut handle).unwrap().unwrap();
            rig.read(&mut handle, page * PAGE + 1).unwrap();
            // All blocks of every other page are pinned: these pages give up no frame.
            let blocks = if page % 2 == 0 { PAGE } else { 1 };
            let len = u32::try_from(blocks * BLOCK).unwrap();
            let mut read = ReadRequest::new(rig.token(), page * PAGE * BLOCK, len);
            assert_eq!(rig.cache.read(&mut handle, rig.now, &mut read), Status::Done);
            held.push(read);
        }
        for page in 100..104 {
            rig.now += 1000;
            let status = read_with_retries(&mut rig, &mut other, [page * PAGE, PAGE]);
            assert_eq!(status, Status::Done, "{policy:?}");
        }
        for (page, mut read) in (0..).zip(held) {
            let mut bytes = vec![0; read.len as usize];
            read.copy_to(rig.cache.frames(), &mut bytes);
            assert!(
                bytes[..4096] == [tag(page); 4096],
                "{policy:?}: what is pinned stays as it is"
            );
            read.release(rig.cache.frames());
        }
        rig.cache.check(rig.now);
    }
}

/// Half of the memory may become dirty in a burst, wherever the policy keeps the clean pages: a
/// writer need not wait for the store as long as there is a clean page.
#[test]
fn a_burst_of_writes_takes_the_place_of_what_is_clean_wherever_the_policy_keeps_it() {
    const FRAMES: u32 = 1024;
    for policy in PolicyKind::ALL {
        let volume = VolumeOptions { policy, hint: Hint::Random, ..options(8192) };
        let mut rig = TestBench::new(FRAMES, [volume]);
        let mut handle = rig.handle(0);
        for _ in 0..4 {
            for block in 0..u64::from(FRAMES) {
                rig.now += 1000;
                rig.read(&mut handle, block).unwrap();
            }
        }
        rig.disks[0].stall.store(true, Ordering::Relaxed);
        for block in 4096..4096 + u64::from(FRAMES / 2) {
            rig.now += 1000;
            let status = rig.try_write(&mut handle, [block, 1], 1, false);
            assert!(matches!(status, Status::Done | Status::DoneAt(_)), "{policy:?}: {status:?}");
        }
        rig.disks[0].stall.store(false, Ordering::Relaxed);
        rig.run_until(rig.now + 20 * SECOND);
        rig.cache.check(rig.now);
        assert_eq!(rig.gauge(Gauge::Dirty), 0, "{policy:?}");
    }
}

/// Waiting for the next retry would make each such read 5 ms slower.
#[test]
fn a_release_wakes_those_who_wait_for_the_pinned_frames_and_nobody_else() {
    let mut rig = TestBench::new(64, [options(4096)]);
    let (mut holder, mut waiter) = (rig.handle(0), rig.handle(0));
    let mut reads: Vec<_> = [0, 32].map(|first| read_and_pin(&mut rig, &mut holder, first)).into();
    let mut wanted = ReadRequest::new(rig.token(), 1024 * BLOCK, 4096);
    assert_eq!(rig.cache.read(&mut waiter, rig.now, &mut wanted), Status::Stalled);
    assert_eq!(count_wakes(&mut waiter), 0);
    rig.cache.release(&mut reads.pop().unwrap());
    assert_eq!(count_wakes(&mut waiter), 1);
    assert_eq!(rig.cache.read(&mut waiter, rig.now, &mut wanted), Status::Pending);
    rig.cache.release(&mut reads.pop().unwrap());
    assert_eq!(count_wakes(&mut waiter), 0, "it is not stalled any more");
    rig.run();
    waiter.completions.collect(&mut Vec::new());
    rig.cache.check(rig.now);
}

/// A session holds pins in reads whose events were not polled, and the front end may have moved
/// others out of reads: closing the session releases both.
#[test]
fn a_session_that_is_closed_wakes_those_who_wait_for_its_pinned_frames() {
    let mut rig = TestBench::new(64, [options(4096)]);
    let (mut waiter, limit) = (rig.handle(0), SessionLimit::Own(u64::MAX));
    let volume = &rig.disks[0].volume;
    let mut session: Session<_, Vec<u8>, ()> =
        Session::open(&rig.cache, volume, Box::new(NoWaker), limit).unwrap();
    for first in [0, 32] {
        let request = Request::new(RequestOp::Read, first * BLOCK..(first + 32) * BLOCK);
        let submitted = session.submit(&rig.cache, rig.now, request, &[][..], || ());
        assert!(matches!(submitted, Submitted::Queued(_)));
    }
    rig.run();
    session.advance(&rig.cache, rig.now);
    let mut wanted = ReadRequest::new(rig.token(), 1024 * BLOCK, 4096);
    assert_eq!(rig.cache.read(&mut waiter, rig.now, &mut wanted), Status::Stalled);
    assert_eq!(count_wakes(&mut waiter), 0);
    session.close(&rig.cache);
    assert_eq!(count_wakes(&mut waiter), 1);
    assert_eq!(rig.cache.read(&mut waiter, rig.now, &mut wanted), Status::Pending);
    rig.run();
    wanted.abandon(rig.cache.frames());
    rig.cache.check(rig.now);
}

/// Returns the number of wake-ups that a handle has received.
fn count_wakes(handle: &mut VolumeHandle<Plain>) -> usize {
    let mut completions = Vec::new();
    handle.completions.collect(&mut completions);
    completions.iter().filter(|it| matches!(it, Completion::Unstalled)).count()
}

/// Reads 32 blocks and keeps them pinned.
fn read_and_pin(
    rig: &mut TestBench,
    handle: &mut VolumeHandle<Plain>,
    first: u64,
) -> ReadRequest<Plain> {
    let mut read = ReadRequest::new(rig.token(), first * BLOCK, 32 * 4096);
    assert_eq!(rig.cache.read(handle, rig.now, &mut read), Status::Pending);
    rig.run();
    let mut completions = Vec::new();
    handle.completions.collect(&mut completions);
    for completion in completions {
        read.apply_completion(rig.cache.frames(), completion);
    }
    assert!(!read.is_pending());
    read
}

/// While fills take up the memory, a stalled write tries to evict each page that is filled. A write
/// that has waited for such a page must continue first.
#[test]
fn a_page_that_a_write_waited_for_is_not_evicted_before_the_write_is_continued() {
    let small = VolumeOptions { page_blocks: 4, hint: Hint::Random, ..options(64) };
    let large = VolumeOptions { page_blocks: 8, hint: Hint::Random, ..options(64) };
    // Frames for two small pages, but not for a large one in addition.
    let mut rig = TestBench::new(8 + 3, [small, large]);
    let open = |rig: &TestBench, disk: usize| -> Session<Plain, Vec<u8>, u64> {
        let volume = &rig.disks[disk].volume;
        Session::open(&rig.cache, volume, Box::new(NoWaker), SessionLimit::Own(u64::MAX)).unwrap()
    };
    let (mut waiting, mut stalled) = (open(&rig, 0), open(&rig, 1));
    let data = [9; 700];
    let submit = |rig: &TestBench, session: &mut Session<Plain, Vec<u8>, u64>, block: u64| {
        let request = Request::new(RequestOp::Write, block * BLOCK..block * BLOCK + 700);
        let submitted = session.submit(&rig.cache, rig.now, request, &data[..], || block);
        assert!(matches!(submitted, Submitted::Queued(_)), "part of block {block} is missing");
    };
    submit(&rig, &mut waiting, 1);
    submit(&rig, &mut waiting, 41);
    submit(&rig, &mut stalled, 0);
    let disk = &mut rig.disks[0];
    let mut ops = Vec::new();
    rig.cache.poll(&disk.volume, &disk.recorder, rig.now, 16, &mut ops);
    assert_eq!(ops.len(), 2, "two pages are read");
    for (ended, op) in (1..).zip(ops) {
        let mut done = Vec::new();
        disk.store.submit(rig.now, rig.cache.frames(), op);
        disk.store.reap(rig.now, rig.cache.frames(), &mut done);
        for done in done {
            rig.cache.complete(&disk.volume, &disk.recorder, rig.now, done);
        }
        stalled.retry(&rig.cache, rig.now);
        waiting.advance(&rig.cache, rig.now);
        while waiting.poll_event().is_some() {}
        assert_eq!(waiting.in_flight(), 2 - ended, "a write ends when its page has come");
    }
    for _ in 0..TRIES {
        rig.run();
        rig.now += SECOND;
        stalled.retry(&rig.cache, rig.now);
        stalled.advance(&rig.cache, rig.now);
        while stalled.poll_event().is_some() {}
    }
    assert_eq!(stalled.in_flight(), 0, "it gets room when the others are done");
    for session in [waiting, stalled] {
        session.close(&rig.cache);
    }
    rig.cache.check(rig.now);
}

/// A front end that receives a write in parts adds them one by one, and each may be delayed.
#[test]
fn a_delayed_write_is_counted_once_however_many_parts_it_has() {
    let mut rig = TestBench::new(128, [options(4096)]);
    let volume = rig.disks[0].volume.clone();
    let mut handle = rig.handle(0);
    // The delay follows the speed of the store.
    for block in 0..20 {
        rig.write(&mut handle, block, 1);
        rig.flush(&mut handle).unwrap().unwrap();
        rig.now += SECOND / 10;
    }
    let limit = SessionLimit::Own(u64::MAX);
    let mut session: Session<Plain, Vec<u8>, ()> =
        Session::open(&rig.cache, &volume, Box::new(NoWaker), limit).unwrap();
    let counted = |counter| volume.totals().get(counter);
    let (mut delayed, mut delays) = (0, 0);
    for number in 0..24 {
        let first = number * 4;
        let request = Request::new(RequestOp::Write, first * BLOCK..(first + 4) * BLOCK);
        let id = session.begin(rig.now, request, ());
        for block in first..first + 4 {
            session.push(&rig.cache, rig.now, id, block * BLOCK, &[1; 4096][..]);
        }
        session.finish(&rig.cache, rig.now, id);
        // The reply is due at a time that is known when the last part is done.
        if let Some(at) = session.next_reply_at() {
            delayed += 1;
            delays += at - rig.now;
            rig.now = at;
        }
        session.advance(&rig.cache, rig.now);
        assert!(session.poll_event().is_some(), "request {number} ends");
    }
    assert!(delayed > 1, "the dirty limit was not approached");
    let found = [Counter::ThrottledWrites, Counter::ThrottledTime].map(counted);
    assert_eq!(found, [delayed, delays]);
    session.close(&rig.cache);
}
