//! Targets of block workloads, other than a path: an NBD export, a mapped file, and an engine in
//! this process.

use anyhow::{Context, ensure};
use larder_core::policy::PolicyKind;
use larder_core::store::{Geometry, MemoryStore};
use larder_io::clock::MonotonicClock;
use larder_io::embed::{CachedVolume, Caches, Handle};
use larder_io::engine::EngineOptions;
use larder_io::file_map::FileMap;
use larder_io::nbd_client::{Client, NbdUri};
use larder_io::store::{EngineStore, TimedStore};
use larder_lab::bench::target::{Buffering, Target, TargetPath, TargetSource};
use larder_lab::bench::{
    BenchError, OwnCache, Space, Start, StartState, TrialContext, WorkloadResidency,
};
use larder_lab::model::{Disk, ModeledStore};
use std::fmt::Display;
use std::io::{self, Seek};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size of a read that warms a volume.
const WARM_BYTES: usize = 256 << 10;

/// Returns the length of a file or of a block device, whose inode does not contain it.
pub(super) fn length(path: &Path) -> anyhow::Result<u64> {
    let shown = path.display();
    let metadata = std::fs::metadata(path).with_context(|| format!("find {shown}"))?;
    if !metadata.file_type().is_block_device() {
        return Ok(metadata.len());
    }
    let mut device = std::fs::File::open(path).with_context(|| format!("open {shown}"))?;
    device.seek(io::SeekFrom::End(0)).with_context(|| format!("find the length of {shown}"))
}

/// The way in which files are opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileOptions {
    pub(super) unbuffered: bool,
    pub(super) mapped: bool,
    pub(super) writes: bool,
}

impl FileOptions {
    /// Refuses the options for a target that is no file.
    pub(super) fn refuse(self, operation: &str) -> anyhow::Result<()> {
        ensure!(!self.unbuffered, "{operation}: --unbuffered is for files");
        ensure!(!self.mapped, "{operation}: --mapped is for files");
        Ok(())
    }

    pub(super) fn buffering(self) -> Buffering {
        if self.unbuffered { Buffering::Unbuffered } else { Buffering::Buffered }
    }

    /// Returns a file of `bytes` bytes that is created.
    pub(super) fn new_file(self, path: &Path, bytes: u64) -> Box<dyn TargetSource> {
        self.mapped_or_not(path, true, TargetPath::new(path, bytes, self.buffering()))
    }

    /// Returns an existing file or block device.
    pub(super) fn existing(self, path: &Path, bytes: u64) -> Box<dyn TargetSource> {
        let file = TargetPath::existing(path, bytes, self.buffering(), self.writes);
        self.mapped_or_not(path, self.writes, file)
    }

    fn mapped_or_not(self, path: &Path, writes: bool, file: TargetPath) -> Box<dyn TargetSource> {
        let path = path.to_path_buf();
        if self.mapped { Box::new(AtMapping { path, writes, file }) } else { Box::new(file) }
    }

    /// Returns the existing file, block device or export with this name; `None` for a directory.
    pub(super) fn open(self, target: &str) -> anyhow::Result<Option<Box<dyn TargetSource>>> {
        if target.contains("://") {
            self.refuse("work on an export")?;
            let place = AtExport::connect(target.parse()?);
            return Ok(Some(Box::new(place.with_context(|| format!("reach {target}"))?)));
        }
        let path = Path::new(target);
        let metadata = std::fs::metadata(path).with_context(|| format!("find {target}"))?;
        if metadata.is_dir() { Ok(None) } else { Ok(Some(self.existing(path, length(path)?))) }
    }
}

/// Returns a function that turns an error into one of the workload.
fn failed<E: Display>(operation: &str) -> impl FnOnce(E) -> BenchError {
    let operation = operation.to_owned();
    move |error| BenchError::Failed(format!("{operation}: {error}"))
}

/// An export of a server, with a connection for each worker.
#[derive(Debug)]
struct AtExport {
    uri: NbdUri,
    bytes: u64,
}

impl AtExport {
    /// Connects to the export once, to check it and to get its length.
    fn connect(uri: NbdUri) -> anyhow::Result<Self> {
        let client = Client::connect(&uri)?;
        let bytes = client.info().length;
        client.disconnect()?;
        Ok(AtExport { uri, bytes })
    }
}

impl TargetSource for AtExport {
    fn description(&self) -> String {
        "an NBD export".to_owned()
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn open(&self) -> Result<Box<dyn Target>, BenchError> {
        Ok(Box::new(Connection(Client::connect(&self.uri).map_err(failed("connect"))?)))
    }

    fn start_state(&mut self) -> StartState<'_> {
        StartState::Unknown("a server may cache, and does not say what".to_owned())
    }
}

struct Connection(Client);

impl Target for Connection {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer).map_err(io::Error::other)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes, false).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(io::Error::other)
    }
}

/// A file or block device that each worker maps into memory.
#[derive(Debug)]
struct AtMapping {
    path: PathBuf,
    writes: bool,
    /// The unmapped file, for creation, removal and state.
    file: TargetPath,
}

