//! Runs fio and Debian's PostMark, and parses their output.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::run::{self, cmd};

/// Seconds for the setup of the jobs and the last replies, in addition to the run itself.
const SPARE_S: u64 = 120;

/// The result of a load: fio's, or that of [`crate::flood`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadResult {
    pub(crate) requests: u64,
    /// Requests per second, reads and writes.
    pub(crate) per_s: f64,
    /// Bytes read and written.
    pub(crate) bytes: u64,
    /// The 99.9th percentile of the latency of reads or writes, whichever is longer; milliseconds.
    pub(crate) p999_ms: f64,
}

impl LoadResult {
    /// Returns a summary for a table.
    pub(crate) fn summary(&self) -> String {
        format!("{} requests, {} MiB, no error", self.requests, self.bytes >> 20)
    }
}

/// Runs one group of fio jobs on an export, for `seconds`, or to the end of its file if that is 0.
pub(crate) fn run(uri: &str, seconds: u64, options: &[&str]) -> Result<LoadResult> {
    let mut fio = cmd!(seconds + SPARE_S, "fio --name=job --ioengine=nbd --uri={uri} {options...}");
    if seconds > 0 {
        fio.arg("--time_based").arg(format!("--runtime={seconds}"));
    }
    run_command(&mut fio)
}

/// Runs a fio command; fails if fio reports an error.
pub(crate) fn run_command(fio: &mut Command) -> Result<LoadResult> {
    parse(&run::json_of(fio.args(["--output-format=json", "--group_reporting"]))?)
}

fn parse(whole: &Value) -> Result<LoadResult> {
    let job = whole.pointer("/jobs/0").context("fio reports no job")?;
    let error = job["error"].as_i64().context("fio reports no error field")?;
    ensure!(error == 0, "fio reports error {error}");
    let sum = |field: &str| -> Option<u64> {
        Some(job["read"][field].as_u64()? + job["write"][field].as_u64()?)
    };
    let rate = |side: &str| job[side]["iops"].as_f64();
    // A side without requests has no percentiles.
    let p999 = |side: &str| job[side]["clat_ns"]["percentile"]["99.900000"].as_f64().unwrap_or(0.0);
    Ok(LoadResult {
        requests: sum("total_ios").context("fio reports no requests")?,
        per_s: rate("read").context("no read rate")? + rate("write").context("no write rate")?,
        bytes: sum("io_bytes").context("fio reports no bytes")?,
        p999_ms: p999("read").max(p999("write")) / 1e6,
    })
}

/// Writes a PostMark script for a run in `dir`, with `files` files of 500 to `largest` bytes and 4
/// KiB per read and write.
pub(crate) fn postmark_script(
    script: &Path,
    dir: &Path,
    (files, transactions): (u64, u64),
    largest: u64,
) -> Result<()> {
    let lines = format!(
        "set location {}\nset number {files}\nset size 500 {largest}\nset subdirectories 5\n\
         set transactions {transactions}\nset read 4096\nset write 4096\nrun\nquit\n",
        dir.display()
    );
    std::fs::write(script, lines).context("write a script for PostMark")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_error_that_fio_reports_is_an_error() {
        let times = json!({"percentile": {"99.900000": 3_000_000}});
        let side = json!({"total_ios": 2, "iops": 1.5, "io_bytes": 4096, "clat_ns": times});
        let made = |error: u32| json!({"jobs": [{"error": error, "read": side, "write": side}]});
        let good = parse(&made(0)).unwrap();
        assert_eq!((good.requests, good.bytes), (4, 8192));
        assert!((good.p999_ms - 3.0).abs() < 1e-9, "{good:?}");
        assert!(parse(&made(5)).is_err());
    }
}
