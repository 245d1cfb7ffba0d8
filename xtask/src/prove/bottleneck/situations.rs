//! The six situations: a disk, the loads on it, and the right answer.

use super::super::prelude::*;
use crate::cleanup::Cleanup;
use crate::daemon::{Daemon, poll_until};
use crate::disk::Disk;

const IMAGE_MIB: u64 = 512;
/// Unmounts `$1`, which ends nbdfuse.
const UNMOUNT: &str = "umount \"$1\"";
/// Models of healthy disks.
const DISKS: [&str; 4] = ["scsi-1999", "laptop-7200", "disk", "iops:150,depth:1"];

/// A situation.
pub(in crate::prove) struct Situation {
    pub(in crate::prove) number: u64,
    pub(in crate::prove) name: &'static str,
    /// The right answer.
    pub(in crate::prove) kind: &'static str,
    pub(in crate::prove) make: fn(&mut Rng) -> Provoked,
}

/// A situation with its parameters.
pub(in crate::prove) struct Provoked {
    /// The model of the disk.
    pub(in crate::prove) model: String,
    /// The model of the disk as it should be.
    pub(in crate::prove) healthy: String,
    pub(in crate::prove) loads: Vec<Load>,
    /// Memory of the processes of the load.
    pub(in crate::prove) memory_mib: Option<u64>,
    pub(in crate::prove) warm_up_s: u64,
}

/// A process.
pub(in crate::prove) enum Load {
    /// Options of fio.
    Fio(Vec<String>),
    /// A shell that computes.
    Compute,
}

pub(in crate::prove) const SITUATIONS: [Situation; 6] = [
    Situation { number: 1, name: "slow disk", kind: "slow-disk", make: slow_disk },
    Situation { number: 2, name: "saturated disk", kind: "saturated-disk", make: saturated },
    Situation { number: 3, name: "queue from one writer", kind: "one-writer", make: one_writer },
    Situation { number: 4, name: "processor-bound", kind: "processor", make: processor },
    Situation { number: 5, name: "cache too small", kind: "small-cache", make: small_cache },
    Situation { number: 6, name: "nothing wrong", kind: "nothing", make: nothing },
];

/// Returns a process of fio with these options.
pub(in crate::prove) fn fio(options: &[&str]) -> Load {
    Load::Fio(options.iter().map(|it| (*it).to_owned()).collect())
}

fn on(model: &str, loads: Vec<Load>) -> Provoked {
    let model = model.to_owned();
    Provoked { healthy: model.clone(), model, loads, memory_mib: None, warm_up_s: 2 }
}

