//! The speed of `larder mount` beside bindfs, mergerfs and rclone, alternating in one run.
//!
//! Each program mounts a directory of its own of one ext4 on a loop device with direct I/O. All
//! reads are hits: the file was read just before. No other users are let in, from which larder
//! alone gains (docs/mount.md), and larder alone uses FUSE over io_uring.

use std::fs::{File, OpenOptions};

use rustix::fs::{Advice, fadvise};

use super::mount::fuse::{FuseMount, Program};
use super::prelude::*;
use crate::disk::FileSystem;
use crate::record::Record;
use crate::rings;
use crate::stats::{Spread, median, take_turns};

const IMAGE_MIB: u64 = 2048;
const NEEDS: [&str; 7] =
    ["losetup", "mkfs.ext4", "bindfs", "mergerfs", "rclone", "postmark", "fio"];
/// Bytes of the file that is read.
const FILE_MIB: u64 = 128;
/// Files that are made and removed: so few that all take their turns in the same state of the
/// machine.
const FILES: u64 = 1000;

/// So much memory that nothing that is read is evicted, and that writers are not throttled.
const LARDER: Program =
    Program { name: "larder", line: "LARDER mount --control none --memory 512MiB" };
/// All users are let in, whom the kernel checks against the modes of files.
const LARDER_FOR_ALL: Program = Program {
    name: "larder for all",
    line: "LARDER mount --control none --memory 512MiB --allow-other",
};
/// The kernel keeps pages too, as it does for bindfs.
const LARDER_PAGES: Program = Program {
    name: "larder",
    line: "LARDER mount --control none --memory 512MiB --rule *=kernel-pages=keep",
};
/// The peers let no other users in by default.
const BINDFS: Program = Program { name: "bindfs", line: "bindfs -f --no-allow-other" };
/// The kernel keeps no pages of its own. Without the last option it makes no file where less than
/// 4 GiB are free.
const MERGERFS: Program =
    Program { name: "mergerfs", line: "mergerfs -f -o cache.files=off,minfreespace=0" };
const RCLONE: Program = Program {
    name: "rclone full",
    line: "rclone mount --vfs-cache-mode full --cache-dir cache --config none.conf",
};
/// The least that PostMark works with: what is read is not cached on disk.
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
/// Here the options of the mount make the difference.
const KEPT: Workload = ("4 KiB random reads of kernel pages", "reads/s", "--rw=randread --bs=4k");
const KEPT_LARGE: Workload = ("1 MiB reads of kernel pages", "MB/s", "--rw=read --bs=1m");

/// A rate of larder that is required: so many times that of a peer with the workload that is its
/// counterpart, or so much a second.
type Bar = (Workload, Option<(Program, Workload)>, f64);

/// All bars.
fn bars() -> Vec<Bar> {
    let mut bars = Vec::new();
    for workload in [CREATES, DELETES, POSTMARK] {
        for (peer, times) in [(RCLONE, 2.0), (RCLONE_LEAST, 2.0), (BINDFS, 1.3), (MERGERFS, 1.3)] {
            bars.push((workload, Some((peer, workload)), times));
        }
        if workload != POSTMARK {
            bars.push((workload, Some((LARDER_FOR_ALL, workload)), 1.0));
        }
    }
    // Opened for direct I/O, mergerfs would ask the disk; without it, it has its kernel keep no
    // pages either, and finds its hits in the page cache below.
    bars.extend([
        (DIRECT_1, Some((MERGERFS, BUFFERED_1)), 1.0),
        (DIRECT_2, Some((MERGERFS, BUFFERED_2)), 1.0),
        (DIRECT_2, None, 130_000.0),
        (DIRECT_LARGE, None, 2500.0),
        (KEPT, Some((BINDFS, KEPT)), 0.9),
        (KEPT_LARGE, Some((BINDFS, KEPT_LARGE)), 0.9),
    ]);
    bars
}

/// Larder as it is with this workload.
fn ours(workload: Workload) -> Program {
    if [KEPT, KEPT_LARGE].contains(&workload) { LARDER_PAGES } else { LARDER }
}

/// The rates of a program with a workload, in the order of the rounds; none if a trial failed.
type Series = ((Program, Workload), Option<Vec<f64>>);

