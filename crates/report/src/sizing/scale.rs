//! Extrapolation from a sample of the pages to all pages.
//!
//! A cache for one in N sampled pages behaves like a cache N times as large for all pages
//! (Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC construction with SHARDS", FAST 2015):
//! sizes and counts are multiplied by N, hit ratios stay.

use crate::advise::{regions, stability};
use larder_schema::curve::{Curve, Point};
use larder_schema::sizing::Sizing;

/// Extrapolates results of one in `times` pages to all pages. The results become estimates.
#[must_use]
pub fn scaled(mut sizing: Sizing, times: u32) -> Sizing {
    let factor = u64::from(times);
    let multiply = |count: &mut u64| *count = count.saturating_mul(factor);
    let scale_point = |point: Point| Point { bytes: point.bytes.saturating_mul(factor), ..point };
    sizing.exact = false;
    let workload = &mut sizing.workload;
    workload.footprint_exact = false;
    for count in [
        &mut workload.requests,
        &mut workload.references,
        &mut workload.bytes,
        &mut workload.footprint_pages,
        &mut workload.compulsory_misses,
    ] {
        multiply(count);
    }
    for best in &mut sizing.curve {
        best.point = scale_point(best.point);
    }
    for policy in &mut sizing.policies {
        policy.points = Curve::new(policy.points.points().iter().copied().map(scale_point));
    }
    if let Some(regions) = &mut sizing.regions {
        multiply(&mut regions.steep_end_bytes);
        multiply(&mut regions.flat_begin_bytes);
        sizing.regions_why = regions::reasons(regions).into();
    }
    for effect in &mut sizing.effects {
        effect.point = scale_point(effect.point);
        effect.counted = false;
        effect.misses_per_hour = effect.misses_per_hour.map(|misses| misses * f64::from(times));
        multiply(&mut effect.store_bytes);
    }
    for window in &mut sizing.windows {
        multiply(&mut window.references);
        window.needed_bytes.iter_mut().for_each(multiply);
    }
    if let Some(advice) = &mut sizing.recommendation {
        multiply(&mut advice.bytes);
        multiply(&mut advice.memory_bytes);
        advice.target_bytes.iter_mut().for_each(multiply);
        sizing.stability = stability::assess(&sizing.windows, advice.bytes);
    }
    for share in &mut sizing.volumes {
        multiply(&mut share.references);
        multiply(&mut share.footprint_bytes);
        multiply(&mut share.bytes);
    }
    for slice in &mut sizing.slices {
        if sizing.workload.duration_ns.is_none() {
            multiply(&mut slice.begin);
        }
        multiply(&mut slice.references);
        multiply(&mut slice.pages);
    }
    sizing.heat.rows.iter_mut().flatten().for_each(multiply);
    sizing
}
