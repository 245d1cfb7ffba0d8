//! The pages of the generated trace and its recent requests, and the pages in them that match a
//! run.

use super::model::{Kind, PageOp, Run, distance_class};
use super::run_pool::Distances;
use super::shapes::Shapes;
use super::streams::Streams;
use crate::sim::curve::Exact;

/// A page and its place in the last request for it.
#[derive(Clone, Copy, Debug)]
struct Page {
    index: u32,
    references: u32,
    shape: u16,
    op: PageOp,
}

/// The pages and requests of a generated trace so far.
#[derive(Debug)]
pub(super) struct History {
    /// The pages in the order of their last references.
    pub(super) exact: Exact,
    pub(super) streams: Streams,
    pages: Vec<Page>,
}

impl History {
    /// Returns the history of an empty trace.
    pub(super) fn new() -> Self {
        let streams = Streams::default();
        History { exact: Exact::with_numbers(), streams, pages: Vec::new() }
    }

    /// Returns the last operation on a page.
    pub(super) fn op(&self, page: u64) -> PageOp {
        self.exact.find(page).map_or(PageOp::None, |(number, _)| self.pages[number as usize].op)
    }

    /// Returns true if the first `old` of these pages are in use, and the other ones are not.
    pub(super) fn has_room(&self, first: u64, old: u64, pages: u64) -> bool {
        (0..pages).all(|index| self.exact.find(first + index).is_some() == (index < old))
    }

    /// Returns the difference between the page at the distance of a run and its page in the other
    /// trace, in popularity and length of the request.
    pub(super) fn mismatch(&self, run: &Run, shapes: &Shapes) -> u32 {
        let Kind::Old { distance, popularity, .. } = run.kind else { return 0 };
        if u64::from(distance) >= self.exact.footprint() {
            return u32::MAX;
        }
        let page = self.pages[self.exact.number_at(distance) as usize];
        let is_other = shapes.get(page.shape).pages != shapes.get(run.shape).pages;
        4 * u32::from(is_other)
            + u32::from(page.index > 0)
            + page.references.max(1).ilog2().abs_diff(popularity.into())
    }

    /// Returns the first page of a run that continues a recent request and has nearly the distance
    /// and popularity of this run.
    pub(super) fn continuation(
        &self,
        run: &Run,
        shapes: &Shapes,
        distances: &Distances,
    ) -> Option<u64> {
        let Kind::Old { distance, popularity, continues } = run.kind else { return None };
        let pages = shapes.get(run.shape).pages;
        let is_like = |(number, found): (u32, u32)| {
            let references = self.pages[number as usize].references;
            distances.is_similar(distance, found)
                && references.max(1).ilog2().abs_diff(popularity.into()) <= 1
        };
        let fits = |&first: &u64| {
            self.exact.find(first + pages / 2).is_some_and(is_like)
                && self.has_room(first, pages, pages)
        };
        self.streams.begins(continues?).into_iter().find(fits)
    }

    /// Returns the first page and the shape of a request for the page at this distance: the last
    /// request for it again, or one of the other length if its pages have similar distances.
    pub(super) fn repeat(
        &self,
        distance: u32,
        other: Option<u16>,
        shapes: &Shapes,
        distances: &Distances,
    ) -> (u64, u16) {
        let number = self.exact.number_at(distance);
        let page = self.pages[number as usize];
        let index = u64::from(page.index);
        let first = self.exact.page(number) - index;
        let pages = shapes.get(page.shape).pages;
        let Some(other) = other.filter(|&other| other != page.shape) else {
            return (first, page.shape);
        };
        let wanted = shapes.get(other).pages;
        if wanted <= pages {
            let aligned = first + index / wanted * wanted;
            return (aligned.min(first + pages - wanted), other);
        }
        let is_near = |page| {
            let found = self.exact.find(page);
            // The pages from the begin of the request are more recent by so many.
            let is_near = |it: u32| u64::from(it.abs_diff(distance)) <= wanted;
            found.is_some_and(|(_, it)| is_near(it) || distances.is_similar(distance, it))
        };
        let fits = (first + pages..first + wanted).all(is_near);
        (first, if fits { other } else { page.shape })
    }

    /// Returns the number of pages in the request that [`Self::repeat`] would repeat.
    pub(super) fn repeated_pages(&self, distance: u32, shapes: &Shapes) -> u64 {
        shapes.get(self.pages[self.exact.number_at(distance) as usize].shape).pages
    }

    /// References the pages of a request; passes the class of each reference to `count`.
    pub(super) fn reference(
        &mut self,
        first: u64,
        pages: u64,
        shape: u16,
        write: bool,
        mut count: impl FnMut(usize),
    ) {
        for index in 0..pages {
            let (number, distance) = self.exact.reference(first + index);
            count(distance_class(distance));
            if number as usize == self.pages.len() {
                self.pages.push(Page { index: 0, references: 0, shape, op: PageOp::None });
            }
            let page = &mut self.pages[number as usize];
            let index = u32::try_from(index).expect("at most 2^23 pages");
            let references = page.references.saturating_add(1);
            *page = Page { index, references, shape, op: PageOp::of(write) };
        }
        self.streams.add(first, first + pages);
    }
}
