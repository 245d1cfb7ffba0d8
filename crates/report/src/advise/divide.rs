//! Report of memory divided among volumes: size and hit ratio of each. `larder_core::share`
//! computes the division, also for the running cache.

use larder_schema::curve::Curve;
use larder_schema::sizing::Share;

/// A volume that requests memory.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryRequest {
    /// Volume name.
    pub name: String,
    /// Number of references, to which the hit ratio applies.
    pub references: u64,
    /// The volume's curve with a cache of its own.
    pub curve: Curve,
}

/// Returns the shares for the memory `given` to each request, rounded down to units of `unit_bytes`
/// (the page size). The hit ratios come from the unmodified curves.
#[must_use]
pub fn shares(requests: &[MemoryRequest], given: &[u64], unit_bytes: u64) -> Vec<Share> {
    let round_down = |bytes: u64| bytes / unit_bytes.max(1) * unit_bytes.max(1);
    let share = |(request, &bytes): (&MemoryRequest, &u64)| {
        let bytes = round_down(bytes);
        let point = request.curve.at(bytes);
        Share {
            volume: request.name.clone(),
            references: request.references,
            footprint_bytes: request.curve.last_bytes(),
            bytes,
            hit_ratio: point.map_or(0.0, |point| point.hit_ratio),
            low: point.map_or(0.0, |point| point.low),
            high: point.map_or(0.0, |point| point.high),
        }
    };
    requests.iter().zip(given).map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_schema::curve::Point;

    #[test]
    fn shares_are_whole_pages_with_the_hits_of_the_curve() {
        let curve = Curve::new([Point::exact(8192, 0.5)]);
        let one = MemoryRequest { name: "one".to_owned(), references: 10, curve };
        let assigned = shares(&[one], &[5000], 4096);
        assert_eq!((assigned[0].bytes, assigned[0].footprint_bytes), (4096, 8192));
        assert!((assigned[0].hit_ratio - 0.25).abs() < 1e-12);
    }
}
