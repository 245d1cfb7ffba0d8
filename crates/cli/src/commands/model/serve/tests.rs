//! Tests of a modeled device that is served.

use super::*;
use larder_core::store::Geometry;
use larder_io::nbd_client::{Client, ConnectOptions, Errno, Request};
use larder_lab::model::{DeviceRates, StoreModel};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Calls `work` with a client of a device that takes 5 ms for each request.
fn with_client(structured: bool, work: impl FnOnce(&mut Client)) {
    let file = tempfile::tempfile().unwrap();
    file.set_len(MIB).unwrap();
    let model = StoreModel::rated(DeviceRates::fixed(5_000_000));
    let geometry = Geometry { length: MIB, granule: 512, read_only: false };
    let device = Arc::new(ModeledDevice::new(&model, geometry, file));
    let timer = Arc::clone(&device);
    std::thread::spawn(move || timer.run());
    let (server, client) = UnixStream::pair().unwrap();
    client.set_nonblocking(true).unwrap();
    std::thread::scope(|scope| {
        let device = &device;
        let serving = scope.spawn(move || serve_client(&server, device));
        let options = ConnectOptions { structured, ..ConnectOptions::default() };
        let mut client = Client::over(client.into(), "", options).unwrap();
        assert_eq!(client.info().length, MIB);
        assert_eq!(client.info().structured, structured);
        work(&mut client);
        client.disconnect().unwrap();
        serving.join().unwrap().unwrap();
    });
}

#[test]
fn requests_are_served_in_the_time_of_the_model() {
    for structured in [false, true] {
        with_client(structured, |client| {
            let started = Instant::now();
            client.write_at(4096, &[7; 8192], false).unwrap();
            client.write_at(0, &[8; 512], true).unwrap();
            client.flush().unwrap();
            let mut found = [0; 8192];
            client.read_at(4096, &mut found).unwrap();
            assert_eq!(found, [7; 8192]);
            assert!(started.elapsed() >= Duration::from_millis(20));
            // Eight at a time take as long as one.
            let started = Instant::now();
            for _ in 0..8 {
                client.submit(Request::read(0, vec![0; 512])).unwrap();
            }
            for _ in 0..8 {
                let done = client.wait().unwrap();
                assert!(done.result.is_ok());
                assert_eq!(done.data[0], 8);
            }
            assert!(started.elapsed() >= Duration::from_millis(5));
        });
    }
}

#[test]
fn a_request_that_is_not_served_is_answered_with_an_error() {
    for structured in [false, true] {
        with_client(structured, |client| {
            for (request, errno) in [
                (Request::read(MIB - 512, vec![0; 1024]), Errno::Inval),
                (Request::write(MIB, vec![0; 512]), Errno::NoSpace),
                (Request::read(u64::MAX, vec![0; 512]), Errno::Inval),
                (Request::trim(0, 512), Errno::Inval),
            ] {
                client.submit(request).unwrap();
                assert_eq!(client.wait().unwrap().result.unwrap_err().errno, errno);
            }
            if structured {
                let extents = client.block_status(4096, 8192).unwrap();
                assert_eq!(extents.iter().map(|it| u64::from(it.len)).sum::<u64>(), 8192);
            }
            // More requests than a connection may have in flight.
            for _ in 0..3 * REQUESTS_MAX {
                client.submit(Request::read(0, vec![0; 512])).unwrap();
            }
            for _ in 0..3 * REQUESTS_MAX {
                assert!(client.wait().unwrap().result.is_ok());
            }
        });
    }
}

#[test]
fn only_unix_sockets_are_listened_on() {
    assert_eq!(socket("unix:a/b"), Ok("a/b".into()));
    let error = socket("tcp:127.0.0.1:1").unwrap_err();
    assert!(error.contains("write unix:PATH"), "{error}");
}
