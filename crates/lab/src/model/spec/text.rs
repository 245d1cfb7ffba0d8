//! The specification of rates as text, which the parser accepts.

use crate::model::{BurstCredit, DEPTH_MAX, DeviceRates, Latency};
use larder_core::clock::Nanos;
use std::fmt;

impl fmt::Display for DeviceRates {
    /// Writes the specification of the rates.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeviceRates { read_latency, write_latency, burst, slice, depth, .. } = *self;
        if *self == DeviceRates::fixed(read_latency.mean) {
            return write!(f, "fixed:{}", time_text(read_latency.mean));
        }
        let mut parts = Vec::new();
        for (side, limits) in [("", self.total), ("read-", self.read), ("write-", self.write)] {
            parts.extend(limits.operations_per_s.map(|rate| format!("{side}iops:{rate}")));
            parts.extend(limits.bytes_per_s.map(|it| format!("{side}bytes:{}", size_text(it))));
        }
        if let Some(BurstCredit { operations_per_s, operations }) = self.credit {
            parts.push(format!("credit-iops:{operations_per_s},credits:{operations}"));
        }
        let is_shared = read_latency == write_latency;
        let sides = [("read-", read_latency), ("write-", write_latency)];
        for (side, Latency { mean, median }) in if is_shared { &sides[..1] } else { &sides[..] } {
            let side = if is_shared { "" } else { side };
            let has_mean = *mean > 0 || !is_shared;
            parts.extend(has_mean.then(|| format!("{side}latency:{}", time_text(*mean))));
            parts.extend((median < mean).then(|| format!("{side}median:{}", time_text(*median))));
        }
        let transfer = self.transfer_bytes_per_s;
        parts.extend(transfer.map(|it| format!("transfer:{}", size_text(it))));
        parts.extend((depth < DEPTH_MAX).then(|| format!("depth:{depth}")));
        let has_rates = parts.iter().any(|part| !part.starts_with("depth"));
        for (key, time) in [("burst", burst), ("slice", slice)] {
            parts.extend((time > 0).then(|| format!("{key}:{}", time_text(time))));
        }
        // A depth alone is no specification.
        if !has_rates {
            parts.insert(0, "latency:0ns".into());
        }
        f.write_str(&parts.join(","))
    }
}

/// Formats bytes in the largest binary unit that needs no fraction.
pub(super) fn size_text(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(shift, _)| bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// Formats nanoseconds in the largest unit that needs no fraction.
fn time_text(time: Nanos) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let unit = units.into_iter().find(|(ns, _)| time > 0 && time.is_multiple_of(*ns));
    unit.map_or_else(|| format!("{time}ns"), |(ns, unit)| format!("{}{unit}", time / ns))
}
