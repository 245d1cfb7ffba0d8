//! Live view of the page cache: file reads and writes by process, hits and misses, and the causes
//! of disk I/O. docs/watch.md describes the method.
//!
//! * `event`: the kernel events in use.
//! * `lookup`: classification of lookups as hit, read-ahead hit or miss.
//! * `accounting`: counts by file and process.
//! * `tasks`, `names`, `homes`: process of a thread, path of a file, device of a file.
//! * `source`: source of the events; `kernel_probe`: lookups counted in the kernel.
//! * `scope`: the watched part of the machine.
//! * `readings`: disks and memory; `host_sampler`: counters of the host without tracing.
//! * `missing`: information that is unavailable, and the way to obtain it.
//!
//! Invariants: without events the rest works and reports what is missing; the trace instance is
//! removed when the watcher is dropped; events that the kernel dropped are counted.

mod accounting;
mod event;
mod file_numbers;
mod homes;
mod host_sampler;
mod kernel_probe;
mod layers;
mod lookup;
mod memory_group;
mod metadata_caches;
mod missing;
mod names;
mod owners;
mod readings;
mod scope;
mod source;
mod spans;
mod tasks;

pub use accounting::Reference;
pub use host_sampler::HostSampler;
pub use lookup::{FileId, ProcessId};
pub use scope::WatchScope;
pub use tasks::Process;

use crate::residency;
use crate::tracefs::{TraceError, now_ns};
use crate::{device, machine, mounts, proc, process_name, processes};
use accounting::{Accounting, MachineQueries, REMOVED_MAX};
use file_numbers::FilesByNumber;
use larder_schema::watch::{
    Counts, Interval, Memory, ProcessMemory, Row, SCHEMA, UnattributedIo, VERSION, Watch,
};
use memory_group::Group;
use names::Names;
use readings::CounterReadings;
use rustix::time::{ClockId, clock_gettime};
use scope::{Scope, TaskReader};
use source::Source;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Default minimum size of each processor's trace buffer: a tenth of a second at a million lookups
/// per second, while the reader returns every 20 ms.
pub const BUFFER_KIB: u64 = 8 << 10;
/// Default maximum size, used where each lookup is an event and the machine has few processors.
pub const BUFFER_KIB_MAX: u64 = 32 << 10;
/// Recommended interval between calls of [`Watcher::step`].
pub const STEP: Duration = Duration::from_millis(20);
const PROCESSES_MAX: usize = 16;
/// Maximum number of file names to resolve in one step.
const NAMES_PER_STEP: usize = 2000;
/// Time after which a step resolves no further name.
const NAMES_TIME_MAX: Duration = STEP;

/// Maximum time of all searches in directories when a watch ends.
const WALK_TIME_MAX: Duration = Duration::from_secs(2);

/// A map with numeric keys, at rates of hundreds of thousands of accesses per second. The keys are
/// small numbers of the kernel or of this process, so no attacker can choose colliding ones.
type Map<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

/// Options of a watcher.
#[derive(Clone, Debug)]
pub struct Options {
    /// The watched part of the machine.
    pub wanted: WatchScope,
    /// Trace buffer per processor; the default is [`BUFFER_KIB`], or up to [`BUFFER_KIB_MAX`] where
    /// each lookup is an event.
    pub buffer_kib: Option<u64>,
    /// Maximum number of rows of an interval.
    pub rows_max: usize,
    /// True if the caller needs only the requests, not the resulting disk I/O.
    pub references_only: bool,
    /// Use of BPF programs that count lookups in the kernel.
    pub bpf: Bpf,
    /// True if the result has the counters of the whole host.
    pub host_counters: bool,
}

/// Use of BPF programs that count lookups in the kernel, which slows watched processes far less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bpf {
    /// BPF where the kernel supports it, else trace events.
    #[default]
    Auto,
    /// BPF only: watching fails without it.
    On,
    /// One trace event for each lookup.
    Off,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            wanted: WatchScope::Machine,
            buffer_kib: None,
            rows_max: 1000,
            references_only: false,
            bpf: Bpf::Auto,
            host_counters: false,
        }
    }
}

/// An error starting or continuing a watch. Every message can follow "cannot".
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The object to watch does not exist.
    #[error("watch {0}")]
    NotThere(String),
    /// The event source failed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The caller requires BPF, and the kernel does not support it.
    #[error("count lookups in the kernel: {0}")]
    NoBpf(String),
}

#[derive(Clone, Debug, Default)]
struct Checkpoint {
    time_ns: u64,
    counts: Vec<Counts>,
    unattributed: UnattributedIo,
    lost: u64,
    readings: CounterReadings,
}

