//! What is to be asked next: the records of a trace, as requests that their exports take.
//!
//! Invariants: requests come in the order of the trace; each lies inside its export and is no
//! longer than its server takes; what is left out is counted.

use super::super::input::Input;
use super::targets::{Target, Targets};
use anyhow::{Result, bail, ensure};
use larder_lab::trace::{Addressing, Op, Record};

/// What becomes of records that do not fit their export as they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordFilter {
    /// Offsets are folded into the export.
    pub(super) wrap: bool,
    /// What would change the export is left out.
    pub(super) read_only: bool,
}

/// A request for an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Index of the export.
    pub(super) target: usize,
    /// Which record of the trace it belongs to, from 0.
    pub(super) number: u64,
    /// When it is due, in nanoseconds since the first record.
    pub(super) due_ns: u64,
    pub(super) op: Op,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// What was left out, in records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// They would have changed the export.
    pub(super) read_only: u64,
    /// The server does not know such requests.
    pub(super) not_offered: u64,
    /// They are of no bytes.
    pub(super) empty: u64,
}

/// What of a record is still to be asked.
#[derive(Clone, Copy, Debug)]
struct Rest {
    /// The request before, or the record with no bytes yet.
    piece: Piece,
    /// Where it goes on.
    at: u64,
    /// Bytes; 0 only for a flush.
    left: u64,
}

/// Hands requests out.
pub(super) struct RequestSource {
    input: Input,
    pub(super) targets: Targets,
    judge: RecordFilter,
    batch: Vec<Record>,
    /// The next record of the batch.
    at: usize,
    rest: Option<Rest>,
    first_ns: Option<u64>,
    quiet: bool,
    /// Records that were taken.
    pub(super) records: u64,
    /// Records that became more than one request.
    pub(super) split: u64,
    /// Records that were folded.
    pub(super) wrapped: u64,
    pub(super) left_out: LeftOut,
}

impl RequestSource {
    /// A feed of everything that `input` has.
    pub(super) fn new(input: Input, targets: Targets, judge: RecordFilter) -> Result<Self> {
        ensure!(
            input.source.addressing() != Addressing::Objects,
            "replay a trace of objects: they have no places in a volume"
        );
        Ok(RequestSource {
            input,
            targets,
            judge,
            batch: Vec::new(),
            at: 0,
            rest: None,
            first_ns: None,
            quiet: false,
            records: 0,
            split: 0,
            wrapped: 0,
            left_out: LeftOut::default(),
        })
    }

    /// The same without a word about what the readers find.
    pub(super) fn quietly(self) -> Self {
        RequestSource { quiet: true, ..self }
    }

    /// The next request; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<Piece>> {
        loop {
            if let Some(piece) = self.next_piece() {
                return Ok(Some(piece));
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
            self.take(&record)?;
        }
    }

    /// The next request of the record at hand. Beyond the end of the export it goes on at the
    /// beginning.
    fn next_piece(&mut self) -> Option<Piece> {
        let Rest { piece, at, left } = self.rest.take()?;
        let target = self.targets.get(piece.target);
        let len = left.min(target.length() - at).min(target.bytes_max(piece.op));
        if len < left {
            self.split += u64::from(piece.len == 0);
            let at = (at + len) % target.length();
            self.rest = Some(Rest { piece: Piece { len, ..piece }, at, left: left - len });
        }
        Some(Piece { offset: at, len, ..piece })
    }

    /// Takes a record on, unless it is left out.
    fn take(&mut self, record: &Record) -> Result<()> {
        let number = self.records - 1;
        let index = self.targets.of(record.volume, &*self.input.source)?;
        let target = self.targets.get(index);
        let changes = !matches!(record.op, Op::Read | Op::Flush);
        if changes && self.judge.read_only {
            self.left_out.read_only += 1;
        } else if record.len == 0 && record.op != Op::Flush {
            self.left_out.empty += 1;
        } else if changes && target.is_read_only() {
            bail!(
                "{} is read-only and cannot take {}; --read-only leaves such requests out",
                target.uri(),
                describe_record(number, record)
            );
        } else if !target.offers(record.op) {
            self.left_out.not_offered += 1;
        } else {
            let (at, left) = self.place(target, number, record)?;
            let wrapped = (at, left) != (record.offset, record.len) || at + left > target.length();
            self.wrapped += u64::from(wrapped && record.op != Op::Flush);
            let first_ns = *self.first_ns.get_or_insert(record.time_ns);
            let due_ns = record.time_ns.saturating_sub(first_ns);
            let piece = Piece { target: index, number, due_ns, op: record.op, offset: 0, len: 0 };
            self.rest = Some(Rest { piece, at, left });
        }
        Ok(())
    }

    /// Where a record begins in its export, and how many bytes it has there.
    fn place(&self, target: &Target, number: u64, record: &Record) -> Result<(u64, u64)> {
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
        if self.judge.wrap {
            // What is longer than the export would only come round to where it was.
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

/// A record in words.
fn describe_record(number: u64, record: &Record) -> String {
    let Record { op, offset, len, .. } = record;
    format!("record {number}, a {} of {len} bytes at {offset}", op.name())
}
