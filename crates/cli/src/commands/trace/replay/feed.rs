//! The records of a trace as requests to exports.
//!
//! Invariants: requests are in the order of the trace; each lies inside its export and does not
//! exceed the maximum length of its server; skipped records are counted.

use super::super::input::Input;
use super::targets::{Target, Targets};
use anyhow::{Result, bail, ensure};
use larder_lab::trace::{Addressing, Op, Record};

/// Handling of records that do not fit their export.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordFilter {
    /// Folds offsets into the export.
    pub(super) wrap: bool,
    /// Skips requests that would change the export.
    pub(super) read_only: bool,
}

/// A request for an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplayRequest {
    /// Index of the export.
    pub(super) target: usize,
    /// Number of its record in the trace, from 0.
    pub(super) number: u64,
    /// Time at which it is due, in nanoseconds since the first record.
    pub(super) due_ns: u64,
    pub(super) op: Op,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// Numbers of skipped records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SkippedRecords {
    /// Records that would have changed the export.
    pub(super) read_only: u64,
    /// Records that the server does not support.
    pub(super) not_offered: u64,
    /// Records of zero bytes.
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
pub(super) struct RequestSource {
    input: Input,
    pub(super) targets: Targets,
    filter: RecordFilter,
    batch: Vec<Record>,
    /// Index of the next record of the batch.
    at: usize,
    pending: Option<PendingRecord>,
    first_ns: Option<u64>,
    quiet: bool,
    /// Records that were read.
    pub(super) records: u64,
    /// Records that were split into several requests.
    pub(super) split: u64,
    /// Records that were folded.
    pub(super) wrapped: u64,
    pub(super) skipped: SkippedRecords,
}

impl RequestSource {
    /// Returns a source of all records of `input`.
    pub(super) fn new(input: Input, targets: Targets, filter: RecordFilter) -> Result<Self> {
        ensure!(
            input.source.addressing() != Addressing::Objects,
            "replay a trace of objects: they have no places in a volume"
        );
        Ok(RequestSource {
            input,
            targets,
            filter,
            batch: Vec::new(),
            at: 0,
            pending: None,
            first_ns: None,
            quiet: false,
            records: 0,
            split: 0,
            wrapped: 0,
            skipped: SkippedRecords::default(),
        })
    }

    /// Suppresses the notes of the readers.
    pub(super) fn without_notes(self) -> Self {
        RequestSource { quiet: true, ..self }
    }

    /// Returns the next request; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<ReplayRequest>> {
        loop {
            if let Some(request) = self.next_request() {
                return Ok(Some(request));
            }
            if self.at == self.batch.len() {
                self.at = 0;
                let more = if self.quiet {
                    self.input.read_quietly(&mut self.batch)?
                } else {
                    self.input.read(&mut self.batch)?
                };
                if !more {
                    return Ok(None);
                }
            }
            let record = self.batch[self.at];
            self.at += 1;
            self.records += 1;
            self.accept(&record)?;
        }
    }

    /// Returns the next request of the current record. Beyond the end of the export it continues at
    /// the beginning.
    fn next_request(&mut self) -> Option<ReplayRequest> {
        let PendingRecord { request, at, left } = self.pending.take()?;
        let target = self.targets.get(request.target);
        let len = left.min(target.length() - at).min(target.bytes_max(request.op));
        if len < left {
            self.split += u64::from(request.len == 0);
            let at = (at + len) % target.length();
            self.pending = Some(PendingRecord {
                request: ReplayRequest { len, ..request },
                at,
                left: left - len,
            });
        }
        Some(ReplayRequest { offset: at, len, ..request })
    }

    /// Accepts a record, unless it is skipped.
    fn accept(&mut self, record: &Record) -> Result<()> {
        let number = self.records - 1;
        let index = self.targets.index_of(record.volume, &*self.input.source)?;
        let target = self.targets.get(index);
        let changes = !matches!(record.op, Op::Read | Op::Flush);
        if changes && self.filter.read_only {
            self.skipped.read_only += 1;
        } else if record.len == 0 && record.op != Op::Flush {
            self.skipped.empty += 1;
        } else if changes && target.is_read_only() {
            bail!(
                "{} is read-only and cannot take {}; --read-only leaves such requests out",
                target.uri(),
                describe_record(number, record)
            );
        } else if !target.offers(record.op) {
            self.skipped.not_offered += 1;
        } else {
            let (at, left) = self.locate(target, number, record)?;
            let wrapped = (at, left) != (record.offset, record.len) || at + left > target.length();
            self.wrapped += u64::from(wrapped && record.op != Op::Flush);
            let first_ns = *self.first_ns.get_or_insert(record.time_ns);
            let due_ns = record.time_ns.saturating_sub(first_ns);
            let request =
                ReplayRequest { target: index, number, due_ns, op: record.op, offset: 0, len: 0 };
            self.pending = Some(PendingRecord { request, at, left });
        }
        Ok(())
    }

    /// Returns the offset of a record in its export, and its length there.
    fn locate(&self, target: &Target, number: u64, record: &Record) -> Result<(u64, u64)> {
        if record.op == Op::Flush {
            return Ok((0, 0));
        }
        let Record { offset, len, .. } = *record;
        let granule = target.granule();
        ensure!(
            offset.is_multiple_of(granule) && len.is_multiple_of(granule),
            "{} takes multiples of {granule} bytes only, and not {}",
            target.uri(),
            describe_record(number, record)
        );
        let length = target.length();
        if self.filter.wrap {
            // A record longer than the export would only repeat its blocks.
            return Ok((offset % length, len.min(length)));
        }
        ensure!(
            offset.checked_add(len).is_some_and(|end| end <= length),
            "{} ends at byte {length}, before {}; --wrap folds offsets into it",
            target.uri(),
            describe_record(number, record)
        );
        Ok((offset, len))
    }
}

/// Describes a record for a message.
fn describe_record(number: u64, record: &Record) -> String {
    let Record { op, offset, len, .. } = record;
    format!("record {number}, a {} of {len} bytes at {offset}", op.name())
}