fn any(rng: &mut Rng, of: &[&'static str]) -> &'static str {
    rng.choice(of).copied().unwrap_or_default()
}

/// A disk with a fraction of its rate, and one or two programs that read.
fn slow_disk(rng: &mut Rng) -> Provoked {
    let (healthy, times) = (rng.u32(100..250), rng.u32(3..9));
    let blocks = any(rng, &["4k", "8k", "16k"]);
    let mix = any(rng, &["100", "90", "70"]);
    let load = || {
        fio(&[
            "--rw=randrw",
            "--direct=1",
            &format!("--bs={blocks}"),
            &format!("--rwmixread={mix}"),
        ])
    };
    let loads = (0..rng.usize(1..3)).map(|_| load()).collect();
    let model = format!("iops:{},depth:1", healthy / times);
    Provoked { healthy: format!("iops:{healthy},depth:1"), ..on(&model, loads) }
}

/// Several programs, each with more requests than the disk can serve.
fn saturated(rng: &mut Rng) -> Provoked {
    let disk = any(rng, &DISKS);
    let load = |rng: &mut Rng| {
        let depth = rng.u32(2..9);
        let engine = any(rng, &["libaio", "io_uring"]);
        fio(&[
            any(rng, &["--rw=randread", "--rw=randrw", "--rw=read"]),
            "--direct=1",
            &format!("--bs={}", any(rng, &["4k", "8k", "64k"])),
            &format!("--ioengine={engine}"),
            &format!("--iodepth={depth}"),
        ])
    };
    let loads = (0..rng.usize(2..5)).map(|_| load(rng)).collect();
    on(disk, loads)
}

/// A program that writes much, directly or through the cache, beside one that reads a little.
fn one_writer(rng: &mut Rng) -> Provoked {
    let disk = any(rng, &DISKS);
    let blocks = format!("--bs={}", any(rng, &["4k", "16k", "64k"]));
    let writer = if rng.bool() {
        let depth = format!("--iodepth={}", rng.u32(8..33));
        fio(&["--rw=randwrite", "--direct=1", "--ioengine=libaio", &blocks, &depth])
    } else {
        fio(&["--rw=randwrite", &blocks, &format!("--fdatasync={}", rng.u32(32..129))])
    };
    let rate = format!("--rate_iops={}", rng.u32(1..4));
    let reader = fio(&["--rw=randread", "--direct=1", "--bs=4k", &rate]);
    on(disk, vec![writer, reader])
}

/// Programs that compute, on one or all processors, with a little I/O.
fn processor(rng: &mut Rng) -> Provoked {
    let rate = format!("--rate_iops={}", rng.u32(1..10));
    let mut loads = vec![fio(&["--rw=randrw", "--direct=1", "--bs=4k", &rate])];
    loads.extend((0..rng.usize(1..4)).map(|_| Load::Compute));
    on(any(rng, &DISKS), loads)
}

/// A program that reads a file at random that is larger than its memory.
fn small_cache(rng: &mut Rng) -> Provoked {
    let memory_mib = rng.u64(48..80);
    let file_mib = memory_mib * rng.u64(13..25) / 10;
    let size = format!("--size={file_mib}m");
    let options =
        ["--rw=randread", "--bs=16k", "--norandommap", "--invalidate=0", "--thread", &size];
    // Fast enough that the cache is full when the measurement begins.
    let model = format!("iops:{},depth:1", rng.u32(1500..2500));
    Provoked { memory_mib: Some(memory_mib), warm_up_s: 12, ..on(&model, vec![fio(&options)]) }
}

/// A little load: reads, or writes that the cache writes later.
fn nothing(rng: &mut Rng) -> Provoked {
    let rate = format!("--rate_iops={}", rng.u32(2..12));
    let load = match rng.u32(0..3) {
        0 => fio(&["--rw=randread", "--direct=1", "--bs=4k", &rate]),
        1 => fio(&["--rw=randrw", "--direct=1", "--bs=8k", &rate]),
        _ => fio(&["--rw=randwrite", "--bs=4k", &format!("--rate_iops={}", rng.u32(20..200))]),
    };
    on(any(rng, &DISKS), vec![load])
}

impl Load {
    /// Returns the command, which runs until it is ended, but at most for five minutes.
    pub(in crate::prove) fn command(&self, disk: &Path, seed: u64) -> Command {
        match self {
            Load::Fio(options) => {
                let file = format!("--filename={}", disk.display());
                let seed = format!("--randseed={seed}");
                let whole = "--time_based --runtime=300 --name=load --group_reporting";
                let words = whole.split(' ');
                let mut command = Command::new("fio");
                command.args(words).arg(file).arg(seed).args(options);
                command
            }
            Load::Compute => {
                let mut command = Command::new("timeout");
                command.args(["300", "sh", "-c", "while :; do :; done"]);
                command
            }
        }
    }
}

/// A loop device over a file of nbdfuse, which a modeled device serves.
pub(in crate::prove) struct ModeledDisk {
    disk: Disk,
    _mounted: Cleanup,
    fuse: Daemon,
    server: Server,
}

impl ModeledDisk {
    pub(in crate::prove) fn start(env: &Env, model: &str) -> Result<ModeledDisk> {
        let image = image::create_sparse(&env.file("modeled.img"), IMAGE_MIB * MIB)?;
        let line = format!(
            "{} model serve {model} {} --quiet --listen unix:SOCKET",
            env.larder.display(),
            image.display()
        );
        let server = Peer::new("larder model serve", line).start(env.dir())?;
        let point = env.file("modeled");
        std::fs::create_dir_all(&point).context("make a mount point")?;
        let (file, uri) = (point.join("disk"), server.uri());
        let fuse = Daemon::start("nbdfuse", env.dir(), |_| cmd!(600, "nbdfuse {file} {uri}"))?;
        let mounted = Cleanup::start(UNMOUNT, &[&point.to_string_lossy()])?;
        poll_until("nbdfuse is mounted", Duration::from_secs(10), || Ok(file.exists()))?;
        let disk = Disk::attach(&file)?;
        Ok(ModeledDisk { disk, _mounted: mounted, fuse, server })
    }

    pub(in crate::prove) fn path(&self) -> &Path {
        self.disk.path()
    }

    /// Detaches the device, and ends the programs behind it.
    pub(in crate::prove) fn stop(self) -> Result<()> {
        let ModeledDisk { disk, _mounted: mounted, fuse, server } = self;
        drop(disk);
        drop(mounted);
        // Dirty pages of the last situation are written first.
        fuse.wait(Duration::from_mins(2))?;
        server.stop_clean().map(drop)
    }
}
