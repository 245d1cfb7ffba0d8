//! The recorder with an engine and clients in this process: its output, and its behavior on write
//! errors.

use super::*;
use larder_core::policy::PolicyKind;
use larder_core::volume::VolumeOptions;
use larder_io::engine::{Engine, EngineOptions};
use larder_io::front::listen::Listener;
use larder_io::front::nbd::{Export, ListenAddress, Server, ServerLimits, ServerOptions};
use larder_io::nbd_client::{Client, NbdUri};
use larder_io::store;
use larder_lab::trace::{OpenOptions, open_stream};
use std::sync::mpsc;
use tempfile::TempDir;

/// A file in memory with a maximum length.
#[derive(Clone)]
struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    bytes_max: usize,
}

impl Disk {
    fn new(bytes_max: usize) -> Self {
        Disk { bytes: Arc::default(), bytes_max }
    }

    fn records(&self) -> (Vec<Record>, Vec<String>) {
        let bytes = self.bytes.lock().unwrap().clone();
        let options = OpenOptions::default();
        let stream = Box::new(io::Cursor::new(bytes));
        let mut source = open_stream("recorded.ltr", stream, &options).unwrap();
        let (mut records, mut batch) = (Vec::new(), Vec::new());
        while source.next_batch(&mut batch).unwrap() {
            records.append(&mut batch);
        }
        assert_eq!(source.name(NameKind::Volume, 0), Some("one"));
        assert_eq!(source.name(NameKind::Volume, 1), Some("two"));
        (records, source.notes())
    }
}

impl Write for Disk {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut bytes = self.bytes.lock().unwrap();
        let available = self.bytes_max - bytes.len();
        if available == 0 {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        let count = buf.len().min(available);
        bytes.extend_from_slice(&buf[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Two volumes, served and recorded.
struct Service {
    engine: Arc<Engine>,
    server: Server,
    recording: Recording,
    warnings: mpsc::Receiver<String>,
    _directory: TempDir,
}

impl Service {
    fn start(disk: Disk) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = EngineOptions {
            memory_bytes: 16 << 20,
            huge_pages: false,
            lock: false,
            threads: 2,
            policy_bytes: PolicyKind::S3Fifo.bytes_per_page(),
        };
        let engine = Arc::new(Engine::new(options).unwrap());
        let limits = ServerLimits::default();
        let export = |name: &str| {
            let image = directory.path().join(name);
            std::fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
            let options = store::OpenOptions { read_only: false, plain: false };
            let opened = store::open(&image, options, engine.clock()).unwrap();
            let options = VolumeOptions::new(name, opened.store.geometry());
            let volume = engine.add_volume(options, opened.store).unwrap();
            Export::new(volume, opened.map, false, &limits)
        };
        let exports = vec![export("one"), export("two")];
        let (sender, warnings) = mpsc::channel();
        let names = vec!["one".to_owned(), "two".to_owned()];
        let warn = move |error: &dyn fmt::Display| sender.send(error.to_string()).unwrap();
        let recording = Recording::start(disk, names, engine.clock(), warn).unwrap();
        let address = ListenAddress::Unix(directory.path().join("socket"));
        let observer = Some(recording.observer());
        let options = ServerOptions { limits, observer, ..ServerOptions::default() };
        let listener = Listener::bind(&address).unwrap();
        let server = Server::start_on(Arc::clone(&engine), listener, exports, options).unwrap();
        Service { engine, server, recording, warnings, _directory: directory }
    }

    fn connect(&self, export: &str) -> Client {
        let uri: NbdUri = self.server.uri(export).parse().unwrap();
        Client::connect(&uri).unwrap()
    }

    fn finish_all(self) -> io::Result<RecordingSummary> {
        self.server.close();
        let result = self.recording.finish();
        self.engine.shut_down();
        result
    }
}

#[test]
fn requests_of_two_volumes_become_one_trace_in_the_order_of_their_arrival() {
    let disk = Disk::new(usize::MAX);
    let service = Service::start(disk.clone());
    let mut clients = [service.connect("one"), service.connect("two")];
    for i in 0..3000_u64 {
        let client = &mut clients[usize::from(i % 3 == 0)];
        let offset = i % 200 * 4096;
        match i % 5 {
            0 => client.write_at(offset, &[1; 4096], false).unwrap(),
            1 => client.flush().unwrap(),
            _ => client.read_at(offset, &mut [0; 512]).unwrap(),
        }
    }
    let expected = |i: u64| {
        let (op, len) = match i % 5 {
            0 => (Op::Write, 4096),
            1 => (Op::Flush, 0),
            _ => (Op::Read, 512),
        };
        let offset = if op == Op::Flush { 0 } else { i % 200 * 4096 };
        (u32::from(i.is_multiple_of(3)), op, offset, len)
    };
    assert_eq!(service.finish_all().unwrap(), RecordingSummary { requests: 3000, lost: 0 });
    let (records, notes) = disk.records();
    assert!(notes.is_empty(), "{notes:?}");
    let actual: Vec<_> = records.iter().map(|r| (r.volume, r.op, r.offset, r.len)).collect();
    assert_eq!(actual, (0..3000).map(expected).collect::<Vec<_>>());
    assert!(records.is_sorted_by_key(|record| record.time_ns));
    assert!(records.iter().all(|record| record.latency_ns > 0));
    assert!(records.iter().all(|record| (record.class == 0) == (record.op == Op::Flush)));
}

#[test]
fn a_full_disk_ends_the_recording_with_a_warning_and_nothing_else() {
    let disk = Disk::new(200);
    let service = Service::start(disk.clone());
    let mut client = service.connect("one");
    let warning = loop {
        client.read_at(0, &mut [0; 512]).unwrap();
        if let Ok(warning) = service.warnings.try_recv() {
            break warning;
        }
    };
    assert!(warning.contains("no storage space"), "{warning}");
    // Old and new connections are still served.
    client.read_at(0, &mut [0; 512]).unwrap();
    service.connect("two").write_at(0, &[1; 512], true).unwrap();
    service.finish_all().unwrap_err();
    let (_, notes) = disk.records();
    assert!(notes[0].starts_with("the file ends within a block"), "{notes:?}");
}