/// Runs the proof.
pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    if claims.skipped("speed of a mounted directory", run::missing(&NEEDS)) {
        return Ok(());
    }
    let _rings = rings::on()?;
    let mut settings = json!({
        "larder": LARDER.line, "larder for all": LARDER_FOR_ALL.line,
        "larder with kernel pages": LARDER_PAGES.line, "rclone": RCLONE.line,
        "fuse over io_uring": rings::are_on(), "mergerfs": MERGERFS.line,
        "bindfs": BINDFS.line, "source": "ext4 on a loop device with direct I/O",
    });
    settings["rounds"] = rounds(POSTMARK, false).into();
    settings["rounds of creates and deletes"] = rounds(CREATES, false).into();
    let what = "a mounted directory on ext4, beside bindfs, mergerfs and rclone";
    let programs = ["bindfs", "mergerfs", "rclone", "fio"];
    let mut record = Record::new(&env.root, what, &programs, &settings)?;
    let image = image::sparse(&env.file("mount-speed.img"), IMAGE_MIB * MIB)?;
    let file_system = FileSystem::new(env.dir(), &image)?;
    let measured = measure(env, file_system.point());
    file_system.end()?;
    let series = measured?;
    for (side, per_s) in &series {
        record.series(&name(*side), side.1.1, per_s.as_deref().unwrap_or_default(), 0);
    }
    for bar in bars() {
        judge(&series, bar, claims, &mut record)?;
    }
    if !env.options.quick {
        say!("   recorded in {}", record.write("mount-speed")?);
    }
    Ok(())
}

/// The name of a series.
fn name((program, workload): (Program, Workload)) -> String {
    format!("{}: {}", program.name, workload.0)
}

/// Rounds of a workload. Where a trial takes a tenth of a second there are many.
fn rounds(workload: Workload, quick: bool) -> usize {
    match (quick, [CREATES, DELETES].contains(&workload)) {
        (true, _) => 3,
        (false, true) => 35,
        (false, false) => 7,
    }
}

/// All trials of all programs, in turns.
fn measure(env: &Env, at: &Path) -> Result<Vec<Series>> {
    let mut mounts = Vec::new();
    for (number, program) in ALL.into_iter().enumerate() {
        let source = at.join(number.to_string());
        std::fs::create_dir(&source).context("make a directory to be mounted")?;
        mounts.push(FuseMount::start(env, program, &source)?);
    }
    let (mut all, bars) = (Vec::<Series>::new(), bars());
    for (workload, ..) in &bars {
        let mine = (ours(*workload), *workload);
        if all.iter().any(|(side, _)| *side == mine) {
            continue;
        }
        say!("   {}", workload.0);
        // All that take part in bars of this workload, on either side.
        let of = bars.iter().filter(|bar| bar.0 == *workload).filter_map(|bar| bar.1);
        let mut sides = vec![mine];
        sides.extend(of.filter(|side| !all.iter().any(|(known, _)| known == side)));
        let mut made: Vec<Series> = sides.into_iter().map(|it| (it, Some(Vec::new()))).collect();
        take_turns(rounds(*workload, env.options.quick), made.len(), |index| {
            let (side, per_s) = &mut made[index];
            let mount = mounts.iter().find(|mount| mount.program() == side.0);
            let point = mount.context("a program that is not mounted")?.point();
            let Some(rates) = per_s else { return Ok(()) };
            match trial(env, side.1, point) {
                Ok(rate) => rates.push(rate),
                Err(error) if *side == mine => return Err(error.context(workload.0)),
                // A peer whose trial fails is nothing to compare with.
                Err(error) => {
                    say!("   {}: {error:#}", name(*side));
                    *per_s = None;
                }
            }
            Ok(())
        })?;
        all.extend(made);
    }
    mounts.into_iter().try_for_each(FuseMount::stop_clean)?;
    Ok(all)
}

fn judge(
    all: &[Series],
    (workload, peer, required): Bar,
    claims: &mut Claims,
    record: &mut Record,
) -> Result<()> {
    let (title, unit, _) = workload;
    let find = |side: (Program, Workload)| {
        let found = all.iter().find(|it| it.0 == side).map(|it| it.1.as_deref());
        found.with_context(|| format!("no trial of {}", name(side)))
    };
    let mine = (ours(workload), workload);
    let rates = find(mine)?.context("no trial of larder")?;
    let (what, theirs, ratio, required, side) = if let Some(side) = peer {
        let peer = side.0.name;
        let Some(theirs) = find(side)? else {
            claims.skip(format!("{title}, beside {peer}"), "a trial of it failed");
            return Ok(());
        };
        let what = format!("{title}, at least {required} times {peer}");
        let middle = format!("{:.0} {unit}", median(theirs));
        (what, middle, Spread::of_ratios(rates, theirs), required, name(side))
    } else {
        let rate = format!("{required:.0} {unit}");
        let ratio = Spread::of_ratios(rates, &vec![required; rates.len()]);
        (format!("{title}, at least {rate}"), String::new(), ratio, 1.0, rate)
    };
    record.comparison(&what, [&name(mine), &side], ratio, required);
    let figure = format!("{:.0} {unit}, {}", median(rates), ratio.times());
    claims.against(what, figure, theirs, ratio.median >= required);
    Ok(())
}

