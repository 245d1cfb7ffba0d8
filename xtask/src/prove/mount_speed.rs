//! The speed of `larder mount` compared with bindfs, mergerfs and rclone, alternating in one run.
//!
//! Each program mounts a separate directory of the same ext4 on a loop device with direct I/O. All
//! reads are hits: the file was read just before. The mounts do not allow other users, which makes
//! only larder faster (docs/mount.md), and only larder uses FUSE over io_uring.

use std::fs::{File, OpenOptions};

use rustix::fs::{Advice, fadvise};

use super::mount::fuse::{FuseMount, Program};
use super::prelude::*;
use crate::disk::FileSystem;
use crate::record::Record;
use crate::rings;
use crate::stats::{Spread, median, run_alternating};

const IMAGE_MIB: u64 = 2048;
const NEEDS: [&str; 7] =
    ["losetup", "mkfs.ext4", "bindfs", "mergerfs", "rclone", "postmark", "fio"];
/// The size of the file to read.
const FILE_MIB: u64 = 128;
/// The number of files to create and remove: few, so that all programs run in the same state of the
/// machine.
const FILES: u64 = 1000;

/// Enough memory that no data is evicted after it was read, and that writers are not throttled.
const LARDER: Program =
    Program { name: "larder", line: "LARDER mount --control none --memory 512MiB" };
/// All users are allowed, and the kernel checks the modes of files.
const LARDER_FOR_ALL: Program = Program {
    name: "larder for all",
    line: "LARDER mount --control none --memory 512MiB --allow-other",
};
/// The kernel caches pages, too, as for bindfs.
const LARDER_PAGES: Program = Program {
    name: "larder with kernel pages",
    line: "LARDER mount --control none --memory 512MiB --rule *=kernel-pages=keep",
};
/// By default, the peers do not allow other users.
const BINDFS: Program = Program { name: "bindfs", line: "bindfs -f --no-allow-other" };
/// The kernel caches no pages of the mount. Without the last option mergerfs creates no file if
/// less than 4 GiB are free.
const MERGERFS: Program =
    Program { name: "mergerfs", line: "mergerfs -f -o cache.files=off,minfreespace=0" };
const RCLONE: Program = Program {
    name: "rclone full",
    line: "rclone mount --vfs-cache-mode full --cache-dir cache --config none.conf",
};
/// The minimum that PostMark works with: data that is read is not cached on disk.
const RCLONE_LEAST: Program = Program {
    name: "rclone minimal",
    line: "rclone mount --vfs-cache-mode minimal --cache-dir cache --config none.conf",
};
const ALL: [Program; 7] =
    [LARDER, LARDER_FOR_ALL, LARDER_PAGES, BINDFS, MERGERFS, RCLONE, RCLONE_LEAST];

