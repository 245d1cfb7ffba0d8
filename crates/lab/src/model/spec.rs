//! Store models as text: `disk`, `fixed:120us`, `iops:3000,bytes:125MiB,latency:800us`,
//! `raid5:3xdisk,chunk=64KiB`.
//!
//! A specification of rates is a list of `KEY:VALUE`, separated by commas, each key once. `iops`,
//! `bytes`, `latency` and `median` apply to all operations; with `read-` or `write-` in front of
//! the key they apply to one direction. The named models of devices are specifications themselves.

mod array;
mod device;
mod devices;
mod figures;
mod text;

pub use self::array::ControllerCache;
pub use self::device::DeviceModel;
pub use self::devices::{DEVICES, NamedDevice};
use super::{
    ArrayLayout, ArrayStore, BurstCredit, DEPTH_MAX, DeviceRates, DiskSpec, Latency, NullStore,
    RateLimits,
};
use crate::cache_simulation::CachedStore;
use larder_core::clock::Nanos;
use larder_core::frames::NoFrames;
use larder_core::store::{Geometry, Store};
use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

/// The keys of a specification of rates.
const KEYS: [&str; 18] = [
    "iops",
    "bytes",
    "latency",
    "median",
    "transfer",
    "depth",
    "burst",
    "slice",
    "read-iops",
    "read-bytes",
    "read-latency",
    "read-median",
    "write-iops",
    "write-bytes",
    "write-latency",
    "write-median",
    "credit-iops",
    "credits",
];

/// Maximum latency, burst and slice: an hour.
const TIME_MAX: Nanos = 3_600_000_000_000;
/// Maximum number of operations or bytes per second.
const RATE_MAX: u64 = 1 << 50;

/// The parsers and messages that specifications share with the other values of a command line.
#[derive(Clone, Copy)]
pub struct SpecSyntax {
    /// Parses a number of bytes, such as `64MiB`; the error is a reason.
    pub bytes: fn(&str) -> Result<u64, String>,
    /// Parses a time, such as `120us`, to nanoseconds; the error is a reason.
    pub time: fn(&str) -> Result<Nanos, String>,
    /// Returns the message for an unknown name of a kind, with the known names.
    pub unknown: fn(kind: &str, name: &str, known: &[&str]) -> String,
}

impl fmt::Debug for SpecSyntax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpecSyntax").finish_non_exhaustive()
    }
}

/// Model of the store behind a simulated cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreModel {
    /// Every operation takes no time.
    Instant,
    /// A device.
    Device(DeviceModel),
    /// An array of devices of the same kind.
    Array(ArrayLayout, DeviceModel),
    /// An array behind a controller with a cache.
    CachedArray(ControllerCache, ArrayLayout, DeviceModel),
}

impl StoreModel {
    /// The desktop disk of 7,200 rpm.
    pub const DISK: StoreModel =
        StoreModel::Device(DeviceModel::Disk(DiskSpec::seven_thousand_two_hundred()));

    /// Returns the model of a device with rates.
    #[must_use]
    pub const fn rated(rates: DeviceRates) -> StoreModel {
        StoreModel::Device(DeviceModel::Rated(rates))
    }

    /// Returns the text of the model, which [`StoreSpec::parse`] accepts: its name, if it has one.
    #[must_use]
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            StoreModel::Instant => "instant".into(),
            StoreModel::Device(device) => devices::text(device),
            StoreModel::Array(layout, device) => {
                array::text(layout, None, &devices::text(device)).into()
            }
            StoreModel::CachedArray(cache, layout, device) => {
                array::text(layout, Some(*cache), &devices::text(device)).into()
            }
        }
    }

    /// Returns a store without content that has the timing of the model.
    #[must_use]
    pub fn build(&self, geometry: Geometry) -> Box<dyn Store<NoFrames>> {
        match self {
            StoreModel::Instant => Box::new(NullStore::new(geometry)),
            StoreModel::Device(device) => device.build(geometry, 0),
            StoreModel::Array(layout, device) => {
                Box::new(ArrayStore::new(geometry, *layout, |of_member, number| {
                    device.build(of_member, number)
                }))
            }
            StoreModel::CachedArray(cache, layout, device) => {
                let array = StoreModel::Array(*layout, *device).build(geometry);
                Box::new(CachedStore::new(array, cache.bytes, cache.has_battery))
            }
        }
    }
}

/// A store model as a user specifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a command line has one")]
pub enum StoreSpec {
    /// A model.
    Model(StoreModel),
    /// The model that fits the device or file of this path; see [`super::measure`].
    Measure(PathBuf),
    /// The model in this file, which has the schema `larder-model`.
    File(PathBuf),
}

impl StoreSpec {
    /// Parses a specification.
    ///
    /// # Errors
    /// The text is no specification: the reason, as a sentence without a capital letter.
    pub fn parse(text: &str, syntax: &SpecSyntax) -> Result<StoreSpec, String> {
        let path_after = |form: &str| {
            let path = text.strip_prefix(form)?.strip_prefix(':')?;
            let path = Some(PathBuf::from(path)).filter(|_| !path.is_empty());
            Some(path.ok_or_else(|| format!("it names no file; write {form}:PATH")))
        };
        if let Some(path) = path_after("measure") {
            return path.map(StoreSpec::Measure);
        }
        if let Some(path) = path_after("file") {
            return path.map(StoreSpec::File);
        }
        if let Some((layout, cache, member)) = array::parse(text, syntax)? {
            let StoreSpec::Model(StoreModel::Device(device)) = StoreSpec::parse(&member, syntax)?
            else {
                return Err(format!("the members of an array are devices, which {member} is not"));
            };
            let array = StoreModel::Array(layout, device);
            let model = cache.map_or(array, |it| StoreModel::CachedArray(it, layout, device));
            return Ok(StoreSpec::Model(model));
        }
        if text == "instant" {
            return Ok(StoreSpec::Model(StoreModel::Instant));
        }
        device(text, syntax).map(|device| StoreSpec::Model(StoreModel::Device(device)))
    }
}

