//! fio: as an NBD client what it is asked, and whatever it does what it answers.

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::run;

/// Room for the set-up of the jobs and the last answers, on top of the run itself.
const SPARE_S: u64 = 120;

/// What fio did.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    /// Requests completed.
    pub(crate) requests: u64,
    /// Requests per second, reads and writes.
    pub(crate) per_s: f64,
    /// Bytes read and written.
    pub(crate) bytes: u64,
    /// The 99.9th percentile of the time of a request, that of reads or writes, whichever is
    /// longer; milliseconds.
    pub(crate) p999_ms: f64,
}

impl Outcome {
    /// What it did, for a table.
    pub(crate) fn in_words(&self) -> String {
        format!("{} requests, {} MiB, no error", self.requests, self.bytes >> 20)
    }
}

/// Runs one group of fio jobs against an export.
pub(crate) fn run(uri: &str, seconds: u64, options: &[&str]) -> Result<Outcome> {
    let mut command = command(uri, seconds, options);
    let text = run::text(&mut command)?;
    parse(&text)
}

/// The command of a run, for those who start it in the background.
pub(crate) fn command(uri: &str, seconds: u64, options: &[&str]) -> Command {
    let mut command = run::client(seconds + SPARE_S, "fio");
    command.args(["--name=job", "--ioengine=nbd", "--output-format=json", "--group_reporting"]);
    command.arg(format!("--uri={uri}")).args(options);
    if seconds > 0 {
        command.arg("--time_based").arg(format!("--runtime={seconds}"));
    }
    command
}

/// What fio printed as JSON; an error if it met one.
pub(crate) fn parse(text: &str) -> Result<Outcome> {
    // Notes may come before the JSON.
    let start = text.find('{').context("fio printed no JSON")?;
    let whole: Value = serde_json::from_str(&text[start..]).context("parse what fio printed")?;
    let job = whole.pointer("/jobs/0").context("fio reports no job")?;
    let error = job["error"].as_i64().context("fio reports no error field")?;
    if error != 0 {
        bail!("fio met error {error}");
    }
    let sum = |field: &str| -> Option<u64> {
        Some(job["read"][field].as_u64()? + job["write"][field].as_u64()?)
    };
    let rate = |side: &str| job[side]["iops"].as_f64();
    // A side without requests has no percentiles.
    let p999 = |side: &str| job[side]["clat_ns"]["percentile"]["99.900000"].as_f64().unwrap_or(0.0);
    Ok(Outcome {
        requests: sum("total_ios").context("fio reports no requests")?,
        per_s: rate("read").context("no read rate")? + rate("write").context("no write rate")?,
        bytes: sum("io_bytes").context("fio reports no bytes")?,
        p999_ms: p999("read").max(p999("write")) / 1e6,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_fio_reports_is_an_error() {
        let times = r#"{"percentile": {"99.900000": 3000000}}"#;
        let side =
            format!(r#"{{"total_ios": 2, "iops": 1.5, "io_bytes": 4096, "clat_ns": {times}}}"#);
        let text = |error| {
            format!("note\n{{\"jobs\":[{{\"error\":{error},\"read\":{side},\"write\":{side}}}]}}")
        };
        let good = parse(&text(0)).unwrap();
        assert_eq!((good.requests, good.bytes), (4, 8192));
        assert!((good.p999_ms - 3.0).abs() < 1e-9, "{good:?}");
        assert!(parse(&text(5)).is_err());
    }
}
