//! The engine: threads, stopping, memory bounds, and stores that fail or stall.

use crate::common::{
    Random,
    lazy::keep_dirty,
    rig::{Memory, end, engine, eventually, volume},
    user::{User, work},
};
use larder_core::clock::MILLISECOND;
use larder_core::completion::NoWaker;
use larder_core::request::{Request, RequestOp, Session, SessionLimit};
use larder_core::store::{DelayStore, Fault, FaultPlan, FaultyStore, StoreErrorKind};
use larder_io::engine::{
    ArenaSession, Engine, EngineError, EngineOptions, MEMORY_BYTES_MIN, machine_memory_bytes,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

#[test]
fn threads_share_a_volume_and_a_drain_leaves_nothing_dirty() {
    let engine = engine(8 * MIB);
    let memory = Memory::new(16 * MIB);
    let volume = volume(&engine, "shared", 16 * MIB, memory.clone());
    // The parts meet inside a block.
    let part = 4 * MIB - 100;
    let models: Vec<_> = std::thread::scope(|scope| {
        let threads = (0..4).map(|i| {
            let (engine, volume) = (&engine, &volume);
            scope.spawn(move || {
                let mut user = User::new(engine, volume);
                let model = work(&mut user, i * part, usize::try_from(part).unwrap(), i);
                user.close();
                model
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut reports = Vec::new();
    engine.drain(|progress| reports.push(progress.clone())).unwrap();
    let last = reports.last().expect("progress is reported");
    assert_eq!((last.volume.as_str(), last.left_bytes, &last.error), ("shared", 0, &None));
    assert_eq!(volume.unclean_blocks(), 0);
    for (i, model) in models.iter().enumerate() {
        assert!(memory.bytes(i as u64 * part, model.len()) == *model, "the store has part {i}");
    }
    end(&engine);
}

#[test]
fn a_stop_tells_what_was_dirty_when_it_began() {
    let engine = engine(8 * MIB);
    let volumes = ["one", "two"].map(|name| {
        let volume = volume(&engine, name, MIB, Memory::new(MIB));
        keep_dirty(&volume);
        User::new(&engine, &volume).write(0, &[1; 9000], false).unwrap();
        volume
    });
    let mut reports = Vec::new();
    engine
        .drain(|at| {
            // However early the second volume is written, the drain does not report it before the
            // first one is clean.
            User::new(&engine, &volumes[1]).flush().unwrap();
            reports.push((at.volume.clone(), at.total_bytes));
        })
        .unwrap();
    reports.dedup();
    assert_eq!(reports, [("one".to_owned(), 3 * 4096), ("two".to_owned(), 3 * 4096)]);
    end(&engine);
}

#[test]
fn writes_after_the_stop_has_begun_go_through() {
    let engine = engine(8 * MIB);
    let memory = Memory::new(MIB);
    let volume = volume(&engine, "stopping", MIB, memory.clone());
    let mut user = User::new(&engine, &volume);
    user.write(0, &[1; 5000], false).unwrap();
    engine.begin_stop();
    user.write(8192, &[2; 5000], false).unwrap();
    assert_eq!(memory.bytes(8192, 5000), [2; 5000], "in the store when it is answered");
    engine.drain(|_| {}).unwrap();
    assert_eq!(memory.bytes(0, 5000), [1; 5000]);
    user.close();
    end(&engine);
}

#[test]
fn shutting_down_with_operations_in_flight_neither_hangs_nor_panics() {
    let engine = engine(8 * MIB);
    let store = DelayStore::new(Memory::new(64 * MIB), 50 * MILLISECOND);
    let stalled = store.stall_switch();
    stalled.store(true, Ordering::Release);
    let volume = volume(&engine, "slow", 64 * MIB, store);
    let cache = Arc::clone(engine.cache());
    let limit = SessionLimit::Own(u64::MAX);
    let mut session: ArenaSession<()> =
        Session::open(&cache, &volume, Box::new(NoWaker), limit).unwrap();
    let mut submit = |request: Request, payload: &[u8]| {
        session.submit(&cache, engine.now(), request, payload, || ());
    };
    for i in 0..200 {
        submit(Request::new(RequestOp::Read, i * 65536..i * 65536 + 8192), &[]);
    }
    for i in 0..200 {
        let range = i * 65536 + 32768..i * 65536 + 36864;
        let request = Request { fua: i % 2 == 0, ..Request::new(RequestOp::Write, range) };
        submit(request, &[1; 4096]);
    }
    submit(Request::new(RequestOp::Flush, 0..0), &[]);
    assert!(session.in_flight() > 300 && !session.is_stalled());
    eventually("the store has something", || {
        cache.gauge(&volume, larder_core::counters::Gauge::InFlight) > 0
    });
    stalled.store(false, Ordering::Release);
    let started = Instant::now();
    engine.shut_down();
    assert!(started.elapsed() < Duration::from_secs(9), "{:?}", started.elapsed());
    session.close(&cache);
    assert_eq!(cache.frames().arena().frames_held(), 0, "frames are held for ever");
}

#[test]
fn memory_is_refused_below_the_least_and_above_the_machine() {
    let make = |memory_bytes| {
        let (huge_pages, lock, threads, policy_bytes) = (false, false, 1, 28);
        Engine::new(EngineOptions { memory_bytes, huge_pages, lock, threads, policy_bytes })
    };
    let error = make(MEMORY_BYTES_MIN - 1).unwrap_err();
    assert!(matches!(error, EngineError::TooLittle { .. }) && error.to_string().contains("8 MiB"));
    let error = make(machine_memory_bytes() + 1).unwrap_err();
    assert!(matches!(error, EngineError::TooMuch { .. }), "{error}");
    let engine = make(MEMORY_BYTES_MIN).unwrap();
    let frames = u64::from(engine.cache().frame_count());
    assert!(frames * 4096 < MEMORY_BYTES_MIN && frames * 4800 > MEMORY_BYTES_MIN, "{frames}");
}

#[test]
fn a_drain_goes_on_until_the_store_takes_it() {
    let engine = engine(8 * MIB);
    let (memory, plan) = (Memory::new(MIB), FaultPlan::default());
    let store = FaultyStore::new(memory.clone(), plan.clone());
    let volume = volume(&engine, "faulty", MIB, store);
    let mut user = User::new(&engine, &volume);
    let data = Random::new(5).bytes(100_000);
    user.write(777, &data, false).unwrap();
    plan.set(vec![Fault::Writes(0..MIB)]);
    let mut failures = 0;
    let drained = engine.drain(|progress| {
        if let Some(error) = &progress.error {
            assert!(error.contains("injected"), "{progress:?}");
            failures += 1;
            if failures == 3 {
                plan.set(Vec::new());
            }
        }
    });
    assert_eq!(drained, Ok(()));
    assert!(failures >= 3, "the failure was told");
    assert_eq!(memory.bytes(777, data.len()), data);
    user.close();
    end(&engine);
}

#[test]
fn a_store_that_cannot_flush_ends_a_drain_with_an_error() {
    let engine = engine(8 * MIB);
    let (memory, plan) = (Memory::new(MIB), FaultPlan::default());
    let store = FaultyStore::new(memory.clone(), plan.clone());
    let broken = volume(&engine, "broken", MIB, store);
    let sound = Memory::new(MIB);
    let other = volume(&engine, "sound", MIB, sound.clone());
    for volume in [&broken, &other] {
        let mut user = User::new(&engine, volume);
        user.write(0, &[3; 9000], false).unwrap();
        user.close();
    }
    plan.set(vec![Fault::Flushes]);
    let failures = engine.drain(|_| {}).unwrap_err();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].starts_with("cannot ") && failures[0].contains("injected"));
    assert_eq!(memory.bytes(0, 9000), [3; 9000], "it was written all the same");
    assert_eq!(sound.bytes(0, 9000), [3; 9000], "the other volume is not held up");
    end(&engine);
}

#[test]
fn a_read_error_is_of_that_read_alone() {
    let engine = engine(8 * MIB);
    let plan = FaultPlan::default();
    let store = FaultyStore::new(Memory::new(MIB), plan.clone());
    let volume = volume(&engine, "faulty", MIB, store);
    let mut user = User::new(&engine, &volume);
    plan.set(vec![Fault::Reads(65536..69632)]);
    let error = user.read(65000, 2000).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Io);
    assert_eq!(user.read(0, 65536).unwrap(), vec![0; 65536]);
    plan.set(Vec::new());
    assert_eq!(user.read(65000, 2000).unwrap(), [0; 2000], "a failure is not cached");
    user.close();
    end(&engine);
}

#[test]
fn a_store_that_stands_still_holds_up_only_what_needs_it() {
    let engine = engine(16 * MIB);
    let memory = Memory::new(8 * MIB);
    let store = DelayStore::new(memory.clone(), 0);
    let stalled = store.stall_switch();
    let slow = volume(&engine, "still", 8 * MIB, store);
    let other = volume(&engine, "other", 8 * MIB, Memory::new(8 * MIB));
    let mut user = User::new(&engine, &slow);
    let data = Random::new(6).bytes(65536);
    user.write(0, &data, false).unwrap();
    user.flush().unwrap();
    stalled.store(true, Ordering::Release);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut user = User::new(&engine, &slow);
            let bytes = user.read(4 * MIB, 100_000).unwrap();
            user.close();
            bytes
        });
        eventually("the miss is in the store", || {
            engine.cache().gauge(&slow, larder_core::counters::Gauge::InFlight) > 0
        });
        // Hits and writes of this volume, and all requests to another one, need no store operation
        // of it.
        for i in 0..16 {
            let at = usize::try_from(i * 4096).unwrap();
            assert_eq!(user.read(i * 4096, 4096).unwrap(), data[at..at + 4096]);
            user.write(MIB + i * 4096, &data[..4096], false).unwrap();
        }
        let mut other_user = User::new(&engine, &other);
        work(&mut other_user, 0, 8 << 20, 1);
        other_user.flush().unwrap();
        other_user.close();
        assert!(!waiting.is_finished(), "the miss waits");
        stalled.store(false, Ordering::Release);
        // The thread of the store notices the resumption with the next request that needs it.
        user.flush().unwrap();
        assert_eq!(waiting.join().unwrap(), vec![0; 100_000]);
    });
    for i in 0..16 {
        assert_eq!(memory.bytes(MIB + i * 4096, 4096), data[..4096], "nothing was lost");
    }
    user.close();
    engine.drain(|_| {}).unwrap();
    end(&engine);
}
