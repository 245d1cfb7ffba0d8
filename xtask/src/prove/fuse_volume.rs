//! File systems on cached volumes: `larder serve --fuse`, a loop device with direct I/O, and ext4,
//! xfs and btrfs on it; kills during writes, and memory exhaustion. Requires root.

use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use super::mount::work;
use super::prelude::*;
use crate::cleanup::Cleanup;
use crate::daemon::{Daemon, poll_until};
use crate::disk::{FileSystem, Kind, WORK_MAX_S};
use crate::memory_group::MemoryGroup;

/// Large enough for PostMark.
const IMAGE_MIB: u64 = 2048;
/// Rounds with a kill: milliseconds of writing, maximum size of a file, threads.
const SPAN_MS: (u64, u64) = (500, 2500);
const FILE_BYTES_MAX: u64 = 200_000;
const THREADS: u64 = 4;
/// The maximum wait of a writer for a killed server.
const WAIT_MAX: Duration = Duration::from_mins(1);
const LAZY: &str =
    "--memory 64MiB --set first-delay=60000 --set idle-delay=60000 --set age-max=600000";

/// The memory limit of the server, the writer and the leak together.
const LIMIT_MIB: u64 = 512;
const PRESSURE_MIB: u64 = 1024;
const PRESSURE: &str = "--memory 128MiB";
/// Writes files in `$1` through the page cache until `$2` exists; prints a line for each.
const WRITER: &str = "while [ ! -e \"$2\" ]; do
  dd if=/dev/zero of=\"$1/file\" bs=1M count=200 2> /dev/null || exit 1
  rm \"$1/file\"; echo round
done";
/// The minimum number of MiB that [`SWAPPER`] must swap out in a cgroup of 128 MiB.
const SWAPPED_MIB_MIN: u64 = 128;
/// Fills 300 MiB and reads them twice, which requires swapping in the cgroup.
const SWAPPER: &str = "import sys
pages = [bytearray(b'%08d' % i * 512) for i in range(76800)]
for again in range(2):
    for i in range(0, 76800):
        if pages[i][:8] != b'%08d' % i: sys.exit('other bytes')
print('fine')";

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let needs = ["losetup", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "postmark", "git"];
    require(run::unmet_requirement(&needs))?;
    let _rings = crate::rings::on()?;
    for kind in Kind::ALL {
        let name = kind.name();
        claims.check(format!("{name}: postmark, git, cargo; fsck clean; the same again"), || {
            full_life_cycle(env, kind)
        });
        claims.check(format!("{name}: kill -9 in the middle of fsynced writes"), || {
            let (rounds, seed) = (env.choose(5, 2), env.options.seed);
            let promised = kills(env, kind, rounds, seed)?;
            ensure!(promised > 0, "nothing was promised");
            Ok(format!("{rounds} kills, {promised} fsynced files whole, fsck clean"))
        });
    }
    for round in 1..=env.choose(3, 1) {
        let statement = format!("ext4 is written while a process leaks memory, {round}");
        claims.check(statement + ": nothing hangs", || leak(env));
    }
    claims.check("swap on a volume's loop device, used until memory is short", || swap(env));
    Ok(())
}

/// A server that exports the volume `disk` as a file.
pub(super) struct ServedVolume {
    pub(super) server: Server,
    dir: PathBuf,
    cleanup: Cleanup,
}

impl ServedVolume {
    /// Serves an image or a device, in a memory cgroup if one is given.
    pub(super) fn start(
        env: &Env,
        image: &Path,
        options: &str,
        group: Option<&MemoryGroup>,
    ) -> Result<Self> {
        let dir = env.file("volumes");
        // The dead mount of a killed server exists, but fails stat(2).
        if dir.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
            std::fs::create_dir(&dir).context("make a directory for the files")?;
        }
        let cleanup = Cleanup::start("umount --force --lazy \"$1\"", &[&dir.to_string_lossy()])?;
        let volume = format!("disk={}", image.display());
        let larder = env.larder(&[&volume], &format!("{options} --fuse {}", dir.display()));
        let wrap = |command| group.map(|group| group.wrap(&command)).unwrap_or(command);
        Ok(ServedVolume { server: larder.start_as(env.dir(), wrap)?, dir, cleanup })
    }

    pub(super) fn file(&self) -> PathBuf {
        self.dir.join("disk")
    }

    pub(super) fn stop_clean(mut self) -> Result<()> {
        self.server.stop_clean()?;
        self.cleanup.cancel();
        Ok(())
    }

    /// Kills the server. Its dead mount stays until the returned guard is dropped.
    fn kill(self) -> Result<Cleanup> {
        self.server.kill()?;
        Ok(self.cleanup)
    }
}

