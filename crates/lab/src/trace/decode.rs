//! The seam between bytes and records: a [`Decode`] takes whole records from the front of a window,
//! a [`Stream`] feeds it and is the [`Source`].
//!
//! Invariants: a stream takes memory for one window and one batch, whatever the input says. What is
//! wrong is counted with its place, and an error past the limit; nothing panics.

use super::input::Input;
use super::names::AllNames;
use super::{Addressing, LEN_MAX, NameOf, Record, Source, TIME_NS_MAX, TraceError, VOLUME_MAX};

/// What is wrong with a record: a fragment such as "the offset is not a number".
pub(super) type FormatError = &'static str;

/// How a format's bytes become records.
pub(super) trait Decode: Send {
    /// Takes whole records from the front of `bytes` and answers how many bytes they were; 0 if the
    /// first is not whole, and then it is asked again with more. `at_end` says that no more come.
    fn decode(
        &mut self,
        bytes: &[u8],
        at_end: bool,
        out: &mut Out<'_>,
    ) -> Result<usize, TraceError>;

    /// Nothing more comes: what was held back goes out now.
    fn end(&mut self, _out: &mut Out<'_>) -> Result<(), TraceError> {
        Ok(())
    }

    /// What offsets and lengths count.
    fn addressing(&self) -> Addressing {
        Addressing::Bytes
    }

    /// Of so many pages one is in the trace.
    fn sample(&self) -> u32 {
        1
    }

    /// What the user should know about this reading.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Bad records: how many, and how many may be.
#[derive(Debug)]
pub(super) struct Bad {
    name: String,
    max: u64,
    count: u64,
    first: Option<(String, FormatError)>,
}

impl Bad {
    pub(super) fn new(name: &str, max: u64) -> Self {
        Bad { name: name.to_owned(), max, count: 0, first: None }
    }

    /// Counts one; past the limit it is an error.
    #[cold]
    pub(super) fn add(
        &mut self,
        place: impl FnOnce() -> String,
        why: FormatError,
    ) -> Result<(), TraceError> {
        self.count += 1;
        if self.count <= self.max {
            if self.first.is_none() {
                self.first = Some((place(), why));
            }
            return Ok(());
        }
        let reason = match &self.first {
            None => why.to_owned(),
            Some((first, _)) => {
                format!("{why}; {} bad records were passed over, the first at {first}", self.max)
            }
        };
        Err(TraceError::Bad { name: self.name.clone(), place: place(), reason })
    }

    pub(super) fn note(&self) -> Option<String> {
        let (place, why) = self.first.as_ref()?;
        Some(format!("{} bad records were passed over, the first at {place}: {why}", self.count))
    }
}

/// Where a decoder puts what it decodes.
#[derive(Debug)]
pub(super) struct Out<'a> {
    pub(super) names: &'a mut AllNames,
    pub(super) bad: &'a mut Bad,
    /// Where the bytes that are being decoded begin in the stream.
    pub(super) position: u64,
    batch: &'a mut Vec<Record>,
    clock: &'a mut Clock,
    addressing: Addressing,
}

/// Makes times count from the first record.
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

impl Out<'_> {
    /// Takes a record whose time counts from anywhere.
    pub(super) fn push(&mut self, mut record: Record) -> Result<(), FormatError> {
        record.time_ns = self.clock.since_first(record.time_ns);
        self.push_as_is(record)
    }

    /// Takes a record of one of our own files, whose times are right already.
    pub(super) fn push_as_is(&mut self, record: Record) -> Result<(), FormatError> {
        check(&record, self.addressing)?;
        self.batch.push(record);
        Ok(())
    }

    /// Counts a bad record at a byte of the stream.
    pub(super) fn bad_byte(&mut self, at: u64, why: FormatError) -> Result<(), TraceError> {
        self.bad.add(|| format!("byte {at}"), why)
    }
}

/// Refuses values that consumers do not handle; every reader of a format calls it for each record.
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
    bad: Bad,
    clock: Clock,
    ended: bool,
}

impl<D: Decode> Stream<D> {
    /// `input` has been looked at but not passed.
    pub(super) fn new(input: Input, decoder: D, max_bad: u64) -> Self {
        let bad = Bad::new(input.name(), max_bad);
        let (names, clock) = (AllNames::new(), Clock::default());
        Stream { input, decoder, names, bad, clock, ended: false }
    }

    /// The decoder, what it reads, and where it puts records.
    fn parts<'a>(&'a mut self, batch: &'a mut Vec<Record>) -> (&'a mut D, &'a Input, Out<'a>) {
        let out = Out {
            names: &mut self.names,
            bad: &mut self.bad,
            position: self.input.position(),
            batch,
            clock: &mut self.clock,
            addressing: self.decoder.addressing(),
        };
        (&mut self.decoder, &self.input, out)
    }

    /// Decodes what is in the window; answers whether that brought anything forward.
    fn step(&mut self, batch: &mut Vec<Record>) -> Result<bool, TraceError> {
        let (decoder, input, mut out) = self.parts(batch);
        let used = decoder.decode(input.bytes(), input.at_end(), &mut out)?;
        self.input.pass(used);
        Ok(used > 0)
    }
}

impl<D: Decode> Source for Stream<D> {
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        let before = batch.len();
        while batch.len() == before && !self.ended {
            if !self.input.bytes().is_empty() && self.step(batch)? {
                continue;
            }
            if !self.input.at_end() {
                self.input.fill(usize::MAX)?;
                continue;
            }
            self.ended = true;
            let (at, left) = (self.input.position(), self.input.bytes().len());
            if left > 0 {
                let why = "the file ends in the middle of a record";
                self.bad.add(|| format!("byte {at}"), why)?;
            }
            let (decoder, _, mut out) = self.parts(batch);
            decoder.end(&mut out)?;
        }
        Ok(())
    }

    fn name(&self, of: NameOf, number: u32) -> Option<&str> {
        self.names.get(of, number)
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

/// A format of records that all have the same length.
pub(super) trait FixedRecord: Send {
    /// Bytes of a record.
    fn bytes(&self) -> usize;

    /// One record of that length; none where it is not a request.
    fn record(&mut self, bytes: &[u8], out: &mut Out<'_>) -> Result<(), FormatError>;

    /// What offsets and lengths count.
    fn addressing(&self) -> Addressing {
        Addressing::Bytes
    }

    /// What the user should know about this reading.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A [`FixedRecord`] as a decoder; the first bytes of the stream may be a header.
#[derive(Debug)]
pub(super) struct Fixed<F> {
    format: F,
    header_bytes: usize,
}

impl<F: FixedRecord> Fixed<F> {
    pub(super) fn new(format: F) -> Self {
        Fixed { format, header_bytes: 0 }
    }

    /// Passes over a header first; it has been judged before.
    pub(super) fn behind(format: F, header_bytes: usize) -> Self {
        Fixed { format, header_bytes }
    }
}

impl<F: FixedRecord> Decode for Fixed<F> {
    fn decode(
        &mut self,
        bytes: &[u8],
        _at_end: bool,
        out: &mut Out<'_>,
    ) -> Result<usize, TraceError> {
        if self.header_bytes > 0 {
            let passed = self.header_bytes.min(bytes.len());
            self.header_bytes -= passed;
            return Ok(passed);
        }
        let size = self.format.bytes();
        let mut at = out.position;
        for record in bytes.chunks_exact(size) {
            if let Err(why) = self.format.record(record, out) {
                out.bad_byte(at, why)?;
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
