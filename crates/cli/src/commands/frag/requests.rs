//! The requests whose cost is computed, and the files that they go to.

use crate::commands::report::open_watch;
use crate::commands::simulated_cache;
use crate::commands::trace::InputArgs;
use anyhow::{Result, bail, ensure};
use larder_core::counters::Class;
use larder_core::store::StoreOpKind;
use larder_host::extents;
use larder_host::file_walk::WalkRoot;
use larder_lab::fragmentation::{FileRequest, WriterFile, behind_cache, of_counts, one_read};
use larder_lab::model::StoreModel;
use larder_lab::sim::engine::Clients;
use larder_lab::trace::{Addressing, BoxedSource, NameKind, Op, Record};
use larder_report::escape;
use larder_schema::format;
use larder_schema::fragmentation::{FileExtent, FileScan, RequestsFrom};
use larder_schema::watch::{Counts, Watch};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of requests that are kept: 32 bytes each.
const REQUESTS_MAX: usize = 20_000_000;
/// Maximum number of extents of all files of the requests: 32 bytes each.
const EXTENTS_MAX: usize = 4 << 20;
/// Seed of places that a record does not have.
const SEED: u64 = 1;

/// A file with its extents.
#[derive(Debug)]
pub(super) struct ScannedFile {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) extents: Vec<FileExtent>,
    pub(super) fragments: u64,
}

impl ScannedFile {
    /// Replaces the extents.
    pub(super) fn set_extents(&mut self, extents: Vec<FileExtent>) {
        self.fragments = FileExtent::fragments(&extents);
        self.extents = extents;
    }
}

/// Requests to files.
#[derive(Debug, Default)]
pub(super) struct Load {
    pub(super) from: RequestsFrom,
    pub(super) files: Vec<ScannedFile>,
    pub(super) requests: Vec<FileRequest>,
    /// Requests that the cache served.
    pub(super) cached: u64,
    /// Requests to other files.
    pub(super) others: u64,
    /// Name of a process, the index of its file, and its accesses.
    writers: Vec<(String, usize, Counts)>,
}

impl Load {
    /// Returns the writes of processes.
    pub(super) fn writes(&self) -> Vec<WriterFile<'_>> {
        let fragments = |file: usize| self.files[file].fragments;
        let writers = self.writers.iter().map(|(process, file, counts)| (process, *file, *counts));
        writers
            .map(|(process, file, counts)| WriterFile {
                process,
                file,
                fragments: fragments(file),
                counts,
            })
            .collect()
    }
}

impl Load {
    /// Returns offset and length of up to `max` reads of each file, in order.
    pub(super) fn reads(&self, max: usize) -> Vec<Vec<(u64, u64)>> {
        let mut reads = vec![Vec::new(); self.files.len()];
        for request in self.requests.iter().filter(|it| it.kind == StoreOpKind::Read) {
            if reads[request.file].len() < max {
                reads[request.file].push((request.offset, request.len));
            }
        }
        reads
    }

    /// Replaces the requests by those of a simulated cache in front of the device.
    pub(super) fn add_cache(
        &mut self,
        memory_bytes: u64,
        device: StoreModel,
        depth: usize,
    ) -> Result<()> {
        let clients = Clients { number: 1, depth };
        simulated_cache::check(memory_bytes, 1, clients)?;
        let options = simulated_cache::options(memory_bytes, device, clients);
        let behind = behind_cache(&self.requests, &options)?;
        self.cached += (self.requests.len() as u64).saturating_sub(behind.len() as u64);
        self.requests = behind;
        Ok(())
    }
}

/// Recorded requests.
pub(super) enum RecordedRequests {
    Watch(Box<Watch>),
    Trace(BoxedSource),
}

/// Opens a trace, or a result of larder watch.
pub(super) fn open(file: &Path, input: &InputArgs) -> Result<RecordedRequests> {
    if let Some(watch) = open_watch(file)? {
        return Ok(RecordedRequests::Watch(Box::new(watch)));
    }
    let source = input.open(file, None, None)?;
    ensure!(
        source.addressing() != Addressing::Objects,
        "compute the cost for {}: it has objects instead of bytes of files",
        escape::path(file)
    );
    Ok(RecordedRequests::Trace(source))
}

/// Returns the recorded requests; without them, reads of the files with most fragments.
pub(super) fn load(
    roots: &[WalkRoot],
    scanned: &FileScan,
    recorded: Option<RecordedRequests>,
    lists_all: bool,
    notes: &mut Vec<String>,
) -> Result<Load> {
    let mut files = Files { roots, found: Vec::new(), by_path: HashMap::new(), extents: 0 };
    let mut load = match recorded {
        Some(RecordedRequests::Watch(watch)) => of_watch(&mut files, *watch, notes),
        Some(RecordedRequests::Trace(source)) => of_trace(&mut files, source)?,
        None => {
            for path in scanned.most_fragmented() {
                files.find(Path::new(OsStr::from_bytes(&path)));
            }
            let lengths: Vec<u64> = files.found.iter().map(|file| file.bytes).collect();
            Load { requests: one_read(&lengths), ..Load::default() }
        }
    };
    if load.from != RequestsFrom::OneRead || lists_all {
        // Files with fragments that have no request, and those whose extents are listed.
        for path in scanned.most_fragmented() {
            files.find(Path::new(OsStr::from_bytes(&path)));
        }
    }
    if files.extents >= EXTENTS_MAX {
        notes.push(format!(
            "Only the files with the first {} extents are examined.",
            format::count(EXTENTS_MAX as u64)
        ));
    }
    load.files = files.found;
    Ok(load)
}

