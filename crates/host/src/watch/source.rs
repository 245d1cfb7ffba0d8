//! Sources of events: tracefs, and BPF programs that count look-ups in the kernel.
//!
//! Invariants: records are passed on in the order of their times, from either source; losses in
//! either source are counted; the list of missing information is complete after the start.

use super::accounting::{Accounting, Reference};
#[cfg(feature = "bpf")]
use super::event::Event;
use super::event::{Decoder, Part, WANTED};
#[cfg(feature = "bpf")]
use super::kernel_probe::{self, KernelProbe};
use super::scope::Scope;
use super::{BUFFER_KIB, BUFFER_KIB_MAX, Bpf, Options, WatchError, missing};
#[cfg(feature = "bpf")]
use crate::bpf::Types;
use crate::machine;
#[cfg(feature = "bpf")]
use crate::tracefs::UNFINISHED;
use crate::tracefs::{Instance, Reader, TraceError, Tracefs};

/// Events that the BPF programs report in place of tracefs.
const INSIDE: [&str; 2] = ["filemap/mm_filemap_get_pages", "filemap/mm_filemap_add_to_page_cache"];

/// Maximum number of processors whose buffers add up to the ring's size.
#[cfg(feature = "bpf")]
const RING_PROCESSORS_MAX: u32 = 8;

/// Default total size of the trace buffers if each look-up is an event; see [`buffer_kib`].
const TOLD_KIB: u64 = 64 << 10;

