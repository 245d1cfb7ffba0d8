//! The interface between bytes and records: a [`Decode`] decodes whole records at the front of a
//! window; a [`Stream`] supplies the bytes and is the [`Source`].
//!
//! Invariants: the memory of a stream is limited to one window and one batch, for any input. Bad
//! records are counted with their position, and more than the limit are an error; no input causes a
//! panic.

use super::input::Input;
use super::names::AllNames;
use super::{Addressing, LEN_MAX, NameOf, Record, Source, TIME_NS_MAX, TraceError, VOLUME_MAX};

/// A defect of a record: a fragment such as "the offset is not a number".
pub(super) type FormatError = &'static str;

/// Decoder from the bytes of a format to records.
pub(super) trait Decode: Send {
    /// Decodes whole records at the front of `bytes` and returns their length in bytes; 0 if the
    /// first record is not whole, and then the caller calls again with more bytes. `at_end` is true
    /// if no more bytes follow.
    fn decode(
        &mut self,
        bytes: &[u8],
        at_end: bool,
        out: &mut DecodeOutput<'_>,
    ) -> Result<usize, TraceError>;

    /// Emits the remaining records at the end of the stream.
    fn end(&mut self, _out: &mut DecodeOutput<'_>) -> Result<(), TraceError> {
        Ok(())
    }

    /// Returns the unit of offsets and lengths.
    fn addressing(&self) -> Addressing {
        Addressing::Bytes
    }

    /// Returns the sampling divisor `n`: the trace has one of `n` pages.
    fn sample(&self) -> u32 {
        1
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
            Some((first, _)) => {
                format!("{reason}; {} bad records were passed over, the first at {first}", self.max)
            }
        };
        Err(TraceError::Bad { name: self.name.clone(), place: place(), reason })
    }

    pub(super) fn note(&self) -> Option<String> {
        let (place, reason) = self.first.as_ref()?;
        Some(format!("{} bad records were passed over, the first at {place}: {reason}", self.count))
    }
}

/// The output of a decoder.
#[derive(Debug)]
pub(super) struct DecodeOutput<'a> {
    pub(super) names: &'a mut AllNames,
    pub(super) bad: &'a mut BadRecords,
    /// Position in the stream of the bytes that are being decoded.
    pub(super) position: u64,
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
    pub(super) fn push(&mut self, mut record: Record) -> Result<(), FormatError> {
        record.time_ns = self.clock.since_first(record.time_ns);
        self.push_as_is(record)
    }

    /// Adds a record of a Larder file, whose time needs no conversion.
    pub(super) fn push_as_is(&mut self, record: Record) -> Result<(), FormatError> {
        check(&record, self.addressing)?;
        self.batch.push(record);
        Ok(())
    }

    /// Counts a bad record at a byte of the stream.
    pub(super) fn bad_byte(&mut self, at: u64, reason: FormatError) -> Result<(), TraceError> {
        self.bad.add(|| format!("byte {at}"), reason)
    }
}

/// Checks for values that consumers do not handle; every format reader calls it for each record.
pub(super) fn check(record: &Record, addressing: Addressing) -> Result<(), FormatError> {
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
pub(super) struct Stream<D> {
    input: Input,
    decoder: D,
    names: AllNames,
    bad: BadRecords,
    clock: Clock,
    has_ended: bool,
}

impl<D: Decode> Stream<D> {
    /// Creates a source; nothing of `input` has been consumed yet.
    pub(super) fn new(input: Input, decoder: D, max_bad: u64) -> Self {
        let bad = BadRecords::new(input.name(), max_bad);
        let (names, clock) = (AllNames::new(), Clock::default());
        Stream { input, decoder, names, bad, clock, has_ended: false }
    }

    /// Returns the decoder, its input and its output.
    fn parts<'a>(
        &'a mut self,
        batch: &'a mut Vec<Record>,
    ) -> (&'a mut D, &'a Input, DecodeOutput<'a>) {
        let out = DecodeOutput {
            names: &mut self.names,
            bad: &mut self.bad,
            position: self.input.position(),
            batch,
            clock: &mut self.clock,
            addressing: self.decoder.addressing(),
        };
        (&mut self.decoder, &self.input, out)
    }

    /// Decodes the bytes in the window. Returns true if any were consumed.
    fn step(&mut self, batch: &mut Vec<Record>) -> Result<bool, TraceError> {
        let (decoder, input, mut out) = self.parts(batch);
        let used = decoder.decode(input.bytes(), input.at_end(), &mut out)?;
        self.input.consume(used);
        Ok(used > 0)
    }
}

impl<D: Decode> Source for Stream<D> {
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
            let (at, remaining) = (self.input.position(), self.input.bytes().len());
            if remaining > 0 {
                let reason = "the file ends in the middle of a record";
                self.bad.add(|| format!("byte {at}"), reason)?;
            }
            let (decoder, _, mut out) = self.parts(batch);
            decoder.end(&mut out)?;
        }
        Ok(())
    }

    fn name(&self, kind: NameOf, number: u32) -> Option<&str> {
        self.names.get(kind, number)
    }

    fn addressing(&self) -> Addressing {
        self.decoder.addressing()
    }

    fn sample(&self) -> u32 {
        self.decoder.sample()
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

/// A format whose records all have the same length.
pub(super) trait FixedRecord: Send {
    /// Returns the bytes of a record.
    fn bytes(&self) -> usize;

    /// Decodes one record; adds none if it is not a request.
    fn record(&mut self, bytes: &[u8], out: &mut DecodeOutput<'_>) -> Result<(), FormatError>;

    /// Returns the unit of offsets and lengths.
    fn addressing(&self) -> Addressing {
        Addressing::Bytes
    }

    /// Returns notes for the user on the reading.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A decoder of a [`FixedRecord`] format; the stream may begin with a header.
#[derive(Debug)]
pub(super) struct FixedDecoder<F> {
    format: F,
    header_bytes: usize,
}

impl<F: FixedRecord> FixedDecoder<F> {
    pub(super) fn new(format: F) -> Self {
        FixedDecoder { format, header_bytes: 0 }
    }

    /// Creates a decoder that skips a header, which the caller has checked.
    pub(super) fn with_header(format: F, header_bytes: usize) -> Self {
        FixedDecoder { format, header_bytes }
    }
}

impl<F: FixedRecord> Decode for FixedDecoder<F> {
    fn decode(
        &mut self,
        bytes: &[u8],
        _at_end: bool,
        out: &mut DecodeOutput<'_>,
    ) -> Result<usize, TraceError> {
        if self.header_bytes > 0 {
            let skipped = self.header_bytes.min(bytes.len());
            self.header_bytes -= skipped;
            return Ok(skipped);
        }
        let size = self.format.bytes();
        let mut at = out.position;
        for record in bytes.chunks_exact(size) {
            if let Err(reason) = self.format.record(record, out) {
                out.bad_byte(at, reason)?;
            }
            at += size as u64;
        }
        Ok(bytes.len() / size * size)
    }

    fn addressing(&self) -> Addressing {
        self.format.addressing()
    }

    fn notes(&self) -> Vec<String> {
        self.format.notes()
    }
}
