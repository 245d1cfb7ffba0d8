//! The first pass: how long the trace is, how much it touches, where its volumes end.
//!
//! Memory: that of a [`Footprint`] for each page size, which is bounded.

use super::{PAGE_SIZES, Progress, SizingError, Tell};
use crate::trace::{BoxedSource, Footprint, NameOf, Source};
use std::collections::BTreeMap;

/// Different pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pages {
    pub(super) pages: u64,
    /// Whether they were counted and not estimated.
    pub(super) exact: bool,
}

/// One volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VolumeSurvey {
    pub(super) name: String,
    /// In pages of the first size.
    pub(super) references: u64,
    /// Where its first touched byte is, and behind the last.
    pub(super) begin_bytes: u64,
    pub(super) end_bytes: u64,
}

/// What the trace is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Survey {
    /// Reads and writes of data.
    pub(super) requests: u64,
    pub(super) bytes: u64,
    /// Of reads and writes.
    pub(super) duration_ns: u64,
    /// With each page size.
    pub(super) references: [u64; PAGE_SIZES.len()],
    pub(super) footprints: [Pages; PAGE_SIZES.len()],
    pub(super) volumes: BTreeMap<u32, VolumeSurvey>,
    /// Of so many pages one is in the trace.
    pub(super) sample: u32,
    /// What the reader has to say.
    pub(super) notes: Vec<String>,
}

/// References between two calls of `tell`.
const TELL_EVERY: u64 = 1 << 18;

pub(super) fn survey(mut source: BoxedSource, tell: &mut Tell<'_>) -> Result<Survey, SizingError> {
    let mut found = Survey::default();
    let mut footprints: [Footprint; PAGE_SIZES.len()] = Default::default();
    let (mut records, mut told) = (Vec::new(), 0);
    while source.next_batch(&mut records)? {
        for record in records.iter().filter(|record| record.op.transfers() && record.len > 0) {
            found.requests += 1;
            found.bytes += record.len;
            found.duration_ns = found.duration_ns.max(record.time_ns);
            let end = record.offset.saturating_add(record.len);
            for (size, bytes) in PAGE_SIZES.into_iter().enumerate() {
                let (first, last) =
                    (record.offset / u64::from(bytes), (end - 1) / u64::from(bytes));
                found.references[size] += last - first + 1;
                footprints[size].add(record.volume, first, last);
                if size == 0 {
                    let fresh = VolumeSurvey { begin_bytes: u64::MAX, ..VolumeSurvey::default() };
                    let volume = found.volumes.entry(record.volume).or_insert(fresh);
                    volume.references += last - first + 1;
                    volume.begin_bytes = volume.begin_bytes.min(record.offset);
                    volume.end_bytes = volume.end_bytes.max(end);
                }
            }
        }
        if found.references[0] - told > TELL_EVERY {
            told = found.references[0];
            tell(Progress { step: "reading", done: told, total: 0 });
        }
    }
    for (number, volume) in &mut found.volumes {
        volume.name =
            source.name(NameOf::Volume, *number).map_or_else(|| number.to_string(), str::to_owned);
    }
    found.sample = source.sample();
    found.notes = source.notes();
    found.footprints =
        footprints.map(|pages| Pages { pages: pages.pages(), exact: pages.is_exact() });
    Ok(found)
}
