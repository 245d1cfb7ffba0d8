//! Disks of data sheets. `spec/devices.rs` names the sources of the figures.

use super::DiskSpec;
use crate::model::DEPTH_MAX;
use larder_core::clock::{MILLISECOND, Nanos, SECOND};

const MICROSECOND: Nanos = 1_000;

impl DiskSpec {
    /// A desktop disk: 7,200 rpm, 8.5 ms average seek, 150 MB/s on the outer tracks, write cache
    /// off.
    #[must_use]
    pub const fn seven_thousand_two_hundred() -> Self {
        DiskSpec {
            capacity_bytes: 1_000_000_000_000,
            actuators: 1,
            sector_bytes: 4096,
            rpm: 7_200,
            track_to_track: MILLISECOND,
            average_seek: 8_500 * MICROSECOND,
            full_stroke: 18 * MILLISECOND,
            write_settle: 500 * MICROSECOND,
            outer_bytes_per_s: 150_000_000,
            inner_bytes_per_s: 75_000_000,
            interface_bytes_per_s: 550_000_000,
            overhead: 100 * MICROSECOND,
            read_ahead_bytes: 512 << 10,
            write_cache_bytes: 0,
            queue_depth: DEPTH_MAX,
            age_max: SECOND,
        }
    }

    /// A SCSI disk of a server of 1998 and 1999: 4.35 GB, 7,200 rpm, 9.5 MB/s on the outer
    /// tracks, write cache off.
    #[must_use]
    pub const fn scsi_1999() -> Self {
        DiskSpec {
            capacity_bytes: 4_350_000_000,
            sector_bytes: 512,
            track_to_track: 1_943 * MICROSECOND,
            average_seek: 9_330 * MICROSECOND,
            full_stroke: 16_679 * MICROSECOND,
            write_settle: 440 * MICROSECOND,
            outer_bytes_per_s: 9_468_000,
            inner_bytes_per_s: 6_084_000,
            interface_bytes_per_s: 40_000_000,
            overhead: 613 * MICROSECOND,
            read_ahead_bytes: 281 * 512,
            queue_depth: 32,
            ..DiskSpec::seven_thousand_two_hundred()
        }
    }

    /// A laptop disk of 5,400 rpm, with its write cache on.
    #[must_use]
    pub const fn laptop_5400() -> Self {
        DiskSpec {
            capacity_bytes: 320_000_000_000,
            sector_bytes: 512,
            rpm: 5_400,
            track_to_track: MILLISECOND,
            average_seek: 12 * MILLISECOND,
            full_stroke: 20 * MILLISECOND,
            write_settle: MILLISECOND,
            outer_bytes_per_s: 58_000_000,
            inner_bytes_per_s: 28_000_000,
            interface_bytes_per_s: 300_000_000,
            write_cache_bytes: 8 << 20,
            queue_depth: 32,
            ..DiskSpec::seven_thousand_two_hundred()
        }
    }

    /// A laptop disk of 7,200 rpm, with its write cache on.
    #[must_use]
    pub const fn laptop_7200() -> Self {
        DiskSpec {
            rpm: 7_200,
            write_settle: 2 * MILLISECOND,
            outer_bytes_per_s: 80_000_000,
            inner_bytes_per_s: 38_000_000,
            write_cache_bytes: 16 << 20,
            ..DiskSpec::laptop_5400()
        }
    }

    /// A disk of 18 TB filled with helium, with its write cache off.
    #[must_use]
    pub const fn helium() -> Self {
        DiskSpec {
            capacity_bytes: 18_000_000_000_000,
            track_to_track: 230 * MICROSECOND,
            average_seek: 7_400 * MICROSECOND,
            full_stroke: 12_600 * MICROSECOND,
            write_settle: 800 * MICROSECOND,
            outer_bytes_per_s: 270_000_000,
            inner_bytes_per_s: 130_000_000,
            read_ahead_bytes: 2 << 20,
            queue_depth: 32,
            ..DiskSpec::seven_thousand_two_hundred()
        }
    }

    /// The same disk with two actuators.
    #[must_use]
    pub const fn dual_actuator() -> Self {
        DiskSpec {
            actuators: 2,
            outer_bytes_per_s: 277_000_000,
            inner_bytes_per_s: 133_000_000,
            ..DiskSpec::helium()
        }
    }
}
