//! `/metrics`: the whole catalogue as OpenMetrics, and the metrics that correspond to the counters
//! of the Windows NT file cache.
//!
//! A counter is `larder_NAME_total`, everything else `larder_NAME`, with the name and unit of the
//! catalogue. Metrics of a volume have the label `volume`; those of the common pool have none, so
//! that sums over volumes are right. Metrics of the NBD server are not in the catalogue of the
//! cache; they have a table here. The only ratios are estimates: averages of others would be wrong.

use super::curves;
use crate::service::{ServedVolume, Service};
use larder_core::counters::{
    COUNTERS, Counter, Gauge, HistogramSnapshot, Latency, MetricDefinition, Totals, Unit,
};
use larder_core::request::{BudgetUsage, PoolUsage};
use larder_report::control::FINDINGS;
use larder_report::openmetrics::{Buckets, Exposition, Kind};

/// Exponents of the bucket bounds: powers of two from 256 ns to 69 s.
const POWERS: std::ops::RangeInclusive<u32> = 8..=36;

/// A metric family that is not in the catalogue of the cache.
#[derive(Clone, Copy, Debug)]
pub struct MetricFamily {
    /// Name in `/metrics`.
    pub name: &'static str,
    kind: Kind,
    /// Labels; empty if there are none.
    pub labels: &'static str,
    /// Help text.
    pub help: &'static str,
}

impl MetricFamily {
    /// Returns the unit at the end of its name, if it has one.
    fn unit(&self) -> Option<&'static str> {
        self.name.ends_with("_bytes").then_some("bytes")
    }

    /// Returns the name of its samples.
    #[must_use]
    pub fn sample_name(&self) -> String {
        let suffix = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{}{suffix}", self.name)
    }
}

const fn family(
    name: &'static str,
    kind: Kind,
    labels: &'static str,
    help: &'static str,
) -> MetricFamily {
    MetricFamily { name, kind, labels, help }
}

const PROGRAM: MetricFamily = family("larder", Kind::Info, "version", "The program.");
const POLICY: MetricFamily = family(
    "larder_policy",
    Kind::Info,
    "volume, policy, auto",
    "The replacement policy that is in force; auto says whether the cache chooses it.",
);
const FROZEN: MetricFamily = family(
    "larder_frozen",
    Kind::Gauge,
    "volume",
    "1 if requests of the volume neither add blocks to the cache nor evict them.",
);
const FINDING: MetricFamily = family(
    "larder_finding",
    Kind::Gauge,
    "volume, finding",
    "1 if the finding applies to the volume; docs/curve.md explains each finding.",
);

const ESTIMATE: MetricFamily = family(
    "larder_estimated_hit_ratio",
    Kind::Gauge,
    "volume, curve, size",
    "Estimated share of references that hit with another size, a multiple of the memory of the \
     volume; curve is policy (that in force, read-ahead included) or lru (without read-ahead).",
);

/// Metric families for the state of the program and its volumes, in the order of `/metrics`.
pub const STATE_FAMILIES: [MetricFamily; 5] = [PROGRAM, POLICY, FROZEN, FINDING, ESTIMATE];
/// The labels of the sizes of [`ESTIMATE`], and the sizes in quarters of the memory.
const ESTIMATE_SIZES: [(&str, u64); 5] = [("0.25", 1), ("0.5", 2), ("1", 4), ("2", 8), ("4", 16)];

/// Families about the sessions of the NBD server, in the order of `/metrics`.
pub const SESSION_FAMILIES: [MetricFamily; 6] = [
    family("larder_sessions", Kind::Gauge, "", "Open sessions of NBD clients."),
    family("larder_sessions_max", Kind::Gauge, "", "Maximum number of open sessions."),
    family("larder_budget_size_bytes", Kind::Gauge, "pool", "Size of the pool."),
    family(
        "larder_budget_leased_bytes",
        Kind::Gauge,
        "pool",
        "Bytes that sessions have leased from the pool.",
    ),
    family(
        "larder_budget_peak_bytes",
        Kind::Gauge,
        "pool",
        "Maximum of the leased bytes since the start.",
    ),
    family(
        "larder_budget_refusals",
        Kind::Counter,
        "pool",
        "Times that the pool had too little left for a session: its client has to wait, or a read \
         is split into smaller parts.",
    ),
];

fn write_family_header(text: &mut Exposition, family: MetricFamily) {
    text.family(family.name, family.kind, family.unit(), family.help);
}

/// Returns the text of `/metrics`.
pub(super) fn text(service: &Service) -> String {
    let volumes = service.volumes();
    let totals: Vec<_> = volumes.iter().map(|served| served.volume.totals()).collect();
    let mut text = Exposition::new();
    write_family_header(&mut text, PROGRAM);
    text.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    policies(&mut text, &volumes);
    states(&mut text, service, &volumes);
    sessions(&mut text, service.budget());
    for (counter, definition) in Counter::ALL.into_iter().zip(&COUNTERS) {
        catalogue_header(&mut text, Kind::Counter, definition);
        for (served, totals) in volumes.iter().zip(&totals) {
            text.sample(&[("volume", served.volume.name())], totals.get(counter));
        }
    }
    gauges(&mut text, service, &volumes);
    histograms(&mut text, &volumes, &totals);
    text.finish()
}