/// A watch of the page cache, until dropped.
#[derive(Debug)]
pub struct Watcher {
    options: Options,
    scope: Scope,
    sampler: Option<HostSampler>,
    /// The watched cgroup, if its memory is accounted.
    group: Option<Group>,
    source: Option<Source>,
    accounting: Accounting,
    names: Names,
    /// Number of files whose names were resolved or tried.
    names_resolved: usize,
    missing: Vec<String>,
    started_at: String,
    start: Checkpoint,
    checkpoint: Checkpoint,
    intervals: Vec<Interval>,
    cpu_start_ns: u64,
    own_pid: u32,
}

/// Returns the processor time of this process in nanoseconds.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Returns the watched processes with the most private memory.
fn memory_users(wanted: &WatchScope) -> Vec<ProcessMemory> {
    let mut all = processes::private_memory();
    all.retain(|(_, private_bytes)| *private_bytes > 0);
    all.sort_by_key(|(_, private_bytes)| std::cmp::Reverse(*private_bytes));
    let mut reader = TaskReader::new(wanted.clone());
    let watched = all.into_iter().filter(|(pid, _)| reader.is_watched(*pid));
    let all = watched.take(PROCESSES_MAX);
    all.filter_map(|(pid, private_bytes)| {
        Some(ProcessMemory { process: process_name::of(pid)?, pid, private_bytes })
    })
    .collect()
}

impl Watcher {
    /// Starts watching.
    ///
    /// # Errors
    /// The object to watch does not exist, or BPF is required and not available. Missing trace
    /// events are otherwise no error; see [`Watcher::missing`].
    pub fn start(mut options: Options) -> Result<Watcher, WatchError> {
        let scope = Scope::find(&options.wanted).map_err(|error| {
            WatchError::NotThere(format!("{}: {error}", options.wanted.describe()))
        })?;
        options.wanted = scope.wanted.clone();
        let mut missing: Vec<String> = Vec::new();
        let source = match Source::start(&options, &scope, &mut missing) {
            Ok(source) => Some(source),
            // A caller that requires BPF accepts no fallback.
            Err(WatchError::Trace(error)) if options.bpf == Bpf::On => {
                return Err(WatchError::NoBpf(missing::all(&error, true)));
            }
            Err(WatchError::Trace(error)) => {
                missing.push(missing::all(&error, options.references_only));
                None
            }
            Err(error) => return Err(error),
        };
        if source.is_some() {
            missing.extend(missing::scope(&scope));
        }
        let mut reader = TaskReader::new(options.wanted.clone());
        let mut numbers = FilesByNumber::default();
        let describe_task = Box::new(move |thread| reader.task_info(thread));
        let machine = MachineQueries {
            file_system_devices: Box::new(homes::devices),
            is_block_file_system: Box::new(homes::is_block_device),
            file_size: Box::new(move |key| numbers.bytes(key)),
            page_bytes: residency::page_bytes(),
        };
        let accounting = Accounting::new(describe_task, machine);
        let group = match &options.wanted {
            WatchScope::Group(group) => Group::find(group),
            WatchScope::Machine | WatchScope::Path(_) | WatchScope::Process(_) => None,
        };
        let readings = CounterReadings::now(group.as_ref());
        let checkpoint = Checkpoint { time_ns: now_ns(), readings, ..Checkpoint::default() };
        Ok(Watcher {
            sampler: options.host_counters.then(HostSampler::start),
            start: checkpoint.clone(),
            checkpoint,
            options,
            scope,
            group,
            source,
            accounting,
            names: Names::default(),
            names_resolved: 0,
            missing,
            started_at: machine::time_of_day(),
            intervals: Vec::new(),
            cpu_start_ns: cpu_ns(),
            own_pid: std::process::id(),
        })
    }

    /// Returns the kinds of information that are unavailable here, one sentence each.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Describes the watched part of the machine in a few words.
    #[must_use]
    pub fn describe(&self) -> String {
        self.scope.wanted.describe()
    }

    /// Describes the source of lookups in a few words; returns `None` without a source.
    #[must_use]
    pub fn means(&self) -> Option<String> {
        self.source.as_ref().map(Source::means)
    }

    /// Returns true if events are available.
    #[must_use]
    pub fn sees_events(&self) -> bool {
        self.source.is_some()
    }

    /// Processes the events since the last call and passes each request to `each` with its time.
    /// Call it every [`STEP`].
    ///
    /// # Errors
    /// The event source fails.
    pub fn step(&mut self, each: impl FnMut(u64, &Reference)) -> Result<(), WatchError> {
        self.read(false, each)
    }

