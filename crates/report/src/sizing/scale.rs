//! Extrapolation from a sample of the pages to all pages.
//!
//! A cache for one in N sampled pages behaves like a cache N times as large for all pages
//! (Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC construction with SHARDS", FAST 2015):
//! sizes and counts are multiplied by N, hit ratios stay.

use super::Sizing;
use crate::advise::curve::{Curve, Point};
use crate::advise::stability::Stability;

impl Sizing {
    /// Extrapolates results of one in `times` pages to all pages. The results become estimates.
    #[must_use]
    pub fn scaled(mut self, times: u32) -> Self {
        let factor = u64::from(times);
        let multiply = |count: &mut u64| *count = count.saturating_mul(factor);
        let scale_point =
            |point: Point| Point { bytes: point.bytes.saturating_mul(factor), ..point };
        self.exact = false;
        let workload = &mut self.workload;
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
        for best in &mut self.curve {
            best.point = scale_point(best.point);
        }
        for policy in &mut self.policies {
            policy.points = Curve::new(policy.points.points().iter().copied().map(scale_point));
        }
        if let Some(regions) = &mut self.regions {
            multiply(&mut regions.steep_end_bytes);
            multiply(&mut regions.flat_begin_bytes);
            self.regions_why = regions.reasons().into();
        }
        for effect in &mut self.effects {
            effect.point = scale_point(effect.point);
            effect.counted = false;
            effect.misses_per_hour = effect.misses_per_hour.map(|misses| misses * f64::from(times));
            multiply(&mut effect.store_bytes);
        }
        for window in &mut self.windows {
            multiply(&mut window.references);
            window.needed_bytes.iter_mut().for_each(multiply);
        }
        if let Some(advice) = &mut self.recommendation {
            multiply(&mut advice.bytes);
            multiply(&mut advice.memory_bytes);
            advice.target_bytes.iter_mut().for_each(multiply);
            self.stability = Stability::of(&self.windows, advice.bytes);
        }
        for share in &mut self.volumes {
            multiply(&mut share.references);
            multiply(&mut share.footprint_bytes);
            multiply(&mut share.bytes);
        }
        for slice in &mut self.slices {
            if self.workload.duration_ns.is_none() {
                multiply(&mut slice.begin);
            }
            multiply(&mut slice.references);
            multiply(&mut slice.pages);
        }
        self.heat.rows.iter_mut().flatten().for_each(multiply);
        self
    }
}
