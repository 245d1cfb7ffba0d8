//! Long-running requests: progress on standard error, the result on standard output.

use super::output;
use crate::args::TableFormat;
use crate::progress::WritebackProgress;
use anyhow::{Result, anyhow};
use larder_io::engine::StopProgress;
use larder_schema::control::Progress;
use larder_schema::format;
use larder_server::client::Client;
use serde::Serialize;
use serde_json::json;
use std::time::Instant;

/// Sends a request, shows its progress, and prints its result, each with its verb.
pub(super) fn run<B: Serialize>(
    client: &Client,
    name: &str,
    request: &B,
    (in_progress, completed): (&'static str, &str),
    format: TableFormat,
) -> Result<()> {
    let started = Instant::now();
    let mut display = WritebackProgress::new(in_progress);
    let result = client.follow(name, request, |progress| {
        let Progress::Volume { volume, done_bytes, total_bytes, error } = progress else { return };
        display.show(&StopProgress {
            volume: volume.clone(),
            total_bytes: *total_bytes,
            left_bytes: total_bytes - done_bytes,
            error: error.clone(),
        });
    });
    display.finish();
    let (bytes, failures) = result?;
    if !failures.is_empty() {
        return Err(anyhow!("{}", failures.join("; and to ")));
    }
    let elapsed_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    match format {
        TableFormat::Text => {
            let (bytes, elapsed) = (format::bytes(bytes), format::duration(elapsed_ns));
            output::text(&format!("{completed}: {bytes} in {elapsed}\n"))
        }
        TableFormat::Json => {
            output::text(&format!("{}\n", json!({"bytes": bytes, "took_ns": elapsed_ns})))
        }
        TableFormat::Csv => output::text(&format!("bytes,took_ns\n{bytes},{elapsed_ns}\n")),
    }
}
