//! Long-running requests: progress on standard error, the result on standard output.

use super::output;
use crate::args::TableFormat;
use crate::progress::WritebackProgress;
use anyhow::{Result, anyhow};
use larder_io::engine::StopProgress;
use larder_report::{control, escape};
use larder_schema::control::{JobResult, PathUser, PathUsers, Progress};
use larder_schema::format;
use larder_server::client::Client;
use serde::Serialize;
use serde_json::json;
use std::path::Path;
use std::time::Instant;

/// Tells that a stop waits for users of a mount, without this process, which may be one of them.
fn show_waiting(path: &str, users: &PathUsers) {
    let own_use = || larder_host::holders::holder(std::process::id(), Path::new(path));
    let own_use_before = own_use();
    let mut users = users.clone();
    users.first.retain(|user| Some(user) != own_use_before.as_ref());
    // The working directory of this command may be in the mount. Without this it stays there, and
    // the message below says so.
    let _is_left = std::env::set_current_dir("/");
    let own_use = own_use();
    // The server reports again if others use the mount after this command has left it.
    let has_others = users.others > 0 || !users.first.iter().all(PathUser::is_note);
    if own_use_before.is_some() && own_use.is_none() && !has_others {
        return;
    }
    eprintln!(
        "larder: {}; no unwritten data is left, and the server waits for these programs, even if \
         Ctrl-C ends this command; `larder ctl stop` once more disconnects them, and data that \
         they have not written yet is lost",
        escape::line(&control::in_use(path, &users))
    );
    if own_use.is_some() {
        eprintln!(
            "larder: note: this command has a file of the mount open, which it has from its shell; \
             end it with Ctrl-C, and leave the mount"
        );
    }
}

/// Returns the words for the end of an operation: `completed`, unless data was discarded, or
/// programs were disconnected.
fn ending(result: &JobResult, completed: &str) -> String {
    let mut losses = Vec::new();
    if result.discarded_bytes > 0 {
        let discarded = format::bytes(result.discarded_bytes);
        losses.push(format!("{discarded} of unwritten data of volumes that were given up is lost"));
    }
    if result.disconnected {
        losses.push(
            "programs were disconnected from the mount, and data that they had not written is lost"
                .to_owned(),
        );
    }
    if losses.is_empty() {
        return completed.to_owned();
    }
    format!("stopped; {}; written", losses.join("; "))
}

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
    let mut written_at = None;
    let result = client.follow(name, request, |progress| match progress {
        Progress::Volume { volume, done_bytes, total_bytes, error } => {
            display.show(&StopProgress {
                volume: volume.clone(),
                total_bytes: *total_bytes,
                left_bytes: total_bytes - done_bytes,
                error: error.clone(),
            });
        }
        Progress::Waiting { path, users } => {
            written_at.get_or_insert_with(|| started.elapsed());
            display.finish();
            show_waiting(path, users);
        }
        Progress::Done(_) => {}
    });
    display.finish();
    // The time is that of writing, without the wait for programs.
    let elapsed = written_at.unwrap_or_else(|| started.elapsed());
    let result = result?;
    let completed = &ending(&result, completed);
    let JobResult { done_bytes: bytes, cached_bytes, failures, discarded_bytes, disconnected } =
        result;
    if !failures.is_empty() {
        return Err(anyhow!("{}", failures.join("; and to ")));
    }
    let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    let cached_bytes = cached_bytes.map(|cached| cached.min(bytes));
    match format {
        TableFormat::Text => {
            let (size, elapsed) = (format::bytes(bytes), format::duration(elapsed_ns));
            output::text(&match cached_bytes.filter(|cached| *cached < bytes) {
                Some(cached) => format!(
                    "{completed}: {} of {size} in {elapsed}; the other {} were read, but are not \
                     in the cache any more: `larder ctl volumes` shows how much it can hold\n",
                    format::bytes(cached),
                    format::bytes(bytes - cached),
                ),
                None => format!("{completed}: {size} in {elapsed}\n"),
            })
        }
        TableFormat::Json => {
            let mut result = json!({"bytes": bytes, "took_ns": elapsed_ns});
            if let Some(cached) = cached_bytes {
                result["cached_bytes"] = cached.into();
            }
            if disconnected {
                result["disconnected"] = true.into();
            }
            if discarded_bytes > 0 {
                result["discarded_bytes"] = discarded_bytes.into();
            }
            output::text(&format!("{result}\n"))
        }
        TableFormat::Csv => output::text(&match cached_bytes {
            Some(cached) => {
                format!("bytes,took_ns,cached_bytes\n{bytes},{elapsed_ns},{cached}\n")
            }
            None => format!("bytes,took_ns\n{bytes},{elapsed_ns}\n"),
        }),
    }
}
