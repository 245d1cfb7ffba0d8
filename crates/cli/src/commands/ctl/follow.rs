//! Requests that take their time: progress on standard error, the end on standard output.

use super::client::Client;
use super::{Format, output};
use crate::progress::WriteOut;
use anyhow::{Result, anyhow};
use larder_io::engine::StopProgress;
use larder_report::control::Progress;
use larder_report::format;
use serde::Serialize;
use serde_json::json;
use std::time::Instant;

/// The words for a request.
pub(super) struct RequestText {
    /// While it goes on.
    doing: &'static str,
    /// When it is done.
    done: &'static str,
}

pub(super) const FLUSH: RequestText = RequestText { doing: "writing", done: "flushed" };
pub(super) const WARM: RequestText = RequestText { doing: "reading", done: "warmed" };
pub(super) const REMOVE: RequestText = RequestText { doing: "writing", done: "removed" };
pub(super) const STOP: RequestText = RequestText { doing: "writing", done: "stopped" };

/// Asks, shows how far it is, and says how it ended.
pub(super) fn run<B: Serialize>(
    client: &Client,
    name: &str,
    request: &B,
    words: &RequestText,
    format: Format,
) -> Result<()> {
    let begun = Instant::now();
    let mut shown = WriteOut::new(words.doing);
    let ended = client.follow(name, request, |progress| {
        let Progress::Volume { volume, done_bytes, total_bytes, error } = progress else { return };
        shown.show(&StopProgress {
            volume: volume.clone(),
            total_bytes: *total_bytes,
            left_bytes: total_bytes - done_bytes,
            error: error.clone(),
        });
    });
    shown.finish();
    let (bytes, failures) = ended?;
    if !failures.is_empty() {
        return Err(anyhow!("{}", failures.join("; and to ")));
    }
    let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    match format {
        Format::Text => {
            let (bytes, took) = (format::bytes(bytes), format::duration(took));
            output::text(&format!("{}: {bytes} in {took}\n", words.done))
        }
        Format::Json => output::text(&format!("{}\n", json!({"bytes": bytes, "took_ns": took}))),
        Format::Csv => output::text(&format!("bytes,took_ns\n{bytes},{took}\n")),
    }
}
