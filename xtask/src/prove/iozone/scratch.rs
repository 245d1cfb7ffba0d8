//! A file system of 4 GiB on a loop device, removed whatever happens.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::disk;
use crate::image::{self, GIB};
use crate::prove::Lab;
use crate::run;
use crate::undo::Undo;

/// A file system in an image.
#[derive(Debug)]
pub(super) struct FileSystem {
    point: PathBuf,
    _undo: Undo,
}

impl FileSystem {
    /// Why there can be none on this machine, if so.
    pub(super) fn missing() -> Option<&'static str> {
        if !run::is_root() {
            return Some("needs root");
        }
        (!run::installed("mkfs.ext4")).then_some("no mkfs.ext4")
    }

    /// Makes it. The image is sparse; its device goes past the page cache, so that nothing is
    /// cached twice.
    pub(super) fn make(lab: &Lab) -> Result<Self> {
        let image = image::sparse(&lab.file("iozone.img"), 4 * GIB)?;
        run::text(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        let point = lab.file("iozone");
        std::fs::create_dir(&point).context("make the folder to mount at")?;
        let device = disk::attach(&image)?;
        let script = "umount \"$1\"; losetup --detach \"$2\"; rm -f \"$3\"";
        let named = |path: &Path| path.to_string_lossy().into_owned();
        let [at, from, file] = [&point, &device, &image].map(|path| named(path));
        let undo = Undo::with(script, &[&at, &from, &file])?;
        run::text(Command::new("mount").arg(&device).arg(&point))?;
        Ok(Self { point, _undo: undo })
    }

    /// Where it is mounted.
    pub(super) fn path(&self) -> &Path {
        &self.point
    }
}
