//! Live view of the page cache: file reads and writes by process, hits and misses, and the causes
//! of disk I/O. docs/watch.md describes the method.
//!
//! * `event`: the kernel events in use.
//! * `lookup`: classification of look-ups as hit, read-ahead hit or miss.
//! * `accounting`: counts by file and process.
//! * `tasks`, `names`, `homes`: process of a thread, path of a file, device of a file.
//! * `source`: source of the events; `kernel_probe`: look-ups counted in the kernel.
//! * `scope`: the watched part of the machine.
//! * `readings`: disks and memory.
//! * `missing`: information that is unavailable, and the way to obtain it.
//!
//! Invariants: without events the rest works and reports what is missing; the trace instance is
//! removed when the watcher is dropped; events that the kernel dropped are counted.

mod accounting;
mod event;
mod fast;
mod file_numbers;
mod homes;
#[cfg(feature = "bpf")]
mod kernel_probe;
mod layers;
mod lookup;
mod memory_group;
mod missing;
mod names;
mod owners;
mod readings;
mod scope;
mod source;
mod spans;
mod tasks;

pub use accounting::Reference;
pub use lookup::{FileId, ProcessId};
pub use scope::WatchScope;
pub use tasks::Process;

use crate::residency;
use crate::tracefs::{TraceError, now_ns};
use crate::{machine, mounts, proc};
use accounting::{Accounting, Machine, REMOVED_MAX};
use file_numbers::ByNumber;
use larder_report::findings;
use larder_report::watch::{
    Counts, Interval, Memory, ProcessMemory, Row, SCHEMA, Unattributed, VERSION, Watch,
};
use memory_group::Group;
use names::Names;
use readings::Readings;
use rustix::time::{ClockId, clock_gettime};
use scope::Scope;
use source::Source;
use std::collections::HashMap;
use std::io;
use std::time::Duration;

/// Default minimum size of each processor's trace buffer: a tenth of a second at a million look-ups
/// per second, while the reader returns every 20 ms.
pub const BUFFER_KIB: u64 = 8 << 10;
/// Default maximum size, used where each look-up is an event and the machine has few processors.
pub const BUFFER_KIB_MAX: u64 = 32 << 10;
/// Recommended interval between calls of [`Watcher::step`].
pub const STEP: Duration = Duration::from_millis(20);
/// Maximum number of processes in the memory report.
const PROCESSES_MAX: usize = 16;
/// Maximum number of file names to resolve in one step.
const NAMES_PER_STEP: usize = 2000;

/// Options of a watcher.
#[derive(Clone, Debug)]
pub struct Options {
    /// The watched part of the machine.
    pub wanted: WatchScope,
    /// Trace buffer per processor; the default is [`BUFFER_KIB`], or up to [`BUFFER_KIB_MAX`] where
    /// each look-up is an event.
    pub buffer_kib: Option<u64>,
    /// Maximum number of rows of an interval.
    pub rows_max: usize,
    /// True if the caller needs only the requests, not the resulting disk I/O.
    pub references_only: bool,
    /// Use of BPF programs that count look-ups in the kernel.
    pub bpf: Bpf,
}

/// Use of BPF programs that count look-ups in the kernel, which slows watched processes far less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bpf {
    /// BPF where the kernel supports it, else trace events.
    #[default]
    Auto,
    /// BPF only: watching fails without it.
    On,
    /// One trace event for each look-up.
    Off,
}

impl Default for Options {
    fn default() -> Self {
        let wanted = WatchScope::Machine;
        Options { wanted, buffer_kib: None, rows_max: 1000, references_only: false, bpf: Bpf::Auto }
    }
}

/// An error starting or continuing a watch. Every message can follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The object to watch does not exist.
    #[error("watch {what}: {source}")]
    NotThere {
        /// The object.
        what: String,
        /// The system error.
        source: io::Error,
    },
    /// The event source failed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The caller requires BPF, and the kernel does not support it.
    #[error("count look-ups in the kernel: {0}")]
    NoBpf(String),
}

/// State at an interval boundary.
#[derive(Clone, Debug, Default)]
struct Mark {
    time_ns: u64,
    counts: Vec<Counts>,
    unattributed: Unattributed,
    lost: u64,
    readings: Readings,
    splits: Vec<(u32, u64)>,
}

/// A watch of the page cache, until dropped.
#[derive(Debug)]
pub struct Watcher {
    options: Options,
    scope: Scope,
    /// The watched cgroup, if its memory is accounted.
    group: Option<Group>,
    source: Option<Source>,
    ledger: Accounting,
    names: Names,
    /// Number of files whose names were resolved or tried.
    named: usize,
    missing: Vec<String>,
    started_at: String,
    begun: Mark,
    mark: Mark,
    intervals: Vec<Interval>,
    cpu_begun_ns: u64,
    own: u32,
}

