//! The predicted cost beside that of reads of a disk with a limit of operations.

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};

use super::*;
use crate::record::Record;
use rustix::fs::OFlags;

/// The maximum relative difference between the predicted and the measured ratio of times.
const APART_MAX: f64 = 0.15;
const BLOCK: u64 = 4096;
const BLOCK_BYTES: usize = 4096;
/// Length of a fragment, and of a file.
const FRAGMENT: u64 = 16 * BLOCK;
const FILE: u64 = 64 * MIB;
/// Operations per second of the disk.
const LIMIT: u32 = 200;
/// The class of a read that the recording cache served.
const HIT: u8 = 1;
/// Shares of the requests that cross the end of a fragment, percent.
const SHARES: [u64; 3] = [0, 2, 98];

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let directory = env.file("cost");
    std::fs::create_dir_all(&directory).context("make a directory")?;
    let image = image::create_sparse(&directory.join("cost.img"), 512 * MIB)?;
    let disk = Disk::attach(&image)?;
    let file_system = FileSystem::on(&directory, disk.path(), Kind::Ext4)?;
    file_system.make()?;
    file_system.mount()?;
    let (larder, point) = (&env.larder, file_system.point());
    let (size, extents) = (FILE.to_string(), (FILE / FRAGMENT).to_string());
    let made = "--files 2 --size";
    let made: Vec<&str> = made.split(' ').collect();
    stdout_of(cmd!(120, "{larder} bench fragments {point} {made...} {size} --extents {extents}"))?;
    let [fragmented, contiguous] =
        ["fragmented", "contiguous"].map(|kind| point.join(kind).join("file-1"));
    let requests = env.choose(600, 200);
    let settings = json!({ "requests": requests, "operations/s": LIMIT, "fragment": FRAGMENT });
    let statement = "cost of fragmentation, predicted and measured";
    let mut record = Record::new(&env.root, statement, &[], &settings)?;
    disk.limit(LIMIT)?;
    for share in SHARES {
        let offsets = offsets(share, requests, &mut Rng::with_seed(env.options.seed));
        let trace = write_trace(env, &fragmented, &offsets, 0)?;
        let model = format!("iops:{LIMIT}");
        let found =
            json_of(cmd!("{larder} frag {fragmented} --trace {trace} --device {model} --json"))?;
        let cost = &found["cost"];
        let of = |layout: &str| number(&cost[layout], "seconds");
        let predicted = of("now")? / of("contiguous")?;
        let crossing = number(cost, "crossing_requests")? / number(cost, "device_requests")?;
        let [now, whole] = [read(&fragmented, &offsets)?, read(&contiguous, &offsets)?];
        let measured = now / whole;
        record.series(
            &format!("{share} %: times as long, predicted and measured"),
            "",
            &[predicted, measured],
            4,
        );
        let kind = found["verdict"]["kind"].as_str().unwrap_or_default();
        outln!("   {}", found["verdict"]["reason"]);
        let is_worth = share > 50;
        claims.add_with_peer(
            format!("{share} % of the requests cross a fragment: cost within 15 %, and the answer"),
            format!("{:.1} % cross, {predicted:.3}x the time, {kind}", 100.0 * crossing),
            format!("measured {measured:.3}x"),
            (predicted / measured - 1.0).abs() <= APART_MAX
                && (kind == "repair") == is_worth
                && (100.0 * crossing - to_f64(share)).abs() < 1.0,
        );
    }
    disk.limit(0)?;
    not_worth_it(env, claims, &fragmented)?;
    if !env.options.quick {
        outln!("   recorded in {}", record.write("frag")?);
    }
    file_system.unmount_unchecked()
}

/// Checks the answer where contiguous files gain nothing: on SSDs, and for what a cache serves.
fn not_worth_it(env: &Env, claims: &mut Claims, fragmented: &Path) -> Result<()> {
    let larder = &env.larder;
    let offsets = offsets(2, 600, &mut Rng::with_seed(env.options.seed));
    let trace = write_trace(env, fragmented, &offsets, 0)?;
    let kind = |options: &[&str]| -> Result<String> {
        let found =
            json_of(cmd!("{larder} frag {fragmented} --trace {trace} {options...} --json"))?;
        Ok(format!("{}: {}", found["verdict"]["kind"], found["verdict"]["reason"]))
    };
    for device in ["ssd", "nvme"] {
        claims.check(format!("2 % cross on {device}: not worth it"), || {
            let answer = kind(&["--device", device])?;
            ensure!(answer.contains("not-worth-it"), "{answer}");
            Ok(answer)
        });
    }
    claims.check("requests that the recording cache served: not worth it", || {
        write_trace(env, fragmented, &offsets, HIT)?;
        let answer = kind(&["--device", "disk"])?;
        ensure!(answer.contains("not-worth-it"), "{answer}");
        Ok(answer)
    });
    claims.check("reads in order behind a simulated cache: not worth it", || {
        let offsets: Vec<u64> = (0..2_000).map(|number| number % 100 * 2 * BLOCK).collect();
        write_trace(env, fragmented, &offsets, 0)?;
        let answer = kind(&["--device", "ssd", "--cache", "64MiB"])?;
        ensure!(answer.contains("not-worth-it"), "{answer}");
        Ok(answer)
    });
    Ok(())
}

/// Returns the offsets of reads of two blocks, of which this share crosses the end of a fragment.
fn offsets(share: u64, requests: u64, random: &mut Rng) -> Vec<u64> {
    let fragments = FILE / FRAGMENT;
    let offset = |number: u64| {
        let is_crossing = number * share / 100 != (number + 1) * share / 100;
        let fragment = random.u64(0..fragments - 1) * FRAGMENT;
        let inside = if is_crossing { 15 } else { random.u64(0..15) };
        fragment + inside * BLOCK
    };
    (0..requests).map(offset).collect()
}

/// Writes the reads as a trace of a file.
fn write_trace(env: &Env, file: &Path, offsets: &[u64], class: u8) -> Result<PathBuf> {
    let mut text = String::from(
        "time_ns,offset,len,latency_ns,volume,file,process,op,class,volume_name,file_name,\
         process_name\n",
    );
    for (number, offset) in offsets.iter().enumerate() {
        let (time, len, name) = (number * 1_000_000, 2 * BLOCK, file.display());
        writeln!(text, "{time},{offset},{len},0,0,1,1,read,{class},,{name},reader")?;
    }
    let path = env.file("requests.csv");
    std::fs::write(&path, text).context("write a trace")?;
    Ok(path)
}

/// Reads two blocks at each offset without the page cache; returns the seconds.
fn read(path: &Path, offsets: &[u64]) -> Result<f64> {
    let flags = OFlags::DIRECT.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).context("open a file")?;
    let mut memory = vec![0; 3 * BLOCK_BYTES];
    let start = memory.as_ptr().align_offset(BLOCK_BYTES);
    let buffer = &mut memory[start..start + 2 * BLOCK_BYTES];
    let begun = Instant::now();
    for offset in offsets {
        file.read_exact_at(buffer, *offset).context("read a file")?;
    }
    Ok(begun.elapsed().as_secs_f64())
}
