//! What the file cache of this machine does, live: which process reads and writes which file, hit
//! or miss, and who keeps the disks busy. docs/watch.md says how it is found out.
//!
//! * `event`: the events of the kernel that are watched.
//! * `lookup`: hit, read-ahead hit or miss.
//! * `ledger`: counts by file and process.
//! * `tasks`, `names`, `homes`: which process a thread belongs to, what a file is called, which
//!   device it lies on.
//! * `source`: where events come from; `inside`: look-ups that the kernel counts itself.
//! * `scope`: what of the machine is watched.
//! * `readings`: disks and memory.
//! * `missing`: what cannot be seen, and how to get it.
//!
//! Invariants: without events the rest works, and says what is missing; the instance of tracefs is
//! removed when the watcher is dropped; events that the kernel could not keep are counted.

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

/// What each processor's buffer holds at least unless told otherwise: a tenth of a second at a
/// million look-ups per second, while the reader comes back every 20 ms.
pub const BUFFER_KIB: u64 = 8 << 10;
/// And at most, where each look-up is told and processors are few.
pub const BUFFER_KIB_MAX: u64 = 32 << 10;
/// How often [`Watcher::step`] should be called.
pub const STEP: Duration = Duration::from_millis(20);
/// Processes whose memory is told.
const PROCESSES_MAX: usize = 16;
/// Files whose names are looked for at one step.
const NAMES_PER_STEP: usize = 2000;

/// How to watch.
#[derive(Clone, Debug)]
pub struct Options {
    /// What.
    pub wanted: WatchScope,
    /// Memory for events, for each processor; [`BUFFER_KIB`] if nothing is said, or up to
    /// [`BUFFER_KIB_MAX`] where each look-up is told.
    pub buffer_kib: Option<u64>,
    /// Rows of an interval.
    pub rows_max: usize,
    /// Only what requests are needs to be known, not what becomes of them on disks.
    pub references_only: bool,
    /// Whether the kernel counts look-ups itself.
    pub bpf: Bpf,
}

/// Whether look-ups are counted by programs in the kernel, which costs the watched far less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bpf {
    /// Where it can be done.
    #[default]
    Auto,
    /// Or else there is no watching.
    On,
    /// Each is told through tracefs.
    Off,
}

impl Default for Options {
    fn default() -> Self {
        let wanted = WatchScope::Machine;
        Options { wanted, buffer_kib: None, rows_max: 1000, references_only: false, bpf: Bpf::Auto }
    }
}

/// Why watching cannot begin or go on. Every message can follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// What is to be watched is not there.
    #[error("watch {what}: {source}")]
    NotThere {
        /// What.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// The kernel stopped to tell.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The kernel was to count look-ups, and cannot.
    #[error("count look-ups in the kernel: {0}")]
    NoBpf(String),
}

/// Where the last interval ended.
#[derive(Clone, Debug, Default)]
struct Mark {
    time_ns: u64,
    counts: Vec<Counts>,
    unattributed: Unattributed,
    lost: u64,
    readings: Readings,
    splits: Vec<(u32, u64)>,
}

/// Watches, until dropped.
#[derive(Debug)]
pub struct Watcher {
    options: Options,
    scope: Scope,
    /// The group that is watched, where its memory is counted.
    group: Option<Group>,
    source: Option<Source>,
    ledger: Accounting,
    names: Names,
    /// Files whose names were looked for.
    named: usize,
    missing: Vec<String>,
    started_at: String,
    begun: Mark,
    mark: Mark,
    intervals: Vec<Interval>,
    cpu_begun_ns: u64,
    own: u32,
}

/// Processor time of this process, nanoseconds.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Those with most memory of their own, of those that are watched.
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
    /// Begins.
    ///
    /// # Errors
    /// What is to be watched is not there, or the kernel was to count and cannot. Else, that events
    /// cannot be had is no error; see [`Watcher::missing`].
    pub fn start(mut options: Options) -> Result<Watcher, WatchError> {
        let scope = Scope::find(&options.wanted).map_err(|source| {
            let wanted = Scope { wanted: options.wanted.clone(), path: None };
            WatchError::NotThere { what: wanted.describe(), source }
        })?;
        options.wanted = scope.wanted.clone();
        let mut missing: Vec<String> = Vec::new();
        let source = match Source::start(&options, &scope, &mut missing) {
            Ok(source) => Some(source),
            // Who asked for the kernel to count is not served by less.
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

    /// What cannot be seen here, a sentence each.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// What is watched, in a few words.
    #[must_use]
    pub fn describe(&self) -> String {
        self.scope.describe()
    }

    /// How look-ups are learnt of, in a few words; nothing if they are not.
    #[must_use]
    pub fn means(&self) -> Option<String> {
        self.source.as_ref().map(Source::means)
    }

    /// Whether there are events.
    #[must_use]
    pub fn sees_events(&self) -> bool {
        self.source.is_some()
    }

    /// Takes the events that came since; tells each request with its time. To be called every
    /// [`STEP`].
    ///
    /// # Errors
    /// The kernel stopped to tell.
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

    /// Looks for names of files as soon as they are met, while whoever uses them is there.
    fn find_names(&mut self) {
        let counts = self.ledger.counts();
        let new = counts.iter().skip(self.named).take(NAMES_PER_STEP);
        for (file, process, _) in new {
            self.named += 1;
            // Its number may be another one's by now.
            if !self.ledger.is_removed(*file) {
                let pid = self.ledger.tasks().process(*process).pid;
                self.names.find(*file, self.ledger.key(*file), pid);
            }
        }
    }

    /// Looks for the rest of the names in the directories of their file systems. That may take a second
    /// or two, in which nobody reads events, so it is done when they have stopped.
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

    /// The path of a file, or its numbers.
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

    /// Whether a request belongs to what is watched, once the name of its file is known.
    #[must_use]
    pub fn has(&self, reference: &Reference) -> bool {
        self.chosen(reference.file, reference.process)
    }

    fn chosen(&self, file: FileId, process: ProcessId) -> bool {
        let process = self.ledger.tasks().process(process);
        if self.scope.by_process() {
            return process.watched;
        }
        // One file is watched, and not who has its number after it.
        let is_other = self.scope.is_file() && self.ledger.is_second(file);
        // What we write ourselves is nobody's business, unless it is the file in question.
        !is_other
            && self.scope.has_file(self.ledger.key(file), self.names.get(file))
            && (process.pid != self.own || self.scope.path.is_some())
    }

    /// A process by our number.
    #[must_use]
    pub fn process(&self, process: ProcessId) -> &Process {
        self.ledger.tasks().process(process)
    }

    /// Ends an interval and begins the next one.
    pub fn interval(&mut self) -> &Interval {
        self.take_counted();
        // Where this one ends the next one begins, also for what happens while it is told.
        let now = self.mark_now();
        let interval = self.between(&self.mark, &now);
        self.mark = now;
        self.ledger.forget_homes();
        self.names.forget_homes();
        self.intervals.push(interval);
        self.intervals.last().expect("just pushed")
    }

    /// Forgets the intervals that have been told; the result lacks them.
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

    /// Events that the kernel could not keep, as buffers say.
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
            // Groups do not all tell, and events do.
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

    /// Stops and takes what is left.
    ///
    /// # Errors
    /// The kernel stopped to tell.
    pub fn stop(&mut self, each: impl FnMut(u64, &Reference)) -> Result<(), WatchError> {
        if let Some(source) = &self.source {
            source.pause()?;
        }
        self.read(true, each)?;
        self.take_counted();
        self.find_rest();
        Ok(())
    }

    /// Everything since the beginning.
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
