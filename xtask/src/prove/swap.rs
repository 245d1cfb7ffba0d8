//! PostMark while memory is short, in the guest: swap on a slow disk, against swap on the same disk
//! through `larder serve` with 256 MiB. The disk is a modeled laptop disk, which a server on the
//! host exports with real delays. The script `xtask/guest/swap` runs the trials.
//!
//! As in the publication of about 2007, the cache has memory that the programs do not have. With as
//! much more memory for the programs instead, there is less to swap; those trials are reported
//! without a verdict.

use super::guest::GuestScript;
use super::prelude::*;
use crate::record::Record;
use crate::stats::{Spread, median};

/// The modeled disk, and its size.
const MODEL: &str = "laptop-7200";
const DISK_MIB: u64 = 2048;
/// The published times of PostMark, seconds.
const PUBLISHED: &str = "about 2007: 124 s and 70 s, 1.77 times";
/// The trials, as the script names them.
const NAMES: [&str; 3] = ["disk", "larder", "memory"];

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    #[rustfmt::skip]
    let programs = [
        "postmark", "nbd-client", "mkfs.ext4", "mkswap", "swapon", "dmsetup", "python3",
    ];
    require(missing_program(&programs))?;
    let image = image::create_sparse(&env.file("swap.img"), DISK_MIB * MIB)?;
    let (larder, image) = (env.larder.display(), image.display());
    let line = format!("{larder} model serve {MODEL} {image} --listen unix:SOCKET");
    let server = Peer::new("larder model serve", line).start(env.dir())?;
    let out = env.file("guest");
    std::fs::create_dir(&out).context("make a directory")?;
    std::fs::copy(&env.larder, out.join("larder")).context("copy larder")?;
    std::fs::write(out.join("trials"), env.choose("3", "1"))
        .context("write the number of trials")?;
    let script = GuestScript {
        name: "swap",
        subject: "swap on a slow disk, in the guest",
        ends: "the guest runs all trials",
        options: vec!["--disk".into(), server.uri().into()],
        out: &out,
        // Three trials of each take 20 minutes with an emulated processor.
        limit_s: 3600,
    };
    let has_run = script.run(env, claims)?;
    server.stop_clean()?;
    if has_run {
        judge(env, claims, &std::fs::read_to_string(out.join("seconds")).context("read seconds")?)?;
    }
    Ok(())
}

/// Adds the claims of the trials, of which each has a line: name, seconds, pages swapped in.
fn judge(env: &Env, claims: &mut Claims, trials: &str) -> Result<()> {
    let settings = json!({ "model": MODEL, "disk_bytes": DISK_MIB * MIB });
    let mut record = Record::new(&env.root, "PostMark and swap in the guest", &[], &settings)?;
    let [disk, cached, memory] = NAMES.map(|name| values(trials, name, 1));
    for name in NAMES {
        record.series(name, "s", &values(trials, name, 1), 1);
        record.series(&format!("{name}: swapped in"), "pages", &values(trials, name, 2), 0);
    }
    ensure!(!disk.is_empty() && disk.len() == cached.len(), "trials are missing:\n{trials}");
    let ratio = Spread::of_ratios(&disk, &cached);
    let seconds = |values: &[f64]| format!("{:.1} s", median(values));
    claims.add_with_peer(
        "PostMark while memory is short: faster with a cache for the swap device",
        format!("{}, {}", seconds(&cached), ratio.times()),
        format!("swap on the disk: {}; {PUBLISHED}", seconds(&disk)),
        ratio.median > 1.0,
    );
    claims.add_with_peer(
        "256 MiB more for the programs instead of the cache (not judged)",
        format!("{}, {}", seconds(&memory), Spread::of_ratios(&disk, &memory).times()),
        format!("swap on the disk: {}", seconds(&disk)),
        true,
    );
    record.comparison("time on the disk over time with the cache", ["larder", "disk"], ratio, 1.0);
    if !env.options.quick {
        outln!("   recorded in {}", record.write("swap")?);
    }
    Ok(())
}

/// Returns a column of the lines of a trial.
fn values(trials: &str, name: &str, column: usize) -> Vec<f64> {
    let lines = trials.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let of_name = lines.filter(|fields| fields.first() == Some(&name));
    of_name.filter_map(|fields| fields.get(column)?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_are_read_by_name() {
        let trials = "disk 12.5 900\nlarder 6.25 1000\ndisk 13 910\n";
        assert_eq!(values(trials, "disk", 1), [12.5, 13.0]);
        assert_eq!(values(trials, "larder", 2), [1000.0]);
        assert_eq!(values(trials, "memory", 1), [] as [f64; 0]);
    }
}
