//! File systems and disks of the records: places of files, shares of disks, service times.

use super::BalanceArgs;
use super::record::{RecordedLoad, Recording};
use crate::commands::store_model;
use anyhow::{Context, Result, bail};
use larder_host::mounts::{self, Mount};
use larder_host::space;
use larder_host::stack::{Layer, Roots, Stack};
use larder_lab::balance::{DiskLoad, FileSystemPlace, MeasuredDisk, limits_of_model};
use larder_report::escape;
use larder_report::watch::not_counted;
use larder_schema::{as_f64, as_u64, format};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Number of the device of block devices themselves, in a record of `larder watch`.
const BLOCK_DEVICES: (u32, u32) = (0xfff, 0xf_ffff);

/// The identity of a file system.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PlaceKey {
    /// A file system of this machine.
    Device((u32, u32)),
    /// A drive of another machine, such as `C:`.
    Drive(String),
}

/// A file system with files of the records, or a target.
#[derive(Debug)]
pub(super) struct Place {
    /// Mount point or drive.
    pub(super) name: String,
    /// Directory below which files may move.
    pub(super) target: Option<PathBuf>,
    /// Its devices; `None` for a drive.
    pub(super) stack: Option<Stack>,
    pub(super) balanced: FileSystemPlace,
}

/// A disk.
#[derive(Debug, Default)]
pub(super) struct InventoryDisk {
    pub(super) name: String,
    pub(super) limits: Vec<DiskLoad>,
    pub(super) service: String,
    /// Requests and bytes of the counters, over the whole record.
    pub(super) counted: Option<DiskLoad>,
}

/// File systems and disks.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    pub(super) places: Vec<Place>,
    pub(super) disks: Vec<InventoryDisk>,
    pub(super) notes: Vec<String>,
    /// Files of loop devices: their load is that of the files in them.
    pub(super) images: BTreeSet<PathBuf>,
    /// Mount points and names of ZFS datasets with load: their devices are in no stack.
    pub(super) datasets: Vec<(PathBuf, String)>,
    by_key: BTreeMap<PlaceKey, Option<usize>>,
}

impl Inventory {
    /// Returns the file systems of the records and of the targets, and their disks.
    pub(super) fn of(arguments: &BalanceArgs, recording: &Recording) -> Result<Inventory> {
        let mut inventory = Inventory::default();
        for load in &recording.loads {
            if let Some(key) = key_of(load) {
                inventory.add(arguments, key);
            }
        }
        inventory.add_targets(arguments)?;
        for number in 0..inventory.disks.len() {
            inventory.serve(arguments, recording, number)?;
        }
        inventory.close_unknown();
        for (name, _) in &arguments.disks {
            let known = |it: &InventoryDisk| it.name == *name;
            let labels = |it: &Place| it.stack.as_ref().is_some_and(|it| has_name(it, name));
            if !inventory.disks.iter().any(known) && !inventory.places.iter().any(labels) {
                bail!(
                    "balance the disk {}: no file of the records and no target is on it; the disks \
                     are {}",
                    escape::text(name),
                    inventory.disks.iter().map(|it| &*it.name).collect::<Vec<_>>().join(", ")
                );
            }
        }
        Ok(inventory)
    }

    /// Returns the number of the file system of a load; `None` if it is not on a disk.
    pub(super) fn place_of(&self, load: &RecordedLoad) -> Option<usize> {
        self.by_key.get(&key_of(load)?).copied().flatten()
    }

    fn add(&mut self, arguments: &BalanceArgs, key: PlaceKey) -> Option<usize> {
        if let Some(known) = self.by_key.get(&key) {
            return *known;
        }
        let place = match &key {
            PlaceKey::Drive(drive) => Some(self.drive(drive.clone())),
            PlaceKey::Device(BLOCK_DEVICES) => None,
            PlaceKey::Device(number) => self.file_system(arguments, *number),
        };
        let number = place.map(|place| {
            self.places.push(place);
            self.places.len() - 1
        });
        self.by_key.insert(key, number);
        number
    }

