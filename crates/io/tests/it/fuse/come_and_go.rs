//! Volumes that are added and removed while they are mounted.

use super::{MIB, Service, can_mount};
use crate::common::{
    TIMEOUT,
    rig::{Memory, eventually, volume},
    stalled::stalled,
};
use larder_core::counters::Gauge;
use larder_io::store::SolidMap;
use rustix::io::Errno;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_volume_that_comes_is_a_file_and_one_that_goes_is_none() {
    if !can_mount() {
        return;
    }
    let service = Service::new(16 * MIB, MIB, Memory::new(MIB));
    let first = service.open();
    for round in 1..=5 {
        let memory = Memory::new(2 * MIB);
        let second = volume(&service.engine, "second", 2 * MIB, memory.clone());
        service.mount().add(Arc::clone(&second), Arc::new(SolidMap)).expect("a name of its own");
        let taken = service.mount().add(Arc::clone(&second), Arc::new(SolidMap));
        assert!(taken.unwrap_err().to_string().ends_with("there is a file of this name"));
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).open(service.path("second")).expect("a file");
        assert_eq!(service.mount().opens("second"), 1);
        file.write_all_at(&[round; 5000], 4096).expect("room");
        assert!(service.mount().remove("second", TIMEOUT));
        assert!(!service.mount().remove("second", TIMEOUT), "it is gone");
        let gone = file.read_at(&mut [0; 10], 0).expect_err("its volume is gone");
        assert_eq!(Errno::from_io_error(&gone), Some(Errno::SHUTDOWN));
        let removed = service.engine.remove_volume(&second, |_| ControlFlow::Continue(()));
        removed.expect("it is not in use");
        assert!(memory.bytes(4096, 5000) == [round; 5000], "all of it is in the store");
        assert!(File::open(service.path("second")).is_err());
        first.write_all_at(&[round; 100], 0).expect("the other one is served as before");
    }
    drop(first);
    service.end();
}

#[test]
fn what_was_asked_of_a_volume_that_goes_is_answered() {
    if !can_mount() {
        return;
    }
    let (store, stalled) = stalled(MIB);
    let service = Service::new(8 * MIB, MIB, store);
    let file = service.open();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| file.read_at(&mut [1; 4096], 0));
        eventually("the read is under way", || {
            service.engine.cache().gauge(&service.volume, Gauge::InFlight) > 0
        });
        let remover = scope.spawn(|| service.mount().remove("disk", TIMEOUT));
        eventually("it goes", || service.mount().opens("disk") == 0);
        stalled.resume(&service.engine, &service.volume);
        assert_eq!(reader.join().expect("no panic").expect("bytes"), 4096);
        assert!(remover.join().expect("no panic"));
    });
    drop(file);
    service.end();
}

#[test]
fn a_store_that_does_not_answer_does_not_keep_a_volume() {
    if !can_mount() {
        return;
    }
    let (store, stalled) = stalled(MIB);
    let service = Service::new(8 * MIB, MIB, store);
    let file = service.open();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| file.read_at(&mut [1; 4096], 0));
        eventually("the read is under way", || {
            service.engine.cache().gauge(&service.volume, Gauge::InFlight) > 0
        });
        assert!(service.mount().remove("disk", Duration::from_millis(50)));
        let given_up = reader.join().expect("no panic").expect_err("given up");
        assert_eq!(Errno::from_io_error(&given_up), Some(Errno::SHUTDOWN));
    });
    stalled.resume(&service.engine, &service.volume);
    eventually("the store is done", || {
        service.engine.cache().gauge(&service.volume, Gauge::InFlight) == 0
    });
    drop(file);
    service.end();
}
