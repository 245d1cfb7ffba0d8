//! `larder mount` with common programs: databases, copies with all attributes of files, a
//! repository, a build, PostMark, fio that verifies every byte.
//!
//! SOURCE is a directory on a separate ext4 on a loop device. After each workload the mount is
//! ended and SOURCE must equal the former mount; at the end the file system must be clean. Requires
//! root.

mod copies;
mod databases;
pub(super) mod fuse;
pub(super) mod work;

use super::prelude::*;
use crate::disk::FileSystem;
use fuse::{FuseMount, Program};

/// Large enough for PostMark with 20,000 transactions and for a clone of this repository.
const IMAGE_MIB: u64 = 4096;
/// Less memory than most workloads write, so that the cache has to evict.
const LARDER: Program =
    Program { name: "larder", line: "LARDER mount --control none --memory 96MiB --allow-other" };
#[rustfmt::skip]
const NEEDS: [&str; 10] = [
    "losetup", "mkfs.ext4", "sqlite3", "rsync", "tar", "setfacl", "setfattr", "git",
    "postmark", "fio",
];

/// Runs of fio: name and options.
const FIO_RUNS: [(&str, &str); 7] = [
    ("psync", "--ioengine=psync --rw=randrw --bsrange=512-64k --bs_unaligned=1"),
    ("psync, direct", "--ioengine=psync --direct=1 --rw=randrw --bsrange=4k-128k"),
    ("psync, O_DSYNC", "--ioengine=psync --sync=dsync --rw=randrw --bsrange=4k-64k --io_size=4m"),
    (
        "libaio, direct, depth 16",
        "--ioengine=libaio --direct=1 --iodepth=16 --rw=randrw --bsrange=4k-128k",
    ),
    ("io_uring, depth 16", "--ioengine=io_uring --iodepth=16 --rw=randrw --bsrange=4k-128k"),
    ("mmap", "--ioengine=mmap --rw=randrw --bs=4k --fsync=64"),
    ("libaio, whole files", "--ioengine=libaio --iodepth=8 --rw=write --bs=1m"),
];

/// A file system with SOURCE and other directories.
struct SourceFileSystem<'a> {
    env: &'a Env,
    file_system: FileSystem,
}

impl SourceFileSystem<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.file_system.point().join(name)
    }

    /// Creates a directory next to SOURCE.
    fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::create_dir(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(path)
    }

    /// Runs `work` in an empty directory of a mount; SOURCE must then equal the former mount.
    fn on_mount(&self, name: &str, work: impl FnOnce(&Path) -> Result<String>) -> Result<String> {
        let source = self.path("source");
        let mount = FuseMount::start(self.env, LARDER, &source)?;
        let place = mount.point.join(name);
        std::fs::create_dir(&place).context("make a directory in the mount")?;
        let figure = work(&place)?;
        let before = work::listing(&place)?;
        mount.stop_clean()?;
        let after = work::listing(&source.join(name))?;
        ensure!(before == after, "SOURCE has other files than the mount had");
        std::fs::remove_dir_all(source.join(name)).context("remove what was made")?;
        Ok(figure)
    }
}

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(run::unmet_requirement(&NEEDS))?;
    let _rings = crate::rings::on()?;
    let image = image::create_sparse(&env.file("mount.img"), IMAGE_MIB * MIB)?;
    let world = SourceFileSystem { env, file_system: FileSystem::new(env.dir(), &image)? };
    world.directory("source")?;
    databases::run(&world, claims);
    copies::run(&world, claims)?;
    claims.check("git: a clone of this repository, fsck, gc, a commit; status clean", || {
        world.on_mount("git", |place| work::clone(&env.root, place, "README.md"))
    });
    claims.check("cargo builds a crate and runs it", || world.on_mount("cargo", work::build));
    claims.check("Debian's PostMark counts what it should", || {
        world.on_mount("postmark", |place| work::postmark(place, env.options.quick))
    });
    for (name, options) in FIO_RUNS {
        claims.check(format!("fio --verify, four jobs: {name}"), || {
            world.on_mount("fio", |place| verified(env, place, options))
        });
    }
    claims.check("e2fsck on SOURCE's file system", || {
        world.file_system.end().map(|()| "clean".into())
    });
    Ok(())
}

fn verified(env: &Env, place: &Path, options: &str) -> Result<String> {
    // In the long form, the files exceed the cache. By default fio writes its state to the current
    // directory.
    let (size, seed) = (env.choose("48m", "8m"), env.options.seed.to_string());
    let verify = "--verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0".split(' ');
    let (options, args) = (options.split(' '), "--numjobs=4 --randrepeat=1".split(' '));
    let mut fio = cmd!(
        300,
        "fio --name=job {args...} {verify...} --size={size} --directory={place} --randseed={seed}
         {options...}"
    );
    Ok(fio::run_command(&mut fio)?.summary())
}
