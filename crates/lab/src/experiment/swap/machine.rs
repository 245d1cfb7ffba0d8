//! The laptop while PostMark runs: the system's cache in front of the files' volume, the page file
//! with or without a cache of its own, and the disk below both.

use super::super::published::{capacity, geometry};
use super::assumptions::{Assumptions, COMMIT, PAGE_FILE_BYTES};
use super::paging::{Paging, Transfer};
use crate::cache_simulation::{
    CacheSimulation, CachedStore, Clients, EngineRequest, Request, RequestTime,
};
use crate::file_system::{Allocator, FileId, FileMap, FileRequest, FileStore, Ntfs, Part};
use crate::model::{DeviceModel, StoreModel};
use crate::sim::engine::frames_of;
use crate::trace::Op;
use crate::workload::postmark::{Engine, File, Files};
use larder_core::clock::{Nanos, SECOND};
use larder_core::frames::NoFrames;
use larder_core::hint::Hint;
use larder_core::policy::PolicyKind;
use larder_core::request::{self, RequestOp};
use larder_core::store::Store;
use larder_core::tunables::Tunables;
use larder_core::volume::VolumeOptions;
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The volumes: that of the files, and that of the page file.
const FILES: usize = 0;
const PAGE_FILE: usize = 1;
/// The clients: PostMark, which waits for each request, the writer of changed pages, and that of
/// the log.
const PROGRAM: usize = 0;
const PAGE_WRITER: usize = 1;
const LOG_WRITER: usize = 2;
/// Requests of a client in flight. 64 page-outs are 4 MiB, the free memory at which a system pages
/// hard.
const DEPTH: usize = 64;
/// The longest transfer of the system's cache.
const TRANSFER: u64 = 64 << 10;
/// Time in which the pages of the working set reach the page file before the run.
const SETTLE: Nanos = 120 * SECOND;

/// The laptop.
pub(super) struct Machine {
    simulation: CacheSimulation<Box<dyn Store<NoFrames>>>,
    volume: Ntfs,
    files: HashMap<PathBuf, FileId>,
    paging: Paging,
    file_time: RequestTime,
    commit_at: Nanos,
    requests: Vec<FileRequest>,
    transfers: Vec<Transfer>,
}

impl Machine {
    /// Creates the laptop; `clusters` is the space of its files, `cache_bytes` the memory of the
    /// cache of the page file.
    pub(super) fn new(
        assumptions: &Assumptions,
        clusters: Allocator,
        paging: Paging,
        cache_bytes: Option<u64>,
    ) -> Self {
        let disk = &assumptions.disk;
        let device = StoreModel::Device(DeviceModel::Disk(*disk)).build(geometry(disk, 1));
        let start = assumptions.page_file_at;
        assert!(start + PAGE_FILE_BYTES <= capacity(disk), "a page file on the disk");
        let partitions = [0..start, start..start + PAGE_FILE_BYTES].map(FileMap::contiguous);
        let mut stores = FileStore::all(device, &partitions).into_iter();
        let [files, page_file] = [(); 2].map(|()| stores.next().expect("two partitions"));
        let page_file: Box<dyn Store<NoFrames>> = match cache_bytes {
            Some(bytes) => Box::new(CachedStore::new(Box::new(page_file), bytes, true)),
            None => Box::new(page_file),
        };
        let mut of_files = VolumeOptions::new("files", files.geometry());
        of_files.policy = PolicyKind::Lru;
        of_files.tunables = Tunables::nt();
        let mut of_page_file = VolumeOptions::new("page file", page_file.geometry());
        of_page_file.hint = Hint::NoBuffering;
        let directories = assumptions.config.subdirectories.max(1) as usize;
        let volume = Ntfs::new(files.geometry().length, clusters, directories);
        let volumes =
            [(of_files, Box::new(files) as Box<dyn Store<NoFrames>>), (of_page_file, page_file)];
        let clients = Clients { number: 3, depth: DEPTH };
        let frames = frames_of(assumptions.system_cache_bytes);
        let mut machine = Machine {
            simulation: CacheSimulation::new(frames, 1, volumes, clients),
            volume,
            files: HashMap::new(),
            paging,
            file_time: assumptions.file_time,
            commit_at: 0,
            requests: Vec::new(),
            transfers: Vec::new(),
        };
        if assumptions.is_warm {
            machine.page_out_all(assumptions.working_set_bytes);
        }
        machine
    }

    /// Runs PostMark; returns the time of all its phases.
    pub(super) fn run(mut self, mut engine: Engine) -> Nanos {
        let begin = self.simulation.now();
        for _ in 0..engine.config.number {
            let Ok(()) = engine.create(&mut self);
        }
        for _ in 0..engine.config.transactions {
            let Ok(()) = engine.transaction(&mut self);
        }
        for index in 0..engine.places() {
            let Ok(()) = engine.delete_at(index, &mut self);
        }
        self.wait_for(PROGRAM);
        let elapsed = self.simulation.now() - begin;
        self.simulation.finish();
        elapsed
    }