    fn read(&mut self, all: bool, mut each: impl FnMut(u64, &Reference)) -> Result<(), WatchError> {
        let Some(source) = &mut self.source else { return Ok(()) };
        source.read(all, &mut self.accounting, &mut each)?;
        for (file, when_ns) in self.accounting.take_ended() {
            self.names.file_ended(file, when_ns);
        }
        self.find_names();
        Ok(())
    }

    /// Resolves the names of new files immediately, while the process that uses them still runs.
    fn find_names(&mut self) {
        let new = self.accounting.counts.iter().skip(self.names_resolved).take(NAMES_PER_STEP);
        let begun = Instant::now();
        for (file, process, _) in new {
            if begun.elapsed() > NAMES_TIME_MAX {
                break;
            }
            self.names_resolved += 1;
            // The file's inode number may belong to a new file by now.
            if !self.accounting.file(*file).is_removed {
                let pid = self.accounting.tasks.process(*process).pid;
                self.names.find(*file, self.accounting.file(*file).key, pid);
            }
        }
    }

    /// Resolves the remaining names in the scope by walking the directories of their file systems,
    /// each for an equal part of [`WALK_TIME_MAX`] at least. No events are read meanwhile, so it
    /// runs after recording has stopped.
    fn find_remaining_names(&mut self) {
        let mut unnamed: BTreeMap<u32, Map<u64, FileId>> = BTreeMap::new();
        let (of_device, of_file) = self.scope.files();
        for (file, process, _) in &self.accounting.counts {
            let is_removed = self.accounting.file(*file).is_removed;
            let key = self.accounting.file(*file).key;
            let is_watched = of_device.is_none_or(|dev| dev == key.dev)
                && of_file.is_none_or(|ino| ino == key.ino)
                && (!self.scope.by_process() || self.accounting.tasks.process(*process).watched);
            if is_watched && !is_removed && self.names.needs_walk(*file) {
                unnamed.entry(key.dev).or_default().insert(key.ino, *file);
            }
        }
        let end = Instant::now() + WALK_TIME_MAX;
        let all = if unnamed.is_empty() { Vec::new() } else { mounts::all() };
        let mut left = u32::try_from(unnamed.len()).expect("fewer devices than 2^32");
        for (dev, wanted) in &mut unnamed {
            let begin = Instant::now();
            let end = begin + end.saturating_duration_since(begin) / left;
            left -= 1;
            let scope_path = self.scope.path.as_ref().filter(|location| location.dev == *dev);
            let mount = || {
                Some(
                    all.iter()
                        .find(|mount| mount.device == *dev && mount.is_local())?
                        .point
                        .clone(),
                )
            };
            if let Some(root) = scope_path.map(scope::ScopePath::directory).or_else(mount) {
                self.names.walk(&root, wanted, end);
            }
        }
    }

    /// Returns the path of a file, or its device and inode numbers.
    #[must_use]
    pub fn name_of(&self, file: FileId) -> String {
        let key = self.accounting.file(file).key;
        let numbers = || {
            let (major, minor) = device::decode(key.dev);
            let removed = if self.accounting.file(file).is_removed { ", removed" } else { "" };
            format!("device {major}:{minor} inode {}{removed}", key.ino)
        };
        self.names.get(file).map_or_else(numbers, |path| path.display().to_string())
    }

    /// Returns true if a request is within the watched scope, based on the file name known so far.
    #[must_use]
    pub fn has(&self, reference: &Reference) -> bool {
        self.in_scope(reference.file, reference.process)
    }

    fn in_scope(&self, file: FileId, process: ProcessId) -> bool {
        let process = self.accounting.tasks.process(process);
        if self.scope.by_process() {
            return process.watched;
        }
        // A scope of one file excludes a new file with the same inode number.
        let is_other = self.scope.is_file() && self.accounting.file(file).reuses_number;
        // This process's own I/O is excluded, unless it is to the watched path.
        !is_other
            && self.scope.has_file(self.accounting.file(file).key, self.names.get(file))
            && (process.pid != self.own_pid || self.scope.path.is_some())
    }

    /// Returns a process by its ID in this watcher.
    #[must_use]
    pub fn process(&self, process: ProcessId) -> &Process {
        self.accounting.tasks.process(process)
    }

    /// Ends an interval and starts the next one.
    pub fn interval(&mut self) -> &Interval {
        self.collect_counts();
        if let Some(sampler) = &mut self.sampler {
            sampler.step();
        }
        // The next interval starts at this boundary, so that it includes events during the report.
        let now = self.new_checkpoint();
        let interval = self.between(&self.checkpoint, &now);
        self.checkpoint = now;
        self.accounting.forget_devices();
        self.names.forget_homes();
        self.intervals.push(interval);
        self.intervals.last().expect("just pushed")
    }

