//! File systems on cached volumes: `larder serve --fuse`, a loop device with direct I/O, and ext4,
//! xfs and btrfs on it.
//!
//! Work of several kinds, then the file system is checked, mounted again and compared; the server
//! is killed in the middle of writes and what had been fsynced is looked for; and memory runs out
//! while a file system is written, which must not make anything wait for ever. Needs root.

mod kill;
pub(super) mod mounted;
mod pressure;
pub(super) mod work;

use anyhow::{Context as _, Result, ensure};
use std::path::Path;

use super::{Claims, Lab};
use crate::image::{self, MIB};
use crate::run;
use mounted::{FileSystem, IMAGE_MIB, Kind, Setup};

/// Why this cannot be tried here, if so.
fn missing() -> Option<&'static str> {
    if !run::is_root() {
        return Some("needs root");
    }
    if !Path::new("/dev/fuse").exists() {
        return Some("no /dev/fuse");
    }
    let absent = ["losetup", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "postmark", "git"]
        .into_iter()
        .find(|program| !run::installed(program));
    absent.map(|_| "losetup, a mkfs, postmark or git is missing")
}

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    if let Some(reason) = missing() {
        claims.skip("file systems on cached volumes", reason);
        return Ok(());
    }
    let _rings = crate::rings::on()?;
    for kind in Kind::ALL {
        let name = kind.name();
        claims.tried(format!("{name}: postmark, git, cargo; fsck clean; the same again"), || {
            whole_life(lab, kind)
        });
        claims.tried(format!("{name}: kill -9 in the middle of fsynced writes"), || {
            kill::rounds(lab, kind, lab.either(5, 2))
        });
    }
    for round in 1..=lab.either(3, 1) {
        claims.tried(
            format!("ext4 is written while memory leaks away, {round}: nothing waits for ever"),
            || pressure::leak(lab),
        );
    }
    claims.tried("swap on a volume's loop device, used until memory is short", || {
        pressure::swap(lab)
    });
    Ok(())
}

/// Everything that happens to a file system on a good day.
fn whole_life(lab: &Lab, kind: Kind) -> Result<String> {
    let image = image::sparse(&lab.file("volume.img"), IMAGE_MIB * MIB)?;
    let setup = Setup { lab, image: &image, options: "--memory 160MiB" };
    let served = setup.serve()?;
    let mut file_system = FileSystem::attach(lab, &served.file(), kind)?;
    file_system.make()?;
    file_system.mount()?;
    let rate = work::postmark(file_system.point(), lab.options.quick)?;
    work::repository(lab, file_system.point())?;
    work::build(file_system.point())?;
    let before = work::listing(file_system.point())?;
    ensure!(before.lines().count() > 30, "there is hardly anything to compare");
    file_system.unmount()?;
    file_system.check()?;
    file_system.mount()?;
    let after = work::listing(file_system.point())?;
    ensure!(before == after, "the files are other ones after mounting again");
    file_system.unmount()?;
    file_system.detach()?;
    served.stop_clean()?;
    // The image alone, without any cache.
    let mut bare = FileSystem::attach(lab, &image, kind)?;
    bare.check()?;
    bare.mount()?;
    let bare_listing = work::listing(bare.point())?;
    bare.unmount()?;
    bare.detach()?;
    ensure!(before == bare_listing, "the image has other files than the volume had");
    std::fs::remove_file(&image).context("remove the image")?;
    let files = before.lines().count();
    Ok(format!("{files} files the same, PostMark {rate}"))
}
