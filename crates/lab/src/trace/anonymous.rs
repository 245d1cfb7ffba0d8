//! Traces that can be given away: names become pseudonyms, and the addresses of each volume are
//! permuted in extents, by a keyed pseudorandom function.
//!
//! Invariants: equal names have equal pseudonyms, different bytes of a volume have different new
//! addresses below the same end, rounded up to an extent, and adjacent bytes of an extent stay
//! adjacent. So the reuse of pages that are no larger than an extent is that of the original trace,
//! and so are their hits in every cache. A request that crosses extents becomes several with the
//! same time: they, and sequential requests, tell which extents were adjacent. The work of a call
//! is bounded, whatever the lengths of requests are.

use super::names::AllNames;
use super::{Addressing, BoxedSource, NameKind, Op, Record, Source, TraceError, VOLUME_MAX};
use larder_schema::format;
use std::collections::HashMap;

/// Records that one call returns at most.
const BATCH_RECORDS: usize = 8192;
/// Maximum extents of a discard or zeroing that does not cover its whole volume. Reads and writes
/// have fewer, since [`super::LEN_MAX`] bounds them.
const EXTENTS_MAX: u64 = 1 << 16;
/// Rounds of the permutation. Four make a pseudorandom permutation of large domains (Luby and
/// Rackoff, SIAM Journal on Computing 17(2), 1988); more are for small ones.
const ROUNDS: u8 = 10;
/// Smallest extent, so that a request has a bounded number of parts.
pub const EXTENT_BYTES_MIN: u64 = 64 << 10;
/// Largest extent.
pub const EXTENT_BYTES_MAX: u64 = 1 << 30;

/// A trace that was read once: it knows all names, and the ends of the volumes, which the
/// permutations need: each maps the extents below the end of a volume.
pub struct FirstReading {
    source: BoxedSource,
    /// The end of each volume; volumes of one name have one end.
    ends: Vec<u64>,
}

impl std::fmt::Debug for FirstReading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FirstReading").field("ends", &self.ends).finish_non_exhaustive()
    }
}

impl FirstReading {
    /// Reads a whole trace.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn of(mut source: BoxedSource) -> Result<Self, TraceError> {
        let (mut ends, mut batch) = (Vec::new(), Vec::new());
        while source.next_batch(&mut batch)? {
            for record in batch.iter().filter(|record| record.op.transfers()) {
                let index = record.volume.min(VOLUME_MAX) as usize;
                if ends.len() <= index {
                    ends.resize(index + 1, 0);
                }
                ends[index] = ends[index].max(record.end().max(record.offset.saturating_add(1)));
            }
        }
        let name = |volume: usize| source.name(NameKind::Volume, u32::try_from(volume).ok()?);
        let mut end_of: HashMap<&str, u64> = HashMap::new();
        for (volume, &end) in ends.iter().enumerate() {
            if let Some(name) = name(volume) {
                let largest = end_of.entry(name).or_default();
                *largest = end.max(*largest);
            }
        }
        let end = |(volume, &end)| name(volume).map_or(end, |name| end_of[name]);
        let ends = ends.iter().enumerate().map(end).collect();
        Ok(FirstReading { source, ends })
    }

    fn end(&self, volume: u32) -> u64 {
        self.ends.get(volume as usize).copied().unwrap_or(0)
    }
}

/// A keyed pseudorandom function of bytes, such as SipHash-2-4. Who has its key can test guesses of
/// names and addresses.
pub type KeyedHash = Box<dyn Fn(&[u8]) -> u64 + Send>;

/// An anonymized trace.
pub struct Anonymized<S> {
    source: S,
    first: FirstReading,
    extent_bytes: u64,
    hash: KeyedHash,
    names: AllNames,
    /// The last number of each kind in the source, and its number here.
    last: [Option<(u32, u32)>; 3],
    /// The name of the permutation of the last volume.
    permutation: u64,
    /// The last permutation, extent and image: requests often stay in an extent.
    last_image: Option<[u64; 3]>,
    /// The rest of the last batch of the source.
    waiting: std::vec::IntoIter<Record>,
    left_out: u64,
}

impl<S> std::fmt::Debug for Anonymized<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Anonymized")
            .field("extent_bytes", &self.extent_bytes)
            .finish_non_exhaustive()
    }
}

impl<S: Source> Anonymized<S> {
    /// Anonymizes a trace, opened once more for its second reading. The size of an extent is
    /// rounded to a power of two from [`EXTENT_BYTES_MIN`] to [`EXTENT_BYTES_MAX`].
    pub fn new(source: S, first: FirstReading, extent_bytes: u64, hash: KeyedHash) -> Self {
        let extent_bytes = extent_bytes.clamp(EXTENT_BYTES_MIN, EXTENT_BYTES_MAX);
        Anonymized {
            source,
            first,
            extent_bytes: extent_bytes.next_power_of_two(),
            hash,
            names: AllNames::new(),
            last: [None; 3],
            permutation: 0,
            last_image: None,
            waiting: Vec::new().into_iter(),
            left_out: 0,
        }
    }

