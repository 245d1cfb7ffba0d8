//! Lookups that the kernel counts, reporting individually only those whose order matters.
//!
//! Reporting a lookup is expensive, compared to the lookup itself, and most lookups find pages
//! that were resident before: for these only their number matters. A BPF program at the tracepoint
//! counts them by thread and file; [`program`] defines the condition. A second program reports
//! added pages; tracefs reports all other events. Both sources use the same clock, and the reader
//! merges their records by time.
//!
//! Invariants: counts are the same as if every lookup had been reported; unreported events are
//! counted as lost; the kernel removes programs, maps and memory when this process ends for
//! whatever reason.

mod program;

use super::event::{Event, Key};
use super::lookup::{FileId, ProcessId};
use crate::bpf::{Ring, Types, map_types};
use crate::syscall::bpf::{self, MMAPABLE, Map, MapSpec, NO_PREALLOC, SharedMemory};
use crate::tracefs::{Field, now_ns};
use program::{COUNTS_BYTES, FILES_MAX, Maps, PAIRS_MAX, STATE_BYTES};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// Number of requests of a process to a file after which the pair gets a counter.
const REQUESTS_MIN: u64 = 8;
/// Size of the verifier's log.
const LOG_BYTES: usize = 1 << 20;

/// Lookups of a thread that the kernel counted since the thread's previous record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnreportedLookups {
    /// Number of lookups; if 0, the other fields are undefined.
    pub(crate) count: u32,
    /// The last of these lookups.
    pub(crate) key: Key,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Number of consecutive requests that each started at the end of the previous one, and pages
    /// of the last one.
    pub(crate) in_order: u32,
    pub(crate) pages: u64,
}

/// Requests that the kernel counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelCounts {
    pub(crate) requests: u64,
    /// Pages of the requests, all of them hits.
    pub(crate) pages: u64,
    /// Pages of requests that started at the end of the previous one.
    pub(crate) in_order: u64,
}

#[derive(Clone, Copy, Debug)]
struct CountedFile {
    id: FileId,
    key: Key,
    /// Time from which on the kernel records page additions.
    since_ns: u64,
    pairs: u32,
}

#[derive(Clone, Copy, Debug)]
struct CountedPair {
    file: FileId,
    process: ProcessId,
    /// Slot of the file.
    slot: u32,
    /// Counts that were already taken.
    taken: KernelCounts,
}

/// Counts of a process's requests to a file.
pub(super) type Counted = (FileId, ProcessId, KernelCounts);

/// Numbered slots, reused after they are freed.
#[derive(Debug)]
struct Slots<T> {
    all: Vec<Option<T>>,
    free: Vec<u32>,
    max: u32,
}

impl<T> Slots<T> {
    /// Allocates an unused slot; returns `None` if there are `max` slots in use.
    fn allocate(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let number = u32::try_from(self.all.len()).ok().filter(|it| *it < self.max)?;
            self.all.push(None);
            Some(number)
        })
    }

    fn at(&mut self, number: u32) -> &mut Option<T> {
        &mut self.all[usize::try_from(number).expect("numbers are places")]
    }

    /// Returns the slots in use, with their numbers.
    fn used(&self) -> impl Iterator<Item = (u32, &T)> {
        (0_u32..).zip(&self.all).filter_map(|(number, slot)| Some((number, slot.as_ref()?)))
    }
}

/// The BPF programs, their maps, and the allocation of counters.
#[derive(Debug)]
pub(crate) struct KernelProbe {
    maps: Maps,
    /// Values of the maps of the same names.
    states: SharedMemory,
    counts: SharedMemory,
    programs: Vec<OwnedFd>,
    _links: Vec<OwnedFd>,
    file_slots: Slots<CountedFile>,
    /// Slot 0 counts lost records.
    pair_slots: Slots<CountedPair>,
    by_file: HashMap<Key, u32>,
    by_thread: super::Map<u32, HashMap<Key, u32>>,
    /// True if each lookup is reported, because the caller needs every request.
    reports_all: bool,
    /// Number of requests that the kernel counted.
    pub(super) requests: u64,
    /// True if a file received a slot since the last query.
    has_new_files: bool,
}

