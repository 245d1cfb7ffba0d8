//! `larder mount` under the programs that people use: databases, copies with all that a file can
//! have, a repository, a build, PostMark, fio that looks at every byte.
//!
//! SOURCE is a folder of an ext4 of its own on a loop device. After each work the mount is ended
//! and SOURCE alone must be as the mount was; in the end the file system must be clean. Needs root.

mod copies;
mod databases;
pub(super) mod shown;
mod verify;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::fuse_volume::mounted::{FileSystem, Kind};
use super::fuse_volume::work;
use super::{Claims, Lab};
use crate::image::{self, MIB};
use crate::run;
use shown::{By, Shown};

/// Enough for PostMark with 20,000 transactions and for a clone of this repository.
const IMAGE_MIB: u64 = 4096;

/// Less than what most of the works write, so that the cache has to let go of things.
const OPTIONS: &str = "--memory 96MiB --allow-other";

/// Why this cannot be tried here, if so.
pub(super) fn missing(programs: &[&str]) -> Option<String> {
    if !run::is_root() {
        return Some("needs root".into());
    }
    if !Path::new("/dev/fuse").exists() {
        return Some("no /dev/fuse".into());
    }
    let absent = programs.iter().find(|program| !run::installed(program));
    absent.map(|program| format!("no {program}"))
}

/// A file system with the folder that is mounted once more, and others beside it.
struct World<'a> {
    lab: &'a Lab,
    image: PathBuf,
    file_system: FileSystem,
}

impl<'a> World<'a> {
    fn new(lab: &'a Lab) -> Result<Self> {
        let image = image::sparse(&lab.file("mount.img"), IMAGE_MIB * MIB)?;
        let mut file_system = FileSystem::attach(lab, &image, Kind::Ext4)?;
        file_system.make()?;
        file_system.mount()?;
        let world = World { lab, image, file_system };
        world.folder("source")?;
        Ok(world)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.file_system.point().join(name)
    }

    /// A new folder beside SOURCE.
    fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::create_dir(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(path)
    }

    /// Has `work` done in an empty folder of a mount; SOURCE must then be what the mount was.
    fn mounted(&self, name: &str, work: impl FnOnce(&Path) -> Result<String>) -> Result<String> {
        let source = self.path("source");
        let shown = Shown::start(self.lab, By::Larder(OPTIONS), &source)?;
        let place = shown.point().join(name);
        std::fs::create_dir(&place).context("make a folder in the mount")?;
        let figure = work(&place)?;
        let before = work::listing(&place)?;
        shown.stop_clean()?;
        let after = work::listing(&source.join(name))?;
        ensure!(before == after, "SOURCE has other files than the mount had");
        std::fs::remove_dir_all(source.join(name)).context("remove what was made")?;
        Ok(figure)
    }

    fn end(mut self) -> Result<String> {
        self.file_system.unmount()?;
        self.file_system.check()?;
        self.file_system.detach()?;
        std::fs::remove_file(&self.image).context("remove the image")?;
        Ok("clean".into())
    }
}

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let programs = [
        "losetup",
        "mkfs.ext4",
        "sqlite3",
        "rsync",
        "tar",
        "setfacl",
        "setfattr",
        "git",
        "postmark",
        "fio",
    ];
    if let Some(reason) = missing(&programs) {
        claims.skip("programs on a mounted folder", reason);
        return Ok(());
    }
    let _rings = crate::rings::on()?;
    let world = World::new(lab)?;
    databases::run(&world, claims);
    copies::run(&world, claims)?;
    claims.tried("git: a clone of this repository, fsck, gc, a commit; status clean", || {
        world.mounted("git", |place| clone(lab, place))
    });
    claims.tried("cargo builds a crate and runs it", || {
        world.mounted("cargo", |place| work::build(place).map(|()| "it says 19900".into()))
    });
    claims.tried("Debian's PostMark counts what it should", || {
        world.mounted("postmark", |place| work::postmark(place, lab.options.quick))
    });
    verify::run(&world, claims);
    claims.tried("e2fsck on SOURCE's file system", || world.end());
    Ok(())
}

/// Clones this repository with all its objects copied, and works in the clone.
fn clone(lab: &Lab, place: &Path) -> Result<String> {
    let origin = lab.root.to_string_lossy().into_owned();
    work::git(place, &["clone", "-q", "--no-local", &origin, "clone"])?;
    let clone = place.join("clone");
    work::git(&clone, &["fsck", "--strict", "--full"])?;
    std::fs::write(clone.join("README.md"), "changed\n").context("change a file")?;
    work::git(&clone, &["commit", "-q", "-a", "-m", "changed"])?;
    work::git(&clone, &["gc", "-q", "--prune=now"])?;
    work::git(&clone, &["fsck", "--strict", "--full"])?;
    let status = work::git(&clone, &["status", "--porcelain"])?;
    ensure!(status.trim().is_empty(), "git sees changes that nobody made:\n{status}");
    let commits = work::git(&clone, &["rev-list", "--count", "HEAD"])?;
    Ok(format!("{} commits", commits.trim()))
}
