//! The kernel's NBD client against `larder serve`: file systems, verified I/O, a growing volume, a
//! server that hangs and a server that is killed. The script `xtask/guest/kernel-nbd` runs the
//! steps in the guest and prints the claims.
//!
//! In the guest dm-log-writes records the writes of the server to a store with ext4 on it. The
//! record is replayed here: at every flush of the store the file system is intact after journal
//! recovery, and it contains every file that was fsynced before.

mod replay;

use super::prelude::*;
use crate::guest::CANNOT_START;

/// Size of the disk of the guest, as the script expects it.
const DISK_MIB: u64 = 384;
/// Size of the disk whose writes are recorded, and of the disk with the record.
const RECORDED_MIB: u64 = 48;
const LOG_MIB: u64 = 768;
/// Copies the files in `/out` to a directory from which programs can run.
const COMMAND: &str = "cp /out/* /tmp && /tmp/kernel-nbd";

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let what = "the kernel's NBD client";
    #[rustfmt::skip]
    let programs = [
        "nbd-client", "mkfs.ext4", "e2fsck", "debugfs", "resize2fs", "fio", "jq", "dmsetup",
    ];
    need(absent(&programs))?;
    let disk = image::sparse(&env.file("guest.disk"), DISK_MIB * MIB)?;
    // Copied, since the guest does not see the directory for temporary files, which may contain the
    // source tree.
    let recorded = image::sparse(&env.file("recorded.disk"), RECORDED_MIB * MIB)?;
    let log = image::sparse(&env.file("log.disk"), LOG_MIB * MIB)?;
    let (guest, out) = (env.root.join("xtask/guest"), env.file("guest"));
    std::fs::create_dir(&out).context("make a directory")?;
    let nbdtab = env.root.join("packaging/nbdtab");
    for (from, to) in
        [(&env.larder, "larder"), (&nbdtab, "nbdtab"), (&guest.join("kernel-nbd"), "kernel-nbd")]
    {
        std::fs::copy(from, out.join(to)).with_context(|| format!("copy {to}"))?;
    }
    let begun = Instant::now();
    // The guest ends with this process, even after kill -9.
    let ended = keep(cmd!(
        "setpriv --pdeathsig TERM {guest}/run --timeout 900 --disk {disk} --disk {recorded}
         --disk {log} --out {out} {COMMAND}"
    ))?;
    say!("{}", ended.stderr);
    if ended.code == Some(CANNOT_START) {
        claims.skip(what, run::tail(&ended.stderr).lines().last().unwrap_or_default());
        return Ok(());
    }
    let (code, seconds) = (ended.code.unwrap_or(-1), begun.elapsed().as_secs());
    claims.add(
        "the guest runs all steps",
        format!("exit code {code}, {seconds} s with an emulated processor"),
        ended.ok(),
    );
    claims.collect(&ended.stdout)?;
    claims.tried("ext4, its store replayed to every flush: e2fsck, and the fsynced files", || {
        replayed(env, &log)
    });
    Ok(())
}

/// Replays the log, and checks the file system at every flush; what came out.
fn replayed(env: &Env, log: &Path) -> Result<String> {
    let image = image::sparse(&env.file("replayed.disk"), RECORDED_MIB * MIB)?;
    let copy = env.file("checked.disk");
    let (mut is_made, mut is_checked, mut flushes, mut files) = (false, false, 0_u64, Vec::new());
    let entries = replay::replay(log, &image, |point| {
        match point {
            replay::Point::Mark(text) if text == "made" => is_made = true,
            replay::Point::Mark(text) => {
                files.push(text.clone());
                is_checked = false;
            }
            replay::Point::Flushed => (flushes, is_checked) = (flushes + 1, false),
        }
        if !is_made || is_checked {
            return Ok(());
        }
        is_checked = true;
        text(cmd!("cp --sparse=always {image} {copy}"))?;
        // The journal is replayed and orphans are removed (1); anything else is a damage.
        let fixed = keep(cmd!("e2fsck -f -p {copy}"))?;
        let at = format!("at flush {flushes}, with {} files fsynced", files.len());
        ensure!(fixed.code.is_some_and(|code| code <= 1), "{at}: {}", run::tail(&fixed.stdout));
        text(cmd!("e2fsck -f -n {copy}")).with_context(|| at.clone())?;
        // The last files of the list are those that a lost write would take.
        for file in files.iter().rev().take(4) {
            let (name, sum) = file.split_once(':').context("a mark is NAME:SHA256")?;
            let script = "debugfs -R \"cat /$1\" \"$0\" 2>/dev/null | sha256sum | cut -d ' ' -f 1";
            let found = text(cmd!("sh -c {script} {copy} {name}"))?;
            ensure!(found.trim() == sum, "{at}: {name} is not what was fsynced");
        }
        Ok(())
    })?;
    ensure!(is_made && !files.is_empty(), "nothing was recorded");
    Ok(format!("{entries} writes, {flushes} flushes, {} fsynced files", files.len()))
}
