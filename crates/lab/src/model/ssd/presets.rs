//! SSDs of data sheets. `spec/devices.rs` names the sources of the figures.

use super::SsdSpec;
use crate::model::DEPTH_MAX;
use larder_core::clock::{MILLISECOND, Nanos};

const MICROSECOND: Nanos = 1_000;

impl SsdSpec {
    /// A SATA SSD of 1 TB.
    #[must_use]
    pub const fn sata_flash() -> Self {
        SsdSpec {
            capacity_bytes: 1_000_000_000_000,
            channels: 8,
            dies_per_channel: 4,
            page_bytes: 16 << 10,
            pages_per_block: 1_024,
            read_page: 45 * MICROSECOND,
            program_page: 400 * MICROSECOND,
            erase_block: 3_500 * MICROSECOND,
            channel_bytes_per_s: 1_200_000_000,
            interface_bytes_per_s: 560_000_000,
            overhead: 20 * MICROSECOND,
            command: 10 * MICROSECOND,
            queue_depth: 32,
            write_buffer_bytes: 16 << 20,
            has_protected_buffer: false,
            over_provisioning_permille: 70,
            slc_cache_bytes: 42_000_000_000,
            slc_program_page: 160 * MICROSECOND,
        }
    }

    /// An SSD of 1 TB on PCI Express.
    #[must_use]
    pub const fn nvme_flash() -> Self {
        SsdSpec {
            dies_per_channel: 8,
            read_page: 25 * MICROSECOND,
            program_page: 524 * MICROSECOND,
            erase_block: 3 * MILLISECOND + 500 * MICROSECOND,
            interface_bytes_per_s: 7_000_000_000,
            overhead: 16 * MICROSECOND,
            command: MICROSECOND,
            queue_depth: DEPTH_MAX,
            write_buffer_bytes: 64 << 20,
            slc_cache_bytes: 114_000_000_000,
            slc_program_page: 210 * MICROSECOND,
            ..SsdSpec::sata_flash()
        }
    }
}
