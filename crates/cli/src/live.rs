//! Requests of this machine into a trace: what `larder trace record` and `larder size --live`
//! share.
//!
//! Each file is a volume of its own, since offsets are those within a file. Names are written at
//! the end, when all are known that can be. A sample holds each page or never, by a hash of its
//! file and its number, so that what is kept is asked for as often as it was.

use crate::signals::Stop;
use anyhow::{Context, Result, ensure};
use larder_core::counters::Class;
use larder_host::watch::{Options, Reference, STEP, WatchScope, Watcher};
use larder_lab::trace::ltr::{Writer, WriterOptions};
use larder_lab::trace::{LEN_MAX, NameOf, Op, Record};
use larder_report::watch::Watch;
use std::collections::HashMap;
use std::io::Write;
use std::num::NonZero;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

/// What is written becomes a block of its own after so long.
const CUT: Duration = Duration::from_secs(1);

/// What to record.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) wanted: WatchScope,
    /// Until a signal, if there is none.
    pub(crate) time: Option<Duration>,
    /// One page of so many.
    pub(crate) sample: NonZero<u32>,
}

/// What was recorded.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// Requests in the trace; of a sample, pages.
    pub(crate) requests: u64,
    /// Files in it.
    pub(crate) volumes: usize,
    /// What was seen besides.
    pub(crate) watch: Watch,
}

/// Numbers of a trace for numbers of the watcher.
#[derive(Debug, Default)]
struct Numbers(HashMap<u32, u32>);

impl Numbers {
    fn of(&mut self, known: u32) -> u32 {
        let next = u32::try_from(self.0.len()).expect("no more than there are known ones");
        *self.0.entry(known).or_insert(next)
    }
}

struct Recorder<W: Write> {
    writer: Writer<W>,
    page_bytes: u64,
    sample: u64,
    volumes: Numbers,
    processes: Numbers,
    requests: u64,
}

/// Whether a sample of one in `every` holds a page.
fn holds(file: u32, page: u64, every: u64) -> bool {
    // The last step of SplitMix64, which has no pattern left.
    let mut mixed = (u64::from(file) << 40) ^ page;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)).is_multiple_of(every)
}

fn class(reference: &Reference) -> u8 {
    let pages = reference.misses + reference.ahead;
    match (reference.write, reference.misses, pages) {
        // Of a write only the request is told, and not whether the page was dirty.
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
        for page in (first..end).filter(|&page| holds(reference.file, page, self.sample)) {
            self.requests += 1;
            let offset = page * self.page_bytes;
            self.writer.append(&[Record { offset, len: self.page_bytes, ..record }])?;
        }
        Ok(())
    }
}

/// Records requests into `to`.
pub(crate) fn record<W: Write>(plan: &Plan, stop: &Stop, to: W) -> Result<(Recorded, W)> {
    let options =
        Options { wanted: plan.wanted.clone(), references_only: true, ..Options::default() };
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
        volumes: Numbers::default(),
        processes: Numbers::default(),
        requests: 0,
    };
    let (begun, mut cut) = (Instant::now(), Duration::ZERO);
    let (mut first, mut came) = (None, Vec::new());
    let length = plan.time.unwrap_or(Duration::MAX);
    let mut going = true;
    while going {
        going = begun.elapsed() < length && !stop.flag().load(Ordering::Acquire);
        if going {
            std::thread::sleep(STEP.min(length.saturating_sub(begun.elapsed())));
            watcher.step(|time, reference| came.push((time, *reference)))?;
        } else {
            watcher.stop(|time, reference| came.push((time, *reference)))?;
        }
        for (time, reference) in came.drain(..).filter(|(_, it)| watcher.has(it)) {
            let first = *first.get_or_insert(time);
            recorder.append(time.saturating_sub(first), &reference).context("write the trace")?;
        }
        if begun.elapsed() >= cut + CUT {
            cut = begun.elapsed();
            recorder.writer.cut().context("write the trace")?;
        }
    }
    let watch = watcher.result();
    let Recorder { mut writer, volumes, processes, requests, .. } = recorder;
    for (known, number) in &volumes.0 {
        let name = watcher.name_of(*known);
        writer.name(NameOf::Volume, *number, &name).context("write the trace")?;
    }
    for (known, number) in &processes.0 {
        let process = watcher.process(*known);
        let name = format!("{} {}", process.name, process.pid);
        writer.name(NameOf::Process, number + 1, &name).context("write the trace")?;
    }
    writer.lost(watch.total.lost_events);
    let to = writer.finish().context("write the trace")?;
    Ok((Recorded { requests, volumes: volumes.0.len(), watch }, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_holds_its_share_of_the_pages_of_every_file() {
        for file in [0, 1, 77] {
            let held = (0..100_000).filter(|&page| holds(file, page, 16)).count();
            assert!(held.abs_diff(6250) < 300, "{held} of file {file}");
        }
        assert!(holds(3, 9, 1));
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
