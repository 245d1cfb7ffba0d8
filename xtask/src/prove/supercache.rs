//! The main use case: a disk limited to 100 operations per second, and a cache below the file
//! system, like SuperCache.
//!
//! With and without Larder, the programs have a memory cgroup of [`GROUP_MIB`], page cache
//! included; Larder has [`MEMORY_MIB`] more, outside of the cgroup. Each write begins with a clean
//! cache. Rewrites, which begin with a cache full of dirty pages, and runs with the same total
//! memory are reported without a verdict (docs/BENCHMARKING.md).

use super::fuse_volume::ServedVolume;
use super::prelude::*;
use crate::disk::{Disk, FileSystem, Kind};
use crate::memory_group::MemoryGroup;
use crate::stats::median;

const PER_S: u32 = 100;
const IMAGE_MIB: u64 = 3072;
/// The memory of the programs and the page cache, and that of Larder.
const GROUP_MIB: u64 = 64;
const MEMORY_MIB: u64 = 256;
/// The sizes of IOzone's files, one smaller than the cache and one twice as large, and the required
/// speedup of a write if flushes are ignored.
const FILES: [(&str, f64); 2] = [("128MiB", 8.0), ("512MiB", 1.25)];
/// The speedup measured with SuperCache in 2000, which must be reached.
const POSTMARK_LEAST: f64 = 1.97;
/// The file of skewed reads: twice the memory. Some blocks are read very often, and nearly all at
/// least once.
const READ_MIB: u64 = 2 * (GROUP_MIB + MEMORY_MIB);
const SKEW: &str = "--random_distribution=zipf:1.1";
/// The number of warm-up reads, on a disk without a limit: four per block.
const WARM_READS: u64 = 4 * READ_MIB * 256;

/// The passes of IOzone.
const PASSES: [&str; 2] = ["write", "rewrite"];

/// Seconds of PostMark from its start to its end, and MiB per second of each of [`PASSES`] for each
/// of [`FILES`].
type Measured = (f64, [[f64; 2]; FILES.len()]);

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(
        run::unmet_requirement(&["postmark"])
            .or_else(Disk::unavailable_reason)
            .or_else(MemoryGroup::unavailable_reason),
    )?;
    let _rings = crate::rings::on()?;
    let (alone, disk) = with_setup(env, None, GROUP_MIB, measure)?;
    let mut seconds = Vec::new();
    for flush in ["keep", "ignore"] {
        let (cached, rates) = with_setup(env, Some(flush), GROUP_MIB, measure)?;
        seconds.push((flush, cached));
        let gain = alone / cached;
        claims.add_with_peer(
            format!("PostMark, --flush {flush}: at least {POSTMARK_LEAST} times as fast"),
            format!("{cached:.1} s, {gain:.2} times"),
            format!("the disk alone: {alone:.1} s"),
            gain >= POSTMARK_LEAST,
        );
        for (number, (file, least)) in FILES.into_iter().enumerate() {
            for (pass, statement) in PASSES.into_iter().enumerate() {
                let (ours, disk) = (rates[number][pass], disk[number][pass]);
                let is_judged = flush == "ignore" && statement == "write";
                let bound = format!("at least {least} times");
                let bound = if is_judged { bound } else { "not judged".into() };
                claims.add_with_peer(
                    format!("IOzone's {statement} of {file}, --flush {flush}: {bound}"),
                    format!("{ours:.0} MiB/s, {:.2} times", ours / disk),
                    format!("the disk alone: {disk:.0} MiB/s"),
                    !is_judged || ours / disk >= least,
                );
            }
        }
    }
    same_memory(env, claims, &seconds)
}

/// Compares both sides with the same memory; `cached` are the seconds of PostMark with Larder, by
/// `--flush`.
fn same_memory(env: &Env, claims: &mut Claims, cached: &[(&str, f64)]) -> Result<()> {
    let whole = GROUP_MIB + MEMORY_MIB;
    let alone = with_setup(env, None, whole, |setup| {
        setup.disk.limit(PER_S)?;
        postmark(setup)
    })?;
    for (flush, seconds) in cached {
        claims.add_with_peer(
            format!("the same memory: PostMark, --flush {flush} (not judged)"),
            format!("{seconds:.1} s, {:.2} times", alone / seconds),
            format!("{whole} MiB of page cache: {alone:.1} s"),
            true,
        );
    }
    let alone = with_setup(env, None, whole, reads)?;
    let ours = with_setup(env, Some("keep"), GROUP_MIB, reads)?;
    claims.add_with_peer(
        "the same memory: skewed random reads of twice as much (not judged)",
        format!("{ours:.0} per second, {:.2} times", ours / alone),
        format!("{whole} MiB of page cache: {alone:.0} per second"),
        true,
    );
    Ok(())
}

