//! Facts about this machine, for footprints: from mountinfo, from sysfs, and from the loop driver
//! for the files behind loop devices.
//!
//! Only paths that lead to the data itself are accessed, so a dead mount elsewhere does not block.
//! The mounts of other mount namespaces are read for data that no mount of this one shows.
//! Facts that cannot be determined are left out: data is then identified by its inode alone.

mod foreign;
mod layers;

use super::footprint::{
    CachedData, Disk, FileSystem, FootprintPart, FsPath, Inode, MachineFacts, NestedMount, Node,
};
use crate::mount_table::{self, MountLine, device_number, mount_id};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, Stat, major, minor};
use rustix::io::Errno;
use std::cell::OnceCell;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of a sector in sysfs.
const SECTOR: u64 = 512;
/// Time limit of all searches for other names of files.
const SEARCH_MAX: Duration = Duration::from_secs(5);
/// Maximum number of reads of the list of locks to find one lock.
const LOCK_LIST_READS: usize = 4;
const LOOP_GET_STATUS64: rustix::ioctl::Opcode = 0x4C05;
/// `OVERLAYFS_SUPER_MAGIC` of the kernel.
const OVERLAY_MAGIC: rustix::fs::FsWord = 0x794c_7630;
/// Flag of a loop device that only reads.
const LO_FLAGS_READ_ONLY: u32 = 1;
/// Maximum number of attempts to open a device that another program holds exclusively.
const EXCLUSIVE_TRIES: usize = 5;
/// Interval of these attempts. Programs that examine a device hold it only briefly.
const EXCLUSIVE_INTERVAL: Duration = Duration::from_millis(20);

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

#[derive(Clone, Debug)]
pub(crate) struct FileLocation {
    pub(crate) inode: Inode,
    pub(crate) kind: FileType,
    /// The number of the device, if the file is a device.
    pub(crate) device: u64,
    pub(crate) links: u64,
    pub(crate) fs_path: Option<FsPath>,
    /// True if it lies in an overlay that no mount shows, so that the layers are unknown.
    pub(crate) is_in_unlisted_overlay: bool,
    /// Its path as seen from this mount namespace; empty if no mount shows it.
    pub(crate) at: PathBuf,
}

impl FileLocation {
    pub(super) fn into_data(self) -> CachedData {
        let FileLocation { inode, kind, device, links, fs_path, at, .. } = self;
        match kind {
            FileType::BlockDevice => CachedData::Disk(device),
            FileType::Directory => CachedData::Tree { inode, fs_path, at },
            _ => CachedData::File { inode, fs_path, links },
        }
    }
}

/// A snapshot of the facts about this machine.
#[derive(Debug)]
pub(crate) struct LocalMachine {
    mounts: Vec<MountLine>,
    /// Mounts of other mount namespaces, each with its mountpoint as seen from this one.
    foreign: OnceCell<Vec<MountLine>>,
    /// The end of all searches for other names of files, set by the first one.
    search_end: OnceCell<Instant>,
}

impl LocalMachine {
    /// Takes a snapshot.
    ///
    /// # Errors
    /// If the kernel does not show the mounts.
    pub(crate) fn read() -> io::Result<Self> {
        let (foreign, search_end) = (OnceCell::new(), OnceCell::new());
        Ok(LocalMachine { mounts: mount_table::read()?, foreign, search_end })
    }

    /// Returns the time at which a search for other names of files must end.
    pub(crate) fn search_end(&self) -> Instant {
        *self.search_end.get_or_init(|| Instant::now() + SEARCH_MAX)
    }

    pub(crate) fn mounts(&self) -> &[MountLine] {
        &self.mounts
    }

    /// Returns the first mount that fits, preferably one of this mount namespace.
    fn find_mount(&self, fits: impl Fn(&MountLine) -> bool) -> Option<&MountLine> {
        let local = self.mounts.iter().find(|mount| fits(mount));
        local.or_else(|| self.foreign().iter().find(|mount| fits(mount)))
    }

