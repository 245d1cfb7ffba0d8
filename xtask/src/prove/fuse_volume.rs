//! File systems on cached volumes: `larder serve --fuse`, a loop device with direct I/O, and ext4,
//! xfs and btrfs on it; kills in the middle of writes, and memory that runs out. Needs root.

use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use super::mount::work;
use super::prelude::*;
use crate::cleanup::Cleanup;
use crate::daemon::{Daemon, until};
use crate::disk::{FileSystem, Kind, WORK_MAX_S};
use crate::memory_group::MemoryGroup;

/// Enough for PostMark.
const IMAGE_MIB: u64 = 2048;
/// Rounds of kills: milliseconds of writing, bytes of a file, threads.
const SPAN_MS: (u64, u64) = (500, 2500);
const FILE_BYTES_MAX: u64 = 200_000;
const THREADS: u64 = 4;
/// The longest wait of a writer for a server that is gone.
const WAIT_MAX: Duration = Duration::from_mins(1);
const LAZY: &str =
    "--memory 64MiB --set first-delay=60000 --set idle-delay=60000 --set age-max=600000";

/// All memory of the server, the writer and the leak.
const LIMIT_MIB: u64 = 512;
const PRESSURE_MIB: u64 = 1024;
const PRESSURE: &str = "--memory 128MiB";
/// Writes files in `$1` through the page cache until `$2` exists; prints a line for each.
const WRITER: &str = "while [ ! -e \"$2\" ]; do
  dd if=/dev/zero of=\"$1/file\" bs=1M count=200 2> /dev/null || exit 1
  rm \"$1/file\"; echo round
done";
/// Uses 300 MiB twice over, in a group where only swap has room for that.
const SWAPPER: &str = "import sys
pages = [bytearray(b'%08d' % i * 512) for i in range(76800)]
for again in range(2):
    for i in range(0, 76800):
        if pages[i][:8] != b'%08d' % i: sys.exit('other bytes')
print('fine')";

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let needs = ["losetup", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "postmark", "git"];
    need(run::missing(&needs))?;
    let _rings = crate::rings::on()?;
    for kind in Kind::ALL {
        let name = kind.name();
        claims.tried(format!("{name}: postmark, git, cargo; fsck clean; the same again"), || {
            whole_life(env, kind)
        });
        claims.tried(format!("{name}: kill -9 in the middle of fsynced writes"), || {
            let (rounds, seed) = (env.either(5, 2), env.options.seed);
            let promised = kills(env, kind, rounds, seed)?;
            ensure!(promised > 0, "nothing was promised");
            Ok(format!("{rounds} kills, {promised} fsynced files whole, fsck clean"))
        });
    }
    for round in 1..=env.either(3, 1) {
        let what = format!("ext4 is written while memory leaks away, {round}");
        claims.tried(what + ": nothing waits for ever", || leak(env));
    }
    claims.tried("swap on a volume's loop device, used until memory is short", || swap(env));
    Ok(())
}

/// A server with the volume `disk` as a file.
pub(super) struct Served {
    pub(super) server: Server,
    dir: PathBuf,
    cleanup: Cleanup,
}

impl Served {
    /// Serves an image or a device, as a process of a group if there is one.
    pub(super) fn start(
        env: &Env,
        image: &Path,
        options: &str,
        group: Option<&MemoryGroup>,
    ) -> Result<Self> {
        let dir = env.file("volumes");
        // What a killed server left there cannot even be looked at.
        if dir.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
            std::fs::create_dir(&dir).context("make a directory for the files")?;
        }
        let cleanup = Cleanup::with("umount --force --lazy \"$1\"", &[&dir.to_string_lossy()])?;
        let volume = format!("disk={}", image.display());
        let larder = env.larder(&[&volume], &format!("{options} --fuse {}", dir.display()));
        let place = |command| group.map(|group| group.enter(&command)).unwrap_or(command);
        Ok(Served { server: larder.start_as(env.dir(), place)?, dir, cleanup })
    }

    pub(super) fn file(&self) -> PathBuf {
        self.dir.join("disk")
    }

    pub(super) fn stop_clean(mut self) -> Result<()> {
        self.server.stop_clean()?;
        self.cleanup.cancel();
        Ok(())
    }

    /// Kills it; its mount stays behind, dead.
    fn kill(mut self) -> Result<()> {
        self.server.kill()?;
        self.cleanup.cancel();
        Ok(())
    }
}

