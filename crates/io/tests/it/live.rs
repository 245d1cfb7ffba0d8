//! Changes while an engine serves: memory, bounds, policy, modes and volumes, while threads compare
//! their reads with models.

mod give_back;

use crate::common::{
    Random,
    rig::{Memory, end, engine, eventually, volume},
    user::{User, work},
};
use larder_core::cache::Memory as InService;
use larder_core::clock::MILLISECOND;
use larder_core::mode::{FlushMode, WriteMode};
use larder_core::policy::PolicyKind;
use larder_core::settings::SettingError;
use larder_core::store::DelayStore;
use larder_io::engine::{Engine, EngineError, MEMORY_BYTES_MIN, RemoveError};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

const MIB: u64 = 1 << 20;

fn is_reached(engine: &Engine) -> bool {
    let InService { usable, target, refused } = engine.cache().memory();
    assert_eq!(refused, None, "memory is not refused");
    usable == target
}

#[test]
fn what_threads_read_does_not_show_what_is_changed_meanwhile() {
    let engine = engine(16 * MIB);
    let memory = Memory::new(32 * MIB);
    let served = volume(&engine, "served", 32 * MIB, memory.clone());
    let part = 8 * MIB - 100;
    let has_ended = AtomicBool::new(false);
    let mut random = Random::new(7);
    let models: Vec<_> = std::thread::scope(|scope| {
        let threads = (0..4).map(|i| {
            let (engine, served) = (&engine, &served);
            scope.spawn(move || {
                let mut user = User::new(engine, served);
                let model = work(&mut user, i * part, usize::try_from(part).expect("small"), i);
                user.close();
                model
            })
        });
        let threads: Vec<_> = threads.collect();
        let changes = scope.spawn(|| {
            let mut changes = 0;
            while !has_ended.load(Ordering::Acquire) {
                change(&engine, &served, &mut random);
                changes += 1;
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            changes
        });
        let models = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        has_ended.store(true, Ordering::Release);
        assert!(changes.join().expect("no panic") > 10, "hardly anything was changed");
        models
    });
    let models: Vec<Vec<u8>> = models;
    // The last change may have set a floor above the smallest memory.
    engine.cache().set_bounds(&served, 0, u32::MAX).expect("no bounds");
    engine.set_memory(MEMORY_BYTES_MIN).expect("enough for one volume");
    eventually("the memory is given back", || is_reached(&engine));
    engine.drain(|_| {}).expect("the store works");
    for (i, model) in models.iter().enumerate() {
        assert!(memory.bytes(i as u64 * part, model.len()) == *model, "the store has part {i}");
    }
    end(&engine);
}

/// Makes a random change.
fn change(engine: &Engine, volume: &larder_io::engine::ArenaVolume, random: &mut Random) {
    let cache = engine.cache();
    match random.below(7) {
        0 => {
            let mib = 8 + random.below(40) as u64;
            match engine.set_memory(mib * MIB) {
                Ok(()) | Err(EngineError::Setting(SettingError::Promised { .. })) => {}
                Err(error) => panic!("{error}"),
            }
        }
        1 => {
            let min = u32::try_from(random.below(2000)).expect("small");
            match cache.set_bounds(volume, min, min + 1024) {
                Ok(()) | Err(SettingError::Promised { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        2 => {
            let kind = PolicyKind::ALL[random.below(PolicyKind::ALL.len())];
            match engine.set_policy(volume, kind) {
                Ok(()) | Err(EngineError::Setting(SettingError::Promised { .. })) => {}
                Err(error) => panic!("{error}"),
            }
        }
        3 => {
            let modes = [WriteMode::Back, WriteMode::Through, WriteMode::Around];
            volume.set_write_mode(modes[random.below(3)]).expect("the store takes writes");
        }
        4 => {
            let blocks = 1 << random.below(9);
            match cache.set_page_blocks(volume, blocks) {
                Ok(()) | Err(SettingError::Promised { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        5 => {
            volume.set_tunable("dirty-limit", 20 + random.below(800) as u64).expect("in range");
        }
        // The threads depend on their flushes.
        _ => volume.set_flush_mode(FlushMode::Keep),
    }
}

#[test]
fn memory_below_the_tables_of_a_larger_cache_is_refused_with_their_size() {
    let engine = engine(2048 * MIB);
    let error = engine.set_memory(8 * MIB).expect_err("the tables are larger");
    assert!(matches!(error, EngineError::TooLittleForTables { .. }), "{error}");
    assert_eq!(engine.memory_bytes(), 2048 * MIB, "nothing has changed");
    end(&engine);
}

#[test]
fn memory_grows_beyond_its_first_size_and_is_refused_beyond_the_machine() {
    let engine = engine(8 * MIB);
    let volume = volume(&engine, "growing", 64 * MIB, Memory::new(64 * MIB));
    let before = engine.cache().frame_count();
    engine.set_memory(64 * MIB).expect("the machine has more");
    assert_eq!(engine.memory_bytes(), 64 * MIB);
    eventually("the memory is there", || is_reached(&engine));
    let after = engine.cache().frame_count();
    assert!(after > before * 7, "{before} frames became {after}");
    let mut user = User::new(&engine, &volume);
    for mib in 0..48 {
        user.read(mib * MIB, 1 << 20).expect("the store works");
    }
    let resident = engine.cache().gauge(&volume, larder_core::counters::Gauge::Resident);
    assert!(resident >= 48 * MIB, "all of it is used: {resident}");
    engine.cache().set_bounds(&volume, 4096, u32::MAX).expect("a floor of 16 MiB");
    let error = engine.set_memory(12 * MIB).expect_err("less than the floor");
    assert!(matches!(error, EngineError::Setting(SettingError::Promised { .. })), "{error}");
    let error = engine.set_memory(u64::MAX).expect_err("more than any machine has");
    assert!(matches!(error, EngineError::TooMuch { .. }), "{error}");
    let error = engine.set_memory(1).expect_err("too little");
    assert!(matches!(error, EngineError::TooLittle { .. }), "{error}");
    engine.set_memory(24 * MIB).expect("more than the floor");
    eventually("the memory is given back", || is_reached(&engine));
    let resident = engine.cache().gauge(&volume, larder_core::counters::Gauge::Resident);
    assert!((16 * MIB..=24 * MIB).contains(&resident), "{resident} bytes above the floor");
    user.close();
    end(&engine);
}

#[test]
fn a_volume_goes_when_nobody_uses_it_and_its_store_has_everything() {
    let engine = engine(8 * MIB);
    let kept = volume(&engine, "kept", MIB, Memory::new(MIB));
    let memory = Memory::new(4 * MIB);
    let removed = volume(&engine, "goes", 4 * MIB, memory.clone());
    let (mut user, mut other) = (User::new(&engine, &removed), User::new(&engine, &kept));
    user.write(4096, &[3; 9000], false).expect("room");
    other.write(0, &[5; 5000], false).expect("room");
    let error = engine.remove_volume(&removed, |_| ControlFlow::Continue(())).expect_err("in use");
    assert!(
        matches!(error, RemoveError::Refused(SettingError::InUse { handles: 1, .. })),
        "{error}"
    );
    assert_eq!(removed.write_mode(), WriteMode::Back, "it serves on as before");
    user.write(20_000, &[4; 9000], false).expect("room");
    user.close();
    let mut reports = 0;
    let count = |_: &larder_io::engine::StopProgress| {
        reports += 1;
        ControlFlow::Continue(())
    };
    engine.remove_volume(&removed, count).expect("it is not in use");
    assert!(reports > 0, "progress is reported");
    assert_eq!(memory.bytes(4096, 9000), [3; 9000]);
    assert_eq!(memory.bytes(20_000, 9000), [4; 9000]);
    assert!(removed.is_removed());
    assert_eq!(engine.cache().volumes().len(), 1);
    let again = engine.remove_volume(&removed, |_| ControlFlow::Continue(()));
    assert!(matches!(again, Err(RemoveError::Refused(SettingError::Removed { .. }))));
    // Another volume takes its place, and has none of its data.
    let added = volume(&engine, "comes", 4 * MIB, Memory::new(4 * MIB));
    let mut user = User::new(&engine, &added);
    assert_eq!(user.read(4096, 9000).expect("the store works"), [0; 9000]);
    assert_eq!(other.read(0, 5000).expect("the store works"), [5; 5000]);
    user.close();
    other.close();
    end(&engine);
}

#[test]
fn removing_can_be_broken_off_and_the_volume_serves_on() {
    let engine = engine(8 * MIB);
    let store = DelayStore::new(Memory::new(MIB), 300 * MILLISECOND);
    let slow = volume(&engine, "slow", MIB, store);
    let mut user = User::new(&engine, &slow);
    user.write(0, &[3; 9000], false).expect("room");
    user.close();
    let error = engine.remove_volume(&slow, |_| ControlFlow::Break(())).expect_err("broken off");
    assert!(matches!(error, RemoveError::NotWritten { .. }), "{error}");
    assert_eq!(slow.write_mode(), WriteMode::Back);
    let mut user = User::new(&engine, &slow);
    assert_eq!(user.read(0, 9000).expect("the store works"), [3; 9000]);
    user.close();
    engine.drain(|_| {}).expect("the store works");
    end(&engine);
}
