//! Readers of the formats of other tools, one module per format.

mod alibaba;
mod blkparse;
mod blktrace;
mod disksim;
mod fio;
mod keys;
mod lcs;
mod lis;
mod msr;
mod oracle_general;
mod perf_script;
mod perfmon;
mod procmon;
mod spc;
mod systor;
mod tencent;
mod twitter;
mod vscsi;

pub(super) use alibaba::Alibaba;
pub(super) use blkparse::Blkparse;
pub(super) use blktrace::Blktrace;
pub(super) use disksim::DiskSim;
pub(super) use fio::Fio;
pub(super) use keys::Keys;
pub(super) use lcs::{HEADER_BYTES as LCS_HEADER_BYTES, Lcs};
pub(super) use lis::Lis;
pub(super) use msr::Msr;
pub(super) use oracle_general::OracleGeneral;
pub(super) use perf_script::PerfScript;
pub(super) use perfmon::refusal as perfmon_refusal;
pub(super) use procmon::Procmon;
pub(super) use spc::Spc;
pub(super) use systor::Systor;
pub(super) use tencent::Tencent;
pub(super) use twitter::{Twitter, is_operation as twitter_operation};
pub(super) use vscsi::Vscsi;

use super::bytes;
use super::decode::{Decode, DecodeOutput, FixedRecord, FormatError};
use super::text;
use super::{Addressing, LEN_MAX, Op, Record, TraceError};

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
