//! The figures of a model, with their units.

use super::StoreModel;
use super::device::DeviceModel;
use crate::model::{ArrayLayout, BurstCredit, DeviceRates, DiskSpec, Latency, RateLimits, SsdSpec};
use larder_schema::model::Figure;

impl StoreModel {
    /// Returns the kind of the model, in words.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            StoreModel::Instant => "no time",
            StoreModel::Device(device) => device.kind(),
            StoreModel::Array(..) | StoreModel::CachedArray(..) => "array",
        }
    }

    /// Returns all figures of the model; for an array, those of its layout, and of each device.
    #[must_use]
    pub fn figures(&self) -> Vec<Figure> {
        match self {
            StoreModel::Instant => Vec::new(),
            StoreModel::Device(device) => device.figures(),
            StoreModel::Array(layout, device) => {
                let mut figures = of_layout(layout);
                figures.extend(device.figures());
                figures
            }
            StoreModel::CachedArray(cache, layout, device) => {
                let mut figures = vec![
                    Figure::new("cache", cache.bytes, "bytes"),
                    Figure::new("battery", cache.has_battery.into(), ""),
                ];
                figures.extend(StoreModel::Array(*layout, *device).figures());
                figures
            }
        }
    }
}

impl DeviceModel {
    /// Returns the kind of the device, in words.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            DeviceModel::Disk(_) => "rotating disk",
            DeviceModel::Flash(_) => "SSD",
            DeviceModel::Rated(_) => "rates",
        }
    }

    fn figures(&self) -> Vec<Figure> {
        match self {
            DeviceModel::Disk(spec) => of_disk(spec),
            DeviceModel::Flash(spec) => of_flash(spec),
            DeviceModel::Rated(rates) => of_rates(rates),
        }
    }
}

fn of_layout(layout: &ArrayLayout) -> Vec<Figure> {
    let mut figures = vec![
        Figure::new("members", layout.members.into(), ""),
        Figure::new("chunk", layout.chunk_bytes, "bytes"),
    ];
    let failed = layout.failed.iter().map(|number| Figure::new("failed", number.into(), ""));
    figures.extend(failed);
    figures.extend(layout.rebuilt.map(|number| Figure::new("rebuild", number.into(), "")));
    figures
}

fn of_disk(spec: &DiskSpec) -> Vec<Figure> {
    let figures = [
        ("capacity", spec.capacity_bytes, "bytes"),
        ("actuators", spec.actuators.into(), ""),
        ("sector", spec.sector_bytes, "bytes"),
        ("rotation", spec.rpm.into(), "rpm"),
        ("track_to_track", spec.track_to_track, "ns"),
        ("average_seek", spec.average_seek, "ns"),
        ("full_stroke", spec.full_stroke, "ns"),
        ("write_settle", spec.write_settle, "ns"),
        ("outer_rate", spec.outer_bytes_per_s, "bytes/s"),
        ("inner_rate", spec.inner_bytes_per_s, "bytes/s"),
        ("interface_rate", spec.interface_bytes_per_s, "bytes/s"),
        ("overhead", spec.overhead, "ns"),
        ("read_ahead", spec.read_ahead_bytes, "bytes"),
        ("write_cache", spec.write_cache_bytes, "bytes"),
        ("queue_depth", spec.queue_depth.into(), ""),
        ("age_max", spec.age_max, "ns"),
    ];
    figures.into_iter().map(|(name, value, unit)| Figure::new(name, value, unit)).collect()
}

fn of_flash(spec: &SsdSpec) -> Vec<Figure> {
    let figures = [
        ("capacity", spec.capacity_bytes, "bytes"),
        ("channels", spec.channels.into(), ""),
        ("dies_per_channel", spec.dies_per_channel.into(), ""),
        ("page", spec.page_bytes, "bytes"),
        ("pages_per_block", spec.pages_per_block.into(), ""),
        ("read_page", spec.read_page, "ns"),
        ("program_page", spec.program_page, "ns"),
        ("erase_block", spec.erase_block, "ns"),
        ("channel_rate", spec.channel_bytes_per_s, "bytes/s"),
        ("interface_rate", spec.interface_bytes_per_s, "bytes/s"),
        ("overhead", spec.overhead, "ns"),
        ("command", spec.command, "ns"),
        ("queue_depth", spec.queue_depth.into(), ""),
        ("write_buffer", spec.write_buffer_bytes, "bytes"),
        ("protected_buffer", spec.has_protected_buffer.into(), ""),
        ("over_provisioning", spec.over_provisioning_permille.into(), "permille"),
        ("slc_cache", spec.slc_cache_bytes, "bytes"),
        ("slc_program_page", spec.slc_program_page, "ns"),
    ];
    figures.into_iter().map(|(name, value, unit)| Figure::new(name, value, unit)).collect()
}

fn of_rates(rates: &DeviceRates) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (side, RateLimits { operations_per_s, bytes_per_s }) in
        [("", rates.total), ("read_", rates.read), ("write_", rates.write)]
    {
        let operations = operations_per_s.map(|it| (format!("{side}iops"), it, "operations/s"));
        let bytes = bytes_per_s.map(|it| (format!("{side}bytes"), it, "bytes/s"));
        figures.extend([operations, bytes].into_iter().flatten());
    }
    if let Some(BurstCredit { operations_per_s, operations }) = rates.credit {
        figures.push(("credit_iops".to_owned(), operations_per_s, "operations/s"));
        figures.push(("credits".to_owned(), operations, "operations"));
    }
    for (side, Latency { mean, median }) in
        [("read", rates.read_latency), ("write", rates.write_latency)]
    {
        figures.push((format!("{side}_latency"), mean, "ns"));
        if median < mean {
            figures.push((format!("{side}_median"), median, "ns"));
        }
    }
    let transfer = rates.transfer_bytes_per_s.map(|it| ("transfer".to_owned(), it, "bytes/s"));
    figures.extend(transfer);
    figures.push(("depth".to_owned(), rates.depth.into(), ""));
    let times = [("burst", rates.burst), ("slice", rates.slice)];
    let times = times.into_iter().filter(|(_, time)| *time > 0);
    figures.extend(times.map(|(name, time)| (name.to_owned(), time, "ns")));
    figures.into_iter().map(|(name, value, unit)| Figure::new(name, value, unit)).collect()
}
