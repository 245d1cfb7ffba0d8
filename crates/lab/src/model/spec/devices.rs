//! The named models of devices.

use crate::model::{DeviceRates, Latency, RateLimits};

/// The named models of devices; docs/sim.md names the sources of the figures.
pub(super) const DEVICES: [(&str, DeviceRates); 4] = [
    // A SATA SSD: the data sheet of the Samsung 870 EVO 1 TB. Latencies are those of its rates at
    // depth 1 (13,000 and 36,000), less the time of the transfer.
    (
        "ssd",
        DeviceRates {
            read: limits(98_000, 560_000_000),
            write: limits(88_000, 530_000_000),
            read_latency: Latency::constant(70_000),
            write_latency: Latency::constant(20_000),
            depth: 32,
            ..DeviceRates::fixed(0)
        },
    ),
    // An NVMe SSD: the data sheet of the Samsung 980 PRO 1 TB; depth 1: 22,000 and 60,000.
    (
        "nvme",
        DeviceRates {
            read: limits(1_000_000, 7_000_000_000),
            write: limits(1_000_000, 5_000_000_000),
            read_latency: Latency::constant(45_000),
            write_latency: Latency::constant(16_000),
            ..DeviceRates::fixed(0)
        },
    ),
    // The default volume type of a cloud.
    (
        "cloud-general",
        DeviceRates {
            total: limits(3_000, 125 << 20),
            burst: 16_000_000,
            depth: 128,
            ..DeviceRates::fixed(800_000)
        },
    ),
    // The cheapest volume type of a cloud, on rotating disks.
    (
        "cloud-standard",
        DeviceRates {
            total: limits(500, 60 << 20),
            burst: 16_000_000,
            depth: 64,
            ..DeviceRates::fixed(5_000_000)
        },
    ),
];

pub(super) const fn limits(operations_per_s: u64, bytes_per_s: u64) -> RateLimits {
    RateLimits { operations_per_s: Some(operations_per_s), bytes_per_s: Some(bytes_per_s) }
}
