//! Two caches that hold the same data.

use super::observation::bytes;
use super::{Observation, Rule};
use larder_schema::watch::Confidence;

/// Minimum share of memory that both caches hold; less is not worth a change.
const MEMORY_SHARE_MIN: f64 = 0.05;
/// Minimum size where the memory size is unknown.
const BYTES_MIN: f64 = 64.0 * 1024.0 * 1024.0;

pub(super) const RULE: Rule = Rule {
    name: "layered-caches",
    when: "a cache and the cache of what lies below it both hold 5 % of memory or more (64 MiB \
           where that is not known)",
    source: "a twentieth of memory is what the useful region of a curve is worth moving for; the \
             two copies are the sum of both",
    why: "Two copies of the same data compete for one memory; the lower one is hardly ever asked.",
    attempt: &["larder serve IMAGE --memory SIZE --listen unix:SOCKET"],
    sure: Confidence::Certain,
    seen,
};

fn seen(observation: &Observation) -> Option<String> {
    let minimum = observation.memory_bytes.map_or(BYTES_MIN, |memory| memory * MEMORY_SHARE_MIN);
    let is_duplicated = |layer: &&super::Layer| layer.upper_bytes.min(layer.lower_bytes) >= minimum;
    let layers = observation.layers.iter().filter(is_duplicated);
    let layer = layers.max_by(|a, b| a.lower_bytes.total_cmp(&b.lower_bytes))?;
    Some(format!(
        "{} holds {}, and {} below it has {} resident as well",
        layer.upper,
        bytes(layer.upper_bytes),
        layer.lower,
        bytes(layer.lower_bytes)
    ))
}
