//! An upstream that works: the data that reaches it, holes, TLS, refusals.

use super::{Downstream, MIB, Origin};
use crate::common::{certificates::Authority, rig};
use larder_core::mode::WriteMode;
use larder_core::store::{CrashStore, SparseBytes};
use larder_core::volume::VolumeOptions;
use larder_io::front::listen::Listener;
use larder_io::front::nbd::TlsOptions;
use larder_io::front::nbd::{Export, ListenAddress, Server, ServerLimits, ServerOptions};
use larder_io::nbd_client::{Client, NbdUri, UriTls, ZeroFlags};
use larder_io::nbd_wire as wire;
use larder_io::store::{AllocationMap, MapExtent, NbdOptions, SolidMap, TimedStore, open_nbd};
use larder_io::tls::TlsServer;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

#[test]
fn what_is_flushed_is_there_and_what_is_zeroed_is_zero() {
    let mut origin = Origin::new(8 * MIB, WriteMode::Back);
    let downstream = Downstream::new(&origin.uri(), NbdOptions::default()).unwrap();
    let mut client = downstream.connect();
    client.write_at(MIB - 7, &vec![1; 3_000_000], false).unwrap();
    client.write_zeroes(2 * MIB, 1 << 20, ZeroFlags::default()).unwrap();
    client.trim(0, 4096, false).unwrap();
    let mut expected = vec![0; 8 << 20];
    expected[(1 << 20) - 7..(1 << 20) - 7 + 3_000_000].fill(1);
    expected[2 << 20..3 << 20].fill(0);
    client.flush().unwrap();
    drop(client);
    origin.kill();
    assert!(origin.bytes() == expected);
    origin.start();
    downstream.end();
}

#[test]
fn the_same_export_has_the_same_identity() {
    let origin = Origin::new(MIB, WriteMode::Back);
    let clock = rig::engine(16 * MIB).clock();
    let identity =
        |uri: &NbdUri| open_nbd(uri, NbdOptions::default(), Arc::clone(&clock)).unwrap().identity;
    let by_name = identity(&origin.uri());
    let by_default = NbdUri { export: String::new(), ..origin.uri() };
    assert_eq!(by_name, identity(&by_default));
    let link = origin.dir.path().join("link.sock");
    std::os::unix::fs::symlink(origin.socket(), &link).unwrap();
    let by_link: NbdUri = format!("nbd+unix:///disk?socket={}", link.display()).parse().unwrap();
    assert_eq!(by_name, identity(&by_link));
    let other = Origin::new(MIB, WriteMode::Back);
    assert_ne!(by_name, identity(&other.uri()));
}

#[test]
fn an_export_that_is_not_written_to_must_be_opened_so() {
    let origin = Origin::new(MIB, WriteMode::ReadOnly);
    let error =
        |options| Downstream::new(&origin.uri(), options).map(|_| ()).unwrap_err().to_string();
    let text = error(NbdOptions::default());
    assert!(text.ends_with("exports it read-only; use --write-mode read-only"), "{text}");
    let options = NbdOptions { read_only: true, ..NbdOptions::default() };
    let downstream = Downstream::new(&origin.uri(), options).unwrap();
    let mut client = downstream.connect();
    assert!(client.info().has(wire::FLAG_READ_ONLY));
    client.read_at(0, &mut [0; 4096]).unwrap();
    drop(client);
    downstream.end();
    let nowhere: NbdUri = "nbd+unix:///disk?socket=/nonexistent/socket".parse().unwrap();
    let text = Downstream::new(&nowhere, NbdOptions::default()).map(|_| ()).unwrap_err();
    assert!(text.to_string().contains("/nonexistent/socket: No such file"), "{text}");
    let unknown = NbdUri { export: "nothing".into(), ..origin.uri() };
    let text = Downstream::new(&unknown, NbdOptions::default()).map(|_| ()).unwrap_err();
    assert!(text.to_string().contains("there is no such export"), "{text}");
}

/// A map in which every other half MiB is a hole; counts the queries.
struct Stripes(AtomicU64);

impl AllocationMap for Stripes {
    fn extent(&self, offset: u64, len: u64) -> MapExtent {
        self.0.fetch_add(1, Ordering::Relaxed);
        let half = MIB / 2;
        MapExtent { len: len.min(half - offset % half), hole: offset / half % 2 == 1 }
    }
}

