//! The LRU curve of each volume, as in a separate cache.

use super::{
    PAGE_SIZES, Progress, ProgressCallback, SizingContext, SizingError, page_bytes, search,
};
use crate::sim::references::{Reference, ReferenceKey};
use crate::trace::NameKind;
use larder_core::curve::sampled::{SAMPLE_PAGES_OF_MANY, SampledCurve};
use larder_report::advise::divide::MemoryRequest;
use larder_schema::curve::{Curve, Point};
use std::collections::BTreeMap;

/// Maximum number of volumes with a curve, because each curve takes memory. Those with the most
/// references have one.
pub(super) const VOLUMES_MAX: usize = 64;

pub(super) fn memory_requests(
    context: &SizingContext<'_>,
    progress: &mut ProgressCallback<'_>,
) -> Result<Vec<MemoryRequest>, SizingError> {
    let mut busiest: Vec<_> = context.survey.volumes.iter().collect();
    busiest.sort_by_key(|(number, volume)| (std::cmp::Reverse(volume.references), **number));
    let sample = || SampledCurve::new(SAMPLE_PAGES_OF_MANY, context.options.seed);
    let mut curves: BTreeMap<u32, (SampledCurve, Vec<Reference>)> = busiest
        .iter()
        .take(VOLUMES_MAX)
        .map(|(number, _)| (**number, (sample(), Vec::new())))
        .collect();
    let mut done = 0;
    context
        .references(PAGE_SIZES[0])?
        .by(Some(ReferenceKey::Name(NameKind::Volume)))
        .for_each_batch(|batch| {
            for (reference, group) in batch.references.iter().zip(&batch.groups) {
                if let Some((_, references_of_volume)) = curves.get_mut(group) {
                    references_of_volume.push(*reference);
                }
            }
            for (sampled, references_of_volume) in curves.values_mut() {
                sampled.run(references_of_volume);
                references_of_volume.clear();
            }
            done += batch.references.len() as u64;
            progress(Progress { step: "volumes", done, total: context.survey.references[0] });
            Ok::<_, SizingError>(())
        })?;
    let request = |number: &u32, sampled: &SampledCurve| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let footprint = sampled.footprint().round() as u32;
        let point = |pages: u32| {
            let estimate = sampled.hit_ratio(pages.into())?;
            let bytes = page_bytes(pages.into());
            Some(Point {
                bytes,
                hit_ratio: estimate.hit_ratio,
                low: estimate.low,
                high: estimate.high,
            })
        };
        let volume = &context.survey.volumes[number];
        MemoryRequest {
            name: volume.name.clone(),
            references: volume.references,
            curve: Curve::new(search::grid(footprint).into_iter().filter_map(point)),
        }
    };
    Ok(busiest
        .iter()
        .filter_map(|(number, _)| Some(request(number, &curves.get(number)?.0)))
        .collect())
}