    /// Returns the number of a volume, file or process of the source here: numbers are given in the
    /// order of first use.
    fn number(&mut self, kind: NameKind, number: u32) -> u32 {
        if kind != NameKind::Volume && number == 0 {
            return 0;
        }
        if let Some((before, here)) = self.last[kind as usize]
            && before == number
        {
            return here;
        }
        let (letter, name) = (["v", "f", "p"][kind as usize], self.first.source.name(kind, number));
        let mut bytes = format!("name {letter}").into_bytes();
        match name {
            Some(name) => bytes.extend([b" of ".as_slice(), name.as_bytes()].concat()),
            None => bytes.extend(number.to_le_bytes()),
        }
        let hash = (self.hash)(&bytes);
        if kind == NameKind::Volume {
            self.permutation = hash;
        }
        let pseudonym = format!("{letter}-{hash:016x}");
        let here = self.names.of_kind(kind).number(pseudonym.as_bytes());
        self.last[kind as usize] = Some((number, here));
        here
    }

    /// Appends the parts of a record at their new addresses.
    ///
    /// # Errors
    /// The record was not in the trace when it was read first.
    fn append(&mut self, mut record: Record, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        let [volume, file, process] = NameKind::ALL.map(|kind| record.number_of(kind));
        record.volume = self.number(NameKind::Volume, volume);
        record.file = self.number(NameKind::File, file);
        record.process = self.number(NameKind::Process, process);
        if self.source.addressing() == Addressing::Objects {
            record.offset = self.permuted(record.offset, u64::MAX);
            batch.push(record);
            return Ok(());
        }
        let (end, extent) = (self.first.end(volume), self.extent_bytes);
        if record.op.transfers() && (record.offset >= end || record.end() > end) {
            return Err(TraceError::Bad {
                name: "the trace once more".to_owned(),
                place: format!("byte {} of volume {volume}", record.offset),
                reason: "the first reading had no such request; anonymize a trace that does not \
                         change"
                    .to_owned(),
            });
        }
        // An extent at the end of all addresses stays where it is.
        let extents = end.div_ceil(extent).min(u64::MAX / extent);
        if record.op == Op::Flush {
            batch.push(Record { offset: 0, len: 0, ..record });
            return Ok(());
        }
        if !record.op.transfers() {
            // No read or write is beyond the end.
            record.len = record.end().min(end).saturating_sub(record.offset);
            if record.len == 0 {
                return Ok(());
            }
            if record.len == end {
                batch.push(Record { len: extents * extent, ..record });
                return Ok(());
            }
            if record.len / extent > EXTENTS_MAX {
                self.left_out += 1;
                return Ok(());
            }
        }
        let (mut offset, record_end) = (record.offset, record.end());
        loop {
            let (index, within) = (offset / extent, offset % extent);
            let part_end = record_end.min((index + 1).saturating_mul(extent));
            let moved = self.permuted(index, extents) * extent + within;
            batch.push(Record { offset: moved, len: part_end - offset, ..record });
            offset = part_end;
            if offset >= record_end {
                return Ok(());
            }
        }
    }

    /// Returns the image of a number in the permutation of the numbers below `count` that belongs
    /// to the last volume; the extent at the end of all addresses stays. It is a Feistel network
    /// over the next even number of bits, repeated until the image is below `count`.
    fn permuted(&mut self, number: u64, count: u64) -> u64 {
        if number >= count && count < u64::MAX {
            return number;
        }
        if let Some([permutation, before, image]) = self.last_image
            && (permutation, before) == (self.permutation, number)
        {
            return image;
        }
        let bits = (u64::BITS - (count - 1).leading_zeros()).max(2).div_ceil(2);
        let mask = (1_u64 << bits) - 1;
        let mut image = number;
        loop {
            let (mut high, mut low) = (image >> bits, image & mask);
            for round in 0..ROUNDS {
                let mut bytes = [0; 25];
                bytes[0] = round;
                bytes[1..9].copy_from_slice(&low.to_le_bytes());
                bytes[9..17].copy_from_slice(&self.permutation.to_le_bytes());
                bytes[17..].copy_from_slice(&count.to_le_bytes());
                (high, low) = (low, high ^ ((self.hash)(&bytes) & mask));
            }
            image = high << bits | low;
            if image < count || count == u64::MAX {
                self.last_image = Some([self.permutation, number, image]);
                return image;
            }
        }
    }
}

impl<S: Source> Source for Anonymized<S> {
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        let len_before = batch.len();
        while batch.len() - len_before < BATCH_RECORDS {
            if let Some(record) = self.waiting.next() {
                self.append(record, batch)?;
                continue;
            }
            let mut records = Vec::new();
            if !self.source.next_batch(&mut records)? {
                break;
            }
            self.waiting = records.into_iter();
        }
        Ok(())
    }

    fn name(&self, kind: NameKind, number: u32) -> Option<&str> {
        self.names.get(kind, number)
    }

    fn addressing(&self) -> Addressing {
        self.source.addressing()
    }

    fn sample(&self) -> u32 {
        self.source.sample()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.source.notes();
        notes.extend(self.names.note());
        if self.left_out > 0 {
            let (count, extents) =
                (format::counted(self.left_out, "discard or zeroing"), format::count(EXTENTS_MAX));
            notes.push(format!("{count} of more than {extents} extents is left out"));
        }
        notes
    }
}

#[cfg(test)]
mod tests;