/// Writes the current policies, with a label for those that the cache chose.
fn policies(text: &mut Exposition, volumes: &[ServedVolume]) {
    write_family_header(text, POLICY);
    for ServedVolume { volume, .. } in volumes {
        let auto = if volume.policy_auto() { "true" } else { "false" };
        let labels =
            [("volume", volume.name()), ("policy", volume.policy().name()), ("auto", auto)];
        text.sample(&labels, 1);
    }
}

/// Writes the frozen state of volumes, their findings, and the estimates for other sizes.
fn states(text: &mut Exposition, service: &Service, volumes: &[ServedVolume]) {
    write_family_header(text, FROZEN);
    for ServedVolume { volume, .. } in volumes {
        text.sample(&[("volume", volume.name())], volume.is_frozen().into());
    }
    write_family_header(text, FINDING);
    let curves: Vec<_> = volumes.iter().map(|served| curves::volume(service, served)).collect();
    for volume in &curves {
        for name in FINDINGS {
            let labels = [("volume", &*volume.name), ("finding", name)];
            let is_found = volume.findings.iter().any(|finding| finding.finding == name);
            text.sample(&labels, is_found.into());
        }
    }
    write_family_header(text, ESTIMATE);
    for volume in &curves {
        // The curve of the policy is that of a full volume.
        let largest = volume.policy_points.points().last();
        let memory = largest.map_or(volume.bytes, |point| point.bytes / 4);
        for (curve, points) in [("policy", &volume.policy_points), ("lru", &volume.points)] {
            for (size, quarters) in ESTIMATE_SIZES {
                let bytes = memory.saturating_mul(quarters) / 4;
                if let Some(point) = points.at(bytes) {
                    let labels = [("volume", &*volume.name), ("curve", curve), ("size", size)];
                    text.fraction(&labels, point.hit_ratio);
                }
            }
        }
    }
}

/// Writes the sessions of the NBD server and the memory that they lease. Without an NBD server
/// there are no samples.
fn sessions(text: &mut Exposition, budget: Option<BudgetUsage>) {
    let [sessions, sessions_max, of_pools @ ..] = SESSION_FAMILIES;
    write_family_header(text, sessions);
    if let Some(budget) = budget {
        text.sample(&[], budget.sessions);
    }
    write_family_header(text, sessions_max);
    if let Some(budget) = budget {
        text.sample(&[], budget.sessions_max);
    }
    // In the order of the families.
    let figures = |pool: PoolUsage| {
        let PoolUsage { size_bytes, leased_bytes, peak_bytes, refusals } = pool;
        [size_bytes, leased_bytes, peak_bytes, refusals]
    };
    let pools = budget.map(|budget| [("payloads", budget.parked), ("frames", budget.pinned)]);
    for (number, family) in of_pools.into_iter().enumerate() {
        write_family_header(text, family);
        for (pool, usage) in pools.into_iter().flatten() {
            text.sample(&[("pool", pool)], figures(usage)[number]);
        }
    }
}

fn gauges(text: &mut Exposition, service: &Service, volumes: &[ServedVolume]) {
    let cache = service.engine.cache();
    for gauge in Gauge::ALL {
        catalogue_header(text, Kind::Gauge, gauge.meaning());
        if let Some(value) = cache.pool_gauge(gauge) {
            text.sample(&[], value);
            continue;
        }
        for ServedVolume { volume, .. } in volumes {
            text.sample(&[("volume", volume.name())], cache.gauge(volume, gauge));
        }
    }
}

fn histograms(text: &mut Exposition, volumes: &[ServedVolume], totals: &[Totals]) {
    for latency in Latency::ALL {
        catalogue_header(text, Kind::Histogram, latency.meaning());
        for (served, totals) in volumes.iter().zip(totals) {
            let buckets = buckets(totals.latency(latency));
            text.histogram(&[("volume", served.volume.name())], &buckets);
        }
    }
}

fn catalogue_header(text: &mut Exposition, kind: Kind, definition: &MetricDefinition) {
    let unit = match definition.unit {
        // Operations are not part of the name.
        Unit::Operations => None,
        unit => Some(unit.name()),
    };
    let alias = match definition.known_as {
        "" => String::new(),
        alias => format!(" Known as {alias}."),
    };
    let help = format!("{}{alias}", definition.meaning);
    text.family(&format!("larder_{}", definition.name), kind, unit, &help);
}

/// Returns the buckets of a histogram. Durations are whole nanoseconds, so a value below 2^n ns is
/// at most 2^n - 1 ns.
fn buckets(histogram: &HistogramSnapshot) -> Buckets {
    let up_to = POWERS.map(|power| ((1 << power) - 1, histogram.below(power)));
    Buckets { up_to: up_to.collect(), count: histogram.count(), sum: histogram.sum() }
}

