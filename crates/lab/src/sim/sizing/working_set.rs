//! The second pass: the working set over time, and addresses over time.
//!
//! A trace without times is cut by requests instead. Requests that are out of order count where
//! the pass is.

use super::{Case, SizingError};
use crate::trace::{Footprint, Source};
use larder_core::units::BLOCK_BYTES_U64;
use larder_report::sizing::{Heat, HeatVolume, Slice};
use std::collections::BTreeMap;

/// Slices of the time.
pub(super) const SLICES: u64 = 64;
/// Rows of the heat map, but at least one for each volume.
const ROWS: u64 = 48;
/// Volumes that are drawn.
const VOLUMES_MAX: usize = 24;

#[derive(Debug, Default)]
pub(super) struct Picture {
    pub(super) slices: Vec<Slice>,
    pub(super) heat: Heat,
    /// When each window begins, that has an equal part of the references.
    pub(super) windows_ns: Vec<u64>,
}

/// Where a volume is in the heat map.
#[derive(Clone, Copy, Debug)]
struct Place {
    first_row: usize,
    rows: u64,
    begin: u64,
    bytes: u64,
}

/// Draws; `windows` parts with equal numbers of references are timed.
pub(super) fn picture(case: &Case<'_>, windows: u64) -> Result<Picture, SizingError> {
    let survey = &case.survey;
    let (places, volumes) = places(case);
    let rows = volumes.iter().map(|volume| volume.rows).sum();
    let columns = usize::try_from(SLICES).expect("few slices");
    let mut heat = vec![vec![0_u64; columns]; rows];
    let timed = survey.duration_ns > 0;
    // In 128 bits: the last time may be the largest number of 64 bits.
    let length =
        if timed { u128::from(survey.duration_ns) + 1 } else { u128::from(survey.requests) };
    let mut slices: Vec<Slice> = (0..SLICES)
        .map(|number| Slice { begin: part(number, length), ..Slice::default() })
        .collect();
    let (mut slice, mut footprint) = (0_usize, Footprint::default());
    let (mut requests, mut references) = (0_u64, 0_u64);
    let mut windows_ns = Vec::new();
    let mut source = (case.open)()?;
    let mut records = Vec::new();
    while source.next_batch(&mut records)? {
        for record in records.iter().filter(|record| record.op.transfers() && record.len > 0) {
            let at = if timed { record.time_ns } else { requests };
            let now = usize::try_from(u128::from(at) * u128::from(SLICES) / length)
                .expect("few slices")
                .min(columns - 1);
            if now > slice {
                slices[slice].pages = std::mem::take(&mut footprint).pages();
                slice = now;
            }
            let end = record.offset.saturating_add(record.len);
            let (first, last) = (record.offset / BLOCK_BYTES_U64, (end - 1) / BLOCK_BYTES_U64);
            while windows_ns.len() as u64 * survey.references[0] / windows <= references
                && (windows_ns.len() as u64) < windows
            {
                windows_ns.push(record.time_ns);
            }
            requests += 1;
            references += last - first + 1;
            slices[slice].references += last - first + 1;
            footprint.add(record.volume, first, last);
            if let Some(place) = places.get(&record.volume) {
                let from_begin = u128::from(record.offset - place.begin);
                let row = from_begin * u128::from(place.rows) / u128::from(place.bytes);
                let row = usize::try_from(row).expect("a row of its volume");
                heat[place.first_row + row][slice] += last - first + 1;
            }
        }
    }
    slices[slice].pages = footprint.pages();
    Ok(Picture { slices, heat: Heat { volumes, rows: heat }, windows_ns })
}

fn part(number: u64, length: u128) -> u64 {
    u64::try_from(u128::from(number) * length / u128::from(SLICES)).expect("a part of 64 bits")
}

/// The rows of the volumes with the most references, each in proportion to its extent.
fn places(case: &Case<'_>) -> (BTreeMap<u32, Place>, Vec<HeatVolume>) {
    let mut busiest: Vec<_> = case.survey.volumes.iter().collect();
    busiest.sort_by_key(|(number, volume)| (std::cmp::Reverse(volume.references), **number));
    busiest.truncate(VOLUMES_MAX);
    busiest.sort_by_key(|(number, _)| **number);
    let extent = |volume: &super::survey::VolumeSurvey| volume.end_bytes - volume.begin_bytes;
    let whole: u128 = busiest.iter().map(|(_, volume)| u128::from(extent(volume))).sum();
    let (mut places, mut volumes, mut first_row) = (BTreeMap::new(), Vec::new(), 0);
    for (number, volume) in busiest {
        let bytes = extent(volume).max(1);
        let rows = u128::from(ROWS) * u128::from(bytes) / whole.max(1);
        let rows = u64::try_from(rows).expect("few rows").max(1);
        places.insert(*number, Place { first_row, rows, begin: volume.begin_bytes, bytes });
        let rows = usize::try_from(rows).expect("few rows");
        first_row += rows;
        let (name, begin_bytes) = (volume.name.clone(), volume.begin_bytes);
        volumes.push(HeatVolume { volume: name, rows, begin_bytes, end_bytes: volume.end_bytes });
    }
    (places, volumes)
}
