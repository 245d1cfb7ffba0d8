//! Requests that fail, on connections that continue to work.

use super::{MIB, Service, request, simple_reply};
use crate::common::rig::{Memory, engine, geometry};
use larder_core::store::{Fault, FaultPlan, FaultyStore, Geometry, MemoryStore};
use larder_core::volume::VolumeOptions;
use larder_io::front::nbd::ServerLimits;
use larder_io::nbd_client::{Client, ClientError, Errno, Request, RequestError};
use larder_io::nbd_wire as wire;
use larder_io::store::{SolidMap, TimedStore};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Returns the error of a request.
fn failure(client: &mut Client, request: Request) -> RequestError {
    let cookie = client.submit(request).expect("the connection works");
    let completion = client.wait().expect("the connection works");
    assert_eq!(completion.cookie, cookie);
    completion.result.expect_err("it fails")
}

fn works(client: &mut Client) {
    client.write_at(100, b"still here", false).expect("the connection goes on");
    let mut bytes = [0; 10];
    client.read_at(100, &mut bytes).expect("the connection goes on");
    assert_eq!(&bytes, b"still here");
}

#[test]
fn requests_that_cannot_be_served_are_refused_one_by_one() {
    let limits = ServerLimits { request_bytes_max: 1 << 20, ..ServerLimits::default() };
    let engine = engine(16 * MIB);
    let length = MIB + 512;
    let volume = crate::common::rig::volume(&engine, "disk", length, Memory::new(length));
    let service = Service::start(engine, volume, Arc::new(SolidMap), limits, false);
    for structured in [true, false] {
        let mut client = service.connect(structured);
        assert_eq!(client.info().block_sizes.max, 1 << 20);
        let cases = [
            (Request::read(length - 10, vec![0; 11]), Errno::Inval, "ends at 1049088"),
            (Request::read(u64::MAX - 5, vec![0; 11]), Errno::Inval, "ends at"),
            (Request::write(length - 10, vec![0; 11]), Errno::NoSpace, "ends at"),
            (Request::trim(length, 1), Errno::NoSpace, "ends at"),
            (Request::write_zeroes(length, 4096), Errno::NoSpace, "ends at"),
            (Request::read(0, vec![0; (1 << 20) + 1]), Errno::Inval, "the limit is 1048576"),
            (Request::write(0, vec![0; (1 << 20) + 1]), Errno::Inval, "the limit is 1048576"),
            (Request::cache(0, (1 << 20) + 1), Errno::Inval, "the limit is 1048576"),
            (Request::read(0, Vec::new()), Errno::Inval, "nothing"),
            (Request::read(0, vec![0; 1]).with_flags(1 << 9), Errno::Inval, "flags"),
        ];
        for (request, errno, text) in cases {
            let case = format!("{request:?}").chars().take(80).collect::<String>();
            let error = failure(&mut client, request);
            assert_eq!(error.errno, errno, "{case}");
            assert_eq!(error.message.contains(text), structured, "{case}: {}", error.message);
            works(&mut client);
        }
        client.disconnect().unwrap();
    }
    service.end();
}

/// The server reads ahead the headers behind a request. They are headers of reads only as long as
/// no payload lies between them, and may have any values.
#[test]
fn requests_that_come_together_are_served_in_order_whatever_lies_behind_them() {
    let service = Service::new(16 * MIB, MIB, Memory::new(MIB));
    let mut client = service.connect_raw();
    let header = |cookie, offset, len| request(wire::CMD_READ, cookie, offset, len);
    let mut data = [1; 4096];
    let mut read_first_block = |client: &mut UnixStream, cookie| {
        assert_eq!(simple_reply(client, cookie), 0);
        client.read_exact(&mut data).unwrap();
        assert_eq!(data, [0; 4096]);
    };
    // The block gets cached, so that the next read of it is answered immediately.
    client.write_all(&header(0, 0, 4096)).unwrap();
    read_first_block(&mut client, 0);
    // A payload of a write that consists of headers of reads, then of zeros.
    let mut payload: Vec<u8> = (0..40).flat_map(|i| header(1000 + i, i * 4096, 4096)).collect();
    payload.resize(8192, 0);
    let mut sent = Vec::new();
    sent.extend(header(1, 0, 4096));
    sent.extend(header(2, u64::MAX, 4096));
    sent.extend(header(3, MIB - 1, 2));
    sent.extend(header(4, MIB, u32::MAX));
    sent.extend(header(5, 4096, 0));
    sent.extend(request(wire::CMD_WRITE, 6, 4096, 8192));
    sent.extend(&payload);
    // The range of a flush has no meaning.
    sent.extend(request(wire::CMD_FLUSH, 7, u64::MAX, u32::MAX));
    sent.extend((8..16).flat_map(|i| header(i, 4096, 8192)));
    client.write_all(&sent).unwrap();
    read_first_block(&mut client, 1);
    for cookie in 2..6 {
        assert_eq!(simple_reply(&mut client, cookie), Errno::Inval.code(), "request {cookie}");
    }
    assert_eq!(simple_reply(&mut client, 6), 0);
    // The flush waits for the store, and the reads do not wait for it.
    let mut flushed = false;
    for cookie in 8..16 {
        let mut reply = [0; wire::SIMPLE_REPLY_BYTES];
        client.read_exact(&mut reply).unwrap();
        if wire::parse_simple_reply(&reply).unwrap() == (7, 0) {
            assert!(!std::mem::replace(&mut flushed, true), "each request is answered once");
            client.read_exact(&mut reply).unwrap();
        }
        assert_eq!(wire::parse_simple_reply(&reply).unwrap(), (cookie, 0));
        let mut data = vec![0; 8192];
        client.read_exact(&mut data).unwrap();
        assert!(data == payload, "read {cookie}");
    }
    if !flushed {
        assert_eq!(simple_reply(&mut client, 7), 0);
    }
    let mut wrong = header(1, 0, 4096).to_vec();
    wrong.extend([0; wire::REQUEST_BYTES]);
    client.write_all(&wrong).unwrap();
    client.read_to_end(&mut Vec::new()).expect("a wrong magic ends the connection");
    service.end();
}

