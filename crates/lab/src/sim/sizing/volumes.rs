//! A curve of LRU for each volume, as if it had a cache of its own.

use super::{Case, PAGE_SIZES, Progress, SizingError, Tell, page_bytes, search};
use crate::sim::curve::sampled::{SAMPLE_PAGES, Sampled};
use crate::sim::references::{Batch, By, Reference};
use larder_report::advise::curve::{Curve, Point};
use larder_report::advise::divide::MemoryRequest;
use std::collections::BTreeMap;

/// Volumes that get a curve: each takes memory of its own. They are those with the most
/// references.
pub(super) const VOLUMES_MAX: usize = 64;

pub(super) fn claimants(
    case: &Case<'_>,
    tell: &mut Tell<'_>,
) -> Result<Vec<MemoryRequest>, SizingError> {
    let mut busiest: Vec<_> = case.survey.volumes.iter().collect();
    busiest.sort_by_key(|(number, volume)| (std::cmp::Reverse(volume.references), **number));
    let sample = || Sampled::new(SAMPLE_PAGES, case.options.seed);
    let mut curves: BTreeMap<u32, (Sampled, Vec<Reference>)> = busiest
        .iter()
        .take(VOLUMES_MAX)
        .map(|(number, _)| (**number, (sample(), Vec::new())))
        .collect();
    let mut stream = case.references(PAGE_SIZES[0])?.by(By::Volume);
    let (mut batch, mut done) = (Batch::default(), 0);
    loop {
        stream.read_batch(&mut batch)?;
        if batch.references.is_empty() {
            break;
        }
        for (reference, group) in batch.references.iter().zip(&batch.groups) {
            if let Some((_, own)) = curves.get_mut(group) {
                own.push(*reference);
            }
        }
        for (sampled, own) in curves.values_mut() {
            sampled.run(own);
            own.clear();
        }
        done += batch.references.len() as u64;
        tell(Progress { step: "volumes", done, total: case.survey.references[0] });
    }
    let claimant = |number: &u32, sampled: &Sampled| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let footprint = sampled.footprint().round() as u32;
        let point = |pages: u32| {
            let found = sampled.hit_ratio(pages.into())?;
            let bytes = page_bytes(pages.into());
            Some(Point { bytes, hit_ratio: found.hit_ratio, low: found.low, high: found.high })
        };
        let volume = &case.survey.volumes[number];
        MemoryRequest {
            name: volume.name.clone(),
            references: volume.references,
            curve: Curve::new(search::grid(footprint).into_iter().filter_map(point)),
        }
    };
    Ok(busiest
        .iter()
        .filter_map(|(number, _)| Some(claimant(number, &curves.get(number)?.0)))
        .collect())
}