    fn known_mounts(&self) -> impl Iterator<Item = &MountLine> {
        self.mounts.iter().chain(self.foreign.get().into_iter().flatten())
    }

    fn foreign(&self) -> &[MountLine] {
        self.foreign.get_or_init(foreign::read)
    }

    pub(crate) fn locate(&self, descriptor: impl AsFd) -> io::Result<FileLocation> {
        let descriptor = descriptor.as_fd();
        let stat = rustix::fs::fstat(descriptor)?;
        let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let at = rustix::fs::readlink(&link, Vec::new()).map(path_of).unwrap_or_default();
        let mount =
            mount_id(descriptor).and_then(|number| self.find_mount(|mount| mount.id == number));
        // The path of a file in another mount namespace begins at the root of that one.
        let at = match mount.and_then(|mount| foreign::root_of(&mount.at)) {
            Some(root) => foreign::below(&root, &at),
            None => at,
        };
        let fs_path = mount.and_then(|mount| {
            let path = mount.root.join(at.strip_prefix(&mount.at).ok()?);
            // Joining an empty path leaves a slash at the end.
            let path = path.components().collect();
            Some(FsPath { filesystem: mount.filesystem, path })
        });
        let is_overlay =
            || rustix::fs::fstatfs(descriptor).is_ok_and(|found| found.f_type == OVERLAY_MAGIC);
        let is_in_unlisted_overlay = mount.is_none() && is_overlay();
        let at = if mount.is_some() { at } else { PathBuf::new() };
        Ok(FileLocation {
            inode: inode_of(&stat),
            kind: FileType::from_raw_mode(stat.st_mode),
            device: stat.st_rdev,
            links: stat.st_nlink,
            fs_path,
            is_in_unlisted_overlay,
            at,
        })
    }

    /// Locates a path that need not be readable.
    fn locate_path(&self, path: &Path) -> Option<FileLocation> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        self.locate(rustix::fs::open(path, flags, Mode::empty()).ok()?).ok()
    }

    /// Returns the backing file of a loop device: from the loop driver, or, where only root may ask
    /// it, by the path with which the device was created.
    fn loop_device(&self, number: u64, sysfs: &Path) -> Option<Disk> {
        let path = path_of(rustix::fs::readlink(sysfs, Vec::new()).ok()?);
        let name = Path::new("/dev").join(path.file_name()?);
        let named = std::fs::read(sysfs.join("loop/backing_file")).ok()?;
        let named = self.locate_path(&path_of(named.trim_ascii_end().to_vec()));
        let Some(info) = loop_info(&name, number) else {
            let named = named?;
            let number_in = |file: &str| number_in(&sysfs.join("loop").join(file)).unwrap_or(0);
            return Some(loop_on(&named, named.inode, number_in("offset"), number_in("sizelimit")));
        };
        let inode = (info.device, info.inode);
        if info.rdevice != 0 {
            let (of, start) = (info.rdevice, info.offset);
            return Some(Disk::Part { of, start, bytes: limit(info.size_limit) });
        }
        // The path may be stale, or belong to another mount namespace. The file may then have more
        // names.
        let named = named.filter(|named| named.inode == inode);
        let links = named.as_ref().map_or(2, |named| named.links);
        let fs_path = named.and_then(|named| named.fs_path);
        let fs_path = fs_path.or_else(|| {
            let on_it = |mount: &&MountLine| mount.filesystem == info.device;
            let filesystem = self.mounts.iter().find(on_it)?.filesystem;
            Some(FsPath { filesystem, path: "/".into() })
        });
        let bytes = limit(info.size_limit);
        Some(Disk::Loop { inode, fs_path, links, start: info.offset, bytes })
    }
}

