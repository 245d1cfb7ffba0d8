//! Recording of this machine's requests into a trace, for `larder trace record` and `larder size
//! --live`.
//!
//! Each file is a volume, since offsets are relative to a file. Names are written at the end, when
//! all that can be resolved are known. Sampling selects pages by a hash of the file and the page
//! number, so that all references to a sampled page are kept.

use crate::signals::Stop;
use anyhow::{Context, Result, ensure};
use larder_core::counters::Class;
use larder_host::watch::{Options, Reference, STEP, WatchScope, Watcher};
use larder_lab::trace::ltr::{Writer, WriterOptions};
use larder_lab::trace::{LEN_MAX, NameKind, Op, Record};
use larder_schema::watch::Watch;
use std::collections::HashMap;
use std::io::Write;
use std::num::NonZero;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

/// Interval at which pending records are written as a block.
const CUT: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(crate) struct RecordOptions {
    pub(crate) scope: WatchScope,
    /// Duration; `None` records until a signal.
    pub(crate) time: Option<Duration>,
    /// Sampling divisor: one page of this many is recorded.
    pub(crate) sample: NonZero<u32>,
}

/// Result of a recording.
#[derive(Debug)]
pub(crate) struct RecordedTrace {
    /// Requests in the trace; pages if it is sampled.
    pub(crate) requests: u64,
    /// Files in the trace.
    pub(crate) volumes: usize,
    /// Further observations of the watcher.
    pub(crate) watch: Watch,
}

/// Maps numbers of the watcher to numbers of the trace.
#[derive(Debug, Default)]
struct IdMap(HashMap<u32, u32>);

impl IdMap {
    fn of(&mut self, watcher_id: u32) -> u32 {
        let next = u32::try_from(self.0.len()).expect("no more than there are known ones");
        *self.0.entry(watcher_id).or_insert(next)
    }
}

struct Recorder<W: Write> {
    writer: Writer<W>,
    page_bytes: u64,
    sample: u64,
    volumes: IdMap,
    processes: IdMap,
    requests: u64,
}

/// Returns true if a sample of one in `every` includes a page.
fn is_sampled(file: u32, page: u64, every: u64) -> bool {
    // The finalizer of SplitMix64, which mixes all bits.
    let mut mixed = (u64::from(file) << 40) ^ page;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)).is_multiple_of(every)
}

fn class(reference: &Reference) -> u8 {
    let pages = reference.misses + reference.ahead;
    match (reference.write, reference.misses, pages) {
        // For a write the kernel reports the request, not whether the page was dirty.
        (true, ..) => 0,
        (false, 0, 0) => Class::ReadHit.number(),
        (false, 0, _) => Class::ReadAheadHit.number(),
        (false, ..) => Class::ReadMiss.number(),
    }
}

impl<W: Write> Recorder<W> {
    fn append(&mut self, time_ns: u64, reference: &Reference) -> Result<()> {
        let record = Record {
            time_ns,
            offset: reference.offset,
            len: reference.bytes.min(LEN_MAX),
            volume: self.volumes.of(reference.file),
            process: self.processes.of(reference.process) + 1,
            op: if reference.write { Op::Write } else { Op::Read },
            class: class(reference),
            ..Record::default()
        };
        if self.sample == 1 {
            self.requests += 1;
            return Ok(self.writer.append(&[record])?);
        }
        let first = record.offset / self.page_bytes;
        let end = (record.offset + record.len).div_ceil(self.page_bytes);
        for page in (first..end).filter(|&page| is_sampled(reference.file, page, self.sample)) {
            self.requests += 1;
            let offset = page * self.page_bytes;
            self.writer.append(&[Record { offset, len: self.page_bytes, ..record }])?;
        }
        Ok(())
    }
}

/// Records requests into `to`.
pub(crate) fn record<W: Write>(
    plan: &RecordOptions,
    stop: &Stop,
    to: W,
) -> Result<(RecordedTrace, W)> {
    let options =
        Options { wanted: plan.scope.clone(), references_only: true, ..Options::default() };
    let mut watcher = Watcher::start(options)?;
    ensure!(
        watcher.sees_events(),
        "record requests of this machine: {}",
        watcher.missing().join("; ")
    );
    for sentence in watcher.missing() {
        eprintln!("missing: {sentence}");
    }
    eprintln!("watching {}", watcher.describe());
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let begun_unix_ns = u64::try_from(unix.as_nanos()).unwrap_or(0);
    let sample = plan.sample.get();
    let options = WriterOptions { begun_unix_ns, sample, ..WriterOptions::default() };
    let writer = Writer::new(to, options).context("write the trace")?;
    let mut recorder = Recorder {
        writer,
        page_bytes: larder_host::residency::page_bytes(),
        sample: sample.into(),
        volumes: IdMap::default(),
        processes: IdMap::default(),
        requests: 0,
    };
    let (started, mut cut) = (Instant::now(), Duration::ZERO);
    let (mut first, mut references) = (None, Vec::new());
    let length = plan.time.unwrap_or(Duration::MAX);
    let mut running = true;
    while running {
        running = started.elapsed() < length && !stop.flag().load(Ordering::Acquire);
        if running {
            std::thread::sleep(STEP.min(length.saturating_sub(started.elapsed())));
            watcher.step(|time, reference| references.push((time, *reference)))?;
        } else {
            watcher.stop(|time, reference| references.push((time, *reference)))?;
        }
        for (time, reference) in references.drain(..).filter(|(_, it)| watcher.has(it)) {
            let first = *first.get_or_insert(time);
            recorder.append(time.saturating_sub(first), &reference).context("write the trace")?;
        }
        if started.elapsed() >= cut + CUT {
            cut = started.elapsed();
            recorder.writer.cut().context("write the trace")?;
        }
    }
    let watch = watcher.result();
    let Recorder { mut writer, volumes, processes, requests, .. } = recorder;
    for (watcher_id, number) in &volumes.0 {
        let name = watcher.name_of(*watcher_id);
        writer.name(NameKind::Volume, *number, &name).context("write the trace")?;
    }
    for (watcher_id, number) in &processes.0 {
        let process = watcher.process(*watcher_id);
        let name = format!("{} {}", process.name, process.pid);
        writer.name(NameKind::Process, number + 1, &name).context("write the trace")?;
    }
    writer.lost(watch.total.lost_events);
    let to = writer.finish().context("write the trace")?;
    Ok((RecordedTrace { requests, volumes: volumes.0.len(), watch }, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_holds_its_share_of_the_pages_of_every_file() {
        for file in [0, 1, 77] {
            let held = (0..100_000).filter(|&page| is_sampled(file, page, 16)).count();
            assert!(held.abs_diff(6250) < 300, "{held} of file {file}");
        }
        assert!(is_sampled(3, 9, 1));
    }

    #[test]
    fn the_worst_page_of_a_request_is_its_class() {
        let read = |misses, ahead| Reference {
            file: 0,
            process: 0,
            offset: 0,
            bytes: 4096,
            write: false,
            misses,
            ahead,
        };
        let classes = [read(0, 0), read(0, 1), read(2, 1)].map(|it| class(&it));
        let known = [Class::ReadHit, Class::ReadAheadHit, Class::ReadMiss].map(Class::number);
        assert_eq!(classes, known);
        assert_eq!(class(&Reference { write: true, ..read(0, 0) }), 0);
    }
}