/// Files below the roots, by path.
struct Files<'a> {
    roots: &'a [WalkRoot],
    found: Vec<ScannedFile>,
    /// `None` for files that are not below the roots.
    by_path: HashMap<PathBuf, Option<usize>>,
    extents: usize,
}

impl Files<'_> {
    /// Returns the index of a file, which is opened below its root.
    fn find(&mut self, path: &Path) -> Option<usize> {
        if let Some(found) = self.by_path.get(path) {
            return *found;
        }
        let found = (self.extents < EXTENTS_MAX).then(|| self.open(path)).flatten();
        let index = found.map(|file| {
            self.extents += file.extents.len();
            self.found.push(file);
            self.found.len() - 1
        });
        self.by_path.insert(path.to_owned(), index);
        index
    }

    fn open(&self, path: &Path) -> Option<ScannedFile> {
        let below = |root: &WalkRoot| Some(path.strip_prefix(root.path()).ok()?.to_owned());
        let (root, below) = self.roots.iter().find_map(|root| Some((root, below(root)?)))?;
        let file = root.open_file(&below).ok()?;
        let bytes = file.metadata().ok()?.len();
        let extents = extents::recorded(&file, false).ok()?;
        let fragments = FileExtent::fragments(&extents);
        Some(ScannedFile { path: path.to_owned(), bytes, extents, fragments })
    }
}

/// Returns the requests of a trace. A file is named as such, or as a volume: larder trace record
/// names each file as a volume.
fn of_trace(files: &mut Files<'_>, mut source: BoxedSource) -> Result<Load> {
    let mut load = Load { from: RequestsFrom::Trace, ..Load::default() };
    let mut batch = Vec::new();
    // Names can follow the records that use them, so files are found at the end.
    let mut by_number: HashMap<(NameKind, u32), Option<usize>> = HashMap::new();
    let mut requests: Vec<((NameKind, u32), FileRequest)> = Vec::new();
    while source.next_batch(&mut batch)? {
        for record in batch.iter().filter(|record| record.op.transfers() && record.len > 0) {
            if is_cached(record) {
                load.cached += 1;
                continue;
            }
            let kind = match record.op {
                Op::Read => StoreOpKind::Read,
                _ => StoreOpKind::Write { fua: false },
            };
            let number = match record.file {
                0 => (NameKind::Volume, record.volume),
                file => (NameKind::File, file),
            };
            let (offset, len) = (record.offset, record.len);
            requests.push((number, FileRequest { file: 0, kind, offset, len }));
            by_number.entry(number).or_insert(None);
        }
        ensure!(
            requests.len() <= REQUESTS_MAX,
            "compute the cost for more than {REQUESTS_MAX} requests: select a part with larder \
             trace filter --from --to"
        );
    }
    let image = Some(&files.roots[0]).filter(|root| files.roots.len() == 1 && !root.is_directory());
    let image = image.map(|root| root.path().to_owned());
    let mut names = 0;
    for ((kind, number), index) in &mut by_number {
        let name = source.name(*kind, *number).filter(|name| name.starts_with('/'));
        names += u64::from(name.is_some());
        *index = match (name, &image) {
            (Some(name), _) => files.find(Path::new(name)),
            (None, Some(image)) if *kind == NameKind::Volume => files.find(image),
            (None, _) => None,
        };
    }
    if names == 0 && image.is_none() && !by_number.is_empty() {
        bail!(
            "compute the cost for a trace that does not name files by their paths: name the only \
             file that it is of, or record with larder trace record"
        );
    }
    for (number, request) in requests {
        match by_number.get(&number).copied().flatten() {
            Some(file) => load.requests.push(FileRequest { file, ..request }),
            None => load.others += 1,
        }
    }
    Ok(load)
}

/// Returns true if the recording cache served the request without the store.
fn is_cached(record: &Record) -> bool {
    [Class::ReadHit, Class::ReadAheadHit, Class::WriteAbsorbed]
        .iter()
        .any(|class| *class as u8 == record.class)
}

/// Returns requests with the counts of a record of larder watch.
fn of_watch(files: &mut Files<'_>, watch: Watch, notes: &mut Vec<String>) -> Load {
    let mut load = Load { from: RequestsFrom::Record, ..Load::default() };
    let mut counts: Vec<Counts> = Vec::new();
    for row in watch.total.rows {
        let Some(file) = files.find(Path::new(&row.file)) else {
            load.others += row.counts.read_requests + row.counts.write_requests;
            continue;
        };
        counts.resize(files.found.len(), Counts::default());
        counts[file] += row.counts;
        load.writers.push((row.process, file, row.counts));
    }
    let lengths = files.found.iter().map(|file| file.bytes);
    let of_files: Vec<(u64, Counts)> = lengths.zip(counts).collect();
    (load.requests, load.cached) = of_counts(&of_files, watch.page_bytes, SEED);
    notes.push(
        "The record has no places of requests: writes and reads that are mostly not in order are \
         assumed at random places. A trace (larder trace record) has them."
            .to_owned(),
    );
    load
}
