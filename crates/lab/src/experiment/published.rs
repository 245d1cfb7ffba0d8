//! The parts that experiments share: published figures, and the disks that they are repeated on.

use crate::model::DiskSpec;
use larder_core::store::Geometry;
use larder_schema::experiment::Figure;

const MIB: u64 = 1 << 20;

/// A published figure: its name, its text, the lowest and the highest value that agree with it,
/// their unit, and the reason why the model differs.
pub(super) type Published = (&'static str, &'static str, [f64; 2], &'static str, &'static str);

/// Returns a figure with the values of the model.
pub(super) fn figure(published: Published, values: Vec<f64>) -> Figure {
    let (name, published, agrees_from_to, unit, reason) = published;
    Figure { name, published, agrees_from_to, unit, values, reason }
}

/// Returns the bytes of a disk that are used: whole MiB.
pub(super) fn capacity(spec: &DiskSpec) -> u64 {
    spec.capacity_bytes / MIB * MIB
}

/// Returns the geometry of a store with the data of this many disks.
pub(super) fn geometry(spec: &DiskSpec, disks: u32) -> Geometry {
    let granule = u32::try_from(spec.sector_bytes).expect("a sector");
    Geometry { length: capacity(spec) * u64::from(disks), granule, read_only: false }
}