/// A file system on the slow disk, with Larder or without, and the memory cgroup of the programs.
struct Setup<'a> {
    env: &'a Env,
    disk: &'a Disk,
    served: Option<&'a ServedVolume>,
    group: MemoryGroup,
    point: PathBuf,
}

impl Setup<'_> {
    /// Writes back all dirty data.
    fn write_back(&self) -> Result<()> {
        stdout_of(cmd!("sync"))?;
        let Some(served) = self.served else { return Ok(()) };
        let (larder, control) = (&self.env.larder, served.server.control());
        stdout_of(cmd!("{larder} ctl flush --control {control}")).map(drop)
    }
}

/// Runs `work` on a new disk and file system without a limit: with Larder and this value of
/// `--flush`, or on the disk alone.
fn with_setup<T>(
    env: &Env,
    flush: Option<&str>,
    group_mib: u64,
    work: impl FnOnce(&Setup<'_>) -> Result<T>,
) -> Result<T> {
    let image = image::create_sparse(&env.file("supercache.img"), IMAGE_MIB * MIB)?;
    let disk = Disk::attach(&image)?;
    let serve = |flush| {
        let options = format!("--memory {MEMORY_MIB}MiB --flush {flush}");
        ServedVolume::start(env, disk.path(), &options, None)
    };
    let served = flush.map(serve).transpose()?;
    let file_system = match &served {
        Some(served) => FileSystem::attach(env.dir(), &served.file(), Kind::Ext4)?,
        None => FileSystem::on(env.dir(), disk.path(), Kind::Ext4)?,
    };
    file_system.make()?;
    file_system.mount()?;
    let (group, point) = (MemoryGroup::with_limit(group_mib)?, file_system.point().to_owned());
    let done = work(&Setup { env, disk: &disk, served: served.as_ref(), group, point });
    // Without the limit, the remaining dirty data is written quickly.
    disk.limit(0)?;
    let done = done?;
    file_system.unmount_unchecked()?;
    served.map_or(Ok(()), ServedVolume::stop_clean)?;
    Ok(done)
}

fn measure(setup: &Setup<'_>) -> Result<Measured> {
    setup.disk.limit(PER_S)?;
    let postmark = postmark(setup)?;
    let dir = setup.point.join("iozone");
    std::fs::create_dir(&dir).context("make a directory for IOzone")?;
    let mut trials = FILES.map(|_| [vec![], vec![]]);
    for _ in 0..setup.env.choose(5, 1) {
        for ((file, _), trials) in FILES.iter().zip(&mut trials) {
            setup.write_back()?;
            let (larder, at) = (&setup.env.larder, setup.env.file("iozone.json"));
            let arguments = "--test 0 --record 4MiB --trials 1 --same-speed off".split(' ');
            let iozone =
                cmd!("{larder} bench iozone {dir} {arguments...} --file {file} --output {at}");
            stdout_of(setup.group.wrap(&iozone))?;
            let record = record::read(&at)?;
            for (pass, trials) in PASSES.into_iter().zip(trials) {
                trials.push(record::values(&record, pass)?[0] / 1_048_576.0);
            }
        }
    }
    Ok((postmark, trials.map(|passes| passes.map(|rates| median(&rates)))))
}

/// Runs Debian's PostMark; returns its time in seconds.
fn postmark(Setup { env, group, point, .. }: &Setup<'_>) -> Result<f64> {
    let (dir, script) = (point.join("postmark"), env.file("postmark.script"));
    std::fs::create_dir(&dir).context("make a directory for PostMark")?;
    fio::postmark_script(&script, &dir, env.choose((4000, 8000), (2000, 1000)), 100_000)?;
    let begun = Instant::now();
    let output = stdout_of(group.wrap(&cmd!("postmark {script}")))?;
    ensure!(output.contains("deleted"), "PostMark did not come to its end");
    Ok(begun.elapsed().as_secs_f64())
}

/// Returns the rate of reads of 4 KiB per second with warm caches.
fn reads(setup: &Setup<'_>) -> Result<f64> {
    let read = |options: &str| {
        let (point, mib, options) = (&setup.point, READ_MIB.to_string(), options.split(' '));
        let args = "--ioengine=psync --rw=randread --bs=4k --norandommap --invalidate=0".split(' ');
        let fio = cmd!(
            600,
            "fio --name=reads {args...} {SKEW} --size={mib}m --filename {point}/file {options...}"
        );
        fio::run_command(&mut setup.group.wrap(&fio))
    };
    let (warm, seconds) = setup.env.choose((WARM_READS, 60), (WARM_READS / 100, 5));
    read("--create_only=1")?;
    setup.write_back()?;
    read(&format!("--number_ios={warm} --io_size=1t"))?;
    setup.disk.limit(PER_S)?;
    // Another seed: not the same blocks in the same order.
    Ok(read(&format!("--time_based --runtime={seconds} --randseed=7"))?.per_s)
}
