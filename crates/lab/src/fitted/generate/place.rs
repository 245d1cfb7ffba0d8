//! The pages of a request: those of an earlier one, or new pages.

use super::{Current, FittedTrace};
use crate::fitted::model::{Kind, Start};
use crate::sim::references::Split;

/// Draws of a free place for new pages.
const PLACES: u32 = 32;
/// New pages follow a page whose distance differs by at most one part in so many.
const NEAR_PARTS: u32 = 8;

impl FittedTrace {
    /// Returns the first page and the shape of the next request.
    pub(super) fn place(&mut self, current: Current) -> (u64, u16) {
        let Current { run, begin, requests, pages: had } = current;
        let (history, shapes) = (&self.history, &self.model.shapes);
        match run.kind {
            Kind::Old { distance, .. } => {
                if let Some(first) = begin.filter(|_| requests == 0) {
                    return (first, run.shape);
                }
                // The run has too few requests for its pages: the next one is the shorter one.
                let is_behind = u128::from(requests) * u128::from(run.pages)
                    < u128::from(had) * u128::from(run.requests);
                let is_longer =
                    shapes.get(run.shape).pages > history.repeated_pages(distance, shapes);
                let is_other = requests == 0 || is_behind != is_longer;
                let other = Some(run.shape).filter(|_| is_other && self.split != Split::Objects);
                history.repeat(distance, other, shapes, &self.run_pool.distances)
            }
            Kind::New { start, old, step } => {
                let pages = shapes.get(run.shape).pages;
                let old = old.min(pages - 1);
                let next = |step: i32| self.first.checked_add_signed(step.into());
                let is_free = |&first: &u64| {
                    first <= self.limit - pages && history.has_room(first, old, pages)
                };
                let first = match start {
                    _ if requests > 0 => next(step).filter(is_free),
                    Start::Far => None,
                    Start::Step(step) => next(step).filter(is_free),
                    Start::Stream(like) => history.streams.begins(like).into_iter().find(is_free),
                    Start::After(distance) => self.after(distance, old, pages),
                };
                (first.unwrap_or_else(|| self.far(pages)), run.shape)
            }
        }
    }

    /// Returns the begin of a request after a page near this distance.
    fn after(&mut self, distance: u32, old: u64, pages: u64) -> Option<u64> {
        let exact = &self.history.exact;
        let most = exact.footprint().checked_sub(1)?;
        let reach = u64::from(distance / NEAR_PARTS);
        for _ in 0..PLACES {
            let near = u64::from(distance) - reach + self.random.below(2 * reach + 1);
            let near = u32::try_from(near.min(most)).expect("fewer than 2^32 pages");
            let found = exact.page(exact.number_at(near));
            let Some(first) = (found + 1).checked_sub(old) else { continue };
            if self.history.has_room(first, old, pages) {
                return Some(first);
            }
        }
        None
    }

    /// Returns the begin of free pages at a random place.
    fn far(&mut self, pages: u64) -> u64 {
        let Some(most) = self.span.checked_sub(pages) else { return self.end };
        let mut draws = (0..PLACES).map(|_| self.random.below(most + 1));
        draws.find(|&first| self.history.has_room(first, 0, pages)).unwrap_or(self.end)
    }
}