/// A workload: its name, the unit of its rate, and the options of fio.
type Workload = (&'static str, &'static str, &'static str);
const CREATES: Workload = ("creates", "files/s", "");
const DELETES: Workload = ("deletes", "files/s", "");
const POSTMARK: Workload = ("PostMark", "transactions/s", "");
const DIRECT_1: Workload =
    ("4 KiB direct random hits, 1 job", "reads/s", "--direct=1 --rw=randread --bs=4k");
const BUFFERED_1: Workload = ("4 KiB random hits, 1 job", "reads/s", "--rw=randread --bs=4k");
const DIRECT_2: Workload =
    ("4 KiB direct random hits, 2 jobs", "reads/s", "--direct=1 --rw=randread --bs=4k --numjobs=2");
const BUFFERED_2: Workload =
    ("4 KiB random hits, 2 jobs", "reads/s", "--rw=randread --bs=4k --numjobs=2");
const DIRECT_LARGE: Workload = ("1 MiB direct reads", "MB/s", "--direct=1 --rw=read --bs=1m");
/// Here the options of the mount differ, not those of fio.
const KEPT: Workload = ("4 KiB random reads of kernel pages", "reads/s", "--rw=randread --bs=4k");
const KEPT_LARGE: Workload = ("1 MiB reads of kernel pages", "MB/s", "--rw=read --bs=1m");

/// Peers, and the multiple of their rate that is required of larder.
type Peers = &'static [(Program, f64)];
const OTHERS: Peers = &[(RCLONE, 2.0), (RCLONE_LEAST, 2.0), (BINDFS, 1.3), (MERGERFS, 1.3)];
const ALSO_FOR_ALL: Peers = &[OTHERS[0], OTHERS[1], OTHERS[2], OTHERS[3], (LARDER_FOR_ALL, 1.0)];

/// A comparison: larder and its workload, the peers and their counterpart of the workload, and a
/// required rate that does not depend on the peers.
type Contest = (Program, Workload, Peers, Workload, Option<f64>);
const CONTESTS: [Contest; 8] = [
    (LARDER, CREATES, ALSO_FOR_ALL, CREATES, None),
    (LARDER, DELETES, ALSO_FOR_ALL, DELETES, None),
    (LARDER, POSTMARK, OTHERS, POSTMARK, None),
    // With direct I/O, mergerfs would read from the disk. Without it, its kernel caches no pages of
    // the mount either, and its hits come from the page cache of the file system below.
    (LARDER, DIRECT_1, &[(MERGERFS, 1.0)], BUFFERED_1, None),
    (LARDER, DIRECT_2, &[(MERGERFS, 1.0)], BUFFERED_2, Some(130_000.0)),
    (LARDER, DIRECT_LARGE, &[], DIRECT_LARGE, Some(2500.0)),
    (LARDER_PAGES, KEPT, &[(BINDFS, 0.9)], KEPT, None),
    (LARDER_PAGES, KEPT_LARGE, &[(BINDFS, 0.9)], KEPT_LARGE, None),
];
/// The number of rounds of a comparison; many if a trial takes a tenth of a second.
const ROUNDS: usize = 7;
const SHORT_ROUNDS: usize = 35;

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(run::unmet_requirement(&NEEDS))?;
    let _rings = rings::on()?;
    let mut settings = json!({
        "fuse over io_uring": rings::are_on(), "source": "ext4 on a loop device with direct I/O",
        "rounds": ROUNDS, "rounds of creates and deletes": SHORT_ROUNDS,
    });
    for program in ALL {
        settings[program.name] = program.line.into();
    }
    let statement = "a mounted directory on ext4, against bindfs, mergerfs and rclone";
    let programs = ["bindfs", "mergerfs", "rclone", "fio"];
    let mut record = Record::new(&env.root, statement, &programs, &settings)?;
    let image = image::create_sparse(&env.file("mount-speed.img"), IMAGE_MIB * MIB)?;
    let file_system = FileSystem::new(env.dir(), &image)?;
    let mut mounts = Vec::new();
    for program in ALL {
        let source = file_system.point().join(program.name);
        std::fs::create_dir(&source).context("make a directory to be mounted")?;
        mounts.push(FuseMount::start(env, program, &source)?);
    }
    for contest in CONTESTS {
        let rates = measure(env, contest, &mounts)?;
        judge(contest, &rates, claims, &mut record);
    }
    mounts.into_iter().try_for_each(FuseMount::stop_clean)?;
    file_system.end()?;
    if !env.options.quick {
        outln!("   recorded in {}", record.write("mount-speed")?);
    }
    Ok(())
}

/// Returns the rates of larder and its peers by round, or `None` for a peer with a failed trial.
fn measure(
    env: &Env,
    (larder, ours, peers, theirs, _): Contest,
    mounts: &[FuseMount],
) -> Result<Vec<Option<Vec<f64>>>> {
    outln!("   {}", ours.0);
    let mut sides = vec![(larder, ours)];
    sides.extend(peers.iter().map(|peer| (peer.0, theirs)));
    let mut all = vec![Some(Vec::new()); sides.len()];
    let rounds = if ours.1 == CREATES.1 { SHORT_ROUNDS } else { ROUNDS };
    run_alternating(env.choose(rounds, 3), sides.len(), |index| {
        let (program, workload) = sides[index];
        let mount = mounts.iter().find(|mount| mount.program == program);
        let point = &mount.context("a program that is not mounted")?.point;
        let Some(rates) = &mut all[index] else { return Ok(()) };
        match trial(env, workload, point) {
            Ok(rate) => rates.push(rate),
            Err(error) if index == 0 => return Err(error.context(workload.0)),
            Err(error) => {
                outln!("   {}: {}: {error:#}", program.name, workload.0);
                all[index] = None;
            }
        }
        Ok(())
    })?;
    Ok(all)
}

fn judge(
    (larder, (title, unit, _), peers, (theirs, ..), least): Contest,
    all: &[Option<Vec<f64>>],
    claims: &mut Claims,
    record: &mut Record,
) {
    let (ours, rates) =
        (format!("{}: {title}", larder.name), all[0].as_deref().unwrap_or_default());
    record.series(&ours, unit, rates, 0);
    let mut bars = Vec::new();
    for (&(peer, required), rates) in peers.iter().zip(&all[1..]) {
        let (peer, side) = (peer.name, format!("{}: {theirs}", peer.name));
        let Some(rates) = rates else {
            claims.skip(format!("{title}, against {peer}"), "a trial of the peer failed");
            continue;
        };
        record.series(&side, unit, rates, 0);
        let middle = format!("{:.0} {unit}", median(rates));
        let statement = format!("{title}, at least {required} times {peer}");
        bars.push((statement, rates.clone(), side, middle, required));
    }
    if let Some(least) = least {
        let rate = format!("{least:.0} {unit}");
        let statement = format!("{title}, at least {rate}");
        bars.push((statement, vec![least; rates.len()], rate, String::new(), 1.0));
    }
    for (statement, theirs, side, middle, required) in bars {
        let ratio = Spread::of_ratios(rates, &theirs);
        record.comparison(&statement, [&ours, &side], ratio, required);
        let figure = format!("{:.0} {unit}, {}", median(rates), ratio.times());
        claims.add_with_peer(statement, figure, middle, ratio.median >= required);
    }
}

