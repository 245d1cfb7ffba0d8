//! The named models of devices.

use super::device::DeviceModel;
use crate::model::{BurstCredit, DeviceRates, DiskSpec, Latency, RateLimits, SsdSpec};
use std::borrow::Cow;

/// A model of a device with a name.
#[derive(Clone, Copy, Debug)]
pub struct NamedDevice {
    /// The name in specifications.
    pub name: &'static str,
    /// One line, without a period.
    pub summary: &'static str,
    /// The figures.
    pub device: DeviceModel,
    /// The sources of the figures, one sentence each.
    pub sources: &'static [&'static str],
}

/// All named devices.
pub static DEVICES: [NamedDevice; 14] = [
    NamedDevice {
        name: "disk",
        summary: "a desktop disk of 7,200 rpm",
        device: DeviceModel::Disk(DiskSpec::seven_thousand_two_hundred()),
        sources: &["Typical figures, not those of one product."],
    },
    NamedDevice {
        name: "scsi-1999",
        summary: "a SCSI disk of a server of 1998 and 1999: 4.35 GB, 7,200 rpm",
        device: DeviceModel::Disk(DiskSpec::scsi_1999()),
        sources: &[
            "Capacity, rpm and interface (Ultra Wide SCSI): Seagate Barracuda 4LP ST34371W, \
            product manual 77767491, revision D, February 1998.",
            "Seeks: the curve that was extracted from a ST32171W, the disk of the same family \
            with five instead of ten surfaces; it is one of the validated disks of DiskSim 4.0 \
            (barracuda.seek, CMU-PDL-08-101). track_to_track and full_stroke are its first and \
            last point, average_seek is its mean over random pairs of its 5,172 cylinders.",
            "Rates: its zones of 186 to 119 sectors for each track and its skews of 37 and 52 to \
            23 and 33 sectors (barracuda.model), over ten surfaces.",
            "Overhead and read-ahead: 0.613 ms before a read, and 281 sectors \
            (barracuda.diskspecs). write_settle: a write takes 0.44 ms longer before it \
            positions.",
            "Command queue: the default of the aic7xxx driver for Adaptec's host adapters. Write \
            cache: off, as behind the RAID controllers of servers.",
        ],
    },
    NamedDevice {
        name: "laptop-5400",
        summary: "a laptop disk of 2008: 320 GB, 5,400 rpm, write cache on",
        device: DeviceModel::Disk(DiskSpec::laptop_5400()),
        sources: &[
            "Capacity, rpm and seeks (typical): Hitachi Travelstar 5K320, OEM specification, \
            revision 1.5, tables 5 to 7.",
            "outer_bytes_per_s and write cache (the buffer): Seagate Momentus 5400.4, as listed \
            in \"Seven 2.5-inch mobile drives compared\", The Tech Report, 2008.",
            "inner_bytes_per_s: 0.48 of the outer rate, as in the zones of the Hitachi Deskstar \
            7K500 (specification, table 10).",
            "Overhead and read-ahead: typical figures. Queue: that of SATA.",
        ],
    },
    NamedDevice {
        name: "laptop-7200",
        summary: "a laptop disk of 2008: 320 GB, 7,200 rpm, write cache on",
        device: DeviceModel::Disk(DiskSpec::laptop_7200()),
        sources: &[
            "Capacity, rpm and seeks (typical): Hitachi Travelstar 7K320, OEM specification, \
            tables 5 to 7; write_settle is the difference of its full strokes.",
            "outer_bytes_per_s and write cache (the buffer): Seagate Momentus 7200.3, as listed \
            in \"Seven 2.5-inch mobile drives compared\", The Tech Report, 2008.",
            "inner_bytes_per_s: 0.48 of the outer rate, as in the zones of the Hitachi Deskstar \
            7K500 (specification, table 10).",
            "Overhead and read-ahead: typical figures. Queue: that of SATA.",
        ],
    },
    NamedDevice {
        name: "helium",
        summary: "a helium disk of a storage server: 18 TB, 7,200 rpm, write cache off",
        device: DeviceModel::Disk(DiskSpec::helium()),
        sources: &[
            "Capacity, rpm and outer_bytes_per_s: Seagate Exos X18 (270 MB/s).",
            "Seeks (typical): Western Digital Ultrastar DC HC310, OEM specification, tables 5 \
            and 6, a drive of the same speed. It states no full stroke: 1.7 times the average, \
            as in IBM's Deskstar 75GXP and Hitachi's Travelstar 5K320 (specifications).",
            "inner_bytes_per_s: 0.48 of the outer rate, as in the zones of the Hitachi Deskstar \
            7K500 (specification, table 10).",
            "Overhead and read-ahead: typical figures. Queue: that of SATA.",
        ],
    },
    NamedDevice {
        name: "dual-actuator",
        summary: "a helium disk whose halves have an actuator each: 18 TB, 7,200 rpm",
        device: DeviceModel::Disk(DiskSpec::dual_actuator()),
        sources: &[
            "Capacity, rpm and outer_bytes_per_s: Seagate Exos 2X18 (554 MB/s with both \
            actuators); the first half of the addresses belongs to one actuator, the second half \
            to the other (Seagate, Exos 2X frequently asked questions, SC702.2).",
            "All other figures: those of helium.",
        ],
    },
    NamedDevice {
        name: "ssd",
        summary: "a SATA SSD, by its rates",
        device: DeviceModel::Rated(DeviceRates {
            read: limits(98_000, 560_000_000),
            write: limits(88_000, 530_000_000),
            read_latency: Latency::constant(70_000),
            write_latency: Latency::constant(20_000),
            depth: 32,
            ..DeviceRates::fixed(0)
        }),
        sources: &[
            "Samsung 870 EVO 1 TB, data sheet. Latencies: those of its rates at depth 1 (13,000 \
            and 36,000), less the time of the transfer.",
        ],
    },
    NamedDevice {
        name: "nvme",
        summary: "an NVMe SSD, by its rates",
        device: DeviceModel::Rated(DeviceRates {
            read: limits(1_000_000, 7_000_000_000),
            write: limits(1_000_000, 5_000_000_000),
            read_latency: Latency::constant(45_000),
            write_latency: Latency::constant(16_000),
            ..DeviceRates::fixed(0)
        }),
        sources: &["Samsung 980 PRO 1 TB, data sheet; at depth 1: 22,000 and 60,000."],
    },
    NamedDevice {
        name: "sata-flash",
        summary: "a SATA SSD of 1 TB, full: flash, garbage collection, SLC cache",
        device: DeviceModel::Flash(SsdSpec::sata_flash()),
        sources: &[
            "Capacity, interface_rate, slc_cache (TurboWrite) and command (98,000 operations per \
            second): Samsung 870 EVO 1 TB, data sheet.",
            "read_page, program_page (82 MB/s for two planes) and channel_rate: D. Kang et al., \
            \"A 512Gb 3-bit/cell 3D 6th-generation V-NAND flash memory with 82MB/s write \
            throughput and 1.2Gb/s interface\", ISSCC 2019; 16 such dies have 1 TiB, and count \
            as 32.",
            "overhead: the data sheet's 13,000 reads and 36,000 writes per second at depth 1, \
            less the flash and the transfer.",
            "Typical figures: channels, page, pages_per_block, erase_block, write_buffer, \
            over_provisioning (GiB for GB), slc_program_page.",
        ],
    },
    NamedDevice {
        name: "nvme-flash",
        summary: "an NVMe SSD of 1 TB, full: flash, garbage collection, SLC cache",
        device: DeviceModel::Flash(SsdSpec::nvme_flash()),
        sources: &[
            "Capacity, interface_rate, slc_cache (TurboWrite) and command (1,000,000 operations \
            per second): Samsung 980 PRO 1 TB, data sheet.",
            "slc_program_page and program_page: its 5,000 MB/s of writes, and 2,000 MB/s after \
            TurboWrite, over 64 planes of 16 KiB.",
            "overhead and read_page: its 22,000 reads and 60,000 writes per second at depth 1.",
            "Typical figures: channels, page, pages_per_block, erase_block, write_buffer, \
            over_provisioning (GiB for GB); channel_rate as of sata-flash.",
        ],
    },
    NamedDevice {
        name: "cloud-general",
        summary: "the default volume of a cloud",
        device: DeviceModel::Rated(DeviceRates {
            total: limits(3_000, 125 << 20),
            burst: 16_000_000,
            depth: 128,
            ..DeviceRates::fixed(800_000)
        }),
        sources: &["Limits: Amazon EBS gp3, baseline. Latency: a typical figure."],
    },
    NamedDevice {
        name: "cloud-standard",
        summary: "the cheapest volume of a cloud, on rotating disks",
        device: DeviceModel::Rated(DeviceRates {
            total: limits(500, 60 << 20),
            burst: 16_000_000,
            depth: 64,
            ..DeviceRates::fixed(5_000_000)
        }),
        sources: &["Limits: Azure standard HDD (S4 to S40). Latency: a typical figure."],
    },
    NamedDevice {
        name: "cloud-burst",
        summary: "a volume of a cloud of 100 GiB, with burst credit",
        device: DeviceModel::Rated(DeviceRates {
            total: limits(3_000, 128 << 20),
            credit: Some(BurstCredit { operations_per_s: 300, operations: 5_400_000 }),
            burst: 16_000_000,
            depth: 128,
            ..DeviceRates::fixed(1_000_000)
        }),
        sources: &[
            "Amazon EBS gp2: 3 operations per second for each GiB, 3,000 as long as the credit \
            of 5.4 million operations lasts, 128 MiB/s. Latency: a typical figure.",
        ],
    },
    NamedDevice {
        name: "network-volume",
        summary: "a volume over a network of 10 Gbit/s, with a varying round trip",
        device: DeviceModel::Rated(DeviceRates {
            total: RateLimits { operations_per_s: None, bytes_per_s: Some(1_150_000_000) },
            read_latency: Latency { mean: 500_000, median: 400_000 },
            write_latency: Latency { mean: 500_000, median: 400_000 },
            burst: 1_000_000,
            depth: 128,
            ..DeviceRates::fixed(0)
        }),
        sources: &[
            "Rate: 10 Gbit/s less the headers of Ethernet, IP and TCP. Times: typical figures of \
            a flash array in the same building.",
        ],
    },
];

/// Returns the text of a device, which specifications accept: its name, if it has one.
pub(super) fn text(device: &DeviceModel) -> Cow<'static, str> {
    let name = DEVICES.iter().find(|it| it.device == *device).map(|it| it.name);
    match device {
        DeviceModel::Disk(_) | DeviceModel::Flash(_) => name.expect("it has a name").into(),
        DeviceModel::Rated(rates) => name.map_or_else(|| rates.to_string().into(), Into::into),
    }
}

pub(super) const fn limits(operations_per_s: u64, bytes_per_s: u64) -> RateLimits {
    RateLimits { operations_per_s: Some(operations_per_s), bytes_per_s: Some(bytes_per_s) }
}