/// Creates, uses, remounts and checks a file system, without faults.
fn full_life_cycle(env: &Env, kind: Kind) -> Result<String> {
    let image = image::create_sparse(&env.file("volume.img"), IMAGE_MIB * MIB)?;
    let served = ServedVolume::start(env, &image, "--memory 160MiB", None)?;
    let file_system = FileSystem::attach(env.dir(), &served.file(), kind)?;
    file_system.make()?;
    file_system.mount()?;
    let point = file_system.point();
    let rate = work::postmark(point, env.options.quick)?;
    work::repository(env, point)?;
    work::build(point)?;
    let before = work::listing(point)?;
    let files = before.lines().count();
    ensure!(files > 30, "there are too few files to compare");
    file_system.unmount()?;
    file_system.check()?;
    file_system.mount()?;
    ensure!(before == work::listing(point)?, "the files differ after a second mount");
    file_system.unmount_unchecked()?;
    served.stop_clean()?;
    // The image alone, without a cache.
    let bare = FileSystem::attach(env.dir(), &image, kind)?;
    bare.check()?;
    bare.mount()?;
    let bare_listing = work::listing(bare.point())?;
    bare.unmount_unchecked()?;
    ensure!(before == bare_listing, "the image has other files than the volume had");
    Ok(format!("{files} files the same, PostMark {rate}"))
}

/// Runs rounds with a kill on one image. Returns the number of fsynced files, all of which were
/// intact.
pub(super) fn kills(env: &Env, kind: Kind, rounds: u64, seed: u64) -> Result<u64> {
    let image = image::create_sparse(&env.file("killed.img"), IMAGE_MIB * MIB)?;
    let mut random = Rng::with_seed(seed);
    let mut promised = 0;
    for round in 0..rounds {
        let served = ServedVolume::start(env, &image, LAZY, None)?;
        let file_system = FileSystem::attach(env.dir(), &served.file(), kind)?;
        if round == 0 {
            file_system.make()?;
        }
        file_system.mount().context("mount after a kill")?;
        let dir = file_system.point().join(format!("round-{round}"));
        std::fs::create_dir(&dir).context("make a directory")?;
        for dir in [&dir, file_system.point()] {
            File::open(dir).and_then(|dir| dir.sync_all()).context("fsync a directory")?;
        }
        let seed = random.u64(..);
        let (_dead_mount, kept) = write_until_kill(&dir, seed, || served.kill())?;
        // The mounted file system has lost its disk.
        file_system
            .unmount_unchecked()
            .context("unmount the file system that has lost its disk")?;
        promised += kept.iter().sum::<u64>();
        compare_files(env, &image, kind, (&dir, seed), &kept)?;
    }
    Ok(promised)
}

/// Writes files in a directory, in several threads, until `kill` ends the server after a random
/// time. Returns the result of `kill`, and the number of files that each thread had fsynced.
pub(super) fn write_until_kill<T>(
    dir: &Path,
    seed: u64,
    kill: impl FnOnce() -> Result<T>,
) -> Result<(T, Vec<u64>)> {
    let (span, stop) = (Rng::with_seed(seed).u64(SPAN_MS.0..SPAN_MS.1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let stop = &stop;
        let write = |thread| scope.spawn(move || write_files(dir, seed, thread, stop));
        let writers: Vec<_> = (0..THREADS).map(write).collect();
        std::thread::sleep(Duration::from_millis(span));
        let killed = kill();
        stop.store(true, Ordering::Release);
        let kept = writers.into_iter().map(|it| it.join().expect("a writer does not panic"));
        let kept = kept.collect::<Result<Vec<u64>>>();
        Ok((killed?, kept?))
    })
}

/// Fails unless the fsynced files exist with their content.
pub(super) fn check_files(dir: &Path, seed: u64, kept: &[u64]) -> Result<()> {
    for (thread, &kept) in (0..).zip(kept) {
        for number in 0..kept {
            let (name, expected) = file_of(seed, thread, number);
            let found = std::fs::read(dir.join(&name)).with_context(|| name.clone())?;
            ensure!(found == expected, "{name} is not what was fsynced");
        }
    }
    Ok(())
}

/// Returns the name and the content of a file.
fn file_of(seed: u64, thread: u64, number: u64) -> (String, Vec<u8>) {
    let mut random = Rng::with_seed(seed ^ thread ^ (number << 8));
    let len = random.u64(1..=FILE_BYTES_MAX);
    let mut bytes = vec![0; usize::try_from(len).expect("small")];
    random.fill(&mut bytes);
    (format!("{thread}-{number}"), bytes)
}

/// Writes files until a write fails. Returns the number of files that were fsynced with their
/// names.
fn write_files(dir: &Path, seed: u64, thread: u64, stop: &AtomicBool) -> Result<u64> {
    let (begun, mut number) = (Instant::now(), 0);
    let one = |number: u64| -> std::io::Result<()> {
        let (name, content) = file_of(seed, thread, number);
        let mut file = File::create(dir.join(name))?;
        file.write_all(&content)?;
        file.sync_all()?;
        File::open(dir)?.sync_all()
    };
    while !stop.load(Ordering::Acquire) && one(number).is_ok() {
        number += 1;
    }
    ensure!(begun.elapsed() < WAIT_MAX, "a writer waited {} s", begun.elapsed().as_secs());
    Ok(number)
}

