//! Exports of NBD servers as stores: Larder's own server as the upstream, on a disk that loses
//! unflushed data when the server is killed; and nbdkit and qemu-nbd, if they are installed.

mod failed_flush;
mod hostile;
mod lost;
mod others;
mod serving;

use crate::common::{self, rig};
use larder_core::mode::WriteMode;
use larder_core::store::{CrashDisk, CrashStore, SparseBytes};
use larder_core::volume::VolumeOptions;
use larder_io::engine::{ArenaVolume, Engine};
use larder_io::front::nbd::{Export, ListenAddress, Server, ServerLimits};
use larder_io::nbd_client::{Client, ConnectOptions, NbdUri};
use larder_io::store::{NbdOptions, OpenError, SolidMap, TimedStore, open_nbd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

fn connect(uri: &NbdUri) -> Client {
    let options = ConnectOptions { timeout: Some(common::TIMEOUT), ..ConnectOptions::default() };
    Client::connect_with(uri, options).expect("the server takes a client")
}

/// A server that can be killed. Unflushed data may then be lost, sector by sector.
struct Origin {
    dir: TempDir,
    length: u64,
    content: SparseBytes,
    mode: WriteMode,
    lives: u64,
    running: Option<(Arc<Engine>, Server, Arc<Mutex<CrashDisk>>)>,
}

impl Origin {
    /// Starts an origin of zeros. In write-back mode it loses most data when it is killed.
    fn new(length: u64, mode: WriteMode) -> Self {
        let dir = TempDir::new().expect("a directory");
        let content = SparseBytes::default();
        let mut origin = Origin { dir, length, content, mode, lives: 0, running: None };
        origin.start();
        origin
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("origin.sock")
    }

    fn uri(&self) -> NbdUri {
        format!("nbd+unix:///disk?socket={}", self.socket().display()).parse().expect("an address")
    }

    fn start(&mut self) {
        assert!(self.running.is_none(), "it is down");
        self.lives += 1;
        let engine = rig::engine(16 * MIB);
        let store = CrashStore::new(rig::geometry(self.length), self.content.clone(), self.lives);
        let disk = store.disk();
        let mut options = VolumeOptions::new("disk", rig::geometry(self.length));
        options.write_mode = self.mode;
        let store = Box::new(TimedStore::new(store, engine.clock()));
        let volume = engine.add_volume(options, store).expect("a thread");
        let limits = ServerLimits::default();
        let export = Export::new(volume, Arc::new(SolidMap), true, &limits);
        let address = ListenAddress::Unix(self.socket());
        let server = Server::start(Arc::clone(&engine), &address, vec![export], limits);
        self.running = Some((engine, server.expect("the address is free"), disk));
    }

    fn kill(&mut self) {
        let (engine, server, disk) = self.running.take().expect("it is up");
        server.close();
        engine.shut_down();
        self.content = disk.lock().expect("no holder panics").after_crash(self.lives);
    }

    /// Returns its content after it was killed.
    fn bytes(&self) -> Vec<u8> {
        assert!(self.running.is_none(), "it was killed");
        let mut bytes = vec![0; usize::try_from(self.length).expect("megabytes")];
        self.content.read(0, &mut bytes);
        bytes
    }
}

/// A cache with an upstream volume, served on a Unix socket.
struct Downstream {
    engine: Arc<Engine>,
    volume: Arc<ArenaVolume>,
    server: Server,
    _dir: TempDir,
}

impl Downstream {
    fn new(uri: &NbdUri, options: NbdOptions) -> Result<Self, OpenError> {
        let engine = rig::engine(8 * MIB);
        let opened = open_nbd(uri, options, engine.clock())?.opened;
        let volume_options = VolumeOptions::new("cached", opened.store.geometry());
        let volume = engine.add_volume(volume_options, opened.store).expect("a thread");
        let dir = TempDir::new().expect("a directory");
        let address = ListenAddress::Unix(dir.path().join("socket"));
        let limits = ServerLimits::default();
        let export = Export::new(Arc::clone(&volume), opened.map, true, &limits);
        let server = Server::start(Arc::clone(&engine), &address, vec![export], limits)
            .expect("the address is free");
        Ok(Downstream { engine, volume, server, _dir: dir })
    }

    fn connect(&self) -> Client {
        connect(&self.server.uri("cached").parse().expect("an address"))
    }

    /// Writes everything and checks that all counters are consistent.
    fn end(self) {
        self.server.close();
        self.engine.drain(|_| {}).expect("the store works");
        assert_eq!(self.volume.unclean_blocks(), 0);
        rig::end(&self.engine);
    }
}
