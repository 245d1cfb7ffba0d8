//! `larder bench iozone`: its access orders, traced as system calls, compared with those of IOzone
//! 3.487; the automatic grid on a file system of 4 GiB, by a test of the command; and throughput
//! mode.

use super::long_tests;
use super::prelude::*;
use crate::disk::FileSystem;
use crate::image::GIB;

/// The size of a record in bytes.
const RECORD: u64 = 4096;
/// The random order of four records, and of sixteen.
const RANDOM: [&[u64]; 2] =
    [&[0, 3, 1, 2], &[3, 15, 8, 1, 12, 9, 7, 2, 5, 0, 6, 10, 14, 13, 4, 11]];

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let statement = "random and stride orders of IOzone, as system calls on 4, 16 and 40 records";
    claims.check(statement, || orders(env));
    if env.options.quick {
        return Ok(());
    }
    let statement = "the automatic grid on a file system of 4 GiB";
    require(run::unmet_requirement(&["losetup", "mkfs.ext4"]))?;
    let image = image::create_sparse(&env.file("iozone.img"), 4 * GIB)?;
    let file_system = FileSystem::new(env.dir(), &image)?;
    let point = file_system.point();
    let place = ("LARDER_IOZONE_DIR", &*point.to_string_lossy());
    let of = ("larder", "the_automatic_grid", "shown: ");
    long_tests::add_test_claim(env, claims, statement, of, &[place]);
    claims
        .check("1 to 4 threads: rates of parent and children in each pass", || threads(env, point));
    file_system.end()
}

fn orders(env: &Env) -> Result<String> {
    require(missing_program(&["strace"]))?;
    let mut calls = 0;
    for known in RANDOM {
        let (reads, writes) = traced(env, "2", known.len())?;
        ensure!(reads == known, "{} records are read as {reads:?}", known.len());
        ensure!(writes == known, "{} records are written as {writes:?}", known.len());
        calls += reads.len() + writes.len();
    }
    let times = |records: &[u64], record: u64| records.iter().filter(|it| **it == record).count();
    let (reads, writes) = traced(env, "2", 40)?;
    ensure!(reads == writes, "random reads and writes differ");
    ensure!((0..40).all(|record| times(&reads, record) == 1), "{reads:?}");
    let (strides, _) = traced(env, "5", 40)?;
    ensure!(strides[..6] == [0, 17, 34, 1, 18, 35] && strides.len() == 40, "{strides:?}");
    ensure!([38, 39, 17, 34].map(|it| times(&strides, it)) == [0, 0, 2, 2], "{strides:?}");
    ensure!(traced(env, "5", 16)?.0 == [0; 16], "strides over 16 records do not stay at record 0");
    calls += reads.len() + writes.len() + strides.len() + 16;
    Ok(format!("{calls} calls"))
}

/// Returns the records that a test reads, and those that it writes, in order.
fn traced(env: &Env, test: &str, records: usize) -> Result<(Vec<u64>, Vec<u64>)> {
    let (larder, dir, log) = (&env.larder, env.dir(), env.file("calls"));
    let kib = (records * 4).to_string();
    let trace = "-qq -f -y -s 0 -e trace=pread64,pwrite64 -e signal=none".split(' ');
    let arguments = ["-r", "4k", "--start", "as-is", "--trials", "1"];
    stdout_of(cmd!(
        60,
        "strace {trace...} -o {log}
         {larder} bench iozone {dir} -i {test} -s {kib}k {arguments...}"
    ))?;
    // The offset in a call such as `7 pread64(5</tmp/x>, ""..., 4096, 12288) = 4096`.
    let of = |name: &str| -> Result<Vec<u64>> {
        let place = format!(r"s/.*{name}\(.*\/larder-iozone-.*, ([0-9]+)\) += {RECORD}$/\1/p");
        let places = stdout_of(cmd!("sed -nE {place} {log}"))?;
        places.lines().map(|place| Ok(place.parse::<u64>()? / RECORD)).collect()
    };
    Ok((of("pread64")?, of("pwrite64")?))
}

/// Runs throughput mode with one to four threads.
fn threads(env: &Env, dir: &Path) -> Result<String> {
    let (larder, at) = (&env.larder, env.file("threads.json"));
    let arguments = "-u 4 -s 64m -r 64k -i 0 -i 1 -i 2 -i 3 -i 5 -i 8 --trials 1".split(' ');
    let output = stdout_of(cmd!(1800, "{larder} bench iozone {dir} {arguments...} --output {at}"))?;
    for statement in ["Children see throughput", "Parent sees throughput", "Min xfer"] {
        let seen = output.lines().filter(|line| line.starts_with(statement)).count();
        ensure!(seen == 4 * 9, "{statement}: {seen} lines");
    }
    let (record, mut figures) = (record::read(&at)?, Vec::new());
    for number in 1..=4 {
        let of =
            |name: &str| record::series_median(&record, &format!("read{name} at threads {number}"));
        let (children, mean) = (of("")?, of(", mean of threads")?);
        let (min, max) = (of(", slowest thread")?, of(", fastest thread")?);
        ensure!(min <= mean && mean <= max, "{min}, {mean}, {max}");
        let sum = mean * f64::from(number);
        ensure!((sum / children - 1.0).abs() < 1e-9, "{sum} is not {children}");
        figures.push(format!("{:.1}/{:.1}", children / 1e9, of(", parent")? / 1e9));
    }
    Ok(format!("read, children/parent: {} GB/s", figures.join(", ")))
}
