//! `larder frag repair` on aged file systems: contents, checks, gain per byte beside e4defrag and
//! `xfs_fsr`, and kills at random moments.

mod kills;
mod power;

use std::collections::BTreeMap;
use std::fs::File;

use super::prelude::*;
use crate::disk::{Disk, FileSystem, Kind};
use crate::image::GIB;

/// Length of a file system, and of its files together.
const BYTES: u64 = 4 * GIB;
const FILES: usize = 300;
const FILES_QUICK: usize = 60;
/// Mean length of a file.
const FILE_BYTES: u64 = 5 << 20;
const BLOCK: u64 = 4096;
/// One of so many files is in use.
const HOT: usize = 10;
/// Requests to the files in use.
const REQUESTS: u64 = 4_000;
const READ_BYTES: u64 = 68 << 10;
/// The least ratio of the gains per byte.
const RATIO_MIN: f64 = 2.0;

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(Disk::unavailable_reason())?;
    let programs = ["e4defrag", "xfs_fsr", "e2fsck", "xfs_repair", "python3"];
    require(missing_program(&programs))?;
    for kind in [Kind::Ext4, Kind::Xfs] {
        repair(env, claims, kind)?;
        kills::run(env, claims, kind)?;
        power::run(env, claims, kind)?;
    }
    Ok(())
}

/// Makes a file system of this length on an image.
fn make(env: &Env, name: &str, kind: Kind, bytes: u64) -> Result<(PathBuf, FileSystem)> {
    let directory = env.file(name);
    std::fs::create_dir_all(&directory).context("make a directory")?;
    let image = image::create_sparse(&directory.join("repair.img"), bytes)?;
    let file_system = FileSystem::attach(&directory, &image, kind)?;
    file_system.make()?;
    file_system.mount()?;
    Ok((image, file_system))
}

/// Ages a file system, and returns the directory of its files: each has its pieces between those of
/// others, some have holes, and a third is replaced.
fn age(env: &Env, file_system: &FileSystem, (files, bytes): (usize, u64)) -> Result<PathBuf> {
    let (larder, point, seed) = (&env.larder, file_system.point(), env.options.seed.to_string());
    let (files, bytes) = (files.to_string(), bytes.to_string());
    let options = ["--fragments", "100000", "--rounds", "2", "--files", &files, "--size", &bytes];
    let aged = stdout_of(cmd!(300, "{larder} bench age {point} --seed {seed} {options...}"))?;
    outln!("   {}", aged.lines().next().unwrap_or_default());
    stdout_of(cmd!(300, "sync"))?;
    Ok(point.join("aged"))
}

/// Returns a checksum and the places of the holes of each file.
fn contents(directory: &Path) -> Result<BTreeMap<String, String>> {
    use std::fmt::Write as _;
    const SCRIPT: &str = "cd \"$1\" && find . -type f -print0 | sort -z | xargs -0 sha256sum -b";
    let out = stdout_of(cmd!(300, "sh -c {SCRIPT} sh {directory}"))?;
    let pairs = out.lines().filter_map(|line| line.split_once(" *"));
    let mut found: BTreeMap<_, _> =
        pairs.map(|(sum, name)| (name.to_owned(), sum.to_owned())).collect();
    for (name, sum) in &mut found {
        let file = File::open(directory.join(name))?;
        let mut at = 0;
        while let Ok(hole) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(at)) {
            write!(sum, " {hole}")?;
            match rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(hole)) {
                Ok(data) => at = data,
                Err(_) => break,
            }
        }
    }
    Ok(found)
}

/// Writes reads of the files in use as a trace.
fn write_trace(env: &Env, directory: &Path, files: usize, random: &mut Rng) -> Result<PathBuf> {
    use std::fmt::Write as _;
    let mut text = String::from(
        "time_ns,offset,len,latency_ns,volume,file,process,op,class,volume_name,file_name,\
         process_name\n",
    );
    let hot: Vec<(PathBuf, u64)> = (0..files / HOT)
        .map(|number| {
            let path = directory.join(format!("file-{}", number * HOT + 1));
            let bytes = path.metadata().map_or(0, |found| found.len());
            (path, bytes)
        })
        .collect();
    for number in 0..REQUESTS {
        let index = random.usize(0..hot.len());
        let (path, bytes) = &hot[index];
        let at = random.u64(0..(bytes - READ_BYTES) / BLOCK) * BLOCK;
        let (time, name, file) = (number * 1_000_000, path.display(), index + 1);
        writeln!(text, "{time},{at},{READ_BYTES},0,0,{file},1,read,0,,{name},reader")?;
    }
    let path = env.file("requests.csv");
    std::fs::write(&path, text).context("write a trace")?;
    Ok(path)
}