/// The rate of one trial at a mountpoint.
fn trial(env: &Env, workload: Workload, point: &Path) -> Result<f64> {
    match workload {
        CREATES => made_and_removed(point).map(|(creates, _)| creates),
        DELETES => made_and_removed(point).map(|(_, deletes)| deletes),
        POSTMARK => postmark(env, point),
        (_, "MB/s", options) => Ok(reads(env, point, options)? * 1.048_576),
        (.., options) => reads(env, point, options),
    }
}

/// Empty files made and closed one after the other in a second, and removed.
fn made_and_removed(point: &Path) -> Result<(f64, f64)> {
    let dir = point.join("files");
    std::fs::create_dir(&dir).context("make a directory for files")?;
    let names: Vec<_> = (0..FILES).map(|number| dir.join(number.to_string())).collect();
    let mut how = OpenOptions::new();
    how.write(true).create_new(true);
    let begun = Instant::now();
    for name in &names {
        how.open(name).context("make a file")?;
    }
    let made = begun.elapsed();
    for name in &names {
        std::fs::remove_file(name).context("remove a file")?;
    }
    let removed = begun.elapsed().saturating_sub(made);
    std::fs::remove_dir(&dir).context("remove the directory of the files")?;
    Ok((to_f64(FILES) / made.as_secs_f64(), to_f64(FILES) / removed.as_secs_f64()))
}

/// Transactions of Debian's PostMark in a second of its whole run: it counts whole seconds alone.
fn postmark(env: &Env, point: &Path) -> Result<f64> {
    let (files, transactions) = env.either((1000, 4000), (200, 800));
    let (dir, script) = (point.join("postmark"), env.file("mount-speed.script"));
    std::fs::create_dir(&dir).context("make a directory for PostMark")?;
    fio::postmark_script(&script, &dir, (files, transactions), 10_000)?;
    let begun = Instant::now();
    let out = keep(cmd!(60, "postmark {script}"))?;
    let took = begun.elapsed().as_secs_f64();
    let is_well = out.ok() && out.stdout.contains("deleted") && !out.stderr.contains("Error");
    ensure!(is_well, "PostMark failed: {}", run::tail(&out.stderr));
    std::fs::remove_dir(&dir).context("PostMark left something")?;
    Ok(to_f64(transactions) / took)
}

/// Reads in a second, of a file that was read just before.
fn reads(env: &Env, point: &Path, options: &str) -> Result<f64> {
    let file = point.join("file");
    if !file.exists() {
        image::filled(&file, FILE_MIB, 1)?;
        // On the disk, so that no trial waits for it.
        File::open(&file).and_then(|file| file.sync_all()).context("write the file out")?;
    }
    let mut read = File::open(&file).context("open the file")?;
    // Where the kernel's pages happen to lie in memory is worth a fifth of the speed of reading
    // them, and they would lie there in all rounds if they were kept.
    fadvise(&read, 0, None, Advice::DontNeed).context("have the kernel forget the file")?;
    std::io::copy(&mut read, &mut std::io::sink()).context("read the file once")?;
    let (seconds, size) = (env.either("3", "1"), FILE_MIB.to_string());
    let how = "--ioengine=psync --readonly --thread --time_based --invalidate=0".split(' ');
    let options = options.split(' ');
    let mut fio = cmd!(
        63,
        "fio --name=job {how...} --runtime={seconds} --size={size}m --filename={file} {options...}"
    );
    Ok(fio::outcome(&mut fio)?.per_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_the_median_of_the_ratios_of_the_rounds() {
        let series = |program, per_s: [f64; 3]| ((program, CREATES), Some(per_s.to_vec()));
        let all = [series(LARDER, [140.0, 120.0, 130.0]), series(BINDFS, [100.0; 3])];
        let mut record = Record::new(Path::new("."), "a test", &[], &json!({})).unwrap();
        let mut claims = Claims::default();
        let peer = Some((BINDFS, CREATES));
        for (peer, required) in [(peer, 1.3), (peer, 1.31), (None, 130.0), (None, 131.0)] {
            judge(&all, (CREATES, peer, required), &mut claims, &mut record).unwrap();
        }
        let verdicts: Vec<_> = claims.list.iter().map(|it| it.verdict.word()).collect();
        assert_eq!(verdicts, ["yes", "NO", "yes", "NO"]);
        assert!(claims.list[0].figure.contains("1.30 times (1.20 to 1.40)"), "{claims:?}");
        let missing = (DELETES, Some((BINDFS, DELETES)), 1.0);
        assert!(judge(&all, missing, &mut claims, &mut record).is_err(), "it was not measured");
    }
}
