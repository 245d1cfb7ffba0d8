//! Sockets: permission to listen and to connect, and files that remain.

use super::{MIB, Service};
use crate::common::rig::{Memory, engine, eventually, volume};
use larder_core::store::DelayStore;
use larder_io::front::listen::Listener;
use larder_io::front::nbd::{
    Export, ListenAddress, ListenError, Server, ServerLimits, ServerOptions,
};
use larder_io::nbd_client::{Client, ClientError, Request, list_exports};
use larder_io::store::SolidMap;
use std::fs::File;
use std::io::Read;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn start(service: &Service, path: &Path) -> Result<Server, ListenError> {
    let limits = ServerLimits::default();
    let export = Export::new(Arc::clone(&service.volume), Arc::new(SolidMap), true, &limits);
    let address = ListenAddress::Unix(path.to_owned());
    Server::start(Arc::clone(&service.engine), &address, vec![export], limits)
}

#[test]
fn a_stale_socket_is_taken_over_and_a_live_one_is_not() {
    let service = Service::new(16 * MIB, MIB, Memory::new(MIB));
    let busy = start(&service, &service.socket()).unwrap_err();
    assert!(matches!(busy, ListenError::Busy(_)), "{busy}");
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("other");
    let listener = UnixListener::bind(&path).unwrap();
    let busy = start(&service, &path).unwrap_err();
    assert!(matches!(busy, ListenError::Busy(_)), "another process listens: {busy}");
    drop(listener);
    assert!(path.exists(), "it is stale");
    // A child between fork and exec has the listener open.
    let mut server = None;
    eventually("no process listens", || {
        server = start(&service, &path).ok();
        server.is_some()
    });
    let server = server.unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let uri = server.uri("").parse().unwrap();
    Client::connect(&uri).unwrap().disconnect().unwrap();
    let names = list_exports(&uri).unwrap();
    assert_eq!(names.iter().map(|export| &export.name).collect::<Vec<_>>(), ["disk"]);
    server.close();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    std::fs::write(&path, "a letter").unwrap();
    let refused = start(&service, &path).unwrap_err();
    assert!(matches!(refused, ListenError::NotASocket(_)), "{refused}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a letter");
    let Err(refused) = start(&service, &dir.path().join("no/such")) else { panic!("no directory") };
    assert!(refused.to_string().contains("no/such"), "{refused}");
    service.end();
}

#[test]
fn a_tcp_port_in_use_is_refused() {
    let engine = engine(16 * MIB);
    let volume = volume(&engine, "disk", MIB, Memory::new(MIB));
    let limits = ServerLimits::default();
    let service = Service::start(engine, volume, Arc::new(SolidMap), limits, true);
    let export = Export::new(Arc::clone(&service.volume), Arc::new(SolidMap), true, &limits);
    let address = service.server.address().clone();
    let second = Server::start(Arc::clone(&service.engine), &address, vec![export], limits);
    assert!(matches!(second, Err(ListenError::Busy(_))), "{second:?}");
    service.end();
}

#[test]
fn a_lock_that_another_user_has_put_there_is_not_followed() {
    if !larder_testing::is_root() {
        return;
    }
    let service = Service::new(16 * MIB, MIB, Memory::new(MIB));
    let dir = TempDir::new().unwrap();
    let (path, victim) = (dir.path().join("socket"), dir.path().join("victim"));
    let lock = dir.path().join("socket.lock");
    std::os::unix::fs::symlink(&victim, &lock).unwrap();
    std::os::unix::fs::lchown(&lock, Some(54_321), None).unwrap();
    let refused = start(&service, &path).unwrap_err().to_string();
    assert!(refused.contains("symbolic link socket.lock belongs to uid 54321"), "{refused}");
    assert!(!victim.exists(), "nothing was made behind the link");
    std::fs::remove_file(&lock).unwrap();
    std::fs::write(&lock, "").unwrap();
    std::os::unix::fs::chown(&lock, Some(54_321), None).unwrap();
    let refused = start(&service, &path).unwrap_err().to_string();
    assert!(refused.contains("socket.lock: it belongs to uid 54321"), "{refused}");
    std::fs::remove_file(&lock).unwrap();
    start(&service, &path).unwrap().close();
    service.end();
}

fn is_closed(stream: &mut UnixStream) -> bool {
    matches!(stream.read(&mut [0; 64]), Ok(0) | Err(_))
}