/// Parses the model of a device.
fn device(text: &str, syntax: &SpecSyntax) -> Result<DeviceModel, String> {
    if let Some(time) = text.strip_prefix("fixed:") {
        let latency = parse_time("latency", time, syntax)?;
        return Ok(DeviceModel::Rated(DeviceRates::fixed(latency)));
    }
    if text.contains(':') {
        return parse_rates(text, syntax).map(DeviceModel::Rated);
    }
    let named = DEVICES.iter().find(|it| it.name == text);
    named.map(|it| it.device).ok_or_else(|| {
        let forms = [
            "fixed:TIME",
            "iops:N,bytes:M,latency:T,depth:D",
            "raid5:3xdisk,chunk=64KiB",
            "measure:PATH",
            "file:PATH",
        ];
        let known = std::iter::once("instant").chain(DEVICES.iter().map(|it| it.name));
        let known: Vec<&str> = known.chain(forms).collect();
        (syntax.unknown)("store model", text, &known)
    })
}

/// Parses a time of at most an hour; `kind` names it.
fn parse_time(kind: &str, text: &str, syntax: &SpecSyntax) -> Result<Nanos, String> {
    let time = (syntax.time)(text)?;
    let error = || format!("the {kind} of a store model is at most 1h");
    if time <= TIME_MAX { Ok(time) } else { Err(error()) }
}

fn parse_rates(text: &str, syntax: &SpecSyntax) -> Result<DeviceRates, String> {
    let mut rates = DeviceRates::fixed(0);
    // Of both directions together, of reads, of writes.
    let mut limits = [RateLimits::default(); 3];
    let (mut means, mut medians) = ([None; 3], [None; 3]);
    let (mut earned, mut credits) = (None, None);
    let mut seen: Vec<&str> = Vec::new();
    for part in text.split(',') {
        let (key, value) =
            part.split_once(':').ok_or_else(|| format!("\"{part}\" is not KEY:VALUE"))?;
        if !KEYS.contains(&key) {
            return Err((syntax.unknown)("part of a store model", key, &KEYS));
        }
        if seen.contains(&key) {
            return Err(format!("\"{key}\" is there twice"));
        }
        seen.push(key);
        let (side, quantity) = match key.split_once('-') {
            Some(("read", quantity)) => (1, quantity),
            Some((_, quantity)) => (2, quantity),
            None => (0, key),
        };
        match quantity {
            _ if key == "credit-iops" => earned = Some(rate(key, value.parse().ok(), value)?),
            _ if key == "credits" => credits = Some(rate(key, value.parse().ok(), value)?),
            "iops" => {
                limits[side].operations_per_s = Some(rate(key, value.parse().ok(), value)?);
            }
            "bytes" => {
                limits[side].bytes_per_s = Some(rate(key, Some((syntax.bytes)(value)?), value)?);
            }
            "latency" => means[side] = Some(parse_time(quantity, value, syntax)?),
            "median" => medians[side] = Some(parse_time(quantity, value, syntax)?),
            "transfer" => {
                let parsed = Some((syntax.bytes)(value)?);
                rates.transfer_bytes_per_s = Some(rate(key, parsed, value)?);
            }
            "burst" => rates.burst = parse_time(quantity, value, syntax)?,
            "slice" => rates.slice = parse_time(quantity, value, syntax)?,
            _ => rates.depth = depth(value)?,
        }
    }
    let sets_no_time = |key: &&str| {
        matches!(*key, "depth" | "burst" | "slice" | "median" | "read-median" | "write-median")
    };
    if seen.iter().all(sets_no_time) {
        return Err("it has neither a rate nor a latency; add iops:N, bytes:M or latency:T".into());
    }
    rates.credit = match (earned, credits) {
        (Some(operations_per_s), Some(operations)) => {
            Some(BurstCredit { operations_per_s, operations })
        }
        (None, None) => None,
        _ => return Err("credit-iops:N and credits:N belong together".into()),
    };
    [rates.total, rates.read, rates.write] = limits;
    let latency = |side: usize, operations| {
        let mean = means[side].or(means[0]).unwrap_or(0);
        let median = medians[side].or(medians[0]).unwrap_or(mean);
        Latency::new(mean, median).map_err(|error| format!("of {operations}, {error}"))
    };
    (rates.read_latency, rates.write_latency) = (latency(1, "reads")?, latency(2, "writes")?);
    Ok(rates)
}

fn rate(key: &str, parsed: Option<u64>, text: &str) -> Result<u64, String> {
    parsed.filter(|rate| (1..=RATE_MAX).contains(rate)).ok_or_else(|| {
        format!("\"{text}\" is not a rate; write {key}:N, a number per second above 0")
    })
}

fn depth(text: &str) -> Result<u32, String> {
    let depth = text.parse().ok().filter(|depth| (1..=DEPTH_MAX).contains(depth));
    depth.ok_or_else(|| format!("\"{text}\" is not a depth; write a number from 1 to {DEPTH_MAX}"))
}

#[cfg(test)]
mod tests;
