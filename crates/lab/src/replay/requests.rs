//! The records of a trace as requests to exports.
//!
//! Invariants: requests are in the order of the trace; each lies inside its export and does not
//! exceed the maximum length of its server; skipped records are counted.

use super::ReplayError;
use crate::trace::{Addressing, BoxedSource, NameKind, Op, Record, Source};
use std::collections::HashMap;

/// Maximum length of a discard or write-zeroes request; servers need not accept longer ones.
const EXCLUDE_BYTES_MAX: u64 = 1 << 30;

/// An export.
#[derive(Clone, Debug)]
pub struct Export {
    /// Its address, for messages.
    pub name: String,
    /// Bytes of the export, above 0.
    pub length: u64,
    /// Unit of offsets and lengths, in bytes.
    pub granule: u64,
    /// Maximum length of a read or write, in bytes.
    pub transfer_bytes_max: u64,
    /// True if it takes no request that changes it.
    pub is_read_only: bool,
    /// The operations that its server supports.
    pub ops: Vec<Op>,
}

impl Export {
    /// Returns the maximum length of a request of this kind, in bytes.
    fn bytes_max(&self, op: Op) -> u64 {
        let max = if op.transfers() { self.transfer_bytes_max } else { EXCLUDE_BYTES_MAX };
        (max - max % self.granule).max(self.granule)
    }
}

/// The exports of the volumes of a trace.
#[derive(Clone, Debug)]
pub struct Exports {
    /// Name of the volume, `None` for the only one of the trace; and its export.
    list: Vec<(Option<String>, Export)>,
    /// Index of the export, by number of the volume.
    index_by_volume: HashMap<u32, usize>,
}

impl Exports {
    /// Returns the exports; the name of a volume is `None` for an export of the only volume.
    #[must_use]
    pub fn new(list: Vec<(Option<String>, Export)>) -> Self {
        Exports { list, index_by_volume: HashMap::new() }
    }

    /// Returns the index of the export for a volume of `source`.
    fn index_of(&mut self, volume: u32, source: &dyn Source) -> Result<usize, ReplayError> {
        if let Some(&index) = self.index_by_volume.get(&volume) {
            return Ok(index);
        }
        let name = source.name(NameKind::Volume, volume);
        let name = name.map_or_else(|| volume.to_string(), str::to_owned);
        let matches = |(wanted, _): &(Option<String>, Export)| {
            wanted.as_ref().is_none_or(|wanted| *wanted == name)
        };
        let index = self.list.iter().position(matches).ok_or_else(|| {
            let text = format!("no export is given for volume {name}: add --volume {name}=URI");
            ReplayError::Refused(text)
        })?;
        if self.list[index].0.is_none() && !self.index_by_volume.is_empty() {
            return Err(ReplayError::Refused(format!(
                "the trace has more than one volume, and {name} is another one: give --volume \
                 NAME=URI for each instead of --to, or keep one with larder trace filter"
            )));
        }
        self.index_by_volume.insert(volume, index);
        Ok(index)
    }

    /// Returns the names of volumes that have an export and are not in the trace.
    fn unused(&self) -> Vec<&str> {
        let names = self.list.iter().map(|(name, _)| name.as_deref()).enumerate();
        let is_used = |index| self.index_by_volume.values().any(|used| *used == index);
        names.filter(|(index, _)| !is_used(*index)).filter_map(|(_, name)| name).collect()
    }
}

/// Handling of records that do not fit their export.
#[derive(Clone, Copy, Debug)]
pub struct RecordFilter {
    /// Folds offsets into the export.
    pub wrap: bool,
    /// Skips requests that would change the export.
    pub read_only: bool,
}

/// A request for an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplayRequest {
    /// Index of the export.
    pub(super) export: usize,
    /// Number of its record in the trace, from 0.
    pub(super) number: u64,
    /// Time at which it is due, in nanoseconds since the first record.
    pub(super) due_ns: u64,
    pub(super) op: Op,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// Numbers of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordCounts {
    /// Records that were read.
    pub(super) records: u64,
    /// Records that were split into several requests.
    pub(super) split: u64,
    /// Records that were folded.
    pub(super) wrapped: u64,
    /// Skipped records that would have changed the export.
    pub(super) read_only: u64,
    /// Skipped records that the server does not support.
    pub(super) not_offered: u64,
    /// Skipped records of zero bytes.
    pub(super) empty: u64,
}

/// The part of a record that is not sent yet.
#[derive(Clone, Copy, Debug)]
struct PendingRecord {
    /// The previous request of the record, or one of zero bytes.
    request: ReplayRequest,
    /// Offset of the next request.
    at: u64,
    /// Bytes; 0 only for a flush.
    left: u64,
}

/// Generates requests from a trace.
pub struct RequestSource {
    source: BoxedSource,
    exports: Exports,
    filter: RecordFilter,
    batch: Vec<Record>,
    /// Index of the next record of the batch.
    at: usize,
    pending: Option<PendingRecord>,
    first_ns: Option<u64>,
    pub(super) counts: RecordCounts,
}