/// Returns the size of each processor's trace buffer. If each look-up is an event, a machine with
/// few processors gets larger buffers: a look-up fills about 60 bytes, and a virtual machine may
/// stand still for half a second.
fn buffer_kib(options: &Options, each_is_told: bool) -> u64 {
    let processors = u64::from(machine::machine().cores.max(1));
    options.buffer_kib.unwrap_or(if each_is_told {
        (TOLD_KIB / processors).clamp(BUFFER_KIB, BUFFER_KIB_MAX)
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
    #[cfg(feature = "bpf")]
    inside: Option<KernelProbe>,
    /// The reason why the kernel does not count look-ups, if so.
    why_not: Option<String>,
    events: u64,
}

/// Returns true for events at the rate of look-ups, which need the narrowest possible filter.
fn is_hot(part: Part) -> bool {
    matches!(part, Part::Lookups | Part::Mappings | Part::Writes)
}

/// Returns true for kinds of information that requests depend on.
fn is_for_references(part: Part) -> bool {
    !matches!(
        part,
        Part::LazyWrite | Part::Throttle | Part::Reclaim | Part::Physical | Part::AccessTimes
    )
}

/// Returns the filter for inodes that become dirty and were clean, with clean pages. The state bits
/// differ between kernels; returns `None` if the kernel does not publish them.
#[cfg(feature = "bpf")]
fn inodes() -> Option<String> {
    let types = Types::read().ok()?;
    let state = |name| types.enumerator("inode_state_flags_t", name).ok();
    let sync = state("I_DIRTY_SYNC")?;
    let all = sync | state("I_DIRTY_DATASYNC")? | state("I_DIRTY_PAGES")?;
    Some(format!("flags & {sync} && !(state & {all})"))
}

#[cfg(not(feature = "bpf"))]
fn inodes() -> Option<String> {
    None
}

#[cfg(feature = "bpf")]
fn start_inside(
    options: &Options,
    scope: &Scope,
    tracefs: &Tracefs,
) -> Result<KernelProbe, String> {
    if options.bpf == Bpf::Off {
        return Err("as was asked for".to_owned());
    }
    if let Some(lacks) = INSIDE.iter().find(|event| !tracefs.has(event)) {
        return Err(format!("this kernel has no event {lacks}"));
    }
    // One ring serves all processors. Its size is the sum of their buffers up to a limit, since the
    // programs only count most look-ups.
    let processors = machine::machine().cores.clamp(1, RING_PROCESSORS_MAX);
    let each = buffer_kib(options, options.references_only);
    let ring = each.saturating_mul(1024).saturating_mul(processors.into());
    KernelProbe::start(ring, scope.files(), options.references_only)
}

impl Source {
    /// Starts recording. Appends the unavailable kinds of information to `missing`.
    ///
    /// # Errors
    /// Events are not available, or BPF is required and not available.
    pub(super) fn start(
        options: &Options,
        scope: &Scope,
        missing: &mut Vec<String>,
    ) -> Result<Source, WatchError> {
        let tracefs = Tracefs::open()?;
        #[cfg(feature = "bpf")]
        let (inside, why_not) = match start_inside(options, scope, &tracefs) {
            Ok(inside) => (Some(inside), None),
            Err(why) => (None, Some(why)),
        };
        #[cfg(not(feature = "bpf"))]
        let why_not = Some("this program was built without (feature bpf)".to_owned());
        if let (Bpf::On, Some(why)) = (options.bpf, &why_not) {
            return Err(WatchError::NoBpf(why.clone()));
        }
        let instance = Instance::make(&tracefs, buffer_kib(options, why_not.is_some()))?;
        let mut decoder = Decoder::default();
        let kernel = machine::machine().kernel;
        let wanted =
            WANTED.iter().filter(|it| !options.references_only || is_for_references(it.part));
        let mut lacks: Vec<Part> = Vec::new();
        let mut has: Vec<Part> = Vec::new();
        for event in wanted {
            if !tracefs.has(event.name) {
                lacks.push(event.part);
                continue;
            }
            has.push(event.part);
            if why_not.is_none() && INSIDE.contains(&event.name) {
                continue;
            }
            decoder.learn(event, &tracefs.format(event.name)?);
            let filter = scope.filter(event.file_fields, is_hot(event.part));
            let filter = match event.part {
                Part::AccessTimes => inodes(),
                Part::Groups => scope.joins(),
                _ => Some(filter),
            };
            if let Some(filter) = filter {
                instance.enable(event.name, &filter)?;
            }
        }
        lacks.retain(|part| !has.contains(part));
        lacks.sort_unstable();
        lacks.dedup();
        missing.extend(lacks.into_iter().filter_map(|part| missing::part(part, &kernel)));
        let reader = Reader::open(&tracefs, &[&instance])?;
        instance.record(true)?;
        Ok(Source {
            reader,
            decoder,
            instance,
            _tracefs: tracefs,
            #[cfg(feature = "bpf")]
            inside,
            why_not,
            events: 0,
        })
    }

    /// Describes the source of look-ups.
    pub(super) fn means(&self) -> String {
        match &self.why_not {
            None => "look-ups counted in the kernel (BPF)".to_owned(),
            Some(why) => format!("look-ups through tracefs, not counted in the kernel: {why}"),
        }
    }

    /// Reads the available events into `accounting`; passes each request with its time to `each`.
    /// With `all` it reads every event, for use after recording has stopped.
    ///
    /// # Errors
    /// The event source fails.
    pub(super) fn read(
        &mut self,
        all: bool,
        ledger: &mut Accounting,
        each: &mut impl FnMut(u64, &Reference),
    ) -> Result<(), TraceError> {
        ledger.next_round();
        while self.round(all, ledger, each)? {}
        #[cfg(feature = "bpf")]
        if self.settle(ledger) {
            // Look-ups of new files with counters are still reported until the next settlement, so
            // it follows soon.
            std::thread::sleep(2 * UNFINISHED);
            while self.round(all, ledger, each)? {}
            self.settle(ledger);
        }
        Ok(())
    }

    /// Enables counting in the kernel where no page is fresh. Returns true if a file received
    /// counters since the last call; its earlier page additions must be processed before counting
    /// starts.
    #[cfg(feature = "bpf")]
    fn settle(&mut self, ledger: &Accounting) -> bool {
        let Some(inside) = &mut self.inside else { return false };
        inside.settle(self.reader.until_ns(), |file| ledger.none_fresh(file));
        inside.has_begun()
    }

    #[cfg(not(feature = "bpf"))]
    fn round(
        &mut self,
        all: bool,
        ledger: &mut Accounting,
        each: &mut impl FnMut(u64, &Reference),
    ) -> Result<bool, TraceError> {
        let (decoder, events) = (&self.decoder, &mut self.events);
        self.reader.round(all, |time, record| {
            *events += 1;
            ledger.at_time(time);
            let reference = match decoder.lookup(record) {
                Some(lookup) => ledger.looked_up(&lookup),
                None => {
                    decoder.decode(record).and_then(|(thread, event)| ledger.take(thread, event))
                }
            };
            if let Some(reference) = reference {
                each(time, &reference);
            }
        })
    }

    #[cfg(feature = "bpf")]
    fn round(
        &mut self,
        all: bool,
        ledger: &mut Accounting,
        each: &mut impl FnMut(u64, &Reference),
    ) -> Result<bool, TraceError> {
        let (decoder, events) = (&self.decoder, &mut self.events);
        let inside = std::cell::RefCell::new(self.inside.as_mut());
        let others = |put: &mut dyn FnMut(u64, &[u8])| {
            if let Some(inside) = inside.borrow_mut().as_mut() {
                inside.records(put);
            }
        };
        self.reader.round_with(all, others, |time, record| {
            *events += 1;
            ledger.at_time(time);
            let reference = match decoder.lookup(record) {
                Some(lookup) => ledger.looked_up(&lookup),
                None => take_other(decoder, inside.borrow_mut().as_deref_mut(), ledger, record),
            };
            if let Some(reference) = reference {
                each(time, &reference);
            }
        })
    }

    /// Adds the counts of the kernel.
    pub(super) fn take_counted(&mut self, ledger: &mut Accounting) {
        #[cfg(feature = "bpf")]
        if let Some(inside) = &mut self.inside {
            inside.take(|file, process, counted| {
                ledger.counted(file, process, counted);
            });
        }
        #[cfg(not(feature = "bpf"))]
        let _: (&mut Source, &mut Accounting) = (self, ledger);
    }

    /// Returns the number of events that the kernel dropped, according to its buffers.
    pub(super) fn lost(&self) -> u64 {
        let lost = self.instance.losses().events();
        #[cfg(feature = "bpf")]
        let lost = lost + self.inside.as_ref().map_or(0, KernelProbe::lost);
        lost
    }

    /// Returns the number of reported events and of look-ups counted in the kernel.
    pub(super) fn events(&self) -> u64 {
        let events = self.events;
        #[cfg(feature = "bpf")]
        let events = events + self.inside.as_ref().map_or(0, KernelProbe::requests);
        events
    }

    /// Stops recording.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn pause(&self) -> Result<(), TraceError> {
        self.instance.record(false)
    }
}

/// Processes a record that is not a look-up of tracefs.
#[cfg(feature = "bpf")]
fn take_other(
    decoder: &Decoder,
    mut inside: Option<&mut KernelProbe>,
    ledger: &mut Accounting,
    record: &[u8],
) -> Option<Reference> {
    if let Some(inside) = &mut inside
        && let Some((thread, skipped, event)) = kernel_probe::decode(record)
    {
        return take_inside(inside, ledger, thread, &skipped, event);
    }
    let (thread, event) = decoder.decode(record)?;
    let Some(inside) = inside else { return ledger.take(thread, event) };
    if let Event::Exit { tid } = event {
        inside.ended(tid, |file, process, counted| {
            ledger.counted(file, process, counted);
        });
    }
    let slot = ledger.frees(thread, event).and_then(|key| Some((key, inside.slot(key)?)));
    let reference = ledger.take(thread, event);
    if let Some((key, slot)) = slot {
        let next = ledger.file_of(key);
        inside.removed(slot, next, |file, process, counted| {
            ledger.counted(file, process, counted);
        });
    }
    reference
}

/// Processes a record of the BPF programs.
#[cfg(feature = "bpf")]
fn take_inside(
    inside: &mut KernelProbe,
    ledger: &mut Accounting,
    thread: u32,
    skipped: &kernel_probe::Skipped,
    event: Event,
) -> Option<Reference> {
    ledger.skipped(thread, skipped);
    let Event::Lookup { key, .. } = event else { return ledger.take(thread, event) };
    if skipped.count > 0 {
        // The look-up may turn counted hits into misses, so the hits must be added first.
        inside.take_one(thread, key, |file, process, counted| {
            ledger.counted(file, process, counted);
        });
    }
    let reference = ledger.take(thread, event)?;
    let requests = ledger.requests(reference.file, reference.process);
    inside.met(thread, key, (reference.file, reference.process), requests);
    Some(reference)
}
