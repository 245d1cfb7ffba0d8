//! Statistics of a trace, computed in one pass and in bounded memory.
//!
//! A read or write is sequential if it begins at the end of the previous one on the same volume.
//! Sizes and footprint are those of reads and writes. Percentiles come from a histogram with the
//! same buckets as the server's latencies, so they are accurate to a few per cent.

use super::footprint::Footprint;
use super::{Addressing, Op, Record};
use larder_core::counters::{Histogram, HistogramSnapshot};
use std::collections::BTreeMap;

/// Bytes of the pages of the footprint, unless the trace has its own page size.
pub(super) const PAGE_BYTES: u64 = 4096;
/// Size classes: up to 512 bytes, up to 1 KiB, ... up to 4 GiB and more.
pub(super) const SIZE_CLASSES: usize = 24;
/// Maximum number of volumes with separate statistics; the others are combined.
const VOLUMES_MAX: usize = 65_536;

/// Totals of one kind of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestTotals {
    /// Number of requests.
    pub(super) requests: u64,
    /// Number of bytes.
    pub(super) bytes: u64,
}

/// Statistics of one volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct VolumeSummary {
    /// By operation, in the order of [`Op::ALL`].
    pub(super) ops: [RequestTotals; Op::ALL.len()],
    /// Reads and writes that begin at the end of the previous one.
    pub(super) sequential: u64,
    /// Highest end of a read or write.
    pub(super) end: u64,
    /// End of the last read or write.
    last_end: Option<u64>,
}

impl VolumeSummary {
    /// Returns the number of reads and writes.
    pub(super) fn transfers(&self) -> u64 {
        let count = |op: Op| self.ops[op as usize].requests;
        count(Op::Read) + count(Op::Write)
    }
}

/// A summary, which can still be extended.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) addressing: Addressing,
    /// Bytes of a page of the footprint.
    pub(super) page_bytes: u64,
    /// Statistics of the whole trace.
    pub(super) total: VolumeSummary,
    /// Statistics by volume number; `u32::MAX` holds the others, if there are too many volumes.
    pub(super) volumes: BTreeMap<u32, VolumeSummary>,
    /// Reads and writes by size.
    pub(super) sizes: [u64; SIZE_CLASSES],
    /// Latest time minus first time, in nanoseconds.
    pub(super) duration_ns: u64,
    /// Distinct pages, or objects, that were read or written.
    pub(super) footprint: Footprint,
    first_ns: Option<u64>,
    previous_ns: u64,
    gaps: Histogram,
}

impl Summary {
    /// Creates an empty summary of a trace with this addressing.
    pub(super) fn new(addressing: Addressing) -> Self {
        let page_bytes = match addressing {
            Addressing::Bytes => PAGE_BYTES,
            Addressing::Pages { bytes } => u64::from(bytes),
            Addressing::Objects => 1,
        };
        Summary {
            addressing,
            page_bytes,
            total: VolumeSummary::default(),
            volumes: BTreeMap::new(),
            sizes: [0; SIZE_CLASSES],
            duration_ns: 0,
            footprint: Footprint::default(),
            first_ns: None,
            previous_ns: 0,
            gaps: Histogram::default(),
        }
    }

    /// Adds a record.
    pub(super) fn add(&mut self, record: &Record) {
        let has_entry =
            self.volumes.len() < VOLUMES_MAX || self.volumes.contains_key(&record.volume);
        let volume = if has_entry { record.volume } else { u32::MAX };
        let volume = self.volumes.entry(volume).or_default();
        let end = record.end();
        let objects = self.addressing == Addressing::Objects;
        let transfers = record.op.transfers();
        let sequential = transfers && !objects && volume.last_end == Some(record.offset);
        for statistics in [volume, &mut self.total] {
            let totals = &mut statistics.ops[record.op as usize];
            totals.requests += 1;
            totals.bytes = totals.bytes.saturating_add(record.len);
            statistics.sequential += u64::from(sequential);
            if transfers {
                statistics.last_end = Some(end);
                statistics.end = statistics.end.max(end);
            }
        }
        self.add_time(record.time_ns);
        if transfers {
            self.sizes[size_class(record.len)] += 1;
            if objects {
                self.footprint.add(record.volume, record.offset, record.offset);
            } else if record.len > 0 {
                let (first, last) = (record.offset / self.page_bytes, (end - 1) / self.page_bytes);
                self.footprint.add(record.volume, first, last);
            }
        }
    }

    fn add_time(&mut self, time_ns: u64) {
        match self.first_ns {
            None => self.first_ns = Some(time_ns),
            // A request that is earlier than the previous one counts as simultaneous.
            Some(first) => {
                self.gaps.record(time_ns.saturating_sub(self.previous_ns));
                self.duration_ns = self.duration_ns.max(time_ns.saturating_sub(first));
            }
        }
        self.previous_ns = time_ns;
    }

    /// Returns the times between requests.
    pub(super) fn gaps(&self) -> HistogramSnapshot {
        let mut snapshot = HistogramSnapshot::default();
        self.gaps.add_to(&mut snapshot);
        snapshot
    }
}

/// Returns the size class of a length.
fn size_class(len: u64) -> usize {
    let largest = 512 << (SIZE_CLASSES - 1);
    let rounded = len.clamp(512, largest).next_power_of_two();
    usize::try_from(rounded.trailing_zeros() - 9).expect("less than 64")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_sequences_are_told() {
        assert_eq!([0, 512, 513, 4096, 4097, 1 << 40].map(size_class), [0, 0, 1, 3, 4, 23]);
        // Objects can have any length.
        assert_eq!([1 << 32, (1 << 32) + 1, u64::MAX].map(size_class), [23, 23, 23]);
        let mut summary = Summary::new(Addressing::Bytes);
        let record = Record { len: 4096, ..Record::default() };
        for (time_ns, offset, volume) in [(0, 0, 0), (10, 4096, 0), (20, 4096, 1), (25, 8192, 0)] {
            summary.add(&Record { time_ns, offset, volume, ..record });
        }
        summary.add(&Record { op: Op::Flush, time_ns: 30, ..Record::default() });
        assert_eq!(summary.total.sequential, 2);
        assert_eq!(summary.volumes[&0].sequential, 2);
        assert_eq!(summary.footprint.pages(), 4);
        assert_eq!((summary.duration_ns, summary.gaps().count()), (30, 4));
        assert_eq!(summary.total.transfers(), 4);
    }
}