#[test]
fn an_unknown_command_is_refused_and_a_wrong_magic_ends_the_connection() {
    let service = Service::new(16 * MIB, MIB, Memory::new(MIB));
    let mut stream = service.connect_raw();
    stream.write_all(&request(77, 1, 0, 512)).unwrap();
    assert_eq!(simple_reply(&mut stream, 1), Errno::Inval.code());
    stream.write_all(&request(wire::CMD_BLOCK_STATUS, 2, 0, 512)).unwrap();
    assert_eq!(simple_reply(&mut stream, 2), Errno::Inval.code(), "it was not negotiated");
    stream.write_all(&request(wire::CMD_READ, 3, 0, 512)).unwrap();
    assert_eq!(simple_reply(&mut stream, 3), 0);
    stream.read_exact(&mut [0; 512]).unwrap();
    stream.write_all(&[0x11; wire::REQUEST_BYTES]).unwrap();
    assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0, "closed");
    service.end();
}

#[test]
fn a_read_only_export_refuses_changes() {
    let engine = engine(16 * MIB);
    let geometry = Geometry { read_only: true, ..geometry(MIB) };
    let store = TimedStore::new(MemoryStore::new(geometry), engine.clock());
    let options = VolumeOptions::new("disk", geometry);
    let volume = engine.add_volume(options, Box::new(store)).unwrap();
    let limits = ServerLimits::default();
    let service = Service::start(engine, volume, Arc::new(SolidMap), limits, false);
    let mut client = service.connect(true);
    assert!(client.info().has(wire::FLAG_READ_ONLY));
    let offered = client.trim(0, 4096, false);
    assert!(matches!(offered, Err(ClientError::NotOffered(_))), "{offered:?}");
    let changes =
        [Request::write(0, vec![0; 300_000]), Request::trim(0, 1), Request::write_zeroes(0, 9)];
    for change in changes {
        let error = failure(&mut client, change);
        assert_eq!(error.errno, Errno::Perm);
        assert!(error.message.contains("read-only"), "{error}");
        client.read_at(0, &mut [0; 5000]).unwrap();
    }
    client.disconnect().unwrap();
    service.end();
}

#[test]
fn a_failing_store_fails_the_request_and_says_why() {
    let plan = FaultPlan::default();
    let store = FaultyStore::new(Memory::new(16 * MIB), plan.clone());
    let service = Service::new(24 * MIB, 16 * MIB, store);
    for structured in [true, false] {
        let mut client = service.connect(structured);
        plan.set(vec![Fault::Reads(65536..65537), Fault::Reads(6 * MIB..6 * MIB + 1)]);
        let ranges =
            if structured { vec![(65000, 2000), (4 * MIB, 8 << 20)] } else { vec![(65000, 2000)] };
        for (offset, len) in ranges {
            let error = failure(&mut client, Request::read(offset, vec![0; len]));
            assert_eq!(error.errno, Errno::Io);
            assert_eq!(error.message.starts_with("cannot read"), structured, "{error}");
            assert_eq!(error.message.contains("injected"), structured, "{error}");
            works(&mut client);
        }
        let error = failure(&mut client, Request::cache(65000, 2000));
        assert_eq!(error.errno, Errno::Io);
        // A write that needs the rest of its sector fails like the read of it.
        let error = failure(&mut client, Request::write(65540, vec![1; 10]));
        assert_eq!(error.errno, Errno::Io);
        works(&mut client);
        plan.set(Vec::new());
        client.read_at(65000, &mut [0; 2000]).unwrap();
        client.disconnect().unwrap();
        let mut other = service.connect(true);
        other.trim(0, 16 << 20, false).unwrap();
        other.disconnect().unwrap();
    }
    service.end();
}

#[test]
fn a_large_simple_read_that_fails_midway_ends_the_connection() {
    let plan = FaultPlan::default();
    let store = FaultyStore::new(Memory::new(16 * MIB), plan.clone());
    let service = Service::new(24 * MIB, 16 * MIB, store);
    plan.set(vec![Fault::Reads(6 * MIB..6 * MIB + 1)]);
    let mut client = service.connect(false);
    client.submit(Request::read(0, vec![0; 8 << 20])).unwrap();
    let ended = client.wait();
    assert!(matches!(ended, Err(ClientError::Closed)), "half a reply is no reply");
    let mut client = service.connect(false);
    works(&mut client);
    client.disconnect().unwrap();
    service.end();
}

#[test]
fn a_flush_reports_a_failed_write_to_every_client() {
    let plan = FaultPlan::default();
    let store = FaultyStore::new(Memory::new(MIB), plan.clone());
    let service = Service::new(16 * MIB, MIB, store);
    let (mut one, mut other) = (service.connect(true), service.connect(true));
    plan.set(vec![Fault::NoSpace]);
    one.write_at(0, &[1; 8192], false).unwrap();
    for client in [&mut one, &mut other] {
        let error = failure(client, Request::flush());
        assert_eq!(error.errno, Errno::NoSpace);
        assert!(error.message.contains("injected"), "{error}");
    }
    plan.set(Vec::new());
    // The data of the failed write is still there, and the next flush writes it.
    while one.flush().is_err() {}
    other.flush().or_else(|_| other.flush()).unwrap();
    drop((one, other));
    service.end();
}
