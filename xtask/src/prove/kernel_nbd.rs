//! The kernel's NBD client on `larder serve`: file systems, verified I/O, a growing volume, a
//! server that hangs and a server that is killed. The script `xtask/guest/kernel-nbd` runs the
//! steps in the guest and prints the claims.
//!
//! In the guest, dm-log-writes records the server's writes to a store with ext4 on it. [`records`]
//! replays and checks the record on the host.

mod records;
mod replay;

use super::prelude::*;
use crate::guest::CANNOT_START;

/// The size of the first disk of the guest, as the script expects it.
const DISK_MIB: u64 = 384;

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let statement = "the kernel's NBD client";
    #[rustfmt::skip]
    let programs = [
        "nbd-client", "mkfs.ext4", "e2fsck", "debugfs", "resize2fs", "fio", "jq", "dmsetup",
    ];
    require(missing_program(&programs))?;
    let mut disks = vec![image::create_sparse(&env.file("guest.disk"), DISK_MIB * MIB)?];
    disks.extend(records::disks(env)?);
    // Copies the files, since the guest has no access to the directory for temporary files, which
    // may contain the source tree.
    let (guest, out) = (env.root.join("xtask/guest"), env.file("guest"));
    std::fs::create_dir(&out).context("make a directory")?;
    let nbdtab = env.root.join("packaging/nbdtab");
    for (from, to) in
        [(&env.larder, "larder"), (&nbdtab, "nbdtab"), (&guest.join("kernel-nbd"), "kernel-nbd")]
    {
        std::fs::copy(from, out.join(to)).with_context(|| format!("copy {to}"))?;
    }
    let begun = Instant::now();
    let factor = run::time_factor()?;
    let limit_s = (1200 * factor).to_string();
    let disks = disks.into_iter().flat_map(|disk| ["--disk".into(), disk]);
    // Copies them again, to a directory from which programs can run.
    let command = format!("cp /out/* /tmp && FACTOR={factor} /tmp/kernel-nbd");
    // The guest ends with this process, even after kill -9.
    let ended = capture(cmd!(
        "setpriv --pdeathsig TERM {guest}/run --timeout {limit_s} {disks...} --out {out} {command}"
    ))?;
    outln!("{}", ended.stderr);
    if ended.code == Some(CANNOT_START) {
        claims.skip(statement, run::tail(&ended.stderr).lines().last().unwrap_or_default());
        return Ok(());
    }
    let (code, seconds) = (ended.code.unwrap_or(-1), begun.elapsed().as_secs());
    claims.add(
        "the guest runs all steps",
        format!("exit code {code}, {seconds} s with an emulated processor"),
        ended.ok(),
    );
    claims.collect(&ended.stdout)?;
    records::check(env, claims);
    Ok(())
}