impl MachineFacts for LocalMachine {
    fn disk(&self, number: u64) -> Disk {
        let sysfs = PathBuf::from(format!("/sys/dev/block/{}:{}", major(number), minor(number)));
        if sysfs.join("partition").exists() {
            let of = sysfs.canonicalize().ok();
            let of = of.and_then(|device| device_in(&device.parent()?.join("dev")));
            let sectors = |file: &str| number_in(&sysfs.join(file));
            if let (Some(of), Some(start), Some(size)) = (of, sectors("start"), sectors("size")) {
                return Disk::Part { of, start: start * SECTOR, bytes: size * SECTOR };
            }
        }
        if sysfs.join("loop").exists()
            && let Some(found) = self.loop_device(number, &sysfs)
        {
            return found;
        }
        let members = entries(&sysfs.join("slaves"));
        let members = members.iter().filter_map(|member| device_in(&member.join("dev")));
        Disk::Whole { members: members.collect() }
    }

    fn filesystem(&self, number: u64) -> FileSystem {
        let mount = self.find_mount(|mount| mount.filesystem == number);
        let (layers, unresolved) = match mount {
            Some(mount) if mount.kind == b"overlay" => self.layers(mount),
            _ => (Vec::new(), None),
        };
        if major(number) != 0 {
            return FileSystem { disks: vec![number], layers, unresolved };
        }
        let Some(mount) = mount else { return FileSystem::default() };
        let mut disks: Vec<u64> = split(mount.source.as_os_str().as_bytes(), b':')
            .into_iter()
            .map(path_of)
            .filter(|source| source.is_absolute())
            .filter_map(|source| rustix::fs::stat(&source).ok())
            .filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice)
            .map(|stat| stat.st_rdev)
            .collect();
        if mount.kind == b"btrfs" {
            disks.extend(siblings(&disks));
        }
        FileSystem { disks, layers, unresolved }
    }

    fn inode(&self, fs_path: &FsPath) -> Option<Inode> {
        Some(inode_of(&rustix::fs::fstat(self.open_fs_path(fs_path)?).ok()?))
    }

    fn mounted_below(&self, path: &Path) -> Vec<NestedMount> {
        self.known_mounts_below(path).map(|mount| self.nested(mount)).collect()
    }
}

impl LocalMachine {
    fn known_mounts_below(&self, path: &Path) -> impl Iterator<Item = &MountLine> {
        let below = move |mount: &&MountLine| {
            path.is_absolute() && mount.at != path && mount.at.starts_with(path)
        };
        self.known_mounts().filter(below)
    }

    /// Returns the file systems that are mounted below a path, each with its device number and
    /// mountpoint.
    pub(super) fn filesystems_below(&self, path: &Path) -> Vec<(u64, PathBuf)> {
        let below = self.known_mounts_below(path);
        below.map(|mount| (mount.filesystem, mount.at.clone())).collect()
    }

    /// Returns true if a file system is mounted at a path, as [`LocalMachine::filesystems_below`]
    /// returned them.
    pub(super) fn is_mounted(&self, filesystem: u64, at: &Path) -> bool {
        self.find_mount(|mount| mount.filesystem == filesystem && mount.at == at).is_some()
    }

    fn nested(&self, mount: &MountLine) -> NestedMount {
        let fs_path = FsPath { filesystem: mount.filesystem, path: mount.root.clone() };
        // The root of a file system is a directory; it is not accessed, since its server may be
        // gone.
        let is_part = mount.root != Path::new("/");
        let opened = is_part.then(|| open_mount(mount, &mount.at)).flatten();
        // Another mount may cover the mountpoint.
        let opened = opened.or_else(|| self.open_fs_path(&fs_path).filter(|_| is_part));
        let stat = opened.and_then(|opened| rustix::fs::fstat(opened).ok());
        let is_file = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) != FileType::Directory;
        NestedMount { fs_path, file: stat.filter(is_file).map(|stat| inode_of(&stat)) }
    }

    /// Opens a descriptor of a path in a file system, if a mount shows it.
    pub(super) fn open_fs_path(&self, fs_path: &FsPath) -> Option<OwnedFd> {
        let shows = |mount: &&MountLine| {
            mount.filesystem == fs_path.filesystem && fs_path.path.starts_with(&mount.root)
        };
        self.known_mounts().filter(shows).find_map(|mount| {
            open_mount(mount, &mount.at.join(fs_path.path.strip_prefix(&mount.root).ok()?))
        })
    }
}

