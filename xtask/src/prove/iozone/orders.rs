//! The orders of random and stride tests, as strace shows them, against what was seen of IOzone
//! 3.487 in the same way.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use crate::prove::{Claims, Lab};
use crate::run;

/// Bytes of a record here.
const RECORD: u64 = 4096;
/// The order of four records, and of sixteen.
const RANDOM_4: [u64; 4] = [0, 3, 1, 2];
const RANDOM_16: [u64; 16] = [3, 15, 8, 1, 12, 9, 7, 2, 5, 0, 6, 10, 14, 13, 4, 11];

/// Runs it.
pub(super) fn run(lab: &Lab, claims: &mut Claims) {
    let what = "random and stride orders of IOzone, as system calls on 4, 16 and 40 records";
    if !run::installed("strace") {
        claims.skip(what, "strace is not installed (apt-get install strace)");
        return;
    }
    claims.tried(what, || {
        let mut calls = 0;
        for (records, known) in [(4, &RANDOM_4[..]), (16, &RANDOM_16)] {
            let (reads, writes) = traced(lab, 2, records)?;
            ensure!(reads == known, "{records} records are read as {reads:?}");
            ensure!(writes == known, "{records} records are written as {writes:?}");
            calls += reads.len() + writes.len();
        }
        let (reads, writes) = traced(lab, 2, 40)?;
        ensure!(reads == writes, "random reads and writes differ");
        let times = count(&reads);
        ensure!(times.len() == 40 && times.values().all(|times| *times == 1), "{reads:?}");
        let (strides, _) = traced(lab, 5, 40)?;
        ensure!(strides[..6] == [0, 17, 34, 1, 18, 35], "{strides:?}");
        let times = count(&strides);
        let of = |record: u64| times.get(&record).copied().unwrap_or(0);
        ensure!(strides.len() == 40 && [38, 39, 17, 34].map(of) == [0, 0, 2, 2], "{strides:?}");
        ensure!(traced(lab, 5, 16)?.0 == [0; 16], "a file of 16 records is read elsewhere");
        calls += reads.len() + writes.len() + strides.len() + 16;
        Ok(format!("{calls} calls"))
    });
}

fn count(records: &[u64]) -> BTreeMap<u64, u64> {
    let mut times = BTreeMap::new();
    for record in records {
        *times.entry(*record).or_insert(0) += 1;
    }
    times
}

/// The records that a test reads, and those that it writes, in their order.
fn traced(lab: &Lab, test: u8, records: u64) -> Result<(Vec<u64>, Vec<u64>)> {
    let log = lab.file("calls");
    let mut strace = run::client(60, "strace");
    strace.args([
        "-qq",
        "-f",
        "-y",
        "-s",
        "0",
        "-e",
        "trace=pread64,pwrite64",
        "-e",
        "signal=none",
    ]);
    strace.arg("-o").arg(&log).arg(&lab.binary).args(["bench", "iozone"]).arg(lab.dir());
    strace.args(["-i", &test.to_string(), "-s", &format!("{}k", records * RECORD / 1024)]);
    strace.args(["-r", "4k", "--start", "as-is", "--trials", "1"]);
    run::text(&mut strace)?;
    let calls = std::fs::read_to_string(&log).context("read what strace saw")?;
    let of = |name: &str| -> Vec<u64> {
        let lines = calls.lines().filter(|line| line.contains("/larder-iozone-"));
        let found = lines.filter(|line| line.contains(name));
        found.filter_map(place).map(|place| place / RECORD).collect()
    };
    Ok((of("pread64("), of("pwrite64(")))
}

/// The place of a call: `7 pread64(5</tmp/x>, ""..., 4096, 12288) = 4096`.
fn place(line: &str) -> Option<u64> {
    let (call, done) = line.rsplit_once(") = ")?;
    let place = call.rsplit_once(", ")?.1.parse().ok()?;
    (done.trim().parse() == Ok(RECORD)).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_whole_calls_are_read() {
        let line = "12 pread64(5</tmp/x>, \"\"..., 4096, 12288) = 4096";
        assert_eq!(place(line), Some(12_288));
        assert_eq!(place("12 pread64(5</tmp/x>, \"\", 4096, 12288) = 0"), None);
        assert_eq!(place("12 pread64(5</tmp/x>,  <unfinished ...>"), None);
    }
}
