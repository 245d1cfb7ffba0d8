//! fio, which writes what it can recognise and looks at every byte: several engines, through the
//! kernel's pages and past them, one file for all jobs or one for each.

use std::path::Path;

use anyhow::Result;

use super::World;
use crate::prove::Claims;
use crate::{fio, run};

/// Name, and the options that make it.
const RUNS: &[(&str, &[&str])] = &[
    ("psync", &["--ioengine=psync", "--rw=randrw", "--bsrange=512-64k", "--bs_unaligned=1"]),
    ("psync, direct", &["--ioengine=psync", "--direct=1", "--rw=randrw", "--bsrange=4k-128k"]),
    (
        "psync, O_DSYNC",
        &["--ioengine=psync", "--sync=dsync", "--rw=randrw", "--bsrange=4k-64k", "--io_size=4m"],
    ),
    (
        "libaio, direct, depth 16",
        &["--ioengine=libaio", "--direct=1", "--iodepth=16", "--rw=randrw", "--bsrange=4k-128k"],
    ),
    (
        "io_uring, depth 16",
        &["--ioengine=io_uring", "--iodepth=16", "--rw=randrw", "--bsrange=4k-128k"],
    ),
    ("mmap", &["--ioengine=mmap", "--rw=randrw", "--bs=4k", "--fsync=64"]),
    ("libaio, whole files", &["--ioengine=libaio", "--iodepth=8", "--rw=write", "--bs=1m"]),
];

pub(super) fn run(world: &World<'_>, claims: &mut Claims) {
    for (name, options) in RUNS {
        claims.tried(format!("fio --verify, four jobs: {name}"), || {
            world.mounted("fio", |place| verified(world, place, options))
        });
    }
}

fn verified(world: &World<'_>, place: &Path, options: &[&str]) -> Result<String> {
    let mut fio = run::client(300, "fio");
    fio.args(["--name=job", "--numjobs=4", "--group_reporting", "--output-format=json"]);
    fio.args(["--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--randrepeat=1"]);
    // What it would go on with after a stop, it leaves in the folder that it is called in.
    fio.arg("--verify_state_save=0");
    // More than the cache holds, in the long form.
    fio.arg(world.lab.either("--size=48m", "--size=8m"));
    fio.arg(format!("--directory={}", place.display()));
    fio.arg(format!("--randseed={}", world.lab.options.seed)).args(options);
    Ok(fio::parse(&run::text(&mut fio)?)?.in_words())
}