/// Decodes a record of one of the programs: thread, counted lookups, event. Returns `None` for a
/// record of tracefs.
pub(crate) fn decode(record: &[u8]) -> Option<(u32, UnreportedLookups, Event)> {
    let field = |offset: i16, size| Field { offset: offset.unsigned_abs().into(), size };
    let word = |offset| field(offset, 4).word(record);
    let wide = |offset| field(offset, 8).unsigned(record);
    let (id, kind) = (field(0, 2).unsigned(record), field(program::KIND, 2).unsigned(record));
    let bytes = usize::try_from(program::RECORD_BYTES).expect("small");
    if record.len() != bytes || id != u64::from(program::RECORD_ID) {
        return None;
    }
    let key = Key { dev: word(program::DEV), ino: wide(program::INO) };
    let (first, last) = (wide(program::FIRST), wide(program::LAST));
    let event = if kind == u64::from(program::PAGE_ADDED) {
        Event::Add { key, first, order: u32::try_from(last).unwrap_or(0) }
    } else {
        Event::Lookup { key, first, last, last_in_file: Some(wide(program::LAST_IN_FILE)) }
    };
    let skipped = UnreportedLookups {
        count: word(program::SKIPPED),
        key: Key { dev: word(program::PREVIOUS_DEV), ino: wide(program::PREVIOUS_INO) },
        first: wide(program::PREVIOUS_FIRST),
        last: wide(program::PREVIOUS_LAST),
        in_order: word(program::PREVIOUS_IN_ORDER),
        pages: wide(program::PREVIOUS_PAGES),
    };
    Some((word(program::THREAD), skipped, event))
}

/// Returns the key of a file in the maps; `thread` is 0 in the map of files.
fn map_key(key: Key, thread: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&key.ino.to_le_bytes());
    bytes[8..12].copy_from_slice(&key.dev.to_le_bytes());
    bytes[12..].copy_from_slice(&thread.to_le_bytes());
    bytes
}

fn word_index(slot: u32, bytes: u32) -> usize {
    usize::try_from(slot * (bytes / 8)).expect("a small array")
}

fn array(value_bytes: u32) -> io::Result<(Map, SharedMemory)> {
    let (kind, flags) = (bpf::ARRAY, MMAPABLE);
    let spec = MapSpec { kind, key_bytes: 4, value_bytes, entries: 1, flags };
    let map = Map::create(spec, None)?;
    let memory = map.map_memory(0, usize::try_from(value_bytes).expect("small"), true)?;
    Ok((map, memory))
}

fn hash(entries: u32) -> io::Result<Map> {
    let (kind, flags) = (bpf::HASH, NO_PREALLOC);
    Map::create(MapSpec { kind, key_bytes: 16, value_bytes: 8, entries, flags }, None)
}

fn threads() -> io::Result<Map> {
    let (types, key, value) = map_types(program::THREAD_WORDS);
    let types = bpf::load_types(&types)?;
    let (kind, flags) = (bpf::THREADS, NO_PREALLOC);
    let value_bytes = program::THREAD_WORDS * 8;
    let spec = MapSpec { kind, key_bytes: 4, value_bytes, flags, ..MapSpec::default() };
    Map::create(spec, Some((&types, key, value)))
}

/// Creates the maps; also returns the memory of the states and of the counts.
fn make_maps(ring_bytes: u64) -> io::Result<(Maps, SharedMemory, SharedMemory)> {
    let (states, state_values) = array(FILES_MAX * STATE_BYTES)?;
    let (counts, count_values) = array(PAIRS_MAX * COUNTS_BYTES)?;
    let (pairs, files, ring) = (hash(PAIRS_MAX)?, hash(FILES_MAX)?, Ring::make(ring_bytes)?);
    let maps = Maps { threads: threads()?, pairs, files, states, counts, ring };
    Ok((maps, state_values, count_values))
}

/// Loads a program; if the kernel refuses, the error contains the last line of the verifier's log.
fn load(code: &[u64], tracepoint: u32) -> Result<OwnedFd, String> {
    let error = match bpf::load_program(code, tracepoint, &mut []) {
        Ok(program) => return Ok(program),
        Err(error) => error,
    };
    if error.kind() == io::ErrorKind::PermissionDenied {
        return Err(refused(&error));
    }
    let mut log = vec![0; LOG_BYTES];
    drop(bpf::load_program(code, tracepoint, &mut log));
    let log_text = String::from_utf8_lossy(&log);
    let mut lines = log_text.trim_end_matches(['\0', '\n']).lines().rev();
    let last = lines.find(|line| !line.starts_with("processed ")).unwrap_or_default();
    Err(format!("the kernel refuses the program: {error}: {last}"))
}

fn refused(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "programs in the kernel are for root (CAP_BPF and CAP_PERFMON)".to_owned()
        }
        _ => format!("the kernel refuses: {error}"),
    }
}

