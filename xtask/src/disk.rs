//! Loop devices over images, with limits and file systems; all are removed when dropped, and when
//! this process ends. Requires root.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::cleanup::Cleanup;
use crate::run::{self, cmd};

/// The timeout in seconds of a program that works on a file system.
pub(crate) const WORK_MAX_S: u64 = 300;

/// The blkio controller (cgroup v1), and the files of its limits.
const GROUP: &str = "/sys/fs/cgroup/blkio";
const OPERATION_LIMITS: [&str; 2] = [
    "/sys/fs/cgroup/blkio/blkio.throttle.read_iops_device",
    "/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device",
];
const BYTE_LIMITS: [&str; 2] = [
    "/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device",
    "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device",
];

const CLEANUP: &str = "
for limit in read_iops write_iops read_bps write_bps; do
  [ -e \"$3\" ] && echo \"$1 0\" > \"$3/blkio.throttle.${limit}_device\"
done
losetup --detach \"$2\"";

/// A loop device over an image, with direct I/O and an optional limit.
#[derive(Debug)]
pub(crate) struct Disk {
    device: PathBuf,
    /// The major and minor numbers, in the format of the controller.
    pub(crate) numbers: String,
    _cleanup: Cleanup,
}

impl Disk {
    /// Returns the reason why this machine cannot limit a disk, if there is one.
    pub(crate) fn unavailable_reason() -> Option<String> {
        let reason = run::unmet_requirement(&["losetup"]);
        let mut limits = OPERATION_LIMITS.iter().chain(&BYTE_LIMITS);
        let has_limits = limits.all(|path| Path::new(path).exists());
        reason.or_else(|| (!has_limits).then(|| "no blkio controller (cgroup v1)".into()))
    }

    /// Attaches a device to the image.
    pub(crate) fn attach(image: &Path) -> Result<Self> {
        let device = run::stdout_of(cmd!(30, "losetup --find --show --direct-io=on {image}"))?;
        let device = PathBuf::from(device.trim());
        let name = device.file_name().context("losetup printed no device")?;
        let numbers = std::fs::read_to_string(Path::new("/sys/block").join(name).join("dev"));
        let Ok(numbers) = numbers.map(|text| text.trim().to_owned()) else {
            run::stdout_of(cmd!("losetup --detach {device}"))?;
            bail!("no device numbers for {}", device.display());
        };
        let cleanup = Cleanup::start(CLEANUP, &[&numbers, &device.to_string_lossy(), GROUP])?;
        Ok(Self { device, numbers, _cleanup: cleanup })
    }

    /// Limits the device to `per_s` reads and `per_s` writes per second; 0 removes the limit.
    pub(crate) fn limit(&self, per_s: u32) -> Result<()> {
        self.write_limits(&OPERATION_LIMITS, per_s.into())
    }

    /// Limits the device to this rate of bytes for reads, and for writes; 0 removes the limit.
    pub(crate) fn limit_bytes(&self, per_s: u64) -> Result<()> {
        self.write_limits(&BYTE_LIMITS, per_s)
    }

    fn write_limits(&self, files: &[&str], per_s: u64) -> Result<()> {
        files.iter().try_for_each(|path| {
            let written = std::fs::write(path, format!("{} {per_s}\n", self.numbers));
            written.with_context(|| format!("limit {} in {path}", self.device.display()))
        })
    }

    /// Returns true if a device with these numbers has a limit.
    pub(crate) fn is_limited(numbers: &str) -> Result<bool> {
        let limits = run::stdout_of(cmd!("cat {OPERATION_LIMITS...} {BYTE_LIMITS...}"))?;
        Ok(limits.lines().any(|line| line.split(' ').next() == Some(numbers)))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.device
    }

    /// Returns the numbers of write requests and bytes that the device has received.
    pub(crate) fn write_counts(&self) -> Result<(u64, u64)> {
        let name = self.device.file_name().context("a device has a name")?;
        let path = Path::new("/sys/block").join(name).join("stat");
        let text = std::fs::read_to_string(&path).context("read the statistics of the device")?;
        // Field 5 counts write requests, field 7 sectors of 512 bytes written.
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [_, _, _, _, requests, _, sectors, ..] = fields[..] else {
            bail!("no field 7: {text}")
        };
        Ok((requests.parse()?, sectors.parse::<u64>()? * 512))
    }
}

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ext4,
    Xfs,
    Btrfs,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Ext4, Kind::Xfs, Kind::Btrfs];

    /// Returns the name, the command that creates a file system without lazy initialization, and
    /// the command that checks it read-only.
    fn commands(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Kind::Ext4 => (
                "ext4",
                "mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0",
                "e2fsck -f -n",
            ),
            Kind::Xfs => ("xfs", "mkfs.xfs -q -f", "xfs_repair -n"),
            Kind::Btrfs => ("btrfs", "mkfs.btrfs -q -f", "btrfs check"),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.commands().0
    }
}