impl TargetSource for AtMapping {
    fn description(&self) -> String {
        "a file mapped into memory".to_owned()
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    fn space(&self) -> Vec<Space> {
        self.file.space()
    }

    fn prepare(&mut self, context: &TrialContext<'_>) -> Result<(), BenchError> {
        self.file.prepare(context)
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        self.file.clean_up()
    }

    fn open(&self) -> Result<Box<dyn Target>, BenchError> {
        let mut options = std::fs::OpenOptions::new();
        let opened = options.read(true).write(self.writes).open(&self.path);
        let map = opened.and_then(|file| FileMap::new(&file, self.bytes(), self.writes));
        let failed = BenchError::io(format!("map {}", self.path.display()));
        Ok(Box::new(Mapped(map.map_err(failed)?)))
    }

    fn start_state(&mut self) -> StartState<'_> {
        self.file.start_state()
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.file.paths()
    }
}

struct Mapped(FileMap);

impl Target for Mapped {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, buffer)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write(offset, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Store of an engine in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum BackingStore {
    /// Memory, without latency.
    Memory,
    /// A modeled disk of 7,200 rpm, in real time.
    Disk,
}

/// The engine of this program over its own store, with a new engine for each trial.
#[derive(Debug)]
pub(super) struct InProcess {
    pub(super) backing: BackingStore,
    pub(super) bytes: u64,
    pub(super) memory_bytes: u64,
    pub(super) policy: PolicyKind,
    /// The engine of the current trial.
    pub(super) running: Option<(Caches, CachedVolume)>,
}

impl InProcess {
    fn store(&self) -> Box<dyn EngineStore> {
        let geometry = Geometry { length: self.bytes, granule: 512, read_only: false };
        let clock = Arc::new(MonotonicClock::new());
        let memory = MemoryStore::new(geometry);
        match self.backing {
            BackingStore::Memory => Box::new(TimedStore::new(memory, clock)),
            BackingStore::Disk => {
                let disk = Disk::seven_thousand_two_hundred(self.bytes);
                Box::new(TimedStore::new(ModeledStore::new(memory, disk), clock))
            }
        }
    }

    fn stop(&mut self) -> Result<(), BenchError> {
        let Some((caches, volume)) = self.running.take() else { return Ok(()) };
        drop(volume);
        caches.close().map_err(failed("stop the engine"))
    }

    /// Starts a new, empty engine.
    fn begin(&mut self) -> Result<&CachedVolume, BenchError> {
        self.stop()?;
        let caches = Caches::with_options(EngineOptions {
            memory_bytes: self.memory_bytes,
            huge_pages: true,
            lock: false,
            threads: 1,
            policy_bytes: self.policy.bytes_per_page(),
        });
        let caches = caches.map_err(failed("start the engine"))?;
        let volume = caches
            .add(self.store(), "bench".to_owned(), |options| options.policy = self.policy)
            .map_err(failed("start the engine"))?;
        let (_, volume) = self.running.insert((caches, volume));
        Ok(volume)
    }
}

impl OwnCache for InProcess {
    fn start(&mut self, start: Start) -> Result<WorkloadResidency, BenchError> {
        let bytes = self.bytes;
        let volume = match (&self.running, start) {
            // The cache keeps the state after the previous trial.
            (Some(_), Start::AsIs) => &self.running.as_ref().expect("it runs").1,
            _ => self.begin()?,
        };
        if start == Start::Warm {
            let mut handle = volume.handle().map_err(failed("warm up"))?;
            let mut buffer = vec![0; WARM_BYTES];
            let mut at = 0;
            while at < bytes {
                let len = usize::try_from(bytes - at).unwrap_or(WARM_BYTES).min(WARM_BYTES);
                let read = handle.read(at, &mut buffer[..len]);
                read.map_err(failed("warm up"))?;
                at += len as u64;
            }
        }
        let pages = bytes.div_ceil(larder_core::units::BLOCK_BYTES_U64);
        let resident = volume.cached_bytes() / larder_core::units::BLOCK_BYTES_U64;
        Ok(WorkloadResidency { files: 1, pages, resident, ..WorkloadResidency::default() })
    }
}

impl TargetSource for InProcess {
    fn description(&self) -> String {
        let memory = larder_schema::format::bytes(self.memory_bytes);
        let store = match self.backing {
            BackingStore::Memory => "memory",
            BackingStore::Disk => "a modeled 7,200 rpm disk",
        };
        format!("{memory} of cache in process ({}) in front of {store}", self.policy.name())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        self.stop()
    }

    fn open(&self) -> Result<Box<dyn Target>, BenchError> {
        let (_, volume) = self.running.as_ref().expect("a trial begins with a start");
        let handle = volume.handle().map_err(failed("open the engine"))?;
        Ok(Box::new(EngineTarget(handle)))
    }

    fn start_state(&mut self) -> StartState<'_> {
        StartState::Own(self)
    }
}

struct EngineTarget(Handle);

impl Target for EngineTarget {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, buffer).map_err(io::Error::other)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write(offset, bytes).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(io::Error::other)
    }
}
