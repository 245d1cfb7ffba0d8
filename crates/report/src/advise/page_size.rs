//! Which page size costs the store least, at the same memory.
//!
//! Hit ratios of references cannot be compared across page sizes, since a request has fewer
//! references with larger pages. Two measures can: the *byte hit ratio* (of the bytes that clients
//! asked for, those that lay in resident pages) and the *bytes from the store* (a read that misses
//! fetches its whole page; a write that misses fetches nothing, since written sectors are valid by
//! themselves). A larger page brings neighbours along and takes fewer operations and less memory
//! for tables; if the neighbours are not wanted, it wastes memory and transfers.
//!
//! The rule, ours: the largest page that loses no more than [`HITS_LOST`] of byte hits against the
//! best of all, and fetches no more than [`BYTES_MORE`] times the least.

use serde::Serialize;

/// How many byte hits a larger page may lose, as a share.
pub const HITS_LOST: f64 = 0.01;
/// How many times the fewest bytes it may fetch.
pub const BYTES_MORE: f64 = 1.1;

/// A cache with one page size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PageSize {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Share of the bytes asked for that hit.
    pub byte_hit_ratio: f64,
    /// Lower end of its bar.
    pub low: f64,
    /// Upper end of its bar.
    pub high: f64,
    /// Bytes that the store has to deliver over the whole trace.
    pub store_bytes: u64,
    /// Pages that reads missed: the store has no more reads than this, and fewer where the missing
    /// pages of a request lie side by side.
    pub read_misses: u64,
    /// All pages of the trace, bytes.
    pub footprint_bytes: u64,
}

/// The page size to recommend, by its place; nothing if there are none.
#[must_use]
pub fn choose(sizes: &[PageSize]) -> Option<usize> {
    let best = sizes.iter().map(|size| size.byte_hit_ratio).fold(0.0, f64::max);
    let least = sizes.iter().map(|size| size.store_bytes).min()?;
    let fits = |size: &&(usize, &PageSize)| {
        size.1.byte_hit_ratio >= best - HITS_LOST
            && super::as_f64(size.1.store_bytes) <= super::as_f64(least) * BYTES_MORE
    };
    let numbered: Vec<(usize, &PageSize)> = sizes.iter().enumerate().collect();
    let largest = numbered.iter().filter(fits).max_by_key(|(_, size)| size.page_bytes);
    // No page may be good at both; then the one that moves the fewest bytes.
    let chosen = largest.or_else(|| numbered.iter().min_by_key(|(_, size)| size.store_bytes));
    chosen.map(|(place, _)| *place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(page_bytes: u32, byte_hit_ratio: f64, store_bytes: u64) -> PageSize {
        let (low, high) = (byte_hit_ratio, byte_hit_ratio);
        PageSize {
            page_bytes,
            byte_hit_ratio,
            low,
            high,
            store_bytes,
            read_misses: 0,
            footprint_bytes: 0,
        }
    }

    #[test]
    fn the_largest_that_costs_nothing() {
        let sizes = [size(4096, 0.60, 1000), size(16384, 0.60, 1050), size(65536, 0.61, 2000)];
        assert_eq!(choose(&sizes), Some(1));
        assert_eq!(choose(&[]), None);
    }

    #[test]
    fn if_none_is_good_at_both_the_one_that_moves_least() {
        assert_eq!(choose(&[size(4096, 0.20, 1000), size(65536, 0.70, 2000)]), Some(0));
    }
}