/// A file system on a device, mounted in the scratch directory.
#[derive(Debug)]
pub(crate) struct FileSystem {
    kind: Kind,
    device: PathBuf,
    point: PathBuf,
    _cleanup: Cleanup,
    /// The loop device, if this value has attached it; detached after the unmount.
    loop_device: Option<Disk>,
}

impl FileSystem {
    /// Uses a device that the caller detaches later.
    pub(crate) fn on(scratch: &Path, device: &Path, kind: Kind) -> Result<Self> {
        let (device, point) = (device.to_path_buf(), scratch.join("mounted"));
        std::fs::create_dir_all(&point).context("make a mountpoint")?;
        let cleanup = Cleanup::start("umount --lazy \"$1\"", &[&point.to_string_lossy()])?;
        Ok(FileSystem { kind, device, point, _cleanup: cleanup, loop_device: None })
    }

    /// Attaches a loop device, which this value detaches.
    pub(crate) fn attach(scratch: &Path, file: &Path, kind: Kind) -> Result<Self> {
        let disk = Disk::attach(file)?;
        let mut file_system = Self::on(scratch, disk.path(), kind)?;
        file_system.loop_device = Some(disk);
        Ok(file_system)
    }

    /// Creates and mounts an ext4 on a loop device over an image.
    pub(crate) fn new(scratch: &Path, image: &Path) -> Result<Self> {
        let file_system = Self::attach(scratch, image, Kind::Ext4)?;
        file_system.make()?;
        file_system.mount()?;
        Ok(file_system)
    }

    pub(crate) fn device(&self) -> &Path {
        &self.device
    }

    pub(crate) fn point(&self) -> &Path {
        &self.point
    }

    fn on_device(&self, words: &str) -> Result<()> {
        let (device, mut words) = (&self.device, words.split(' '));
        let program = words.next().unwrap_or_default();
        run::stdout_of(cmd!(WORK_MAX_S, "{program} {words...} {device}")).map(drop)
    }

    pub(crate) fn make(&self) -> Result<()> {
        self.on_device(self.kind.commands().1)
    }

    /// Fails unless the file system is clean.
    pub(crate) fn check(&self) -> Result<()> {
        let (name, _, check) = self.kind.commands();
        self.on_device(check).with_context(|| format!("check {name}"))
    }

    pub(crate) fn mount(&self) -> Result<()> {
        let (name, device, point) = (self.kind.name(), &self.device, &self.point);
        run::stdout_of(cmd!(WORK_MAX_S, "mount -t {name} {device} {point}")).map(drop)
    }

    pub(crate) fn unmount(&self) -> Result<()> {
        let point = &self.point;
        run::stdout_of(cmd!(WORK_MAX_S, "umount {point}")).map(drop)
    }

    /// Unmounts and checks the file system, and detaches its loop device.
    pub(crate) fn end(self) -> Result<()> {
        self.unmount()?;
        self.check()
    }

    /// Unmounts the file system without a check, and detaches its loop device.
    pub(crate) fn unmount_unchecked(self) -> Result<()> {
        self.unmount()
    }
}
