//! As much memory on both sides: the page cache of the disk alone gets in addition what Larder has
//! on the other.
//!
//! Nothing has to be won here. Larder lies below a file system whose page cache holds a second time
//! what is read most, so that of the same memory it makes less; what it can win is by what it
//! keeps and by how it writes.

use anyhow::Result;

use super::{GROUP_MIB, MEMORY_MIB, PER_S, Side, Stand, postmark, stand};
use crate::prove::{Claims, Lab};
use crate::{fio, run};

/// What is read: twice the memory.
const FILE_MIB: u64 = 2 * (GROUP_MIB + MEMORY_MIB);
/// Of Zipf's distribution: some blocks are read very often, and most are read at last.
const SKEW: &str = "--random_distribution=zipf:1.1";
/// Requests before the measured ones, on a disk that is not slow yet: four for each block.
const WARM_REQUESTS: u64 = 4 * FILE_MIB * 256;

/// Shows both workloads; `cached` are the seconds of PostMark with Larder, by `--flush`.
pub(super) fn run(lab: &Lab, claims: &mut Claims, cached: &[(&str, f64)]) -> Result<()> {
    let whole = GROUP_MIB + MEMORY_MIB;
    let alone = stand(lab, Side::Alone, whole, |stand| {
        stand.disk.limit(PER_S)?;
        postmark(stand)
    })?;
    for (flush, seconds) in cached {
        claims.against(
            format!("the same memory: PostMark, --flush {flush} (told only)"),
            format!("{seconds:.1} s, {:.2} times", alone / seconds),
            format!("{whole} MiB of page cache: {alone:.1} s"),
            true,
        );
    }
    let alone = stand(lab, Side::Alone, whole, reads)?;
    let ours = stand(lab, Side::Cached("keep"), GROUP_MIB, reads)?;
    claims.against(
        "the same memory: skewed random reads of twice as much (told only)".to_owned(),
        format!("{ours:.0} per second, {:.2} times", ours / alone),
        format!("{whole} MiB of page cache: {alone:.0} per second"),
        true,
    );
    Ok(())
}

/// Reads of 4 KiB per second when the caches are warm.
fn reads(stand: &Stand<'_>) -> Result<f64> {
    let (warm, seconds) = stand.lab.either((WARM_REQUESTS, 60), (WARM_REQUESTS / 100, 5));
    read(stand, &["--create_only=1"])?;
    stand.settle()?;
    read(stand, &[&format!("--number_ios={warm}"), "--io_size=1t"])?;
    stand.disk.limit(PER_S)?;
    // Another seed: not the same blocks in the same order.
    let timed = format!("--runtime={seconds}");
    let text = read(stand, &["--time_based", &timed, "--randseed=7"])?;
    Ok(fio::parse(&text)?.per_s)
}

fn read(Stand { group, point, .. }: &Stand<'_>, options: &[&str]) -> Result<String> {
    let mut fio = run::client(600, "fio");
    fio.args(["--name=reads", "--ioengine=psync", "--rw=randread", "--bs=4k", SKEW]);
    fio.args(["--norandommap", "--invalidate=0", "--output-format=json"]);
    fio.arg(format!("--size={FILE_MIB}m")).arg("--filename").arg(point.join("file"));
    run::text(&mut group.enter(fio.args(options)))
}