    fn drive(&mut self, drive: String) -> Place {
        let shares = vec![(self.disk(&drive), 1.0, 1.0)];
        let balanced = FileSystemPlace { free_bytes: u64::MAX, is_target: true, shares };
        Place { target: Some(format!("{drive}\\").into()), name: drive, stack: None, balanced }
    }

    fn file_system(&mut self, arguments: &BalanceArgs, number: (u32, u32)) -> Option<Place> {
        let mount = mounts::of_number(number);
        let name = mount.as_ref().map_or_else(
            || format!("{}:{}", number.0, number.1),
            |mount| mount.point.display().to_string(),
        );
        let stack = match Stack::of_file_system(&Roots::default(), number) {
            Ok(stack) => stack,
            Err(error) => {
                self.notes.push(format!("The load of {name} was left out: {error}."));
                let dataset = mount.filter(|mount| mount.fs_type == "zfs");
                self.datasets.extend(dataset.map(|mount| (mount.point, mount.source)));
                return None;
            }
        };
        let named = |name: &str| arguments.disks.iter().any(|(it, _)| it == name);
        self.add_images(&stack, &named);
        let shares = stack.shares(&named);
        let shares = shares.iter().map(|it| (self.disk(&it.disk), it.read, it.write)).collect();
        let balanced = FileSystemPlace { free_bytes: 0, is_target: false, shares };
        Some(Place { name, target: None, stack: Some(stack), balanced })
    }

    fn add_images(&mut self, stack: &Stack, named: &dyn Fn(&str) -> bool) {
        if let Layer::Loop(file) = &stack.layer {
            self.images.insert(file.clone());
        }
        if !named(&stack.name) {
            for lower in &stack.below {
                self.add_images(lower, named);
            }
        }
    }

    fn disk(&mut self, name: &str) -> usize {
        if let Some(known) = self.disks.iter().position(|disk| disk.name == name) {
            return known;
        }
        self.disks.push(InventoryDisk { name: name.to_owned(), ..InventoryDisk::default() });
        self.disks.len() - 1
    }

    /// Adds the directories below which files may move.
    fn add_targets(&mut self, arguments: &BalanceArgs) -> Result<()> {
        for directory in &arguments.to {
            let context = || format!("move files to {}", escape::path(directory));
            let path = directory.canonicalize().with_context(context)?;
            let mount = Mount::of(&path).with_context(context)?;
            let key = PlaceKey::Device(mount.device_number());
            let Some(place) = self.add(arguments, key) else {
                bail!("{}: it is not on a disk of this machine", context());
            };
            self.set_target(place, path, arguments.reserve).with_context(context)?;
        }
        let has_drives = self.by_key.keys().any(|key| matches!(key, PlaceKey::Drive(_)));
        if !arguments.to.is_empty() || has_drives {
            return Ok(());
        }
        for mount in mounts::writable() {
            if mount.point.starts_with("/boot") {
                continue;
            }
            if let Some(place) = self.add(arguments, PlaceKey::Device(mount.device_number())) {
                // A file system that does not report its space is no target.
                let added = self.set_target(place, mount.point, arguments.reserve);
                self.notes.extend(added.err().map(|error| format!("No target: {error}.")));
            }
        }
        Ok(())
    }

    fn set_target(&mut self, place: usize, path: PathBuf, reserve: f64) -> std::io::Result<()> {
        let reserved = as_u64(as_f64(space::total_bytes(&path)?) * reserve);
        let place = &mut self.places[place];
        place.balanced.free_bytes = space::free_bytes(&path)?.saturating_sub(reserved);
        place.balanced.is_target = true;
        place.target.get_or_insert(path);
        Ok(())
    }

