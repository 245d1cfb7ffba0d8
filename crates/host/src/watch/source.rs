//! Sources of events: tracefs, and BPF programs that count lookups in the kernel.
//!
//! Invariants: records are passed on in the order of their times, from either source; losses in
//! either source are counted; the list of missing information is complete after the start.

use super::accounting::{Accounting, Reference};
use super::event::{Decoder, EVENTS, Event, EventPurpose, EventRequest};
use super::kernel_probe::{self, KernelProbe};
use super::scope::Scope;
use super::{BUFFER_KIB, BUFFER_KIB_MAX, Bpf, Options, WatchError, missing};
use crate::bpf::Types;
use crate::machine;
use crate::tracefs::{COMPLETION_TIME, Instance, Reader, TraceError, Tracefs};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Events that the BPF programs report in place of tracefs.
const BPF_EVENTS: [&str; 2] =
    ["filemap/mm_filemap_get_pages", "filemap/mm_filemap_add_to_page_cache"];

/// Maximum number of processors whose buffers add up to the ring's size.
const RING_PROCESSORS_MAX: u32 = 8;

/// Time after which a call reads no further pass: events may come as fast as they are read, and the
/// caller looks at requests to stop between the calls.
const READ_TIME_MAX: Duration = Duration::from_millis(100);

/// Default total size of the trace buffers if each lookup is an event; see [`buffer_kib`].
const TOTAL_BUFFER_KIB: u64 = 64 << 10;

/// Returns the size of each processor's trace buffer. If each lookup is an event, a machine with
/// few processors gets larger buffers: a lookup fills about 60 bytes, and a virtual machine may
/// stand still for half a second.
fn buffer_kib(options: &Options, reports_each: bool) -> u64 {
    let processors = u64::from(machine::machine().cores.max(1));
    options.buffer_kib.unwrap_or(if reports_each {
        (TOTAL_BUFFER_KIB / processors).clamp(BUFFER_KIB, BUFFER_KIB_MAX)
    } else {
        BUFFER_KIB
    })
}

/// A source of events. The reader is dropped first, since the kernel does not remove an open
/// instance.
#[derive(Debug)]
pub(super) struct Source {
    reader: Reader,
    decoder: Decoder,
    instance: Instance,
    _tracefs: Tracefs,
    /// The programs that count lookups, or the reason why the kernel does not run them.
    probe: Result<KernelProbe, String>,
    events: u64,
}

/// Returns true for events at the rate of lookups, which need the narrowest possible filter.
fn is_hot(purpose: EventPurpose) -> bool {
    matches!(purpose, EventPurpose::Lookups | EventPurpose::Mappings | EventPurpose::Writes)
}

/// Returns true for kinds of information that requests depend on.
fn is_for_references(purpose: EventPurpose) -> bool {
    !matches!(
        purpose,
        EventPurpose::Writeback
            | EventPurpose::Throttle
            | EventPurpose::Reclaim
            | EventPurpose::Physical
            | EventPurpose::AccessTimes
    )
}

/// Returns the filter for inodes that become dirty and were clean, with clean pages. The state bits
/// differ between kernels; returns `None` if the kernel does not publish them.
fn inode_filter() -> Option<String> {
    let types = Types::read().ok()?;
    let state = |name| types.enumerator("inode_state_flags_t", name).ok();
    let sync = state("I_DIRTY_SYNC")?;
    let all = sync | state("I_DIRTY_DATASYNC")? | state("I_DIRTY_PAGES")?;
    Some(format!("flags & {sync} && !(state & {all})"))
}