/// The life of a file system without faults.
fn whole_life(env: &Env, kind: Kind) -> Result<String> {
    let image = image::sparse(&env.file("volume.img"), IMAGE_MIB * MIB)?;
    let served = Served::start(env, &image, "--memory 160MiB", None)?;
    let file_system = FileSystem::attach(env.dir(), &served.file(), kind)?;
    file_system.make()?;
    file_system.mount()?;
    let point = file_system.point();
    let rate = work::postmark(point, env.options.quick)?;
    work::repository(env, point)?;
    work::build(point)?;
    let before = work::listing(point)?;
    let files = before.lines().count();
    ensure!(files > 30, "there is hardly anything to compare");
    file_system.unmount()?;
    file_system.check()?;
    file_system.mount()?;
    ensure!(before == work::listing(point)?, "the files are other ones after mounting again");
    file_system.leave()?;
    served.stop_clean()?;
    // The image alone, without any cache.
    let bare = FileSystem::attach(env.dir(), &image, kind)?;
    bare.check()?;
    bare.mount()?;
    let bare_listing = work::listing(bare.point())?;
    bare.leave()?;
    ensure!(before == bare_listing, "the image has other files than the volume had");
    Ok(format!("{files} files the same, PostMark {rate}"))
}

/// Rounds of kills on one image; the number of fsynced files, all of which were whole.
pub(super) fn kills(env: &Env, kind: Kind, rounds: u64, seed: u64) -> Result<u64> {
    let image = image::sparse(&env.file("killed.img"), IMAGE_MIB * MIB)?;
    let mut random = Rng::with_seed(seed);
    let mut promised = 0;
    for round in 0..rounds {
        let served = Served::start(env, &image, LAZY, None)?;
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
        let kept = written_until(&dir, seed, || served.kill())?;
        // What is left of the file system has lost its disk.
        file_system.leave().context("unmount what has lost its disk")?;
        promised += kept.iter().sum::<u64>();
        compare_files(env, &image, kind, (&dir, seed), &kept)?;
    }
    Ok(promised)
}

/// Writes files in a directory, in several threads, until `kill` ends the server after a random
/// time; how many files each thread had fsynced.
pub(super) fn written_until(
    dir: &Path,
    seed: u64,
    kill: impl FnOnce() -> Result<()>,
) -> Result<Vec<u64>> {
    let (span, stop) = (Rng::with_seed(seed).u64(SPAN_MS.0..SPAN_MS.1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let stop = &stop;
        let write = |thread| scope.spawn(move || write_files(dir, seed, thread, stop));
        let writers: Vec<_> = (0..THREADS).map(write).collect();
        std::thread::sleep(Duration::from_millis(span));
        let killed = kill();
        stop.store(true, Ordering::Release);
        let kept = writers.into_iter().map(|it| it.join().expect("a writer does not panic"));
        killed.and(kept.collect::<Result<Vec<u64>>>())
    })
}

/// An error unless the files that were fsynced are there as they were written.
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

/// Name and content of a file.
fn file_of(seed: u64, thread: u64, number: u64) -> (String, Vec<u8>) {
    let mut random = Rng::with_seed(seed ^ thread ^ (number << 8));
    let len = random.u64(1..=FILE_BYTES_MAX);
    let mut bytes = vec![0; usize::try_from(len).expect("small")];
    random.fill(&mut bytes);
    (format!("{thread}-{number}"), bytes)
}

/// Writes files until that fails; how many of them, and of their names, were fsynced.
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

