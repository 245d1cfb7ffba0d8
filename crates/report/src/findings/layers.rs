//! Two caches that hold the same data.

use super::{Observation, Rule};
use larder_schema::watch::{Confidence, StackedCache};
use larder_schema::{as_f64, format};

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
    let is_duplicated = |it: &&StackedCache| as_f64(it.upper_bytes.min(it.lower_bytes)) >= minimum;
    let layers = observation.layers.iter().filter(is_duplicated);
    let StackedCache { upper, upper_bytes, lower, lower_bytes } =
        layers.max_by_key(|layer| layer.lower_bytes)?;
    let (upper_size, lower_size) = (format::bytes(*upper_bytes), format::bytes(*lower_bytes));
    Some(format!(
        "{upper} holds {upper_size}, and {lower} below it has {lower_size} resident as well"
    ))
}