fn start_probe(options: &Options, scope: &Scope, tracefs: &Tracefs) -> Result<KernelProbe, String> {
    if !cfg!(feature = "bpf") {
        return Err("this program was built without (feature bpf)".to_owned());
    }
    if options.bpf == Bpf::Off {
        return Err("as was asked for".to_owned());
    }
    if let Some(unavailable) = BPF_EVENTS.iter().find(|event| !tracefs.has(event)) {
        return Err(format!("this kernel has no event {unavailable}"));
    }
    // One ring serves all processors. Its size is the sum of their buffers up to a limit, since the
    // programs only count most lookups.
    let processors = machine::machine().cores.clamp(1, RING_PROCESSORS_MAX);
    let each = buffer_kib(options, options.references_only);
    let ring = each.saturating_mul(1024).saturating_mul(processors.into());
    KernelProbe::start(ring, scope.files(), options.references_only)
}

impl Source {
    /// Starts recording. Appends the unavailable kinds of information to `missing`.
    pub(super) fn start(
        options: &Options,
        scope: &Scope,
        missing: &mut Vec<String>,
    ) -> Result<Source, WatchError> {
        let tracefs = Tracefs::open()?;
        let probe = start_probe(options, scope, &tracefs);
        if let (Bpf::On, Err(reason)) = (options.bpf, &probe) {
            return Err(WatchError::NoBpf(reason.clone()));
        }
        let instance = Instance::make(&tracefs, buffer_kib(options, probe.is_err()))?;
        let mut decoder = Decoder::default();
        let wanted =
            EVENTS.iter().filter(|it| !options.references_only || is_for_references(it.purpose));
        let (available, unavailable): (Vec<&EventRequest>, Vec<_>) =
            wanted.partition(|event| tracefs.has(event.name));
        for event in &available {
            if probe.is_ok() && BPF_EVENTS.contains(&event.name) {
                continue;
            }
            decoder.register(event, &tracefs.format(event.name)?);
            let filter = match event.purpose {
                EventPurpose::AccessTimes => inode_filter(),
                EventPurpose::Cgroups => scope.join_filter(),
                purpose => Some(scope.filter(event.file_fields, is_hot(purpose))),
            };
            if let Some(filter) = filter {
                instance.enable(event.name, &filter)?;
            }
        }
        let lacks = |purpose| available.iter().all(|event| event.purpose != purpose);
        let lacking: BTreeSet<EventPurpose> =
            unavailable.iter().map(|event| event.purpose).filter(|it| lacks(*it)).collect();
        let kernel = machine::machine().kernel;
        missing
            .extend(lacking.into_iter().filter_map(|purpose| missing::purpose(purpose, &kernel)));
        let reader = Reader::open(&tracefs, &instance)?;
        instance.record(true)?;
        Ok(Source { reader, decoder, instance, _tracefs: tracefs, probe, events: 0 })
    }

    /// Describes the source of lookups.
    pub(super) fn means(&self) -> String {
        match &self.probe {
            Ok(_) => "lookups counted in the kernel (BPF)".to_owned(),
            Err(reason) => {
                format!("lookups through tracefs, not counted in the kernel: {reason}")
            }
        }
    }

    /// Reads the available events into `accounting`; passes each request with its time to `each`.
    /// With `all` it reads every event, for use after recording has stopped; otherwise the rest
    /// stays for the next call after [`READ_TIME_MAX`].
    pub(super) fn read(
        &mut self,
        all: bool,
        accounting: &mut Accounting,
        each: &mut impl FnMut(u64, &Reference),
    ) -> Result<(), TraceError> {
        accounting.start_round();
        self.read_passes(all, accounting, each)?;
        if self.settle(accounting) {
            // Lookups of new files with counters are still reported until the next settlement, so
            // it follows soon.
            std::thread::sleep(2 * COMPLETION_TIME);
            self.read_passes(all, accounting, each)?;
            self.settle(accounting);
        }
        Ok(())
    }

    /// Enables counting in the kernel where no page is fresh. Returns true if a file received
    /// counters since the last call; its earlier page additions must be processed before counting
    /// starts.
    fn settle(&mut self, accounting: &Accounting) -> bool {
        let Ok(probe) = &mut self.probe else { return false };
        probe.settle(self.reader.until_ns, |file| accounting.lookups.none_fresh(file));
        probe.has_new_files()
    }

