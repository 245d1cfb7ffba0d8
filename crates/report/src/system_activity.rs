//! Output of iostat and sar (sysstat), as text and as JSON, as counters of a host.
//!
//! Means of several reports are weighted: a latency by its requests, everything else by reports,
//! which have one length. The first report of iostat is that since boot, and is left out if there
//! are others. Lines of averages, which sar prints at the end, are left out.
//!
//! Names of columns are those of sysstat 10 to 12.

mod samples;
#[cfg(test)]
mod tests;
mod text;

use crate::lines::LineError;
use larder_schema::host_counters::HostCounters;
use samples::Samples;
use serde_json::Value;
use std::io::BufRead;

/// An error reading the output of iostat or sar.
#[derive(Debug, thiserror::Error)]
pub enum ActivityError {
    /// The text cannot be read.
    #[error(transparent)]
    Line(#[from] LineError),
    /// The JSON is invalid.
    #[error("it is not JSON of sysstat: {0}")]
    Json(#[from] serde_json::Error),
    /// There is no report with a known column.
    #[error(
        "it has no report of disks or processors; record with iostat -x 5 60 or \
         sar -d -u -r -S -W 5 60, without -h"
    )]
    Empty,
}

/// Returns true if a file starts like the text of iostat or sar: `Linux 6.1 (host) ... (2 CPU)`.
#[must_use]
pub fn is_text(head: &[u8]) -> bool {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    line.starts_with(b"Linux ") && line.contains(&b'(')
}

/// Returns true if JSON is that of iostat or sadf.
#[must_use]
pub fn is_json(value: &Value) -> bool {
    value.get("sysstat").is_some()
}

/// Reads text.
///
/// # Errors
/// A line is too long or cannot be read, or no report has a known column.
pub fn read_text(text: impl BufRead) -> Result<HostCounters, ActivityError> {
    text::read(text)?.counters().ok_or(ActivityError::Empty)
}

/// Reads JSON of `iostat -o JSON` or `sadf -j`.
///
/// # Errors
/// No report has a known column.
pub fn read_json(value: &Value) -> Result<HostCounters, ActivityError> {
    let host = &value["sysstat"]["hosts"][0];
    let name = host["nodename"].as_str().unwrap_or_default();
    let processors = host["number-of-cpus"].as_u64().and_then(|it| u32::try_from(it).ok());
    let mut samples = Samples::of_host(name, processors);
    for report in host["statistics"].as_array().into_iter().flatten() {
        add_report(&mut samples, report);
    }
    samples.counters().ok_or(ActivityError::Empty)
}

fn add_report(samples: &mut Samples, report: &Value) {
    let number = |row: &Value, name: &str| row.get(name).and_then(Value::as_f64);
    samples.is_sar = report.get("timestamp").is_some();
    if !samples.is_sar {
        samples.begin_report();
    }
    samples.add_seconds(report["timestamp"]["interval"].as_f64());
    if let Some(cpu) = report.get("avg-cpu") {
        samples.add_cpu(|name| number(cpu, name));
    }
    for cpu in report["cpu-load"].as_array().into_iter().flatten() {
        if cpu["cpu"] == "all" {
            samples.add_cpu(|name| number(cpu, name));
        }
    }
    for disk in report["disk"].as_array().into_iter().flatten() {
        let name = disk.get("disk_device").or_else(|| disk.get("disk-device"));
        if let Some(name) = name.and_then(Value::as_str) {
            samples.add_disk(name, |name| number(disk, name));
        }
    }
    for key in ["memory", "swap-pages"] {
        if let Some(row) = report.get(key) {
            samples.add_memory(|name| number(row, name));
        }
    }
}