/// Compares the fsynced files on a new server, after a replay of the journal.
fn compare_files(
    env: &Env,
    image: &Path,
    kind: Kind,
    (dir, seed): (&Path, u64),
    kept: &[u64],
) -> Result<()> {
    let served = ServedVolume::start(env, image, LAZY, None)?;
    let file_system = FileSystem::attach(env.dir(), &served.file(), kind)?;
    file_system.mount().context("mount, which replays the journal")?;
    check_files(dir, seed, kept)?;
    file_system.end()?;
    served.stop_clean()
}

/// Runs a leak in parallel with a writer; returns the figure.
fn leak(env: &Env) -> Result<String> {
    require(MemoryGroup::unavailable_reason())?;
    let group = MemoryGroup::with_limit(LIMIT_MIB)?;
    let image = image::create_sparse(&env.file("pressed.img"), PRESSURE_MIB * MIB)?;
    let spared = can_be_spared();
    let served = ServedVolume::start(env, &image, PRESSURE, spared.then_some(&group))?;
    let file_system = FileSystem::new(env.dir(), &served.file())?;
    let (point, limit) = (file_system.point(), Duration::from_secs(WORK_MAX_S));
    let mut writer = Daemon::start("the writer", env.dir(), |dir| {
        group.wrap(&cmd!("sh -c {WRITER} writer {point} {dir}/stop"))
    })?;
    let mut written = |rounds: usize| {
        poll_until("the writer continues", limit, || {
            writer.check_alive()?;
            Ok(writer.stdout().lines().count() >= rounds)
        })?;
        Ok::<_, anyhow::Error>(writer.stdout().lines().count())
    };
    written(1)?;
    let (begun, mut leak) = (Instant::now(), group.leak(env.dir(), "0.05")?);
    poll_until("the end of the leak", limit, || leak.has_ended())?;
    let took = begun.elapsed().as_secs_f64();
    let during = written(0)?;
    written(during + 2)?;
    std::fs::write(writer.file("stop"), "").context("stop the writer")?;
    writer.wait(limit)?;
    file_system.end()?;
    served.stop_clean()?;
    let placement = if spared { "server inside" } else { "server outside: no CAP_SYS_RESOURCE" };
    Ok(format!(
        "{LIMIT_MIB} MiB gone in {took:.1} s ({placement}); the writer continued, fsck clean"
    ))
}

/// Returns true if a server has `CAP_SYS_RESOURCE` (bit 24), which it needs for
/// `PR_SET_IO_FLUSHER`. Without it, a server in a full cgroup can deadlock: the kernel's memory
/// allocation for its io_uring requests waits for the server itself.
fn can_be_spared() -> bool {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let sets = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
    sets.is_some_and(|sets| sets & 1 << 24 != 0)
}

/// Swaps to the loop device; returns the figure.
fn swap(env: &Env) -> Result<String> {
    require(MemoryGroup::unavailable_reason())?;
    let swaps = std::fs::read_to_string("/proc/swaps").context("read /proc/swaps")?;
    // The kernel would prefer the swap of the machine, and the volume would stay unused.
    let has_swap = swaps.lines().count() > 1;
    require(has_swap.then(|| "this machine has swap of its own".into()))?;
    let group = MemoryGroup::with_limit(LIMIT_MIB / 4)?;
    let image = image::create_sparse(&env.file("swap.img"), PRESSURE_MIB * MIB)?;
    let served = ServedVolume::start(env, &image, PRESSURE, None)?;
    let disk = crate::disk::Disk::attach(&served.file())?;
    let device = disk.path();
    stdout_of(cmd!(30, "mkswap {device}"))?;
    let cleanup = Cleanup::start("swapoff \"$1\"", &[&device.to_string_lossy()])?;
    stdout_of(cmd!(30, "swapon {device}"))?;
    let (_, before) = disk.write_counts()?;
    let output = stdout_of(group.wrap(&cmd!(WORK_MAX_S, "python3 -c {SWAPPER}")));
    stdout_of(cmd!(WORK_MAX_S, "swapoff {device}"))?;
    drop(cleanup);
    ensure!(output?.trim() == "fine", "memory changed while it was swapped out");
    let swapped_mib = (disk.write_counts()?.1 - before) / MIB;
    ensure!(swapped_mib >= SWAPPED_MIB_MIN, "only {swapped_mib} MiB were swapped out");
    drop(disk);
    let is_refused = served.server.0.stderr().contains("be spared");
    served.stop_clean()?;
    let spared = if is_refused { "without CAP_SYS_RESOURCE" } else { "spared" };
    let group_mib = LIMIT_MIB / 4;
    let figure = format!("300 MiB in a group of {group_mib} MiB, read back twice");
    Ok(format!("{figure}; {swapped_mib} MiB swapped out ({spared})"))
}
