//! The stack of block devices below a file system, down to the physical disks: partitions, LVM, md,
//! dm-crypt, multipath and loop devices, as sysfs describes them.
//!
//! Invariants: the depth is bounded and a cycle is an error; a device that sysfs does not describe
//! is an error, never a guess. The roots of sysfs and procfs are arguments, so that recorded trees
//! can be resolved.

use crate::mounts::Mount;
use crate::{device, mounts, proc};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

mod shares;
#[cfg(test)]
mod tests;

pub use shares::DiskShare;

/// Maximum number of devices between a file system and a disk.
const DEPTH_MAX: usize = 16;
/// The unit of the file `size` in sysfs.
const SECTOR_BYTES: u64 = 512;

/// The places of sysfs and procfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// The mount point of sysfs.
    pub sys: PathBuf,
    /// The mount point of procfs.
    pub proc: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Roots { sys: "/sys".into(), proc: "/proc".into() }
    }
}

/// The kind of a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layer {
    /// A disk without a lower device.
    Disk,
    /// A partition of a disk.
    Partition,
    /// A logical volume of LVM.
    Logical,
    /// A volume of dm-crypt.
    Crypt,
    /// A disk that is reached through several paths; the lower devices are the paths.
    Multipath,
    /// Another target of the device mapper.
    Mapper,
    /// An array of md, with its level, such as `raid1`.
    Array(String),
    /// A loop device, with its file.
    Loop(PathBuf),
    /// A file system on several devices.
    FileSystem,
}

impl Layer {
    /// Returns the kind as a word.
    #[must_use]
    pub fn word(&self) -> &str {
        match self {
            Layer::Disk => "disk",
            Layer::Partition => "partition",
            Layer::Logical => "LVM",
            Layer::Crypt => "dm-crypt",
            Layer::Multipath => "multipath",
            Layer::Mapper => "device mapper",
            Layer::Array(level) => level,
            Layer::Loop(_) => "loop",
            Layer::FileSystem => "file system",
        }
    }
}

/// A block device with the devices below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Name in sysfs, such as `dm-0`.
    pub name: String,
    /// Name that the device mapper or md shows, such as `vg-home`; else [`Stack::name`].
    pub label: String,
    /// Kind.
    pub layer: Layer,
    /// Size in bytes; 0 if unknown.
    pub bytes: u64,
    /// The lower devices.
    pub below: Vec<Stack>,
}

/// A stack that cannot be resolved: a sentence without a capital letter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StackError {
    /// The file system has no local block device.
    #[error("{0} is a file system of type {1}, which has no local block device")]
    NoDevice(String, String),
    /// No mount holds the path.
    #[error("no mount holds {0}")]
    NoMount(String),
    /// The device is missing in sysfs.
    #[error("sysfs has no block device {0}")]
    Unknown(String),
    /// More than 16 devices, or a cycle.
    #[error("the devices below {0} form a cycle, or are more than 16")]
    TooDeep(String),
}

impl Stack {
    /// Returns the stack of the file system that holds a path without symbolic links. The path is
    /// not accessed.
    ///
    /// # Errors
    /// The file system has no local block device, or the stack cannot be resolved.
    pub fn of_path(roots: &Roots, path: &Path) -> Result<Stack, StackError> {
        Resolver { roots, mounts: mounts::of_root(&roots.proc) }.path(path, 0)
    }

    /// Returns the stack of the file system with a device number, as `larder watch` records it:
    /// that of its device, or an anonymous one (btrfs).
    ///
    /// # Errors
    /// As for [`Stack::of_path`].
    pub fn of_file_system(roots: &Roots, number: (u32, u32)) -> Result<Stack, StackError> {
        let resolver = Resolver { roots, mounts: mounts::of_root(&roots.proc) };
        let device = device::encode(number.0, number.1);
        if number.0 != 0 {
            return resolver.device(device, 0);
        }
        let mount = resolver.mounts.iter().find(|mount| mount.device == device);
        let missing = || StackError::Unknown(format!("{}:{}", number.0, number.1));
        resolver.mount(mount.ok_or_else(missing)?, 0)
    }

    /// Returns the devices from the file system to the disks, such as `vg-home (LVM) on md0 (raid1)
    /// on sda1 (partition), sdb1 (partition)`.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = format!("{} ({})", self.label, self.layer.word());
        if !self.below.is_empty() {
            let below: Vec<String> = self.below.iter().map(Stack::describe).collect();
            text = format!("{text} on {}", below.join(", "));
        }
        text
    }

    /// Returns the names of all devices below, in no order.
    #[must_use]
    pub fn names_below(&self) -> Vec<String> {
        let of = |it: &Stack| [vec![it.name.clone()], it.names_below()].concat();
        self.below.iter().flat_map(of).collect()
    }

    /// Returns the first device of a kind, from the top.
    #[must_use]
    pub fn find(&self, layer: &Layer) -> Option<&Stack> {
        if self.layer == *layer {
            return Some(self);
        }
        self.below.iter().find_map(|it| it.find(layer))
    }
}

struct Resolver<'a> {
    roots: &'a Roots,
    mounts: Vec<Mount>,
}

