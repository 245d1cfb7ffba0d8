//! Readers of the formats of other tools: the text formats of fields in `columns`, and one module
//! for each other format.

mod blkparse;
mod blktrace;
mod columns;
mod filemon;
mod fio;
mod keys;
mod lcs;
mod oracle_general;
mod perf_script;
mod perfmon;
mod procmon;
mod tencent;
mod twitter;
mod vscsi;

pub(super) use blkparse::Blkparse;
pub(super) use blktrace::Blktrace;
pub(super) use columns::{alibaba, disksim, lis, msr, spc, systor};
pub(super) use filemon::Filemon;
pub(super) use fio::Fio;
pub(super) use keys::Keys;
pub(super) use lcs::{HEADER_BYTES as LCS_HEADER_BYTES, Lcs};
pub(super) use oracle_general::OracleGeneral;
pub(super) use perf_script::PerfScript;
pub(super) use perfmon::refusal as perfmon_refusal;
pub(super) use procmon::Procmon;
pub(super) use tencent::Tencent;
pub(super) use twitter::{is_operation as twitter_operation, twitter};
pub(super) use vscsi::Vscsi;

use super::bytes;
use super::decode::{Decode, DecodeOutput, Decoded, FormatError};
use super::text;
use super::{LEN_MAX, Op, Record, TraceError};

/// Bytes of a sector, the unit of many formats.
const SECTOR_BYTES: u64 = 512;

/// Converts a number of sectors to bytes.
fn sectors(count: u64) -> Result<u64, FormatError> {
    count.checked_mul(SECTOR_BYTES).ok_or("a number of sectors beyond 2^64 bytes")
}

/// Converts a time in units of `unit_ns` to nanoseconds.
fn time(count: u64, unit_ns: u64) -> Result<u64, FormatError> {
    count.checked_mul(unit_ns).ok_or("a time beyond 2^64 ns")
}

/// The event of the block layer that represents a request: the first that a trace has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockEvent {
    Queued,
    Issued,
    Completed,
}

impl BlockEvent {
    /// Selects the event; `found` states for each if the beginning of the trace has it.
    fn select(found: [bool; 3]) -> BlockEvent {
        match found {
            [true, _, _] | [_, false, false] => BlockEvent::Queued,
            [_, true, _] => BlockEvent::Issued,
            _ => BlockEvent::Completed,
        }
    }

    /// Returns a note if requests are represented by an unusual event.
    fn notes(self) -> Vec<String> {
        let event = match self {
            BlockEvent::Queued => return Vec::new(),
            BlockEvent::Issued => "issued (D)",
            BlockEvent::Completed => "completed (C)",
        };
        vec![format!("no request is seen being queued (Q); taken are those being {event}")]
    }
}
