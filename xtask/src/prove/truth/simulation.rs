//! The simulation of a server with a cache of a given size.

use crate::prove::prelude::*;

/// The time of a simulated run.
pub(super) const ELAPSED: &str = "elapsed_ns";

/// Returns the size of the cache of a served volume.
pub(super) fn memory_bytes(volume: &Value) -> Result<u64> {
    volume["gauges"]["memory_bytes"].as_u64().context("no gauge memory_bytes")
}

/// Simulates the server with a cache of `size` bytes; returns its counters.
pub(super) fn simulate(env: &Env, trace: &Path, size: u64, options: &str) -> Result<Value> {
    let (larder, size) = (&env.larder, size.to_string());
    let options = options.split_whitespace();
    let made =
        json_of(cmd!(600, "{larder} sim {trace} --level whole --json --size {size} {options...}"))?;
    Ok(made["rows"][0].clone())
}