/// Returns the share of the requests that cross the end of a fragment, and their time on the model.
fn cost(env: &Env, directory: &Path, trace: &Path) -> Result<(f64, f64)> {
    let larder = &env.larder;
    let found = json_of(cmd!("{larder} frag {directory} --trace {trace} --device disk --json"))?;
    let cost = &found["cost"];
    let crossing = number(cost, "crossing_requests")? / number(cost, "device_requests")?;
    Ok((crossing, number(&cost["now"], "seconds")?))
}

/// Repairs an aged file system, and a copy of it with the program of the file system.
fn repair(env: &Env, claims: &mut Claims, kind: Kind) -> Result<()> {
    let name = kind.name();
    let mut random = Rng::with_seed(env.options.seed);
    let files = env.choose(FILES, FILES_QUICK);
    let (image, file_system) = make(env, name, kind, BYTES)?;
    let directory = age(env, &file_system, (files, FILE_BYTES))?;
    let trace = write_trace(env, &directory, files, &mut random)?;
    let before = contents(&directory)?;
    file_system.unmount_unchecked()?;
    let copy = env.file(&format!("{name}/copy.img"));
    stdout_of(cmd!(300, "cp --sparse=always {image} {copy}"))?;

    let ours = program(env, kind, &image, &trace, &before, |directory| {
        let (larder, journal) = (&env.larder, env.file("journal"));
        let options = ["--device", "disk", "--json"];
        let out = json_of(cmd!(
            600,
            "{larder} frag repair {directory} --trace {trace} --journal {journal} {options...}"
        ))?;
        outln!(
            "   {name}: {} files moved; predicted {}, after {}, measured {}",
            out["moved"].as_array().map_or(0, Vec::len),
            out["predicted_s"],
            out["after_s"],
            out["measured_s"]
        );
        Ok(())
    })?;
    let theirs = program(env, kind, &copy, &trace, &before, |directory| {
        if kind == Kind::Ext4 {
            stdout_of(cmd!(600, "e4defrag {directory}"))?;
            return Ok(());
        }
        let point = directory.parent().context("a mount point")?;
        let device = stdout_of(cmd!("findmnt -n -o SOURCE {point}"))?;
        let device = device.trim();
        // The state of its passes must not be that of another file system.
        let state = env.file("fsr-state");
        capture(cmd!(600, "xfs_fsr -v -t 500 -f {state} {device}"))?;
        Ok(())
    })?;
    let peer = if kind == Kind::Ext4 { "e4defrag" } else { "xfs_fsr" };
    claims.add(
        format!("{name}: contents and holes stay, the file system is clean"),
        format!("{} files", before.len()),
        ours.is_same,
    );
    let show = |it: &Outcome| {
        format!(
            "{:.1} -> {:.1} % cross, {:.2} -> {:.2} s, {} MiB written",
            100.0 * it.before.0,
            100.0 * it.after.0,
            it.before.1,
            it.after.1,
            it.written >> 20
        )
    };
    let per_byte = |it: &Outcome| (it.before.1 - it.after.1) / to_f64(it.written.max(1));
    let ratio = per_byte(&ours) / per_byte(&theirs);
    claims.add_with_peer(
        format!("{name}: gain per byte written, at least 2x that of {peer}"),
        format!("{ratio:.1}x; {}", show(&ours)),
        format!("{peer}: {}", show(&theirs)),
        ratio >= RATIO_MIN && ours.after.1 < ours.before.1,
    );
    Ok(())
}

/// The result of a program on a file system.
struct Outcome {
    before: (f64, f64),
    after: (f64, f64),
    written: u64,
    is_same: bool,
}

fn program(
    env: &Env,
    kind: Kind,
    image: &Path,
    trace: &Path,
    expected: &BTreeMap<String, String>,
    run: impl FnOnce(&Path) -> Result<()>,
) -> Result<Outcome> {
    let disk = Disk::attach(image)?;
    let directory = env.file(kind.name());
    let file_system = FileSystem::on(&directory, disk.path(), kind)?;
    file_system.mount()?;
    let data = file_system.point().join("aged");
    let before = cost(env, &data, trace)?;
    let (_, written) = disk.write_counts()?;
    run(&data)?;
    stdout_of(cmd!(300, "sync"))?;
    let written = disk.write_counts()?.1 - written;
    let after = cost(env, &data, trace)?;
    let is_same = contents(&data)? == *expected;
    file_system.end()?;
    Ok(Outcome { before, after, written, is_same })
}