/// Returns the processor time of this process in nanoseconds.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Returns the watched processes with the most private memory.
fn processes(wanted: &WatchScope) -> Vec<ProcessMemory> {
    let mut all = crate::processes::all();
    all.retain(|process| process.private_bytes > 0);
    all.sort_by_key(|process| std::cmp::Reverse(process.private_bytes));
    let watched = |pid| scope::task_info(wanted, pid).is_some_and(|told| told.watched);
    let all = all.into_iter().filter(|process| watched(process.pid)).take(PROCESSES_MAX);
    all.map(|it| ProcessMemory { process: it.name, pid: it.pid, private_bytes: it.private_bytes })
        .collect()
}

impl Watcher {
    /// Starts watching.
    ///
    /// # Errors
    /// The object to watch does not exist, or BPF is required and not available. Missing trace
    /// events are otherwise no error; see [`Watcher::missing`].
    pub fn start(mut options: Options) -> Result<Watcher, WatchError> {
        let scope = Scope::find(&options.wanted).map_err(|source| {
            let wanted = Scope { wanted: options.wanted.clone(), path: None };
            WatchError::NotThere { what: wanted.describe(), source }
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
        let wanted = options.wanted.clone();
        let mut numbers = ByNumber::default();
        let ledger = Accounting::new(Machine {
            ask: Box::new(move |thread| scope::task_info(&wanted, thread)),
            homes: Box::new(homes::devices),
            holds_blocks: Box::new(homes::is_block_device),
            ends: Box::new(move |key| numbers.bytes(key)),
            page_bytes: residency::page_bytes(),
        });
        let group = match &options.wanted {
            WatchScope::Group(group) => Group::find(group),
            WatchScope::Machine | WatchScope::Path(_) | WatchScope::Process(_) => None,
        };
        let readings = Readings::now(group.as_ref());
        let mark = Mark { time_ns: now_ns(), readings, ..Mark::default() };
        Ok(Watcher {
            begun: mark.clone(),
            mark,
            options,
            scope,
            group,
            source,
            ledger,
            names: Names::default(),
            named: 0,
            missing,
            started_at: machine::time_of_day(),
            intervals: Vec::new(),
            cpu_begun_ns: cpu_ns(),
            own: std::process::id(),
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
        self.scope.describe()
    }

    /// Describes the source of look-ups in a few words; returns `None` without a source.
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
        source.read(all, &mut self.ledger, &mut each)?;
        for (file, when_ns) in self.ledger.take_ended() {
            self.names.file_ended(file, when_ns);
        }
        self.find_names();
        Ok(())
    }

    /// Resolves the names of new files immediately, while the process that uses them still runs.
    fn find_names(&mut self) {
        let counts = self.ledger.counts();
        let new = counts.iter().skip(self.named).take(NAMES_PER_STEP);
        for (file, process, _) in new {
            self.named += 1;
            // The file's inode number may belong to a new file by now.
            if !self.ledger.is_removed(*file) {
                let pid = self.ledger.tasks().process(*process).pid;
                self.names.find(*file, self.ledger.key(*file), pid);
            }
        }
    }

    /// Resolves the remaining names by walking the directories of their file systems. The walk may
    /// take a second or two without reading events, so it runs only after recording has stopped.
    fn find_rest(&mut self) {
        let mut lacking: HashMap<u32, fast::Map<u64, FileId>> = HashMap::new();
        for (file, ..) in self.ledger.counts() {
            if !self.ledger.is_removed(*file) && self.names.lacks(*file) {
                let key = self.ledger.key(*file);
                lacking.entry(key.dev).or_default().insert(key.ino, *file);
            }
        }
        let all = if lacking.is_empty() { Vec::new() } else { mounts::all() };
        for (dev, wanted) in &mut lacking {
            let own = self.scope.path.as_ref().filter(|place| place.dev == *dev);
            let mount = || {
                let mut ours =
                    all.iter().filter(|it| homes::number(it.device.0, it.device.1) == *dev);
                ours.next().map(|mount| mount.point.clone())
            };
            if let Some(root) = own.map(scope::Place::directory).or_else(mount) {
                self.names.walk(&root, wanted);
            }
        }
    }

    /// Returns the path of a file, or its device and inode numbers.
    #[must_use]
    pub fn name_of(&self, file: FileId) -> String {
        let key = self.ledger.key(file);
        let numbers = || {
            let (major, minor) = homes::parts(key.dev);
            let removed = if self.ledger.is_removed(file) { ", removed" } else { "" };
            format!("device {major}:{minor} inode {}{removed}", key.ino)
        };
        self.names.get(file).map_or_else(numbers, |path| path.display().to_string())
    }

    /// Returns true if a request is within the watched scope, based on the file name known so far.
    #[must_use]
    pub fn has(&self, reference: &Reference) -> bool {
        self.chosen(reference.file, reference.process)
    }

    fn chosen(&self, file: FileId, process: ProcessId) -> bool {
        let process = self.ledger.tasks().process(process);
        if self.scope.by_process() {
            return process.watched;
        }
        // A scope of one file excludes a new file with the same inode number.
        let is_other = self.scope.is_file() && self.ledger.is_second(file);
        // This process's own I/O is excluded, unless it is to the watched path.
        !is_other
            && self.scope.has_file(self.ledger.key(file), self.names.get(file))
            && (process.pid != self.own || self.scope.path.is_some())
    }

    /// Returns a process by its ID in this watcher.
    #[must_use]
    pub fn process(&self, process: ProcessId) -> &Process {
        self.ledger.tasks().process(process)
    }

    /// Ends an interval and starts the next one.
    pub fn interval(&mut self) -> &Interval {
        self.take_counted();
        // The next interval starts at this boundary, so that it includes events during the report.
        let now = self.mark_now();
        let interval = self.between(&self.mark, &now);
        self.mark = now;
        self.ledger.forget_homes();
        self.names.forget_homes();
        self.intervals.push(interval);
        self.intervals.last().expect("just pushed")
    }

    /// Discards the finished intervals; the result omits them.
    pub fn forget_intervals(&mut self) {
        self.intervals.clear();
    }

    fn take_counted(&mut self) {
        if let Some(source) = &mut self.source {
            source.take_counted(&mut self.ledger);
        }
    }

    fn mark_now(&self) -> Mark {
        let readings = Readings::now(self.group.as_ref());
        let disks = readings.disks_since(&Readings::default());
        Mark {
            time_ns: now_ns(),
            counts: self.ledger.counts().iter().map(|(.., counts)| *counts).collect(),
            unattributed: self.ledger.unattributed(),
            lost: self.lost(),
            splits: disks.iter().map(|(dev, _)| (*dev, self.ledger.splits(*dev))).collect(),
            readings,
        }
    }

    /// Returns the number of events that the kernel dropped, according to its buffers.
    fn lost(&self) -> u64 {
        self.source.as_ref().map_or(0, Source::lost)
    }

    fn between(&self, mark: &Mark, now: &Mark) -> Interval {
        let mut sum = Counts::default();
        let mut all = Vec::new();
        for (place, (file, process, counts)) in self.ledger.counts().iter().enumerate() {
            let counts = *counts - mark.counts.get(place).copied().unwrap_or_default();
            if counts.is_zero() || !self.chosen(*file, *process) {
                continue;
            }
            sum += counts;
            let process = self.ledger.tasks().process(*process);
            let key = self.ledger.key(*file);
            all.push(Row {
                file: self.name_of(*file),
                device: homes::parts(key.dev),
                inode: key.ino,
                process: process.name.clone(),
                pid: process.pid,
                counts,
            });
        }
        let page_bytes = residency::page_bytes();
        let (rows, rows_all) = larder_report::watch::rows(all, page_bytes, self.options.rows_max);
        let mut disks = now.readings.disks_since(&mark.readings);
        for (dev, disk) in &mut disks {
            let before = mark.splits.iter().find(|(known, _)| known == dev);
            disk.splits = self.ledger.splits(*dev) - before.map_or(0, |(_, splits)| *splits);
        }
        let (after, before) = (now.unattributed, mark.unattributed);
        let mut memory: Memory = now.readings.memory_since(&mark.readings);
        if self.group.is_some() {
            // Some cgroups lack this counter; the events provide it.
            memory.reclaimed_pages = sum.evicted_pages;
        }
        Interval {
            begin_ns: mark.time_ns.saturating_sub(self.begun.time_ns),
            duration_ns: now.time_ns.saturating_sub(mark.time_ns),
            sum,
            rows,
            rows_all,
            disks: disks.into_iter().map(|(_, disk)| disk).collect(),
            memory,
            processes: processes(&self.options.wanted),
            unattributed: Unattributed {
                metadata_bytes: after.metadata_bytes - before.metadata_bytes,
                read_bytes: after.read_bytes - before.read_bytes,
                write_bytes: after.write_bytes - before.write_bytes,
            },
            lost_events: now.lost.saturating_sub(mark.lost),
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
        self.take_counted();
        self.find_rest();
        Ok(())
    }

    /// Returns everything since the start.
    #[must_use]
    pub fn result(&self) -> Watch {
        let status = proc::read("/proc/self/status").unwrap_or_default();
        let mut missing = self.missing.clone();
        let forgotten = self.ledger.forgotten();
        if forgotten > 0 {
            missing.push(format!(
                "which of {forgotten} pages read-ahead had brought: more were waiting to be read \
                 than are remembered; those that were read count as hits"
            ));
        }
        if self.ledger.mixes_removed() {
            missing.push(format!(
                "which of two files had a number: more than {REMOVED_MAX} were removed, and those \
                 that get their numbers from then on stand under their names"
            ));
        }
        let total = self.between(&self.begun, &self.mark_now());
        let layers = layers::all(&self.ledger);
        let mut watch = Watch {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            started_at: self.started_at.clone(),
            scope: self.scope.describe(),
            kernel: machine::machine().kernel,
            page_bytes: residency::page_bytes(),
            missing,
            events: self.source.as_ref().map_or(0, Source::events),
            own_cpu_ns: cpu_ns().saturating_sub(self.cpu_begun_ns),
            own_memory_bytes: proc::field(&status, "VmHWM").unwrap_or(0) * 1024,
            intervals: self.intervals.clone(),
            total,
            layers,
            means: self.means().unwrap_or_default(),
            findings: Vec::new(),
        };
        watch.findings = findings::find(&(&watch).into());
        watch
    }
}
