//! The page size that costs the store least, with the same memory.
//!
//! Hit ratios of references are not comparable across page sizes, since a request has fewer
//! references with larger pages. Two measures are: the *byte hit ratio* (the share of requested
//! bytes in resident pages) and the *bytes from the store* (a read miss fetches the whole page; a
//! write miss fetches nothing, since written sectors are valid by themselves). A larger page
//! fetches neighboring data, with fewer operations and less memory for tables; if clients do not
//! read the neighboring data, it wastes memory and bandwidth.
//!
//! Larder's rule: the largest page whose byte hit ratio is at most [`HITS_LOST`] below the best,
//! and that fetches at most [`BYTES_MORE`] times the fewest bytes. Where a server was simulated,
//! the share of its read requests that do not wait for the store takes the place of the byte hit
//! ratio, and the bytes are those that it reads and writes.

use larder_schema::sizing::PageSize;

/// Permitted loss of byte hit ratio for a larger page.
pub const HITS_LOST: f64 = 0.01;
/// Permitted factor over the fewest fetched bytes.
pub const BYTES_MORE: f64 = 1.1;

/// Returns true if there are page sizes, and a server was simulated with each.
#[must_use]
pub fn of_server(sizes: &[PageSize]) -> bool {
    !sizes.is_empty() && sizes.iter().all(|size| size.server.is_some())
}

/// Returns the index of the recommended page size, or `None` if there are none.
#[must_use]
pub fn choose(sizes: &[PageSize]) -> Option<usize> {
    let run = |size: &PageSize| size.server.filter(|_| of_server(sizes));
    let hits = |size: &PageSize| run(size).map_or(size.byte_hit_ratio, |run| run.request_hit_ratio);
    let bytes = |size: &PageSize| {
        run(size).map_or(size.store_bytes, |run| run.read_bytes + run.written_bytes)
    };
    let best = sizes.iter().map(hits).fold(0.0, f64::max);
    let least = sizes.iter().map(bytes).min()?;
    let fits = |size: &&(usize, &PageSize)| {
        hits(size.1) >= best - HITS_LOST
            && larder_schema::as_f64(bytes(size.1)) <= larder_schema::as_f64(least) * BYTES_MORE
    };
    let indexed: Vec<(usize, &PageSize)> = sizes.iter().enumerate().collect();
    let largest = indexed.iter().filter(fits).max_by_key(|(_, size)| size.page_bytes);
    // If no page size satisfies both limits, the one with the fewest bytes is best.
    let chosen = largest.or_else(|| indexed.iter().min_by_key(|(_, size)| bytes(size)));
    chosen.map(|(index, _)| *index)
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
            server: None,
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
