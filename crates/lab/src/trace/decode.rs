//! The interface between bytes and records: a [`Decode`] decodes whole records at the front of a
//! window; a [`Stream`] supplies the bytes and is the [`Source`].
//!
//! Invariants: the memory of a stream is limited to one window and one batch, for any input. Bad
//! records are counted with their position, and more than the limit are an error; no input causes a
//! panic.

use super::input::Input;
use super::names::AllNames;
use super::{Addressing, LEN_MAX, NameKind, Record, Source, TIME_NS_MAX, TraceError, VOLUME_MAX};
use larder_schema::format;

/// A defect of a record: a fragment such as "the offset is not a number".
pub(super) type FormatError = &'static str;

/// The result of a decoder of one record.
pub(super) type Decoded = Result<(), FormatError>;

/// Decoder from the bytes of a format to records.
pub(super) trait Decode: Send {
    /// Decodes whole records at the front of `bytes` and returns their length in bytes; 0 if the
    /// first record is not whole, and then the caller calls again with more bytes.
    fn decode(&mut self, bytes: &[u8], out: &mut DecodeOutput<'_>) -> Result<usize, TraceError>;

    /// Emits the remaining records at the end of the stream.
    fn end(&mut self, _out: &mut DecodeOutput<'_>) -> Result<(), TraceError> {
        Ok(())
    }

    /// Returns notes for the user on the reading.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Count of bad records, and its limit.
#[derive(Debug)]
pub(super) struct BadRecords {
    name: String,
    max: u64,
    count: u64,
    first: Option<(String, FormatError)>,
}

impl BadRecords {
    pub(super) fn new(name: &str, max: u64) -> Self {
        BadRecords { name: name.to_owned(), max, count: 0, first: None }
    }

    /// Counts a bad record. Returns an error if the count exceeds the limit.
    #[cold]
    pub(super) fn add(
        &mut self,
        place: impl FnOnce() -> String,
        reason: FormatError,
    ) -> Result<(), TraceError> {
        self.count += 1;
        if self.count <= self.max {
            if self.first.is_none() {
                self.first = Some((place(), reason));
            }
            return Ok(());
        }
        let reason = match &self.first {
            None => reason.to_owned(),
            Some(first) => format!("{reason}; {}", skipped(self.max, first)),
        };
        Err(TraceError::Bad { name: self.name.clone(), place: place(), reason })
    }

    pub(super) fn note(&self) -> Option<String> {
        self.first.as_ref().map(|first| skipped(self.count, first))
    }
}

/// Describes skipped records, of which `place` and `reason` are those of the first.
fn skipped(count: u64, (place, reason): &(String, FormatError)) -> String {
    let first = if count == 1 { "" } else { "the first: " };
    format!("skipped {} ({first}{place}: {reason})", format::counted(count, "bad record"))
}

/// The output of a decoder.
#[derive(Debug)]
pub(super) struct DecodeOutput<'a> {
    pub(super) names: &'a mut AllNames,
    pub(super) bad: &'a mut BadRecords,
    /// Position in the stream of the bytes that are being decoded.
    pub(super) position: u64,
    /// True if the stream ends with those bytes.
    pub(super) at_end: bool,
    batch: &'a mut Vec<Record>,
    clock: &'a mut Clock,
    addressing: Addressing,
}

/// Converts times to times since the first record.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    first_ns: Option<u64>,
    earlier: u64,
}

impl Clock {
    fn since_first(&mut self, time_ns: u64) -> u64 {
        let first = *self.first_ns.get_or_insert(time_ns);
        self.earlier += u64::from(time_ns < first);
        time_ns.saturating_sub(first)
    }
}

