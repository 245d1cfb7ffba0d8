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
    ("jq", "jq"),
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
    ("openssl", "openssl"),
    ("smbd", "samba"),
    ("smbnetfs", "smbnetfs"),
    (OPENMETRICS_PARSER, "python3-prometheus-client"),
];

/// Installs what is missing where that is possible; an error names what stays missing.
pub(crate) fn install() -> Result<()> {
    install_these(NEEDS)
}

/// The same for programs and packages that few need.
pub(crate) fn install_these(needs: &[(&str, &str)]) -> Result<()> {
    let missing = || -> Vec<(&str, &str)> {
        needs.iter().copied().filter(|(program, _)| !run::installed(program)).collect()
    };
    let absent = missing();
    if absent.is_empty() {
        println!("nothing to install");
        return Ok(());
    }
    let mut packages: Vec<&str> = absent.iter().map(|(_, package)| *package).collect();
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
    let still: Vec<&str> = missing().iter().map(|(program, _)| *program).collect();
    anyhow::ensure!(
        still.is_empty(),
        "not here: {}; on Debian: apt-get install {}",
        still.join(", "),
        packages.join(" ")
    );
    Ok(())
}
