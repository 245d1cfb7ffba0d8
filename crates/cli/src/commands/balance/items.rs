//! The files and directories that may move, with the load of each.

use super::inventory::{Inventory, Place};
use super::record::{RecordedLoad, Recording};
use super::{BalanceArgs, Unit};
use larder_host::move_checks::TreeFacts;
use larder_lab::balance::DiskLoad;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Directories that the start of the machine and its programs need at their places.
const SYSTEM: [&str; 14] = [
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var/lib/dpkg",
    "/var/lib/rpm",
];
/// Unit of `st_blocks`.
const SECTOR_BYTES: u64 = 512;
/// Length of a request of a record without numbers of requests, on a disk without counters.
const REQUEST_BYTES: f64 = 65_536.0;

/// A load of a process, with the number of its file system.
#[derive(Clone, Debug)]
pub(super) struct PlacedLoad {
    pub(super) recorded: RecordedLoad,
    pub(super) place: usize,
}

/// A file or directory with loads.
#[derive(Clone, Debug, Default)]
pub(super) struct Item {
    pub(super) path: String,
    pub(super) place: usize,
    pub(super) is_directory: bool,
    pub(super) bytes: u64,
    /// Load per second.
    pub(super) load: DiskLoad,
    pub(super) is_movable: bool,
}

/// Returns the loads of the disks over the whole record, with the requests that reach the disk.
pub(super) fn placed_loads(recording: &Recording, inventory: &Inventory) -> Vec<PlacedLoad> {
    let mut loads: Vec<PlacedLoad> = recording
        .loads
        .iter()
        .filter(|load| !inventory.images.contains(Path::new(&load.file)))
        .filter_map(|load| {
            Some(PlacedLoad { place: inventory.place_of(load)?, recorded: load.clone() })
        })
        .collect();
    for load in &mut loads {
        count_requests(&mut load.recorded.load, mean_bytes(inventory, load.place));
    }
    let factors = merge_factors(&loads, inventory);
    for load in &mut loads {
        let shares = &inventory.places[load.place].balanced.shares;
        let factor = |of: fn(&(f64, f64)) -> f64| {
            shares.iter().map(|share| of(&factors[share.0])).fold(1.0, f64::min)
        };
        let own = &mut load.recorded.load;
        own.reads *= factor(|it| it.0);
        own.writes *= factor(|it| it.1);
    }
    loads
}

/// Returns the mean length of the requests of the first disk of a file system.
fn mean_bytes(inventory: &Inventory, place: usize) -> f64 {
    let share = inventory.places[place].balanced.shares.first();
    let counted = share.and_then(|share| inventory.disks[share.0].counted);
    let mean = counted.map(|it| (it.read_bytes + it.write_bytes) / it.requests());
    mean.filter(|it| *it >= 512.0).unwrap_or(REQUEST_BYTES)
}

/// Sets the numbers of requests that a record does not have.
fn count_requests(load: &mut DiskLoad, mean_bytes: f64) {
    if load.reads == 0.0 {
        load.reads = load.read_bytes / mean_bytes;
    }
    if load.writes == 0.0 {
        load.writes = load.write_bytes / mean_bytes;
    }
}

/// Returns for each disk the share of the requests of files that are left after the kernel has
/// merged neighbors: reads and writes.
fn merge_factors(loads: &[PlacedLoad], inventory: &Inventory) -> Vec<(f64, f64)> {
    let sums = disk_sums(loads, inventory);
    let pairs = inventory.disks.iter().zip(sums);
    let factor = |counted: f64, sum: f64| if sum > counted { counted / sum } else { 1.0 };
    let factors = pairs.map(|(disk, sum)| match disk.counted {
        Some(counted) => (factor(counted.reads, sum.reads), factor(counted.writes, sum.writes)),
        None => (1.0, 1.0),
    });
    factors.collect()
}

