//! The NBD server with this crate's own client, over Unix sockets and TCP: correct and wrong
//! requests, correct and wrong clients. After each test no frame may be pinned, and all counters
//! must be consistent.

mod errors;
mod exports;
mod hostile;
mod listening;
mod manners;
mod model;
mod observed;
mod promises;
mod status;
mod tls;

use crate::common::{self, certificates::Authority, rig};
use larder_core::store::Store;
use larder_io::engine::{ArenaVolume, Engine};
use larder_io::frames::ArenaFrames;
use larder_io::front::listen::Listener;
use larder_io::front::nbd::{
    Export, ListenAddress, Server, ServerLimits, ServerOptions, TlsOptions,
};
use larder_io::front::observe::Observer;
use larder_io::nbd_client::{Client, ConnectOptions, NbdUri, UriTls};
use larder_io::nbd_wire as wire;
use larder_io::store::{AllocationMap, SolidMap};
use larder_io::tls::TlsServer;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A server with one volume, on a Unix socket or TCP.
struct Service {
    engine: Arc<Engine>,
    volume: Arc<ArenaVolume>,
    server: Server,
    dir: TempDir,
    /// The directory of the certificates, if there is TLS.
    certificates: Option<TempDir>,
}

impl Service {
    /// Starts a server of a volume of `length` bytes on `store` in a cache of `memory` bytes, on a
    /// Unix socket.
    fn new(memory: u64, length: u64, store: impl Store<ArenaFrames> + 'static) -> Self {
        let engine = rig::engine(memory);
        let volume = rig::volume(&engine, "disk", length, store);
        Service::start(engine, volume, Arc::new(SolidMap), ServerLimits::default(), false)
    }

    /// Starts the same server with an observer.
    fn observed(
        memory: u64,
        length: u64,
        store: impl Store<ArenaFrames> + 'static,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let engine = rig::engine(memory);
        let volume = rig::volume(&engine, "disk", length, store);
        let limits = ServerLimits::default();
        Service::start_observed(engine, volume, Arc::new(SolidMap), limits, false, Some(observer))
    }

    fn start(
        engine: Arc<Engine>,
        volume: Arc<ArenaVolume>,
        map: Arc<dyn AllocationMap>,
        limits: ServerLimits,
        tcp: bool,
    ) -> Self {
        Service::start_observed(engine, volume, map, limits, tcp, None)
    }

    fn start_observed(
        engine: Arc<Engine>,
        volume: Arc<ArenaVolume>,
        map: Arc<dyn AllocationMap>,
        limits: ServerLimits,
        tcp: bool,
        observer: Option<Arc<dyn Observer>>,
    ) -> Self {
        let options = ServerOptions { limits, observer, ..ServerOptions::default() };
        Service::start_with(engine, volume, map, tcp, options)
    }

    /// Starts a server on TCP with TLS, with the certificates of server and clients in its
    /// directory.
    fn start_tls(
        engine: Arc<Engine>,
        volume: Arc<ArenaVolume>,
        required: bool,
        verify_peer: bool,
    ) -> Self {
        let dir = TempDir::new().expect("a directory");
        let authority = Authority::new();
        authority.write_certificate(dir.path());
        authority.write_server(dir.path(), &["localhost", "127.0.0.1"]);
        authority.write_client(dir.path());
        let server = TlsServer::from_directory(dir.path(), verify_peer).expect("certificates");
        let tls = TlsOptions::new(server, required);
        let options = ServerOptions { tls, ..ServerOptions::default() };
        let service = Service::start_with(engine, volume, Arc::new(SolidMap), true, options);
        Service { certificates: Some(dir), ..service }
    }

    fn start_with(
        engine: Arc<Engine>,
        volume: Arc<ArenaVolume>,
        map: Arc<dyn AllocationMap>,
        tcp: bool,
        options: ServerOptions,
    ) -> Self {
        let dir = TempDir::new().expect("a directory");
        let address = if tcp {
            ListenAddress::Tcp(([127, 0, 0, 1], 0).into())
        } else {
            ListenAddress::Unix(dir.path().join("socket"))
        };
        let export = Export::new(Arc::clone(&volume), map, true, &options.limits);
        let exports = vec![export];
        let listener = Listener::bind(&address).expect("the address is free");
        let server = Server::start_on(Arc::clone(&engine), listener, exports, options)
            .expect("the threads start");
        Service { engine, volume, server, dir, certificates: None }
    }

    /// Returns the export's address, with TLS if there are certificates.
    fn uri(&self) -> NbdUri {
        let uri: NbdUri = self.server.uri("disk").parse().expect("an address");
        let certificates = self.certificates.as_ref().map(|dir| dir.path().to_owned());
        let tls = certificates.map(|dir| UriTls { certificates: Some(dir), hostname: None });
        NbdUri { tls, ..uri }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    fn connect(&self, structured: bool) -> Client {
        let options = ConnectOptions {
            structured,
            base_allocation: structured,
            timeout: Some(common::TIMEOUT),
        };
        Client::connect_with(&self.uri(), options).expect("the server takes a client")
    }

    /// Returns a connection in transmission with simple replies, on which the test sends raw bytes.
    fn connect_raw(&self) -> UnixStream {
        let mut stream = UnixStream::connect(self.socket()).expect("the server listens");
        stream.set_read_timeout(Some(common::TIMEOUT)).expect("a timeout");
        let mut greeting = [0; wire::GREETING_BYTES];
        stream.read_exact(&mut greeting).expect("a greeting");
        let flags = wire::CLIENT_FIXED_NEWSTYLE | wire::CLIENT_NO_ZEROES;
        let mut hello = flags.to_be_bytes().to_vec();
        hello.extend(wire::OPTION_MAGIC.to_be_bytes());
        hello.extend(wire::OPT_EXPORT_NAME.to_be_bytes());
        hello.extend(4u32.to_be_bytes());
        hello.extend(b"disk");
        stream.write_all(&hello).expect("it listens");
        stream.read_exact(&mut [0; 10]).expect("length and flags");
        stream
    }

    fn frames_held(&self) -> usize {
        self.engine.cache().frames().arena().frames_held()
    }

    /// Closes the server, writes everything, and checks that all counters are consistent.
    fn end(self) {
        self.server.close();
        self.engine.drain(|_| {}).expect("the store works");
        rig::end(&self.engine);
    }
}

fn request(command: u16, cookie: u64, offset: u64, len: u32) -> [u8; wire::REQUEST_BYTES] {
    wire::Request { flags: 0, command, cookie, offset, len }.to_bytes()
}

/// Receives the next simple reply; returns its error value after a check of its cookie.
fn simple_reply(stream: &mut UnixStream, cookie: u64) -> u32 {
    let mut reply = [0; wire::SIMPLE_REPLY_BYTES];
    stream.read_exact(&mut reply).expect("a reply");
    assert_eq!(reply[..4], wire::SIMPLE_REPLY_MAGIC.to_be_bytes());
    assert_eq!(reply[8..], cookie.to_be_bytes());
    u32::from_be_bytes(reply[4..8].try_into().expect("four bytes"))
}
