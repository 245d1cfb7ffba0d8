//! The operations of the members of arrays: those of Linux md, recorded in the guest, against those
//! of the model of `--store`. The script `xtask/guest/md-members` makes the records; a test of the
//! lab compares them, and `prove advise` those of patterns.

use super::guest::GuestScript;
use super::prelude::*;

/// The tests that read the records.
const TESTS: &str = "under_md";

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(missing_program(&["mdadm", "losetup", "python3"]))?;
    let out = env.file("guest");
    std::fs::create_dir(&out).context("make a directory")?;
    let script = GuestScript {
        name: "md-members",
        subject: "md in the guest",
        ends: "the guest records all arrays",
        options: Vec::new(),
        out: &out,
        limit_s: 1200,
    };
    if !script.run(env, claims)? {
        return Ok(());
    }
    for record in ["md-members.json", "md-rebuilds.json", "md-patterns.json"] {
        let kept = env.root.join("bench-runs").join(record);
        std::fs::copy(out.join(record), kept).context("keep the record")?;
    }
    claims.check(
        "the model has the same sectors on each member, and no more operations; rebuilds too",
        || {
            let root = &env.root;
            stdout_of(cmd!(
                "cargo test --quiet --manifest-path {root}/Cargo.toml --package larder-lab
                        --lib {TESTS}"
            ))?;
            Ok(String::new())
        },
    );
    Ok(())
}