/// Returns the load of all files on each disk.
pub(super) fn disk_sums(loads: &[PlacedLoad], inventory: &Inventory) -> Vec<DiskLoad> {
    let mut sums = vec![DiskLoad::default(); inventory.disks.len()];
    for load in loads {
        for &(disk, read, write) in &inventory.places[load.place].balanced.shares {
            sums[disk] += load.recorded.load.scaled(read, write);
        }
    }
    sums
}

/// Returns the items of the loads, in the order of their paths.
pub(super) fn items(
    arguments: &BalanceArgs,
    loads: &[PlacedLoad],
    inventory: &Inventory,
) -> Vec<Item> {
    let directories = match arguments.by {
        Unit::File => BTreeSet::new(),
        Unit::Directory => directories(loads, inventory),
    };
    let mut items: BTreeMap<(String, usize), (Item, Option<u64>, u64)> = BTreeMap::new();
    for load in loads {
        let parent = Path::new(&load.recorded.file).parent().and_then(Path::to_str);
        let parent = parent.filter(|it| directories.contains(&((*it).to_owned(), load.place)));
        let path = parent.unwrap_or(&load.recorded.file).to_owned();
        let key = (path.clone(), load.place);
        let (item, inode, end) = items.entry(key).or_insert_with(|| {
            let inode = load.recorded.identity.map(|(_, inode)| inode);
            let is_directory = parent.is_some();
            (Item { path, place: load.place, is_directory, ..Item::default() }, inode, 0)
        });
        item.load += load.recorded.load;
        *end = (*end).max(load.recorded.end);
        // Two files of one path: the one of the record may not be the present one.
        if !item.is_directory && *inode != load.recorded.identity.map(|(_, inode)| inode) {
            *inode = Some(0);
        }
    }
    let items = items.into_values().map(|(mut item, inode, end)| {
        let place = &inventory.places[item.place];
        examine(&mut item, place, inode, end);
        let path = Path::new(&item.path);
        item.is_movable &= !arguments.exclude.iter().any(|it| path.starts_with(it));
        item
    });
    items.collect()
}

/// Returns the directories of files, with their file systems: those without a directory of other
/// files below them.
fn directories(loads: &[PlacedLoad], inventory: &Inventory) -> BTreeSet<(String, usize)> {
    let of = |load: &PlacedLoad| {
        let parent = Path::new(&load.recorded.file).parent()?;
        let is_of_this_machine = inventory.places[load.place].stack.is_some();
        Some((parent.to_str()?.to_owned(), load.place)).filter(|_| is_of_this_machine)
    };
    let all: BTreeSet<(String, usize)> = loads.iter().filter_map(of).collect();
    let above: BTreeSet<PathBuf> = all
        .iter()
        .flat_map(|it| Path::new(&it.0).ancestors().skip(1).map(Path::to_owned))
        .collect();
    all.into_iter().filter(|it| !above.contains(Path::new(&it.0))).collect()
}

/// Sets the size of an item, and if it may move.
fn examine(item: &mut Item, place: &Place, inode: Option<u64>, end: u64) {
    if place.stack.is_none() {
        (item.bytes, item.is_movable) = (end, true);
        return;
    }
    let path = Path::new(&item.path);
    // The author of a record may name paths that lead elsewhere; the kernel reports none with `..`.
    if path.components().any(|it| it == Component::ParentDir) {
        return;
    }
    let Ok(found) = std::fs::symlink_metadata(path) else { return };
    let is_system = SYSTEM.iter().any(|it| path.starts_with(it));
    if item.is_directory {
        let parent = path.parent().and_then(|it| std::fs::metadata(it).ok());
        let is_mount = parent.is_none_or(|parent| parent.dev() != found.dev());
        item.bytes = TreeFacts::of(path).bytes;
        item.is_movable = found.is_dir() && !is_mount && !is_system;
        return;
    }
    item.bytes = found.blocks() * SECTOR_BYTES;
    let is_the_same = inode.is_none_or(|inode| inode == found.ino());
    item.is_movable = found.is_file() && is_the_same && !is_system;
}