    /// Sets the limits of a disk: those of its model, or of its counters.
    fn serve(
        &mut self,
        arguments: &BalanceArgs,
        recording: &Recording,
        number: usize,
    ) -> Result<()> {
        let name = self.disks[number].name.clone();
        let stacks = self.places.iter().filter_map(|it| it.stack.as_ref());
        let device = stacks.clone().find_map(|stack| device_of(stack, &name));
        let names =
            |it: &&(String, _)| it.0 == name || device.is_some_and(|device| device.label == it.0);
        let model = arguments.disks.iter().find(names).and_then(|(_, model)| model.as_ref());
        let bytes = device.map_or(0, |device| device.bytes);
        // The counters of a record without this disk would be those of the other records only.
        let is_uncounted = recording.uncounted.contains(&name);
        if is_uncounted {
            self.notes.push(format!(
                "{} in a record: only the load of the recorded files is known.",
                not_counted(&name)
            ));
        }
        let counters = recording.disks.get(&name).filter(|_| !is_uncounted);
        let disk = &mut self.disks[number];
        disk.counted = counters.map(|it| DiskLoad {
            reads: as_f64(it.reads),
            read_bytes: as_f64(it.read_bytes()),
            writes: as_f64(it.writes),
            write_bytes: as_f64(it.write_bytes()),
        });
        if let Some(spec) = model {
            let model = store_model::of(spec)?;
            disk.limits = limits_of_model(&model, bytes);
            disk.service = format!("model {}", model.name());
            return Ok(());
        }
        let measured = counters.and_then(|it| {
            MeasuredDisk {
                reads: it.reads,
                writes: it.writes,
                read_ms: it.read_ms,
                write_ms: it.write_ms,
                busy_ms: it.busy_ms,
            }
            .limit()
        });
        match measured {
            Some(limit) => {
                let [read, write] = [limit.reads, limit.writes]
                    .map(|it| format::duration(larder_report::balance::nanoseconds(it)));
                disk.service = format!("measured: {read} a read, {write} a write");
                disk.limits = vec![limit];
            }
            None => "unknown".clone_into(&mut disk.service),
        }
        Ok(())
    }

    /// Takes disks without service times out of the targets.
    fn close_unknown(&mut self) {
        for (number, disk) in self.disks.iter().enumerate() {
            if !disk.limits.is_empty() || disk.service != "unknown" {
                continue;
            }
            let mut is_target = false;
            for place in &mut self.places {
                if place.balanced.shares.iter().any(|share| share.0 == number) {
                    is_target |= std::mem::take(&mut place.balanced.is_target);
                }
            }
            let is_target = if is_target { ", and it is no target" } else { "" };
            let had = if disk.counted.is_some() { "too few requests" } else { "no busy time" };
            self.notes.push(format!(
                "{} had {had} in the records for a service time{is_target}: name its model with \
                 --disk {}=MODEL, or measure one with larder model fit.",
                disk.name, disk.name
            ));
        }
    }
}

/// Returns the device with a name in a stack.
fn device_of<'a>(stack: &'a Stack, name: &str) -> Option<&'a Stack> {
    if stack.name == name {
        return Some(stack);
    }
    stack.below.iter().find_map(|it| device_of(it, name))
}

fn has_name(stack: &Stack, name: &str) -> bool {
    stack.name == name || stack.label == name || stack.below.iter().any(|it| has_name(it, name))
}

/// Returns the file system of a load: by its device, by the mount of its path, or its drive.
fn key_of(load: &RecordedLoad) -> Option<PlaceKey> {
    if let Some((device, _)) = load.identity {
        return Some(PlaceKey::Device(device));
    }
    let path = Path::new(&load.file);
    if path.is_absolute() {
        return mounts::of_path(path).map(|mount| PlaceKey::Device(mount.device_number()));
    }
    let (drive, _) = load.file.split_once(":\\")?;
    let is_drive = drive.len() == 1 && drive.starts_with(|it: char| it.is_ascii_alphabetic());
    is_drive.then(|| PlaceKey::Drive(format!("{}:", drive.to_ascii_uppercase())))
}