/// A counter of the Windows NT file cache and its equivalent here.
#[derive(Clone, Copy, Debug)]
pub struct NtCounter {
    /// Name in Windows NT.
    pub nt_name: &'static str,
    /// The equivalent `PromQL` expression, over five minutes.
    pub query: &'static str,
    /// Differences.
    pub note: &'static str,
}

const fn nt(nt_name: &'static str, query: &'static str, note: &'static str) -> NtCounter {
    NtCounter { nt_name, query, note }
}

/// The counters of the Windows NT file cache in the order of its monitor.
pub const NT_COUNTERS: &[NtCounter] = &[
    nt("System Cache Resident Bytes", "sum(larder_resident_bytes)", ""),
    nt(
        "Cache Bytes",
        "larder_memory_bytes + larder_metadata_bytes",
        "There the whole system's working set; here what the cache was given.",
    ),
    nt(
        "Copy Reads/sec",
        "rate(larder_copy_reads_total[5m])",
        "Only of programs that embed the library.",
    ),
    nt(
        "Copy Read Hits %",
        "(rate(larder_read_hit_pages_total[5m]) + rate(larder_read_ahead_hit_pages_total[5m])) / \
         (rate(larder_read_hit_pages_total[5m]) + rate(larder_read_ahead_hit_pages_total[5m]) + \
         rate(larder_read_ahead_wait_pages_total[5m]) + \
         rate(larder_read_partial_hit_pages_total[5m]) + rate(larder_read_miss_pages_total[5m]) + \
         rate(larder_read_bypass_pages_total[5m]))",
        "Weighted by pages; never average ratios of intervals.",
    ),
    nt(
        "Fast Reads/sec",
        "rate(larder_fast_reads_total[5m])",
        "Only of programs that embed the library.",
    ),
    nt(
        "MDL Reads/sec",
        "rate(larder_gather_reads_total[5m])",
        "Replies are sent from the memory of the cache: all reads over NBD and FUSE.",
    ),
    nt("Lazy Write Flushes/sec", "rate(larder_lazy_writes_total[5m])", ""),
    nt(
        "Lazy Write Pages/sec",
        "rate(larder_lazy_write_blocks_total[5m])",
        "In blocks of 4 KiB, the page size of Windows NT. Divided by Lazy Write Flushes/sec it is \
         the burst size.",
    ),
    nt(
        "Data Flushes/sec",
        "rate(larder_lazy_writes_total[5m]) + rate(larder_forced_writes_total[5m]) + \
         rate(larder_steal_writes_total[5m])",
        "",
    ),
    nt(
        "Data Flush Pages/sec",
        "rate(larder_lazy_write_blocks_total[5m]) + rate(larder_forced_write_blocks_total[5m]) + \
         rate(larder_steal_write_blocks_total[5m])",
        "",
    ),
    nt(
        "LogicalDisk: Avg. Disk sec/Read",
        "rate(larder_store_read_service_ns_sum[5m]) / rate(larder_store_read_service_ns_count[5m])",
        "In nanoseconds.",
    ),
    nt(
        "LogicalDisk: Avg. Disk sec/Write",
        "rate(larder_store_write_service_ns_sum[5m]) / \
         rate(larder_store_write_service_ns_count[5m])",
        "In nanoseconds.",
    ),
    nt(
        "LogicalDisk: Avg. Disk Bytes/Read",
        "rate(larder_store_read_bytes_total[5m]) / rate(larder_store_reads_total[5m])",
        "",
    ),
    nt(
        "LogicalDisk: Avg. Disk Bytes/Write",
        "rate(larder_store_write_bytes_total[5m]) / rate(larder_store_writes_total[5m])",
        "",
    ),
    nt("LogicalDisk: Current Disk Queue Length", "larder_store_in_flight", ""),
];

#[cfg(test)]
mod tests {
    use super::*;
    use larder_core::counters::{GAUGES, HISTOGRAMS};

    #[test]
    fn old_names_lead_to_metrics_that_there_are() {
        let counters =
            COUNTERS.iter().map(|definition| format!("larder_{}_total", definition.name));
        let gauges = GAUGES.iter().map(|definition| format!("larder_{}", definition.name));
        let ends = |definition: &'static MetricDefinition| {
            ["sum", "count", "bucket"].map(|end| format!("larder_{}_{end}", definition.name))
        };
        let known: Vec<_> =
            counters.chain(gauges).chain(HISTOGRAMS.iter().flat_map(ends)).collect();
        let mut used = 0;
        for NtCounter { nt_name, query, .. } in NT_COUNTERS {
            for word in query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
                if word.starts_with("larder_") {
                    assert!(known.iter().any(|name| name == word), "{nt_name}: there is no {word}");
                    used += 1;
                }
            }
        }
        assert!(used > 20, "{used} names were looked at");
    }
}
