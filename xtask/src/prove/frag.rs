//! `larder frag`: extents beside filefrag, free space beside e2freefrag and `xfs_db`, the predicted
//! cost beside measured reads of a disk with a limit, and a tree of ten million files.

mod cost;
mod million;
mod peers;

use super::prelude::*;
use crate::disk::{Disk, FileSystem, Kind};

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(Disk::unavailable_reason())?;
    require(missing_program(&["e2freefrag", "filefrag", "xfs_db", "xfs_io"]))?;
    for kind in Kind::ALL {
        peers::extents(env, claims, kind)?;
    }
    peers::free_space(env, claims)?;
    cost::run(env, claims)?;
    million::run(env, claims)
}

/// Makes and mounts a file system of this length; the caller names its directory.
fn file_system(env: &Env, name: &str, kind: Kind, bytes: u64) -> Result<FileSystem> {
    let directory = env.file(name);
    std::fs::create_dir_all(&directory).context("make a directory")?;
    let image = image::create_sparse(&directory.join("frag.img"), bytes)?;
    let file_system = FileSystem::attach(&directory, &image, kind)?;
    file_system.make()?;
    if kind == Kind::Ext4 {
        // Small files with their metadata, as btrfs does.
        let device = file_system.device();
        stdout_of(cmd!(60, "mkfs.ext4 -q -F -O inline_data {device}"))?;
    }
    file_system.mount()?;
    Ok(file_system)
}
