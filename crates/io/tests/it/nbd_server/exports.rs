//! Exports that are added and removed while the server runs.

use super::{MIB, Service, common, request, simple_reply};
use crate::common::{rig, stalled::stalled};
use larder_io::front::nbd::{Export, ServerLimits};
use larder_io::nbd_client::{Client, ConnectOptions};
use larder_io::nbd_wire as wire;
use larder_io::store::SolidMap;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

fn connect(service: &Service, export: &str) -> Result<Client, larder_io::nbd_client::ClientError> {
    let options =
        ConnectOptions { structured: true, base_allocation: false, timeout: Some(common::TIMEOUT) };
    let uri = service.server.uri(export).parse().expect("an address");
    Client::connect_with(&uri, options)
}

#[test]
fn an_export_that_is_added_is_served_and_one_that_is_removed_is_unknown() {
    let service = Service::new(8 * MIB, MIB, rig::Memory::new(MIB));
    assert!(connect(&service, "second").is_err(), "there is none yet");
    let memory = rig::Memory::new(2 * MIB);
    let volume = rig::volume(&service.engine, "second", 2 * MIB, memory.clone());
    let limits = ServerLimits::default();
    let export = Export::new(Arc::clone(&volume), Arc::new(SolidMap), false, &limits);
    service.server.add_export(export.clone()).expect("a name of its own");
    assert!(service.server.add_export(export).is_err(), "the name is taken");
    let mut client = connect(&service, "second").expect("it is there now");
    let mut first = service.connect(true);
    client.write_at(4096, &[7; 5000], false).expect("room");
    first.write_at(0, &[8; 5000], false).expect("room");
    assert!(service.server.remove_export("second", common::TIMEOUT));
    assert!(client.read_at(4096, &mut [0; 5000]).is_err(), "its clients are gone");
    assert!(!service.server.remove_export("second", common::TIMEOUT), "it is gone");
    assert!(connect(&service, "second").is_err(), "it is unknown again");
    let removed = service.engine.remove_volume(&volume, |_| ControlFlow::Continue(()));
    removed.expect("it is not in use");
    assert_eq!(memory.bytes(4096, 5000), [7; 5000], "all of it is in the store");
    let mut bytes = [0; 5000];
    first.read_at(0, &mut bytes).expect("the other one is served as before");
    assert_eq!(bytes, [8; 5000]);
    drop((client, first));
    service.end();
}

#[test]
fn what_was_asked_of_a_removed_export_is_answered_and_what_comes_later_is_refused() {
    let (store, stalled) = stalled(MIB);
    let service = Service::new(8 * MIB, MIB, store);
    let mut stream = service.connect_raw();
    stream.write_all(&request(wire::CMD_READ, 1, 0, 4096)).expect("it listens");
    rig::eventually("the read is under way", || {
        service.engine.cache().gauge(&service.volume, larder_core::counters::Gauge::InFlight) > 0
    });
    std::thread::scope(|scope| {
        let remover = scope.spawn(|| service.server.remove_export("disk", common::TIMEOUT));
        rig::eventually("it is removed", || connect(&service, "disk").is_err());
        stream.write_all(&request(wire::CMD_READ, 2, 0, 4096)).expect("it listens");
        assert_eq!(simple_reply(&mut stream, 2), libc::ESHUTDOWN.cast_unsigned(), "no more");
        stalled.resume(&service.engine, &service.volume);
        assert_eq!(simple_reply(&mut stream, 1), 0, "asked before");
        stream.read_exact(&mut [0; 4096]).expect("its bytes");
        assert_eq!(stream.read(&mut [0]).expect("the end"), 0, "then it is over");
        assert!(remover.join().expect("no panic"));
    });
    service.end();
}

#[test]
fn a_client_that_does_not_read_its_answers_does_not_keep_an_export() {
    let service = Service::new(8 * MIB, MIB, rig::Memory::new(MIB));
    let mut stream = service.connect_raw();
    for cookie in 0..16 {
        stream.write_all(&request(wire::CMD_READ, cookie, 0, 1 << 19)).expect("it listens");
    }
    assert!(service.server.remove_export("disk", Duration::from_millis(100)));
    let removed = service.engine.remove_volume(&service.volume, |_| ControlFlow::Continue(()));
    removed.expect("it is not in use");
    service.end();
}
