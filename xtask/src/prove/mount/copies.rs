//! Copies in both directions, by rsync and by tar, of files with all kinds of attributes.

use std::os::unix::net::UnixListener;

use super::SourceFileSystem;
use crate::disk::WORK_MAX_S;
use crate::prove::prelude::*;

const SCRIPT: &str = include_str!("copies.sh");

pub(super) fn run(world: &SourceFileSystem<'_>, claims: &mut Claims) -> Result<()> {
    let (tree, back) = (world.path("origin"), world.path("back"));
    stdout_of(cmd!(WORK_MAX_S, "bash -c {SCRIPT} copies make {tree}"))?;
    // tar skips sockets, rsync copies them.
    drop(UnixListener::bind(tree.join("socket")).context("make a socket")?);
    for (statement, copy) in [("rsync -aHAX", "by_rsync"), ("tar", "by_tar")] {
        claims.check(format!("{statement} there and back: no difference"), || {
            world.on_mount("copy", |place| {
                let arguments = [&tree, &place.join("tree"), &back];
                stdout_of(cmd!(
                    WORK_MAX_S,
                    "bash -c {SCRIPT} copies compare {copy} {arguments...}"
                ))?;
                Ok("links, holes, owners, attributes, ACLs, special files, times".into())
            })
        });
    }
    std::fs::remove_dir_all(&tree).context("remove the tree")
}
