//! The model of one device.

use crate::model::{
    ArrayLayout, ArrayLevel, ArrayStore, DeviceRates, Disk, DiskSpec, ModeledStore, NullStore,
    RatedDevice, Ssd, SsdSpec,
};
use larder_core::frames::NoFrames;
use larder_core::store::{Geometry, Store};
use larder_core::units::BLOCK_BYTES_U64;

/// Model of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceModel {
    /// A rotating disk.
    Disk(DiskSpec),
    /// An SSD.
    Flash(SsdSpec),
    /// A device with rates.
    Rated(DeviceRates),
}

impl DeviceModel {
    /// Returns the capacity; `None` for a device that is known by its rates alone.
    #[must_use]
    pub const fn capacity_bytes(&self) -> Option<u64> {
        match self {
            DeviceModel::Disk(spec) => Some(spec.capacity_bytes),
            DeviceModel::Flash(spec) => Some(spec.capacity_bytes),
            DeviceModel::Rated(_) => None,
        }
    }

    /// Returns a store without content that has the timing of the model; `number` is that of the
    /// device in its array.
    pub(crate) fn build(&self, geometry: Geometry, number: u32) -> Box<dyn Store<NoFrames>> {
        match self {
            DeviceModel::Disk(spec) if spec.actuators > 1 => {
                // The actuators share a spindle, so all have the phase of the disk.
                let layout = actuators(spec.actuators);
                Box::new(ArrayStore::new(geometry, layout, |part, _| disk(spec, part, number)))
            }
            DeviceModel::Disk(spec) => disk(spec, geometry, number),
            DeviceModel::Flash(spec) => {
                let model = Ssd::new(*spec, geometry.length);
                Box::new(ModeledStore::new(NullStore::new(geometry), model))
            }
            DeviceModel::Rated(rates) => {
                let model = RatedDevice::new(*rates, number.into());
                Box::new(ModeledStore::new(NullStore::new(geometry), model))
            }
        }
    }
}

fn disk(spec: &DiskSpec, geometry: Geometry, number: u32) -> Box<dyn Store<NoFrames>> {
    let disk = Disk::new(*spec, geometry.length).with_phase_of(number);
    Box::new(ModeledStore::new(NullStore::new(geometry), disk))
}

/// Returns the layout of a disk with `members` actuators: equal parts, one after the other, of
/// whole blocks.
const fn actuators(members: u32) -> ArrayLayout {
    ArrayLayout::new(ArrayLevel::Linear, members, BLOCK_BYTES_U64)
}