/// Compares the promised files on a new server, after the journal was replayed.
fn compare_files(
    env: &Env,
    image: &Path,
    kind: Kind,
    (dir, seed): (&Path, u64),
    kept: &[u64],
) -> Result<()> {
    let served = Served::start(env, image, LAZY, None)?;
    let file_system = FileSystem::attach(env.dir(), &served.file(), kind)?;
    file_system.mount().context("mount, which replays the journal")?;
    check_files(dir, seed, kept)?;
    file_system.end()?;
    served.stop_clean()
}

/// A leak beside a writer; what came out.
fn leak(env: &Env) -> Result<String> {
    if let Some(reason) = MemoryGroup::missing() {
        bail!("it {reason}");
    }
    let group = MemoryGroup::of(LIMIT_MIB)?;
    let image = image::sparse(&env.file("pressed.img"), PRESSURE_MIB * MIB)?;
    let spared = can_be_spared();
    let served = Served::start(env, &image, PRESSURE, spared.then_some(&group))?;
    let file_system = FileSystem::new(env.dir(), &served.file())?;
    let (point, limit) = (file_system.point(), Duration::from_secs(WORK_MAX_S));
    let mut writer = Daemon::start("the writer", env.dir(), |dir| {
        group.enter(&cmd!("sh -c {WRITER} writer {point} {dir}/stop"))
    })?;
    let mut written = |rounds: usize| {
        until("the writer goes on", limit, || {
            writer.check_alive()?;
            Ok(writer.stdout().lines().count() >= rounds)
        })?;
        Ok::<_, anyhow::Error>(writer.stdout().lines().count())
    };
    written(1)?;
    let (begun, mut leak) = (Instant::now(), group.leak(env.dir(), "0.05")?);
    until("the end of the leak", limit, || leak.has_ended())?;
    let took = begun.elapsed().as_secs_f64();
    let during = written(0)?;
    written(during + 2)?;
    std::fs::write(writer.file("stop"), "").context("stop the writer")?;
    writer.wait(limit)?;
    file_system.end()?;
    served.stop_clean()?;
    let place = if spared { "server inside" } else { "server outside: no CAP_SYS_RESOURCE" };
    Ok(format!("{LIMIT_MIB} MiB gone in {took:.1} s ({place}); the writer went on, fsck clean"))
}

/// Returns whether a server may ask to be spared (`CAP_SYS_RESOURCE`, bit 24). One that may not can
/// wait for itself inside of a group that is full: for the kernel's memory of its io_uring
/// requests.
fn can_be_spared() -> bool {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let sets = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
    sets.is_some_and(|sets| sets & 1 << 24 != 0)
}

/// Swap on the loop device; what came out.
fn swap(env: &Env) -> Result<String> {
    let group = MemoryGroup::of(LIMIT_MIB / 4)?;
    let image = image::sparse(&env.file("swap.img"), PRESSURE_MIB * MIB)?;
    let served = Served::start(env, &image, PRESSURE, None)?;
    let disk = crate::disk::Disk::over(&served.file())?;
    let device = disk.path();
    text(cmd!(30, "mkswap {device}"))?;
    let cleanup = Cleanup::with("swapoff \"$1\"", &[&device.to_string_lossy()])?;
    text(cmd!(30, "swapon {device}"))?;
    let said = text(group.enter(&cmd!(WORK_MAX_S, "python3 -c {SWAPPER}")));
    text(cmd!(WORK_MAX_S, "swapoff {device}"))?;
    drop(cleanup);
    ensure!(said?.trim() == "fine", "what was swapped out came back as something else");
    drop(disk);
    let is_refused = served.server.0.stderr().contains("be spared");
    served.stop_clean()?;
    let spared = if is_refused { "without CAP_SYS_RESOURCE" } else { "spared" };
    Ok(format!("300 MiB in a group of {} MiB, read back twice ({spared})", LIMIT_MIB / 4))
}
