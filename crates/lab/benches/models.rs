//! Speed of the models of devices, for `cargo xtask prove models`.
//!
//! `cargo bench --package larder-lab --bench models -- claims [--quick]`. Without a name, as in
//! `cargo test --benches`, each model serves a few operations.

#![forbid(unsafe_code)]

use larder_core::units::as_f64;
use larder_lab::model::measure::{Pattern, PatternLimits, predict};
use larder_lab::model::{DEVICES, StoreModel};
use larder_testing::claim;
use std::time::{Duration, Instant};

/// Required operations per second of this machine.
const RATE_MIN: f64 = 500_000.0;
const DEPTHS: [u32; 2] = [1, 32];
const DEVICE_BYTES: u64 = 64 << 30;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let is_quick = args.iter().any(|arg| arg == "--quick");
    let operations = match (args.iter().any(|arg| arg == "claims"), is_quick) {
        (true, false) => 2_000_000,
        (true, true) => 200_000,
        (false, _) => 2_000,
    };
    for device in &DEVICES {
        for (is_write, direction) in [(false, "reads"), (true, "writes")] {
            for depth in DEPTHS {
                let pattern = Pattern { is_write, is_random: true, len: 4096, depth };
                let limits = PatternLimits { time: Duration::MAX, operations };
                let model = StoreModel::Device(device.device);
                let started = Instant::now();
                let result = predict(&model, DEVICE_BYTES, &pattern, limits);
                let rate = as_f64(result.operations) / started.elapsed().as_secs_f64();
                claim(
                    format!("{}, random {direction}, depth {depth}: 500,000 per s", device.name),
                    format!("{:.2} million per s", rate / 1e6),
                    "",
                    rate >= RATE_MIN,
                );
            }
        }
    }
}
