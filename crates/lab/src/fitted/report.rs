//! The error of a fitted trace: sizes of both traces, and the difference of their curves.

use crate::sim::curve::ExactCurve;
use larder_report::table::{Cell, Column, Table};
use larder_schema::format;

/// The largest difference of the curves, in points, that the text does not remark on.
const POINTS_MAX: f64 = 3.0;

/// The size of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceSize {
    /// Number of reads and writes.
    pub requests: u64,
    /// Number of writes.
    pub writes: u64,
    /// Number of references to pages.
    pub references: u64,
    /// Number of different pages.
    pub pages: u64,
}

/// The difference between the LRU hit ratios of two traces, in points of percent without sign, over
/// all cache sizes from one page to the larger footprint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurveError {
    /// The mean over the sizes.
    pub mean: f64,
    /// The largest one.
    pub largest: f64,
    /// The size in pages of the largest one.
    pub largest_at: u64,
}

impl CurveError {
    /// Compares two curves.
    #[must_use]
    pub fn between(one: &ExactCurve, other: &ExactCurve) -> Self {
        let sizes = one.footprint().max(other.footprint()).max(1);
        let mut error = CurveError { mean: 0.0, largest: 0.0, largest_at: 1 };
        let ratio = |curve: &ExactCurve, size| 100.0 * curve.hit_ratio(size).unwrap_or(0.0);
        for size in 1..=sizes {
            let difference = (ratio(one, size) - ratio(other, size)).abs();
            error.mean += difference;
            if difference > error.largest {
                (error.largest, error.largest_at) = (difference, size);
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 sizes")]
        let sizes = sizes as f64;
        CurveError { mean: error.mean / sizes, ..error }
    }
}

/// Returns the text for the sizes of a trace and of the one fitted to it, and for the difference of
/// their curves.
pub(super) fn to_text(original: TraceSize, synthetic: TraceSize, error: CurveError) -> String {
    let numbers =
        ["requests", "writes", "references", "pages"].map(|key| Column::numbers(key, key));
    let columns = [Column::words("trace", "trace")].into_iter().chain(numbers);
    let mut sizes = Table::new("", columns);
    for (name, size) in [("original", original), ("synthetic", synthetic)] {
        let TraceSize { requests, writes, references, pages } = size;
        let counts = [requests, writes, references, pages].map(Cell::count);
        sizes.push([Cell::word(name)].into_iter().chain(counts));
    }
    let CurveError { mean, largest, largest_at } = error;
    let remark = if largest > POINTS_MAX {
        format!("The curve differs by more than {POINTS_MAX} points.\n")
    } else {
        String::new()
    };
    format!(
        "{}\nLRU hit ratios differ by {mean:.2} points (mean over all sizes), at most {largest:.2} \
         points at {}.\n{remark}",
        sizes.to_text(),
        format::counted(largest_at, "page")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_remarks_on_more_than_three_points() {
        let text = |largest| {
            let error = CurveError { mean: 0.25, largest, largest_at: 1_234 };
            to_text(TraceSize::default(), TraceSize::default(), error)
        };
        assert!(text(2.5).ends_with(
            "\nLRU hit ratios differ by 0.25 points (mean over all sizes), at most 2.50 points at \
             1,234 pages.\n"
        ));
        assert!(text(3.01).ends_with("\nThe curve differs by more than 3 points.\n"));
    }
}