    /// Writes all pages of the working set to the page file.
    fn page_out_all(&mut self, bytes: u64) {
        for start in (0..bytes).step_by(usize::try_from(TRANSFER).expect("64 KiB")) {
            self.transfer(Transfer::Out(start..start + TRANSFER));
        }
        let until = self.simulation.now() + SETTLE;
        self.simulation.run_until(until).expect("stores do not fail");
    }

    /// Waits until PostMark has no request in flight, or another client has room for one.
    fn wait_for(&mut self, client: usize) {
        let is_wanted = |index, is_idle| index == client && (is_idle || client != PROGRAM);
        let found = self.simulation.wait_for_client_of(is_wanted, RequestTime::default());
        found.expect("stores do not fail");
    }

    fn begin(&mut self, client: usize, request: &Request) {
        self.simulation.begin(client, request).expect("stores do not fail");
    }

    fn transfer(&mut self, transfer: Transfer) {
        let (client, op, Range { start, end }) = match transfer {
            Transfer::In(bytes) => (PROGRAM, Op::Read, bytes),
            Transfer::Out(bytes) => (PAGE_WRITER, Op::Write, bytes),
        };
        self.wait_for(client);
        self.begin(client, &Request { volume: PAGE_FILE, op, offset: start, len: end - start });
    }

    /// Performs the paging of an operation on a file, writes the log if that is due, and then
    /// performs the requests of the operation one after the other.
    fn perform(&mut self, bytes: u64, operation: impl FnOnce(&mut Ntfs, &mut Vec<FileRequest>)) {
        let mut transfers = std::mem::take(&mut self.transfers);
        self.paging.operation(&mut transfers);
        transfers.drain(..).for_each(|transfer| self.transfer(transfer));
        self.transfers = transfers;
        let mut requests = std::mem::take(&mut self.requests);
        self.wait_for(PROGRAM);
        if self.simulation.now() >= self.commit_at {
            self.commit_at = self.simulation.now() + COMMIT;
            self.volume.commit(&mut requests);
        }
        operation(&mut self.volume, &mut requests);
        requests.drain(..).for_each(|request| self.request(&request));
        self.requests = requests;
        self.wait_for(PROGRAM);
        let until = self.simulation.now() + self.file_time.of(bytes);
        self.simulation.pause(PROGRAM, until);
    }

    /// Sends a request to the files' volume, after all earlier ones of PostMark have ended.
    fn request(&mut self, request: &FileRequest) {
        let FileRequest { part, op, bytes } = request;
        if *part == Part::Journal {
            self.wait_for(LOG_WRITER);
            let mut write = request::Request::new(RequestOp::Write, bytes.clone());
            write.hint = Some(Hint::NoBuffering);
            return self.send(LOG_WRITER, write, [bytes.clone()].into());
        }
        let mut start = bytes.start;
        while start < bytes.end {
            let end = bytes.end.min((start + 1).next_multiple_of(TRANSFER));
            self.wait_for(PROGRAM);
            if *op == Op::Write {
                let (offset, len) = (start, end - start);
                self.begin(PROGRAM, &Request { volume: FILES, op: *op, offset, len });
            } else {
                let mut read = request::Request::new(RequestOp::Read, start..end);
                read.bound = Some(bytes.clone());
                read.hint = (*part != Part::Data).then_some(Hint::Random);
                self.send(PROGRAM, read, VecDeque::new());
            }
            start = end;
        }
    }

    fn send(&mut self, client: usize, request: request::Request, parts: VecDeque<Range<u64>>) {
        let request = EngineRequest { volume: FILES, request, parts, tag: None };
        self.simulation.begin_exactly(client, request).expect("stores do not fail");
    }

    fn file(&self, path: &Path) -> FileId {
        *self.files.get(path).expect("a file of PostMark")
    }
}

/// Returns the number of the directory of a file: `s3/17` is in directory 3.
fn directory(path: &Path) -> usize {
    let name = path.parent().and_then(Path::to_str).and_then(|name| name.strip_prefix('s'));
    name.and_then(|number| number.parse().ok()).unwrap_or(0)
}

impl Files for Machine {
    type Stop = Infallible;

    fn create(&mut self, file: File<'_>, data: &mut [u8]) -> Result<bool, Infallible> {
        let (bytes, mut id) = (data.len() as u64, None);
        self.perform(bytes, |volume, requests| {
            id = volume.create(directory(file.path), bytes, requests);
        });
        self.files.insert(file.path.to_owned(), id.expect("room for the files"));
        Ok(true)
    }

    fn append(&mut self, file: File<'_>, data: &mut [u8]) -> Result<bool, Infallible> {
        let (bytes, id) = (data.len() as u64, self.file(file.path));
        self.perform(bytes, |volume, requests| {
            volume.append(id, bytes, requests).expect("room for the files");
        });
        Ok(true)
    }

    fn read(&mut self, file: File<'_>) -> Result<bool, Infallible> {
        let id = self.file(file.path);
        self.perform(file.bytes.into(), |volume, requests| volume.read(id, requests));
        Ok(true)
    }

    fn delete(&mut self, file: File<'_>) -> Result<bool, Infallible> {
        let id = self.files.remove(file.path).expect("a file of PostMark");
        self.perform(0, |volume, requests| volume.delete(id, requests));
        Ok(true)
    }
}