    /// Discards the finished intervals; the result omits them.
    pub fn forget_intervals(&mut self) {
        self.intervals.clear();
    }

    fn collect_counts(&mut self) {
        if let Some(source) = &mut self.source {
            source.collect_counts(&mut self.accounting);
        }
    }

    fn new_checkpoint(&self) -> Checkpoint {
        let mut readings = CounterReadings::now(self.group.as_ref());
        for (dev, disk) in &mut readings.disks {
            disk.splits = self.accounting.splits(*dev);
        }
        Checkpoint {
            time_ns: now_ns(),
            counts: self.accounting.counts.iter().map(|(.., counts)| *counts).collect(),
            unattributed: self.accounting.unattributed,
            lost: self.source.as_ref().map_or(0, Source::lost),
            readings,
        }
    }

    fn between(&self, checkpoint: &Checkpoint, now: &Checkpoint) -> Interval {
        let mut sum = Counts::default();
        let mut all = Vec::new();
        for (index, (file, process, counts)) in self.accounting.counts.iter().enumerate() {
            let counts = *counts - checkpoint.counts.get(index).copied().unwrap_or_default();
            if counts.is_zero() || !self.in_scope(*file, *process) {
                continue;
            }
            sum += counts;
            let process = self.accounting.tasks.process(*process);
            let key = self.accounting.file(*file).key;
            all.push(Row {
                file: self.name_of(*file),
                device: device::decode(key.dev),
                inode: key.ino,
                process: process.name.clone(),
                pid: process.pid,
                counts,
            });
        }
        let page_bytes = residency::page_bytes();
        let (rows, rows_all) = larder_schema::watch::rows(all, page_bytes, self.options.rows_max);
        let (after, before) = (now.unattributed, checkpoint.unattributed);
        let mut memory: Memory = now.readings.memory_since(&checkpoint.readings);
        if self.group.is_some() {
            // Some cgroups lack this counter; the events provide it.
            memory.reclaimed_pages = sum.evicted_pages;
        }
        let (disks, uncounted) = now.readings.disks_since(&checkpoint.readings);
        Interval {
            begin_ns: checkpoint.time_ns.saturating_sub(self.start.time_ns),
            duration_ns: now.time_ns.saturating_sub(checkpoint.time_ns),
            sum,
            rows,
            rows_all,
            disks,
            uncounted,
            memory,
            processes: memory_users(&self.options.wanted),
            unattributed: UnattributedIo {
                metadata_bytes: after.metadata_bytes - before.metadata_bytes,
                read_bytes: after.read_bytes - before.read_bytes,
                write_bytes: after.write_bytes - before.write_bytes,
            },
            lost_events: now.lost.saturating_sub(checkpoint.lost),
        }
    }

    /// Stops recording and processes the remaining events.
    ///
    /// # Errors
    /// The event source fails.
    pub fn stop(&mut self, each: impl FnMut(u64, &Reference)) -> Result<(), WatchError> {
        if let Some(source) = &self.source {
            source.pause()?;
        }
        self.read(true, each)?;
        self.collect_counts();
        if let Some(sampler) = &mut self.sampler {
            sampler.step();
        }
        self.find_remaining_names();
        Ok(())
    }

    /// Returns everything since the start, without findings.
    #[must_use]
    pub fn result(&self) -> Watch {
        let status = proc::read("/proc/self/status").unwrap_or_default();
        let mut missing = self.missing.clone();
        let forgotten = self.accounting.lookups.forgotten;
        if forgotten > 0 {
            missing.push(format!(
                "which of {forgotten} pages read-ahead had brought: more were waiting to be read \
                 than are remembered; those that were read count as hits"
            ));
        }
        if self.accounting.removed_overflow() {
            missing.push(format!(
                "which of two files had a number: more than {REMOVED_MAX} were removed, and those \
                 that get their numbers from then on stand under their names"
            ));
        }
        let total = self.between(&self.start, &self.new_checkpoint());
        let layers = layers::all(&self.accounting);
        Watch {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            started_at: self.started_at.clone(),
            scope: self.scope.wanted.describe(),
            kernel: machine::machine().kernel,
            page_bytes: residency::page_bytes(),
            missing,
            events: self.source.as_ref().map_or(0, Source::events),
            own_cpu_ns: cpu_ns().saturating_sub(self.cpu_start_ns),
            own_memory_bytes: proc::field(&status, "VmHWM").unwrap_or(0) * 1024,
            intervals: self.intervals.clone(),
            total,
            layers,
            means: self.means().unwrap_or_default(),
            findings: Vec::new(),
            host: self.sampler.as_ref().map(HostSampler::counters),
        }
    }
}