/// Opens a descriptor of a path in a mount, unless another file system is mounted over it.
fn open_mount(mount: &MountLine, path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Joining an empty path leaves a slash at the end, which no file may have.
    let path: PathBuf = path.components().collect();
    let found = rustix::fs::open(&path, flags, Mode::empty()).ok()?;
    (mount_id(&found) == Some(mount.id)).then_some(found)
}

/// Returns true if this process is in a container, so that layers of overlays may lie outside of
/// its mount namespace. Containers have their own PID namespaces.
pub(crate) fn is_in_container() -> bool {
    // The number of the first PID namespace, `PROC_PID_INIT_INO` of the kernel.
    const FIRST: &str = "pid:[4026531836]";
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|namespace| namespace != Path::new(FIRST))
}

/// Returns the process that holds an flock(2) lock on an inode, if the kernel shows it here.
///
/// The kernel needs several reads to return a long list, and skips a lock when an earlier one is
/// released between two of them. So the list is read several times.
pub(crate) fn lock_holder(located: &FileLocation) -> Option<u32> {
    let filesystem = located.fs_path.as_ref().map_or(located.inode.0, |fs_path| fs_path.filesystem);
    let (major, minor) = (major(filesystem), minor(filesystem));
    let inode = format!("{major:02x}:{minor:02x}:{}", located.inode.1);
    // 1: FLOCK  ADVISORY  WRITE 4711 08:01:123456 0 EOF
    let holder = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let is_it = words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&inode.as_str());
        words.get(4)?.parse().ok().filter(|&pid| is_it && pid > 0)
    };
    (0..LOCK_LIST_READS)
        .find_map(|_| std::fs::read_to_string("/proc/locks").ok()?.lines().find_map(holder))
}

fn inode_of(stat: &Stat) -> Inode {
    (stat.st_dev, stat.st_ino)
}

fn loop_info(device: &Path, number: u64) -> Option<LoopInfo> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device: OwnedFd = rustix::fs::open(device, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&device).ok()?;
    let is_block = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
    if !is_block || stat.st_rdev != number {
        return None;
    }
    // SAFETY: the descriptor is that of a loop device, which sysfs has just confirmed; its driver
    // fills the structure for this call, and all of its fields are plain numbers.
    let status = unsafe { rustix::ioctl::Getter::<LOOP_GET_STATUS64, LoopInfo>::new() };
    // SAFETY: as above.
    unsafe { rustix::ioctl::ioctl(&device, status) }.ok()
}