    fn read_passes(
        &mut self,
        all: bool,
        accounting: &mut Accounting,
        each: &mut impl FnMut(u64, &Reference),
    ) -> Result<(), TraceError> {
        let end = Instant::now() + READ_TIME_MAX;
        while self.read_pass(all, accounting, each)? && (all || Instant::now() < end) {}
        Ok(())
    }

    fn read_pass(
        &mut self,
        all: bool,
        accounting: &mut Accounting,
        each: &mut impl FnMut(u64, &Reference),
    ) -> Result<bool, TraceError> {
        let (decoder, events) = (&self.decoder, &mut self.events);
        let probe = RefCell::new(self.probe.as_mut().ok());
        let others = |put: &mut dyn FnMut(u64, &[u8])| {
            if let Some(probe) = probe.borrow_mut().as_mut() {
                probe.records(put);
            }
        };
        self.reader.read_with(all, others, |time, record| {
            *events += 1;
            accounting.now_ns = time;
            let reference = match decoder.lookup(record) {
                Some(lookup) => accounting.looked_up(&lookup),
                None => {
                    process_record(decoder, probe.borrow_mut().as_deref_mut(), accounting, record)
                }
            };
            if let Some(reference) = reference {
                each(time, &reference);
            }
        })
    }

    pub(super) fn collect_counts(&mut self, accounting: &mut Accounting) {
        if let Ok(probe) = &mut self.probe {
            accounting.counted(probe.take());
        }
    }

    /// Returns the number of events that the kernel dropped, according to its buffers.
    pub(super) fn lost(&self) -> u64 {
        self.instance.lost() + self.probe.as_ref().map_or(0, KernelProbe::lost)
    }

    /// Returns the number of reported events and of lookups counted in the kernel.
    pub(super) fn events(&self) -> u64 {
        self.events + self.probe.as_ref().map_or(0, |probe| probe.requests)
    }

    pub(super) fn pause(&self) -> Result<(), TraceError> {
        self.instance.record(false)
    }
}

/// Processes a record that is not a lookup of tracefs.
fn process_record(
    decoder: &Decoder,
    probe: Option<&mut KernelProbe>,
    accounting: &mut Accounting,
    record: &[u8],
) -> Option<Reference> {
    let Some(probe) = probe else {
        let (thread, event) = decoder.decode(record)?;
        return accounting.take(thread, event);
    };
    if let Some((thread, skipped, event)) = kernel_probe::decode(record) {
        return process_probe_record(probe, accounting, thread, &skipped, event);
    }
    let (thread, event) = decoder.decode(record)?;
    if let Event::Exit { tid } = event {
        accounting.counted(probe.ended(tid));
    }
    let slot = accounting.frees(thread, event).and_then(|key| Some((key, probe.slot(key)?)));
    let reference = accounting.take(thread, event);
    if let Some((key, slot)) = slot {
        let next = accounting.file_of(key);
        accounting.counted(probe.removed(slot, next));
    }
    reference
}

/// Processes a record of the BPF programs.
fn process_probe_record(
    probe: &mut KernelProbe,
    accounting: &mut Accounting,
    thread: u32,
    skipped: &kernel_probe::UnreportedLookups,
    event: Event,
) -> Option<Reference> {
    accounting.skipped(thread, skipped);
    let Event::Lookup { key, .. } = event else { return accounting.take(thread, event) };
    if skipped.count > 0 {
        // The lookup may turn counted hits into misses, so the hits must be added first.
        accounting.counted(probe.take_thread(thread, key));
    }
    let reference = accounting.take(thread, event)?;
    let requests = accounting.requests(reference.file, reference.process);
    probe.consider_counter(thread, key, (reference.file, reference.process), requests);
    Some(reference)
}
