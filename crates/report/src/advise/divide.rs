//! Memory among volumes: what each one has with what it gets. Who gets what is decided by
//! `larder_core::share`, which the running cache uses as well.

use super::curve::Curve;
use serde::Serialize;

/// A volume that wants memory.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryRequest {
    /// What it is called.
    pub name: String,
    /// Its references; what a hit ratio is a share of.
    pub references: u64,
    /// Its curve, as if it had a cache of its own.
    pub curve: Curve,
}

/// What a volume gets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// The volume.
    pub volume: String,
    /// Its references.
    pub references: u64,
    /// All of its pages, bytes.
    pub footprint_bytes: u64,
    /// Its memory, bytes.
    pub bytes: u64,
    /// Its hit ratio with that.
    pub hit_ratio: f64,
    /// Lower end of the bar.
    pub low: f64,
    /// Upper end of the bar.
    pub high: f64,
}

/// What the claimants have with the memory that was `given` to each, in whole units of
/// `unit_bytes` (the bytes of a page). The hit ratios are those of the curves themselves.
#[must_use]
pub fn shares(claimants: &[MemoryRequest], given: &[u64], unit_bytes: u64) -> Vec<Share> {
    let whole = |bytes: u64| bytes / unit_bytes.max(1) * unit_bytes.max(1);
    let share = |(claimant, &bytes): (&MemoryRequest, &u64)| {
        let bytes = whole(bytes);
        let point = claimant.curve.at(bytes);
        Share {
            volume: claimant.name.clone(),
            references: claimant.references,
            footprint_bytes: claimant.curve.last_bytes(),
            bytes,
            hit_ratio: point.map_or(0.0, |point| point.hit_ratio),
            low: point.map_or(0.0, |point| point.low),
            high: point.map_or(0.0, |point| point.high),
        }
    };
    claimants.iter().zip(given).map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::super::curve::Point;
    use super::*;

    #[test]
    fn shares_are_whole_pages_with_the_hits_of_the_curve() {
        let curve = Curve::new([Point::exact(8192, 0.5)]);
        let one = MemoryRequest { name: "one".to_owned(), references: 10, curve };
        let made = shares(&[one], &[5000], 4096);
        assert_eq!((made[0].bytes, made[0].footprint_bytes), (4096, 8192));
        assert!((made[0].hit_ratio - 0.25).abs() < 1e-12);
    }
}