impl Resolver<'_> {
    fn path(&self, path: &Path, depth: usize) -> Result<Stack, StackError> {
        let mount = mounts::deepest_of(&self.mounts, path);
        self.mount(mount.ok_or_else(|| StackError::NoMount(path.display().to_string()))?, depth)
    }

    fn mount(&self, mount: &Mount, depth: usize) -> Result<Stack, StackError> {
        if device::decode(mount.device).0 != 0 {
            return self.device(mount.device, depth);
        }
        // btrfs uses anonymous numbers; the source of the mount is one of its devices.
        let no_device =
            || StackError::NoDevice(mount.point.display().to_string(), mount.fs_type.clone());
        let source = Path::new(&mount.source);
        let is_device = source.starts_with("/dev");
        let name = source.file_name().filter(|_| is_device).and_then(OsStr::to_str);
        let number = self.number_of(name.ok_or_else(no_device)?).ok_or_else(no_device)?;
        let first = self.device(number, depth)?;
        let members = if mount.fs_type == "btrfs" { self.members(&first.name) } else { Vec::new() };
        if members.len() < 2 {
            return Ok(first);
        }
        let below = members.into_iter().map(|number| self.device(number, depth + 1));
        Ok(Stack {
            name: mount.fs_type.clone(),
            label: mount.point.display().to_string(),
            layer: Layer::FileSystem,
            bytes: 0,
            below: below.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the number of a device with a name below /dev or /dev/mapper.
    fn number_of(&self, name: &str) -> Option<u32> {
        let number = |directory: PathBuf| device::parse_number(&proc::read(directory.join("dev"))?);
        let class = self.roots.sys.join("class/block");
        number(class.join(name)).or_else(|| {
            let mapped = proc::entries(&class)
                .find(|device| proc::read(device.join("dm/name")).is_some_and(|it| it == name));
            number(mapped?)
        })
    }

    /// Returns the numbers of all devices of the btrfs that has a device with this name.
    fn members(&self, name: &str) -> Vec<u32> {
        let file_systems = proc::entries(self.roots.sys.join("fs/btrfs"));
        let devices = file_systems.map(|it| proc::names(it.join("devices")).collect());
        let all: Option<Vec<String>> =
            devices.into_iter().find(|names: &Vec<String>| names.iter().any(|it| it == name));
        let mut all = all.unwrap_or_default();
        all.sort();
        all.iter().filter_map(|name| self.number_of(name)).collect()
    }

    fn device(&self, number: u32, depth: usize) -> Result<Stack, StackError> {
        let (major, minor) = device::decode(number);
        let known_as = format!("{major}:{minor}");
        if depth > DEPTH_MAX {
            return Err(StackError::TooDeep(known_as));
        }
        let path = self.roots.sys.join("dev/block").join(&known_as);
        let unknown = || StackError::Unknown(known_as.clone());
        let path = path.canonicalize().map_err(|_missing| unknown())?;
        let name = path.file_name().and_then(OsStr::to_str).ok_or_else(unknown)?.to_owned();
        let layer = layer_of(&path);
        let below = match &layer {
            Layer::Partition => vec![path.parent().ok_or_else(unknown)?.to_owned()],
            // The paths of a multipath device are one disk.
            Layer::Disk | Layer::Multipath | Layer::Loop(_) | Layer::FileSystem => Vec::new(),
            Layer::Logical | Layer::Crypt | Layer::Mapper | Layer::Array(_) => {
                let mut lower: Vec<PathBuf> = proc::entries(path.join("slaves")).collect();
                lower.sort();
                lower
            }
        };
        let number = |lower: &PathBuf| {
            let number = proc::read(lower.join("dev")).as_deref().and_then(device::parse_number);
            number.ok_or_else(|| StackError::Unknown(lower.display().to_string()))
        };
        let mut below = below
            .iter()
            .map(|lower| self.device(number(lower)?, depth + 1))
            .collect::<Result<Vec<Stack>, _>>()?;
        if let Layer::Loop(file) = &layer {
            match self.path(file, depth + 1) {
                Ok(stack) => below.push(stack),
                // A file in memory, or on the network, has no disk: the loop device is the lowest.
                Err(StackError::NoDevice(..) | StackError::NoMount(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let label = proc::read(path.join("dm/name")).unwrap_or_else(|| name.clone());
        let bytes = proc::read(path.join("size")).and_then(|it| it.parse::<u64>().ok());
        let bytes = bytes.unwrap_or(0).saturating_mul(SECTOR_BYTES);
        Ok(Stack { name, label, layer, bytes, below })
    }
}

/// Returns the kind of the device with a directory in sysfs.
fn layer_of(path: &Path) -> Layer {
    if path.join("partition").exists() {
        return Layer::Partition;
    }
    if let Ok(file) = std::fs::read(path.join("loop/backing_file")) {
        let file = file.strip_suffix(b"\n").unwrap_or(&file);
        return Layer::Loop(PathBuf::from(OsStr::from_bytes(file)));
    }
    if let Some(level) = proc::read(path.join("md/level")) {
        return Layer::Array(level);
    }
    if !path.join("dm").is_dir() {
        return Layer::Disk;
    }
    let uuid = proc::read(path.join("dm/uuid")).unwrap_or_default();
    match uuid.split('-').next().unwrap_or_default() {
        "LVM" => Layer::Logical,
        "CRYPT" => Layer::Crypt,
        "mpath" => Layer::Multipath,
        _ => Layer::Mapper,
    }
}