impl KernelProbe {
    /// Loads and attaches the programs, which write their records to a ring of about `ring_bytes`.
    /// `dev` and `ino` restrict them to one device or file; with `reports_all` they report each
    /// lookup.
    ///
    /// # Errors
    /// A part of a sentence that states the reason.
    pub(crate) fn start(
        ring_bytes: u64,
        (dev, ino): (Option<u32>, Option<u64>),
        reports_all: bool,
    ) -> Result<KernelProbe, String> {
        if cfg!(not(all(target_endian = "little", target_pointer_width = "64"))) {
            return Err("only little-endian processors of 64 bits are known".to_owned());
        }
        let types = Types::read().map_err(|error| error.to_string())?;
        let refused = |error: io::Error| refused(&error);
        let (maps, states, counts) = make_maps(ring_bytes).map_err(refused)?;
        let filter = program::FileFilter { dev, ino };
        // Recording of page additions must start before the first lookup is counted.
        let tracepoints = [
            ("btf_trace_mm_filemap_add_to_page_cache", program::page_added(&types, &maps, filter)),
            ("btf_trace_mm_filemap_get_pages", program::looked_up(&types, &maps, filter)),
        ];
        let (mut programs, mut links) = (Vec::new(), Vec::new());
        for (tracepoint, code) in tracepoints {
            let tracepoint = types.typedef(tracepoint).map_err(|error| error.to_string())?;
            programs.push(load(&code.map_err(|error| error.to_string())?, tracepoint)?);
        }
        for program in &programs {
            links.push(bpf::attach(program).map_err(refused)?);
        }
        Ok(KernelProbe {
            maps,
            states,
            counts,
            programs,
            _links: links,
            file_slots: Slots { all: Vec::new(), free: Vec::new(), max: FILES_MAX },
            pair_slots: Slots { all: vec![None], free: Vec::new(), max: PAIRS_MAX },
            by_file: HashMap::new(),
            by_thread: super::Map::default(),
            reports_all,
            requests: 0,
            has_new_files: false,
        })
    }

    /// Passes on the available records, with their times.
    pub(crate) fn records(&mut self, put: &mut dyn FnMut(u64, &[u8])) {
        let mut bytes: Vec<u8> = Vec::new();
        self.maps.ring.drain(|words| {
            bytes.clear();
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            let time = usize::try_from(program::TIME / 8).expect("small");
            put(words.get(time).copied().unwrap_or(0), &bytes);
        });
    }

    /// Returns the number of events that the programs could not report.
    pub(crate) fn lost(&self) -> u64 {
        let runs = self.programs.iter().map(|program| bpf::missed_runs(program).unwrap_or(0));
        self.counts.read(0, Ordering::Relaxed) + runs.sum::<u64>()
    }

    /// Considers a reported lookup for a counter; its process has made `requests` requests to this
    /// file.
    pub(crate) fn consider_counter(
        &mut self,
        thread: u32,
        key: Key,
        (file, process): (FileId, ProcessId),
        requests: u64,
    ) {
        let known = self.by_thread.get(&thread).is_some_and(|pairs| pairs.contains_key(&key));
        if known || self.reports_all || requests < REQUESTS_MIN {
            return;
        }
        let Some(slot) = self.slot_of(key, file) else { return };
        let Some(pair) = self.pair_slots.allocate() else { return };
        let taken = self.counted(pair);
        let mut value = [0; 8];
        value[..4].copy_from_slice(&pair.to_le_bytes());
        value[4..].copy_from_slice(&slot.to_le_bytes());
        if self.maps.pairs.put(&map_key(key, thread), &value).is_err() {
            self.pair_slots.free.push(pair);
            self.release(slot);
            return;
        }
        *self.pair_slots.at(pair) = Some(CountedPair { file, process, slot, taken });
        self.by_thread.entry(thread).or_default().insert(key, pair);
        if let Some(of) = self.file_slots.at(slot) {
            of.pairs += 1;
        }
    }

    /// Returns the slot of a file; allocates one if it has none.
    fn slot_of(&mut self, key: Key, file: FileId) -> Option<u32> {
        if let Some(&slot) = self.by_file.get(&key) {
            return Some(slot);
        }
        let slot = self.file_slots.allocate()?;
        // Different values of the two words disable counting until all earlier page additions are
        // processed.
        let at = word_index(slot, STATE_BYTES);
        let last_added = self.states.read(at, Ordering::Acquire);
        self.states.write(at + 1, last_added.wrapping_add(1), Ordering::Release);
        let mut value = [0; 8];
        value[..4].copy_from_slice(&slot.to_le_bytes());
        if self.maps.files.put(&map_key(key, 0), &value).is_err() {
            self.file_slots.free.push(slot);
            return None;
        }
        let counted = CountedFile { id: file, key, since_ns: now_ns(), pairs: 0 };
        *self.file_slots.at(slot) = Some(counted);
        self.by_file.insert(key, slot);
        self.has_new_files = true;
        Some(slot)
    }

