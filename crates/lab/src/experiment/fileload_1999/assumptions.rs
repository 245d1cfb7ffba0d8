//! The modeled machine: the published parts, the disk, and assumptions about the rest.

use super::super::users::Machine;
use super::{EXTENTS, KIB, MIB};
use crate::cache_simulation::RequestTime;
use crate::model::{ArrayLayout, ArrayLevel, DeviceModel, DiskSpec, StoreModel};
use larder_core::policy::PolicyKind;
use larder_core::tunables::Tunables;
use larder_schema::format;
use std::num::NonZero;

/// Bytes that the processor copies per second.
const COPIED_PER_S: u64 = 42_000_000;

/// The parts of the machine that are not published, and the disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Assumptions {
    /// The disk.
    pub(super) disk: DiskSpec,
    /// Memory of the system's cache, bytes.
    pub(super) cache_bytes: u64,
    /// Processor time of a read.
    pub(super) read_time: RequestTime,
    /// Disks of the RAID set.
    pub(super) disks: u32,
    /// True if users begin at different places of their files.
    pub(super) are_apart: bool,
    /// True if the contiguous files of the database lie together, not at both ends of the disk.
    pub(super) is_database_together: bool,
}

impl Assumptions {
    /// Returns those of the experiment.
    pub(super) fn published_disk() -> Assumptions {
        Assumptions {
            disk: DiskSpec::scsi_1999(),
            cache_bytes: 128 * MIB,
            read_time: RequestTime { fixed: 50_000, bytes_per_s: NonZero::new(COPIED_PER_S) },
            disks: 8,
            are_apart: false,
            is_database_together: false,
        }
    }

    pub(super) fn disk(&self) -> StoreModel {
        StoreModel::Device(DeviceModel::Disk(self.disk))
    }

    pub(super) fn raid_10(&self) -> StoreModel {
        let layout = ArrayLayout::new(ArrayLevel::StripedMirrors, self.disks, 64 * KIB);
        StoreModel::Array(layout, DeviceModel::Disk(self.disk))
    }

    /// Returns sentences that describe the machine.
    pub(super) fn sentences(&self) -> Vec<String> {
        vec![
            format!(
                "Disk: scsi-1999 (larder model show scsi-1999), {}; fragmented files in the \
                 middle, {} to {} extents.",
                format::bytes(self.disk.capacity_bytes),
                EXTENTS.start(),
                EXTENTS.end()
            ),
            format!(
                "Assumptions: the system's cache has {} (preset nt, LRU); a read takes {} of \
                 processor time, and {} MB/s are copied from the cache; the RAID set has {} disks \
                 and chunks of 64 KiB.",
                format::bytes(self.cache_bytes),
                format::duration(self.read_time.fixed),
                COPIED_PER_S / 1_000_000,
                self.disks
            ),
            "Not modeled: the four processors, and the controller of the RAID set.".to_owned(),
        ]
    }

    pub(super) fn machine(&self) -> Machine {
        Machine {
            cache_bytes: self.cache_bytes,
            page_bytes: 4 * KIB,
            policy: PolicyKind::Lru,
            tunables: Tunables::nt(),
            read_time: self.read_time,
        }
    }
}

/// Changes an assumption.
type Change = fn(&mut Assumptions);

/// Other assumptions.
pub(super) const VARIATIONS: [(&str, Change); 8] = [
    ("seeks 20 % faster", |it| {
        let disk = &mut it.disk;
        for time in [&mut disk.track_to_track, &mut disk.average_seek, &mut disk.full_stroke] {
            *time = *time * 4 / 5;
        }
    }),
    ("no overhead of the disk", |it| it.disk.overhead = 0),
    ("twice the disk's read-ahead", |it| it.disk.read_ahead_bytes *= 2),
    ("processor twice as fast", |it| {
        it.read_time.fixed /= 2;
        it.read_time.bytes_per_s = NonZero::new(2 * COPIED_PER_S);
    }),
    ("twice the cache", |it| it.cache_bytes *= 2),
    ("4 disks in the RAID set", |it| it.disks = 4),
    ("users at different places", |it| it.are_apart = true),
    ("contiguous files together", |it| it.is_database_together = true),
];
