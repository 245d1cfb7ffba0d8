//! The first pass: duration and footprint of the trace, and extent of its volumes.
//!
//! Memory: that of a [`Footprint`] for each page size, which is bounded.

use super::{PAGE_SIZES, Progress, ProgressCallback, SizingError};
use crate::trace::{BoxedSource, Footprint, NameKind, Op};
use std::collections::BTreeMap;

/// Number of distinct pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pages {
    pub(super) pages: u64,
    /// True if they were counted, false if they are an estimate.
    pub(super) exact: bool,
}

/// One volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VolumeSurvey {
    pub(super) name: String,
    /// In pages of the first size.
    pub(super) references: u64,
    /// Offset of its first touched byte, and end of the last.
    pub(super) begin_bytes: u64,
    pub(super) end_bytes: u64,
}

/// Properties of the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TraceProperties {
    /// Reads and writes of data.
    pub(super) requests: u64,
    /// The reads among them.
    pub(super) reads: u64,
    pub(super) bytes: u64,
    /// Time of the first read or write.
    pub(super) first_ns: Option<u64>,
    /// Time from the first to the latest read or write.
    pub(super) duration_ns: u64,
    /// References, by page size.
    pub(super) references: [u64; PAGE_SIZES.len()],
    pub(super) footprints: [Pages; PAGE_SIZES.len()],
    pub(super) volumes: BTreeMap<u32, VolumeSurvey>,
    /// Sampling divisor `n`: the trace has one of `n` pages.
    pub(super) sample: u32,
    /// Notes of the trace reader for the user.
    pub(super) notes: Vec<String>,
}

/// References between two progress reports.
const REPORT_INTERVAL: u64 = 1 << 18;

pub(super) fn survey(
    mut source: BoxedSource,
    progress: &mut ProgressCallback<'_>,
) -> Result<TraceProperties, SizingError> {
    let mut survey = TraceProperties::default();
    let mut footprints: [Footprint; PAGE_SIZES.len()] = Default::default();
    let (mut records, mut reported) = (Vec::new(), 0);
    while source.next_batch(&mut records)? {
        for record in records.iter().filter(|record| record.op.transfers() && record.len > 0) {
            survey.requests += 1;
            survey.reads += u64::from(record.op == Op::Read);
            survey.bytes += record.len;
            let first_ns = *survey.first_ns.get_or_insert(record.time_ns);
            let since_first = record.time_ns.saturating_sub(first_ns);
            survey.duration_ns = survey.duration_ns.max(since_first);
            let end = record.offset.saturating_add(record.len);
            for (size, bytes) in PAGE_SIZES.into_iter().enumerate() {
                let (first, last) =
                    (record.offset / u64::from(bytes), (end - 1) / u64::from(bytes));
                survey.references[size] += last - first + 1;
                footprints[size].add(record.volume, first, last);
                if size == 0 {
                    let empty = VolumeSurvey { begin_bytes: u64::MAX, ..VolumeSurvey::default() };
                    let volume = survey.volumes.entry(record.volume).or_insert(empty);
                    volume.references += last - first + 1;
                    volume.begin_bytes = volume.begin_bytes.min(record.offset);
                    volume.end_bytes = volume.end_bytes.max(end);
                }
            }
        }
        if survey.references[0] - reported > REPORT_INTERVAL {
            reported = survey.references[0];
            progress(Progress { step: "reading", done: reported, total: 0 });
        }
    }
    for (number, volume) in &mut survey.volumes {
        volume.name = source
            .name(NameKind::Volume, *number)
            .map_or_else(|| number.to_string(), str::to_owned);
    }
    survey.sample = source.sample();
    survey.notes = source.notes();
    survey.footprints =
        footprints.map(|pages| Pages { pages: pages.pages(), exact: pages.is_exact() });
    Ok(survey)
}