/// Returns the loop device, or its partition, through which the kernel uses the data of a claim,
/// such as for a file system in another mount namespace. Only root can see that. A loop device that
/// is itself claimed for writing is left out, since this process uses it exclusively.
pub(crate) fn loop_in_use(parts: &[FootprintPart], read_only: bool) -> Option<PathBuf> {
    let loops = entries(Path::new("/sys/block")).into_iter();
    loops
        .filter(|sysfs| sysfs.join("loop").exists())
        .find_map(|sysfs| {
            let number = device_in(&sysfs.join("dev"))?;
            let is_claimed = !read_only && parts.iter().any(|part| part.node == Node::Disk(number));
            let info = loop_info(&device_of(&sysfs)?, number)?;
            if is_claimed || info.rdevice != 0 || read_only && info.flags & LO_FLAGS_READ_ONLY != 0
            {
                return None;
            }
            let file = Node::File((info.device, info.inode));
            let holds_data = |start: u64, bytes: u64| {
                let end = start.saturating_add(bytes);
                let shares =
                    |part: &FootprintPart| start < part.range.end && part.range.start < end;
                parts.iter().any(|part| part.owned && part.node == file && shares(part))
            };
            let mut partitions = entries(&sysfs);
            partitions.retain(|entry| entry.join("partition").exists());
            if partitions.is_empty() {
                let bytes = limit(info.size_limit);
                return Some(sysfs)
                    .filter(|_| holds_data(info.offset, bytes))
                    .filter(|sysfs| is_in_use(sysfs));
            }
            // The use of a partition prevents exclusive use of the device, and vice versa.
            partitions.into_iter().find(|sysfs| {
                let sectors = |file: &str| number_in(&sysfs.join(file)).unwrap_or(0);
                let start = info.offset.saturating_add(sectors("start") * SECTOR);
                holds_data(start, sectors("size") * SECTOR) && is_in_use(sysfs)
            })
        })
        .and_then(|sysfs| device_of(&sysfs))
}

fn device_of(sysfs: &Path) -> Option<PathBuf> {
    Some(Path::new("/dev").join(sysfs.file_name()?))
}

/// Returns true if the kernel or a program uses a device exclusively, and not only briefly. Device
/// mapper and md devices on it count if they are used themselves.
fn is_in_use(sysfs: &Path) -> bool {
    let holders = entries(&sysfs.join("holders"));
    if !holders.is_empty() {
        return holders.iter().any(|holder| is_in_use(holder));
    }
    let Some(device) = device_of(sysfs) else { return false };
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    (0..EXCLUSIVE_TRIES).all(|attempt| {
        if attempt > 0 {
            std::thread::sleep(EXCLUSIVE_INTERVAL);
        }
        rustix::fs::open(&device, flags, Mode::empty()).is_err_and(|error| error == Errno::BUSY)
    })
}

/// Describes a loop device on a path.
fn loop_on(named: &FileLocation, inode: Inode, start: u64, size_limit: u64) -> Disk {
    let bytes = limit(size_limit);
    if named.kind == FileType::BlockDevice {
        return Disk::Part { of: named.device, start, bytes };
    }
    Disk::Loop { inode, fs_path: named.fs_path.clone(), links: named.links, start, bytes }
}

/// Returns a limit in bytes; zero means no limit.
fn limit(bytes: u64) -> u64 {
    if bytes == 0 { u64::MAX } else { bytes }
}

/// Returns all devices of the btrfs file systems that contain one of `disks`.
fn siblings(disks: &[u64]) -> Vec<u64> {
    let pools = entries(Path::new("/sys/fs/btrfs"));
    let devices = |pool: &PathBuf| {
        let devices = entries(&pool.join("devices"));
        devices.iter().filter_map(|device| device_in(&device.join("dev"))).collect::<Vec<_>>()
    };
    let pools = pools.iter().map(devices);
    pools.filter(|pool| pool.iter().any(|disk| disks.contains(disk))).flatten().collect()
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

fn device_in(file: &Path) -> Option<u64> {
    device_number(&std::fs::read_to_string(file).ok()?)
}

fn number_in(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn path_of(bytes: impl Into<Vec<u8>>) -> PathBuf {
    std::ffi::OsString::from_vec(bytes.into()).into()
}

/// Splits a list; a backslash before the separator, or before another backslash, escapes it.
fn split(list: &[u8], separator: u8) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = list.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let part = parts.last_mut().expect("there is always one");
        match byte {
            b'\\' if bytes.peek() == Some(&separator) => part.push(separator),
            b'\\' if bytes.peek() == Some(&b'\\') => part.push(b'\\'),
            byte if byte == separator => {
                parts.push(Vec::new());
                continue;
            }
            byte => {
                part.push(byte);
                continue;
            }
        }
        bytes.next();
    }
    parts
}
