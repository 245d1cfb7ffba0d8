//! The lengths of requests, with their place in pages.

use crate::sim::references::{Split, pack};
use crate::trace::Record;
use std::collections::BTreeMap;

/// Maximum number of different shapes of requests.
const SHAPES_MAX: usize = 1 << 12;

/// The pages of a request, and its bytes in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shape {
    pub(super) pages: u64,
    /// Bytes of the first page before the request.
    pub(super) skipped: u64,
    pub(super) bytes: u64,
}

impl Shape {
    /// Returns the shape of a request and its first page, which volume and page make one number;
    /// `None` if they do not fit.
    pub(super) fn of(record: &Record, split: Split) -> Option<(Shape, u64)> {
        let Some(page_bytes) = split.page_bytes().map(u64::from) else {
            let shape = Shape { pages: 1, skipped: 0, bytes: record.len };
            return Some((shape, record.offset));
        };
        let (first, last) = (record.offset / page_bytes, (record.end() - 1) / page_bytes);
        pack(record.volume, last)?;
        let skipped = record.offset % page_bytes;
        let shape = Shape { pages: last - first + 1, skipped, bytes: record.len };
        Some((shape, pack(record.volume, first)?))
    }
}

/// The different shapes of requests.
#[derive(Debug)]
pub(super) struct Shapes {
    numbers: BTreeMap<Shape, u16>,
    shapes: Vec<Shape>,
}

impl Default for Shapes {
    /// Returns the smallest shape, so that no request becomes longer if there are too many shapes.
    fn default() -> Self {
        let smallest = Shape { pages: 1, skipped: 0, bytes: 1 };
        Shapes { numbers: BTreeMap::from([(smallest, 0)]), shapes: vec![smallest] }
    }
}

impl Shapes {
    /// Returns the number of this shape, or of the next smaller one if there are too many.
    pub(super) fn number(&mut self, shape: Shape) -> u16 {
        let full = self.shapes.len() == SHAPES_MAX;
        match self.numbers.get(&shape) {
            Some(&number) => number,
            None if full => {
                let near = self.numbers.range(..shape).next_back();
                *near.or_else(|| self.numbers.first_key_value()).expect("it is full").1
            }
            None => {
                let number = u16::try_from(self.shapes.len()).expect("few shapes");
                self.shapes.push(shape);
                self.numbers.insert(shape, number);
                number
            }
        }
    }

    pub(super) fn get(&self, number: u16) -> Shape {
        self.shapes[usize::from(number)]
    }
}
