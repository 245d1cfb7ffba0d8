//! A server of one volume as a file, a loop device on it, and a file system on that; all undone
//! whatever happens.

use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::memory_group::MemoryGroup;
use crate::prove::Lab;
use crate::run;
use crate::server::{Ended, Larder, Recipe, Server};
use crate::undo::Undo;

/// How long a program may take that works on a file system.
pub(in crate::prove) const PATIENCE_S: u64 = 300;

/// Enough for PostMark.
pub(in crate::prove) const IMAGE_MIB: u64 = 2048;

/// A file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::prove) enum Kind {
    Ext4,
    Xfs,
    Btrfs,
}

impl Kind {
    pub(in crate::prove) const ALL: [Kind; 3] = [Kind::Ext4, Kind::Xfs, Kind::Btrfs];

    pub(in crate::prove) fn name(self) -> &'static str {
        match self {
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
            Kind::Btrfs => "btrfs",
        }
    }

    /// Leaves nothing to be written behind anybody's back.
    fn make(self) -> &'static [&'static str] {
        match self {
            Kind::Ext4 => {
                &["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
            }
            Kind::Xfs => &["mkfs.xfs", "-q", "-f"],
            Kind::Btrfs => &["mkfs.btrfs", "-q", "-f"],
        }
    }

    /// Looks and changes nothing; an exit code other than 0 is a finding.
    fn check(self) -> &'static [&'static str] {
        match self {
            Kind::Ext4 => &["e2fsck", "-f", "-n"],
            Kind::Xfs => &["xfs_repair", "-n"],
            Kind::Btrfs => &["btrfs", "check"],
        }
    }
}

/// How a volume is served.
pub(in crate::prove) struct Setup<'a> {
    pub(in crate::prove) lab: &'a Lab,
    pub(in crate::prove) image: &'a Path,
    pub(in crate::prove) options: &'a str,
}

/// A server inside a memory group, or outside of any.
struct Placed<'a>(Larder, Option<&'a MemoryGroup>);

impl Recipe for Placed<'_> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn command(&self, socket: &Path, scratch: &Path) -> Command {
        let command = self.0.command(socket, scratch);
        self.1.map_or(command, |group| group.enter(&self.0.command(socket, scratch)))
    }

    fn announces(&self) -> bool {
        true
    }
}

impl Setup<'_> {
    pub(in crate::prove) fn serve(&self) -> Result<Served> {
        self.serve_in(None)
    }

    /// Serves, as a process of a group if there is one.
    pub(in crate::prove) fn serve_in(&self, group: Option<&MemoryGroup>) -> Result<Served> {
        let directory = self.lab.file("volumes");
        // What a killed server left there cannot even be looked at.
        if directory.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
            std::fs::create_dir(&directory).context("make a directory for the files")?;
        }
        let undo = Undo::with("umount --force --lazy \"$1\"", &[&directory.to_string_lossy()])?;
        let mut larder = Larder::serving(&self.lab.binary, Path::new(""), self.options);
        larder.volumes = vec![format!("disk={}", self.image.display())];
        larder.options.extend(["--fuse".into(), directory.to_string_lossy().into_owned()]);
        let server = Server::start(&Placed(larder, group), self.lab.dir())?;
        Ok(Served { server, directory, undo })
    }
}

/// A server with a volume as a file.
pub(in crate::prove) struct Served {
    pub(in crate::prove) server: Server,
    directory: PathBuf,
    undo: Undo,
}

impl Served {
    pub(in crate::prove) fn file(&self) -> PathBuf {
        self.directory.join("disk")
    }

    pub(in crate::prove) fn stop_clean(mut self) -> Result<Ended> {
        let ended = self.server.stop_clean()?;
        self.undo.cancel();
        Ok(ended)
    }

    /// Kills it; what was mounted stays behind, dead.
    pub(in crate::prove) fn kill(mut self) -> Result<Ended> {
        let ended = self.server.kill()?;
        self.undo.cancel();
        Ok(ended)
    }
}

/// A file system on a loop device of its own, or on a device of somebody else.
pub(in crate::prove) struct FileSystem {
    kind: Kind,
    device: PathBuf,
    is_own: bool,
    point: PathBuf,
    undo: Undo,
}

impl FileSystem {
    /// A loop device on `file`, with direct I/O.
    pub(in crate::prove) fn attach(lab: &Lab, file: &Path, kind: Kind) -> Result<Self> {
        Self::at(lab, crate::disk::attach(file)?, true, kind)
    }

    /// On a device that somebody else takes away.
    pub(in crate::prove) fn on(lab: &Lab, device: &Path, kind: Kind) -> Result<Self> {
        Self::at(lab, device.to_path_buf(), false, kind)
    }

    fn at(lab: &Lab, device: PathBuf, is_own: bool, kind: Kind) -> Result<Self> {
        let point = lab.file("mounted");
        let unmount = "umount --lazy \"$2\"";
        let undo =
            if is_own { format!("{unmount}; losetup --detach \"$1\"") } else { unmount.into() };
        let undo = Undo::with(&undo, &[&device.to_string_lossy(), &point.to_string_lossy()])?;
        std::fs::create_dir_all(&point).context("make a mountpoint")?;
        Ok(FileSystem { kind, device, is_own, point, undo })
    }

    pub(in crate::prove) fn device(&self) -> &Path {
        &self.device
    }

    pub(in crate::prove) fn point(&self) -> &Path {
        &self.point
    }

    fn on_device(&self, words: &[&str]) -> Result<()> {
        let mut command = run::client(PATIENCE_S, words[0]);
        run::text(command.args(&words[1..]).arg(&self.device))?;
        Ok(())
    }

    pub(in crate::prove) fn make(&self) -> Result<()> {
        self.on_device(self.kind.make())
    }

    /// An error unless it is clean.
    pub(in crate::prove) fn check(&self) -> Result<()> {
        self.on_device(self.kind.check()).with_context(|| format!("check {}", self.kind.name()))
    }

    pub(in crate::prove) fn mount(&mut self) -> Result<()> {
        let mut mount = run::client(PATIENCE_S, "mount");
        run::text(mount.args(["-t", self.kind.name()]).arg(&self.device).arg(&self.point))?;
        Ok(())
    }

    pub(in crate::prove) fn unmount(&mut self) -> Result<()> {
        run::text(run::client(PATIENCE_S, "umount").arg(&self.point))?;
        Ok(())
    }

    /// Takes the device away again, if it is its own.
    pub(in crate::prove) fn detach(mut self) -> Result<()> {
        if self.is_own {
            run::text(run::client(30, "losetup").arg("--detach").arg(&self.device))?;
        }
        self.undo.cancel();
        Ok(())
    }
}