impl DecodeOutput<'_> {
    /// Adds a record whose time has any origin.
    pub(super) fn push(&mut self, mut record: Record) -> Decoded {
        record.time_ns = self.clock.since_first(record.time_ns);
        self.push_as_is(record)
    }

    /// Adds a record of the volume with this name.
    pub(super) fn push_in(&mut self, volume: &[u8], record: Record) -> Decoded {
        let volume = self.names.volumes.number(volume);
        self.push(Record { volume, ..record })
    }

    /// Adds a record of a Larder file, whose time needs no conversion.
    pub(super) fn push_as_is(&mut self, record: Record) -> Decoded {
        check(&record, self.addressing)?;
        self.batch.push(record);
        Ok(())
    }

    /// Counts a bad record at a byte of the stream.
    pub(super) fn bad_byte(&mut self, at: u64, reason: FormatError) -> Result<(), TraceError> {
        self.bad.add(|| format!("byte {at}"), reason)
    }

    /// Decodes the whole records in `bytes`, which all have `size` bytes; `record` adds none if it
    /// is not a request. Returns their length in bytes.
    pub(super) fn fixed_size(
        &mut self,
        bytes: &[u8],
        size: usize,
        mut record: impl FnMut(&[u8], &mut Self) -> Decoded,
    ) -> Result<usize, TraceError> {
        for (bytes, at) in bytes.chunks_exact(size).zip((self.position..).step_by(size)) {
            if let Err(reason) = record(bytes, self) {
                self.bad_byte(at, reason)?;
            }
        }
        Ok(bytes.len() / size * size)
    }
}

/// Checks for values that consumers do not handle; every format reader calls it for each record.
pub(super) fn check(record: &Record, addressing: Addressing) -> Decoded {
    if record.time_ns > TIME_NS_MAX {
        return Err("a time more than 146 years after the first");
    }
    if record.volume > VOLUME_MAX {
        return Err("the number of the volume is above 1,048,575");
    }
    if addressing == Addressing::Objects {
        return Ok(());
    }
    if record.op.transfers() && record.len > LEN_MAX {
        return Err("a read or write of more than 4 GiB");
    }
    match record.offset.checked_add(record.len) {
        Some(_) => Ok(()),
        None => Err("the range ends beyond 2^64"),
    }
}

/// A trace that is decoded from a stream.
pub(super) struct Stream {
    input: Input,
    decoder: Box<dyn Decode>,
    addressing: Addressing,
    /// Sampling divisor `n`: the trace has one of `n` pages.
    pub(super) sample: u32,
    pub(super) names: AllNames,
    bad: BadRecords,
    clock: Clock,
    has_ended: bool,
}

impl Stream {
    /// Creates a source of all pages; the headers of `input` have been consumed.
    pub(super) fn new(
        input: Input,
        decoder: Box<dyn Decode>,
        addressing: Addressing,
        max_bad: u64,
    ) -> Self {
        let bad = BadRecords::new(input.name(), max_bad);
        let (sample, names, clock) = (1, AllNames::new(), Clock::default());
        Stream { input, decoder, addressing, sample, names, bad, clock, has_ended: false }
    }

    /// Decodes the bytes in the window, or the end of the stream. Returns true if any bytes were
    /// consumed.
    fn step(&mut self, batch: &mut Vec<Record>) -> Result<bool, TraceError> {
        let mut out = DecodeOutput {
            names: &mut self.names,
            bad: &mut self.bad,
            position: self.input.position(),
            at_end: self.input.at_end(),
            batch,
            clock: &mut self.clock,
            addressing: self.addressing,
        };
        if self.has_ended {
            return self.decoder.end(&mut out).map(|()| false);
        }
        let used = self.decoder.decode(self.input.bytes(), &mut out)?;
        self.input.consume(used);
        Ok(used > 0)
    }
}

impl Source for Stream {
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        let len_before = batch.len();
        while batch.len() == len_before && !self.has_ended {
            if !self.input.bytes().is_empty() && self.step(batch)? {
                continue;
            }
            if !self.input.at_end() {
                self.input.fill(usize::MAX)?;
                continue;
            }
            self.has_ended = true;
            if !self.input.bytes().is_empty() {
                let at = self.input.position();
                let reason = "the file ends in the middle of a record";
                self.bad.add(|| format!("byte {at}"), reason)?;
            }
            self.step(batch)?;
        }
        Ok(())
    }

    fn name(&self, kind: NameKind, number: u32) -> Option<&str> {
        self.names.get(kind, number)
    }

    fn addressing(&self) -> Addressing {
        self.addressing
    }

    fn sample(&self) -> u32 {
        self.sample
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.decoder.notes();
        notes.extend(self.bad.note());
        notes.extend(self.names.note());
        if self.clock.earlier > 0 {
            let count = self.clock.earlier;
            notes
                .push(format!("{count} requests are earlier than the first one; they have time 0"));
        }
        notes
    }
}