/// Returns the rate of one trial at a mountpoint.
fn trial(env: &Env, workload: Workload, point: &Path) -> Result<f64> {
    match workload {
        CREATES => made_and_removed(point).map(|(creates, _)| creates),
        DELETES => made_and_removed(point).map(|(_, deletes)| deletes),
        POSTMARK => postmark(env, point),
        (_, "MB/s", options) => Ok(reads(env, point, options)? * 1.048_576),
        (.., options) => reads(env, point, options),
    }
}

/// Returns the number of empty files per second that are created and closed sequentially, and the
/// number that are removed.
fn made_and_removed(point: &Path) -> Result<(f64, f64)> {
    let dir = point.join("files");
    std::fs::create_dir(&dir).context("make a directory for files")?;
    let names: Vec<_> = (0..FILES).map(|number| dir.join(number.to_string())).collect();
    let mut arguments = OpenOptions::new();
    arguments.write(true).create_new(true);
    let begun = Instant::now();
    for name in &names {
        arguments.open(name).context("make a file")?;
    }
    let made = begun.elapsed();
    for name in &names {
        std::fs::remove_file(name).context("remove a file")?;
    }
    let removed = begun.elapsed().saturating_sub(made);
    std::fs::remove_dir(&dir).context("remove the directory of the files")?;
    Ok((to_f64(FILES) / made.as_secs_f64(), to_f64(FILES) / removed.as_secs_f64()))
}

/// Returns the transactions per second of Debian's PostMark over its whole run, timed here, since
/// PostMark counts only whole seconds.
pub(super) fn postmark(env: &Env, point: &Path) -> Result<f64> {
    let (files, transactions) = env.choose((1000, 4000), (200, 800));
    let (dir, script) = (point.join("postmark"), env.file("mount-speed.script"));
    std::fs::create_dir(&dir).context("make a directory for PostMark")?;
    fio::postmark_script(&script, &dir, (files, transactions), 10_000)?;
    let begun = Instant::now();
    let out = capture(cmd!(60, "postmark {script}"))?;
    let took = begun.elapsed().as_secs_f64();
    let is_well = out.ok() && out.stdout.contains("deleted") && !out.stderr.contains("Error");
    ensure!(is_well, "PostMark failed: {}", run::tail(&out.stderr));
    std::fs::remove_dir(&dir).context("remove the directory of PostMark")?;
    Ok(to_f64(transactions) / took)
}

/// Returns the reads per second of a file that was just read.
pub(super) fn reads(env: &Env, point: &Path, options: &str) -> Result<f64> {
    let file = point.join("file");
    if !file.exists() {
        image::create_filled(&file, FILE_MIB, 1)?;
        // Synced, so that no trial waits for writeback.
        File::open(&file).and_then(|file| file.sync_all()).context("write the file out")?;
    }
    let mut read = File::open(&file).context("open the file")?;
    // The physical placement of the page cache changes the speed of reads by a fifth, and cached
    // pages would have the same placement in all rounds.
    fadvise(&read, 0, None, Advice::DontNeed).context("drop the file from the page cache")?;
    std::io::copy(&mut read, &mut std::io::sink()).context("read the file once")?;
    let (seconds, size) = (env.choose("3", "1"), FILE_MIB.to_string());
    let args = "--ioengine=psync --readonly --thread --time_based --invalidate=0".split(' ');
    let options = options.split(' ');
    let mut fio = cmd!(
        63,
        "fio --name=job {args...} --runtime={seconds} --size={size}m --filename={file} {options...}"
    );
    Ok(fio::run_command(&mut fio)?.per_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_the_median_of_the_ratios_of_the_rounds() {
        const PEERS: Peers = &[(BINDFS, 1.3), (RCLONE, 1.31)];
        let (larder, peer) = (Some(vec![140.0, 120.0, 130.0]), Some(vec![100.0; 3]));
        let mut record = Record::new(Path::new("."), "a test", &[], &json!({})).unwrap();
        let mut claims = Claims::default();
        for (least, all) in [(130.0, [&larder, &peer, &peer]), (131.0, [&larder, &peer, &None])] {
            let contest = (LARDER, CREATES, PEERS, CREATES, Some(least));
            judge(contest, &all.map(Clone::clone), &mut claims, &mut record);
        }
        let verdicts: Vec<_> = claims.list.iter().map(|it| it.verdict.word()).collect();
        assert_eq!(verdicts, ["yes", "NO", "yes", "skipped", "yes", "NO"]);
        assert!(claims.list[0].figure.contains("1.30 times (1.20 to 1.40)"), "{claims:?}");
    }
}