#[test]
fn holes_of_the_upstream_are_told_until_they_are_written() {
    let dir = TempDir::new().unwrap();
    let engine = rig::engine(16 * MIB);
    let store = CrashStore::new(rig::geometry(8 * MIB), SparseBytes::default(), 1);
    let options = VolumeOptions::new("disk", rig::geometry(8 * MIB));
    let store = Box::new(TimedStore::new(store, engine.clock()));
    let volume = engine.add_volume(options, store).unwrap();
    let limits = ServerLimits::default();
    let map = Arc::new(Stripes(AtomicU64::new(0)));
    let export = Export::new(volume, map.clone(), true, &limits);
    let address = ListenAddress::Unix(dir.path().join("socket"));
    let server = Server::start(Arc::clone(&engine), &address, vec![export], limits).unwrap();
    let uri: NbdUri = server.uri("disk").parse().unwrap();
    let downstream = Downstream::new(&uri, NbdOptions::default()).unwrap();
    let mut client = downstream.connect();
    let holes = |client: &mut Client| {
        let mut at = 0;
        let mut holes = Vec::new();
        while at < 8 * MIB {
            for extent in client.block_status(at, u32::try_from(8 * MIB - at).unwrap()).unwrap() {
                if extent.state & wire::STATE_HOLE != 0 {
                    holes.push(at..at + u64::from(extent.len));
                }
                at += u64::from(extent.len);
            }
        }
        holes
    };
    let odd = |i: u64| (2 * i + 1) * MIB / 2..(i + 1) * MIB;
    assert_eq!(holes(&mut client), (0..8).map(odd).collect::<Vec<_>>());
    let queries = map.0.load(Ordering::Relaxed);
    assert!(queries <= 40, "an answer is kept: {queries} extents were asked for");
    // Dirty blocks in a hole are data, before and after they are written.
    client.write_at(3 * MIB + MIB / 2, &[1; 4096], false).unwrap();
    let first = holes(&mut client);
    assert!(!first.contains(&odd(3)), "{first:?}");
    drop(client);
    downstream.end();
    server.close();
    engine.drain(|_| {}).unwrap();
    rig::end(&engine);
}

#[test]
fn an_upstream_with_tls_is_reached_with_certificates_only() {
    let dir = TempDir::new().unwrap();
    let authority = Authority::new();
    authority.write_certificate(dir.path());
    authority.write_server(dir.path(), &["localhost", "127.0.0.1"]);
    authority.write_client(dir.path());
    let engine = rig::engine(16 * MIB);
    let memory = rig::Memory::new(8 * MIB);
    let volume = rig::volume(&engine, "disk", 8 * MIB, memory.clone());
    let server = TlsServer::from_directory(dir.path(), true).unwrap();
    let options = ServerOptions { tls: TlsOptions::new(server, true), ..ServerOptions::default() };
    let export = Export::new(volume, Arc::new(SolidMap), true, &options.limits);
    let address = ListenAddress::Tcp(([127, 0, 0, 1], 0).into());
    let listener = Listener::bind(&address).unwrap();
    let server = Server::start_on(Arc::clone(&engine), listener, vec![export], options).unwrap();
    let uri: NbdUri = server.uri("disk").parse().unwrap();
    assert_eq!(uri.tls, Some(UriTls::default()), "it says that it wants TLS");
    let without = Downstream::new(&uri, NbdOptions::default()).map(|_| ()).unwrap_err();
    assert!(without.to_string().contains("tls-certificates"), "{without}");
    let certificates = Some(dir.path().to_owned());
    let uri = NbdUri { tls: Some(UriTls { certificates, hostname: None }), ..uri };
    let downstream = Downstream::new(&uri, NbdOptions::default()).unwrap();
    let mut client = downstream.connect();
    let bytes = crate::common::Random::new(5).bytes(6 << 20);
    client.write_at(12_345, &bytes, false).unwrap();
    client.flush().unwrap();
    assert!(memory.bytes(12_345, bytes.len()) == bytes);
    drop(client);
    downstream.end();
    server.close();
    engine.drain(|_| {}).unwrap();
    rig::end(&engine);
}
