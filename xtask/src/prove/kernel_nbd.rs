//! The kernel's NBD client on `larder serve`: file systems, verified I/O, a growing volume, a
//! server that hangs and a server that is killed. The script `xtask/guest/kernel-nbd` runs the
//! steps in the guest and prints the claims.
//!
//! In the guest, dm-log-writes records the server's writes to a store with ext4 on it. [`records`]
//! replays and checks the record on the host.

mod records;
mod replay;

use super::guest::GuestScript;
use super::prelude::*;

/// The size of the first disk of the guest, as the script expects it.
const DISK_MIB: u64 = 384;

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    #[rustfmt::skip]
    let programs = [
        "nbd-client", "mkfs.ext4", "e2fsck", "debugfs", "resize2fs", "fio", "jq", "dmsetup",
    ];
    require(missing_program(&programs))?;
    let mut disks = vec![image::create_sparse(&env.file("guest.disk"), DISK_MIB * MIB)?];
    disks.extend(records::disks(env)?);
    // The guest has no access to the directory for temporary files, which may contain the source
    // tree.
    let out = env.file("guest");
    std::fs::create_dir(&out).context("make a directory")?;
    let nbdtab = env.root.join("packaging/nbdtab");
    for (from, to) in [(&env.larder, "larder"), (&nbdtab, "nbdtab")] {
        std::fs::copy(from, out.join(to)).with_context(|| format!("copy {to}"))?;
    }
    let options = disks.into_iter().flat_map(|disk| ["--disk".into(), disk.into()]).collect();
    let script = GuestScript {
        name: "kernel-nbd",
        subject: "the kernel's NBD client",
        ends: "the guest runs all steps",
        options,
        out: &out,
        limit_s: 1200,
    };
    if !script.run(env, claims)? {
        return Ok(());
    }
    records::check(env, claims);
    Ok(())
}