impl std::fmt::Debug for RequestSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestSource").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl RequestSource {
    /// Returns a source of all records of `source`.
    ///
    /// # Errors
    /// The trace has objects.
    pub fn new(
        source: BoxedSource,
        exports: Exports,
        filter: RecordFilter,
    ) -> Result<Self, ReplayError> {
        if source.addressing() == Addressing::Objects {
            let text = "replay a trace of objects: they have no places in a volume";
            return Err(ReplayError::Refused(text.to_owned()));
        }
        Ok(RequestSource {
            source,
            exports,
            filter,
            batch: Vec::new(),
            at: 0,
            pending: None,
            first_ns: None,
            counts: RecordCounts::default(),
        })
    }

    /// Reads the whole trace, so that an unsupported request is reported before any is sent.
    ///
    /// # Errors
    /// A record cannot be replayed, or a volume that has an export is not in the trace.
    pub fn check(mut self) -> Result<(), ReplayError> {
        while self.next()?.is_some() {}
        let unused = self.exports.unused().join(" or ");
        match unused.as_str() {
            "" => Ok(()),
            names => Err(ReplayError::Refused(format!("no volume of the trace is called {names}"))),
        }
    }

    /// Returns the next request; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<ReplayRequest>, ReplayError> {
        loop {
            if let Some(request) = self.next_request() {
                return Ok(Some(request));
            }
            if self.at == self.batch.len() {
                self.at = 0;
                if !self.source.next_batch(&mut self.batch)? {
                    return Ok(None);
                }
            }
            let record = self.batch[self.at];
            self.at += 1;
            self.accept(&record)?;
            self.counts.records += 1;
        }
    }

    /// Returns the next request of the current record. Beyond the end of the export it continues at
    /// the beginning.
    fn next_request(&mut self) -> Option<ReplayRequest> {
        let PendingRecord { request, at, left } = self.pending.take()?;
        let export = &self.exports.list[request.export].1;
        let len = left.min(export.length - at).min(export.bytes_max(request.op));
        if len < left {
            self.counts.split += u64::from(request.len == 0);
            self.pending = Some(PendingRecord {
                request: ReplayRequest { len, ..request },
                at: (at + len) % export.length,
                left: left - len,
            });
        }
        Some(ReplayRequest { offset: at, len, ..request })
    }

    /// Accepts a record, unless it is skipped.
    fn accept(&mut self, record: &Record) -> Result<(), ReplayError> {
        let number = self.counts.records;
        let index = self.exports.index_of(record.volume, &*self.source)?;
        let export = &self.exports.list[index].1;
        let changes = record.op.changes();
        if changes && self.filter.read_only {
            self.counts.read_only += 1;
        } else if record.len == 0 && record.op != Op::Flush {
            self.counts.empty += 1;
        } else if changes && export.is_read_only {
            return Err(ReplayError::Refused(format!(
                "{} is read-only and cannot take {}; --read-only leaves such requests out",
                export.name,
                describe_record(number, record)
            )));
        } else if !export.ops.contains(&record.op) {
            self.counts.not_offered += 1;
        } else {
            let (at, left) = self.locate(export, number, record)?;
            let wrapped = (at, left) != (record.offset, record.len) || at + left > export.length;
            self.counts.wrapped += u64::from(wrapped && record.op != Op::Flush);
            let first_ns = *self.first_ns.get_or_insert(record.time_ns);
            let due_ns = record.time_ns.saturating_sub(first_ns);
            let request =
                ReplayRequest { export: index, number, due_ns, op: record.op, offset: 0, len: 0 };
            self.pending = Some(PendingRecord { request, at, left });
        }
        Ok(())
    }

    /// Returns the offset of a record in its export, and its length there.
    fn locate(
        &self,
        export: &Export,
        number: u64,
        record: &Record,
    ) -> Result<(u64, u64), ReplayError> {
        let Export { name, length, granule, .. } = export;
        let Record { op, offset, len, .. } = *record;
        if op == Op::Flush {
            return Ok((0, 0));
        }
        if !(offset.is_multiple_of(*granule) && len.is_multiple_of(*granule)) {
            return Err(ReplayError::Refused(format!(
                "{name} takes multiples of {granule} bytes only, and not {}",
                describe_record(number, record)
            )));
        }
        if self.filter.wrap {
            // A record longer than the export would only repeat its blocks.
            return Ok((offset % length, len.min(*length)));
        }
        if offset.checked_add(len).is_none_or(|end| end > *length) {
            return Err(ReplayError::Refused(format!(
                "{} is beyond the end of {name} ({length} bytes); --wrap folds offsets into it",
                describe_record(number, record)
            )));
        }
        Ok((offset, len))
    }
}

/// Describes a record for a message.
fn describe_record(number: u64, record: &Record) -> String {
    let Record { op, offset, len, .. } = record;
    format!("record {number}, a {} of {len} bytes at {offset}", op.name())
}
