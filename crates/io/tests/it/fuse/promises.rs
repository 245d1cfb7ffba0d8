//! Guarantees of fsync(2), and the reporting of errors.

use super::{MIB, Service, can_mount};
use crate::common::rig::{self, Memory, engine, geometry};
use larder_core::mode::WriteMode;
use larder_core::store::{Fault, FaultPlan, FaultyStore, MemoryStore};
use larder_core::volume::VolumeOptions;
use larder_io::store::{SolidMap, TimedStore};
use rustix::io::Errno;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Delays writeback for longer than any test takes.
fn lazy(options: &mut VolumeOptions) {
    for name in ["first-delay", "idle-delay", "age-max"] {
        options.tunables.set(name, 60_000).expect("a tunable");
    }
}

fn service(
    store: impl larder_core::store::Store<larder_io::frames::ArenaFrames> + 'static,
    configure: impl FnOnce(&mut VolumeOptions),
) -> Service {
    let engine = engine(8 * MIB);
    let mut options = VolumeOptions::new("disk", geometry(MIB));
    configure(&mut options);
    let store = Box::new(TimedStore::new(store, engine.clock()));
    let volume = engine.add_volume(options, store).expect("a volume");
    Service::start(engine, volume, Arc::new(SolidMap))
}

#[test]
fn a_write_is_in_the_cache_and_after_an_fsync_in_the_store() {
    if !can_mount() {
        return;
    }
    let memory = Memory::new(MIB);
    let service = service(memory.clone(), lazy);
    let (file, other) = (service.open(), service.open());
    file.write_all_at(&[5; 5000], 3000).expect("room");
    assert!(memory.bytes(3000, 5000) == [0; 5000], "nothing was asked to be written");
    other.sync_data().expect("the store works");
    assert!(memory.bytes(3000, 5000) == [5; 5000], "also what another descriptor wrote");
    drop((file, other));
    service.end();
}

#[test]
fn what_is_opened_with_o_dsync_is_in_the_store_when_the_write_returns() {
    use std::os::unix::fs::OpenOptionsExt;
    if !can_mount() {
        return;
    }
    let memory = Memory::new(MIB);
    let service = service(memory.clone(), lazy);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).custom_flags(libc::O_DSYNC);
    let file = options.open(service.path("disk")).expect("it is there");
    file.write_all_at(&[5; 5000], 3000).expect("room");
    assert!(memory.bytes(3000, 5000) == [5; 5000]);
    drop(file);
    service.end();
}

#[test]
fn a_mode_that_writes_through_has_written_when_the_write_returns() {
    if !can_mount() {
        return;
    }
    let memory = Memory::new(MIB);
    let service = service(memory.clone(), |options| options.write_mode = WriteMode::Through);
    let file = service.open();
    file.write_all_at(&[5; 5000], 3000).expect("room");
    assert!(memory.bytes(3000, 5000) == [5; 5000]);
    drop(file);
    service.end();
}

#[test]
fn errors_of_the_store_reach_who_asked_and_nobody_else() {
    if !can_mount() {
        return;
    }
    let plan = FaultPlan::default();
    let store = FaultyStore::new(MemoryStore::new(geometry(MIB)), plan.clone());
    let service = service(store, |_| {});
    let file = service.open();
    plan.set(vec![Fault::Reads(65536..65537)]);
    let refused = file.read_at(&mut [0; 2000], 65_000).expect_err("the store fails");
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::IO));
    let refused = file.write_at(&[1; 10], 65_540).expect_err("its sector cannot be read");
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::IO));
    file.read_exact_at(&mut [0; 2000], 0).expect("elsewhere nothing is wrong");
    plan.set(Vec::new());
    file.read_exact_at(&mut [0; 2000], 65_000).expect("it can be read again");
    drop(file);
    service.end();
}

#[test]
fn an_fsync_fails_until_what_could_not_be_written_is_made_good() {
    if !can_mount() {
        return;
    }
    let memory = Memory::new(MIB);
    let plan = FaultPlan::default();
    let service = service(FaultyStore::new(memory.clone(), plan.clone()), |_| {});
    let file = service.open();
    plan.set(vec![Fault::NoSpace]);
    file.write_all_at(&[1; 8192], 0).expect("it is in the cache");
    for _ in 0..3 {
        let failed = file.sync_all().expect_err("the store is full");
        assert_eq!(Errno::from_io_error(&failed), Some(Errno::NOSPC));
    }
    plan.set(Vec::new());
    rig::eventually("it is made good", || file.sync_all().is_ok());
    assert!(memory.bytes(0, 8192) == [1; 8192]);
    drop(file);
    service.end();
}

#[test]
fn a_store_that_cannot_make_holes_says_so_and_stays_as_it_is() {
    use rustix::fs::{FallocateFlags, fallocate};
    if !can_mount() {
        return;
    }
    let plan = FaultPlan::default();
    plan.set(vec![Fault::NoDiscard]);
    let service = service(FaultyStore::new(MemoryStore::new(geometry(MIB)), plan), |_| {});
    let file = service.open();
    file.write_all_at(&[3; 8192], 4096).expect("room");
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(fallocate(&file, punch, 4096, 4096), Err(Errno::OPNOTSUPP));
    let mut bytes = [0; 8192];
    file.read_exact_at(&mut bytes, 4096).expect("bytes");
    assert!(bytes == [3; 8192]);
    drop(file);
    service.end();
}