#[test]
fn connections_beyond_the_limit_are_closed_and_room_comes_back() {
    let engine = engine(16 * MIB);
    let volume = volume(&engine, "disk", MIB, Memory::new(MIB));
    let limits = ServerLimits { connections_max: 3, ..ServerLimits::default() };
    let service = Service::start(engine, volume, Arc::new(SolidMap), limits, false);
    let clients: Vec<_> = (0..3).map(|_| service.connect(true)).collect();
    assert!(is_closed(&mut UnixStream::connect(service.socket()).unwrap()));
    for mut client in clients {
        client.read_at(0, &mut [0; 512]).unwrap();
        client.disconnect().unwrap();
    }
    let uri = service.server.uri("disk").parse().unwrap();
    eventually("there is room again", || Client::connect(&uri).is_ok());
    service.end();
}

#[test]
fn a_handshake_that_takes_too_long_is_ended() {
    let engine = engine(16 * MIB);
    let volume = volume(&engine, "disk", MIB, Memory::new(MIB));
    let handshake_time_max = Duration::from_secs(2);
    let limits = ServerLimits { handshake_time_max, connections_max: 2, ..ServerLimits::default() };
    let service = Service::start(engine, volume, Arc::new(SolidMap), limits, false);
    let mut client = service.connect(true);
    let started = Instant::now();
    let mut silent = UnixStream::connect(service.socket()).unwrap();
    silent.set_read_timeout(Some(crate::common::TIMEOUT)).unwrap();
    silent.read_exact(&mut [0; 18]).unwrap();
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0, "closed by the server");
    assert!(started.elapsed() >= handshake_time_max, "{:?}", started.elapsed());
    // Time spent in transmission does not count.
    eventually("more than the time", || started.elapsed() > handshake_time_max * 5 / 4);
    client.read_at(0, &mut [0; 512]).unwrap();
    client.disconnect().unwrap();
    service.end();
}

#[test]
fn closing_ends_clients_that_wait_and_clients_that_shake_hands() {
    let store = DelayStore::new(Memory::new(8 * MIB), 0);
    let stalled = store.stall_switch();
    let service = Service::new(16 * MIB, 8 * MIB, store);
    stalled.store(true, Ordering::Release);
    let mut waiting = service.connect(true);
    for i in 0..20 {
        waiting.submit(Request::read(i * 100_000, vec![0; 50_000])).unwrap();
        waiting.submit(Request::write(4 * MIB + i * 1000, vec![1; 500])).unwrap();
    }
    waiting.submit(Request::flush()).unwrap();
    let mut alone = service.connect(false);
    alone.submit(Request::read(0, vec![0; 4 << 20])).unwrap();
    let mut idle = service.connect(true);
    let mut shaking = UnixStream::connect(service.socket()).unwrap();
    shaking.read_exact(&mut [0; 18]).unwrap();
    let Service { engine, server, dir, volume, .. } = service;
    let started = Instant::now();
    server.close();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    for client in [&mut waiting, &mut alone, &mut idle] {
        let ended = client.submit(Request::flush()).and_then(|_| client.wait());
        assert!(matches!(ended, Err(ClientError::Closed)), "{ended:?}");
    }
    assert!(is_closed(&mut shaking));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    stalled.store(false, Ordering::Release);
    engine.drain(|_| {}).unwrap();
    assert_eq!(volume.unclean_blocks(), 0);
    crate::common::rig::end(&engine);
}

#[test]
fn a_socket_that_was_handed_over_is_served_and_left_where_it_is() {
    let service = Service::new(16 * MIB, MIB, Memory::new(MIB));
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("given");
    let made = UnixListener::bind(&path).unwrap();
    let limits = ServerLimits::default();
    let serve = |fd: OwnedFd| {
        let export = Export::new(Arc::clone(&service.volume), Arc::new(SolidMap), true, &limits);
        let listener = Listener::handed_over("nbd", fd)?;
        let options = ServerOptions::default();
        Server::start_on(Arc::clone(&service.engine), listener, vec![export], options)
    };
    let server = serve(made.into()).unwrap();
    assert_eq!(server.address(), &ListenAddress::Unix(path.clone()));
    let uri = server.uri("disk").parse().unwrap();
    Client::connect(&uri).unwrap().disconnect().unwrap();
    server.close();
    assert!(path.exists(), "its owner removes it");
    let over_tcp = serve(TcpListener::bind("127.0.0.1:0").unwrap().into()).unwrap();
    assert!(over_tcp.uri("disk").starts_with("nbd://127.0.0.1:"), "{}", over_tcp.uri("disk"));
    over_tcp.close();
    let refused = serve(UnixStream::pair().unwrap().0.into()).unwrap_err();
    assert!(refused.to_string().contains("not a stream socket that listens"), "{refused}");
    let refused = serve(File::open("/dev/null").unwrap().into()).unwrap_err();
    assert!(refused.to_string().contains("\"nbd\" that was handed over"), "{refused}");
    service.end();
}
