//! The second pass: the working set over time, and the accessed addresses over time.
//!
//! A trace without times is divided by requests instead. A request out of order counts in the
//! current slice.

use super::{SizingContext, SizingError};
use crate::trace::Footprint;
use larder_core::units::BLOCK_BYTES_U64;
use larder_schema::sizing::{AccessHeat, HeatVolume, Slice};
use std::collections::BTreeMap;

/// Number of time slices.
pub(super) const SLICES: u64 = 64;
/// Rows of the heat map; each volume has at least one.
const ROWS: u64 = 48;
/// Maximum number of volumes in the heat map.
const VOLUMES_MAX: usize = 24;

#[derive(Debug, Default)]
pub(super) struct TimeProfile {
    pub(super) slices: Vec<Slice>,
    pub(super) heat: AccessHeat,
    /// Start times of the windows with equal numbers of references.
    pub(super) windows_ns: Vec<u64>,
}

/// Rows of a volume in the heat map, and its extent.
#[derive(Clone, Copy, Debug)]
struct HeatArea {
    first_row: usize,
    rows: u64,
    begin: u64,
    bytes: u64,
}

/// Computes the slices and the heat map, and the start times of `windows` windows with equal
/// numbers of references.
pub(super) fn profile(
    context: &SizingContext<'_>,
    windows: u64,
) -> Result<TimeProfile, SizingError> {
    let survey = &context.survey;
    let (heat_areas, volumes) = heat_areas(context);
    let rows = volumes.iter().map(|volume| volume.rows).sum();
    let columns = usize::try_from(SLICES).expect("few slices");
    let mut heat = vec![vec![0_u64; columns]; rows];
    let has_times = survey.duration_ns > 0;
    // The length has 128 bits, because the last time may be the largest number of 64 bits.
    let length =
        if has_times { u128::from(survey.duration_ns) + 1 } else { u128::from(survey.requests) };
    let mut slices: Vec<Slice> = (0..SLICES)
        .map(|number| Slice { begin: slice_start(number, length), ..Slice::default() })
        .collect();
    let (mut slice, mut footprint) = (0_usize, Footprint::default());
    let (mut requests, mut references) = (0_u64, 0_u64);
    let mut windows_ns = Vec::new();
    let mut source = (context.open)()?;
    let mut records = Vec::new();
    while source.next_batch(&mut records)? {
        for record in records.iter().filter(|record| record.op.transfers() && record.len > 0) {
            let since_first = record.time_ns.saturating_sub(survey.first_ns.unwrap_or(0));
            let at = if has_times { since_first } else { requests };
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
                windows_ns.push(since_first);
            }
            requests += 1;
            references += last - first + 1;
            slices[slice].references += last - first + 1;
            footprint.add(record.volume, first, last);
            if let Some(area) = heat_areas.get(&record.volume) {
                let from_begin = u128::from(record.offset - area.begin);
                let row = from_begin * u128::from(area.rows) / u128::from(area.bytes);
                let row = usize::try_from(row).expect("a row of its volume");
                heat[area.first_row + row][slice] += last - first + 1;
            }
        }
    }
    slices[slice].pages = footprint.pages();
    Ok(TimeProfile { slices, heat: AccessHeat { volumes, rows: heat }, windows_ns })
}

fn slice_start(number: u64, length: u128) -> u64 {
    u64::try_from(u128::from(number) * length / u128::from(SLICES)).expect("a part of 64 bits")
}

/// Returns the rows of the volumes with the most references, each in proportion to its extent.
fn heat_areas(context: &SizingContext<'_>) -> (BTreeMap<u32, HeatArea>, Vec<HeatVolume>) {
    let mut busiest: Vec<_> = context.survey.volumes.iter().collect();
    busiest.sort_by_key(|(number, volume)| (std::cmp::Reverse(volume.references), **number));
    busiest.truncate(VOLUMES_MAX);
    busiest.sort_by_key(|(number, _)| **number);
    let extent = |volume: &super::survey::VolumeSurvey| volume.end_bytes - volume.begin_bytes;
    let whole: u128 = busiest.iter().map(|(_, volume)| u128::from(extent(volume))).sum();
    let (mut heat_areas, mut volumes, mut first_row) = (BTreeMap::new(), Vec::new(), 0);
    for (number, volume) in busiest {
        let bytes = extent(volume).max(1);
        let rows = u128::from(ROWS) * u128::from(bytes) / whole.max(1);
        let rows = u64::try_from(rows).expect("few rows").max(1);
        heat_areas.insert(*number, HeatArea { first_row, rows, begin: volume.begin_bytes, bytes });
        let rows = usize::try_from(rows).expect("few rows");
        first_row += rows;
        let (name, begin_bytes) = (volume.name.clone(), volume.begin_bytes);
        volumes.push(HeatVolume { volume: name, rows, begin_bytes, end_bytes: volume.end_bytes });
    }
    (heat_areas, volumes)
}
