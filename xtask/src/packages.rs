//! The programs that the checks need, from Debian packages.

use std::process::Command;

use anyhow::Result;

use crate::run;

/// A parser of OpenMetrics by others, for the tests of `/metrics`.
const OPENMETRICS_PARSER: &str =
    "/usr/lib/python3/dist-packages/prometheus_client/openmetrics/parser.py";

/// Program, or file by its whole path, and the package that brings it.
const NEEDS: &[(&str, &str)] = &[
    ("nbdinfo", "libnbd-bin"),
    ("nbdcopy", "libnbd-bin"),
    ("nbdkit", "nbdkit"),
    ("nbd-client", "nbd-client"),
    ("qemu-img", "qemu-utils"),
    ("qemu-nbd", "qemu-utils"),
    ("fio", "fio"),
    ("postmark", "postmark"),
    ("strace", "strace"),
    ("mpirun", "openmpi-bin"),
    ("ip", "iproute2"),
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
    ("smbd", "samba"),
    ("smbnetfs", "smbnetfs"),
    (OPENMETRICS_PARSER, "python3-prometheus-client"),
];

/// Programs that are not here.
fn missing() -> Vec<&'static str> {
    let absent = |(program, _): &&(&'static str, &str)| !run::installed(program);
    NEEDS.iter().filter(absent).map(|(program, _)| *program).collect()
}

/// Installs what is missing where that is possible; an error names what stays missing.
pub(crate) fn install() -> Result<()> {
    let absent = missing();
    if absent.is_empty() {
        println!("nothing to install");
        return Ok(());
    }
    let mut packages: Vec<&str> = NEEDS
        .iter()
        .filter(|(program, _)| absent.contains(program))
        .map(|(_, package)| *package)
        .collect();
    packages.dedup();
    if run::is_root() && run::installed("apt-get") {
        let apt = || {
            let mut command = Command::new("apt-get");
            command.env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet");
            command
        };
        run::show(apt().arg("update"))?;
        let options = ["install", "--yes", "--no-install-recommends"];
        run::show(apt().args(options).args(&packages))?;
    } else {
        println!("cannot install {}: needs root and apt-get", packages.join(" "));
    }
    let still = missing();
    anyhow::ensure!(
        still.is_empty(),
        "not here: {}; on Debian: apt-get install {}",
        still.join(", "),
        packages.join(" ")
    );
    Ok(())
}
