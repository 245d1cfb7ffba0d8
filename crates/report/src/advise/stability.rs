//! Required cache sizes of the parts of a trace.
//!
//! For each window the analysis determines the size that reaches the target share of the window's
//! reachable hits, with a cache that has run since the start of the trace.

use larder_schema::format;
use larder_schema::sizing::{Stability, Window};

/// Maximum factor between the windows' sizes of a steady workload.
const STEADY: f64 = 2.0;
/// Factor beyond which a workload is unsteady.
const UNSTEADY: f64 = 8.0;
/// Minimum share of the largest need so far that each part of a growing workload has.
const GROWING: f64 = 0.8;

/// Assesses the windows; returns `None` if no window has a required size.
#[must_use]
pub fn assess(windows: &[Window], recommended_bytes: u64) -> Option<Stability> {
    let mut needs: Vec<u64> = windows.iter().filter_map(|window| window.needed_bytes).collect();
    let is_growing = is_growing(&needs);
    needs.sort_unstable();
    let (&least_bytes, &most_bytes) = (needs.first()?, needs.last()?);
    let median_bytes = needs[(needs.len() - 1) / 2];
    let covered = needs.iter().filter(|&&bytes| bytes <= recommended_bytes).count();
    let factor = larder_schema::as_f64(most_bytes) / larder_schema::as_f64(least_bytes.max(1));
    let level = if factor <= STEADY {
        "steady: the parts of the trace need about the same"
    } else if is_growing {
        "growing: at the beginning of a trace few pages are read a second time, and a longer trace \
         may need more"
    } else if factor <= UNSTEADY {
        "changing: the parts of the trace differ, and the size for the whole is a compromise"
    } else {
        "unsteady: there are phases that need little and phases that need much; a longer trace \
         or one of the busy time says more"
    };
    // A part in which no page is referenced again has no need.
    let with_hits = if needs.len() < windows.len() { " in which anything can hit" } else { "" };
    let judgment = format!(
        "Its need is {level} ({} to {}, a factor of {}). The recommended size is enough for {} \
         of the {} parts{with_hits}.",
        format::bytes(least_bytes),
        format::bytes(most_bytes),
        format::number(factor),
        covered,
        needs.len(),
    );
    let windows = needs.len();
    Some(Stability { least_bytes, median_bytes, most_bytes, covered, windows, judgment })
}

/// Returns true if no need is much smaller than one before it: every trace begins with first
/// references, which no cache hits, so that little memory reaches all possible hits.
fn is_growing(needs: &[u64]) -> bool {
    let mut most = 0;
    needs.iter().all(|&need| {
        most = most.max(need);
        larder_schema::as_f64(need) >= GROWING * larder_schema::as_f64(most)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(needs: &[Option<u64>]) -> Vec<Window> {
        let window = |needed_bytes: &Option<u64>| Window {
            begin_ns: 0,
            references: 10,
            needed_bytes: *needed_bytes,
            ceiling: 0.5,
            hit_ratio: 0.4,
        };
        needs.iter().map(window).collect()
    }

    #[test]
    fn needs_that_differ_little_are_steady() {
        let found = assess(&windows(&[Some(10), Some(15), None, Some(12)]), 12).unwrap();
        assert_eq!((found.least_bytes, found.median_bytes, found.most_bytes), (10, 12, 15));
        assert_eq!((found.covered, found.windows), (2, 3));
        assert!(found.judgment.contains("steady: the parts"), "{}", found.judgment);
        let words = "is enough for 2 of the 3 parts in which anything can hit.";
        assert!(found.judgment.ends_with(words), "{}", found.judgment);
    }

    #[test]
    fn needs_far_apart_are_unsteady_and_none_is_nothing() {
        let found = assess(&windows(&[Some(150), Some(10)]), 12).unwrap();
        assert!(found.judgment.contains("unsteady"), "{}", found.judgment);
        let found = assess(&windows(&[Some(10), Some(50), Some(30)]), 12).unwrap();
        assert!(found.judgment.contains("changing"), "{}", found.judgment);
        assert!(found.judgment.ends_with("for 1 of the 3 parts."), "{}", found.judgment);
        assert_eq!(assess(&windows(&[None]), 12), None);
    }

    #[test]
    fn needs_that_rise_with_the_trace_are_growing() {
        let found = assess(&windows(&[Some(10), Some(30), Some(52), Some(50)]), 12).unwrap();
        assert!(found.judgment.contains("growing: at the"), "{}", found.judgment);
    }
}
