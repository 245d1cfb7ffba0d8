//! A slow disk: a loop device over an image, limited to so many operations per second.
//!
//! Needs the administrator's rights and the version 1 blkio controller. The limit and the device
//! are undone when the value is dropped and when this process dies.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::run;
use crate::undo::Undo;

const GROUP: &str = "/sys/fs/cgroup/blkio";

/// Where the limits are set.
const LIMITS: [&str; 2] = [
    "/sys/fs/cgroup/blkio/blkio.throttle.read_iops_device",
    "/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device",
];

const UNDO: &str = "
for side in read write; do
  echo \"$1 0\" > \"$3/blkio.throttle.${side}_iops_device\"
done
losetup --detach \"$2\"";

/// Attaches an image to a loop device that goes past the page cache; whoever asks detaches it.
pub(crate) fn attach(image: &Path) -> Result<PathBuf> {
    let mut losetup = run::client(30, "losetup");
    losetup.args(["--find", "--show", "--direct-io=on"]).arg(image);
    Ok(PathBuf::from(run::text(&mut losetup)?.trim()))
}

/// A loop device with a limit.
#[derive(Debug)]
pub(crate) struct SlowDisk {
    device: PathBuf,
    /// Major and minor, as the controller names it.
    numbers: String,
    _undo: Undo,
}

impl SlowDisk {
    /// Why there can be none on this machine, if so.
    pub(crate) fn missing() -> Option<&'static str> {
        if !run::is_root() {
            return Some("needs root");
        }
        if !LIMITS.iter().all(|path| Path::new(path).exists()) {
            return Some("no blkio controller (version 1)");
        }
        (!run::installed("losetup")).then_some("no losetup")
    }

    /// A device over the image that does `per_s` reads and `per_s` writes in a second.
    pub(crate) fn over(image: &Path, per_s: u32) -> Result<Self> {
        let disk = Self::unlimited(image)?;
        disk.limit(per_s)?;
        Ok(disk)
    }

    /// A device over the image without a limit yet.
    pub(crate) fn unlimited(image: &Path) -> Result<Self> {
        let device = attach(image)?;
        let name = device.file_name().context("losetup printed no device")?;
        let numbers = Path::new("/sys/block").join(name).join("dev");
        let numbers = std::fs::read_to_string(&numbers);
        let Ok(numbers) = numbers.map(|text| text.trim().to_owned()) else {
            run::text(Command::new("losetup").arg("--detach").arg(&device))?;
            bail!("no device numbers for {}", device.display());
        };
        let undo = Undo::with(UNDO, &[&numbers, &device.to_string_lossy(), GROUP])?;
        Ok(Self { device, numbers, _undo: undo })
    }

    /// From now on it does `per_s` reads and `per_s` writes in a second.
    pub(crate) fn limit(&self, per_s: u32) -> Result<()> {
        for path in LIMITS {
            std::fs::write(path, format!("{} {per_s}\n", self.numbers))
                .with_context(|| format!("limit {} in {path}", self.device.display()))?;
        }
        Ok(())
    }

    /// Major and minor, as the controller names it.
    pub(crate) fn numbers(&self) -> &str {
        &self.numbers
    }

    /// Whether a device with these numbers has a limit.
    pub(crate) fn is_limited(numbers: &str) -> Result<bool> {
        for path in LIMITS {
            let text = std::fs::read_to_string(path).with_context(|| format!("read {path}"))?;
            if text.lines().any(|line| line.split(' ').next() == Some(numbers)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The device.
    pub(crate) fn path(&self) -> &Path {
        &self.device
    }

    /// Write requests and bytes that the device has seen.
    pub(crate) fn written(&self) -> Result<(u64, u64)> {
        let name = self.device.file_name().context("a device has a name")?;
        let path = Path::new("/sys/block").join(name).join("stat");
        let text = std::fs::read_to_string(&path).context("read the statistics of the device")?;
        let fields: Vec<u64> = text.split_whitespace().filter_map(|f| f.parse().ok()).collect();
        // Field 5 counts write requests, field 7 sectors of 512 bytes written.
        match (fields.get(4), fields.get(6)) {
            (Some(&requests), Some(&sectors)) => Ok((requests, sectors * 512)),
            _ => bail!("{} has an unknown form", path.display()),
        }
    }
}
