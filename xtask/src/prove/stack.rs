//! The devices between a file and its disks, as `larder balance` finds them: partitions, md,
//! dm-crypt, LVM and loop devices of a kernel. The script `xtask/guest/stack` makes them in the
//! guest.

use super::guest::GuestScript;
use super::prelude::*;

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(missing_program(&["dmsetup", "losetup", "lvcreate", "mdadm", "python3", "sfdisk"]))?;
    let out = env.file("guest");
    std::fs::create_dir(&out).context("make a directory")?;
    std::fs::copy(&env.larder, out.join("larder")).context("copy larder")?;
    let script = GuestScript {
        name: "stack",
        subject: "devices in the guest",
        ends: "the guest makes and finds all devices",
        options: Vec::new(),
        limit_s: 600,
        out: &out,
    };
    script.run(env, claims).map(drop)
}