    /// Frees the slot of a file that no pair uses.
    fn release(&mut self, slot: u32) {
        let unused = self.file_slots.at(slot).filter(|file| file.pairs == 0);
        if let Some(file) = unused
            && self.maps.files.remove(&map_key(file.key, 0)).is_ok()
        {
            self.by_file.remove(&file.key);
            *self.file_slots.at(slot) = None;
            self.file_slots.free.push(slot);
        }
    }

    /// Enables counting in the kernel for files without fresh pages. All events before `until_ns`
    /// have been processed.
    pub(crate) fn settle(&mut self, until_ns: u64, none_fresh: impl Fn(FileId) -> bool) {
        for (slot, file) in self.file_slots.used() {
            let at = word_index(slot, STATE_BYTES);
            let last_added = self.states.read(at, Ordering::Acquire);
            let settled = self.states.read(at + 1, Ordering::Relaxed);
            if last_added != settled
                && last_added.max(file.since_ns) < until_ns
                && none_fresh(file.id)
            {
                self.states.write(at + 1, last_added, Ordering::Release);
            }
        }
    }

    /// Returns true if a file received a slot since the last call.
    pub(crate) fn has_new_files(&mut self) -> bool {
        std::mem::take(&mut self.has_new_files)
    }

    fn counted(&self, pair: u32) -> KernelCounts {
        let at = word_index(pair, COUNTS_BYTES);
        let [requests, pages, in_order] =
            [at, at + 1, at + 2].map(|at| self.counts.read(at, Ordering::Relaxed));
        KernelCounts { requests, pages, in_order }
    }

    /// Returns the counts of a pair since the last call, if there are any.
    fn take_pair(&mut self, number: u32) -> Option<Counted> {
        let now = self.counted(number);
        let pair = self.pair_slots.at(number).as_mut()?;
        let counted = KernelCounts {
            requests: now.requests - pair.taken.requests,
            pages: now.pages - pair.taken.pages,
            in_order: now.in_order - pair.taken.in_order,
        };
        pair.taken = now;
        self.requests += counted.requests;
        (counted != KernelCounts::default()).then_some((pair.file, pair.process, counted))
    }

    fn take_pairs(&mut self, wanted: impl Fn(&CountedPair) -> bool) -> Vec<Counted> {
        let numbers = self.pair_slots.used().filter(|(_, pair)| wanted(pair));
        let numbers: Vec<u32> = numbers.map(|(number, _)| number).collect();
        numbers.into_iter().filter_map(|number| self.take_pair(number)).collect()
    }

    /// Returns the counts since the last call.
    pub(crate) fn take(&mut self) -> Vec<Counted> {
        self.take_pairs(|_| true)
    }

    /// Does the same for one thread and file.
    pub(crate) fn take_thread(&mut self, thread: u32, key: Key) -> Option<Counted> {
        let pair = *self.by_thread.get(&thread)?.get(&key)?;
        self.take_pair(pair)
    }

    /// Handles the removal of a file whose number belongs to `next` from now on: takes its counts
    /// for the last time. These include none of `next`, since the kernel reports a file's added
    /// pages before it counts its lookups.
    pub(crate) fn removed(&mut self, slot: u32, next: FileId) -> Vec<Counted> {
        if let Some(file) = self.file_slots.at(slot) {
            file.id = next;
        }
        let counted = self.take_pairs(|pair| pair.slot == slot);
        let of_it = self.pair_slots.all.iter_mut().flatten().filter(|pair| pair.slot == slot);
        of_it.for_each(|pair| pair.file = next);
        counted
    }

    pub(crate) fn slot(&self, key: Key) -> Option<u32> {
        self.by_file.get(&key).copied()
    }

    /// Handles the end of a thread: takes its counts for the last time.
    pub(crate) fn ended(&mut self, thread: u32) -> Vec<Counted> {
        let mut all = Vec::new();
        for (key, number) in self.by_thread.remove(&thread).unwrap_or_default() {
            all.extend(self.take_pair(number));
            // If the removal fails, the slot stays unused.
            if self.maps.pairs.remove(&map_key(key, thread)).is_err() {
                continue;
            }
            if let Some(pair) = self.pair_slots.at(number).take() {
                if let Some(file) = self.file_slots.at(pair.slot) {
                    file.pairs -= 1;
                }
                self.release(pair.slot);
            }
            self.pair_slots.free.push(number);
        }
        all
    }
}

#[cfg(test)]
mod tests;
