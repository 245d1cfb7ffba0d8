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
        let grow = |count: &mut u64| *count = count.saturating_mul(factor);
        let larger = |point: Point| Point { bytes: point.bytes.saturating_mul(factor), ..point };
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
            grow(count);
        }
        for best in &mut self.curve {
            best.point = larger(best.point);
        }
        for policy in &mut self.policies {
            policy.points = Curve::new(policy.points.points().iter().copied().map(larger));
        }
        if let Some(regions) = &mut self.regions {
            grow(&mut regions.steep_end_bytes);
            grow(&mut regions.flat_begin_bytes);
            self.regions_why = regions.reasons().into();
        }
        for effect in &mut self.effects {
            effect.point = larger(effect.point);
            effect.counted = false;
            effect.misses_per_hour = effect.misses_per_hour.map(|misses| misses * f64::from(times));
            grow(&mut effect.store_bytes);
        }
        for window in &mut self.windows {
            grow(&mut window.references);
            window.needed_bytes.iter_mut().for_each(grow);
        }
        if let Some(advice) = &mut self.recommendation {
            grow(&mut advice.bytes);
            grow(&mut advice.memory_bytes);
            advice.target_bytes.iter_mut().for_each(grow);
            self.stability = Stability::of(&self.windows, advice.bytes);
        }
        for share in &mut self.volumes {
            grow(&mut share.references);
            grow(&mut share.footprint_bytes);
            grow(&mut share.bytes);
        }
        for slice in &mut self.slices {
            if self.workload.duration_ns.is_none() {
                grow(&mut slice.begin);
            }
            grow(&mut slice.references);
            grow(&mut slice.pages);
        }
        self.heat.rows.iter_mut().flatten().for_each(grow);
        self
    }
}
