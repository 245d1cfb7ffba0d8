//! The programs that the checks need, from Debian packages.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::run::{self, cmd};

/// An independent parser of OpenMetrics, for the tests of `/metrics`.
const OPENMETRICS_PARSER: &str =
    "/usr/lib/python3/dist-packages/prometheus_client/openmetrics/parser.py";

/// A program, or a file by its full path, and the package that contains it.
const NEEDS: &[(&str, &str)] = &[
    ("nbdinfo", "libnbd-bin"),
    ("nbdcopy", "libnbd-bin"),
    ("nbdfuse", "libnbd-bin"),
    ("nbdkit", "nbdkit"),
    ("nbd-client", "nbd-client"),
    ("qemu-img", "qemu-utils"),
    ("qemu-nbd", "qemu-utils"),
    ("fio", "fio"),
    ("iostat", "sysstat"),
    ("jq", "jq"),
    ("postmark", "postmark"),
    ("strace", "strace"),
    ("time", "time"),
    ("mpirun", "openmpi-bin"),
    ("ip", "iproute2"),
    ("dmsetup", "dmsetup"),
    ("mdadm", "mdadm"),
    ("lvcreate", "lvm2"),
    ("sfdisk", "fdisk"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("bindfs", "bindfs"),
    ("mergerfs", "mergerfs"),
    ("rclone", "rclone"),
    ("sqlite3", "sqlite3"),
    ("rsync", "rsync"),
    ("setfacl", "acl"),
    ("setfattr", "attr"),
    ("fusermount3", "fuse3"),
    ("openssl", "openssl"),
    ("smbd", "samba"),
    ("smbnetfs", "smbnetfs"),
    (OPENMETRICS_PARSER, "python3-prometheus-client"),
];

/// Installs missing programs where possible; an error lists those that are still missing.
pub(crate) fn install() -> Result<()> {
    install_these(NEEDS)
}

/// Installs programs by their packages; fails if some are still missing.
pub(crate) fn install_these(needs: &[(&str, &str)]) -> Result<()> {
    let missing = || -> (Vec<&str>, Vec<&str>) {
        needs.iter().copied().filter(|(program, _)| !run::installed(program)).unzip()
    };
    let (absent, mut packages) = missing();
    if absent.is_empty() {
        println!("nothing to install");
        return Ok(());
    }
    packages.dedup();
    if let Some(reason) = run::unmet_requirement(&["apt-get"]) {
        println!("cannot install {}: {reason}", packages.join(" "));
    } else {
        let apt = |mut words: Command| run::show(words.env("DEBIAN_FRONTEND", "noninteractive"));
        apt(cmd!("apt-get --quiet update"))?;
        let packages = &packages;
        // Another run of apt may hold the lock.
        let arguments = ["--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"];
        apt(cmd!("apt-get --quiet install {arguments...} {packages...}"))?;
    }
    let (still_missing, packages) = (missing().0.join(", "), packages.join(" "));
    ensure!(
        still_missing.is_empty(),
        "still missing: {still_missing} (on Debian: apt-get install {packages})"
    );
    Ok(())
}
